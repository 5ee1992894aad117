//! Whether R is S, by hand and by chance.

use proptest::prelude::*;

use super::*;

const EPOCH_NS: i64 = 1_795_187_116_632_205_972;

/// A stamp `at_ns` after the epoch, between readings `before_ns` before and `after_ns` after it.
fn bracket(at_ns: i64, before_ns: i64, after_ns: i64) -> Bracket {
    let at = EPOCH_NS + at_ns;
    Bracket {
        tracer_ps: i128::from(at) * PS_PER_NS,
        unit_ps: PS_PER_NS,
        before_ns: at - before_ns,
        after_ns: at + after_ns,
    }
}

const SAME: Judged = Judged::Steady { ahead_ps: 0 };

fn steady_at_zero(brackets: &[Bracket]) -> Option<TimeMap> {
    steady(brackets, 0)
}

fn check(brackets: &[Bracket], expected: &Judged) {
    assert_eq!(&judge(brackets), expected, "{brackets:?}");
}

#[test]
fn the_system_clock_is_taken_where_it_fits_every_bracket() {
    check(&[], &Judged::Nothing);
    let (narrow, early) = (bracket(0, 200, 250), bracket(1_000_000, 0, 450));
    check(&[narrow], &Judged::Steady { ahead_ps: 0 });
    check(&[narrow, early], &Judged::Steady { ahead_ps: 0 });
    // Both readings and the stamp are whole ns: one ns outside is none.
    check(&[bracket(0, -1, 451)], &Judged::Steady { ahead_ps: 0 });
    check(&[bracket(0, 451, -1)], &Judged::Steady { ahead_ps: 0 });
    let pair = |bracket: &Bracket, middle_ns: i64, width_ns: f64| ClockPair {
        tracer_ps: bracket.tracer_ps,
        system_ns: EPOCH_NS + middle_ns,
        kind: PairKind::Bracketed(width_ns),
    };
    // 210 ns ahead of one, and at most 200 of the other: no constant.
    let outside = bracket(5_000, 660, -212);
    check(&[narrow, outside], &Judged::Apart(vec![pair(&narrow, 25, 450.0), pair(&outside, 5_000 - 436, 448.0)]));
    // A file in whole µs: the stamp may be anywhere in its µs.
    let rough = Bracket { unit_ps: 1_000_000, ..bracket(0, -900, 1_350) };
    check(&[rough], &Judged::Steady { ahead_ps: 0 });
}

#[test]
fn a_small_constant_is_taken_where_it_fits_every_bracket() {
    let ahead = |brackets: &[Bracket]| match judge(brackets) {
        Judged::Steady { ahead_ps } => Some(ahead_ps / PS_PER_NS),
        Judged::Nothing | Judged::Apart(_) => None,
    };
    // Stamps 31 ns behind the later reading, less a ns for whole ns: c is in [30, 362].
    let late = bracket(0, 361, -31);
    assert_eq!(ahead(&[late]), Some(60));
    assert_eq!(ahead(&[late, bracket(1_000_000, 340, -11)]), Some(60), "in [30, 341]");
    assert_eq!(ahead(&[late, bracket(1_000_000, 39, 300)]), Some(35), "in [30, 40]: no further than its middle");
    // The other side, alike.
    assert_eq!(ahead(&[bracket(0, -31, 361)]), Some(-60));
    // Far from zero the middle; further still it is no error of a fit.
    assert_eq!(ahead(&[bracket(0, 901, -501)]), Some(701));
    assert_eq!(ahead(&[bracket(0, 1_402, -1_002)]), None);
    // By continuity: zero at the edge, and little beyond it.
    assert_eq!((ahead(&[bracket(0, 331, -1)]), ahead(&[bracket(0, 331, -2)])), (Some(0), Some(2)));
    let map = steady(&[late], 60 * PS_PER_NS).expect("one");
    let time = i128::from(EPOCH_NS) * PS_PER_NS;
    assert_eq!(map.map(time).time_ps, time - 60 * PS_PER_NS, "S is what R shows less what R is ahead");
    let bounds = MarkBounds::of(&[late], &map).expect("one");
    // 301 ns to the reading before, and one for whole ns.
    assert_eq!((bounds.apart, bounds.apart_by_ns, bounds.all_ns), (1, 31.0, 302.0));
}

#[test]
fn bounds_are_the_distance_to_the_farther_reading() {
    let brackets = [bracket(0, 200, 250), bracket(1_000_000_000, 100, 700), bracket(2_000_000_000, 300, 300)];
    let map = steady_at_zero(&brackets).expect("there are some");
    let bounds = MarkBounds::of(&brackets, &map).expect("there are some");
    // Beside the distance the ns of the readings: 251, 301 and 701.
    assert_eq!(bounds, MarkBounds { marks: 3, apart: 0, apart_by_ns: 0.0, half_ns: 301.0, all_ns: 701.0 });
    assert_eq!(MarkBounds::of(&[], &map), None);
    let far = bracket(3_000_000_000, -5_000, 5_450);
    let bounds = MarkBounds::of(&[far, brackets[0]], &TimeMap::identity()).expect("there are some");
    assert_eq!((bounds.apart, bounds.apart_by_ns, bounds.all_ns), (1, 5_000.0, 5_451.0));
}

