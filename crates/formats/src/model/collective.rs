//! One rank's part in a collective operation: its identity, and how to recognise the others' parts.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::time::Picoseconds;

/// One rank's part in a collective operation.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectiveEvent {
    /// What it is.
    pub label: Label,
    /// Which execution or place in a sequence; 0 where only order tells.
    pub number: i64,
    /// Start on R.
    pub start_ps: Picoseconds,
    /// End on R.
    pub end_ps: Picoseconds,
    /// To whom it sends.
    pub recipients: Recipients,
}

/// What a part is, without its time and number: many parts share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label {
    /// For people: `psum.7`, `all_reduce`.
    pub name: String,
    /// What orders what.
    pub kind: CollectiveKind,
    /// How the other ranks' parts are found.
    pub instance: Instance,
    /// Which devices take part together, as far as a program says.
    pub replicas: Replicas,
    /// The device it ran on, where stated.
    pub device: Option<Device>,
}

/// A device, as a trace numbers it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Device {
    /// By the event. Whether the number is the job's or the host's is not said: it counts as the
    /// job's only where no two traces name one device.
    Stated(u64),
    /// By the plane's name: the host's number, or one that a merge gave it; never the job's.
    OfPlane(u64),
}

/// Which devices take part together in an operation of an XLA program. All devices of a program
/// carry the same label, whichever group they are in.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Replicas {
    /// It is of no such program: process groups say who takes part.
    #[default]
    Absent,
    /// It is of such a program, but the trace does not hold it, or not on which devices it runs.
    Unknown,
    /// Of which of the program's runs it is, the trace does not say, though it says so of others.
    OfUnknownRun,
    /// Those in one group, by the job's numbers of devices. All of the program's devices together
    /// are one group with all of them: without their numbers a program that runs on two meshes at
    /// once would look like one operation.
    Groups(Arc<[Vec<u64>]>),
}

/// Every part is looked up by its label, and groups may list thousands of devices: they count by
/// their number and first device.
impl Hash for Replicas {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        if let Self::Groups(groups) = self {
            (groups.len(), groups.first().and_then(|group| group.first())).hash(state);
        }
    }
}

/// To which members of its process group a part of an all-to-all exchange sends anything.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Recipients {
    /// To all.
    #[default]
    All,
    /// To those whose bit is set, by place in the group.
    Members(u64),
    /// The trace does not say.
    Unknown,
}

/// Which order a collective imposes.
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
        /// The sender.
        source: Option<u32>,
        /// The receiver.
        destination: Option<u32>,
    },
    /// Something that this program does not know; never judged.
    Unknown,
}

/// How parts of one operation on different ranks recognise each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Instance {
    /// XLA: module and operation, equal on all hosts; the number is the execution's.
    Hlo {
        /// The module's name.
        module: String,
        /// The operation.
        op: String,
    },
    /// A process group with a running number.
    Sequence {
        /// The group.
        group: GroupKey,
    },
    /// A communicator by the writing process's own handle, which says nothing on another rank:
    /// never matched as it is, but where the traces together tell which handles are one
    /// (`collectives::communicators`), it becomes an [`Self::Order`].
    Communicator {
        /// Its number among the process's ([`crate::model::TraceFacts::communicators`]).
        number: u32,
        /// Name, type and number of elements, equal on all ranks.
        signature: String,
    },
    /// Only a group and what the operation looks like: order within them is all there is.
    Order {
        /// The group, where the trace names one.
        group: Option<GroupKey>,
        /// Name, type and shape of the data.
        signature: String,
    },
}

/// A communicator, as far as one process knows it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Communicator {
    /// Whether the operations name it; the others of a process share one place here, whichever they
    /// are in.
    pub named: bool,
    /// Its number of ranks, where stated.
    pub size: Option<u32>,
    /// The process's rank in it, where stated.
    pub rank: Option<u32>,
    /// From when until when the call ran that made it and returned nowhere before all members had
    /// called it, on R; None where that is not known.
    pub made: Option<(Picoseconds, Picoseconds)>,
    /// Its number among those of which the traces together have told which they are of other
    /// processes.
    pub joined: Option<usize>,
}

/// A process group as the trace names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKey {
    /// Its name.
    pub name: String,
    /// Its members, where the trace lists them in full.
    pub ranks: Option<Vec<u32>>,
    /// Its size, where stated.
    pub size: Option<u32>,
    /// The traces of all members hold its operations from its making on: the first of each is the
    /// same.
    pub is_from_making: bool,
}
