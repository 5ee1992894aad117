//! A thread's recording state, and the fast path of an event: a single session that records
//! everything.
//!
//! A block is reused after its thread has ended and never freed, so that a thread that ends a
//! session can inspect all blocks.
//!
//! An event begins with [`Block::begin`], which says that this thread is within one and then looks
//! at the gate: either the thread sees that the gate has changed, or whoever changed it sees that
//! the thread is within.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::active::registry::Activity;
use crate::clock::Ticks;
use crate::detail::Details;
use crate::memory::{gate, order};
use crate::thread::lane::{Lane, Opened};

/// State of a thread. What every event reads is in the first cache line, and that of the first lane
/// in the next: between two events of a program that computes, both have left the first-level
/// cache.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Block {
    pub activity: Activity,
    /// The gate's number for which the fast path is valid; [`gate::NEVER`]: for none. Not 0, which
    /// is the gate's while nothing records.
    pub fast_gate: Cell<u32>,
    /// The gate's number for which lanes are right.
    pub known_gate: Cell<u32>,
    /// Bits of the kinds that are recorded.
    pub kinds: Cell<u32>,
    /// Number of the registry that lanes are of.
    pub registry: Cell<u32>,
    /// The last number of an event of this thread, its serial number in front.
    next_id: Cell<u64>,
    /// The caller's replacement id; 0: none.
    pub correlation: Cell<u64>,
    pub serial: Cell<u32>,
    pub ticks: Cell<Ticks>,
    /// Groups of arguments behind `||` that are evaluated.
    pub details: Cell<Details>,
    pub lanes: [Lane; LANES],
    pub lane_count: Cell<usize>,
    pub tid: Cell<u64>,
    /// Whether a thread has it.
    pub taken: AtomicBool,
    /// Within a callback of an observer.
    pub observing: Cell<bool>,
}

// SAFETY: a block's cells are used by the thread that has taken it alone; others look at `activity`
// and `taken`, which are atomic.
unsafe impl Sync for Block {}

impl Block {
    /// Belongs to no thread.
    pub const fn none() -> Self {
        Self {
            activity: Activity { busy: AtomicU32::new(0), next: AtomicPtr::new(ptr::null_mut()) },
            fast_gate: Cell::new(gate::NEVER),
            known_gate: Cell::new(0),
            kinds: Cell::new(0),
            details: Cell::new(Details::NONE),
            registry: Cell::new(0),
            serial: Cell::new(0),
            ticks: Cell::new(Ticks::Raw),
            next_id: Cell::new(0),
            correlation: Cell::new(0),
            lanes: [const { Lane::none() }; LANES],
            lane_count: Cell::new(0),
            tid: Cell::new(0),
            taken: AtomicBool::new(false),
            observing: Cell::new(false),
        }
    }

    /// Begins an event on the fast path; returns false if it cannot be used.
    #[inline]
    pub fn begin(&self, gate: u32) -> bool {
        if self.fast_gate.get() != gate || self.activity.busy.load(Ordering::Relaxed) == self.registry.get() {
            return false;
        }
        let is_right = order::begin(&self.activity.busy, self.registry.get(), gate::word(), gate);
        if !is_right {
            self.end();
        }
        is_right
    }

    /// Ends an event.
    #[inline]
    pub fn end(&self) {
        order::end(&self.activity.busy);
    }

    /// Ends the event when it is dropped, also if a caller's closure panics.
    #[inline]
    pub fn ending(&self) -> Ending<'_> {
        Ending(self)
    }

    /// The lane of the usual case.
    #[inline]
    pub fn lane(&self) -> &Lane {
        &self.lanes[0]
    }

    /// The id of an event that begins: the caller's, or the next of this thread.
    #[inline]
    pub fn new_id(&self) -> u64 {
        let next = self.next_id.get().wrapping_add(1);
        self.next_id.set(next);
        let given = self.correlation.get();
        if given != 0 { given } else { next }
    }

    /// A scope that begins now.
    #[inline]
    pub fn opened(&self) -> Opened {
        let id = self.new_id();
        Opened { id, start: self.ticks.get().now() }
    }

    /// A thread takes it.
    pub fn take(&self, serial: u32, tid: u64) {
        self.serial.set(serial);
        self.tid.set(tid);
        self.next_id.set(u64::from(serial) << ID_BITS);
        self.correlation.set(0);
        self.lane_count.set(0);
        self.fast_gate.set(gate::NEVER);
        self.known_gate.set(0);
        self.kinds.set(0);
        self.observing.set(false);
    }

    /// Its lanes.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes[..self.lane_count.get()]
    }
}

/// An event that has begun.
pub(crate) struct Ending<'a>(&'a Block);

impl Drop for Ending<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The thread's block; one of no thread before its first event.
#[inline]
pub(crate) fn current() -> &'static Block {
    // SAFETY: it points to `NONE`, or to a block that `sync::attach` has made and nobody frees.
    BLOCK.try_with(|block| unsafe { &*block.get() }).unwrap_or(&NONE)
}

/// Sets or clears the thread's block.
pub(crate) fn set_current(block: &'static Block) {
    // Without a destructor it is there as long as the thread.
    let _ = BLOCK.try_with(|current| current.set(block));
}

const _: () = assert!(std::mem::offset_of!(Block, lanes) == 64, "what every event looks at is on one line");

/// Sessions that a thread can take part in at once.
pub(crate) const LANES: usize = 8;
/// Lower bits of an event's number; above are those of its thread.
const ID_BITS: u32 = 40;

/// The block of threads without one.
pub(crate) static NONE: Block = Block::none();

thread_local! {
    static BLOCK: Cell<*const Block> = const { Cell::new(&raw const NONE) };
}
