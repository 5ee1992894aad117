//! Maps from rounds of offsets against simulated clocks that drift, wander and step.

use probe_sync_lines::StepRecord;
use probe_sync_time::Timestamp;

use super::super::Place;
use super::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const BASE: i64 = 1_795_187_116_632_205_972;
const SECOND: f64 = 1e9;

/// Rounds of `interval_s`, offset and drift as functions of seconds, noise of an offset and of a
/// drift.
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
            let offset_ns = offset + noise(offset_noise_ns);
            OffsetSample {
                drift_ppm: Some(drift_ppm + noise(drift_noise_ppm)),
                sigma_ns: Some(offset_noise_ns.max(1.0)),
                ..OffsetSample::bare(BASE + (t * SECOND) as i64, offset_ns)
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
    let sample = OffsetSample { sigma_ns: Some(3.0), ..OffsetSample::bare(4000, 1000.0) };
    let found = TimeMap::from_offsets(&[sample], Axis::Reference, &KnownBreaks::default()).expect("one offset");
    let mapped = found.map.map(5_000_000);
    assert_eq!((mapped.time_ps, mapped.place, mapped.sigma_ns), (4_000_000, Place::Inside, 3.0));
    assert_eq!(found.map.map(9_000_000).time_ps, 8_000_000);
}

#[test]
fn constant_drift_is_followed_in_and_outside() {
    let truth = |t: f64| (2.5e6 + 50e3 * t, 50.0);
    let found = TimeMap::from_offsets(&rounds(8, 4.0, truth, (0.0, 0.0)), Axis::Reference, &KnownBreaks::default())
        .expect("offsets");
    assert!(worst(&found.map, truth, 0..60) < 1.0);
    assert_eq!((found.used, found.dropped, found.map.breaks().len()), (8, 0, 0));
}

#[test]
fn slopes_are_used_where_they_predict_better() {
    let turn = std::f64::consts::TAU / 40.0;
    let wander = |t: f64| (20e3 * (turn * t).sin(), 20.0 * turn * (turn * t).cos());
    let exact = TimeMap::from_offsets(&rounds(30, 4.0, wander, (5.0, 0.001)), Axis::Reference, &KnownBreaks::default())
        .expect("offsets");
    assert_eq!(exact.interpolation, Interpolation::MeasuredSlopes);
    assert!(worst(&exact.map, wander, 4..110) < 60.0, "{}", worst(&exact.map, wander, 4..110));
    let noisy = TimeMap::from_offsets(&rounds(30, 4.0, wander, (5.0, 5.0)), Axis::Reference, &KnownBreaks::default())
        .expect("offsets");
    assert_ne!(noisy.interpolation, Interpolation::MeasuredSlopes);
    let steady = |t: f64| (50e3 * t, 50.0);
    let steady = TimeMap::from_offsets(&rounds(30, 4.0, steady, (50.0, 0.5)), Axis::Reference, &KnownBreaks::default())
        .expect("offsets");
    assert_eq!(steady.interpolation, Interpolation::Linear);
}

#[test]
fn a_step_breaks_the_segment_and_the_round_of_the_step_goes() {
    for step in [2e6, -2e6, 3e9, -3e9] {
        let truth = |t: f64| (1e5 + 10e3 * t + if t < 18.0 { 0.0 } else { step }, 10.0);
        let mut samples = rounds(10, 4.0, truth, (30.0, 0.05));
        let clean = TimeMap::from_offsets(&samples, Axis::Reference, &KnownBreaks::default()).expect("offsets");
        assert_eq!((clean.map.breaks().len(), clean.dropped), (1, 0), "step {step}");
        // The window of the step itself gives something in between.
        samples[5].offset_ns -= 0.4 * step;
        let found = TimeMap::from_offsets(&samples, Axis::Reference, &KnownBreaks::default()).expect("offsets");
        assert_eq!((found.map.breaks().len(), found.dropped), (1, 1), "step {step}");
        assert!(((found.map.breaks()[0].jump_ps as f64 * 1e-3 - step) / step).abs() < 0.01);
    }
}

