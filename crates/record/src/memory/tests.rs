//! Every interleaving of who writes, reads, begins, ends, calls and removes, by loom, weak memory
//! included: the lines that run in programs.
//!
//! Each model also runs with all orders taken away ([`Planted`]), and must fail then: else it would
//! see nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::chunk::{self, Segment, Writer};
use super::order::{self, Visitors, Word};
use crate::layout::chunk::GENERATION;

/// loom takes accesses of the order `SeqCst` for acquire and release, but knows such fences: with
/// one before each load and behind each store they are what they are in programs.
fn fence_of(order: Ordering) {
    if order == Ordering::SeqCst {
        fence(order);
    }
}

impl Word for AtomicU64 {
    type Value = u64;

    fn load(&self, order: Ordering) -> u64 {
        fence_of(order);
        Self::load(self, order)
    }

    fn store(&self, value: u64, order: Ordering) {
        Self::store(self, value, order);
        fence_of(order);
    }

    fn count(&self, up: bool, order: Ordering) {
        let _ = if up { self.fetch_add(1, order) } else { self.fetch_sub(1, order) };
        fence_of(order);
    }

    fn fence(order: Ordering) {
        fence(order);
    }

    fn light() {
        fence(Ordering::SeqCst);
    }

    // What the kernel makes of a light one when another thread asks for it.
    fn heavy() -> bool {
        fence(Ordering::SeqCst);
        true
    }
}

/// A word by whose stores nothing is ordered.
struct Planted(AtomicU64);

impl Word for Planted {
    type Value = u64;

    fn load(&self, _: Ordering) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn store(&self, value: u64, _: Ordering) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn count(&self, up: bool, _: Ordering) {
        if up {
            self.0.fetch_add(1, Ordering::Relaxed)
        } else {
            self.0.fetch_sub(1, Ordering::Relaxed)
        };
    }

    fn fence(_: Ordering) {}

    fn light() {}

    fn heavy() -> bool {
        true
    }
}

trait Modelled: Word<Value = u64> + Send + Sync + 'static {
    fn zero() -> Self;
}

impl Modelled for AtomicU64 {
    fn zero() -> Self {
        Self::new(0)
    }
}

impl Modelled for Planted {
    fn zero() -> Self {
        Self(AtomicU64::new(0))
    }
}

/// The model holds, and does not without its orders.
fn check(sound: fn(), planted: fn()) {
    let run = |model: fn()| {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    };
    run(sound);
    assert!(catch_unwind(AssertUnwindSafe(|| run(planted))).is_err(), "what is planted is seen");
}

/// What a thread may use only while it is there. loom fails where its removal is not ordered behind
/// every use.
#[derive(Default)]
struct Kept(UnsafeCell<u64>);

// SAFETY: loom looks after it.
unsafe impl Sync for Kept {}
// SAFETY: as above.
unsafe impl Send for Kept {}

impl Kept {
    fn used(&self) {
        self.0.with(|value| {
            // SAFETY: loom fails where somebody writes it at that time.
            assert_eq!(unsafe { *value }, 0, "it is used after it is gone");
        });
    }

    fn removed(&self) {
        // SAFETY: loom fails where somebody uses it at that time.
        self.0.with_mut(|value| unsafe { *value = 1 });
    }
}

/// What a session held is taken away once nobody is within an event of it.
fn remove<W: Modelled>(busy: &W, kept: &Kept) {
    assert!(W::heavy());
    while order::is_within(busy, 7) {
        thread::yield_now();
    }
    kept.removed();
}

/// A session ends while a thread records: once nobody is within, what the session held is taken
/// away.
fn stop<W: Modelled>() {
    let (busy, gate, kept) = (W::zero(), W::zero(), Kept::default());
    gate.store(1, Ordering::SeqCst);
    let shared = Arc::new((busy, gate, kept));
    let recording = Arc::clone(&shared);
    let thread = thread::spawn(move || {
        let (busy, gate, kept) = &*recording;
        for _ in 0..2 {
            if order::begin(busy, 7, gate, 1) {
                kept.used();
            }
            order::end(busy);
        }
    });
    let (busy, gate, kept) = &*shared;
    gate.store(2, Ordering::SeqCst);
    remove(busy, kept);
    thread.join().expect("no panic");
}

#[test]
fn a_session_is_taken_away_when_no_thread_is_within_an_event() {
    check(stop::<AtomicU64>, stop::<Planted>);
}

/// A thread adopts a session while another ends it: who finds the gate changed reads the list under
/// its lock, within an event.
fn adopt<W: Modelled>() {
    let (busy, gate, kept) = (W::zero(), W::zero(), Kept::default());
    let shared = Arc::new((busy, gate, kept, Mutex::new(false)));
    let recording = Arc::clone(&shared);
    let thread = thread::spawn(move || {
        let (busy, gate, kept, list) = &*recording;
        let mut known = (0, false);
        for _ in 0..2 {
            if !order::begin(busy, 7, gate, known.0) {
                let list = list.lock().expect("no panic");
                known = (gate.load(Ordering::Relaxed), *list);
            }
            if known.1 {
                kept.used();
            }
            order::end(busy);
        }
    });
    let (busy, gate, kept, list) = &*shared;
    for (number, is_there) in [(1, true), (2, false)] {
        let mut list = list.lock().expect("no panic");
        *list = is_there;
        gate.store(number, Ordering::SeqCst);
    }
    remove(busy, kept);
    thread.join().expect("no panic");
}

