//! Traces that begin at different operations, with every kind of proof and without any.

use super::super::{MatchOptions, Pairing, match_operations};
use crate::collectives::testing::{Node, all, group, ordered, with};

/// Numbers between 0 and 1 that look random, the same each time.
struct Dice(u64);

impl Dice {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }
}

/// A job of steps with one all-reduce each, of two ranks.
struct Job {
    /// When all have begun each operation, ns.
    begun: Vec<i128>,
    /// How far the second rank's clock is ahead, ns.
    ahead: i128,
    steps: bool,
}

impl Job {
    /// Steps of 20 ms, longer by up to `jitter` ns.
    fn new(steps: usize, jitter: f64) -> Self {
        let mut dice = Dice(7);
        let mut now = 0;
        let begun = (0..steps).map(|_| {
            now += 20_000_000 + (jitter * dice.unit()) as i128;
            now
        });
        Self { begun: begun.collect(), ahead: 0, steps: false }
    }

    /// What a rank records of some of its operations; ends scatter by up to 5 µs.
    fn recorded(&self, rank: usize, from: usize, until: usize) -> Node {
        let mut dice = Dice(99 + rank as u64);
        let ahead = if rank == 1 { self.ahead } else { 0 };
        let times = self.begun.iter().map(|begun| (begun + ahead, (5_000.0 * dice.unit()) as i128));
        let times: Vec<(i128, i128)> = times.collect();
        let part = |(begun, late): &(i128, i128)| {
            all(ordered(Some(group("0", &[0, 1])), "all_reduce"), begun - 20_000, begun + 300_000 + late)
        };
        let node = Node::new(times[from..until].iter().map(part).collect());
        if !self.steps {
            return node;
        }
        let step = |k: usize| (k as i64, times[k].0 - 5_000_000, times[k].0 + 12_000_000);
        node.steps(&(from..until).map(step).collect::<Vec<_>>())
    }
}

/// The pairs of operations that were found, by their places in the job; how many are ambiguous, and
/// what is said of the proof.
fn found(first: (Node, usize), second: (Node, usize), clocks_known: bool) -> (Vec<(usize, usize)>, usize, String) {
    let origins = [first.1, second.1];
    with(&[first.0, second.0], |nodes| {
        let pairing = Pairing::new(nodes, MatchOptions::default(), clocks_known);
        let mut pairs = Vec::new();
        let matching = match_operations(nodes, &pairing, MatchOptions::default(), &mut |operation| {
            let [one, other] = &operation.parts[..] else { panic!("{operation:?}") };
            pairs.push((origins[0] + one.ordinal as usize, origins[1] + other.ordinal as usize));
        });
        let ambiguous = matching.ambiguous.iter().map(|line| line.parts).sum();
        (pairs, ambiguous, pairing.notes().join("; "))
    })
}

fn same(from: usize, until: usize) -> Vec<(usize, usize)> {
    (from..until).map(|k| (k, k)).collect()
}

#[test]
fn shifted_windows_are_paired_by_the_steps_that_both_state() {
    // Clocks 20 ms apart, of which nothing is known.
    for ahead in [0, 20_000_000] {
        let job = Job { steps: true, ahead, ..Job::new(6, 0.0) };
        let (pairs, ambiguous, proof) = found((job.recorded(0, 0, 3), 0), (job.recorded(1, 1, 4), 1), false);
        assert_eq!((pairs, ambiguous), (same(1, 3), 0), "{proof}");
        assert!(proof.contains("by the steps that both traces number"), "{proof}");
        let (pairs, ambiguous, _) = found((job.recorded(0, 0, 3), 0), (job.recorded(1, 3, 6), 3), false);
        assert_eq!((pairs, ambiguous), (vec![], 0), "nothing in common");
    }
}

