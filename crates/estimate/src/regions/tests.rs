//! The example by hand, lines that must not be joined, and two regions of swinging clocks whose
//! truth is known.

use probe_sync_lines::NodeEstimate;
use probe_sync_time::NodeId;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const SECOND: i64 = 1_000_000_000;

/// A line at `at_ns` with errors of (ns, ppm, ns·ppm) and the hard interval ± 100 ns.
fn line(at_ns: i64, [offset_ns, drift_ppm]: [f64; 2], [sigma, rate, across]: [f64; 3], wander: f64) -> OffsetRecord {
    let half = Duration::from_ns(1000);
    let at = Timestamp::from_ns(at_ns);
    OffsetRecord {
        round_id: RoundId(0),
        window_id: 0,
        window_start: at - half,
        window_end: at + half,
        estimate: NodeEstimate {
            node_id: NodeId(1),
            offset_ns,
            drift_ppm,
            residual: 0.0,
            reachable: true,
            converged: true,
            sigma_ns: sigma,
            asymmetry_sigma_ns: 0.0,
            drift_sigma_ppm: rate,
            bound_lo_ns: offset_ns - 100.0,
            bound_hi_ns: offset_ns + 100.0,
            edges_used: 1,
            edges_excluded: 0,
        },
        clock_disturbed: false,
        offset_drift_covariance: Some(across),
        wander: Some(wander),
        slew_ppm: 0.0,
        step: None,
        broken_into: None,
    }
}

const NEVER: Timestamp<Reference> = Timestamp::from_ns(i64::MAX);

fn near(found: f64, expected: f64, within: f64) {
    assert!((found - expected).abs() <= within, "{found} instead of {expected}");
}

/// A master 10 ms ahead at 0.99 s of the reference of all, which gains 50 ppm; lines of 3 ns, 0.02
/// ppm and 0.01 ns·ppm at 0.99 and 2.99 s.
fn master() -> NodeLines {
    let errors = [3.0, 0.02, 0.01];
    NodeLines::new([
        line(990_000_000, [1e7, 50.0], errors, 2.0),
        line(990_000_000 + 2 * SECOND, [1e7 + 1e5, 50.0], errors, 2.0),
    ])
}

#[test]
fn the_example_by_hand() {
    let node = NodeLines::new([line(SECOND, [-500.0, -20.0], [4.0, 0.03, -0.03], 5.0)]);
    let (composed, left_out) = compose(&node, &master(), NEVER);
    assert_eq!((composed.len(), left_out), (1, 0));
    let (whole, estimate) = (&composed[0], &composed[0].estimate);
    assert_eq!(midpoint(whole), Timestamp::from_ns(990_000_000), "the reference's time, not the master's");
    assert_eq!((whole.window_end - whole.window_start).as_ns(), 2000);
    near(estimate.offset_ns, 9_999_500.0, 1e-6);
    // (1 − 20·10⁻⁶)(1 + 50·10⁻⁶) − 1.
    near(estimate.drift_ppm, 29.999, 1e-9);
    near(estimate.sigma_ns, 5.0, 1e-9);
    near(estimate.drift_sigma_ppm, 0.03f64.hypot(0.02), 1e-12);
    near(whole.offset_drift_covariance.expect("stated"), -0.02, 1e-12);
    near(whole.wander.expect("stated"), 7.0, 1e-12);
    // The master's 100 ns put the moment at which its clock shows a second 100 ns earlier or later,
    // in which 500 ppm make 0.05 ns.
    near(estimate.bound_lo_ns, 9_999_299.95, 1e-6);
    near(estimate.bound_hi_ns, 9_999_700.05, 1e-6);
}

