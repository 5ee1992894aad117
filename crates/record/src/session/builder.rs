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
use crate::detail::Details;
use crate::error::Error;
use crate::kind::{Kind, Kinds};

impl Recorder {
    /// Returns a builder with default settings: the whole process, all kinds, and 64 MiB of memory,
    /// of which the newest events are dropped when it is full.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

/// Builds a session.
#[derive(Clone, Debug, Default)]
pub struct Builder(Settings);

impl Builder {
    /// Sets which threads' events are recorded: the process's (default), or this thread's.
    pub fn reach(self, reach: Reach) -> Self {
        Self(Settings { reach, ..self.0 })
    }

    /// Sets what happens to events when memory is full.
    pub fn policy(self, policy: Policy) -> Self {
        Self(Settings { policy, ..self.0 })
    }

    /// Sets the kinds; all by default.
    pub fn kinds(self, kinds: &[Kind]) -> Self {
        Self(Settings { kinds: Kinds::of(kinds), ..self.0 })
    }

    /// Sets a file for the recording, so that it survives a kill. It must not exist.
    pub fn spill(self, path: impl AsRef<Path>) -> Self {
        Self(Settings { spill: Some(path.as_ref().to_path_buf()), ..self.0 })
    }

    /// Sets whether events of kinds that are not recorded are counted ([`Status::omitted`]). Every
    /// event then takes the slow path; use it to find out why events are missing.
    ///
    /// [`Status::omitted`]: crate::read::Status::omitted
    pub fn count_omitted(self, wanted: bool) -> Self {
        Self(Settings { counts_omitted: wanted, ..self.0 })
    }

    /// Records one in this many scopes of a thread.
    pub fn one_in(self, every: u32) -> Self {
        Self(Settings { every, ..self.0 })
    }

    /// Omits scopes shorter than this. They are visible while they are open.
    pub fn longer_than(self, least: Duration) -> Self {
        Self(Settings { longer_than: least, ..self.0 })
    }

    /// Sets the clock of events.
    pub fn clock(self, clock: RecordClock) -> Self {
        Self(Settings { clock, ..self.0 })
    }

    /// Sets how often counter and system clock are read together; one second by default.
    pub fn pair_period(self, period: Duration) -> Self {
        Self(Settings { pair_period: period, ..self.0 })
    }

    /// Sets how many threads at a time have room for their open scopes; 256 by default.
    pub fn threads(self, threads: usize) -> Self {
        Self(Settings { threads, ..self.0 })
    }

    /// Limits the span of a flight recorder.
    pub fn keep(self, span: Duration) -> Self {
        Self(Settings { keep: Some(span), ..self.0 })
    }

    /// Sets whether arguments behind `||` are evaluated; true by default. [`Builder::shapes`],
    /// [`Builder::stacks`], [`Builder::modules`] and [`Builder::flops`], called afterwards, make
    /// exceptions. An argument of a scope is evaluated if any session on the thread wants it, and all
    /// sessions that record the scope then have it; those of instants are evaluated in any case.
    pub fn details(self, wanted: bool) -> Self {
        Self(Settings { details: if wanted { Details::ALL } else { Details::NONE }, ..self.0 })
    }

    /// Sets whether the dimensions of tensors are recorded: arguments `shapes` behind `||`.
    pub fn shapes(self, wanted: bool) -> Self {
        self.detail(Details::SHAPES, wanted)
    }

    /// Sets whether call stacks are recorded: arguments `stack` behind `||`.
    pub fn stacks(self, wanted: bool) -> Self {
        self.detail(Details::STACKS, wanted)
    }

    /// Sets whether modules of the model are recorded, which give events their module path:
    /// arguments `module` behind `||`.
    pub fn modules(self, wanted: bool) -> Self {
        self.detail(Details::MODULES, wanted)
    }

    /// Sets whether exports compute floating-point operations. They need shapes, which `true`
    /// requests too.
    pub fn flops(self, wanted: bool) -> Self {
        let with = self.detail(Details::FLOPS, wanted);
        if wanted { with.shapes(true) } else { with }
    }

    /// Sets whether memory events are recorded: the kind [`Kind::Memory`].
    pub fn memory(self, wanted: bool) -> Self {
        let kinds = self.0.kinds.with(Kind::Memory, wanted);
        Self(Settings { kinds, ..self.0 })
    }

