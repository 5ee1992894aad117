//! A thread of a recording: its identity, its losses and its open scopes.

use super::device::Track;
use crate::kind::Kind;
use crate::layout::Filter;
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

/// Events that a session's filters omitted.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Omitted {
    /// Events of kinds that are not recorded; counted only on request
    /// ([`Builder::count_omitted`](crate::Builder::count_omitted)).
    pub kinds: u64,
    /// Scopes whose turn it was not ([`Builder::one_in`](crate::Builder::one_in)).
    pub one_in: u64,
    /// Scopes that were too short ([`Builder::longer_than`](crate::Builder::longer_than)).
    pub longer_than: u64,
}

impl Omitted {
    /// Reads the counts, in the order of [`Filter`].
    pub(crate) fn of(words: &[u64]) -> Self {
        let count = |filter: Filter| words[filter as usize];
        Self { kinds: count(Filter::Kinds), one_in: count(Filter::OneIn), longer_than: count(Filter::LongerThan) }
    }

    /// Returns the sum of both.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            kinds: self.kinds.saturating_add(other.kinds),
            one_in: self.one_in.saturating_add(other.one_in),
            longer_than: self.longer_than.saturating_add(other.longer_than),
        }
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
    /// Events that filters omitted, while the thread had a slot.
    pub omitted: Omitted,
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
