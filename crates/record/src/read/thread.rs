//! A thread of a recording: its identity, its losses and its open scopes.

use super::device::Track;
use crate::kind::Kind;
use crate::value::ArgumentValue;

/// Events that were lost.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// How many.
    pub events: u64,
    /// When the first and the last were, ticks.
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
    /// Its number in the recording; never that of another thread of the process.
    pub serial: u32,
    /// The system's number.
    pub tid: u64,
    /// Its name.
    pub name: String,
    /// The queue of a device that it stands for, if it is no thread of the program.
    pub device: Option<Track>,
    /// Events that are there.
    pub events: u64,
    /// Events that are not.
    pub lost: Loss,
    /// Events of signal handlers that came while it was within another.
    pub interrupted: u64,
    /// Arguments that found no room.
    pub arguments_lost: u64,
    /// Scopes that were opened too deep to be seen while they were open.
    pub too_deep: u64,
    /// Scopes that are open, the outermost first.
    pub open: Vec<OpenScope>,
}

/// A scope that had not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenScope {
    /// What it is called.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// When it began, ticks.
    pub start: u64,
    /// Its id.
    pub id: u64,
    /// Its arguments.
    pub arguments: Vec<(String, ArgumentValue)>,
}
