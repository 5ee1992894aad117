//! Tests of the edge fit: examples by hand, and a seeded simulation that measures errors, coverage
//! and robustness.

mod band;
mod bend;
mod one_way;

use probe_sync_time::{Edge, Exchange, StampSource, Timestamp};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

/// What the simulated path does. Times in ns.
#[derive(Copy, Clone)]
struct Path {
    exchanges: usize,
    window: f64,
    floor: f64,
    /// Probability that a pair meets a queue, mean wait, and probability that its second packet
    /// shares the first's wait.
    queued: f64,
    wait: f64,
    shared: f64,
    /// Probability that a stamp makes a delay too small, by up to `glitch`.
    glitched: f64,
    glitch: f64,
}

const LIGHT: Path =
    Path { exchanges: 750, window: 4e9, floor: 5e3, queued: 0.2, wait: 1e4, shared: 0.5, glitched: 0.0, glitch: 0.0 };
const MEDIUM: Path = Path { queued: 0.6, wait: 3e4, ..LIGHT };
const HEAVY: Path = Path { queued: 0.95, wait: 1e5, ..LIGHT };
const EXPONENTIAL: Path = Path { queued: 1.0, wait: 1e4, shared: 0.0, ..LIGHT };

/// θ at the midpoint, ns, and its rate.
const THETA: f64 = -7_654_321.25;
const RATE: f64 = 43e-6;
const MIDPOINT: i64 = 1_795_187_183_227_565_825;
const NODES: Edge = Edge::new(3, 5);

impl Path {
    fn simulate(&self, seed: u64) -> Vec<Exchange> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        (0..self.exchanges).map(|k| self.exchange(k, &mut random)).collect()
    }

    fn exchange(&self, k: usize, random: &mut ChaCha8Rng) -> Exchange {
        let start = self.window * ((k as f64 + random.random::<f64>()) / self.exchanges as f64 - 0.5);
        let forward = self.delays(random);
        let reverse = self.delays(random);
        let destination = |x: f64| x + THETA + RATE * x;
        let mut t = [0.0; 8];
        for packet in 0..2 {
            let sent = (start + 1e5 * packet as f64).round();
            t[2 * packet] = sent;
            t[2 * packet + 1] = destination(sent + forward[packet]);
            let arrives = (start + 5e5 + 1e5 * packet as f64).round();
            t[5 + 2 * packet] = arrives;
            t[4 + 2 * packet] = destination(arrives - reverse[packet]);
        }
        let t = t.map(|ns| Timestamp::from_ns(MIDPOINT + ns.round() as i64));
        Exchange { edge: NODES, seq: k as u32, stamp: StampSource::Kernel, t }
    }

    fn delays(&self, random: &mut ChaCha8Rng) -> [f64; 2] {
        let mut wait = || {
            let queued = random.random::<f64>() < self.queued;
            if queued { -self.wait * (1.0 - random.random::<f64>()).ln() } else { 0.0 }
        };
        let (first, other) = (wait(), wait());
        let second = if random.random::<f64>() < self.shared { first } else { other };
        [first, second].map(|wait| {
            let glitch =
                if random.random::<f64>() < self.glitched { random.random::<f64>() * self.glitch } else { 0.0 };
            self.floor + wait - glitch
        })
    }
}

fn window(exchanges: &[Exchange]) -> EdgeWindow<'_> {
    EdgeWindow { edge: NODES, midpoint: Timestamp::from_ns(MIDPOINT), exchanges, lost: 0, stamp_errors_ns: [0.0; 2] }
}

/// Sorted |error| of beta over `seeds` windows, and how many truths were inside the hard bounds.
fn errors(path: Path, method: FitMethod, seeds: u64) -> (Vec<f64>, usize) {
    let options = FitOptions { method, ..FitOptions::default() };
    let lines = (0..seeds).filter_map(|seed| fit(&window(&path.simulate(seed)), &options));
    let (mut errors, mut inside) = (Vec::new(), 0);
    for line in lines {
        errors.push((line.beta - THETA).abs());
        inside += usize::from(line.bound_lo_ns <= THETA && THETA <= line.bound_hi_ns);
    }
    errors.sort_unstable_by(f64::total_cmp);
    (errors, inside)
}

