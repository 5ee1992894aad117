//! The backends of one session, from before it begins until after it has ended.
//!
//! The session holds it, and its thread calls [`Running::tick`]. Panics of a backend are caught in
//! every call, and a backend that panics is not called again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::clock::{DeviceClock, HostClock};
use super::sink::Sink;
use super::{Request, Shared};
use crate::active::core::Core;
use crate::clock::Ticks;
use crate::error::Error;

/// State of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendState {
    /// Running.
    Running,
    /// Not available, for this reason.
    Absent(String),
    /// Available, but something went wrong.
    Failed(String),
    /// Stopped normally.
    Stopped,
}

/// A backend of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendStatus {
    /// Its name.
    pub name: String,
    /// State of the backend.
    pub state: BackendState,
}

impl std::fmt::Display for BackendStatus {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = &self.name;
        match &self.state {
            BackendState::Running => write!(formatter, "backend {name}: started"),
            BackendState::Absent(reason) => {
                write!(formatter, "backend {name}: not available, the session continues without it: {reason}")
            }
            BackendState::Failed(reason) => write!(formatter, "backend {name}: failed: {reason}"),
            BackendState::Stopped => write!(formatter, "backend {name}: stopped"),
        }
    }
}

/// All backends of a session.
#[derive(Debug, Default)]
pub(crate) struct Running(Vec<Mutex<Member>>);

#[derive(Debug)]
struct Member {
    shared: Shared,
    status: BackendStatus,
    sink: Option<Sink>,
    host: Option<HostClock>,
    /// Ticks of the session's thread until the next pair, and between two pairs.
    until_pair: u64,
    stride: u64,
    pairs: u64,
}

impl Running {
    /// Asks each backend whether it supports this session and is available.
    ///
    /// # Errors
    /// [`Error::BackendNotForReach`].
    pub fn prepare(list: &[Shared], request: &Request) -> Result<Self, Error> {
        let mut running = Self::default();
        for shared in list {
            let mut backend = lock(&shared.backend);
            let name = guarded(|| Ok(backend.name().to_owned())).unwrap_or_else(|_| "(without a name)".into());
            if let Err(remedy) = guarded(|| backend.is_for(request.reach)) {
                return Err(Error::BackendNotForReach { backend: name, reach: request.reach.as_str(), remedy });
            }
            let prepared = if shared.taken.swap(true, Ordering::AcqRel) {
                Err("another session uses it; finish that first".to_owned())
            } else {
                let prepared = guarded(|| backend.prepare(request));
                shared.taken.store(prepared.is_ok(), Ordering::Release);
                prepared
            };
            drop(backend);
            let state = prepared.map_or_else(BackendState::Absent, |()| BackendState::Running);
            let status = BackendStatus { name, state };
            let shared = shared.clone();
            running.0.push(Mutex::new(Member {
                shared,
                status,
                sink: None,
                host: None,
                until_pair: 0,
                stride: 1,
                pairs: 0,
            }));
        }
        Ok(running)
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Starts the available backends.
    pub fn start(&self, core: &Arc<Core>, ticks: Ticks, ticks_per_second: f64) {
        for member in &self.0 {
            let mut member = lock(member);
            if member.status.state == BackendState::Running {
                member.start(core, ticks, ticks_per_second);
            }
            if member.status.state != BackendState::Running {
                core.define_note(&member.status.to_string());
            }
        }
    }

    /// Called after each pair period of the session.
    pub fn tick(&self) {
        for member in &self.0 {
            let mut member = lock(member);
            if member.sink.is_some() && member.status.state == BackendState::Running {
                member.take_pair();
                let collected = member.collect();
                member.note(collected);
            }
        }
    }

    /// Stops the running backends, and collects their events.
    pub fn stop(&self, core: &Core) {
        for member in &self.0 {
            let mut member = lock(member);
            if member.sink.is_some() {
                member.stop();
                core.define_note(&member.status.to_string());
            }
        }
    }

    /// Returns the state of each backend.
    pub fn status(&self) -> Vec<BackendStatus> {
        self.0.iter().map(|member| lock(member).status.clone()).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for member in &self.0 {
            // In a forked child another thread may have held it, which is not there.
            if let Ok(mut member) = member.try_lock() {
                member.give_back();
            }
        }
    }
}

impl Member {
    fn start(&mut self, core: &Arc<Core>, ticks: Ticks, ticks_per_second: f64) {
        let clock = CLOCK.fetch_add(1, Ordering::Relaxed);
        let shared = self.shared.clone();
        let mut backend = lock(&shared.backend);
        let hz = match backend.clock() {
            DeviceClock::Recorder => 0,
            DeviceClock::Own { hz } => hz.max(1),
        };
        core.define_clock(clock, hz, &self.status.name);
        self.sink = Some(Sink::new(Arc::clone(core), clock, if hz == 0 { 1.0 } else { ticks_per_second / hz as f64 }));
        self.host = Some(HostClock(ticks));
        drop(backend);
        self.take_pair();
        backend = lock(&shared.backend);
        let started = guarded(|| backend.start());
        drop(backend);
        if let Err(reason) = started {
            self.status.state = BackendState::Failed(format!("it did not start: {reason}"));
            self.sink = None;
            self.give_back();
        }
    }

    fn stop(&mut self) {
        let shared = self.shared.clone();
        let stopped = guarded(|| lock(&shared.backend).stop());
        self.note(stopped);
        self.until_pair = 0;
        self.take_pair();
        let collected = self.collect();
        self.note(collected);
        if let Some(mut sink) = self.sink.take() {
            sink.close();
        }
        if self.status.state == BackendState::Running {
            self.status.state = BackendState::Stopped;
        }
        self.give_back();
    }

    /// Reads both clocks, less and less often, so that the pairs fit.
    fn take_pair(&mut self) {
        if self.until_pair > 0 {
            self.until_pair -= 1;
            return;
        }
        let (Some(sink), Some(host)) = (&mut self.sink, self.host) else { return };
        let shared = &self.shared;
        if let Ok(Some(pair)) = guarded(|| Ok(lock(&shared.backend).pair(host))) {
            sink.pair(pair);
        }
        self.pairs += 1;
        if self.pairs.is_multiple_of(PAIRS_AT_ONE_STRIDE) {
            self.stride *= 2;
        }
        self.until_pair = self.stride - 1;
    }

    fn collect(&mut self) -> Result<(), String> {
        let (Some(sink), shared) = (&mut self.sink, &self.shared) else { return Ok(()) };
        guarded(|| lock(&shared.backend).collect(sink))
    }

    fn note(&mut self, result: Result<(), String>) {
        if let (Err(reason), BackendState::Running) = (result, &self.status.state) {
            self.status.state = BackendState::Failed(reason);
        }
    }

    fn give_back(&mut self) {
        // One that was absent may be another session's.
        if !matches!(self.status.state, BackendState::Absent(_)) {
            self.shared.taken.store(false, Ordering::Release);
        }
    }
}

/// Calls a backend; a panic is handled like an error.
fn guarded<R>(call: impl FnOnce() -> Result<R, String>) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|payload| {
        // Dropping what it panicked with may panic again.
        std::mem::forget(payload);
        Err("it panicked".into())
    })
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of pairs after which they are taken half as often.
const PAIRS_AT_ONE_STRIDE: u64 = 1024;

static CLOCK: AtomicU32 = AtomicU32::new(1);