#[test]
fn the_identity_changes_nothing_and_says_how_sure_it_is() {
    // In the middle of each: 600/√12 = 173.2 ns.
    let brackets = [bracket(0, 300, 300), bracket(10_000_000_000, 300, 300)];
    let map = steady_at_zero(&brackets).expect("there are some");
    let at = |ns: i64| map.map(i128::from(EPOCH_NS + ns) * PS_PER_NS + 7);
    for ns in [-5_000_000_000, 0, 3_333_333_333, 9_999_999_999, 60_000_000_000] {
        assert_eq!(at(ns).time_ps, i128::from(EPOCH_NS + ns) * PS_PER_NS + 7, "{ns}");
    }
    assert!((at(5_000_000_000).sigma_ns - 173.205).abs() < 0.01, "{:?}", at(5_000_000_000));
    // √2·173.2 ns in 10 s are 0.0245 ppm, and 0.1 ppm of wander: 103 ns a second.
    let grown = at(20_000_000_000);
    assert!((grown.sigma_ns - 173.2 - 1_029.6).abs() < 1.0, "{grown:?}");
    use probe_sync_estimate::series::Place;
    assert_eq!([at(-1).place, at(5).place, at(10_000_000_000).place], [Place::Before, Place::Inside, Place::After]);
    // At the edge of each: 600/√3; below 20 ns a clock's granularity counts.
    let sigma = |bracket: Bracket| steady_at_zero(&[bracket]).expect("one").map(bracket.tracer_ps).sigma_ns;
    assert!((sigma(bracket(0, 0, 600)) - 346.41).abs() < 0.01);
    assert!((sigma(bracket(0, 1, 1)) - 5.7735).abs() < 0.001);
    // One mark says nothing of rates: 500 µs a second.
    let one =
        steady_at_zero(&[bracket(0, 300, 300)]).expect("one").map(i128::from(EPOCH_NS) * PS_PER_NS + 1_000_000_000_000);
    assert!((one.sigma_ns - 173.2 - 500_000.0).abs() < 1.0, "{one:?}");
    assert_eq!(steady_at_zero(&[]), None);
}

#[test]
fn odd_brackets_do_not_panic() {
    let odd = |tracer_ps, before_ns, after_ns| Bracket { tracer_ps, unit_ps: 1, before_ns, after_ns };
    let all = [
        odd(i128::MAX, i64::MIN, i64::MAX),
        odd(i128::MIN, i64::MAX, i64::MIN),
        odd(i128::MIN, 1_000, 2_000),
        odd(0, i64::MIN, i64::MIN),
        odd(0, 0, 0),
        odd(1 << 100, i64::MAX, i64::MAX),
    ];
    for one in all {
        let _ = (judge(&[one]), judge(&all), steady_at_zero(&[one]), MarkBounds::of(&all, &TimeMap::identity()));
    }
    let _ = steady_at_zero(&all);
}

proptest! {
    /// A stamp made between two readings of S, on an R that is at most `apart` ns from S.
    #[test]
    fn a_bracket_never_lies(
        events in prop::collection::vec((0_i64..20_000_000_000, 0_i64..5_000, 0_i64..5_000), 1..40),
        apart_ns in -3_000_i64..3_000,
    ) {
        // Where S shows `at`, R shows `at + apart`; in ps, cut off to whole ns in the file.
        let made = |apart_ns: i64| -> Vec<Bracket> {
            events.iter().map(|(at, before, after)| Bracket {
                tracer_ps: i128::from(EPOCH_NS + at + apart_ns) * PS_PER_NS,
                unit_ps: PS_PER_NS,
                before_ns: EPOCH_NS + at - before,
                after_ns: EPOCH_NS + at + after,
            }).collect()
        };
        // R = S is never refused where it is true,
        prop_assert_eq!(judge(&made(0)), SAME);
        // and what is stated where it is taken holds for every stamp.
        let brackets = made(apart_ns);
        if judge(&brackets) == SAME {
            let map = steady_at_zero(&brackets).expect("there are some");
            let bounds = MarkBounds::of(&brackets, &map).expect("there are some");
            let tightest = brackets.iter().map(|b| Ends::of(b, b.tracer_ps).bound_ns(b)).fold(f64::INFINITY, f64::min);
            prop_assert!(apart_ns.abs() as f64 <= tightest && tightest <= bounds.half_ns && bounds.half_ns <= bounds.all_ns);
        }
    }
}
