//! One rank's part in a collective operation: its identity, and how to recognise the others' parts.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::time::Picoseconds;

/// Part of one rank in a collective operation.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectiveEvent {
    /// The operation.
    pub label: Label,
    /// Number of the execution, or position in a sequence; 0 if only the order tells.
    pub number: i64,
    /// Start on R.
    pub start_ps: Picoseconds,
    /// End on R.
    pub end_ps: Picoseconds,
    /// Whom it sends to.
    pub recipients: Recipients,
}

/// Description of a part without its time and number; many parts share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label {
    /// Name for display: `psum.7`, `all_reduce`.
    pub name: String,
    /// The order it imposes.
    pub kind: CollectiveKind,
    /// How the parts of the other ranks are found.
    pub instance: Instance,
    /// Devices that take part together, as far as a program says.
    pub replicas: Replicas,
    /// The device it ran on, if stated.
    pub device: Option<Device>,
}

/// A device, as numbered by a trace.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Device {
    /// Stated by the event. The trace does not say whether the number is unique in the job or on
    /// the host only: it counts as the job's only if no two traces name the same device.
    Stated(u64),
    /// Stated by the name of the plane: unique on the host only, or assigned by a merge; never the
    /// job's number.
    OfPlane(u64),
}

/// Devices that take part together in an operation of an XLA program. All devices of a program
/// carry the same label, whichever group they are in.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Replicas {
    /// It belongs to no such program: process groups tell the participants.
    #[default]
    Absent,
    /// It belongs to such a program, but the trace lacks the program or the devices it runs on.
    Unknown,
    /// The trace does not say which run of the program it belongs to, although it does for others.
    OfUnknownRun,
    /// Those in one group, by the job's device numbers. All devices of the program together are one
    /// group that lists them all: without their numbers a program running on two meshes at once
    /// would look like one operation.
    Groups(Arc<[Vec<u64>]>),
}

/// Every part is looked up by its label, and groups may list thousands of devices: only their
/// number and first device are hashed.
impl Hash for Replicas {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        if let Self::Groups(groups) = self {
            (groups.len(), groups.first().and_then(|group| group.first())).hash(state);
        }
    }
}

/// The members of its process group that a part of an all-to-all exchange sends to.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Recipients {
    /// All members.
    #[default]
    All,
    /// Members whose bit is set, by position in the group.
    Members(u64),
    /// The trace does not say.
    Unknown,
}

/// The order that a collective imposes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CollectiveKind {
    /// All-reduce, all-gather, reduce-scatter, all-to-all, barrier: every end is after every start.
    AllToAll,
    /// Broadcast or scatter from this rank of the group, if the trace says which.
    FromRoot(Option<u32>),
    /// Reduce or gather to this rank of the group.
    ToRoot(Option<u32>),
    /// A send to or receive from this rank.
    PointToPoint {
        /// Sender.
        source: Option<u32>,
        /// Receiver.
        destination: Option<u32>,
    },
    /// Unknown to this program; never judged.
    Unknown,
}

/// How parts of one operation on different ranks are recognised as such.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Instance {
    /// XLA: module and operation, equal on all hosts; the number is that of the execution.
    Hlo {
        /// Name of the module.
        module: String,
        /// The operation.
        op: String,
    },
    /// A process group with a sequence number.
    Sequence {
        /// The group.
        group: GroupKey,
    },
    /// A communicator by the writing process's own handle, which means nothing on another rank. It
    /// is never matched as it is; if the traces together show which handles are the same
    /// (`collectives::communicators`), it becomes an [`Self::Order`].
    Communicator {
        /// Its number among those of the process ([`crate::model::TraceFacts::communicators`]).
        number: u32,
        /// Name, type and number of elements, equal on all ranks.
        signature: String,
    },
    /// Only a group and what the operation looks like; there is nothing but the order within them.
    Order {
        /// The group, if the trace names one.
        group: Option<GroupKey>,
        /// Name, type and shape of the data.
        signature: String,
    },
}

/// A communicator, as far as one process knows it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Communicator {
    /// Whether the operations name it; the unnamed ones of a process share one entry here,
    /// whichever they are.
    pub named: bool,
    /// Number of ranks, if stated.
    pub size: Option<u32>,
    /// Rank of the process in it, if stated.
    pub rank: Option<u32>,
    /// Start and end, on R, of the call that created it, which returned nowhere before all members
    /// had called it; `None` if unknown.
    pub made: Option<(Picoseconds, Picoseconds)>,
    /// Its number among the communicators for which the traces together show the counterparts on
    /// other processes.
    pub joined: Option<usize>,
}

/// A process group as named by the trace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKey {
    /// Name.
    pub name: String,
    /// Members, if the trace lists them all.
    pub ranks: Option<Vec<u32>>,
    /// Size, if stated.
    pub size: Option<u32>,
    /// The traces of all members contain its operations from its creation on: the first of each is
    /// the same.
    pub is_from_making: bool,
}