    fn detail(self, group: Details, wanted: bool) -> Self {
        let details = self.0.details.with(group, wanted);
        Self(Settings { details, ..self.0 })
    }

    /// Sets the process's rank, if no launcher provides it.
    pub fn rank(self, rank: u32) -> Self {
        Self(Settings { rank: Some(rank), ..self.0 })
    }

    /// Sets the number of ranks in the job, if no launcher provides it.
    pub fn ranks(self, ranks: u32) -> Self {
        Self(Settings { ranks: Some(ranks), ..self.0 })
    }

    /// Adds a device, or a tool to which scopes are forwarded. Several may be added; sessions of
    /// one builder use them one after the other.
    pub fn backend(mut self, backend: impl Backend + 'static) -> Self {
        self.0.backends.push(Shared::of(backend));
        self
    }

    /// Starts paused; [`Session::resume`] begins to record.
    pub fn paused(self) -> Self {
        Self(Settings { paused: true, ..self.0 })
    }

    /// Starts paused, controlled from outside ([`crate::control`], `probe_sync record start`) at a
    /// socket in the folder of [`Builder::control`] or in that of the file. Only what is recorded
    /// between start and stop counts.
    pub fn on_demand(self) -> Self {
        Self(Settings { paused: true, on_demand: true, ..self.0 })
    }

    /// Sets a folder for a control socket, also for a session that records all the time: for
    /// copies, or to stop it.
    pub fn control(self, folder: impl AsRef<Path>) -> Self {
        Self(Settings { control: Some(folder.as_ref().to_path_buf()), ..self.0 })
    }

    /// Starts paused and follows the program's steps ([`Session::step`]). The active steps of each
    /// repetition are a window of the recording, which contains nothing else.
    pub fn schedule(self, schedule: Schedule) -> Self {
        Self(Settings { paused: true, schedule: Some(schedule), ..self.0 })
    }

    /// Sets the function that returns the current reference time of several nodes, ns since the
    /// Unix epoch; `None` while it is unknown. With `probe-sync` it is `GlobalClock::now_ns` of the
    /// page that a run keeps (`--clock-page`). It is called on threads of the recorder.
    pub fn reference(self, now: impl Fn() -> Option<i64> + Send + Sync + 'static) -> Self {
        Self(Settings { reference: Some(Reference::of(now)), ..self.0 })
    }

    /// Records only this span of the reference clock (ns since the Unix epoch), and those requested
    /// afterwards: events that begin and end within. All nodes that receive the same span record
    /// the same one; each is wrong by its reference's error.
    pub fn window(self, from_ns: i64, to_ns: i64) -> Self {
        Self(Settings { paused: true, window_ns: Some([from_ns, to_ns]), ..self.0 })
    }

    /// Sets where the session is started, for messages and [`Facts::started_at`], if that is not the
    /// caller of [`Builder::start`].
    ///
    /// [`Facts::started_at`]: crate::Facts::started_at
    pub fn started_at(self, place: impl Into<String>) -> Self {
        Self(Settings { started_at: place.into(), ..self.0 })
    }

    /// Lays this virtual clock over the system clock to which the recording is tied: for tests
    /// whose nodes are processes of one machine. The recording states it (`Facts::virtual_clock`).
    pub fn virtual_clock(self, clock: SkewedClock) -> Self {
        Self(Settings { virtual_clock: clock, ..self.0 })
    }

    /// Allocates memory, creates the file and chooses the clock, so that [`Prepared::start`] is
    /// cheap.
    ///
    /// # Errors
    /// Errors of [`Builder::start`].
    #[track_caller]
    pub fn prepare(mut self) -> Result<Prepared, Error> {
        self.check()?;
        if self.0.started_at.is_empty() {
            self.0.started_at = Location::caller().to_string();
        }
        Prepared::of(self.0)
    }

    /// Starts recording.
    ///
    /// # Errors
    /// Fails if there are no kinds, if a session of the process is running
    /// ([`Error::AlreadyRecording`], with where it was started), if the file exists or there is no
    /// space, if the clock is not usable, or if the folder cannot contain a socket.
    #[track_caller]
    pub fn start(self) -> Result<Session, Error> {
        self.prepare()?.start()
    }

    /// Returns the policy as set so far.
    pub(super) fn present_policy(&self) -> Policy {
        self.0.policy
    }

    /// Sets whether it starts paused.
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
