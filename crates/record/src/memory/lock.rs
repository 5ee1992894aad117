//! A lock for the data that sessions share: a mutex that a panic does not poison and whose order is
//! also visible in the recorder's own atomics.
//!
//! An event on the fast path never takes it. ThreadSanitizer does not see the synchronization of
//! the standard library's mutex, which is not instrumented, and would report everything under it as
//! a race. [`Lock::turn`] makes the order visible to it and has no other purpose.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A lock.
#[derive(Debug, Default)]
pub(crate) struct Lock<T> {
    value: Mutex<T>,
    turn: AtomicU32,
}

/// The lock is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Held<'a, T> {
    // Dropped first.
    _told: Told<'a>,
    value: MutexGuard<'a, T>,
}

/// Publishes what was done under the lock.
#[derive(Debug)]
struct Told<'a>(&'a AtomicU32);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

impl<T> Lock<T> {
    /// Creates a lock around a value.
    pub fn new(value: T) -> Self {
        Self { value: Mutex::new(value), turn: AtomicU32::new(0) }
    }

    /// Takes it. A thread that panicked with it has left the value as it was at that moment.
    pub fn lock(&self) -> Held<'_, T> {
        self.held(self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Releases it until the bell rings or a time has passed.
    pub fn wait<'a>(&'a self, held: Held<'a, T>, bell: &Condvar, limit: Duration) -> Held<'a, T> {
        let Held { _told, value } = held;
        drop(_told);
        let (value, _) = bell.wait_timeout(value, limit).unwrap_or_else(PoisonError::into_inner);
        self.held(value)
    }

    fn held<'a>(&'a self, value: MutexGuard<'a, T>) -> Held<'a, T> {
        self.turn.load(Ordering::Acquire);
        Held { _told: Told(&self.turn), value }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
