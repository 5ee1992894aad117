//! A thread's part of one session: the chunk it writes to and its open scopes.
//!
//! Only the owning thread calls its lane. An open scope is a frame in the thread's slot, laid out
//! as the future record with its arguments; when the scope ends, the frame is copied into the
//! chunk. Both are in the session's memory and therefore survive a kill. Written words are
//! published by one store that follows them ([`chunk::COMMITTED`], [`slot::LAST`]).

mod lost;

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::active::core::Core;
use crate::layout::{Filter, WORD, chunk, header, record, slot};
use crate::memory::chunk::{Writer, commit};
use crate::value::{Arguments, Words};

/// A thread's part of one session; everything that every event needs of it is in its first cache
/// line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Lane {
    /// Position of the next record.
    cursor: Cell<*const AtomicU64>,
    /// Records end before it; there is room for one more of [`LOSS_WORDS`] behind.
    limit: Cell<*const AtomicU64>,
    /// Start of the chunk; null: none yet.
    base: Cell<*const AtomicU64>,
    /// Start of the slot; null: none.
    slot: Cell<*const AtomicU64>,
    /// Behind the innermost open scope.
    top: Cell<*const AtomicU64>,
    stack_limit: Cell<*const AtomicU64>,
    /// Position of the innermost open scope, in words from the slot's beginning.
    last: Cell<u64>,
    depth: Cell<u32>,
    /// Open scopes without a frame.
    deep: Cell<u32>,
    /// When the first of them began.
    deep_start: Cell<u64>,
    /// Value of `top` when it began.
    deep_top: Cell<*const AtomicU64>,
    /// Scopes until the next one is recorded, if not all are.
    until_next: Cell<u32>,
    core: Cell<*const Core>,
    session: Cell<u64>,
    /// Grows each time that the thread takes part anew.
    part: Cell<u64>,
    /// Bytes of records written since then, minus the start of the current segment in its chunk; so
    /// that adding the cursor's position gives the total.
    written: Cell<u64>,
    chunk: Cell<u32>,
    slot_index: Cell<u32>,
    serial: Cell<u32>,
}

/// Which open scope.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Opened {
    pub start: u64,
    pub id: u64,
}

impl Lane {
    /// Belongs to no session.
    pub const fn none() -> Self {
        Self {
            cursor: Cell::new(ptr::null()),
            limit: Cell::new(ptr::null()),
            base: Cell::new(ptr::null()),
            slot: Cell::new(ptr::null()),
            top: Cell::new(ptr::null()),
            stack_limit: Cell::new(ptr::null()),
            last: Cell::new(0),
            depth: Cell::new(0),
            deep: Cell::new(0),
            deep_start: Cell::new(0),
            deep_top: Cell::new(ptr::null()),
            until_next: Cell::new(0),
            core: Cell::new(ptr::null()),
            session: Cell::new(0),
            part: Cell::new(0),
            written: Cell::new(0),
            chunk: Cell::new(0),
            slot_index: Cell::new(0),
            serial: Cell::new(0),
        }
    }

    /// Number of its session; 0: none.
    pub fn session(&self) -> u64 {
        self.session.get()
    }

    /// Its session.
    pub fn core(&self) -> &Core {
        // SAFETY: set by `attach` from a session on the list. Sessions that leave the list wait
        // until no thread is within an event, and every event finds out first whether the list has
        // changed.
        unsafe { &*self.core.get() }
    }

    /// Takes part in a session.
    pub fn attach(&self, core: &Arc<Core>, serial: u32, tid: u64, name: &str) {
        self.forget();
        self.core.set(Arc::as_ptr(core));
        self.session.set(core.number);
        self.serial.set(serial);
        self.part.set(core.header(header::SEQUENCE).fetch_add(1, Ordering::Relaxed));
        self.written.set(0);
        core.define_thread(serial, tid, name);
        let Some(index) = core.pool.take_slot() else { return };
        let words = core.region.words(core.layout.slot_at(index as usize));
        self.slot_index.set(index);
        self.slot.set(words);
        for place in 0..slot::STACK {
            self.store(words, place, 0);
        }
        self.store(words, slot::TID, tid);
        // SAFETY: both are within the slot, which is `slot::WORDS` long.
        let (top, limit) = unsafe { (words.add(slot::STACK), words.add(slot::WORDS)) };
        self.top.set(top);
        self.stack_limit.set(limit);
        self.word(words, slot::SERIAL).store(u64::from(serial), Ordering::Release);
    }