/// Median and 95th percentile.
fn quantiles(sorted: &[f64]) -> [f64; 2] {
    [sorted[sorted.len() / 2], sorted[sorted.len() * 95 / 100]]
}

fn exchange(stamp: StampSource, t: [i64; 8]) -> Exchange {
    Exchange { edge: NODES, seq: 0, stamp, t: t.map(|ns| Timestamp::from_ns(MIDPOINT + ns)) }
}

fn line(exchanges: &[Exchange]) -> EdgeFit {
    fit(&window(exchanges), &FitOptions::default()).expect("exchanges")
}

#[test]
fn two_nodes_by_hand() {
    // Node j 1000 ns ahead, delay 200 ns, three exchanges a millisecond apart.
    let at = |start: i64| [0, 1200, 100, 1300, 2000, 1200, 2100, 1300].map(|ns| start + ns);
    let exchanges = [-1_000_000, 0, 1_000_000].map(|start| exchange(StampSource::Kernel, at(start)));
    let fitted = line(&exchanges);
    assert!((fitted.beta - 1000.0).abs() < 1e-6 && fitted.alpha.abs() < 1e-12, "{fitted:?}");
    assert!((fitted.margin_ns - 200.0).abs() < 1e-6);
    // The packets allow 800 to 1200 and their rounding 4.2 ns more; those in the middle, a
    // microsecond from it, tell of nothing that rates may do.
    let slack = 3.0 * 2f64.sqrt();
    assert!((fitted.bound_lo_ns - 800.0 + slack).abs() < 0.5 && (fitted.bound_hi_ns - 1200.0 - slack).abs() < 0.5);
    assert_eq!((fitted.pairs_count, fitted.purity, fitted.feasible), (3, 1.0, true));
}

#[test]
fn few_packets_give_wide_but_finite_bounds() {
    assert_eq!(fit(&window(&[]), &FitOptions::default()), None);
    let one = [exchange(StampSource::Kernel, [0, 1200, 100, 1300, 2000, 1200, 2100, 1300])];
    let (fitted, diagnostics) = fit_with_diagnostics(&window(&one), &FitOptions::default()).expect("an exchange");
    assert!(!diagnostics.alpha_determined);
    assert!(fitted.bound_lo_ns > 790.0 && fitted.bound_hi_ns < 1210.0 && fitted.feasible);
    assert!((fitted.beta - 1000.0).abs() < 5.0);
    // It claims neither offset nor rate: anything feasible is as likely.
    assert!(fitted.covariance[0].sqrt() > 100.0 && fitted.covariance[2].sqrt() > 200e-6);
}

#[test]
fn stamp_sources_are_never_mixed() {
    let at = |source, start: i64, delay: i64| {
        let t = [0, 1000 + delay, 100, 1100 + delay, 2000, 1000 + delay, 2100, 1100 + delay];
        exchange(source, t.map(|ns| start + ns))
    };
    let kernel = |count: i64| (0..count).map(|k| at(StampSource::Kernel, k * 1_000_000, 100)).collect::<Vec<_>>();
    let user = |count: i64| (0..count).map(|k| at(StampSource::User, k * 1_000_000, 400)).collect::<Vec<_>>();
    for (kernels, users, expected, left_out) in
        [(8, 50, StampSource::Kernel, 50), (3, 50, StampSource::User, 3), (4, 4, StampSource::Kernel, 4)]
    {
        let both = [user(users), kernel(kernels)].concat();
        let (fitted, diagnostics) = fit_with_diagnostics(&window(&both), &FitOptions::default()).expect("exchanges");
        assert_eq!((fitted.stamp, diagnostics.left_out), (expected, left_out));
    }
}

