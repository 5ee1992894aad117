//! How a session is asked for.
//!
//! Place in the flow: [`Recorder::builder`] → settings → [`Builder::start`]. Everything that cannot be is refused here, before anything records.

use std::panic::Location;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::handle::Session;
use crate::active::core::Reach;
use crate::clock::RecordClock;
use crate::error::Error;
use crate::kind::{Kind, Kinds};

/// Where sessions come from.
#[derive(Copy, Clone, Debug)]
pub struct Recorder;

impl Recorder {
    /// A session with the usual settings: the whole process, all kinds, 64 MiB of which the newest events are dropped when it is full.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

/// What becomes of events when a session's memory is full.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// New ones are dropped, and counted.
    DropNewest {
        /// Bytes of the session, definitions and all.
        bytes: usize,
    },
    /// The oldest are overwritten: a flight recorder.
    Flight {
        /// Bytes of the session.
        bytes: usize,
    },
    /// A thread appends them to the session's file, which [`Builder::spill`] names. New ones are dropped, and counted, where it does not keep up.
    Stream {
        /// Bytes between the recording threads and the file.
        bytes: usize,
        /// How often it appends.
        every: Duration,
    },
}

impl Policy {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::DropNewest { bytes } | Self::Flight { bytes } | Self::Stream { bytes, .. } => bytes,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::DropNewest { .. } => "drop_newest",
            Self::Flight { .. } => "flight",
            Self::Stream { .. } => "stream",
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::DropNewest { bytes: 64 << 20 }
    }
}

/// A session in the making.
#[derive(Clone, Debug)]
pub struct Builder {
    pub(super) reach: Reach,
    pub(super) policy: Policy,
    pub(super) kinds: Kinds,
    pub(super) spill: Option<PathBuf>,
    pub(super) every: u32,
    pub(super) longer_than: Duration,
    pub(super) clock: RecordClock,
    pub(super) pair_period: Duration,
    pub(super) threads: usize,
    pub(super) keep: Option<Duration>,
    pub(super) details: bool,
    pub(super) rank: Option<u32>,
    pub(super) paused: bool,
    pub(super) on_demand: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            reach: Reach::Process,
            policy: Policy::default(),
            kinds: Kinds::ALL,
            spill: None,
            every: 1,
            longer_than: Duration::ZERO,
            clock: RecordClock::Best,
            pair_period: Duration::from_secs(1),
            threads: 256,
            keep: None,
            details: true,
            rank: None,
            paused: false,
            on_demand: false,
        }
    }
}

impl Builder {
    /// Whose events: the process's (default), or this thread's.
    pub fn reach(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }

    /// What becomes of events when memory is full.
    pub fn policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// Which kinds; all by default.
    pub fn kinds(self, kinds: &[Kind]) -> Self {
        Self { kinds: Kinds::of(kinds), ..self }
    }

    /// A file that the recording lives in, so that it outlives a kill. There must be none of that name.
    pub fn spill(self, path: impl AsRef<Path>) -> Self {
        Self { spill: Some(path.as_ref().to_path_buf()), ..self }
    }

    /// Of so many scopes of a thread one is recorded.
    pub fn one_in(self, every: u32) -> Self {
        Self { every, ..self }
    }

    /// Scopes that are shorter are not recorded. While they are open they are seen all the same.
    pub fn longer_than(self, least: Duration) -> Self {
        Self { longer_than: least, ..self }
    }

    /// The clock of events.
    pub fn clock(self, clock: RecordClock) -> Self {
        Self { clock, ..self }
    }

    /// How often counter and system clock are read together; a second by default.
    pub fn pair_period(self, period: Duration) -> Self {
        Self { pair_period: period, ..self }
    }

    /// Threads at once that have room for their open scopes; 256 by default.
    pub fn threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// A flight recorder looks back so far at the most.
    pub fn keep(self, span: Duration) -> Self {
        Self { keep: Some(span), ..self }
    }

    /// Whether arguments behind `||` are made; yes by default.
    pub fn details(self, wanted: bool) -> Self {
        Self { details: wanted, ..self }
    }

    /// The process's rank, where no launcher says it.
    pub fn rank(self, rank: u32) -> Self {
        Self { rank: Some(rank), ..self }
    }

    /// Begins paused; [`Session::resume`] begins to record.
    pub fn paused(self) -> Self {
        Self { paused: true, ..self }
    }

    /// Begins paused, to be asked from outside.
    pub fn on_demand(self) -> Self {
        Self { paused: true, on_demand: true, ..self }
    }

    /// Begins to record.
    ///
    /// # Errors
    /// Whatever cannot be: no kinds, a session of the process that is under way ([`Error::AlreadyRecording`], naming where it was started), a file that
    /// is there or has no room, a clock that is none.
    #[track_caller]
    pub fn start(self) -> Result<Session, Error> {
        self.check()?;
        Session::start(&self, Location::caller())
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |setting: &'static str, reason: &str| Err(Error::Setting { setting, reason: reason.into() });
        if self.kinds.is_empty() {
            return Err(Error::NoKinds);
        }
        if self.on_demand && self.kinds == Kinds::of(&[Kind::Custom]) {
            return Err(Error::OnDemandWithoutHost);
        }
        if self.every == 0 {
            return refuse("one_in", "one of 0 scopes is none; give 1 for all");
        }
        if self.pair_period < PAIR_PERIOD_MIN {
            return refuse("pair_period", "pairs are taken at most every 10 ms; give a longer period");
        }
        if self.threads == 0 {
            return refuse("threads", "there is always one; give its number or more");
        }
        match self.policy {
            Policy::Stream { .. } if self.spill.is_none() => {
                refuse("policy", "a stream needs a file; name it with spill")
            }
            Policy::Stream { every, .. } if every < STREAM_PERIOD_MIN => {
                refuse("policy", "a stream appends at most every ms; give a longer period")
            }
            _ if self.keep.is_some() && !matches!(self.policy, Policy::Flight { .. }) => {
                refuse("keep", "only a flight recorder looks back; give the policy flight, or no span")
            }
            _ => Ok(()),
        }
    }
}

const PAIR_PERIOD_MIN: Duration = Duration::from_millis(10);
const STREAM_PERIOD_MIN: Duration = Duration::from_millis(1);
