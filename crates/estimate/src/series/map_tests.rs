//! Maps by hand, order under steps, and the cursor against the slow path bit for bit.

use super::*;
use proptest::prelude::*;

/// About now, in ps since 1970.
pub(in super::super) const EPOCH_PS: i128 = 1_795_187_116_632_205_972_000;

pub(in super::super) fn segment(knots: &[(i128, i128)]) -> Segment {
    let knots = knots.iter().map(|&(at, c)| Knot { at_ps: EPOCH_PS + at, correction_ps: c, sigma_ns: 10.0 }).collect();
    Segment { knots, ..Segment::default() }
}

pub(in super::super) fn map(segments: &[&[(i128, i128)]]) -> TimeMap {
    let segments: Vec<Segment> = segments.iter().map(|knots| segment(knots)).collect();
    TimeMap::new(&segments).expect("usable knots")
}

/// Times from the epoch, mapped, and taken back to it.
fn check(map: &TimeMap, expected: &[(i128, i128, Place)]) {
    for &(at, corrected, place) in expected {
        let found = map.map(EPOCH_PS + at);
        assert_eq!((found.time_ps - EPOCH_PS, found.place), (corrected, place), "at {at}: {found:?}");
    }
}

/// Knots with steps of time and of correction such that the corrected time never goes back.
pub(in super::super) fn tame_knots() -> impl Strategy<Value = Vec<(i128, i128)>> {
    prop::collection::vec((1..10_000_000_000_000i64, -0.4..0.4f64), 1..12).prop_map(|steps| {
        let mut at = (0i128, 0i128);
        let next = |(run, share): (i64, f64)| {
            at = (at.0 + i128::from(run), at.1 + (run as f64 * share) as i128);
            at
        };
        steps.into_iter().map(next).collect()
    })
}

