//! Alternating passes measured by thread CPU time, and their medians.
//!
//! A pass takes a few ms, so that load on the machine affects all cases alike; the order of the
//! cases is reversed from pass to pass.

use std::hint::black_box;
use std::sync::Barrier;

use rustix::time::{ClockId, clock_gettime};

/// How much is measured.
#[derive(Copy, Clone, Debug)]
pub struct Effort {
    /// Passes of each case.
    pub passes: usize,
    /// Events of a pass.
    pub events: u64,
}

impl Effort {
    /// For figures.
    pub const LONG: Self = Self { passes: 31, events: 100_000 };
    /// To see that it works.
    pub const SHORT: Self = Self { passes: 3, events: 2_000 };
}

/// A case: creates this many events and returns how long one took, ns.
pub type Case<'a> = Box<dyn FnMut(u64) -> f64 + 'a>;

/// The medians of cases that are measured in turn, ns per event.
pub fn in_turn(effort: Effort, cases: &mut [Case<'_>]) -> Vec<f64> {
    let mut found = vec![Vec::with_capacity(effort.passes); cases.len()];
    // The first touches what is touched once.
    for case in cases.iter_mut() {
        black_box(case(effort.events));
    }
    for pass in 0..effort.passes {
        for at in 0..cases.len() {
            let at = if pass % 2 == 0 { at } else { cases.len() - 1 - at };
            found[at].push(cases[at](effort.events));
        }
    }
    found.into_iter().map(median).collect()
}

/// Time of the thread per event, ns.
pub fn time(events: u64, mut event: impl FnMut(u64)) -> f64 {
    let before = thread_ns();
    for number in 0..events {
        event(number);
    }
    (thread_ns() - before) / events as f64
}

/// The same on two threads that begin together, the mean of both.
pub fn time_on_two(events: u64, event: impl Fn(u64) -> f64 + Sync) -> f64 {
    let (event, together) = (&event, &Barrier::new(2));
    let run = move || {
        together.wait();
        event(events)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(run);
        let own = run();
        (own + other.join().unwrap_or(f64::NAN)) / 2.0
    })
}

/// CPU time of the thread, ns.
pub fn thread_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The middle.
pub fn median(values: Vec<f64>) -> f64 {
    quantile(values, 0.5)
}

/// The value below which such a part lies.
pub fn quantile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * part) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// The time-stamp counter.
#[inline(always)]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has it.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let time = clock_gettime(ClockId::MonotonicRaw);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

/// Ticks of the counter in a ns, by 50 ms of the system's clock.
pub fn ticks_per_ns() -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::MonotonicRaw);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    let (first, first_ns) = (ticks(), now());
    std::thread::sleep(std::time::Duration::from_millis(50));
    (ticks() - first) as f64 / (now() - first_ns)
}

/// Description of the machine.
pub fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = read("/proc/loadavg");
    format!("{}, {cores} cores, load {}", model.unwrap_or("processor unknown"), load.split(' ').next().unwrap_or("?"))
}

/// Two readings of the counter, and 32 bytes.
pub struct Floor {
    ring: Vec<[u64; 4]>,
    next: usize,
}

impl Floor {
    /// With a ring of 4 MiB, all touched.
    pub fn new() -> Self {
        Self { ring: (0..SLOTS as u64).map(|number| [number; 4]).collect(), next: 0 }
    }

    /// Time per event, ns.
    pub fn time(&mut self, events: u64) -> f64 {
        time(events, |number| {
            let first = ticks();
            let second = ticks();
            let slot = &mut self.ring[self.next % SLOTS];
            *slot = [first, second, number, 7];
            black_box(slot);
            self.next += 1;
        })
    }
}

const SLOTS: usize = 1 << 17;