#[test]
fn a_stepped_clock_is_infeasible_and_claims_nothing() {
    let mut exchanges = EXPONENTIAL.simulate(1);
    for exchange in &mut exchanges[375..] {
        for k in [1, 3, 4, 6] {
            exchange.t[k] += probe_sync_time::Duration::from_ns(40_000);
        }
    }
    let fitted = line(&exchanges);
    assert!(!fitted.feasible && fitted.margin_ns < 0.0, "{fitted:?}");
    assert_eq!((fitted.bound_lo_ns, fitted.bound_hi_ns), (f64::NEG_INFINITY, f64::INFINITY));
}

#[test]
fn glitched_stamps_do_not_bind_and_queues_do_not_starve() {
    // Exchanges, path, glitch probability; then the largest median and 95th percentile of |error|
    // allowed, ns, and the fewest truths of 200 inside the hard bounds. Without the slack the
    // glitched medians are 3870, 3546 and 0.2 ns with p95 above 6000; with slack never taken back
    // the clean heavy p95 is 3556.
    let table = [
        (90, LIGHT, 0.0, [0.5, 0.5], 200),
        (90, LIGHT, 0.01, [3.0, 10.0], 199),
        (90, MEDIUM, 0.01, [0.5, 10.0], 197),
        (90, HEAVY, 0.0, [0.5, 5.0], 200),
        (90, HEAVY, 0.01, [0.5, 5000.0], 199),
        (750, MEDIUM, 0.01, [2.0, 300.0], 199),
        (750, HEAVY, 0.01, [0.5, 500.0], 199),
    ];
    for (exchanges, path, glitched, allowed, fewest_inside) in table {
        let path = Path { exchanges, glitched, glitch: 2e4, ..path };
        let (errors, inside) = errors(path, FitMethod::Hull, 200);
        let found = quantiles(&errors);
        println!("n {exchanges} queued {} glitched {glitched}: {found:.1?} inside {inside}", path.queued);
        assert!(found[0] <= allowed[0] && found[1] <= allowed[1], "{exchanges} {} {glitched}: {found:?}", path.queued);
        assert!(inside >= fewest_inside, "{inside}");
    }
}

#[test]
fn the_hull_is_no_worse_than_both_baselines() {
    for (name, path) in [("light", LIGHT), ("medium", MEDIUM), ("heavy", HEAVY), ("exponential", EXPONENTIAL)] {
        let [hull, svm, rtt] = [FitMethod::Hull, FitMethod::Svm, FitMethod::MinRtt].map(|method| {
            let (errors, inside) = errors(path, method, 50);
            assert_eq!(inside, 50, "{name} {method:?}");
            quantiles(&errors)
        });
        println!("{name}: median and p95 of |error|, ns: hull {hull:.1?} svm {svm:.1?} min-RTT {rtt:.1?}");
        // Where queueing is exponential in both directions the machine at its optimum comes level;
        // else it is far behind or the same.
        let level = hull[0] <= svm[0] + 0.1 && hull[1] <= 1.15 * svm[1] + 0.1;
        assert!(level && hull[1] <= rtt[1] + 1.0, "{name}: {hull:?} {svm:?} {rtt:?}");
    }
}

#[test]
fn the_stated_covariance_covers() {
    let equal = Path { shared: 1.0, ..EXPONENTIAL };
    for (name, path) in [("independent", EXPONENTIAL), ("equal", equal)] {
        for exchanges in [8, 30, 200, 750] {
            let path = Path { exchanges, ..path };
            let mut inside = [0.0; 2];
            for seed in 0..1000 {
                let fitted = line(&path.simulate(seed));
                let within =
                    |error: f64, variance: f64| f64::from(u8::from(error.abs() <= 1.96 * variance.sqrt())) / 1e3;
                inside[0] += within(fitted.beta - THETA, fitted.covariance[0]);
                inside[1] += within(fitted.alpha - RATE, fitted.covariance[2]);
            }
            println!(
                "{name} n {exchanges}: 95 % intervals hold {:.1} % (beta) {:.1} % (alpha)",
                100.0 * inside[0],
                100.0 * inside[1]
            );
            assert!(inside.iter().all(|share| (0.9..=0.995).contains(share)), "{name} {exchanges} {inside:?}");
        }
    }
}

