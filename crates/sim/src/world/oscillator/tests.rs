//! The clocks against the laws that they are drawn from.

use super::*;
use crate::scenario::faults::Fault;
use crate::scenario::{Replay, Slews, Thermal};
use crate::world::clock::offset_ns;

const START: Timestamp<System> = Timestamp::from_ns(1_790_000_000_000_000_000);
const HORIZON: Duration = Duration::from_ms(100_000);

fn still() -> Clocks {
    Clocks { offset_ns_max: 0, skew_ppm_max: 0.0, ..Clocks::default() }
}

fn with(clocks: Clocks) -> Scenario {
    Scenario { clocks, ..Scenario::new(600) }
}

fn drawn(scenario: &Scenario, node: u32) -> WanderingClock {
    clock(scenario, 3, NodeId(node), START, HORIZON)
}

fn after_ms(ms: i64) -> Timestamp<System> {
    START + Duration::from_ms(ms)
}

/// Root of the mean square over 500 clocks.
fn rms(scenario: &Scenario, value: impl Fn(&WanderingClock) -> f64) -> f64 {
    let squares: f64 = (1..=500).map(|node| value(&drawn(scenario, node)).powi(2)).sum();
    (squares / 500.0).sqrt()
}

#[track_caller]
fn close(found: f64, expected: f64, part: f64) {
    assert!((found / expected - 1.0).abs() < part, "{found}, expected {expected}");
}

#[test]
fn the_rate_is_the_slope_and_the_error_is_continuous() {
    let thermal = Thermal { every_s: 1.0, ..Thermal::default() };
    let slews = Slews { every_s: 5.0, ..Slews::default() };
    let scenario = with(Clocks { wander_ppm: 0.1, thermal, slews, ..Clocks::default() });
    let clock = drawn(&scenario, 1);
    for step in 1..400 {
        let at = START + Duration::from_ns(step * STEP_NS);
        let before = clock.error_ns(at - Duration::from_ns(1));
        assert!((clock.error_ns(at) - before).abs() < 1.0, "a jump at step {step}");
        let later = at + Duration::from_ms(1);
        let slope = (clock.error_ns(later) - clock.error_ns(at)) / 1e6 * 1e6;
        assert!((slope - clock.rate_ppm(at)).abs() < 1e-5, "{slope} ppm");
    }
}

#[test]
fn the_walk_is_as_wide_as_it_says() {
    let scenario = with(Clocks { wander_ppm: 0.1, ..still() });
    // Four standard errors of 500 draws: 13 %.
    close(rms(&scenario, |clock| clock.rate_ppm(after_ms(4_000))), 0.2, 0.13);
    // The error of an integrated walk after T: σ·T^1.5/√3.
    close(rms(&scenario, |clock| clock.error_ns(after_ms(4_000))), 0.1e3 * 8.0 / 3f64.sqrt(), 0.13);
}

#[test]
fn temperature_comes_as_often_and_as_strongly_as_it_says() {
    let thermal = Thermal { every_s: 2.0, sd_ppm: 0.02, tau_s: 1.0 };
    let scenario = with(Clocks { thermal, ..still() });
    // Changes that came before 90 s have arrived at 100 s but for the last few; some 50 changes of
    // SD 0.02: variance sd²/every · ∫ (1 − e^(−s/τ))² ds = sd²/every · (T − 1.5 τ).
    let expected = 0.02 * ((100.0 - 1.5) / 2.0f64).sqrt();
    close(rms(&scenario, |clock| clock.rate_ppm(after_ms(100_000))), expected, 0.13);
}

#[test]
fn a_change_of_temperature_is_approached_exponentially() {
    let thermal = Thermal { every_s: 1e6, sd_ppm: 0.02, tau_s: 20.0 };
    let scenario = with(Clocks { thermal, ..still() });
    // One clock in some ten thousand changes early; look for one among many that changes at all.
    let changed = (1..30_000).map(|node| drawn(&scenario, node)).find(|clock| clock.rate_ppm(after_ms(20_000)) != 0.0);
    let clock = changed.expect("30 000 clocks of 100 s at one change per 1e6 s");
    let begin = (0..400).find(|step| clock.rate_ppm(after_ms(step * 50)) != 0.0).expect("it changed") * 50 - 50;
    let rise = |ms| clock.rate_ppm(after_ms(begin + ms));
    close(rise(20_000) / rise(40_000), (1.0 - (-1f64).exp()) / (1.0 - (-2f64).exp()), 0.01);
}

#[test]
fn slews_begin_and_end_and_are_noticed_when_large() {
    let slews = Slews { every_s: 10.0, ppm_max: 10.0, for_s: 5.0 };
    let scenario = with(Clocks { slews, ..still() });
    let (mut slewing, mut seen, mut slews) = (0, 0, 0);
    for node in 1..=200 {
        let clock = drawn(&scenario, node);
        slewing += (0..100).filter(|second| clock.rate_ppm(after_ms(second * 1000)) != 0.0).count();
        slews += clock.slews.iter().filter(|slew| slew.ppm.abs() > 2.0).count();
        seen += clock.noticed.len();
        assert!(clock.slews.iter().all(|slew| slew.ppm.abs() <= 10.0));
    }
    // 5 s of every 15 s, but for the beginning, which is quiet.
    close(slewing as f64 / 20_000.0, 1.0 / 3.0, 0.1);
    assert_eq!(seen, 2 * slews, "begin and end of each slew above 2 ppm");
}

