//! The buffer between a thread of the program and the writer's thread; neither ever waits for the
//! other.
//!
//! A buffer has two halves, each behind a lock that is only tried. The flusher holds one half at a
//! time, just for the exchange of two pointers, so the other half is free then. Other threads of
//! the program may use the same recorder and hold a half while they store one event; a bounded
//! number of tries covers this. An event therefore costs one exchange of an atomic word and one
//! copy, and no system call. In a forked child a half may stay locked forever; the tries then run
//! out, and the event is dropped. It does not preserve the order of events across the two halves;
//! rows of a database have no order.

use std::hint;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::event::Event;

/// A bounded buffer for the events of one thread.
#[derive(Debug)]
pub(super) struct Buffer {
    /// The id in the rows of the thread.
    pub thread: i64,
    /// Events that one half holds.
    room: usize,
    halves: [Mutex<Half>; HALVES],
    /// No more events will come.
    ended: AtomicBool,
}

#[derive(Debug)]
struct Half {
    events: Vec<Event>,
    closed: bool,
}

/// Result of adding an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// It is in the buffer.
    Kept,
    /// It is in the buffer, and the flusher should come early.
    KeptHalfFull,
    /// It did not fit, or the writer has ended.
    Dropped,
}

impl Buffer {
    /// Creates a buffer for `capacity` events in total; the memory is allocated once, and touched
    /// as it fills.
    pub fn new(thread: i64, capacity: usize) -> Self {
        let room = capacity.div_ceil(HALVES).max(1);
        let half = || Mutex::new(Half { events: Vec::with_capacity(room), closed: false });
        Self { thread, room, halves: [half(), half()], ended: AtomicBool::new(false) }
    }

    pub fn put(&self, event: Event) -> Put {
        for _ in 0..TRIES {
            for half in &self.halves {
                // A panic cannot happen while it is held, so it is never poisoned.
                let Ok(mut half) = half.try_lock() else { continue };
                if half.closed {
                    return Put::Dropped;
                }
                let held = half.events.len();
                if held == self.room {
                    continue;
                }
                half.events.push(event);
                return if held + 1 == self.room.div_ceil(2) { Put::KeptHalfFull } else { Put::Kept };
            }
            if self.full() {
                return Put::Dropped;
            }
            hint::spin_loop();
        }
        Put::Dropped
    }

    /// Whether both halves could be observed to be full.
    pub fn full(&self) -> bool {
        self.halves.iter().all(|half| half.try_lock().is_ok_and(|half| half.events.len() == self.room))
    }

    /// Exchanges the contents of a half for an empty vector of the same size. Returns true if there
    /// were any.
    ///
    /// With `close`, it accepts nothing afterwards.
    pub fn take(&self, half: usize, into: &mut Vec<Event>, close: bool) -> bool {
        // Before the lock, which is held for an exchange only.
        into.clear();
        into.reserve_exact(self.room);
        let Ok(mut half) = self.halves[half].lock() else { return false };
        half.closed |= close;
        if half.events.is_empty() {
            return false;
        }
        std::mem::swap(&mut half.events, into);
        true
    }

    /// Accepts nothing more; returns the number of events in the buffer.
    pub fn close(&self) -> usize {
        let close = |half: &Mutex<Half>| {
            half.lock().map_or(0, |mut half| {
                half.closed = true;
                half.events.len()
            })
        };
        self.halves.iter().map(close).sum()
    }

    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// While one half is exchanged, the other accepts events.
pub(super) const HALVES: usize = 2;

/// Far more than the few tens of instructions for which another thread holds a half.
const TRIES: usize = 2_000;