#[test]
fn exchanges_that_leave_together_know_what_one_of_them_knows() {
    let together = Path { shared: 1.0, ..EXPONENTIAL };
    for wakes in [4, 8, 30] {
        let path = Path { exchanges: wakes, ..together };
        let mut inside = 0;
        for seed in 0..1000 {
            // Four exchanges of each wake-up, ten microseconds apart, that meet the same queues.
            let train = |first: &Exchange| {
                let later = |k: i64| probe_sync_time::Duration::from_ns(10_000 * k);
                (0..4).map(|k| Exchange { t: first.t.map(|t| t + later(k)), ..*first }).collect::<Vec<_>>()
            };
            let exchanges: Vec<Exchange> = path.simulate(seed).iter().flat_map(train).collect();
            let fitted = line(&exchanges);
            inside += u32::from((fitted.beta - THETA).abs() <= 1.96 * fitted.covariance[0].sqrt());
        }
        println!("{wakes} wake-ups: 95 % intervals hold {:.1} %", f64::from(inside) / 10.0);
        assert!((890..=995).contains(&inside), "{wakes} wake-ups: {inside} of 1000");
    }
}

#[test]
fn the_covariance_is_never_zero_and_moves_with_the_midpoint() {
    let exchanges = LIGHT.simulate(3);
    let fitted = line(&exchanges);
    assert!(fitted.covariance[0] >= 1.0 / 12.0 && fitted.covariance[2] > 0.0);
    // Seen from a midpoint a window away the same line is as uncertain as its rate makes it.
    let far = EdgeWindow { midpoint: Timestamp::from_ns(MIDPOINT + 4_000_000_000), ..window(&exchanges) };
    let moved = fit(&far, &FitOptions::default()).expect("exchanges");
    let expected = shift_covariance(fitted.covariance, 4e9);
    for (found, expected) in moved.covariance.iter().zip(expected) {
        assert!((found - expected).abs() <= 1e-3 * expected.abs(), "{found} {expected}");
    }
    assert!((moved.beta - fitted.beta - 4e9 * fitted.alpha).abs() < 1.0);
}

#[test]
fn decades_of_offset_round_the_bounds_outwards() {
    let mut exchanges = EXPONENTIAL.simulate(2);
    let decades = probe_sync_time::Duration::from_ns(1_000_000_000_000_000_001);
    for exchange in &mut exchanges {
        for k in [1, 3, 4, 6] {
            exchange.t[k] += decades;
        }
    }
    let (near, far) = (line(&EXPONENTIAL.simulate(2)), line(&exchanges));
    assert_eq!((far.alpha, far.margin_ns), (near.alpha, near.margin_ns));
    assert!(far.bound_lo_ns <= 1e18 + THETA && 1e18 + THETA <= far.bound_hi_ns);
    assert!(far.covariance[0] > near.covariance[0]);
}

#[test]
fn corrupt_stamps_do_not_panic() {
    let wild = [i64::MIN, i64::MAX, 0, -1, i64::MAX, i64::MIN, 7, i64::MAX].map(Timestamp::from_ns);
    let mut exchanges = EXPONENTIAL.simulate(4);
    exchanges[9].t = wild;
    let only = [Exchange { t: wild, ..exchanges[0] }];
    for method in [FitMethod::Hull, FitMethod::Svm, FitMethod::MinRtt] {
        let options = FitOptions { method, ..FitOptions::default() };
        let fitted = fit(&window(&exchanges), &options).expect("exchanges");
        assert!(fitted.beta.is_finite() && fitted.covariance.iter().all(|c| c.is_finite()), "{fitted:?}");
        assert!(fit(&window(&only), &options).is_some());
    }
}
