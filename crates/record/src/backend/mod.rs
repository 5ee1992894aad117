//! Backends: devices and marker sinks that accompany a session.
//!
//! A [`Builder`](crate::Builder) takes backends; the session prepares, starts and stops them, reads
//! their clocks together with its own, and takes their events ([`Sink`]). The events of a device
//! are recorded on separate threads, one per queue, in the device's own time; readers get the
//! recorder's ticks through the accompanying pairs ([`DevicePair`]). Events are linked to their
//! launch by their correlation id, which is the id of the event on the host, and by flows.
//!
//! A backend that is absent, fails or panics is left out; the session goes on without it, and says
//! so ([`Session::backends`](crate::Session::backends),
//! [`Recording::notes`](crate::Recording::notes)). One that is not for the session's reach is an
//! error.
//!
//! | step | when |
//! |---|---|
//! | [`Backend::prepare`] | before the session takes memory |
//! | [`Backend::pair`], [`Backend::start`] | when the session's own events are being recorded |
//! | [`Backend::pair`], [`Backend::collect`] | every pair period of the session, on a thread of its own |
//! | [`Backend::stop`], [`Backend::pair`], [`Backend::collect`] | when the session's own events have ended |
//!
//! `examples/simulated_gpu` is one, with a clock that drifts.

mod clock;
mod markers;
mod running;
mod sink;

#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use crate::active::core::Reach;
use crate::kind::Kinds;

pub(crate) use clock::DeviceMap;
pub use clock::{DeviceClock, DevicePair, HostClock};
#[cfg(feature = "itt")]
pub use markers::Itt;
#[cfg(feature = "nvtx")]
pub use markers::Nvtx;
pub use markers::{MarkerSink, Markers};
pub(crate) use running::Running;
pub use running::{BackendState, BackendStatus};
pub use sink::{DeviceEvent, Sink, TrackId};

/// What a session asks of its backends.
#[derive(Copy, Clone, Debug)]
pub struct Request {
    /// Whose events it records.
    pub reach: Reach,
    /// Which kinds.
    pub kinds: Kinds,
    /// Whether arguments behind `||` are made.
    pub details: bool,
}

/// A device, or something that scopes are forwarded to. Reasons are texts for people: what is
/// missing, and what to do.
pub trait Backend: Send {
    /// What it is called in messages.
    fn name(&self) -> &str;

    /// Whether it is for a reach; what to do otherwise.
    ///
    /// # Errors
    /// The remedy. The session is refused.
    fn is_for(&self, reach: Reach) -> Result<(), String> {
        let _ = reach;
        Ok(())
    }

    /// Finds out whether it is there, and makes ready.
    ///
    /// # Errors
    /// Why it is absent. The session goes on without it.
    fn prepare(&mut self, request: &Request) -> Result<(), String>;

    /// The clock of its events.
    fn clock(&self) -> DeviceClock {
        DeviceClock::Recorder
    }

    /// Its clock and the recorder's at one moment; none for a backend without a clock of its own.
    fn pair(&mut self, host: HostClock) -> Option<DevicePair> {
        let _ = host;
        None
    }

    /// Begins.
    ///
    /// # Errors
    /// Why it cannot. The session goes on without it.
    fn start(&mut self) -> Result<(), String>;

    /// Ends. What is under way on the device may be waited for.
    ///
    /// # Errors
    /// What went wrong; events are collected all the same.
    fn stop(&mut self) -> Result<(), String>;

    /// Hands over events that have ended, if it has any.
    ///
    /// # Errors
    /// What went wrong; it is not asked again before the end.
    fn collect(&mut self, sink: &mut Sink) -> Result<(), String> {
        let _ = sink;
        Ok(())
    }
}

/// A backend as builders hold it; one session at a time uses it.
#[derive(Clone)]
pub(crate) struct Shared {
    pub backend: Arc<Mutex<dyn Backend>>,
    pub taken: Arc<AtomicBool>,
}

impl Shared {
    /// For a builder.
    pub fn of(backend: impl Backend + 'static) -> Self {
        Self { backend: Arc::new(Mutex::new(backend)), taken: Arc::default() }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Backend")
    }
}
