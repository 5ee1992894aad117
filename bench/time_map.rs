//! Benchmark of mapping a single time.
//!
//! `cargo bench -p probe-sync-estimate --bench time_map`
//!
//! A composed map of two hops (pairs every 100 ms, rounds every 4 s) over ten minutes; times as in
//! a trace: ascending starts, each with its end a little later. Cursor and binary search beside
//! each other, the median of repeated passes on one core, and a check that both return the same. It
//! asserts no timing. Under `cargo test --benches` it runs one short pass, so that it keeps
//! compiling and working.

use std::hint::black_box;
use std::time::Instant;

use probe_sync_estimate::series::{Knot, MapChain, Segment, TimeMap};

fn main() {
    let quick = !std::env::args().any(|argument| argument == "--bench");
    let (times, passes) = if quick { (10_000, 1) } else { (4_000_000, 9) };
    let chain =
        MapChain::new(wavy(6000, 100_000_000_000, 70_000_000)).then(wavy(150, 4_000_000_000_000, 900_000_000), 0.0);
    let queries: Vec<i128> = (0..times)
        .map(|k: i128| BASE_PS + (k / 2) * (600_000_000_000_000 / (times / 2)) + (k % 2) * 17_000_001)
        .collect();
    let mut cursor = chain.cursor();
    assert!(queries.iter().take(10_000).all(|&time| cursor.map(time) == chain.map(time)));
    println!("{} pieces, {times} times", chain.whole().pieces());
    println!("cursor        {:6.2} ns", measure(passes, &queries, &mut |time| cursor.map(time).time_ps));
    println!("binary search {:6.2} ns", measure(passes, &queries, &mut |time| chain.map(time).time_ps));
}

fn measure(passes: usize, queries: &[i128], map: &mut dyn FnMut(i128) -> i128) -> f64 {
    let mut each: Vec<f64> = (0..passes)
        .map(|_| {
            let start = Instant::now();
            for &time in queries {
                black_box(map(black_box(time)));
            }
            start.elapsed().as_secs_f64() * 1e9 / queries.len() as f64
        })
        .collect();
    each.sort_unstable_by(f64::total_cmp);
    each[each.len() / 2]
}

/// Knots whose corrections go up and down.
fn wavy(count: i128, interval_ps: i128, height_ps: i128) -> TimeMap {
    let knot = |k: i128| Knot {
        at_ps: BASE_PS + k * interval_ps + k * k % 97,
        correction_ps: (k * 7919 % 101) * height_ps / 101,
        sigma_ns: 50.0,
    };
    let segment = Segment { knots: (0..count).map(knot).collect(), ..Segment::default() };
    TimeMap::new(&[segment]).expect("ascending knots")
}

const BASE_PS: i128 = 1_795_187_116_632_205_972_000;