    /// Leaves a session that continues without this thread. Open scopes end there, unfinished.
    pub fn detach(&self, end: u64) {
        let core = self.core();
        self.lose_deep(end);
        self.close_above(self.slot.get(), end);
        self.tell_losses(true);
        if !self.base.get().is_null() {
            core.pool.leave(&core.region, self.chunk.get());
        }
        if !self.slot.get().is_null() {
            self.tell_what_is_left();
            core.pool.give_back_slot(&core.region, self.slot_index.get());
        }
        self.forget();
    }

    /// Leaves a session that is gone.
    pub fn forget(&self) {
        for pointer in [&self.cursor, &self.limit, &self.base, &self.slot, &self.top, &self.stack_limit] {
            pointer.set(ptr::null());
        }
        self.last.set(0);
        self.depth.set(0);
        self.deep.set(0);
        self.deep_top.set(ptr::null());
        self.until_next.set(0);
        self.session.set(0);
        self.core.set(ptr::null());
    }

    /// Moves everything to another entry of the thread's list.
    pub fn move_to(&self, other: &Self) {
        for (from, to) in [
            (&self.cursor, &other.cursor),
            (&self.limit, &other.limit),
            (&self.base, &other.base),
            (&self.slot, &other.slot),
            (&self.top, &other.top),
            (&self.stack_limit, &other.stack_limit),
            (&self.deep_top, &other.deep_top),
        ] {
            to.set(from.get());
        }
        other.last.set(self.last.get());
        other.depth.set(self.depth.get());
        other.deep.set(self.deep.get());
        other.deep_start.set(self.deep_start.get());
        other.until_next.set(self.until_next.get());
        other.session.set(self.session.get());
        other.core.set(self.core.get());
        other.part.set(self.part.get());
        other.written.set(self.written.get());
        other.chunk.set(self.chunk.get());
        other.slot_index.set(self.slot_index.get());
        other.serial.set(self.serial.get());
        self.forget();
    }

    /// Opens a scope; returns null if there is no room for its frame.
    #[inline]
    pub fn open(&self, site: u32, opened: Opened) -> *const AtomicU64 {
        let frame = self.top.get();
        let depth = self.depth.get();
        self.depth.set(depth.wrapping_add(1));
        // SAFETY: only compared; both are within the slot or one behind it, or null.
        let top = frame.wrapping_add(record::SCOPE_WORDS);
        if top > self.stack_limit.get() || frame.is_null() {
            self.open_deep(opened);
            return ptr::null();
        }
        let slot = self.slot.get();
        self.store(frame, 0, record::head(site, record::SCOPE, record::SCOPE_WORDS, depth));
        self.store(frame, 1, opened.start);
        self.store(frame, 2, self.last.get());
        self.store(frame, 3, opened.id);
        let last = (frame.addr() - slot.addr()) as u64 / WORD as u64;
        self.last.set(last);
        self.top.set(top);
        let times = self.word(slot, slot::OPENED).load(Ordering::Relaxed);
        self.store(slot, slot::OPENED, times + 1);
        self.word(slot, slot::LAST).store(last, Ordering::Release);
        frame
    }

    /// Whether a scope that began this way is in a frame of this session, perhaps no longer open. A
    /// frame is reused when its scope was closed with the enclosing one.
    #[inline]
    pub fn is_of(&self, frame: *const AtomicU64, opened: Opened) -> bool {
        self.word(frame, 1).load(Ordering::Relaxed) == opened.start
    }

    /// Adds arguments to the innermost open scope, if that is `frame`.
    #[inline]
    pub fn argue(&self, frame: *const AtomicU64, arguments: &impl Arguments) {
        if arguments.count() == 0 {
            return;
        }
        let head = self.word(frame, 0).load(Ordering::Relaxed);
        let (words, more) = (record::words(head), arguments.words());
        let top = self.top.get();
        let fits = words + more <= record::WORDS_MAX && top.wrapping_add(more) <= self.stack_limit.get();
        if !fits || frame.wrapping_add(words) != top {
            return self.arguments_lost(arguments);
        }
        // SAFETY: as many words as the arguments take are left before the stack's end.
        arguments.write(unsafe { Words::at(top, more) });
        self.top.set(top.wrapping_add(more));
        self.word(frame, 0).store(head + ((more as u64) << 40), Ordering::Release);
    }

