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

/// A word that several threads or processes see. A trait so that the interleavings can be tested
/// exhaustively.
pub trait Word {
    /// Its value.
    fn load(&self, order: Ordering) -> u64;
    /// Changes it.
    fn store(&self, value: u64, order: Ordering);
    /// A fence among such words.
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

/// The record's two copies.
#[derive(Debug)]
pub struct Latch<'a, W, const N: usize> {
    version: &'a W,
    copies: [&'a [W; N]; 2],
}

impl<'a, W: Word, const N: usize> Latch<'a, W, N> {
    /// Over words that lie somewhere.
    #[inline]
    pub fn new(version: &'a W, copies: [&'a [W; N]; 2]) -> Self {
        Self { version, copies }
    }

    /// Writes a record, and shows it where `still` says so at the last moment. Only one thread of
    /// one process may call this.
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

    /// Lets `read` load what it needs of one whole record. It may be called several times, and its
    /// last answer counts; None when the record changed every time.
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

/// A record is written a few times a second and read in 20 ns: one that changes so often is not
/// written by our writer.
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
