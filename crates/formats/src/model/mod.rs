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

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

pub use probe_sync_lines::{Launcher, MarkToken, MarksHeader};
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

/// What one trace file says about itself, its clock and its collectives.
#[derive(Clone, Debug, Default)]
pub struct TraceFacts {
    /// Who wrote it.
    pub identity: Identity,
    /// The file already contains the traces of several nodes, without saying which part belongs to
    /// which.
    pub merged: bool,
    /// The clock of its node that its times are on.
    pub clock: TraceClock,
    /// Its times are readings of that clock itself, not a profiler's: pairs of another clock do not
    /// apply to them.
    pub is_read_from_clock: bool,
    /// The format's name for the clock of its times, if the format has such names and the file
    /// states one (Perfetto: `BOOTTIME`).
    pub stated_clock: Option<&'static str>,
    /// The clock that this program has already put its times on, if the file says so: they are on
    /// that clock and on no node's own.
    pub aligned_to: Option<String>,
    /// Uncertainty of its times on that clock: standard deviation in the middle of the file, ns, if
    /// the file states it.
    pub aligned_sigma_ns: Option<f64>,
    /// How far the rows that a profiler of CPU and devices stamped itself are behind
    /// [`Self::clock`], ns, if the caller says that they are on another clock: they must be shifted
    /// later by this much before they are mapped.
    pub cpu_behind_ns: Option<i64>,
    /// Origin of the times in the file, Unix time in ns, if the file states one (Kineto's
    /// `baseTimeNanoseconds`). The times here count from it already.
    pub base_ns: Option<i64>,
    /// Timed events in the file, including collectives and markers.
    pub events: u64,
    /// First and last instant of the program's events on the file's own timeline; markers and the
    /// profiler's own spans do not count.
    pub span: Option<(Picoseconds, Picoseconds)>,
    /// Range of plausible times, if some are implausible; `None`: all are plausible.
    pub reach: Option<Reach>,
    /// Start and stop of the recording, if the file states both; Unix time.
    pub session: Option<(Picoseconds, Picoseconds)>,
    /// Planes that are not on the file's timeline but on a clock that counts from boot.
    pub since_boot: Vec<PlaneSpan>,
    /// Moments at which the trace also states the system time.
    pub pairs: Vec<ClockPair>,
    /// Events that a process put there between two readings of the system clock; the trace does not
    /// contain the readings.
    pub marks: Vec<MarkStamp>,
    /// Those of them with known readings; none until the files of a run are read.
    pub brackets: Vec<Bracket>,
    /// It has a plane of snapshot pairs, readable or not.
    pub has_snapshot_plane: bool,
    /// Parts of collective operations.
    pub collectives: CollectiveParts,
    /// The numbered steps it states, and the steps in which its operations were issued.
    pub steps: Steps,
    /// Launch times of what begins on a device at a time, ns, if the reader of facts sees them;
    /// other formats need a second pass.
    pub launches: HashMap<i64, i64>,
    /// All process groups of the writing rank that the file lists, named by an event or not; empty
    /// if it lists none. It tells whether an operation without a group could belong to another
    /// group.
    pub groups: Vec<GroupKey>,
    /// The communicators in which the writing process took part, if it knows them by handles of its
    /// own, by the number in [`Instance::Communicator`].
    pub communicators: Vec<Communicator>,
    /// For a merge into a file of the same format, if the reader of facts was asked for it.
    pub merging: Option<MergeFacts>,
    /// Events omitted because of implausible times: the reason, and how many.
    pub omitted: Vec<(&'static str, u64)>,
    /// Notes for the user: skipped lines, odd values; limited in number by the reader of the
    /// format.
    pub notes: Vec<String>,
    /// Warnings that every command must show: events omitted because of implausible times,
    /// contradictory sources of its rank, a writer that died before it named its process.
    pub warnings: Vec<String>,
}

/// What a merge must know about one of its inputs before it writes. Only the input's format knows
/// what that is.
#[derive(Clone, Debug)]
pub struct MergeFacts(Arc<dyn Any + Send + Sync>);

impl MergeFacts {
    pub(crate) fn new(facts: impl Any + Send + Sync) -> Self {
        Self(Arc::new(facts))
    }

