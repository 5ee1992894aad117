//! The builder of a session.
//!
//! [`Recorder::builder`] → settings → [`Builder::start`]. Impossible settings are rejected here,
//! before recording starts.

use std::panic::Location;
use std::path::Path;
use std::time::Duration;

use probe_sync_time::SkewedClock;

use super::handle::Session;
use super::prepare::Prepared;
use super::reference::Reference;
use super::schedule::Schedule;
use super::settings::{Policy, Settings};
use super::standing::Recorder;
use crate::active::core::Reach;
use crate::backend::{Backend, Shared};
use crate::clock::RecordClock;
use crate::error::Error;
use crate::kind::{Kind, Kinds};

impl Recorder {
    /// A session with the usual settings: the whole process, all kinds, 64 MiB of which the newest
    /// events are dropped when it is full.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

/// A session in the making.
#[derive(Clone, Debug, Default)]
pub struct Builder(Settings);

impl Builder {
    /// Whose events: the process's (default), or this thread's.
    pub fn reach(self, reach: Reach) -> Self {
        Self(Settings { reach, ..self.0 })
    }

    /// What becomes of events when memory is full.
    pub fn policy(self, policy: Policy) -> Self {
        Self(Settings { policy, ..self.0 })
    }

    /// Which kinds; all by default.
    pub fn kinds(self, kinds: &[Kind]) -> Self {
        Self(Settings { kinds: Kinds::of(kinds), ..self.0 })
    }

    /// A file that the recording lives in, so that it outlives a kill. There must be none of that
    /// name.
    pub fn spill(self, path: impl AsRef<Path>) -> Self {
        Self(Settings { spill: Some(path.as_ref().to_path_buf()), ..self.0 })
    }

    /// Of so many scopes of a thread one is recorded.
    pub fn one_in(self, every: u32) -> Self {
        Self(Settings { every, ..self.0 })
    }

    /// Scopes that are shorter are not recorded. While they are open they are seen all the same.
    pub fn longer_than(self, least: Duration) -> Self {
        Self(Settings { longer_than: least, ..self.0 })
    }

    /// The clock of events.
    pub fn clock(self, clock: RecordClock) -> Self {
        Self(Settings { clock, ..self.0 })
    }

    /// How often counter and system clock are read together; a second by default.
    pub fn pair_period(self, period: Duration) -> Self {
        Self(Settings { pair_period: period, ..self.0 })
    }

    /// Threads at once that have room for their open scopes; 256 by default.
    pub fn threads(self, threads: usize) -> Self {
        Self(Settings { threads, ..self.0 })
    }

    /// A flight recorder looks back so far at the most.
    pub fn keep(self, span: Duration) -> Self {
        Self(Settings { keep: Some(span), ..self.0 })
    }

    /// Whether arguments behind `||` are made; yes by default.
    pub fn details(self, wanted: bool) -> Self {
        Self(Settings { details: wanted, ..self.0 })
    }

    /// The process's rank, where no launcher says it.
    pub fn rank(self, rank: u32) -> Self {
        Self(Settings { rank: Some(rank), ..self.0 })
    }

    /// How many ranks the job has, where no launcher says it.
    pub fn ranks(self, ranks: u32) -> Self {
        Self(Settings { ranks: Some(ranks), ..self.0 })
    }

    /// A device, or a tool that scopes are forwarded to, that goes along. Several may be given;
    /// sessions of one builder use it one after the other.
    pub fn backend(mut self, backend: impl Backend + 'static) -> Self {
        self.0.backends.push(Shared::of(backend));
        self
    }

    /// Begins paused; [`Session::resume`] begins to record.
    pub fn paused(self) -> Self {
        Self(Settings { paused: true, ..self.0 })
    }

    /// Begins paused, to be asked from outside ([`crate::control`], `probe_sync record start`): at
    /// a socket in the folder of [`Builder::control`], or in that of the file. What counts is what
    /// lies between start and stop.
    pub fn on_demand(self) -> Self {
        Self(Settings { paused: true, on_demand: true, ..self.0 })
    }

    /// A folder for a socket at which the session is asked from outside, also one that records all
    /// the time: for copies, or to stop it.
    pub fn control(self, folder: impl AsRef<Path>) -> Self {
        Self(Settings { control: Some(folder.as_ref().to_path_buf()), ..self.0 })
    }

