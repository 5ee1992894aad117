//! Maps from rounds of offsets against simulated clocks that drift, wander and step.

use super::super::Place;
use super::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const BASE: i64 = 1_795_187_116_632_205_972;
const SECOND: f64 = 1e9;

/// Rounds of `interval_s`, offset and drift as functions of seconds, noise of an offset and of a drift.
fn rounds(
    count: u32,
    interval_s: f64,
    truth: impl Fn(f64) -> (f64, f64),
    (offset_noise_ns, drift_noise_ppm): (f64, f64),
) -> Vec<OffsetSample> {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut noise = |size: f64| size * (0..12).map(|_| random.random::<f64>() - 0.5).sum::<f64>();
    (0..count)
        .map(|k| {
            let t = f64::from(k) * interval_s;
            let (offset, drift_ppm) = truth(t);
            OffsetSample {
                at_ns: BASE + (t * SECOND) as i64,
                offset_ns: offset + noise(offset_noise_ns),
                drift_ppm: Some(drift_ppm + noise(drift_noise_ppm)),
                sigma_ns: Some(offset_noise_ns.max(1.0)),
                drift_sigma_ppm: None,
            }
        })
        .collect()
}

/// The largest error, ns, of mapping S_i = M + offset(M) back to M over `seconds`.
fn worst(map: &TimeMap, truth: impl Fn(f64) -> (f64, f64), seconds: std::ops::Range<u32>) -> f64 {
    (seconds.start * 50..seconds.end * 50)
        .map(|k| {
            let t = f64::from(k) / 50.0;
            let reference = BASE + (t * SECOND) as i64;
            let own_ps = i128::from(reference) * 1000 + (truth(t).0 * 1000.0) as i128;
            ((map.map(own_ps).time_ps - i128::from(reference) * 1000) as f64 * 1e-3).abs()
        })
        .fold(0.0, f64::max)
}

#[test]
fn the_sign_is_that_of_the_worked_example() {
    // Node 1 is 1000 ns ahead: what it stamps 5000 happened at 4000.
    let sample = OffsetSample {
        at_ns: 4000,
        offset_ns: 1000.0,
        drift_ppm: None,
        sigma_ns: Some(3.0),
        drift_sigma_ppm: None,
    };
    let found = TimeMap::from_offsets(&[sample], Axis::Reference, &[]).expect("one offset");
    let mapped = found.map.map(5_000_000);
    assert_eq!((mapped.time_ps, mapped.place, mapped.sigma_ns), (4_000_000, Place::Inside, 3.0));
    assert_eq!(found.map.map(9_000_000).time_ps, 8_000_000);
}

#[test]
fn constant_drift_is_followed_in_and_outside() {
    let truth = |t: f64| (2.5e6 + 50e3 * t, 50.0);
    let found = TimeMap::from_offsets(&rounds(8, 4.0, truth, (0.0, 0.0)), Axis::Reference, &[]).expect("offsets");
    assert!(worst(&found.map, truth, 0..60) < 1.0);
    assert_eq!((found.used, found.dropped, found.map.breaks().len()), (8, 0, 0));
}

#[test]
fn slopes_are_used_where_they_predict_better() {
    let turn = std::f64::consts::TAU / 40.0;
    let wander = |t: f64| (20e3 * (turn * t).sin(), 20.0 * turn * (turn * t).cos());
    let exact =
        TimeMap::from_offsets(&rounds(30, 4.0, wander, (5.0, 0.001)), Axis::Reference, &[]).expect("offsets");
    assert_eq!(exact.interpolation, Interpolation::MeasuredSlopes);
    assert!(worst(&exact.map, wander, 4..110) < 60.0, "{}", worst(&exact.map, wander, 4..110));
    let noisy = TimeMap::from_offsets(&rounds(30, 4.0, wander, (5.0, 5.0)), Axis::Reference, &[]).expect("offsets");
    assert_ne!(noisy.interpolation, Interpolation::MeasuredSlopes);
    let steady = |t: f64| (50e3 * t, 50.0);
    let steady =
        TimeMap::from_offsets(&rounds(30, 4.0, steady, (50.0, 0.5)), Axis::Reference, &[]).expect("offsets");
    assert_eq!(steady.interpolation, Interpolation::Linear);
}

