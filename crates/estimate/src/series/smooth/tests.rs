//! Curves through noisy, late and stepping readings against simulated clocks.

use super::readings::MAX_READINGS;
use super::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const SECOND: f64 = 1e9;

/// Markers: how many, how far apart, how late.
struct Markers {
    count: u32,
    interval_ms: f64,
    delay_ns: std::ops::Range<f64>,
    outliers: &'static [u32],
}

const USUAL: Markers = Markers { count: 16, interval_ms: 110.0, delay_ns: 9e3..14e3, outliers: &[2, 9] };

/// The fit's error against truth plus the middle delay: largest over all markers, ns; and the fit.
fn check(markers: &Markers, seed: u64, truth: impl Fn(f64) -> f64) -> (f64, Smoothed) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let readings: Vec<Reading> = (0..markers.count)
        .map(|k| {
            let x_ns = (f64::from(k) + random.random_range(-0.3..0.3)) * markers.interval_ms * 1e6;
            let preempted = if markers.outliers.contains(&k) { random.random_range(1e5..1.2e6) } else { 0.0 };
            let value_ns = truth(x_ns / SECOND) + random.random_range(markers.delay_ns.clone()) + preempted;
            Reading { x_ns, value_ns, relative_sigma: 1.0, one_sided: true }
        })
        .collect();
    let found = smooth(&readings).expect("readings");
    let middle = 0.5 * (markers.delay_ns.start + markers.delay_ns.end);
    let worst = found
        .stretches
        .iter()
        .flatten()
        .map(|point| (point.value_ns - truth(point.x_ns / SECOND) - middle).abs())
        .fold(0.0, f64::max);
    (worst, found)
}

#[test]
fn straight_clocks_stay_straight() {
    for seed in 0..40 {
        let (worst, found) = check(&USUAL, seed, |t| 3e5 * t);
        assert_eq!(found.stretches.len(), 1, "seed {seed}");
        assert!(worst < 4.0e3, "seed {seed}: {worst}");
        assert!(found.residuals_ns.len() == 16 && found.outliers >= 2);
        assert!(found.above_lowest_ns > 0.0 && found.above_lowest_ns < 5e3);
    }
}

#[test]
fn wander_is_followed() {
    // 300 µs to and fro in 2 s: up to 940 ppm.
    let truth = |t: f64| 3e5 * (std::f64::consts::PI * t).sin();
    let many = Markers { count: 60, interval_ms: 50.0, outliers: &[7, 8, 30], ..USUAL };
    for seed in 0..20 {
        let (worst, found) = check(&many, seed, truth);
        assert_eq!(found.stretches.len(), 1, "seed {seed}");
        assert!(worst < 8.0e3, "seed {seed}: {worst}");
    }
}

/// Sorted worst errors over many seeds of sparse readings of a clock that bends by 36 to 300 µs
/// between two of them; the share of points whose error exceeds three standard deviations plus the
/// spread of the delays; and false steps.
fn sparse_wander(markers: &Markers, seeds: std::ops::Range<u64>) -> (Vec<f64>, f64, usize) {
    let truth = |t: f64| 3e5 * (std::f64::consts::PI * t).sin();
    let middle = 0.5 * (markers.delay_ns.start + markers.delay_ns.end);
    let spread = markers.delay_ns.end - markers.delay_ns.start;
    let (mut worst, mut points, mut outside, mut steps) = (Vec::new(), 0, 0, 0);
    for seed in seeds {
        let (error, found) = check(markers, seed, truth);
        worst.push(error);
        steps += found.stretches.len() - 1;
        for point in found.stretches.iter().flatten() {
            let error = (point.value_ns - truth(point.x_ns / SECOND) - middle).abs();
            points += 1;
            outside += usize::from(error > 3.0 * point.sigma_ns + spread);
        }
    }
    worst.sort_unstable_by(f64::total_cmp);
    (worst, f64::from(outside as u32) / f64::from(points), steps)
}