    /// Counts arguments that do not fit.
    #[cold]
    pub fn arguments_lost(&self, arguments: &impl Arguments) {
        self.count(slot::ARGUMENTS_LOST, arguments.count() as u64);
    }

    /// Ends a scope, and with it those within that have not ended. One that was closed with the
    /// enclosing scope, or belongs to another thread, is left as it is.
    #[inline]
    pub fn close(&self, frame: *const AtomicU64, opened: Opened, end: u64, least_ticks: u64) {
        let head = self.word(frame, 0).load(Ordering::Relaxed);
        let words = record::words(head);
        if !self.is_of(frame, opened) || (frame.wrapping_add(words) != self.top.get() && !self.close_within(frame, end))
        {
            return;
        }
        let start = opened.start;
        if least_ticks == 0 || end.wrapping_sub(start) >= least_ticks {
            self.copy(frame, head, words, start, end);
        } else {
            self.omit(Filter::LongerThan);
        }
        self.take_off(frame);
    }

    /// The innermost open scope that began this way; null if there is none.
    pub fn find(&self, opened: Opened) -> *const AtomicU64 {
        let mut last = self.last.get() as usize;
        while last != 0 {
            let frame = self.slot.get().wrapping_add(last);
            let [start, before, id] = [1, 2, 3].map(|place| self.word(frame, place).load(Ordering::Relaxed));
            if start == opened.start && id == opened.id {
                return frame;
            }
            // Outer ones began before.
            if start < opened.start {
                break;
            }
            last = before as usize;
        }
        ptr::null()
    }

    /// Writes a record that happened between two counts.
    #[inline]
    pub fn write(&self, words: &[u64], first: u64, last: u64) {
        let Some(place) = self.reserve(words.len(), first, last) else { return };
        for (at, word) in words.iter().enumerate() {
            self.store(place, at, *word);
        }
        self.commit(place.wrapping_add(words.len()));
    }

    /// Writes a record with arguments.
    #[inline]
    pub fn write_with(&self, head: [u64; 3], arguments: &impl Arguments) {
        let more = arguments.words();
        if head.len() + more > record::WORDS_MAX {
            self.arguments_lost(arguments);
            return self.write(&head, head[1], head[1]);
        }
        let Some(place) = self.reserve(head.len() + more, head[1], head[1]) else { return };
        self.store(place, 0, head[0] + ((more as u64) << 40));
        self.store(place, 1, head[1]);
        self.store(place, 2, head[2]);
        let rest = place.wrapping_add(head.len());
        // SAFETY: as many words as the arguments take have been reserved.
        arguments.write(unsafe { Words::at(rest, more) });
        self.commit(rest.wrapping_add(more));
    }

    /// Whether a record of this many words fits.
    pub fn has_room(&self, words: usize) -> bool {
        let place = self.cursor.get();
        let in_chunk = !place.is_null() && place.wrapping_add(words) <= self.limit.get();
        in_chunk || self.core().pool.has_free()
    }

    /// Number of open scopes.
    pub fn depth(&self) -> u32 {
        self.depth.get()
    }

    /// Whether it is a scope's turn, if one of `every` is recorded.
    pub fn is_turn(&self, every: u32) -> bool {
        let left = self.until_next.get();
        self.until_next.set(if left == 0 { every.saturating_sub(1) } else { left - 1 });
        left == 0
    }

    #[inline]
    fn copy(&self, frame: *const AtomicU64, head: u64, words: usize, start: u64, end: u64) {
        let Some(place) = self.reserve(words, start, end) else { return };
        let id = self.word(frame, 3).load(Ordering::Relaxed);
        self.store(place, 0, head);
        self.store(place, 1, start);
        self.store(place, 2, end);
        self.store(place, 3, id);
        for at in record::SCOPE_WORDS..words {
            self.store(place, at, self.word(frame, at).load(Ordering::Relaxed));
        }
        self.commit(place.wrapping_add(words));
    }

    #[inline]
    fn take_off(&self, frame: *const AtomicU64) {
        let last = self.word(frame, 2).load(Ordering::Relaxed);
        self.last.set(last);
        self.top.set(frame);
        self.depth.set(self.depth.get().wrapping_sub(1));
        self.word(self.slot.get(), slot::LAST).store(last, Ordering::Release);
    }

