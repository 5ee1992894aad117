//! What the stages tell each other about a trace, whatever its format.
//!
//! Place in the flow: `formats` fill [`TraceFacts`]; `clocks` use its markers and pairs, `collectives` its collectives.
//! All times are `i128` picoseconds on the trace's own timeline R, absolute: base or session start plus what the file
//! says, so that no digit of either format is lost. What it does not do: hold ordinary events; those are streamed.

use serde::Serialize;

/// A time in picoseconds since the epoch of its timeline.
pub type Picoseconds = i128;

/// What one trace file says of itself, its clock and its collectives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceFacts {
    /// Who wrote it.
    pub identity: Identity,
    /// Timed events in the file, collectives and markers included.
    pub events: u64,
    /// First and last instant that any event of the program touches; markers and the profiler's own spans are none.
    pub span: Option<(Picoseconds, Picoseconds)>,
    /// Moments at which the trace also states the system time.
    pub pairs: Vec<ClockPair>,
    /// Collective operations, in order of the file.
    pub collectives: Vec<CollectiveEvent>,
    /// Every process group of the writing rank that the file lists, named by an event or not; empty where it lists none.
    /// It tells whether an operation without a group could belong to another group.
    pub groups: Vec<GroupKey>,
    /// Things worth telling the user: lines left out, odd values; bounded by the format's reader.
    pub notes: Vec<String>,
}

/// Which node wrote a trace, as far as the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// Host name.
    pub hostname: Option<String>,
    /// Rank in the job.
    pub rank: Option<u32>,
    /// Ranks in the job.
    pub world_size: Option<u32>,
}

/// One moment on two clocks.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct ClockPair {
    /// On the trace's timeline R.
    pub tracer_ps: Picoseconds,
    /// On the node's system clock S, ns.
    pub system_ns: i64,
    /// How the pair came about.
    pub kind: PairKind,
}

/// How trustworthy a pair is.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum PairKind {
    /// Read in a bracket of this width, ns: two-sided error of at most half of it.
    Bracketed(f64),
    /// A marker event: the system clock was read BEFORE the tracer stamped the event's start, so R is late by the tracer's
    /// overhead (5–40 µs, rarely 1 ms), never early.
    Marker,
}

/// One rank's part in a collective operation.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectiveEvent {
    /// For people: `psum.7`, `all_reduce`.
    pub name: String,
    /// What orders what.
    pub kind: CollectiveKind,
    /// How the other ranks' parts are found.
    pub instance: Instance,
    /// Start on R.
    pub start_ps: Picoseconds,
    /// End on R.
    pub end_ps: Picoseconds,
    /// The line or thread it is on, unique within the file.
    pub track: u64,
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
    /// XLA: equal on all hosts.
    Hlo {
        /// The module's name.
        module: String,
        /// The execution.
        run_id: i64,
        /// The operation.
        op: String,
    },
    /// A process group with a running number.
    Sequence {
        /// The group.
        group: GroupKey,
        /// The number.
        sequence: i64,
    },
    /// Only a group and what the operation looks like: order within them is all there is.
    Order {
        /// The group, where the trace names one.
        group: Option<GroupKey>,
        /// Name, type and shape of the data.
        signature: String,
    },
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
}
