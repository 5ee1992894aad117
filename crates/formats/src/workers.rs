//! How many threads work at once, and work side by side.
//!
//! As many as there are processors for this process, by its affinity and its control group. Whoever
//! works on several files side by side gives each thread a share of them, so that work within a
//! file starts no threads that would only wait. A share belongs to the thread; threads that it
//! starts have none of their own.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

/// What the process is limited to; 0: no limit.
static LIMIT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The share of this thread; 0: all.
    static SHARE: Cell<usize> = const { Cell::new(0) };
}

/// Number of threads that may work at once for the calling thread.
pub fn workers() -> usize {
    match SHARE.get() {
        0 => match LIMIT.load(Ordering::Relaxed) {
            0 => available(),
            limit => limit.min(available()),
        },
        share => share,
    }
}

fn available() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Limits the number of threads that work at once, for the whole process.
pub fn limit_workers(limit: NonZeroUsize) {
    LIMIT.store(limit.get(), Ordering::Relaxed);
}

/// Does something on the calling thread, for which [`workers`] then returns `share`.
pub fn with_workers<R>(share: usize, work: impl FnOnce() -> R) -> R {
    /// Sets the share back, after a panic too.
    struct Before(usize);
    impl Drop for Before {
        fn drop(&mut self) {
            SHARE.set(self.0);
        }
    }
    let _before = Before(SHARE.replace(share.max(1)));
    work()
}

/// Does `work` for each number below `count`, several at once, and returns the results in order.
pub fn side_by_side<R: Send>(count: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let threads = workers().min(count);
    if threads < 2 {
        return (0..count).map(work).collect();
    }
    let (next, share) = (AtomicUsize::new(0), workers() / threads);
    let some = || {
        let place = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|place| *place < count);
        with_workers(share, || std::iter::from_fn(place).map(|place| (place, work(place))).collect())
    };
    let mut all: Vec<(usize, R)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(some)).collect();
        let done = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        done.collect::<Vec<Vec<_>>>().into_iter().flatten().collect()
    });
    all.sort_unstable_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, done)| done).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_shares_add_up() {
        let check = |all: usize, count: usize, share: usize| {
            let done = with_workers(all, || side_by_side(count, |place| (place, workers())));
            assert_eq!(done, (0..count).map(|place| (place, share)).collect::<Vec<_>>(), "{all} {count}");
        };
        check(1, 3, 1);
        check(2, 3, 1);
        check(8, 3, 2);
        check(8, 1, 8);
        check(4, 0, 4);
        let before = workers();
        assert!(std::panic::catch_unwind(|| with_workers(7, || panic!("{}", workers()))).is_err());
        assert_eq!(workers(), before);
    }
}