#[test]
fn shifted_windows_are_paired_by_times_where_clocks_leave_one_way() {
    let job = Job::new(6, 0.0);
    let (pairs, ambiguous, proof) = found((job.recorded(0, 0, 3), 0), (job.recorded(1, 1, 4), 1), true);
    assert_eq!((pairs, ambiguous), (same(1, 3), 0));
    assert!(proof.contains("any other pairing contradicts the clocks"), "{proof}");
    // Known to 5 ms only: a shift by one step may be right as well.
    let vague = |rank, from, until| job.recorded(rank, from, until).corrected(0, 5e6);
    let (pairs, ambiguous, _) = found((vague(0, 0, 3), 0), (vague(1, 1, 4), 1), true);
    assert_eq!((pairs, ambiguous), (vec![], 6));
}

#[test]
fn equal_numbers_of_operations_prove_nothing() {
    let job = Job { ahead: 123_456, ..Job::new(40, 0.0) };
    for from in [0, 1] {
        let (pairs, ambiguous, _) = found((job.recorded(0, 0, 30), 0), (job.recorded(1, from, from + 30), from), false);
        assert_eq!((pairs, ambiguous), (vec![], 60), "steps that are all alike");
    }
}

#[test]
fn the_pattern_of_ends_pairs_whatever_the_clocks_show() {
    for ahead in [0, 20_000_000, 80_000_000_000_000] {
        let job = Job { ahead, ..Job::new(40, 2e6) };
        for from in [0, 1, 3] {
            let second = (job.recorded(1, from, from + 20), from);
            let (pairs, ambiguous, proof) = found((job.recorded(0, 0, 20), 0), second, false);
            assert_eq!((pairs, ambiguous), (same(from, 20), 0), "{proof}");
            assert!(proof.contains("times likelier"), "{proof}");
        }
        // Other stretches of the job have another pattern.
        let (pairs, ambiguous, _) = found((job.recorded(0, 0, 20), 0), (job.recorded(1, 20, 40), 20), false);
        assert_eq!((pairs, ambiguous), (vec![], 40));
    }
}

#[test]
fn chance_finds_no_pattern_in_stretches_that_have_nothing_in_common() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let length = 4 + (seed % 40) as usize;
        let mut stretch = || {
            let mut now = 0;
            let parts = (0..length).map(|_| {
                now += 20_000_000 + (1e6 * dice.unit()) as i128;
                all(ordered(Some(group("0", &[0, 1])), "all_reduce"), now - 20_000, now + 300_000)
            });
            Node::new(parts.collect())
        };
        let (pairs, _, proof) = found((stretch(), 0), (stretch(), 0), false);
        assert!(pairs.is_empty(), "job {seed}: {proof}");
    }
}

#[test]
fn where_no_pairing_holds_a_clock_is_wrong_and_that_is_judged() {
    // The clock is taken to be right to the nanosecond, and is 10 ms off.
    let job = Job { ahead: 10_000_000, ..Job::new(10, 0.0) };
    with(&[job.recorded(0, 0, 10), job.recorded(1, 0, 10)], |nodes| {
        let pairing = Pairing::new(nodes, MatchOptions::default(), true);
        let mut operations = 0;
        match_operations(nodes, &pairing, MatchOptions::default(), &mut |_| operations += 1);
        assert!(pairing.is_refuted() && operations >= 9, "{operations}");
    });
}

#[test]
fn an_operation_that_a_trace_lost_is_noticed() {
    // Of 3000 operations one rank lost the one in the middle: what follows would all be paired
    // wrongly.
    let job = Job::new(3000, 2e6);
    let whole = job.recorded(0, 0, 3000);
    let mut lossy = job.recorded(1, 0, 3000);
    lossy.events.remove(1500);
    let (pairs, ambiguous, _) = found((whole, 0), (lossy, 0), true);
    assert_eq!((pairs.len(), ambiguous), (0, 5999));
    let (pairs, ..) = found((job.recorded(0, 0, 3000), 0), (job.recorded(1, 2, 3000), 2), true);
    assert_eq!(pairs, same(2, 3000));
}