#[test]
fn a_step_that_was_seen_breaks_there() {
    let step = 5e3;
    let truth = |t: f64| (10e3 * t + if t < 18.0 { 0.0 } else { step }, 10.0);
    let samples = rounds(10, 4.0, truth, (10.0, 0.01));
    let unseen = TimeMap::from_offsets(&samples, Axis::Reference, &KnownBreaks::default()).expect("offsets");
    assert_eq!(unseen.map.breaks().len(), 0, "a rate may change by as much");
    // Two exchanges a millisecond apart: the clock shows 180 µs more than the reference before the
    // step, 185 after it.
    let [after_ns, before_ns] = [17_999_500_000 + 180_000, 18_000_500_000 + 185_000].map(|ns: i64| BASE + ns);
    let known = KnownBreaks { of_node: vec![Step { after_ns, before_ns }], ..KnownBreaks::default() };
    let seen = TimeMap::from_offsets(&samples, Axis::Reference, &known).expect("offsets");
    let broken = seen.map.breaks()[0];
    assert_eq!(
        (broken.last_before_ps, broken.first_after_ps),
        (i128::from(after_ns) * 1000, i128::from(before_ns) * 1000)
    );
    assert!((after_ns..before_ns).contains(&((broken.at_ps / 1000) as i64)), "{broken:?}");
    // Between the step's two readings of the clock no event can lie.
    assert!(worst(&seen.map, truth, 0..40) < 200.0, "{}", worst(&seen.map, truth, 0..40));
    let sigma = |seconds: f64| seen.map.map(i128::from(BASE + (seconds * SECOND) as i64 + 182_500) * 1000).sigma_ns;
    assert!(
        sigma(18.0) > step && sigma(17.99) < 300.0 && sigma(18.01) < 300.0,
        "the step is unknown between them only"
    );
}

#[test]
fn tables_on_the_own_clock_may_go_back() {
    let sample = OffsetSample::bare;
    // Every 20 ms; set back by 50 ms after five.
    let ms = 1_000_000;
    let before = (0..5).map(|k| sample(k * 20 * ms, 0.0));
    let after = (5..12).map(|k| sample((k * 20 - 50) * ms, -50e6));
    let samples: Vec<_> = before.chain(after).collect();
    let found = TimeMap::from_offsets(&samples, Axis::Own, &KnownBreaks::default()).expect("offsets");
    assert_eq!((found.used, found.map.breaks().len()), (12, 1));
    let mapped = found.map.map(i128::from(150 * ms) * 1000);
    assert_eq!(mapped.time_ps, i128::from(200 * ms) * 1000);
    // The table states no standard deviations.
    assert!((100.0..101.0).contains(&mapped.sigma_ns), "{}", mapped.sigma_ns);
}

#[test]
fn nonsense_is_dropped_and_counted() {
    let truth = |t: f64| (10e3 * t, 10.0);
    let mut samples = rounds(8, 4.0, truth, (1.0, 0.01));
    samples[2].offset_ns = f64::NAN;
    samples[3].at_ns = samples[1].at_ns;
    samples[4].sigma_ns = Some(f64::INFINITY);
    samples[5].drift_ppm = Some(1e300);
    let found = TimeMap::from_offsets(&samples, Axis::Reference, &KnownBreaks::default()).expect("offsets");
    assert_eq!((found.used, found.dropped), (6, 2));
    assert!(worst(&found.map, truth, 0..28) < 20.0);
    samples.iter_mut().for_each(|sample| sample.offset_ns = f64::INFINITY);
    assert!(TimeMap::from_offsets(&samples, Axis::Reference, &KnownBreaks::default()).is_err());
    assert!(TimeMap::from_offsets(&[], Axis::Own, &KnownBreaks::default()).is_err());
}

#[test]
fn hostile_numbers_do_not_panic() {
    let mut random = ChaCha8Rng::seed_from_u64(9);
    let values = [0.0, -1.0, 1e18, -8e18, f64::NAN, f64::INFINITY, 1e-300, 4e4];
    for _ in 0..300 {
        let mut pick = || values[random.random_range(0..values.len())];
        let samples: Vec<_> = (0..7)
            .map(|k| {
                let at_ns = [0, i64::MAX, i64::MIN, BASE][k % 4].wrapping_add(pick() as i64);
                OffsetSample {
                    drift_ppm: Some(pick()),
                    sigma_ns: Some(pick()),
                    drift_sigma_ppm: Some(pick()),
                    offset_drift_covariance: Some(pick()),
                    wander: Some(pick()),
                    disturbed: pick() == 0.0,
                    slew_ppm: pick(),
                    step: Some(Step { after_ns: pick() as i64, before_ns: pick() as i64 }),
                    round: Some(pick() as u64),
                    broken_into: Some(pick() as u64),
                    ..OffsetSample::bare(at_ns, pick())
                }
            })
            .collect();
        let steps = [i64::MIN, 0, BASE, i64::MAX]
            .map(|at_ns| StepRecord::seen(Timestamp::from_ns(at_ns), pick() as i64).into())
            .to_vec();
        let known = KnownBreaks { of_node: steps.clone(), of_reference: steps, rounds: [0, 4, u64::MAX].into() };
        for axis in [Axis::Own, Axis::Reference] {
            if let Ok(found) = TimeMap::from_offsets(&samples, axis, &known) {
                let _ = (found.map.map(i128::from(BASE) * 1000), found.map.breaks());
            }
        }
    }
}