#[test]
fn a_step_breaks_the_segment_and_the_round_of_the_step_goes() {
    for step in [2e6, -2e6, 3e9, -3e9] {
        let truth = |t: f64| (1e5 + 10e3 * t + if t < 18.0 { 0.0 } else { step }, 10.0);
        let mut samples = rounds(10, 4.0, truth, (30.0, 0.05));
        let clean = TimeMap::from_offsets(&samples, Axis::Reference, &[]).expect("offsets");
        assert_eq!((clean.map.breaks().len(), clean.dropped), (1, 0), "step {step}");
        // The window of the step itself gives something in between.
        samples[5].offset_ns -= 0.4 * step;
        let found = TimeMap::from_offsets(&samples, Axis::Reference, &[]).expect("offsets");
        assert_eq!((found.map.breaks().len(), found.dropped), (1, 1), "step {step}");
        assert!(((found.map.breaks()[0].jump_ps as f64 * 1e-3 - step) / step).abs() < 0.01);
    }
}

#[test]
fn a_step_that_was_seen_breaks_there() {
    let step = 5e3;
    let truth = |t: f64| (10e3 * t + if t < 18.0 { 0.0 } else { step }, 10.0);
    let samples = rounds(10, 4.0, truth, (10.0, 0.01));
    let unseen = TimeMap::from_offsets(&samples, Axis::Reference, &[]).expect("offsets");
    assert_eq!(unseen.map.breaks().len(), 0, "a rate may change by as much");
    let seen_ns = BASE + 18_000_180_000;
    let seen = TimeMap::from_offsets(&samples, Axis::Reference, &[seen_ns]).expect("offsets");
    assert_eq!(seen.map.breaks()[0].at_ps, i128::from(seen_ns) * 1000);
    // Between the step's two readings of the clock no event can lie.
    assert!(worst(&seen.map, truth, 0..40) < 200.0, "{}", worst(&seen.map, truth, 0..40));
}

#[test]
fn tables_on_the_own_clock_may_go_back() {
    let sample = |at_ns: i64, offset_ns| OffsetSample {
        at_ns,
        offset_ns,
        drift_ppm: None,
        sigma_ns: None,
        drift_sigma_ppm: None,
    };
    // Every 20 ms; set back by 50 ms after five.
    let ms = 1_000_000;
    let before = (0..5).map(|k| sample(k * 20 * ms, 0.0));
    let after = (5..12).map(|k| sample((k * 20 - 50) * ms, -50e6));
    let samples: Vec<_> = before.chain(after).collect();
    let found = TimeMap::from_offsets(&samples, Axis::Own, &[]).expect("offsets");
    assert_eq!((found.used, found.map.breaks().len()), (12, 1));
    let mapped = found.map.map(i128::from(150 * ms) * 1000);
    assert_eq!(mapped.time_ps, i128::from(200 * ms) * 1000);
    assert!(mapped.sigma_ns < 1.0);
}

#[test]
fn nonsense_is_dropped_and_counted() {
    let truth = |t: f64| (10e3 * t, 10.0);
    let mut samples = rounds(8, 4.0, truth, (1.0, 0.01));
    samples[2].offset_ns = f64::NAN;
    samples[3].at_ns = samples[1].at_ns;
    samples[4].sigma_ns = Some(f64::INFINITY);
    samples[5].drift_ppm = Some(1e300);
    let found = TimeMap::from_offsets(&samples, Axis::Reference, &[]).expect("offsets");
    assert_eq!((found.used, found.dropped), (6, 2));
    assert!(worst(&found.map, truth, 0..28) < 20.0);
    samples.iter_mut().for_each(|sample| sample.offset_ns = f64::INFINITY);
    assert!(TimeMap::from_offsets(&samples, Axis::Reference, &[]).is_err());
    assert!(TimeMap::from_offsets(&[], Axis::Own, &[]).is_err());
}

#[test]
fn hostile_numbers_do_not_panic() {
    let mut random = ChaCha8Rng::seed_from_u64(9);
    let values = [0.0, -1.0, 1e18, -8e18, f64::NAN, f64::INFINITY, 1e-300, 4e4];
    for _ in 0..300 {
        let mut pick = || values[random.random_range(0..values.len())];
        let samples: Vec<_> = (0..7)
            .map(|k| OffsetSample {
                at_ns: [0, i64::MAX, i64::MIN, BASE][k % 4].wrapping_add(pick() as i64),
                offset_ns: pick(),
                drift_ppm: Some(pick()),
                sigma_ns: Some(pick()),
                drift_sigma_ppm: Some(pick()),
            })
            .collect();
        for axis in [Axis::Own, Axis::Reference] {
            if let Ok(found) = TimeMap::from_offsets(&samples, axis, &[i64::MIN, 0, i64::MAX]) {
                let _ = (found.map.map(i128::from(BASE) * 1000), found.map.breaks());
            }
        }
    }
}