#[test]
fn between_the_masters_lines_its_reading_counts() {
    // 1.00005 s after its first line the master's clock has counted what takes the reference one
    // second.
    let own = Timestamp::from_ns(SECOND + SECOND + 50_000);
    let known = master().when_it_shows(own).expect("between its lines");
    assert_eq!(known.at, Timestamp::from_ns(990_000_000 + SECOND));
    near(known.offset_ns, 1e7 + 5e4, 1e-3);
    near(known.drift_ppm, 50.0, 1e-6);
    // Errors that are one: 3². Of the rates (±0.25 s)²·(20 ns/s)² twice, of the mixed parts
    // 2·0.5·0.25·10 less the same, the bridge 2·8/192.
    near(known.sigma_ns, (9.0 + 50.0 + 1.0 / 12.0f64).sqrt(), 1e-6);
    // The walk between both ends: 2·2/4 besides the end's 400.
    near(known.drift_sigma_ppm, 401f64.sqrt() * 1e-3, 1e-9);
    near(known.offset_drift_covariance, 0.01, 1e-12);
    // Both intervals are ± 100 ns. Rates that change by 6 ppm a second from either end make 3 µs,
    // and 500 ppm of all that comes with the moment.
    let beside = 100.0 + 3_000.0 * 1.001;
    near(known.bound_ns[1] - known.offset_ns, beside * 1.0005, 1e-3);
    assert_eq!(master().when_it_shows(Timestamp::from_ns(SECOND - 1)), None, "before the first line");
    assert_eq!(master().when_it_shows(Timestamp::from_ns(4 * SECOND)), None, "after the last");
}

#[test]
fn a_step_an_unreachable_line_and_a_lost_master_are_not_crossed() {
    let own = Timestamp::from_ns(2 * SECOND);
    let between = |change: fn(&mut OffsetRecord)| {
        let mut lines = master().lines;
        change(&mut lines[1]);
        let lines = NodeLines::new(lines);
        (lines.when_it_shows(own).map(|known| known.disturbed), lines.first_break(NEVER).is_some())
    };
    let step = StepRecord { after: own, before: own };
    assert_eq!(between(|_| ()), (Some(false), false));
    assert_eq!(between(|line| line.clock_disturbed = true), (Some(true), false));
    assert_eq!(between(|line| line.estimate.reachable = false), (None, false));
    assert_eq!(between(|line| line.offset_drift_covariance = None), (None, false), "it does not say how sure it is");
    assert_eq!(between(|line| line.broken_into = Some(RoundId(1))), (None, true));
    let mut lines = master().lines;
    lines[1].step = Some(step);
    let lines = NodeLines::new(lines);
    assert_eq!(lines.when_it_shows(own), None);
    assert!(lines.first_break(NEVER).is_some() && lines.first_break(Timestamp::from_ns(SECOND)).is_none());
    // The region's second line is of the time after the master was lost.
    let node = [SECOND, 2 * SECOND].map(|at| line(at, [0.0, 0.0], [1.0; 3], 1.0));
    let (composed, left_out) = compose(&NodeLines::new(node.clone()), &master(), midpoint(&node[0]));
    assert_eq!((composed.len(), left_out), (1, 1));
    let reference = [0.0, 0.0, 7.0].map(|offset| line((offset as i64 + 1) * SECOND, [offset, 0.0], [0.0; 3], 0.0));
    assert_eq!(NodeLines::new(reference.clone()).reference_until(), Some(midpoint(&reference[0])));
    assert_eq!(NodeLines::new([node[0].clone()]).reference_until(), Some(midpoint(&node[0])));
    assert_eq!(NodeLines::new([reference[2].clone()]).reference_until(), None);
}

#[test]
fn one_unreachable_line_of_a_master_leaves_out_only_what_is_beside_it() {
    let times = (0..=8).map(|half| SECOND + half * SECOND / 2);
    let node = NodeLines::new(times.map(|at| line(at, [7.0, 0.0], [1.0; 3], 1.0)));
    for lost in 0..5 {
        let mut lines: Vec<_> = (0..5).map(|k| line((k + 1) * SECOND, [0.0, 0.0], [1.0; 3], 1.0)).collect();
        lines[lost].estimate.reachable = false;
        let (composed, left_out) = compose(&node, &NodeLines::new(lines), NEVER);
        let missing = |line: &&OffsetRecord| !composed.iter().any(|whole| midpoint(whole) == midpoint(line));
        let missing: Vec<_> = node.lines().iter().filter(missing).map(|line| midpoint(line).as_ns()).collect();
        let beside = |at: &i64| (at - (lost as i64 + 1) * SECOND).abs() < SECOND;
        let expected: Vec<_> = node.lines().iter().map(|line| midpoint(line).as_ns()).filter(beside).collect();
        assert_eq!((&missing, left_out), (&expected, expected.len()), "line {lost} of the master is unreachable");
    }
}

fn stepped(after: i64, before: i64) -> Option<StepRecord> {
    Some(StepRecord { after: Timestamp::from_ns(after), before: Timestamp::from_ns(before) })
}