#[test]
fn a_session_that_a_thread_has_just_adopted_is_taken_away_behind_its_event() {
    check(adopt::<AtomicU64>, adopt::<Planted>);
}

/// An observer is removed while a thread calls it. The same lines show sessions to signal handlers.
fn removal<W: Modelled>() {
    let shared = Arc::new((Visitors(W::zero()), W::zero(), Kept::default()));
    let calling = Arc::clone(&shared);
    let thread = thread::spawn(move || {
        let (running, off, kept) = &*calling;
        for _ in 0..2 {
            running.visit(|| {
                if off.load(Ordering::SeqCst) == 0 {
                    kept.used();
                }
            });
        }
    });
    let (running, off, kept) = &*shared;
    off.store(1, Ordering::SeqCst);
    while !running.is_empty() {
        thread::yield_now();
    }
    // No call after this returns.
    kept.removed();
    thread.join().expect("no panic");
}

#[test]
fn no_observer_is_called_after_its_removal() {
    check(removal::<AtomicU64>, removal::<Planted>);
}

/// A chunk of three records of one word, which hold the number of their thread.
struct Chunk<W>(Vec<W>);

impl<W: Modelled> Chunk<W> {
    fn new() -> Arc<Self> {
        Arc::new(Self((0..RECORDS + 3).map(|_| W::zero()).collect()))
    }

    fn word<'a>(&'a self) -> impl Fn(usize) -> &'a W {
        |place| &self.0[place]
    }

    fn begin(&self, serial: u32) {
        chunk::put_to_use(self.word(), Segment { writer: writer(serial), from: 8 * RECORDS as u64 }, || serial.into());
    }

    fn record(&self, at: usize, serial: u32) {
        self.0[RECORDS + at].store(serial.into(), Ordering::Relaxed);
        chunk::commit(&self.0[crate::layout::chunk::COMMITTED], 8 * (RECORDS + at + 1) as u64);
    }

    /// Reads what is whole, as the writer of a stream does: each record is of the thread to which
    /// its segment belongs. How many.
    fn read(&self) -> usize {
        let Some(used) = chunk::read(self.word(), 2) else { return 0 };
        let mut read = 0;
        for (k, segment) in used.segments.iter().enumerate() {
            let end = used.segments.get(k + 1).map_or(used.committed, |next| next.from);
            for byte in (segment.from..end).step_by(8) {
                assert_eq!(
                    self.0[byte as usize / 8].load(Ordering::Relaxed),
                    u64::from(segment.writer.serial),
                    "{used:?}"
                );
                read += 1;
            }
        }
        read
    }
}

/// Two segments, and the first record behind them.
const RECORDS: usize = crate::layout::chunk::segment(2);

fn writer(serial: u32) -> Writer {
    Writer { serial, part: 0, written: 0 }
}

const _: () = assert!(GENERATION == 0);

/// A thread writes while another reads.
fn published<W: Modelled>() {
    let shared = Chunk::<W>::new();
    let writing = Arc::clone(&shared);
    let thread = thread::spawn(move || {
        writing.begin(3);
        writing.record(0, 3);
        writing.record(1, 3);
    });
    shared.read();
    thread.join().expect("no panic");
    assert_eq!(shared.read(), 2);
}

#[test]
fn records_are_read_whole_while_they_are_written() {
    check(published::<AtomicU64>, published::<Planted>);
}

/// A thread ends, and another continues in its chunk, while a third reads. The chunk is passed on
/// by the queue of such chunks, whose pop comes after its push.
fn handed_over<W: Modelled>() {
    let (shared, queue) = (Chunk::<W>::new(), Arc::new(W::zero()));
    shared.begin(3);
    let (first, left) = (Arc::clone(&shared), Arc::clone(&queue));
    let ending = thread::spawn(move || {
        first.record(0, 3);
        left.store(1, Ordering::Release);
    });
    let (second, taken) = (Arc::clone(&shared), Arc::clone(&queue));
    let going_on = thread::spawn(move || {
        if taken.load(Ordering::Acquire) == 1 {
            let from = chunk::go_on(second.word(), writer(4), 2).expect("there is room for two");
            assert_eq!(from, 8 * (RECORDS + 1) as u64, "behind what the first has written");
            second.record(1, 4);
        }
    });
    shared.read();
    ending.join().expect("no panic");
    going_on.join().expect("no panic");
    assert!(shared.read() >= 1);
}

#[test]
fn a_chunk_is_handed_over_while_it_is_read() {
    check(handed_over::<AtomicU64>, handed_over::<Planted>);
}

/// A chunk whose records are in blocks is used again while it is read: who reads takes the old or
/// the new use, and no mixture.
fn used_again<W: Modelled>() {
    let shared = Chunk::<W>::new();
    shared.begin(3);
    let writing = Arc::clone(&shared);
    let thread = thread::spawn(move || writing.begin(4));
    if let Some(used) = chunk::read(shared.word(), 2) {
        assert_eq!(used.sequence, u64::from(used.segments[0].writer.serial), "{used:?}");
    }
    thread.join().expect("no panic");
}

#[test]
fn a_chunk_that_is_used_again_is_read_as_one_use() {
    check(used_again::<AtomicU64>, used_again::<Planted>);
}
