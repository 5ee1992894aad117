//! The format-independent data about a trace that the stages exchange.
//!
//! Readers fill [`TraceFacts`]; `clocks` uses its markers and pairs, `collectives` its
//! collectives. All times are absolute `i128` picoseconds on the trace's own timeline R: base or
//! session start plus the file's value, so that no digit of either format is lost. It does not hold
//! ordinary events, which are streamed.

pub(crate) mod collective;
pub mod parts;
mod reach;
mod steps;
pub(crate) mod time;

use std::collections::HashMap;

pub use probe_sync_estimate::record::{Launcher, MarkToken, MarksHeader};
use serde::Serialize;

use crate::model::parts::CollectiveParts;

pub use self::collective::{
    CollectiveEvent, CollectiveKind, Communicator, Device, GroupKey, Instance, Label, Recipients, Replicas,
};
pub use self::reach::Reach;
pub(crate) use self::reach::{LeftOut, Oddity, Spread};
pub use self::steps::Steps;
pub use self::time::Picoseconds;
pub use self::time::{MappedTime, PS_PER_NS, UNIX_TIME_MIN_PS, nearest_ns};

/// What one trace file says of itself, its clock and its collectives.
#[derive(Clone, Debug, Default)]
pub struct TraceFacts {
    /// Who wrote it.
    pub identity: Identity,
    /// The file holds the traces of several nodes already: which part is whose is not in it.
    pub merged: bool,
    /// Which clock of its node its times are on.
    pub clock: TraceClock,
    /// The clock that its times are on, by the name that its format has for it, where the format
    /// has such names and the file states one (Perfetto: `BOOTTIME`).
    pub stated_clock: Option<&'static str>,
    /// The clock that this program has put its times on already, where the file says so: they are
    /// on it, and on no node's own.
    pub aligned_to: Option<String>,
    /// How well its times are known on that clock: their standard deviation in the middle of the
    /// file, ns, where the file says so.
    pub aligned_sigma_ns: Option<f64>,
    /// How far the rows that a profiler of CPU and devices stamped itself are behind
    /// [`Self::clock`], ns, where the caller says that they are on another: they are to be made so
    /// much later before they are mapped.
    pub cpu_behind_ns: Option<i64>,
    /// Timed events in the file, collectives and markers included.
    pub events: u64,
    /// First and last instant that any event of the program on the file's own timeline touches;
    /// markers and the profiler's own spans are none.
    pub span: Option<(Picoseconds, Picoseconds)>,
    /// Which times are believed, where some are not; None: all are.
    pub reach: Option<Reach>,
    /// Start and stop of the recording, where the file states both; Unix time.
    pub session: Option<(Picoseconds, Picoseconds)>,
    /// Planes that are not on the file's timeline but on a clock that counts from the machine's
    /// start.
    pub since_boot: Vec<PlaneSpan>,
    /// Moments at which the trace also states the system time.
    pub pairs: Vec<ClockPair>,
    /// Events that a process has put there between two readings of the system clock, which are not
    /// in the trace.
    pub marks: Vec<MarkStamp>,
    /// Those of them of which the readings are known; none until a run's files are looked at.
    pub brackets: Vec<Bracket>,
    /// It has a plane of snapshot pairs, readable or not.
    pub has_snapshot_plane: bool,
    /// Parts in collective operations.
    pub collectives: CollectiveParts,
    /// The numbered steps that it states, and in which of them its operations were issued.
    pub steps: Steps,
    /// When what begins on a device at a time was launched, ns, where the reader of facts sees it;
    /// of other formats a second reading tells.
    pub launches: HashMap<i64, i64>,
    /// Every process group of the writing rank that the file lists, named by an event or not; empty
    /// where it lists none. It tells whether an operation without a group could belong to another
    /// group.
    pub groups: Vec<GroupKey>,
    /// The communicators in which the writing process took part, where it knows them by handles of
    /// its own, by the number that [`Instance::Communicator`] bears.
    pub communicators: Vec<Communicator>,
    /// Events that are left out because their times cannot be believed: the reason, and how many.
    pub omitted: Vec<(&'static str, u64)>,
    /// Things worth telling the user: lines left out, odd values; bounded by the format's reader.
    pub notes: Vec<String>,
    /// What every command must tell: events that are left out because their times cannot be
    /// believed, sources that contradict each other about its rank, a writer that died before it
    /// named its process.
    pub warnings: Vec<String>,
}

impl TraceFacts {
    /// The kernels that begin before their launch, of those that [`Self::launches`] knows.
    pub fn before_launch(&self) -> BeforeLaunch {
        let mut found = BeforeLaunch::default();
        self.launches.iter().for_each(|(start, launch)| found.look(*start, *launch));
        found
    }
}

/// Kernels that begin before their launch: the profiler's times of the device are early by that at
/// least.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct BeforeLaunch {
    /// How many.
    pub count: u64,
    /// By how much at most, ns.
    pub most_ns: i64,
}

