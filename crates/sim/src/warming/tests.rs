//! Tests that run the generator at small sizes.

use std::collections::BTreeSet;

use super::*;

const SMALL: Size = Size { nodes: 8, neighbors: 4, seconds: 32.0, window_s: 4.0 };
const QUIET: WarmingCell = WarmingCell::ALL[0];

#[test]
fn a_warming_clock_is_followed_without_break_or_hole() {
    let mut outcome = WarmingOutcome::default();
    for seed in 1..=6 {
        let run = run_for(&QUIET, seed, &SMALL);
        assert!(run.hole_s < SMALL.window_s + 0.1, "seed {seed}: a hole of {} s", run.hole_s);
        let times: BTreeSet<_> = run.lines.iter().map(|line| line.at).collect();
        assert!(times.len() >= 128, "seed {seed}: {} lines, from the first to the last packet", times.len());
        outcome.add(&run);
    }
    let summary = outcome.lines.summary();
    assert_eq!(summary.missing, 0);
    assert!(summary.p99_ns < 60.0, "p99 {} ns with asymmetries of 20 ns", summary.p99_ns);
    // One node's mean error is one draw, half of it common to the run: six runs are about twelve
    // draws.
    let interval = summary.interval.expect("stated");
    assert!(interval.share() > 0.80, "{} of the truths inside the 95 % intervals", interval.share());
    assert!(interval.half_width_per_rms < 4.0, "half-width {} of the rms error", interval.half_width_per_rms);
    let hard = summary.hard.expect("stated");
    assert_eq!(hard.held, hard.count, "hard intervals");
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_another() {
    let size = Size { seconds: 12.0, ..SMALL };
    let [first, again, other] = [1, 1, 2].map(|seed| run_for(&WarmingCell::ALL[2], seed, &size));
    assert_eq!(first, again);
    assert_ne!(first.lines, other.lines);
}
