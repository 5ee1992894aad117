//! The order in which threads see each other's stores when events begin and end and when sessions
//! or observers are removed.
//!
//! [`crate::thread::block`] begins and ends events with these functions; a thread that ends a
//! session or removes an observer waits with them. Each is a few lines over [`Word`], so that loom
//! runs the same lines in every interleaving (`tests`), and also with all orderings removed, which
//! it must detect.
//!
//! An event costs no fence: it says that its thread is within, and then looks at the gate, in this
//! order for the compiler alone ([`Word::light`]). Whoever changes the gate makes all threads pass
//! a full fence ([`Word::heavy`]: `membarrier`) before it looks who is within: either the event
//! sees the new gate, or it is seen.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence, fence};

use super::barrier;

/// A word that several threads see.
pub(crate) trait Word {
    /// Type of its value.
    type Value: Copy + PartialEq + From<u8>;

    /// Loads its value.
    fn load(&self, order: Ordering) -> Self::Value;
    /// Stores a value.
    fn store(&self, value: Self::Value, order: Ordering);
    /// Adds one, or takes it away.
    fn count(&self, up: bool, order: Ordering);
    /// A fence among such words.
    fn fence(order: Ordering);
    /// Half of a full fence: complete if another thread has passed the other half, [`Word::heavy`].
    fn light();
    /// The other half; returns false if the system has none.
    fn heavy() -> bool;
}

macro_rules! word {
    ($kind:ty, $value:ty) => {
        impl Word for $kind {
            type Value = $value;

            #[inline(always)]
            fn load(&self, order: Ordering) -> $value {
                Self::load(self, order)
            }

            #[inline(always)]
            fn store(&self, value: $value, order: Ordering) {
                Self::store(self, value, order);
            }

            #[inline(always)]
            fn count(&self, up: bool, order: Ordering) {
                if up {
                    self.fetch_add(1, order)
                } else {
                    self.fetch_sub(1, order)
                };
            }

            #[inline(always)]
            fn fence(order: Ordering) {
                fence(order);
            }

            #[inline(always)]
            fn light() {
                compiler_fence(Ordering::SeqCst);
            }

            fn heavy() -> bool {
                barrier::everywhere()
            }
        }
    };
}

word!(AtomicU32, u32);
word!(AtomicU64, u64);

/// Marks this thread as within an event, and checks whether its state is still valid; if not, it is
/// within the event all the same.
#[inline(always)]
pub(crate) fn begin<W: Word>(busy: &W, number: W::Value, gate: &W, known: W::Value) -> bool {
    busy.store(number, Ordering::Relaxed);
    W::light();
    gate.load(Ordering::Relaxed) == known
}

/// Marks the thread as no longer within an event.
#[inline(always)]
pub(crate) fn end<W: Word>(busy: &W) {
    W::light();
    busy.store(W::Value::from(0), PUBLISH);
}

/// Whether a thread is within an event; asked after [`Word::heavy`].
pub(crate) fn is_within<W: Word>(busy: &W, number: W::Value) -> bool {
    busy.load(Ordering::Acquire) == number
}

/// Number of threads that use something that may be removed: the remover first makes it
/// unavailable, and then waits until the number is zero. Threads that come later find that it is
/// gone.
#[derive(Debug, Default)]
pub(crate) struct Visitors<W = AtomicU32>(pub(super) W);

impl<W: Word> Visitors<W> {
    /// Checks whether it is available, and uses it. Neither may panic.
    pub(crate) fn visit<R>(&self, look: impl FnOnce() -> R) -> R {
        self.0.count(true, Ordering::SeqCst);
        let result = look();
        self.0.count(false, Ordering::SeqCst);
        result
    }

    /// Whether nothing uses what has been removed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::SeqCst) == W::Value::from(0)
    }
}

/// The ordering that publishes a thread's work to waiting threads. Weakened by `cargo xtask races`,
/// to check that ThreadSanitizer detects it.
const PUBLISH: Ordering = if cfg!(probe_sync_planted) { Ordering::Relaxed } else { Ordering::Release };