impl BeforeLaunch {
    /// Counts a kernel, if it is one.
    pub fn look(&mut self, start: i64, launch: i64) {
        if launch > start {
            self.count += 1;
            self.most_ns = launch.saturating_sub(start).max(self.most_ns);
        }
    }
}

/// Which clock of its node a file's times are on.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum TraceClock {
    /// The system clock, as its format says; where nothing ties the two, R is taken as S.
    #[default]
    System,
    /// `CLOCK_BOOTTIME`, which counts from the machine's start and says nothing of any other clock.
    Boot,
    /// The boot clocks of several machines: rows of many databases in one.
    SeveralBoot,
}

/// A plane whose events are on a clock that counts from the machine's start.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaneSpan {
    /// Its name.
    pub plane: String,
    /// First and last instant that any of its events touches, on that clock.
    pub span: (Picoseconds, Picoseconds),
}

/// Which node wrote a trace, as far as the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// Host name.
    pub hostname: Option<String>,
    /// Rank in the job: what the profiler says, else what a marker says.
    pub rank: Option<u32>,
    /// Whose number the profiler's rank is; None where it says none, or that of a launcher that
    /// runs do not record.
    pub launcher: Option<Launcher>,
    /// Ranks in the job.
    pub world_size: Option<u32>,
    /// The globally unique number of the process, where its profiler gives one: neither its number
    /// nor its machine's, which other hosts and later processes have too.
    pub guid: Option<String>,
    /// Rank and number of ranks that the program itself has put into the trace, as an event
    /// `probe_sync.rank#3/8`.
    pub marked_rank: Option<(u32, u32)>,
    /// The process of the run's session that wrote it, as its marks prove; none until a run's files
    /// are looked at.
    pub process: Option<MarksHeader>,
}

impl Identity {
    /// The rank of the process that its marks prove, where the profiler states none.
    pub fn take_rank_of_process(&mut self) {
        if let (None, Some(process)) = (self.rank, &self.process) {
            (self.rank, self.world_size) = (Some(process.rank), Some(process.world_size));
        }
    }
}

/// When a profiler stamped a mark's event.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MarkStamp {
    /// Of the process that entered it.
    pub token: MarkToken,
    /// The mark's number in that process.
    pub number: u64,
    /// On the trace's timeline R.
    pub tracer_ps: Picoseconds,
    /// The unit in which the file states it.
    pub unit_ps: Picoseconds,
}

/// A stamp on R and what the system clock S showed before and after it was made.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Bracket {
    /// On the trace's timeline R.
    pub tracer_ps: Picoseconds,
    /// The unit in which the file states it.
    pub unit_ps: Picoseconds,
    /// On the node's system clock S, ns.
    pub before_ns: i64,
    /// On S, ns; not less.
    pub after_ns: i64,
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
    /// A marker event: the system clock was read BEFORE the tracer stamped the event's start, so R
    /// is late by the tracer's overhead (5–40 µs, rarely 1 ms), never early.
    Marker,
}