/// As [`rounds`], with what a smoothed run states of them: errors of the rate, covariance, wander.
fn stated(samples: Vec<OffsetSample>, drift_sigma_ppm: f64, wander: f64) -> Vec<OffsetSample> {
    let state = |sample: OffsetSample| OffsetSample {
        drift_sigma_ppm: Some(drift_sigma_ppm),
        offset_drift_covariance: Some(0.0),
        wander: Some(wander),
        ..sample
    };
    samples.into_iter().map(state).collect()
}

/// Error, ns, and stated standard deviation of mapping what the node shows when the reference shows
/// `seconds`.
fn at(map: &TimeMap, truth: impl Fn(f64) -> (f64, f64), seconds: f64) -> (f64, f64) {
    let reference = BASE + (seconds * SECOND) as i64;
    let mapped = map.map(i128::from(reference) * 1000 + (truth(seconds).0 * 1000.0) as i128);
    (((mapped.time_ps - i128::from(reference) * 1000) as f64 * 1e-3).abs(), mapped.sigma_ns)
}

/// Every error is within four stated standard deviations, from `from` to `until` in steps of 20 ms.
fn holds(map: &TimeMap, truth: impl Fn(f64) -> (f64, f64), [from, until]: [f64; 2]) {
    for k in 0..((until - from) * 50.0) as u32 {
        let seconds = from + f64::from(k) / 50.0;
        let (error, sigma) = at(map, &truth, seconds);
        assert!(error <= 4.0 * sigma + 0.1, "{seconds} s: {error} ns under {sigma}");
    }
}

fn map_of(samples: &[OffsetSample]) -> OffsetMap {
    TimeMap::from_offsets(samples, Axis::Reference, &KnownBreaks::default()).expect("offsets")
}

fn steady(t: f64) -> (f64, f64) {
    (2.5e6 + 7e3 * t, 7.0)
}

#[test]
fn a_line_of_a_disturbed_clock_is_no_knot() {
    for model in [false, true] {
        let mut samples = rounds(12, 2.0, steady, (20.0, 0.01));
        if model {
            samples = stated(samples, 0.01, 1.0);
        }
        samples[5].offset_ns += 50e3;
        samples[5].disturbed = true;
        let found = map_of(&samples);
        assert_eq!((found.used, found.dropped, found.disturbed), (11, 0, 1));
        assert!(worst(&found.map, steady, 0..22) < 150.0, "{}", worst(&found.map, steady, 0..22));
        // It may have been true: the bridge says so, and nothing else does.
        let sigma = |seconds| at(&found.map, steady, seconds).1;
        assert!(sigma(8.1) > 4e4 && sigma(10.0) > 4e4 && sigma(11.9) > 4e4, "{}", sigma(10.0));
        assert!(sigma(7.0) < 200.0 && sigma(13.0) < 200.0, "{}", sigma(7.0));
    }
}

#[test]
fn a_disturbed_line_at_an_end_leaves_what_lies_beyond_in_doubt() {
    for end in [0, 9] {
        let mut samples = stated(rounds(10, 2.0, steady, (20.0, 0.01)), 0.01, 1.0);
        samples[end].offset_ns += 50e3;
        samples[end].disturbed = true;
        let found = map_of(&samples);
        let beyond = if end == 0 { 0.0 } else { 18.0 };
        let (error, sigma) = at(&found.map, steady, beyond);
        assert!(error < 100.0 && sigma > 4e4, "{error} {sigma}");
    }
    let all: Vec<OffsetSample> = rounds(4, 2.0, steady, (20.0, 0.01))
        .into_iter()
        .map(|sample| OffsetSample { disturbed: true, ..sample })
        .collect();
    let refused = TimeMap::from_offsets(&all, Axis::Reference, &KnownBreaks::default()).expect_err("no knot is left");
    assert!(refused.to_string().contains("disturbed"), "{refused}");
}

