//! What `Arrivals::arrive` costs, beside the reading of the system clock in it.
//!
//! `cargo bench -p probe-sync --bench arrive`: medians of blocks of 10 000 calls, in turn. It
//! asserts no time.

use std::hint::black_box;
use std::time::Instant;

use probe_sync::Arrivals;
use probe_sync_sys::SystemClock;
use probe_sync_time::Clock as _;

const CALLS: u32 = 10_000;

fn main() {
    // `cargo bench` says so; `cargo test` does not.
    let blocks = if std::env::args().any(|given| given == "--bench") { 201 } else { 3 };
    let (mut clock, mut arrive, mut full) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..blocks {
        clock.push(timed(|_| _ = black_box(SystemClock.now())));
        // A new ring has room for a block; the second block fills it, and the rest is dropped.
        let arrivals = Arrivals::default();
        arrivals.arrive("grads", 0);
        arrive.push(timed(|step| arrivals.arrive(black_box("grads"), step)));
        timed(|step| arrivals.arrive(black_box("grads"), step));
        full.push(timed(|step| arrivals.arrive(black_box("grads"), step)));
    }
    for (what, mut times) in [("system clock", clock), ("arrive", arrive), ("arrive, ring full", full)] {
        times.sort_by(f64::total_cmp);
        println!("{what}: {:.1} ns", times[times.len() / 2]);
    }
}

/// Nanoseconds of one call.
fn timed(call: impl Fn(u64)) -> f64 {
    let begun = Instant::now();
    (0..u64::from(CALLS)).for_each(call);
    begun.elapsed().as_nanos() as f64 / f64::from(CALLS)
}
