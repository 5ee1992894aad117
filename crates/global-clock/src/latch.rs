//! Two copies of a record and a version, shared by one writer and any number of readers, also in
//! other processes.
//!
//! Readers read the copy of the version's parity; the writer writes the other one and then raises
//! the version. A reader that sees the same version before and after has read one whole record. A
//! writer that is stopped in mid-write stops nobody: the copy that readers use is whole. (The
//! kernel calls this a sequence-counter latch.)
//!
//! Why it is right. The writer of version v + 2 fills the copy that readers of v use. Before it
//! does, it has stored v + 1, and a release fence stands between. A reader that has loaded any word
//! of v + 2 passes an acquire fence, and then loads a version of at least v + 1: it tries again.
//! All words are atomic, so there is no undefined reading.
//!
//! Whatever a reader needs besides, such as the time, it asks for between the two loads of the
//! version: the answer then belongs to a moment at which this version was the latest.
//!
//! It does not support two writers.

use std::sync::atomic::{self, AtomicU64, Ordering};

/// A word shared by several threads or processes. A trait, so that all interleavings can be tested.
pub trait Word {
    /// Loads the value.
    fn load(&self, order: Ordering) -> u64;
    /// Stores a value.
    fn store(&self, value: u64, order: Ordering);
    /// Issues a fence for such words.
    fn fence(order: Ordering);
}

// Inlined into other crates: only there the ordering is a constant; otherwise each access is a call
// and a branch.
impl Word for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        Self::store(self, value, order);
    }

    #[inline]
    fn fence(order: Ordering) {
        atomic::fence(order);
    }
}

/// A record in two copies.
#[derive(Debug)]
pub struct Latch<'a, W, const N: usize> {
    version: &'a W,
    copies: [&'a [W; N]; 2],
}

impl<'a, W: Word, const N: usize> Latch<'a, W, N> {
    /// Creates a latch over existing words.
    #[inline]
    pub fn new(version: &'a W, copies: [&'a [W; N]; 2]) -> Self {
        Self { version, copies }
    }

    /// Writes a record, and publishes it if `still` returns true at the last moment. Only one
    /// thread of one process may call this.
    pub fn write(&self, words: &[u64; N], still: impl FnOnce() -> bool) -> bool {
        // The writer's own last store.
        let next = self.version.load(Ordering::Relaxed).wrapping_add(1);
        W::fence(Ordering::Release);
        let copy = self.copy(next);
        copy.iter().zip(words).for_each(|(place, word)| place.store(*word, Ordering::Relaxed));
        let shown = still();
        if shown {
            self.version.store(next, Ordering::Release);
        }
        shown
    }

    /// Lets `read` load what it needs from a consistent record. It may be called several times, and
    /// its last result is used; returns `None` if the record changed every time.
    #[inline]
    pub fn read<T>(&self, mut read: impl FnMut(&'a [W; N]) -> T) -> Option<T> {
        for _ in 0..ATTEMPTS {
            let version = self.version.load(Ordering::Acquire);
            let found = read(self.copy(version));
            W::fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return Some(found);
            }
        }
        None
    }

    #[inline]
    fn copy(&self, version: u64) -> &'a [W; N] {
        // Not by an index: the copies' addresses would then be stored and loaded again.
        let [even, odd] = self.copies;
        if version & 1 == 0 { even } else { odd }
    }
}

/// Limit of attempts. A record is written a few times per second and read in 20 ns, so one that
/// changes this often is not written by a valid writer.
const ATTEMPTS: usize = 1_000;

#[cfg(test)]
mod tests {
    //! Every interleaving of a writer and a reader, by loom, weak memory included.

    use loom::sync::Arc;
    use loom::sync::atomic as modelled;

    use super::*;

    impl Word for modelled::AtomicU64 {
        fn load(&self, order: Ordering) -> u64 {
            Self::load(self, order)
        }
        fn store(&self, value: u64, order: Ordering) {
            Self::store(self, value, order);
        }
        fn fence(order: Ordering) {
            modelled::fence(order);
        }
    }

    struct Shared {
        version: modelled::AtomicU64,
        copies: [[modelled::AtomicU64; 2]; 2],
    }

    impl Shared {
        fn new() -> Arc<Self> {
            let word = || modelled::AtomicU64::new(0);
            Arc::new(Self { version: word(), copies: [[word(), word()], [word(), word()]] })
        }

        fn latch(&self) -> Latch<'_, modelled::AtomicU64, 2> {
            Latch::new(&self.version, [&self.copies[0], &self.copies[1]])
        }
    }

    #[test]
    fn a_reader_sees_whole_records_and_they_never_go_back() {
        loom::model(|| {
            let shared = Shared::new();
            let writer = Arc::clone(&shared);
            let writing = loom::thread::spawn(move || {
                for record in 1..=2 {
                    writer.latch().write(&[record, record * 10], || true);
                }
            });
            let mut last = 0;
            for _ in 0..2 {
                let both = |copy: &[modelled::AtomicU64; 2]| [0, 1].map(|at| copy[at].load(Ordering::Relaxed));
                if let Some([one, ten]) = shared.latch().read(both) {
                    assert!(ten == one * 10 && one >= last, "{one} {ten} after {last}");
                    last = one;
                }
            }
            writing.join().expect("no panic");
        });
    }

    #[test]
    fn a_writer_that_stops_in_mid_write_stops_no_reader() {
        loom::model(|| {
            let shared = Shared::new();
            shared.latch().write(&[1, 10], || true);
            let writer = Arc::clone(&shared);
            // Gone before it could show what it wrote.
            let writing = loom::thread::spawn(move || writer.latch().write(&[2, 20], || false));
            let read = shared.latch().read(|copy| [0, 1].map(|at| copy[at].load(Ordering::Relaxed)));
            assert_eq!(read, Some([1, 10]));
            writing.join().expect("no panic");
        });
    }
}