    /// Begins paused and goes by the program's steps ([`Session::step`]). The active steps of each
    /// repetition are a window of the recording, which holds nothing else.
    pub fn schedule(self, schedule: Schedule) -> Self {
        Self(Settings { paused: true, schedule: Some(schedule), ..self.0 })
    }

    /// What the reference of several nodes shows now, ns since the Unix epoch; None while that is
    /// not known. With `probe-sync` it is `GlobalClock::now_ns` of the page that a run keeps
    /// (`--clock-page`). It is called on threads of the recorder's.
    pub fn reference(self, now: impl Fn() -> Option<i64> + Send + Sync + 'static) -> Self {
        Self(Settings { reference: Some(Reference::of(now)), ..self.0 })
    }

    /// Records this span of the reference clock alone (ns since the Unix epoch), and what is asked
    /// for afterwards: events that begin and end within. All nodes that are told the same record
    /// the same; each errs by what its reference does.
    pub fn window(self, from_ns: i64, to_ns: i64) -> Self {
        Self(Settings { paused: true, window_ns: Some([from_ns, to_ns]), ..self.0 })
    }

    /// The system clock that the recording is tied to is this one, laid over the real one: for
    /// tests whose nodes are one machine's processes. The recording says so
    /// (`Facts::virtual_clock`).
    pub fn virtual_clock(self, clock: SkewedClock) -> Self {
        Self(Settings { virtual_clock: clock, ..self.0 })
    }

    /// Takes memory, makes the file, chooses the clock, so that [`Prepared::start`] is cheap.
    ///
    /// # Errors
    /// As of [`Builder::start`].
    #[track_caller]
    pub fn prepare(self) -> Result<Prepared, Error> {
        self.check()?;
        Prepared::of(self.0, Location::caller())
    }

    /// Begins to record.
    ///
    /// # Errors
    /// Whatever cannot be: no kinds, a session of the process that is under way
    /// ([`Error::AlreadyRecording`], naming where it was started), a file that is there or has no
    /// room, a clock that is none, a folder in which no socket can be.
    #[track_caller]
    pub fn start(self) -> Result<Session, Error> {
        self.prepare()?.start()
    }

    /// The policy as it is set now.
    pub(super) fn present_policy(&self) -> Policy {
        self.0.policy
    }

    /// Begins paused, or not.
    pub(super) fn paused_if(self, paused: bool) -> Self {
        Self(Settings { paused, ..self.0 })
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |setting: &'static str, reason: &str| Err(Error::Setting { setting, reason: reason.into() });
        if self.0.kinds.is_empty() {
            return Err(Error::NoKinds);
        }
        if self.0.on_demand && self.0.kinds == Kinds::of(&[Kind::Custom]) {
            return Err(Error::OnDemandWithoutHost);
        }
        if self.0.every == 0 {
            return refuse("one_in", "one of 0 scopes is invalid; use 1 for all scopes");
        }
        if self.0.pair_period < PAIR_PERIOD_MIN {
            return refuse("pair_period", "pairs are taken at most every 10 ms; give a longer period");
        }
        if self.0.threads == 0 {
            return refuse("threads", "there is always at least one; give a number from 1");
        }
        if let Some(reason) = self.0.schedule.and_then(|schedule| schedule.check().err()) {
            return refuse("schedule", reason);
        }
        if self.0.schedule.is_some() && (self.0.on_demand || self.0.window_ns.is_some()) {
            return refuse("schedule", "a session is controlled either by steps or on demand; omit one of them");
        }
        if self.0.window_ns.is_some() && self.0.reference.is_none() {
            return refuse("window", "there is no reference clock; give one with reference");
        }
        if self.0.on_demand && self.0.control_folder().is_none() {
            return refuse(
                "on_demand",
                "there is no folder for its socket; give one with control, or a file with spill",
            );
        }
        match self.0.policy {
            Policy::Stream { .. } if self.0.spill.is_none() => {
                refuse("policy", "a stream needs a file; give it with spill")
            }
            Policy::Stream { every, .. } if every < STREAM_PERIOD_MIN => {
                refuse("policy", "a stream appends at most once per millisecond; give a longer period")
            }
            _ if self.0.keep.is_some() && !matches!(self.0.policy, Policy::Flight { .. }) => {
                refuse("keep", "only the policy flight keeps past events; use it, or give no span")
            }
            _ => Ok(()),
        }
    }
}

const PAIR_PERIOD_MIN: Duration = Duration::from_millis(10);
const STREAM_PERIOD_MIN: Duration = Duration::from_millis(1);