    /// The facts, if they are of this type.
    pub(crate) fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
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
    /// Largest amount, ns.
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

/// The clock of its node that the times of a file are on.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum TraceClock {
    /// The system clock, as its format says; if nothing ties the two, R is taken as S.
    #[default]
    System,
    /// `CLOCK_BOOTTIME`, which counts from boot and says nothing about any other clock.
    Boot,
    /// `CLOCK_MONOTONIC`, which counts from boot, but not while the machine is suspended.
    Monotonic,
    /// The boot clocks of several machines: rows of many databases in one.
    SeveralBoot,
}

impl TraceClock {
    /// Returns true if the times of one machine are on one clock that counts from boot.
    pub fn counts_from_boot(self) -> bool {
        matches!(self, Self::Boot | Self::Monotonic)
    }

    /// Returns the kernel's name for the clock.
    pub fn kernel_name(self) -> &'static str {
        match self {
            Self::System => "CLOCK_REALTIME",
            Self::Boot | Self::SeveralBoot => "CLOCK_BOOTTIME",
            Self::Monotonic => "CLOCK_MONOTONIC",
        }
    }

    /// Returns the names that pairs of this clock give to their tracer clock.
    pub fn tracer_clocks(self) -> &'static [&'static str] {
        match self {
            Self::System => &["realtime"],
            Self::Boot | Self::SeveralBoot => &["boottime", "rocprofiler"],
            Self::Monotonic => &["monotonic"],
        }
    }

    /// Returns the clock's name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system clock",
            Self::Boot | Self::SeveralBoot => "boot clock",
            Self::Monotonic => "monotonic clock",
        }
    }
}

/// A plane whose events are on a clock that counts from boot.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaneSpan {
    /// Name of the plane.
    pub plane: String,
    /// First and last instant of its events, on that clock.
    pub span: (Picoseconds, Picoseconds),
}

/// Which node wrote a trace, as far as the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// Host name.
    pub hostname: Option<String>,
    /// Rank in the job: from the profiler, otherwise from a marker.
    pub rank: Option<u32>,
    /// The launcher that the profiler's rank comes from; `None` if it states no rank, or that of a
    /// launcher that runs do not record.
    pub launcher: Option<Launcher>,
    /// Ranks in the job.
    pub world_size: Option<u32>,
    /// Globally unique number of the process, if its profiler states one. Neither the process ID
    /// nor the machine's ID will do, since other hosts and later processes share them.
    pub guid: Option<String>,
    /// Rank and number of ranks that the program itself put into the trace, as an event
    /// `probe_sync.rank#3/8`.
    pub marked_rank: Option<(u32, u32)>,
    /// The process of the run's session that wrote it, as proven by its marks; none until the files
    /// of a run are read.
    pub process: Option<MarksHeader>,
}

impl Identity {
    /// The rank of the process that its marks prove, if the profiler states none.
    pub fn take_rank_of_process(&mut self) {
        if let (None, Some(process)) = (self.rank, &self.process) {
            (self.rank, self.world_size) = (Some(process.rank), Some(process.world_size));
        }
    }
}

/// When a profiler stamped the event of a mark.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MarkStamp {
    /// Token of the process that entered it.
    pub token: MarkToken,
    /// Number of the mark in that process.
    pub number: u64,
    /// On the trace's timeline R.
    pub tracer_ps: Picoseconds,
    /// The unit in which the file states it.
    pub unit_ps: Picoseconds,
}

/// A stamp on R, and the readings of the system clock S before and after it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Bracket {
    /// On the trace's timeline R.
    pub tracer_ps: Picoseconds,
    /// The unit in which the file states it.
    pub unit_ps: Picoseconds,
    /// On the node's system clock S, ns.
    pub before_ns: i64,
    /// On S, ns; not less than `before_ns`.
    pub after_ns: i64,
}

/// One moment on two clocks.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct ClockPair {
    /// On the trace's timeline R.
    pub tracer_ps: Picoseconds,
    /// On the node's system clock S, ns.
    pub system_ns: i64,
    /// Origin of the pair.
    pub kind: PairKind,
}

/// How trustworthy a pair is.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum PairKind {
    /// Read in a bracket of this width, ns: two-sided error of at most half of it.
    Bracketed(f64),
    /// A marker event: the system clock was read BEFORE the tracer stamped the start of the event,
    /// so R is late by the tracer's overhead (5–40 µs, rarely 1 ms), never early.
    Marker,
}