    /// Closes the scopes within `frame` with it, innermost first; returns false if it is not open
    /// here.
    #[cold]
    fn close_within(&self, frame: *const AtomicU64, end: u64) -> bool {
        if !self.is_open(frame) {
            return false;
        }
        self.lose_deep(end);
        self.close_above(frame, end);
        true
    }

    /// Closes the open scopes behind a place of the slot, the innermost first.
    fn close_above(&self, frame: *const AtomicU64, end: u64) {
        loop {
            let last = self.last.get() as usize;
            let inner = self.slot.get().wrapping_add(last);
            if last == 0 || inner <= frame {
                break;
            }
            let head = self.word(inner, 0).load(Ordering::Relaxed);
            let start = self.word(inner, 1).load(Ordering::Relaxed);
            let unfinished = head & !(0xff << 32) | record::UNFINISHED << 32;
            self.copy(inner, unfinished, record::words(head), start, end);
            self.take_off(inner);
        }
    }

    fn is_open(&self, frame: *const AtomicU64) -> bool {
        let mut last = self.last.get() as usize;
        while last != 0 && self.slot.get().wrapping_add(last) != frame {
            last = self.word(self.slot.get().wrapping_add(last), 2).load(Ordering::Relaxed) as usize;
        }
        last != 0
    }

    /// Reserves room for a record; without room it counts the loss.
    #[inline]
    fn reserve(&self, words: usize, first: u64, last: u64) -> Option<*const AtomicU64> {
        let place = self.cursor.get();
        if place.wrapping_add(words) > self.limit.get() || place.is_null() {
            return self.reserve_anew(words, first, last);
        }
        Some(place)
    }

    #[inline]
    fn commit(&self, end: *const AtomicU64) {
        self.cursor.set(end);
        let base = self.base.get();
        let bytes = (end.addr() - base.addr()) as u64;
        commit(self.word(base, chunk::COMMITTED), bytes);
    }

    #[cold]
    fn reserve_anew(&self, words: usize, first: u64, last: u64) -> Option<*const AtomicU64> {
        // The rests of other threads' chunks may be too short for this record; there are no more of
        // them than chunks.
        for _ in 0..=self.core().layout.chunks {
            if !self.next_piece() {
                break;
            }
            self.tell_losses(false);
            let place = self.cursor.get();
            if place.wrapping_add(words) <= self.limit.get() {
                return Some(place);
            }
        }
        self.lose(1, first, last);
        None
    }

    /// Completes the chunk and takes another.
    fn next_piece(&self) -> bool {
        let core = self.core();
        let in_chunk = self.cursor.get().addr() - self.base.get().addr();
        let written = self.written.get().wrapping_add(in_chunk as u64);
        let writer = Writer { serial: self.serial.get(), part: self.part.get(), written };
        let Some(piece) = core.pool.take(&core.region, writer, core.recycle) else { return false };
        self.written.set(written.wrapping_sub(piece.from as u64));
        if !self.base.get().is_null() {
            core.pool.complete(self.chunk.get());
        }
        let base = core.region.words(core.layout.chunk_at(piece.chunk as usize));
        self.chunk.set(piece.chunk);
        self.base.set(base);
        self.cursor.set(base.wrapping_add(piece.from / WORD));
        self.limit.set(base.wrapping_add(core.layout.chunk_bytes / WORD - LOSS_WORDS));
        true
    }

    fn count(&self, place: usize, by: u64) {
        let slot = self.slot.get();
        if !slot.is_null() && by > 0 {
            let word = self.word(slot, place);
            word.store(word.load(Ordering::Relaxed) + by, Ordering::Relaxed);
        }
    }

    #[inline]
    fn word(&self, base: *const AtomicU64, place: usize) -> &AtomicU64 {
        // SAFETY: callers give places within the slot, or within the chunk before its end, both of
        // a mapping that lives as long as the session.
        unsafe { &*base.add(place) }
    }

    #[inline]
    fn store(&self, base: *const AtomicU64, place: usize, value: u64) {
        self.word(base, place).store(value, Ordering::Relaxed);
    }
}

/// Size of a record of losses; there is always room for one behind a chunk's limit.
const LOSS_WORDS: usize = 4;
