//! Accounting for events that find no room in a lane: scopes too deep for a frame, records without
//! a chunk, and events of signal handlers.
//!
//! The guard alone keeps a scope without a frame and records it when dropped; the lane knows how
//! many such scopes are open, and since when. The counts of a slot are reported with its thread's
//! records, or in a definition when the thread leaves.

use std::ptr;
use std::sync::atomic::Ordering;

use super::{LOSS_WORDS, Lane, Opened};
use crate::active::core::count_loss;
use crate::layout::{FILTERS, Filter, header, record, slot};

impl Lane {
    #[cold]
    pub(super) fn open_deep(&self, opened: Opened) {
        let deep = self.deep.get();
        if deep == 0 {
            self.deep_start.set(opened.start);
            self.deep_top.set(self.top.get());
            // No frame ends there, so that whoever ends a scope sees that there are some within it.
            self.top.set(if self.top.get().is_null() { ptr::null() } else { self.stack_limit.get().wrapping_add(1) });
        }
        self.deep.set(deep + 1);
        self.count(slot::TOO_DEEP, 1);
    }

    /// Whether a scope without a frame may be one of this lane's.
    pub fn is_deep(&self, opened: Opened) -> bool {
        self.deep.get() > 0 && opened.start >= self.deep_start.get()
    }

    fn leave_deep(&self, deep: u32) {
        self.deep.set(deep);
        if deep == 0 {
            self.top.set(self.deep_top.get());
        }
    }

    /// Open scopes without a frame are closed with one that has a frame: their identity is lost.
    pub(super) fn lose_deep(&self, end: u64) {
        let deep = self.deep.get();
        if deep > 0 {
            self.leave_deep(0);
            self.depth.set(self.depth.get().wrapping_sub(deep));
            self.lose(deep.into(), self.deep_start.get(), end);
        }
    }

    /// Ends a scope that has no frame, if one is open.
    pub fn close_deep(&self, site: u32, opened: Opened, end: u64) {
        if !self.is_deep(opened) {
            return;
        }
        self.leave_deep(self.deep.get() - 1);
        let depth = self.depth.get().wrapping_sub(1);
        self.depth.set(depth);
        let head = record::head(site, record::SCOPE, record::SCOPE_WORDS, depth);
        self.write(&[head, opened.start, end, opened.id], opened.start, end);
    }

    /// Counts events that came while the thread was within another. Handlers interrupt each other:
    /// it is one addition.
    pub fn interrupted(&self, by: u64) {
        let slot = self.slot.get();
        let word =
            if slot.is_null() { self.core().header(header::INTERRUPTED) } else { self.word(slot, slot::INTERRUPTED) };
        word.fetch_add(by, Ordering::Relaxed);
    }

    /// Counts an event that a filter omitted. The thread is within its event, so no handler counts
    /// in between.
    pub fn omit(&self, filter: Filter) {
        match self.slot.get().is_null() {
            true => {
                self.core().header(header::OMITTED + filter as usize).fetch_add(1, Ordering::Relaxed);
            }
            false => self.count(slot::OMITTED + filter as usize, 1),
        }
    }

    /// Counts lost events.
    pub fn lose(&self, by: u64, first: u64, last: u64) {
        let slot = self.slot.get();
        if slot.is_null() {
            return self.core().lose(by, first, last);
        }
        let place = |at: usize| self.word(slot, at);
        count_loss([place(slot::LOST), place(slot::LOST_FIRST), place(slot::LOST_LAST)], by, first, last);
    }

    /// Writes losses into the chunk, if there is room: behind the limit if it is the end.
    pub(super) fn tell_losses(&self, at_end: bool) {
        let (slot, place) = (self.slot.get(), self.cursor.get());
        if slot.is_null() || place.is_null() {
            return;
        }
        let lost = self.word(slot, slot::LOST).load(Ordering::Relaxed);
        let limit = self.limit.get().wrapping_add(if at_end { LOSS_WORDS } else { 0 });
        if lost == 0 || place.wrapping_add(LOSS_WORDS) > limit {
            return;
        }
        let [first, last] = [slot::LOST_FIRST, slot::LOST_LAST].map(|at| self.word(slot, at).load(Ordering::Relaxed));
        let head = record::head(0, record::LOSS, LOSS_WORDS, 0);
        for (at, word) in [head, first, last, lost].into_iter().enumerate() {
            self.store(place, at, word);
        }
        self.commit(place.wrapping_add(LOSS_WORDS));
        self.core().header(header::LOST_TOLD).fetch_add(lost, Ordering::Relaxed);
        // Who reads 0 here finds the chunk that tells of them.
        for at in [slot::LOST, slot::LOST_FIRST, slot::LOST_LAST] {
            self.word(slot, at).store(0, Ordering::Release);
        }
    }

    /// Records the counts of the slot before another thread gets it; without room they are added to
    /// the sums of the recording.
    pub(super) fn tell_what_is_left(&self) {
        let (slot, core) = (self.slot.get(), self.core());
        for filter in 0..FILTERS {
            let omitted = self.word(slot, slot::OMITTED + filter).load(Ordering::Relaxed);
            if omitted != 0 {
                core.header(header::OMITTED + filter).fetch_add(omitted, Ordering::Relaxed);
            }
        }
        let counts =
            [slot::LOST, slot::LOST_FIRST, slot::LOST_LAST, slot::INTERRUPTED, slot::ARGUMENTS_LOST, slot::TOO_DEEP];
        let counts = counts.map(|at| self.word(slot, at).load(Ordering::Relaxed));
        let [lost, first, last, interrupted, ..] = counts;
        if counts.iter().all(|count| *count == 0) {
            return;
        }
        if core.define_left(self.serial.get(), counts) {
            core.header(header::LOST_TOLD).fetch_add(lost, Ordering::Relaxed);
        } else {
            if lost > 0 {
                core.lose(lost, first, last);
            }
            core.header(header::INTERRUPTED).fetch_add(interrupted, Ordering::Relaxed);
        }
    }
}
