//! The settings of a session, as collected by its builder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use probe_sync_time::SkewedClock;

use super::reference::Reference;
use super::schedule::Schedule;
use crate::active::core::Reach;
use crate::backend::Shared;
use crate::clock::RecordClock;
use crate::detail::Details;
use crate::kind::Kinds;

/// What happens to events when a session's memory is full.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// New events are dropped and counted.
    DropNewest {
        /// Size of the session including definitions, bytes.
        bytes: usize,
    },
    /// The oldest events are overwritten: a flight recorder.
    Flight {
        /// Size of the session, bytes.
        bytes: usize,
    },
    /// A thread appends events to the session's file, which is set by `Builder::spill`. New events
    /// are dropped and counted if it does not keep up.
    Stream {
        /// Size of the buffer between the recording threads and the file, bytes.
        bytes: usize,
        /// Interval of appending.
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

/// Settings of a session.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub reach: Reach,
    pub policy: Policy,
    pub kinds: Kinds,
    pub spill: Option<PathBuf>,
    pub every: u32,
    pub longer_than: Duration,
    pub clock: RecordClock,
    pub pair_period: Duration,
    pub threads: usize,
    pub keep: Option<Duration>,
    pub details: Details,
    pub counts_omitted: bool,
    pub rank: Option<u32>,
    pub ranks: Option<u32>,
    pub paused: bool,
    pub on_demand: bool,
    pub backends: Vec<Shared>,
    pub control: Option<PathBuf>,
    pub schedule: Option<Schedule>,
    pub reference: Option<Reference>,
    /// Start and end, ns of the reference.
    pub window_ns: Option<[i64; 2]>,
    pub virtual_clock: SkewedClock,
    /// Where the program starts it, for messages; empty if not set.
    pub started_at: String,
}

impl Settings {
    /// Whether only what is recorded within windows counts.
    pub fn is_windowed(&self) -> bool {
        self.on_demand || self.schedule.is_some() || self.window_ns.is_some()
    }

    /// Folder for requests from outside.
    pub fn control_folder(&self) -> Option<&Path> {
        let beside = || {
            let folder = self.spill.as_deref()?.parent()?;
            Some(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
        };
        self.control.as_deref().or_else(|| beside().filter(|_| self.on_demand))
    }
}

impl Default for Settings {
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
            details: Details::ALL,
            counts_omitted: false,
            rank: None,
            ranks: None,
            paused: false,
            on_demand: false,
            backends: Vec::new(),
            control: None,
            schedule: None,
            reference: None,
            window_ns: None,
            virtual_clock: SkewedClock::default(),
            started_at: String::new(),
        }
    }
}
