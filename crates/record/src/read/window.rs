//! A window of a recording, as its definition states it.

use crate::layout::window;

/// A span of time in which events are recorded.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Start, ticks.
    pub from: u64,
    /// End, ticks; `None`: still open.
    pub to: Option<u64>,
    /// Requested span, ns on the reference clock, if it was requested by that clock.
    pub asked_ns: Option<[i64; 2]>,
    /// True if the requested start had passed before anything was recorded; [`Window::from`] states
    /// from when on there are events.
    pub late: bool,
}

impl Window {
    /// From the words of a definition.
    pub(super) fn of(words: &[u64]) -> Option<Self> {
        let words: &[u64; window::WORDS] = words.try_into().ok()?;
        let asked = [words[window::ASKED_FROM] as i64, words[window::ASKED_TO] as i64];
        Some(Self {
            from: words[window::FROM],
            to: Some(words[window::TO]).filter(|to| *to != 0),
            asked_ns: Some(asked).filter(|asked| *asked != [0, 0]),
            late: words[window::LATE] != 0,
        })
    }
}