#[test]
fn a_slew_widens_the_bridge_over_it() {
    // 30 ppm from the middle of the sixth window on.
    let kinked = |t: f64| (1e5 + 1e3 * t + 30e3 * (t - 10.0).max(0.0), if t < 10.0 { 1.0 } else { 31.0 });
    for seen in [false, true] {
        let mut samples = stated(rounds(12, 2.0, kinked, (20.0, 0.01)), 0.01, 1.0);
        (samples[5].disturbed, samples[5].slew_ppm) = (true, if seen { 30.0 } else { 0.0 });
        let found = map_of(&samples);
        holds(&found.map, kinked, [0.0, 22.0]);
        if seen {
            // An eighth of 30 ppm over 4 s.
            assert!(at(&found.map, kinked, 10.0).1 > 14e3);
        }
    }
}

#[test]
fn a_slew_that_no_line_shows_widens_the_bridge_by_itself() {
    let mut samples = stated(rounds(12, 2.0, steady, (0.0, 0.0)), 0.01, 1.0);
    (samples[5].disturbed, samples[5].slew_ppm) = (true, 30.0);
    // An eighth of 30 ppm over 4 s.
    let sigma = at(&map_of(&samples).map, steady, 10.0).1;
    assert!((14.9e3..15.2e3).contains(&sigma), "{sigma}");
}

#[test]
fn pairs_of_wild_lines_do_not_pass_under_a_small_sigma() {
    for model in [false, true] {
        for wild in [&[6][..], &[6, 7], &[6, 7, 8]] {
            for size in [30e3, 5e6, -5e6] {
                let mut samples = rounds(16, 2.0, steady, (20.0, 0.01));
                for sample in &mut samples {
                    sample.drift_sigma_ppm = Some(0.01);
                }
                if model {
                    samples = stated(samples, 0.01, 1.0);
                }
                for line in wild {
                    samples[*line].offset_ns += size;
                    // Their rates do not fit either.
                    samples[*line].drift_ppm = Some(7.3);
                }
                let found = map_of(&samples);
                assert_eq!(found.dropped, wild.len(), "{model} {wild:?} {size}");
                holds(&found.map, steady, [0.0, 30.0]);
                let (error, sigma) = at(&found.map, steady, 13.0);
                assert!(error < 200.0 && sigma > 0.9 * size.abs(), "{error} {sigma}");
                assert!(at(&found.map, steady, 4.0).1 < 200.0);
            }
        }
    }
}

#[test]
fn a_gap_whose_ends_do_not_fit_is_in_doubt() {
    // 8 µs that nobody saw: too small for a break, many times what the lines claim.
    let stepped = |t: f64| (7e3 * t + if t < 9.0 { 0.0 } else { 8e3 }, 7.0);
    let found = map_of(&stated(rounds(12, 2.0, stepped, (20.0, 0.01)), 0.01, 1.0));
    assert_eq!((found.map.breaks().len(), found.dropped), (0, 0));
    holds(&found.map, stepped, [0.0, 22.0]);
    assert!(at(&found.map, stepped, 6.0).1 < 200.0 && at(&found.map, stepped, 9.0).1 > 7e3);
}

