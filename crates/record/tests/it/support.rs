//! What the tests share: one at a time, what a recording holds, whether it is sound, and how much
//! memory something takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use probe_sync_record::read::{ArgumentValue, Event, What};
use probe_sync_record::{Error, Recording};

/// There is one session of the process, and all tests are in one process.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells threads to stop when it is dropped, also by a failing test.
#[cfg(feature = "recording")]
pub struct Stopping<'a>(pub &'a AtomicBool);

#[cfg(feature = "recording")]
impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// What a thread has in a recording.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Events by their names.
    pub names: BTreeMap<String, u64>,
    /// The argument `n` of scopes called "work", in their order.
    pub numbers: Vec<u64>,
    /// Lost ones, wherever it stands.
    pub lost: u64,
    /// Names of scopes that are open.
    pub open: Vec<String>,
    pub interrupted: u64,
}

impl Tally {
    pub fn events(&self) -> u64 {
        self.names.values().sum()
    }
}

/// Threads by their names; those of one name together. The recording is found sound on the way.
pub fn tallies(recording: &Recording) -> BTreeMap<String, Tally> {
    tallies_of(recording, recording.status().pauses == 0)
}

/// The same; whether there may be no gaps.
pub fn tallies_of(recording: &Recording, gapless: bool) -> BTreeMap<String, Tally> {
    let mut found: BTreeMap<String, Tally> = BTreeMap::new();
    for thread in recording.threads() {
        let tally = found.entry(thread.name.clone()).or_default();
        let mut order = Order { gapless, ..Order::default() };
        let take = |event: &Event<'_>| {
            order.look_at(event);
            if !matches!(event.what, What::Lost { .. }) {
                *tally.names.entry(event.name().to_owned()).or_default() += 1;
            }
            if let (What::Scope { .. }, "work", Some((_, ArgumentValue::Unsigned(number)))) =
                (event.what, event.name(), event.arguments().next())
            {
                tally.numbers.push(number);
            }
            Ok::<(), Error>(())
        };
        recording.visit(thread.serial, take).expect("sound");
        tally.lost += thread.lost.events;
        tally.interrupted += thread.interrupted;
        tally.open.extend(thread.open.iter().map(|scope| scope.name.clone()));
        let span = thread.lost.span.is_some_and(|[first, last]| 0 < first && first <= last);
        assert_eq!(thread.lost.events > 0, span, "losses have a span: {thread:?}");
    }
    found
}

/// Ends of one thread come in order, scopes hold those within, and there is no gap between their
/// numbers but where events are counted as lost.
#[derive(Default)]
struct Order {
    last_end: u64,
    within: Vec<(u32, u64)>,
    next: Option<u64>,
    lost: u64,
    gapless: bool,
}

impl Order {
    fn look_at(&mut self, event: &Event<'_>) {
        if let What::Lost { first, last, events } = event.what {
            assert!(first <= last && events > 0, "{:?}", event.what);
            self.lost += events;
            // What is around those before may be among them.
            self.within.clear();
            return;
        }
        let end = event.what.end();
        assert!(end >= self.last_end, "ends go back: {event:?} after {}", self.last_end);
        self.last_end = end;
        assert_ne!(event.name(), "(name lost)");
        let start = if let What::Scope { start, .. } = event.what { start } else { end };
        assert!(start <= end, "{:?}", event.what);
        while let Some((depth, inner)) = self.within.last().copied().filter(|(depth, _)| *depth > event.depth) {
            assert!(depth > event.depth + 1 || inner >= start, "{event:?} begins after what is within: {inner}");
            self.within.pop();
        }
        self.within.push((event.depth, start));
        if let ("work", Some((_, ArgumentValue::Unsigned(number)))) = (event.name(), event.arguments().next()) {
            if let Some(next) = self.next.filter(|_| self.gapless) {
                let gap = number.checked_sub(next).expect("numbers go up");
                assert!(gap <= self.lost, "{gap} are missing before {number}, {} are counted", self.lost);
            }
            (self.next, self.lost) = (Some(number + 1), 0);
        }
    }
}

/// Recorded events of all threads, lost ones, and those that newer ones have replaced.
pub fn sums(recording: &Recording) -> [u64; 3] {
    let threads = tallies(recording);
    let status = recording.status();
    let lost = threads.values().map(|tally| tally.lost).sum::<u64>() + status.lost.events;
    [threads.values().map(Tally::events).sum(), lost, status.replaced]
}

/// The system's allocator, with a mark of how much was in use at most.
pub struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(USED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) };
    }
}

/// How many bytes more than before were in use at most while it ran.
pub fn most_bytes<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = USED.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let result = work();
    (result, MOST.load(Ordering::Relaxed).saturating_sub(before))
}

/// Resident memory of this process at most, bytes.
pub fn most_resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("every process has it");
    1024 * line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number")
}
