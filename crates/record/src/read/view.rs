//! The selection of events in a recording: all, the last few seconds, or those within windows.
//!
//! Windows are exact because their limits are times of the recording's own clock: an event belongs
//! to a window if it begins and ends within it. A scope that crosses a window's limit is left out,
//! and the depth of the events inside it decreases by one, so that depths still describe the
//! nesting.

use std::collections::BTreeMap;

use super::decode::{Event, What};
use super::thread::Thread;
use super::window::Window;

/// Which events count.
#[derive(Debug, Default)]
pub(super) struct View {
    /// Events that ended before do not, ticks.
    pub keep_from: u64,
    /// `None`: there are no windows, and everything counts. In order of time, without overlap.
    windows: Option<Vec<[u64; 2]>>,
    /// Scopes of a thread that cross a limit of a window, by thread and window.
    crossing: BTreeMap<(u32, usize), Vec<[u64; 2]>>,
    /// Whether [`View::look_at`] has yet to see all.
    incomplete: bool,
}

impl View {
    /// View of a recording; `windows`: only events within them count.
    pub fn new(keep_from: u64, windows: Option<&[Window]>) -> Self {
        let limits = |windows: &[Window]| {
            let mut limits: Vec<_> =
                windows.iter().map(|window| [window.from, window.to.unwrap_or(u64::MAX)]).collect();
            limits.retain(|[from, to]| from <= to);
            limits.sort_unstable();
            // Where clocks were stepped two may overlap: the later one begins when the earlier one
            // has ended.
            for at in 1..limits.len() {
                let before = limits[at - 1][1];
                limits[at] = limits[at].map(|limit| limit.max(before));
            }
            limits
        };
        let windows = windows.map(limits);
        Self { keep_from, incomplete: windows.is_some(), windows, ..Self::default() }
    }

    /// Whether [`View::look_at`] must see all events before any can be returned.
    pub fn must_look(&self) -> bool {
        self.incomplete
    }

    /// Takes note of a scope that crosses a limit.
    pub fn look_at(&mut self, serial: u32, event: &Event<'_>) {
        if let What::Scope { start, end, .. } = event.what {
            self.cross(serial, start, end);
        }
    }

    /// Open scopes have no end: those within an open window are kept, others are dropped.
    pub fn look_at_open(&mut self, thread: &mut Thread) {
        if self.windows.is_none() {
            return;
        }
        for scope in &thread.open {
            self.cross(thread.serial, scope.start, u64::MAX);
        }
        thread.open.retain(|scope| self.window_of(scope.start, u64::MAX).is_some());
    }

    /// All events have been seen.
    pub fn has_looked(&mut self) {
        self.incomplete = false;
    }

    /// Whether an event counts, and by how many scopes it is less deep then.
    pub fn depth_less(&self, serial: u32, event: &Event<'_>) -> Option<u32> {
        let [start, end] = span(event);
        if end < self.keep_from {
            return None;
        }
        if self.windows.is_none() {
            return Some(0);
        }
        if let What::Lost { first, last, .. } = event.what {
            return self.overlapping(first, last).next().map(|_| 0);
        }
        let window = self.window_of(start, end)?;
        let around = |crossing: &&[u64; 2]| crossing[0] <= start && end <= crossing[1];
        let crossing = self.crossing.get(&(serial, window));
        Some(crossing.map_or(0, |crossing| crossing.iter().filter(around).count() as u32).min(event.depth))
    }

    fn cross(&mut self, serial: u32, start: u64, end: u64) {
        if self.window_of(start, end).is_some() {
            return;
        }
        let windows: Vec<usize> = self.overlapping(start, end).collect();
        for window in windows {
            self.crossing.entry((serial, window)).or_default().push([start, end]);
        }
    }

    /// The window that contains the whole span.
    fn window_of(&self, start: u64, end: u64) -> Option<usize> {
        let windows = self.windows.as_deref()?;
        let at = windows.partition_point(|window| window[0] <= start).checked_sub(1)?;
        (end <= windows[at][1]).then_some(at)
    }

    /// Windows that overlap a span.
    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = usize> + use<> {
        let windows = self.windows.as_deref().unwrap_or_default();
        let first = windows.partition_point(|window| window[1] < start);
        let last = windows.partition_point(|window| window[0] <= end);
        first..last.max(first)
    }
}

/// Start and end of an event.
fn span(event: &Event<'_>) -> [u64; 2] {
    match event.what {
        What::Scope { start, end, .. } => [start, end],
        ref what => [what.end(); 2],
    }
}