fn fault(start_s: f64, end_s: Option<f64>, what: FaultKind) -> Fault {
    Fault { start_s, end_s, what }
}

#[test]
fn steps_slews_and_reboots_are_what_they_say() {
    let node = NodeId(1);
    let faults = vec![
        fault(1.0, None, FaultKind::Step { node, step_ns: 5_000, seen: true }),
        fault(2.0, None, FaultKind::Step { node, step_ns: -2_000, seen: false }),
        fault(3.0, Some(4.0), FaultKind::Slew { node, ppm: 5.0, seen: true }),
        fault(6.0, Some(8.0), FaultKind::Reboot { node, offset_ns: 1_000_000 }),
        fault(9.0, None, FaultKind::Step { node, step_ns: 400, seen: true }),
    ];
    let scenario = Scenario { faults, ..with(still()) };
    let clock = drawn(&scenario, 1);
    let check = |ms, expected: f64| assert!((clock.error_ns(after_ms(ms)) - expected).abs() < 1e-6, "at {ms} ms");
    check(999, 0.0);
    check(1_000, 5_000.0);
    check(2_000, 3_000.0);
    check(3_500, 5_500.0);
    check(5_000, 8_000.0);
    check(6_000, 1_008_000.0);
    let event = |from, to| clock.event_in(after_ms(from), after_ms(to)).map(|event| (event.step_ns, event.slew_ppm));
    assert_eq!(event(0, 999), None);
    assert_eq!(event(0, 1_000), Some((5_000, 0.0)));
    assert_eq!(event(1_000, 2_999), None, "nobody saw the second step");
    assert_eq!(event(2_500, 3_500), Some((0, 5.0)));
    assert_eq!(event(3_500, 4_500), Some((0, -5.0)));
    assert_eq!(event(5_000, 10_000), None, "a reboot has no witness, and 400 ns are too little");
    assert!(drawn(&scenario, 2).skewed.is_identity(), "no other clock is touched");
    let unwatched = Scenario { clock_watch: false, ..scenario };
    assert_eq!(drawn(&unwatched, 1).event_in(START, after_ms(10_000)), None);
}

#[test]
fn a_recorded_series_is_replayed() {
    let replay = Replay { node: NodeId(1), points: vec![(1.0, 100.0), (2.0, 300.0), (4.0, 0.0)] };
    let scenario = Scenario { replays: vec![replay], ..with(still()) };
    let clock = drawn(&scenario, 1);
    for (ms, expected) in [(0, 100.0), (1_000, 100.0), (1_500, 200.0), (3_000, 150.0), (4_000, 0.0), (9_000, 0.0)] {
        assert!((clock.error_ns(after_ms(ms)) - expected).abs() < 1e-6, "at {ms} ms");
    }
    close(clock.rate_ppm(after_ms(1_500)), 0.2, 1e-9);
}

#[test]
fn truth_holds_at_the_instant_that_the_reference_shows() {
    let node = NodeId(0);
    let faults = vec![fault(50.0, None, FaultKind::Step { node, step_ns: 10_000_000, seen: true })];
    let laws = Clocks { wander_ppm: 0.1, reference_wanders: true, ..Clocks::default() };
    let scenario = Scenario { faults, ..with(laws) };
    let clocks: Vec<WanderingClock> = (0..3).map(|node| drawn(&scenario, node)).collect();
    for ms in [0, 20_000, 49_000, 51_000, 90_000] {
        let real = after_ms(ms);
        let shown = clocks[0].apply(real).on_reference();
        let expected = clocks[2].error_ns(real) - clocks[0].error_ns(real);
        // What is shown is a whole number of ns, and rates differ by 100 ppm.
        assert!((offset_ns(&clocks, NodeId(2), NodeId(0), shown) - expected).abs() < 1e-3, "at {ms} ms");
        assert_eq!(offset_ns(&clocks, NodeId(0), NodeId(0), shown), 0.0);
    }
}

#[test]
fn a_longer_run_has_the_same_beginning() {
    let thermal = Thermal { every_s: 5.0, ..Thermal::default() };
    let slews = Slews { every_s: 5.0, ..Slews::default() };
    let scenario = with(Clocks { wander_ppm: 0.1, thermal, slews, ..Clocks::default() });
    let short = clock(&scenario, 3, NodeId(1), START, Duration::from_ms(10_000));
    let long = drawn(&scenario, 1);
    assert!((0..100).all(|step| short.error_ns(after_ms(step * 100)) == long.error_ns(after_ms(step * 100))));
}
