//! Creation, registration and removal of observers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::active::core::Reach;
use crate::active::registry::Registry;
use crate::active::watch::{Enter, Leave, Observed, WATCHES_MAX, Watch};
use crate::error::Error;
use crate::kind::{Kind, Kinds};
use crate::memory::order::Visitors;
use crate::thread::exclusive::Exclusive;
use crate::thread::{block, sync};

/// Builds an observer.
#[must_use = "it observes once it is added"]
pub struct Observer {
    reach: Reach,
    kinds: Kinds,
    every: u32,
    arguments: bool,
    enter: Option<Box<Enter>>,
    leave: Option<Box<Leave>>,
}

impl Observer {
    /// Creates an observer of the whole process, all kinds and every scope, without arguments.
    pub fn new() -> Self {
        Self { reach: Reach::Process, kinds: Kinds::ALL, every: 1, arguments: false, enter: None, leave: None }
    }

    /// Sets which threads it observes: those of the process, or the one that adds it.
    pub fn reach(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }

    /// Sets the kinds to observe.
    pub fn kinds(self, kinds: &[Kind]) -> Self {
        self.of_kinds(Kinds::of(kinds))
    }

    pub(crate) fn of_kinds(self, kinds: Kinds) -> Self {
        Self { kinds, ..self }
    }

    /// Calls it for one in this many scopes of a thread.
    pub fn one_in(self, every: u32) -> Self {
        Self { every, ..self }
    }

    /// Passes arguments to it; those behind `||` are evaluated for it.
    pub fn with_arguments(self) -> Self {
        Self { arguments: true, ..self }
    }

    /// Sets the callback before a scope begins. Its result is passed to the callback at the end.
    pub fn on_enter(self, enter: impl Fn(&Observed<'_>) -> u64 + Send + Sync + 'static) -> Self {
        Self { enter: Some(Box::new(enter)), ..self }
    }

    /// Sets the callback after a scope has ended, with the result from its beginning; 0 if nothing
    /// was called there.
    pub fn on_leave(self, leave: impl Fn(&Observed<'_>, u64) + Send + Sync + 'static) -> Self {
        Self { leave: Some(Box::new(leave)), ..self }
    }

    /// Begins to observe. Scopes that are already open are not reported.
    ///
    /// # Errors
    /// [`Error::NoKinds`], [`Error::Setting`] if there is no callback, [`Error::TooManyObservers`].
    pub fn add(self) -> Result<Observing, Error> {
        let refuse = |setting: &'static str, reason: &str| Err(Error::Setting { setting, reason: reason.into() });
        if self.kinds.is_empty() {
            return Err(Error::NoKinds);
        }
        if self.every == 0 {
            return refuse("one_in", "one of 0 scopes is invalid; use 1 for all scopes");
        }
        if self.enter.is_none() && self.leave.is_none() {
            return refuse("observer", "it has no callback; give on_enter or on_leave");
        }
        let registry = Registry::prepared().map_err(|reason| Error::Memory { bytes: 0, reason })?;
        let serial = match self.reach {
            Reach::Process => None,
            Reach::Thread => Some(sync::attached().map_or(0, |block| block.serial.get())),
        };
        let watch = Arc::new(self.watch(serial));
        let exclusive = Exclusive::of(registry);
        let sessions = registry.sessions();
        let open = registry.watches().len();
        if open >= WATCHES_MAX {
            return Err(Error::TooManyObservers { open });
        }
        let added = Arc::clone(&watch);
        let before = registry.change_watches(&sessions, 1, |list| list.0.push(added));
        drop(sessions);
        registry.free_watches(before, exclusive.let_go());
        Ok(Observing { watch, registry: registry.number, removed: false })
    }

    fn watch(self, serial: Option<u32>) -> Watch {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        Watch {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            serial,
            kinds: self.kinds.bits(),
            every: self.every,
            arguments: self.arguments,
            enter: self.enter,
            leave: self.leave,
            on: AtomicBool::new(true),
            running: Visitors::default(),
            calls: AtomicU64::new(0),
            panics: AtomicU64::new(0),
        }
    }
}

impl Default for Observer {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Observer")
            .field("reach", &self.reach)
            .field("kinds", &self.kinds)
            .finish_non_exhaustive()
    }
}

/// An active observer, removed when dropped.
#[must_use = "it is removed when this is dropped"]
#[derive(Debug)]
pub struct Observing {
    watch: Arc<Watch>,
    /// Number of its registry; another number means a forked child.
    registry: u32,
    removed: bool,
}

/// Counts of an observer.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ObserverCounts {
    /// Calls of either callback.
    pub calls: u64,
    /// Panics; after one it is no longer called.
    pub panics: u64,
}

impl Observing {
    /// Removes it. Returns true if no call is in progress and none will follow. False: no further
    /// call begins, but some may be in progress, because this is called from within one, or because
    /// one did not end in 10 s.
    pub fn remove(mut self) -> bool {
        self.take_off()
    }

    /// Returns true if it is called: until it has panicked.
    pub fn is_on(&self) -> bool {
        self.watch.on.load(Ordering::Relaxed)
    }

    /// Returns its counts.
    pub fn counts(&self) -> ObserverCounts {
        let [calls, panics] = [&self.watch.calls, &self.watch.panics].map(|count| count.load(Ordering::Relaxed));
        ObserverCounts { calls, panics }
    }

    fn take_off(&mut self) -> bool {
        if std::mem::replace(&mut self.removed, true) {
            return true;
        }
        self.watch.switch_off();
        let Some(registry) = Registry::current().filter(|registry| registry.number == self.registry) else {
            return true;
        };
        let exclusive = Exclusive::of(registry);
        let sessions = registry.sessions();
        let number = self.watch.number;
        let before = registry.change_watches(&sessions, -1, |list| list.0.retain(|watch| watch.number != number));
        drop(sessions);
        registry.free_watches(before, exclusive.let_go());
        !block::current().observing.get() && self.watch.wait()
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        self.take_off();
    }
}