#[test]
fn a_step_of_the_reference_breaks_every_map() {
    // When the reference shows 18 s it is set forward by 4 µs: all others fall behind.
    let truth = |t: f64| (10e3 * t - if t < 18.0 { 0.0 } else { 4e3 }, 10.0);
    let samples = stated(rounds(20, 2.0, truth, (10.0, 0.01)), 0.01, 1.0);
    let second = |seconds: f64| BASE + (seconds * SECOND) as i64;
    let step = Step { after_ns: second(17.3), before_ns: second(17.31) };
    let known = KnownBreaks { of_reference: vec![step], ..KnownBreaks::default() };
    let found = TimeMap::from_offsets(&samples, Axis::Reference, &known).expect("offsets");
    let broken = found.map.breaks();
    assert_eq!(broken.len(), 1);
    // Readings of the node's own clock: 173 µs more.
    assert!((broken[0].last_before_ps - i128::from(second(17.3) + 173_000) * 1000).abs() < 1_000_000, "{broken:?}");
    assert!((broken[0].jump_ps + 4_000_000).abs() < 200_000, "{broken:?}");
    let round = |sample: (usize, OffsetSample)| OffsetSample { round: Some(sample.0 as u64), ..sample.1 };
    let numbered: Vec<OffsetSample> = samples.into_iter().enumerate().map(round).collect();
    // Into round 9, which is at 18 s, the clock does not go on: that is all that is known.
    let known = KnownBreaks { rounds: [9].into(), ..KnownBreaks::default() };
    let found = TimeMap::from_offsets(&numbered, Axis::Reference, &known).expect("offsets");
    assert_eq!(found.map.breaks().len(), 1);
    assert!((found.map.breaks()[0].jump_ps + 4_000_000).abs() < 200_000);
    holds(&found.map, truth, [0.0, 38.0]);
    assert!(at(&found.map, truth, 17.0).1 > 3.5e3 && at(&found.map, truth, 15.0).1 < 200.0);
}

#[test]
fn a_step_lies_in_one_gap_however_dense_the_lines() {
    // Set back by 1 s: the clock shows 20 lines' readings twice.
    let truth = |t: f64| (1e3 * t - if t < 5.0 { 0.0 } else { 1e9 }, 1.0);
    let samples = stated(rounds(200, 0.05, truth, (5.0, 0.001)), 0.001, 1.0);
    let own = |t: f64| BASE + (t * SECOND) as i64 + truth(t).0 as i64;
    let step = Step { after_ns: own(4.98), before_ns: own(5.01) };
    let known = KnownBreaks { of_node: vec![step], ..KnownBreaks::default() };
    let found = TimeMap::from_offsets(&samples, Axis::Reference, &known).expect("offsets");
    assert_eq!((found.map.breaks().len(), found.dropped), (1, 0));
    holds(&found.map, truth, [0.0, 9.9]);
    assert!(at(&found.map, truth, 4.5).1 > 0.9e9, "shown twice");
    assert!(at(&found.map, truth, 3.5).1 < 50.0 && at(&found.map, truth, 6.5).1 < 50.0, "shown once");
}

#[test]
fn a_step_lies_where_the_offset_jumps_most_not_where_it_rises_fastest() {
    // 300 ns of noise between two lines 100 ms apart rise by 3 µs/s; the step of 20 µs lies in a
    // gap of 2 s, and may lie in either.
    let truth = |t: f64| (7e3 * t + if t < 4.5 { 0.0 } else { 20e3 }, 7.0);
    let noise = [0.0, 0.0, 0.0, 300.0, 0.0, 0.0, 0.0];
    let line = |(t, noise): (f64, f64)| OffsetSample {
        drift_ppm: Some(7.0),
        sigma_ns: Some(100.0),
        ..OffsetSample::bare(BASE + (t * SECOND) as i64, truth(t).0 + noise)
    };
    let samples: Vec<OffsetSample> = [0.0, 2.0, 4.0, 4.1, 6.1, 8.1, 10.1].into_iter().zip(noise).map(line).collect();
    let own = |t: f64| BASE + (t * SECOND) as i64 + truth(t).0 as i64;
    let step = Step { after_ns: own(4.05), before_ns: own(4.6) };
    let known = KnownBreaks { of_node: vec![step], ..KnownBreaks::default() };
    let found = TimeMap::from_offsets(&stated(samples, 0.05, 1.0), Axis::Reference, &known).expect("offsets");
    let broken = found.map.breaks();
    assert!(broken.len() == 1 && (broken[0].jump_ps - 20_000_000).abs() < 1_000_000, "{broken:?}");
    for seconds in [0.0, 3.9, 5.0, 6.1, 10.0] {
        let (error, _) = at(&found.map, truth, seconds);
        assert!(error < 1_000.0, "{seconds} s: {error} ns");
    }
}

