//! The list of this process's sessions and of its threads' blocks.
//!
//! `session` changes it, and a thread that finds the gate changed reads it. It is attached to the
//! gate's page, so that a forked child has none and makes its own; it leaves its parent's
//! unchanged.
//!
//! Who changes the list closes the old state for all threads: a new number of the gate, a barrier,
//! and then a wait until no thread is within an event that began before ([`Registry::quiet`]).
//! After that nobody holds what was taken off the list.
//!
//! Signal handlers may not wait for the list's lock: the thread that they interrupt may hold it.
//! What they need is in a copy that is never changed ([`Registry::look`]); whoever changes the list
//! puts another in its place, and frees the one before when nobody looks at it.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::core::{Core, Reach};
use super::watch::{Watch, Watches};
use crate::clock::Ticks;
use crate::memory::gate;
use crate::memory::lock::{Held, Lock};
use crate::memory::order::{self, Visitors, Word};

/// What a thread shows others: whether it is within an event.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// 0 if it is not; otherwise the registry's number.
    pub busy: AtomicU32,
    pub next: AtomicPtr<Self>,
}

/// A session, and the threads that it covers.
#[derive(Debug)]
struct Listed {
    core: Arc<Core>,
    members: Vec<u32>,
}

/// The list of sessions.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Number of the registry, unique among a process and its ancestors.
    pub number: u32,
    sessions: Lock<Vec<Arc<Core>>>,
    /// Copy of the list for threads that must not wait; null: none was ever added.
    listed: AtomicPtr<Vec<Listed>>,
    /// Threads that are reading `listed` at this moment.
    looking: Visitors,
    /// All threads that ever recorded; blocks are reused and never freed.
    activities: AtomicPtr<Activity>,
    /// Number of other reasons for events to take the slow path, such as observers.
    slow: AtomicU32,
    /// Observers; null: none were ever added.
    watches: AtomicPtr<Watches>,
    /// Clock of all sessions, by its number in files.
    clock: AtomicU64,
}