#[test]
fn a_step_whose_line_is_left_out_is_told_by_the_next() {
    // The master is unknown between 2 and 4 s, bends at 1, 2, 4, 5 and 6 s, and the region measures
    // between.
    let mut above: Vec<_> = (1..=6).map(|k| line(k * SECOND, [0.0, 0.0], [1.0; 3], 1.0)).collect();
    above[2].estimate.reachable = false;
    let above = NodeLines::new(above);
    let times: Vec<i64> = (2..=10).map(|half| half * SECOND / 2 + SECOND / 4).collect();
    // Which lines tell of what, the time of the one that has to tell it, and what.
    let first = stepped(22 * SECOND / 10, 23 * SECOND / 10);
    let second = stepped(32 * SECOND / 10, 33 * SECOND / 10);
    let third = stepped(43 * SECOND / 10, 44 * SECOND / 10);
    let check = |told: &[(usize, Option<StepRecord>, Option<RoundId>)], expected: &[(i64, _, _)]| {
        let mut lines: Vec<_> = times.iter().map(|at| line(*at, [0.0, 0.0], [1.0; 3], 1.0)).collect();
        for (place, step, into) in told {
            (lines[*place].step, lines[*place].broken_into) = (*step, *into);
        }
        let (composed, left_out) = compose(&NodeLines::new(lines), &above, NEVER);
        assert_eq!(left_out, 4, "lines at 2.25, 2.75, 3.25 and 3.75 s");
        let tells = |line: &&OffsetRecord| line.step.is_some() || line.broken_into.is_some();
        let found = composed.iter().filter(tells);
        let found: Vec<_> = found.map(|line| (midpoint(line).as_ns(), line.step, line.broken_into)).collect();
        assert_eq!(found, expected, "{told:?}");
    };
    // The master's line at 4 s has one of the region's lines on either side, so it is the first
    // that is known again.
    let again = 4 * SECOND;
    check(&[(2, first, None)], &[(again, first, None)]);
    check(&[(4, None, Some(RoundId(7)))], &[(again, None, Some(RoundId(7)))]);
    let both = stepped(22 * SECOND / 10, 33 * SECOND / 10);
    check(&[(2, first, None), (4, second, Some(RoundId(7)))], &[(again, both, Some(RoundId(7)))]);
    // Over the step at 4.3 s nothing is joined, so the line at 4.75 s tells it: once, and joined
    // with none before.
    check(&[(7, third, None)], &[(times[7], third, None)]);
    check(&[(2, first, None), (7, third, None)], &[(again, first, None), (times[7], third, None)]);
    // A step between the lines about 4 s: nothing is known there, and the line at 4.25 s tells
    // both.
    let fourth = stepped(39 * SECOND / 10, 40 * SECOND / 10);
    let whole = stepped(22 * SECOND / 10, 40 * SECOND / 10);
    check(&[(2, first, None), (6, fourth, None)], &[(times[6], whole, None)]);
}

#[test]
fn a_line_out_of_order_leaves_its_step() {
    let step = stepped(SECOND, 2 * SECOND);
    let mut lines = [1, 2, 3, 4].map(|k| line(k * SECOND, [0.0, 0.0], [1.0; 3], 1.0)).to_vec();
    let mut late = [line(5 * SECOND / 2, [9.0, 0.0], [1.0; 3], 1.0), line(4 * SECOND, [9.0, 0.0], [1.0; 3], 1.0)];
    (late[0].step, late[1].broken_into) = (step, Some(RoundId(3)));
    lines.extend(late);
    let lines = NodeLines::new(lines);
    let found: Vec<_> = lines.lines().iter().map(|line| (line.step, line.broken_into)).collect();
    assert_eq!(found, [(None, None), (None, None), (step, None), (None, Some(RoundId(3)))]);
    assert_eq!(lines.out_of_order(), 2);
}

/// A clock as a function of real time: offset, rate and a wave, ns.
struct Clock {
    offset: f64,
    rate: f64,
    amplitude: f64,
    period: f64,
    phase: f64,
}

impl Clock {
    fn random(random: &mut ChaCha8Rng) -> Self {
        Self {
            offset: random.random_range(-1e7..1e7),
            rate: random.random_range(-5e-5..5e-5),
            amplitude: random.random_range(1e3..2e4),
            period: random.random_range(20e9..60e9),
            phase: random.random_range(0.0..std::f64::consts::TAU),
        }
    }