#[test]
fn late_readings_are_not_taken_for_steps_of_a_wandering_clock() {
    // Taken one by one, without steps and delays competing, late readings became steps: up to 522
    // µs off.
    let none = Markers { outliers: &[], ..USUAL };
    for (markers, most, worst_of_all) in [(&none, 4.0e3, 5.0e3), (&USUAL, 1.0e4, 6.0e4)] {
        let (worst, outside, steps) = sparse_wander(markers, 0..400);
        assert_eq!(steps, 0);
        assert!(worst[360] < most, "nine of ten: {}", worst[360]);
        assert!(worst[399] < worst_of_all, "{}", worst[399]);
        assert!(outside < 0.02, "share outside of what the fit claims: {outside}");
    }
}

#[test]
fn steps_are_found_and_nothing_else() {
    for step in [-2e6, -2e5, 2e5, 2e6, 5e9] {
        let truth = |t: f64| 5e4 * t + if t < 0.8 { 0.0 } else { step };
        for seed in 0..10 {
            let (worst, found) = check(&USUAL, seed, truth);
            assert_eq!(found.stretches.len(), 2, "step {step} seed {seed}");
            assert!(worst < 6.0e3, "step {step} seed {seed}: {worst}");
        }
    }
}

#[test]
fn a_step_under_wander() {
    let truth = |t: f64| 1e5 * (std::f64::consts::PI * t).sin() + if t < 1.4 { 0.0 } else { -1.5e6 };
    let many = Markers { count: 40, interval_ms: 70.0, ..USUAL };
    for seed in 0..20 {
        let (worst, found) = check(&many, seed, truth);
        assert_eq!(found.stretches.len(), 2, "seed {seed}");
        assert!(worst < 8.0e3, "seed {seed}: {worst}");
    }
}

#[test]
fn two_sided_readings_are_weighed_by_their_width() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let readings: Vec<Reading> = (0..100)
        .map(|k| {
            let relative_sigma = if k % 5 == 0 { 10.0 } else { 1.0 };
            let noise = random.random_range(-300.0..300.0) * relative_sigma;
            Reading {
                x_ns: f64::from(k) * 4.0 * SECOND,
                value_ns: 7.0 * f64::from(k) + noise,
                relative_sigma,
                one_sided: false,
            }
        })
        .collect();
    let found = smooth(&readings).expect("readings");
    assert_eq!((found.stretches.len(), found.outliers), (1, 0));
    assert!((100.0..300.0).contains(&found.noise_ns), "{}", found.noise_ns);
    for (k, point) in found.stretches[0].iter().enumerate() {
        assert!((point.value_ns - 7.0 * k as f64).abs() < 150.0, "{k} {point:?}");
        assert!(point.sigma_ns < 100.0);
    }
}

#[test]
fn few_or_odd_readings_do_not_panic() {
    let reading = |x_ns, value_ns| Reading { x_ns, value_ns, relative_sigma: 1.0, one_sided: true };
    assert_eq!(smooth(&[]), None);
    assert_eq!(smooth(&[reading(f64::NAN, 0.0)]), None);
    for count in 1..6 {
        let readings: Vec<Reading> = (0..count).map(|k| reading(f64::from(k) * SECOND, f64::from(k % 2))).collect();
        let found = smooth(&readings).expect("readings");
        let points: usize = found.stretches.iter().map(Vec::len).sum();
        assert_eq!(points, readings.len());
        assert!(found.stretches.iter().flatten().all(|point| point.value_ns.is_finite() && point.sigma_ns.is_finite()));
    }
    // All at one moment; huge; equal.
    let same = smooth(&[reading(5.0, 3.0), reading(5.0, 2.0), reading(4.0, 1.0)]).expect("readings");
    assert_eq!(same.stretches[0].len(), 1);
    let huge: Vec<Reading> =
        (0..20).map(|k| reading(f64::from(k) * 1e17, if k % 3 == 0 { 1e18 } else { -1e18 })).collect();
    assert!(smooth(&huge).expect("readings").noise_ns.is_finite());
    let flat: Vec<Reading> = (0..5000).map(|k| reading(f64::from(k) * 1e6, 4.0)).collect();
    let found = smooth(&flat).expect("readings");
    assert!(
        found.stretches[0].len() <= MAX_READINGS && found.stretches[0].iter().all(|p| (p.value_ns - 4.0).abs() < 1e-6)
    );
}