impl Registry {
    /// Returns the registry of this process, if it has one.
    pub fn current() -> Option<&'static Self> {
        let registry = gate::page().registry.load(Ordering::Acquire).cast::<Self>();
        // SAFETY: only `prepared` stores one, which is never freed.
        unsafe { registry.as_ref() }
    }

    /// Returns the registry of this process, or what is missing for one.
    pub fn prepared() -> Result<&'static Self, String> {
        gate::prepare()?;
        if let Some(registry) = Self::current() {
            return Ok(registry);
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let made = Box::new(Self {
            number,
            sessions: Lock::default(),
            listed: AtomicPtr::new(ptr::null_mut()),
            looking: Visitors::default(),
            activities: AtomicPtr::new(ptr::null_mut()),
            slow: AtomicU32::new(0),
            watches: AtomicPtr::new(ptr::null_mut()),
            clock: AtomicU64::new(0),
        });
        let made = Box::into_raw(made);
        let place = &gate::page().registry;
        let first = place.compare_exchange(ptr::null_mut(), made.cast(), Ordering::AcqRel, Ordering::Acquire);
        if first.is_err() {
            // SAFETY: nobody else has seen it.
            drop(unsafe { Box::from_raw(made) });
        }
        Self::current().ok_or_else(|| "the list of sessions no longer exists".into())
    }

    /// Returns the sessions, for reading or changing; after a change [`Registry::publish`] must be
    /// called before releasing them.
    pub fn sessions(&self) -> Held<'_, Vec<Arc<Core>>> {
        self.sessions.lock()
    }

    /// Announces a change to all threads. Called while holding the sessions.
    pub fn publish(&self, sessions: &[Arc<Core>]) {
        let listed = |core: &Arc<Core>| {
            let members = core.members.lock().clone();
            Listed { core: Arc::clone(core), members }
        };
        let new = Box::into_raw(Box::new(sessions.iter().map(listed).collect()));
        // Before the gate: what a handler counts because the gate is another is counted for
        // sessions of that gate, or of one that came later.
        let before = self.listed.swap(new, Ordering::SeqCst);
        gate::change(!sessions.is_empty() || self.slow.load(Ordering::Acquire) != 0);
        let deadline = Instant::now() + QUIET_LIMIT;
        while !self.looking.is_empty() {
            if Instant::now() > deadline {
                return;
            }
            std::thread::sleep(QUIET_POLL);
        }
        if !before.is_null() {
            // SAFETY: made here, taken off by this thread alone, and who looks from now on sees the
            // new one.
            drop(unsafe { Box::from_raw(before) });
        }
    }

    /// Calls `each` for every session that records events of these bits, of a thread with this
    /// serial number or, without one, of any thread of the process. Never waits, and allocates no
    /// memory.
    pub fn look(&self, bit: u32, serial: Option<u32>, mut each: impl FnMut(&Core)) {
        self.looking.visit(|| {
            // SAFETY: only `publish` stores one; it frees the one before when nobody looks at it.
            let listed = unsafe { self.listed.load(Ordering::SeqCst).as_ref() };
            for Listed { core, members } in listed.into_iter().flatten() {
                let covers = core.reach == Reach::Process || serial.is_some_and(|serial| members.contains(&serial));
                if covers && core.wanted() & bit != 0 {
                    each(core);
                }
            }
        });
    }

    /// Returns the clock of all sessions.
    pub fn ticks(&self) -> Ticks {
        Ticks::of_number(self.clock.load(Ordering::Acquire))
    }

    /// Sets the clock of sessions that begin from now on; called while there are none.
    pub fn set_ticks(&self, ticks: Ticks) {
        self.clock.store(ticks.number(), Ordering::Release);
    }

    /// Returns true if events must take the slow path for other reasons than sessions.
    pub fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Acquire) != 0
    }

    /// Changes the number of other reasons for the slow path.
    pub fn change_slow(&self, sessions: &[Arc<Core>], by: i32) {
        self.slow.fetch_add(by as u32, Ordering::AcqRel);
        self.publish(sessions);
    }

    /// Returns the observers. Called within an event; the result must not be kept beyond it.
    pub fn watches(&self) -> &[Arc<Watch>] {
        let watches = self.watches.load(Ordering::Acquire);
        // SAFETY: only `change_watches` stores one; it frees the one before when no thread is
        // within an event that began before.
        unsafe { watches.as_ref() }.map_or(&[], |watches| &watches.0)
    }

    /// Returns true if there may be observers.
    pub fn is_observed(&self) -> bool {
        self.is_slow() && !self.watches.load(Ordering::Acquire).is_null()
    }

    /// Replaces the list of observers; the previous one must be passed to
    /// [`Registry::free_watches`]. Called while holding the sessions.
    pub fn change_watches(&self, sessions: &[Arc<Core>], by: i32, change: impl FnOnce(&mut Watches)) -> *mut Watches {
        let mut list = Watches(self.watches().to_vec());
        change(&mut list);
        let before = self.watches.swap(Box::into_raw(Box::new(list)), Ordering::AcqRel);
        self.change_slow(sessions, by);
        before
    }

    /// Waits until no thread holds a replaced list, and frees it. If a thread stays within its
    /// event, the list is kept.
    pub fn free_watches(&self, before: *mut Watches, own: Option<&Activity>) {
        if self.quiet(own) && !before.is_null() {
            // SAFETY: made by `change_watches`, taken off by its caller alone, and seen by no
            // thread any more.
            drop(unsafe { Box::from_raw(before) });
        }
    }

    /// Adds a thread to the list of those that may be within an event.
    pub fn enlist(&self, activity: &'static Activity) {
        let own = ptr::from_ref(activity).cast_mut();
        let mut head = self.activities.load(Ordering::Acquire);
        loop {
            activity.next.store(head, Ordering::Release);
            match self.activities.compare_exchange_weak(head, own, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(other) => head = other,
            }
        }
    }

    /// Waits until no thread except `own` is within an event that began before. Returns false if
    /// one stays in it, or the kernel has no barrier: then everything that they may hold must be
    /// kept.
    pub fn quiet(&self, own: Option<&Activity>) -> bool {
        let seen_by_all = <AtomicU32 as Word>::heavy();
        let deadline = Instant::now() + QUIET_LIMIT;
        let mut next = self.activities.load(Ordering::Acquire);
        // SAFETY: only `enlist` puts pointers on the list, each to a block that is never freed.
        while let Some(activity) = unsafe { next.as_ref() } {
            next = activity.next.load(Ordering::Acquire);
            if own.is_some_and(|own| ptr::eq(own, activity)) {
                continue;
            }
            while order::is_within(&activity.busy, self.number) {
                if Instant::now() > deadline {
                    return false;
                }
                std::thread::sleep(QUIET_POLL);
            }
        }
        seen_by_all
    }
}

/// Longest wait for a thread; an event takes less than 1 µs, unless its thread is stopped within
/// it.
const QUIET_LIMIT: Duration = Duration::from_secs(5);
const QUIET_POLL: Duration = Duration::from_micros(20);

static NUMBER: AtomicU32 = AtomicU32::new(1);
