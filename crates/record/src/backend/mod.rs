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
//! `examples/simulated_gpu` is one, with a clock that drifts. With the feature `cupti`, `Cupti` records
//! NVIDIA GPUs, and `CudaEvents` ranges on them where CUPTI is missing.

mod clock;
#[cfg(feature = "cupti")]
mod cupti;
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
#[cfg(feature = "cupti")]
pub use cupti::{CudaEvents, CudaRange, Cupti};
#[cfg(feature = "itt")]
pub use markers::Itt;
#[cfg(feature = "nvtx")]
pub use markers::Nvtx;
pub use markers::{MarkerSink, Markers};
pub(crate) use running::Running;
pub use running::{BackendState, BackendStatus};
pub use sink::{DeviceEvent, Sink, TrackId};

/// Requirements of a session on its backends.
#[derive(Copy, Clone, Debug)]
pub struct Request {
    /// Which threads' events it records.
    pub reach: Reach,
    /// Kinds that it records.
    pub kinds: Kinds,
    /// True if arguments behind `||` are evaluated.
    pub details: bool,
}

/// A device, or a tool to which scopes are forwarded. Reasons are texts for users: what is missing,
/// and what to do.
pub trait Backend: Send {
    /// Returns the name in messages.
    fn name(&self) -> &str;

    /// Checks whether it supports a reach.
    ///
    /// # Errors
    /// Returns the remedy. The session is refused.
    fn is_for(&self, reach: Reach) -> Result<(), String> {
        let _ = reach;
        Ok(())
    }

    /// Checks whether it is available, and prepares it.
    ///
    /// # Errors
    /// States why it is not available. The session continues without it.
    fn prepare(&mut self, request: &Request) -> Result<(), String>;

    /// Returns the clock of its events.
    fn clock(&self) -> DeviceClock {
        DeviceClock::Recorder
    }

    /// Reads its clock and the recorder's together; `None` for a backend without a clock of its
    /// own.
    fn pair(&mut self, host: HostClock) -> Option<DevicePair> {
        let _ = host;
        None
    }

    /// Starts it.
    ///
    /// # Errors
    /// States why it cannot start. The session continues without it.
    fn start(&mut self) -> Result<(), String>;

    /// Stops it. It may wait for work in progress on the device.
    ///
    /// # Errors
    /// States what went wrong; events are collected all the same.
    fn stop(&mut self) -> Result<(), String>;

    /// Passes on events that have ended, if any.
    ///
    /// # Errors
    /// States what went wrong; it is not called again before the end.
    fn collect(&mut self, sink: &mut Sink) -> Result<(), String> {
        let _ = sink;
        Ok(())
    }
}

/// A backend as held by builders; one session at a time uses it.
#[derive(Clone)]
pub(crate) struct Shared {
    pub backend: Arc<Mutex<dyn Backend>>,
    pub taken: Arc<AtomicBool>,
}

impl Shared {
    /// Wraps a backend for a builder.
    pub fn of(backend: impl Backend + 'static) -> Self {
        Self { backend: Arc::new(Mutex::new(backend)), taken: Arc::default() }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Backend")
    }
}
