//! A rank's arrivals, from the threads that train to the session's thread: a bounded ring without
//! locks.

use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_queue::ArrayQueue;
use probe_sync_sys::SystemClock;
use probe_sync_time::{Clock as _, System, Timestamp};

/// Records the arrivals of one rank. Clones share one state.
///
/// Call [`Arrivals::arrive`] on every member right before an operation in which all members of a
/// group wait (an all-reduce, a barrier). The members of a group are the ranks that arrive in it;
/// two sets of ranks that do not wait for each other need two names.
///
/// ```
/// let arrivals = probe_sync::Arrivals::default();
/// for step in 0..3 {
///     arrivals.arrive("grads", step);
///     // all_reduce(&gradients);
/// }
/// assert_eq!(arrivals.dropped(), 0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Arrivals(Arc<OnceLock<Ring>>);

#[derive(Debug)]
struct Ring {
    names: Box<[OnceLock<Box<str>>]>,
    hasher: foldhash::fast::FixedState,
    queue: ArrayQueue<Arrival>,
    dropped: AtomicU64,
    /// Arrivals may be missing from this time of the system clock on.
    complete_until_ns: AtomicI64,
}

/// One arrival.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Arrival {
    /// Number of the group, for [`Arrivals::name`].
    pub group: u32,
    /// Number of the operation in its group.
    pub step: u64,
    /// Time of the arrival.
    pub at: Timestamp<System>,
}

impl Arrivals {
    /// Records that this rank arrives now at operation `step` of `group`. The call takes some tens
    /// of nanoseconds, without locks or system calls; it allocates only on the first arrival of a
    /// session and of a group.
    ///
    /// An arrival is dropped and counted if more than 16 384 are waiting for the session's thread,
    /// which collects them about once a second, if the name is longer than 64 bytes, or if there
    /// are too many groups (16 384).
    #[inline]
    pub fn arrive(&self, group: &str, step: u64) {
        self.arrive_at(group, step, SystemClock.now());
    }

    /// Records an arrival at a time of the system clock, for sources that learn of arrivals later;
    /// they also call [`Arrivals::complete_until`].
    #[inline]
    pub fn arrive_at(&self, group: &str, step: u64, at: Timestamp<System>) {
        let ring = self.0.get_or_init(Ring::new);
        let taken = ring.group(group).is_some_and(|group| ring.queue.push(Arrival { group, step, at }).is_ok());
        if !taken {
            ring.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// States that all arrivals before this time of the system clock have been recorded. After that
    /// time, a missing arrival does not count as a wait for this rank. By default, arrivals are
    /// always complete.
    pub fn complete_until(&self, at: Timestamp<System>) {
        // Who sees this time also sees the arrivals recorded before the call.
        self.0.get_or_init(Ring::new).complete_until_ns.store(at.as_ns(), Ordering::Release);
    }

    /// Returns the time up to which arrivals are complete, no later than `now`.
    pub(crate) fn as_of(&self, now: Timestamp<System>) -> Timestamp<System> {
        let until = self.0.get().map(|ring| Timestamp::from_ns(ring.complete_until_ns.load(Ordering::Acquire)));
        until.map_or(now, |until| until.min(now))
    }

    /// Counts arrivals that could not be recorded, as dropped.
    pub fn lose(&self, count: u64) {
        if count > 0 {
            self.0.get_or_init(Ring::new).dropped.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Returns the number of arrivals dropped on this rank.
    pub fn dropped(&self) -> u64 {
        self.0.get().map_or(0, |ring| ring.dropped.load(Ordering::Relaxed))
    }

    /// Returns true once the rank has arrived anywhere.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.get().is_some()
    }

    /// Removes and returns at most `most` arrivals recorded since the previous call.
    pub(crate) fn take(&self, most: usize) -> Vec<Arrival> {
        let Some(ring) = self.0.get() else { return Vec::new() };
        (0..most).map_while(|_| ring.queue.pop()).collect()
    }

    /// Returns the name of a group.
    pub(crate) fn name(&self, group: u32) -> &str {
        self.0.get().and_then(|ring| ring.names.get(group as usize)?.get()).map_or("", |name| name)
    }
}

impl Ring {
    fn new() -> Self {
        Self {
            names: (0..NAMES).map(|_| OnceLock::new()).collect(),
            hasher: foldhash::fast::FixedState::default(),
            queue: ArrayQueue::new(RING),
            dropped: AtomicU64::new(0),
            complete_until_ns: AtomicI64::new(i64::MAX),
        }
    }

    /// Returns the number of a name, assigning one on first use.
    #[inline]
    fn group(&self, name: &str) -> Option<u32> {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(name.as_bytes());
        let first = hasher.finish() as usize;
        for probe in 0..PROBES {
            let place = first.wrapping_add(probe) % NAMES;
            let known = match self.names[place].get() {
                Some(known) => known,
                None if name.len() > NAME_MAX => return None,
                // Another thread may fill it first, with this name or another.
                None => self.names[place].get_or_init(|| name.into()),
            };
            if **known == *name {
                return Some(place as u32);
            }
        }
        None
    }
}

/// Most arrivals waiting for the session's thread.
const RING: usize = 1 << 14;
/// Most group names.
const NAMES: usize = 1 << 14;
/// Slots that are tried for a name.
const PROBES: usize = 64;
/// Longest name, bytes.
const NAME_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_come_in_order_with_their_names_and_what_is_too_much_is_counted() {
        let arrivals = Arrivals::default();
        assert!(!arrivals.has_begun() && arrivals.take(10).is_empty());
        for step in 0..RING as u64 {
            arrivals.arrive(if step % 2 == 0 { "grads" } else { "loss" }, step);
        }
        arrivals.arrive("grads", 7);
        arrivals.arrive(&"x".repeat(NAME_MAX + 1), 7);
        assert_eq!(arrivals.dropped(), 2);
        let taken = arrivals.take(usize::MAX);
        assert_eq!(taken.len(), RING);
        assert!(taken.is_sorted_by_key(|arrival| arrival.at) && taken.is_sorted_by_key(|arrival| arrival.step));
        assert_eq!([0, 1].map(|place: usize| arrivals.name(taken[place].group)), ["grads", "loss"]);
    }

    #[test]
    fn threads_that_arrive_at_once_agree_on_names() {
        let arrivals = Arrivals::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|step| arrivals.arrive(&format!("group {}", step % 100), step)));
            }
        });
        let names: std::collections::BTreeSet<u32> =
            arrivals.take(usize::MAX).iter().map(|arrival| arrival.group).collect();
        assert_eq!((names.len(), arrivals.dropped()), (100, 0));
    }
}