/// Segments of knots with jumps between them, up and down, back in time too.
fn wild_segments() -> impl Strategy<Value = Vec<Segment>> {
    let knots = prop::collection::vec((1..1_000_000_000i64, -3_000_000_000..3_000_000_000i64), 1..6);
    prop::collection::vec((knots, -2_000_000_000..2_000_000_000i64), 1..5).prop_map(|list| {
        let mut start = 0i128;
        list.into_iter()
            .map(|(steps, gap)| {
                let mut at = start + i128::from(gap);
                let knots: Vec<(i128, i128)> = steps
                    .into_iter()
                    .map(|(run, correction)| {
                        at += i128::from(run);
                        (at, i128::from(correction))
                    })
                    .collect();
                start = at;
                segment(&knots)
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn no_correction_changes_no_digit(t in -(1i128 << 90)..(1i128 << 90)) {
        prop_assert_eq!(TimeMap::identity().map(t).time_ps, t);
        let flat = map(&[&[(0, 0), (5, 0)], &[(1 << 70, 0)]]);
        prop_assert_eq!(flat.map(t).time_ps, t);
        prop_assert_eq!(flat.cursor().map(t).time_ps, t);
    }

    #[test]
    fn the_cursor_gives_the_same_bits(
        segments in wild_segments(),
        times in prop::collection::vec(-4_000_000_000..12_000_000_000i64, 1..60),
        far in any::<i128>(),
    ) {
        let map = TimeMap::new(&segments).expect("usable knots");
        let mut cursor = map.cursor();
        for t in times.into_iter().map(|t| EPOCH_PS + i128::from(t)).chain([far, i128::MIN, i128::MAX]) {
            prop_assert_eq!(cursor.map(t), map.map(t));
        }
    }

    #[test]
    fn order_is_kept_whatever_the_knots(
        segments in wild_segments(),
        mut times in prop::collection::vec(-4_000_000_000..12_000_000_000i64, 2..80),
    ) {
        let map = TimeMap::new(&segments).expect("usable knots");
        times.sort_unstable();
        let mapped: Vec<i128> = times.iter().map(|&t| map.map(EPOCH_PS + i128::from(t)).time_ps).collect();
        prop_assert!(mapped.is_sorted(), "{:?}", mapped);
    }

    #[test]
    fn a_continuous_map_clamps_nothing_and_can_be_undone(
        knots in tame_knots(),
        times in prop::collection::vec(-20_000_000_000_000..120_000_000_000_000i64, 1..60),
    ) {
        let map = map(&[&knots]);
        let back = map.inverse().expect("a rising map");
        for t in times.into_iter().map(|t| EPOCH_PS + i128::from(t)).chain(knots.iter().map(|k| EPOCH_PS + k.0)) {
            let there = map.map(t);
            prop_assert!(!there.clamped);
            let again = back.map(there.time_ps);
            // A slope of 0.4 shrinks a picosecond of rounding by at most 0.6 on the way and stretches it on the way back.
            prop_assert!((again.time_ps - t).abs() <= 2, "{} {:?}", t, again);
            prop_assert!(!again.clamped);
        }
        for (at, correction) in knots {
            prop_assert_eq!(map.map(EPOCH_PS + at).time_ps, EPOCH_PS + at - correction);
        }
    }
}

#[test]
fn between_and_outside_knots() {
    use Place::{After, Before, Inside};
    let found = map(&[&[(1000, 100), (2000, 300), (3000, 300)]]);
    check(
        &found,
        &[
            (1000, 900, Inside),
            (1500, 1300, Inside),
            (2000, 1700, Inside),
            (3000, 2700, Inside),
            (3001, 2701, After),
            (9000, 8700, After),
            (999, 899, Before),
            // The nearest slope, one fifth, goes on.
            (0, 100, Before),
        ],
    );
    assert_eq!(found.knots_span(), Some((EPOCH_PS + 1000, EPOCH_PS + 3000)));
    assert_eq!(TimeMap::identity().knots_span(), None);
}

#[test]
fn uncertainty_grows_outside() {
    let second = 1_000_000_000_000;
    let knots = segment(&[(0, 0), (second, 0)]);
    let outside = |growth_ppm| Some(Continuation { slope_ppm: 0.0, growth_ppm });
    let given = Segment { before: outside(1.0), after: outside(2.0), ..knots.clone() };
    let given = TimeMap::new(&[given]).expect("usable knots");
    let sigma = |map: &TimeMap, at: i128| map.map(EPOCH_PS + at).sigma_ns;
    assert!((sigma(&given, second / 2) - 10.0).abs() < 1e-9);
    assert!((sigma(&given, 3 * second) - 4010.0).abs() < 1e-6);
    assert!((sigma(&given, -3 * second) - 3010.0).abs() < 1e-6);
    let default = TimeMap::new(&[knots]).expect("usable knots");
    // √2 · 10 ns per second of slope error and 100 ns per second of wander.
    assert!((sigma(&default, 2 * second) - 10.0 - 100.0f64.hypot(200f64.sqrt())).abs() < 1e-6);
}

#[test]
fn a_step_is_a_break() {
    use Place::{After, Inside};
    // The clock is set forward by 500 somewhere between its own 2000 and 2600.
    let forward = map(&[&[(1000, 0), (2000, 0)], &[(2600, 500), (4000, 500)]]);
    check(
        &forward,
        &[(2000, 2000, Inside), (2050, 2050, Inside), (2051, 2050, Inside), (2560, 2060, Inside), (5000, 4500, After)],
    );
    let broken = forward.breaks();
    assert_eq!(broken.len(), 1);
    assert_eq!((broken[0].last_before_ps, broken[0].first_after_ps), (EPOCH_PS + 2000, EPOCH_PS + 2600));
    assert_eq!((broken[0].at_ps, broken[0].jump_ps), (EPOCH_PS + 2051, 500));
    // Nobody knows where it stepped: the jump counts as uncertainty from the last knot to the first.
    assert!(forward.map(EPOCH_PS + 2050).sigma_ns > 10.5);
    assert!((forward.map(EPOCH_PS + 2600).sigma_ns - 10.0).abs() < 1e-3);
    // The clock never showed what lies between.
    assert!(forward.map(EPOCH_PS + 2400).clamped, "raw 1900 after 2050");
    assert!(!forward.map(EPOCH_PS + 2600).clamped);
    // Set back by 500: no time is held back, a stretch of reference time is left empty.
    let back = map(&[&[(1000, 0), (2000, 0)], &[(1700, -500), (4000, -500)]]);
    check(&back, &[(1850, 1850, Inside), (1851, 2351, Inside), (4000, 4500, Inside)]);
    assert!(!back.map(EPOCH_PS + 1851).clamped);
    let given = Segment { start_ps: Some(EPOCH_PS + 2100), ..segment(&[(2600, 500), (4000, 500)]) };
    let stated = TimeMap::new(&[segment(&[(1000, 0), (2000, 0)]), given]).expect("usable knots");
    check(&stated, &[(2099, 2099, Inside), (2600, 2100, Inside)]);
}

#[test]
fn unusable_knots_are_refused() {
    let knot = |at_ps, sigma_ns| Knot { at_ps, correction_ps: 0, sigma_ns };
    let cases: [(&str, Vec<Knot>); 5] = [
        ("a segment has none", vec![]),
        ("out of order", vec![knot(5, 0.0), knot(5, 0.0)]),
        ("38,000 years", vec![knot(i128::MAX, 0.0)]),
        ("not a number", vec![knot(0, f64::NAN)]),
        ("too far apart", vec![knot(-(1 << 79), 0.0), Knot { correction_ps: 1 << 79, ..knot(1 << 79, 0.0) }]),
    ];
    for (expected, knots) in cases {
        let error = TimeMap::new(&[Segment { knots, ..Segment::default() }]).expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(TimeMap::new(&[]).is_err());
}