#[test]
fn a_disturbed_line_beside_a_step_is_no_sign_of_another_rate() {
    // The step itself disturbs the line of its window; what the line is off by belongs to the step.
    let truth = |t: f64| (7e3 * t + if t < 10.3 { 0.0 } else { 50e3 }, 7.0);
    let own = |t: f64| BASE + (t * SECOND) as i64 + truth(t).0 as i64;
    let step = Step { after_ns: own(10.2), before_ns: own(10.4) };
    let known = KnownBreaks { of_node: vec![step], ..KnownBreaks::default() };
    let sigma_with = |off_ns: f64| {
        let mut samples = stated(rounds(12, 2.0, truth, (20.0, 0.01)), 0.01, 1.0);
        samples[5].offset_ns += off_ns;
        samples[5].disturbed = true;
        let found = TimeMap::from_offsets(&samples, Axis::Reference, &known).expect("offsets");
        assert_eq!((found.map.breaks().len(), found.disturbed), (1, 1));
        at(&found.map, truth, 9.5).1
    };
    assert!((sigma_with(25e3) - sigma_with(0.0)).abs() < 1e-6, "{} and {}", sigma_with(25e3), sigma_with(0.0));
}

/// A clock whose rate walks, and lines of it with errors of a known covariance. Offset in ns and
/// rate in ns/s every 10 ms.
fn walked(seed: u64, density: f64, seconds: usize) -> (Vec<(f64, f64)>, impl FnMut(f64) -> f64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut normal = move |sd: f64| sd * ((0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0);
    let (mut offset, mut rate) = (3e5, 400.0);
    let path = (0..=seconds * 100)
        .map(|_| {
            let now = (offset, rate);
            let kick = normal((density * 0.01).sqrt());
            offset += 0.01 * (rate + 0.5 * kick);
            rate += kick;
            now
        })
        .collect();
    (path, normal)
}

#[test]
fn the_stated_error_of_a_walk_holds_between_and_beyond_lines() {
    for (density, sigma, rate_sigma, interval) in
        [(4.0, 15.0, 8.0, 1.0), (400.0, 5.0, 4.0, 4.0), (1e6, 30.0, 200.0, 2.0)]
    {
        let (mut squares, mut count) = (0.0, 0.0);
        for seed in 0..40 {
            let (path, mut normal) = walked(seed, density, 60);
            let line = |at: usize| {
                let (offset, rate) = path[at];
                OffsetSample {
                    drift_ppm: Some((rate + normal(rate_sigma)) * 1e-3),
                    sigma_ns: Some(sigma),
                    drift_sigma_ppm: Some(rate_sigma * 1e-3),
                    offset_drift_covariance: Some(0.0),
                    wander: Some(density),
                    ..OffsetSample::bare(BASE + at as i64 * 10_000_000, offset + normal(sigma))
                }
            };
            let every = (interval * 100.0) as usize;
            let samples: Vec<OffsetSample> = (1000..=5000).step_by(every).map(line).collect();
            let found = map_of(&samples);
            assert_eq!((found.interpolation, found.dropped), (Interpolation::Walk, 0), "seed {seed}");
            for (index, (offset, _)) in path.iter().enumerate() {
                let at_ns = BASE + index as i64 * 10_000_000;
                let mapped = found.map.map(i128::from(at_ns) * 1000 + (offset * 1e3) as i128);
                let error = (mapped.time_ps - i128::from(at_ns) * 1000) as f64 * 1e-3;
                assert!(error.abs() <= 4.5 * mapped.sigma_ns, "{density} {seed} {index}: {error} {}", mapped.sigma_ns);
                squares += (error / mapped.sigma_ns).powi(2);
                count += 1.0;
            }
        }
        let spread = (squares / count).sqrt();
        assert!((0.3..1.15).contains(&spread), "{density}: {spread}");
    }
}

#[test]
fn files_that_state_no_wander_show_it() {
    for density in [1.0, 400.0, 1e6] {
        let (path, mut normal) = walked(3, density, 120);
        let line = |at: usize| OffsetSample {
            drift_ppm: Some((path[at].1 + normal(2.0)) * 1e-3),
            sigma_ns: Some(5.0),
            drift_sigma_ppm: Some(2e-3),
            ..OffsetSample::bare(BASE + at as i64 * 10_000_000, path[at].0 + normal(5.0))
        };
        let samples: Vec<OffsetSample> = (0..=12_000).step_by(200).map(line).collect();
        let points = Base { x_ns: BASE, axis: Axis::Reference }.points(&samples);
        let law = Law::of(&points).expect("rates and errors");
        let found = law.density(&[&points[3]]);
        assert!(!law.stated && (density / 5.0..density * 5.0).contains(&found), "{found} instead of {density}");
        assert_eq!(Law::of(&Base { x_ns: 0, axis: Axis::Own }.points(&[OffsetSample::bare(0, 1.0)])), None);
    }
}