    fn error(&self, t: f64) -> f64 {
        self.offset + self.rate * t + self.amplitude * (std::f64::consts::TAU * t / self.period + self.phase).sin()
    }

    fn slope(&self, t: f64) -> f64 {
        let turn = std::f64::consts::TAU / self.period;
        self.rate + self.amplitude * turn * (turn * t + self.phase).cos()
    }

    /// When it shows `reading`.
    fn when(&self, reading: f64) -> f64 {
        (0..20).fold(reading, |t, _| reading - self.error(t))
    }
}

fn normal(random: &mut ChaCha8Rng) -> f64 {
    let (u, v): (f64, f64) = (1.0 - random.random::<f64>(), random.random());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// Lines of `clock` against `reference` at about each second from `start`, with errors of the
/// stated covariance.
fn measured(clock: &Clock, reference: &Clock, start: f64, random: &mut ChaCha8Rng) -> NodeLines {
    let lines = (0..40).map(|k| {
        let at = (start + (f64::from(k) + random.random_range(0.0..0.3)) * 1e9).round();
        let real = reference.when(at);
        let (sigma, rate, correlation) = (20.0, 0.02, 0.5_f64);
        let (one, two) = (normal(random), normal(random));
        let error = sigma * one;
        let rate_error = rate * (correlation * one + (1.0 - correlation * correlation).sqrt() * two);
        let drift = ((1.0 + clock.slope(real)) / (1.0 + reference.slope(real)) - 1.0) * 1e6;
        let offset = real + clock.error(real) - at;
        line(at as i64, [offset + error, drift + rate_error], [sigma, rate, sigma * rate * correlation], 100.0)
    });
    NodeLines::new(lines.collect::<Vec<_>>())
}

/// Share of composed lines whose 95 % interval holds the truth, and the largest error in standard
/// deviations; `disordered` moves the master's lines by so much, to see that it is noticed.
fn coverage(seeds: std::ops::Range<u64>, disordered: Duration) -> [f64; 3] {
    let (mut lines, mut inside, mut rates_inside, mut hard_broken) = (0.0, 0.0, 0.0, 0.0);
    for seed in seeds {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let [all, first, second, a, b] = std::array::from_fn(|_| Clock::random(&mut random));
        for (master, node) in [(&first, &a), (&second, &b)] {
            let above = measured(master, &all, random.random_range(0.0..1e9), &mut random);
            let moved = |mut line: OffsetRecord| {
                (line.window_start, line.window_end) = (line.window_start + disordered, line.window_end + disordered);
                line
            };
            let above = NodeLines::new(above.lines.into_iter().map(moved));
            let own = measured(node, master, 2e9, &mut random);
            let (composed, left_out) = compose(&own, &above, NEVER);
            assert!(composed.len() > 60 && left_out < 5, "{} lines, {left_out} left out", composed.len());
            for line in &composed {
                let at = midpoint(line).as_ns() as f64;
                let real = all.when(at);
                let truth = real + node.error(real) - at;
                let drift = ((1.0 + node.slope(real)) / (1.0 + all.slope(real)) - 1.0) * 1e6;
                let estimate = &line.estimate;
                lines += 1.0;
                inside += f64::from((estimate.offset_ns - truth).abs() <= 1.96 * estimate.sigma_ns);
                rates_inside += f64::from((estimate.drift_ppm - drift).abs() <= 1.96 * estimate.drift_sigma_ppm);
                hard_broken += f64::from(truth < estimate.bound_lo_ns || estimate.bound_hi_ns < truth);
            }
        }
    }
    [inside / lines, rates_inside / lines, hard_broken / lines]
}

#[test]
fn two_regions_of_swinging_clocks_are_as_sure_as_they_say() {
    let [offsets, rates, hard_broken] = coverage(0..40, Duration::from_ns(0));
    assert!((0.93..0.99).contains(&offsets) && rates > 0.93, "{offsets} of offsets, {rates} of rates");
    // An error of ± 100 ns is five of the standard deviations that were put in.
    assert_eq!(hard_broken, 0.0);
    // 10 ms on the wrong axis are some 200 ns.
    let [shifted, ..] = coverage(0..40, Duration::from_ms(10));
    assert!(shifted < 0.5, "{shifted} of offsets although the axis is wrong");
}
