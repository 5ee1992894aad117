//! A thread of a recording: its identity, its losses and its open scopes.

use super::device::Track;
use crate::kind::Kind;
use crate::value::ArgumentValue;

/// Lost events.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Number of events.
    pub events: u64,
    /// Times of the first and the last, ticks.
    pub span: Option<[u64; 2]>,
}

impl Loss {
    pub(crate) fn add(&mut self, other: Self) {
        self.events = self.events.saturating_add(other.events);
        self.span = match (self.span, other.span) {
            (Some([a, b]), Some([c, d])) => Some([a.min(c), b.max(d)]),
            (one, None) | (None, one) => one,
        };
    }
}

/// A thread of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thread {
    /// Serial number in the recording, unique in the process.
    pub serial: u32,
    /// Thread id of the system.
    pub tid: u64,
    /// Name of the thread.
    pub name: String,
    /// The device queue that it represents, if it is not a thread of the program.
    pub device: Option<Track>,
    /// Number of events in the recording.
    pub events: u64,
    /// Events that were lost.
    pub lost: Loss,
    /// Events of signal handlers that interrupted another event.
    pub interrupted: u64,
    /// Arguments lost for lack of room.
    pub arguments_lost: u64,
    /// Scopes opened too deep to be visible while they were open.
    pub too_deep: u64,
    /// Open scopes, outermost first.
    pub open: Vec<OpenScope>,
}

/// A scope that has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenScope {
    /// Name of the scope.
    pub name: String,
    /// Kind of the scope.
    pub kind: Kind,
    /// Start, ticks.
    pub start: u64,
    /// Id of the scope.
    pub id: u64,
    /// Arguments of the scope.
    pub arguments: Vec<(String, ArgumentValue)>,
}
