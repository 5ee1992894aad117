//! Gather and broadcast between the ranks of a run, behind one trait.
//!
//! The round loop of `probe-sync` talks to its peers only through [`Collective`];
//! `probe_sync::wire` defines the meaning of the bytes. What only some backends support is an
//! optional part: [`FaultTolerance`], [`Admission`] or [`Succession`]; the caller decides what its
//! absence means. The backends are in-process (tests), TCP and a launcher's own messages (here) and
//! MPI (crate `mpi`). Over TCP, ranks can also send files to the root ([`FileSender`]). It does not
//! measure time offsets, serialise values or retry operations.
#![forbid(unsafe_code)]

mod admission;
mod arguments;
mod collective;
mod error;
mod fault_tolerance;
mod frames;
mod in_process;
mod labels;
mod led;
mod messages;
#[cfg(feature = "suite")]
pub mod proxy;
mod random;
mod stores;
mod succession;
#[cfg(any(test, feature = "suite"))]
pub mod suite;
mod tcp;
mod wait;

pub use admission::{Admission, FilePlaces};
pub use arguments::{WORD_MAX, check_frames, check_participants, check_word};
pub use collective::{Call, Collective, SideWork, Traffic};
pub use error::Error;
pub use fault_tolerance::{Attendance, FaultTolerance};
pub use frames::Frames;
pub use in_process::InProcess;
pub use led::Led;
pub use messages::{ByMessages, Carrier, Messages, Threads, by_messages};
pub use random::random_bytes;
pub use stores::{FileStore, Store, TorchStore, join_by, publish, store};
pub use succession::Succession;
#[cfg(feature = "suite")]
#[doc(hidden)]
pub use tcp::parse_peer_bytes;
pub use tcp::{EarlierRun, FanOut, FileSender, JobKey, Meeting, Tcp, TcpOptions, UniqueId, bind, bind_everywhere};
pub use wait::Wait;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A rank of the run, `0..size`.
pub type Rank = usize;

/// Most ranks; a wrong number must not cause a large allocation.
pub const MAX_RANKS: usize = 1 << 16;

/// The time at which a wait fails, and what can end it sooner.
#[derive(Clone, Debug)]
pub struct Deadline {
    /// Instant at which the wait fails.
    pub(crate) at: Instant,
    /// If set (a signal arrived), the wait fails after `grace` instead.
    pub(crate) interrupt: Option<Arc<AtomicBool>>,
    /// How long an interrupted wait continues.
    pub grace: Duration,
}

impl Deadline {
    /// Creates a deadline at most `limit` from now.
    pub fn new(limit: Duration, interrupt: Option<Arc<AtomicBool>>) -> Self {
        Self { at: Instant::now() + limit, interrupt, grace: GRACE }
    }

    /// Returns a deadline that is later than this one by `more`, also when interrupted. A rank that
    /// waits for the root waits longer than the root waits for the others: the root knows which
    /// rank is missing, so its error must come first.
    #[must_use]
    pub fn extended(&self, more: Duration) -> Self {
        Self { at: self.at + more, grace: self.grace + more, interrupt: self.interrupt.clone() }
    }

    /// Returns a deadline that is later than this one by `more`, unless interrupted.
    #[must_use]
    pub fn postponed(&self, more: Duration) -> Self {
        Self { at: self.at + more, ..self.clone() }
    }

    /// Returns a deadline at most `limit` from now, and no later than this one.
    #[must_use]
    pub(crate) fn within(&self, limit: Duration) -> Self {
        Self { at: self.at.min(Instant::now() + limit), ..self.clone() }
    }

    /// Returns a deadline after half the remaining time.
    #[must_use]
    pub fn halved(&self) -> Self {
        let left = self.at.saturating_duration_since(Instant::now());
        Self { at: Instant::now() + left / 2, ..self.clone() }
    }

    /// Returns true once the interrupt was raised.
    pub(crate) fn interrupted(&self) -> bool {
        self.interrupt.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

/// The rank that gathers and decides, unless another was requested.
pub const ROOT: Rank = 0;

/// Default time for which an interrupted wait continues: peers that were interrupted too need a
/// moment to contribute, but mpirun kills a second after its request to end.
pub(crate) const GRACE: Duration = Duration::from_millis(500);
