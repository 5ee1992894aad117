//! A node's whole clock, hop by hop, with wander, steps and missing pairs.

use probe_sync_estimate::series::{Axis, OffsetSample, Place};

use super::pairs::tests::Simulated;
use super::*;

const EPOCH_NS: i64 = 1_795_187_116_632_205_972;

/// Exact offsets of a simulated node every 20 ms of true time, on its own clock; node 0 shows true time.
fn table(simulated: &Simulated) -> Offsets {
    let mut offsets = Offsets::new("table.csv", Axis::Own);
    let row = |k: i32| {
        let seconds = f64::from(k) * 0.02;
        let offset_ns = simulated.error_ns(seconds).round();
        let at_ns = EPOCH_NS + i64::from(k) * 20_000_000 + offset_ns as i64;
        OffsetSample { at_ns, offset_ns, drift_ppm: None, sigma_ns: None, drift_sigma_ppm: None }
    };
    offsets.nodes.insert(1, (-5..100).map(row).collect());
    offsets
}

fn facts(pairs: Vec<ClockPair>) -> TraceFacts {
    let start = i128::from(EPOCH_NS) * 1000;
    TraceFacts { span: Some((start, start + 1_800_000_000_000)), pairs, ..TraceFacts::default() }
}

/// The largest error over the trace, ns, and whether anything was clamped. R of the simulated trace is true time.
fn worst(clock: &NodeClock, late_ns: f64) -> (f64, bool) {
    let mut clamped = false;
    let worst = (0..900).map(|k| {
        let time = i128::from(EPOCH_NS) * 1000 + i128::from(k) * 2_000_000_000;
        let found = clock.chain.map(time);
        clamped |= found.clamped;
        ((found.time_ps - time) as f64 * 1e-3 + late_ns).abs()
    });
    (worst.fold(0.0, f64::max), clamped)
}

#[test]
fn markers_undo_what_a_straight_line_to_realtime_gets_wrong() {
    for (amplitude_ns, step_ns) in [(1e5, 0.0), (0.0, 2e6), (0.0, -2e6), (1e5, 3e6), (1e5, -5e7)] {
        let simulated = Simulated { count: 40, amplitude_ns, step_ns };
        let offsets = table(&simulated);
        let with = node_clock(&facts(simulated.markers()), &offsets, 1, None, Timeline::Host).expect("a map");
        let (error, clamped) = worst(&with, 11_500.0);
        assert!(error < 8_000.0 && !clamped, "{error} {clamped} {:?}", with.notes);
        assert_eq!(with.tie, Tie::Trace);
        let without = node_clock(&facts(vec![]), &offsets, 1, None, Timeline::Host).expect("a map");
        assert!(worst(&without, 0.0).0 > 90_000.0, "the simulation shows nothing");
        assert_eq!(without.tie, Tie::Assumed);
    }
}

#[test]
fn the_reference_needs_no_offsets_and_keeps_every_digit() {
    let offsets = Offsets::new("none", Axis::Reference);
    let clock = node_clock(&facts(vec![]), &offsets, 0, None, Timeline::Host).expect("the reference");
    for time in [0, 1, i128::from(EPOCH_NS) * 1000 + 123] {
        let found = clock.chain.map(time);
        assert_eq!((found.time_ps, found.place, found.clamped), (time, Place::Inside, false));
    }
    let missing = node_clock(&facts(vec![]), &offsets, 3, None, Timeline::Host).expect_err("no offsets");
    assert_eq!(missing.to_string(), "none: no offsets for node 3");
}

/// A tracer clock that started an hour ago, with pairs every 4 s.
fn boottime_pairs() -> Vec<ClockPair> {
    let pair = |k: i64| ClockPair {
        tracer_ps: i128::from(3_600_000_000_000 + k * 4_000_000_000) * 1000,
        system_ns: EPOCH_NS + k * 4_000_000_000,
        kind: PairKind::Bracketed(800.0),
    };
    (0..10).map(pair).collect()
}

#[test]
fn the_tracer_timeline_leads_back() {
    let mut offsets = Offsets::new("offsets", Axis::Reference);
    let sample = OffsetSample {
        at_ns: EPOCH_NS,
        offset_ns: 1e6,
        drift_ppm: Some(0.0),
        sigma_ns: Some(5.0),
        drift_sigma_ppm: None,
    };
    offsets.nodes.insert(1, vec![sample]);
    let span = (3_600_000_000_000_000, 3_630_000_000_000_000);
    let trace = TraceFacts { span: Some(span), ..TraceFacts::default() };
    let pairs = boottime_pairs();
    let host = node_clock(&trace, &offsets, 1, Some(&pairs), Timeline::Host).expect("a map");
    // Pairs lie on S = R + constant; node 1 is 1 ms ahead.
    assert_eq!(host.chain.map(span.0).time_ps, i128::from(EPOCH_NS - 1_000_000) * 1000);
    assert_eq!(host.tie, Tie::Snapshots);
    let own = node_clock(&trace, &offsets, 1, Some(&pairs), Timeline::Tracer(None)).expect("a map");
    assert_eq!(own.chain.map(span.0).time_ps, span.0 - 1_000_000_000);
    let reference = node_clock(&trace, &offsets, 0, Some(&pairs), Timeline::Host).expect("a map").tracer;
    let shared = Timeline::Tracer(reference.as_ref());
    let shared = node_clock(&trace, &offsets, 1, Some(&pairs), shared).expect("a map");
    assert_eq!(shared.chain.map(span.0).time_ps, own.chain.map(span.0).time_ps);
}

#[test]
fn pairs_that_do_not_fit_are_named_and_left_out() {
    let offsets = Offsets::new("offsets", Axis::Reference);
    let foreign = node_clock(&facts(vec![]), &offsets, 0, Some(&boottime_pairs()), Timeline::Host).expect("a map");
    assert_eq!(foreign.tie, Tie::Assumed);
    assert!(foreign.notes.iter().any(|note| note.contains("another clock")), "{:?}", foreign.notes);
    let two = Simulated { count: 40, amplitude_ns: 0.0, step_ns: 0.0 }.markers()[..2].to_vec();
    let few = node_clock(&facts(two), &offsets, 0, None, Timeline::Host).expect("a map");
    assert_eq!(few.tie, Tie::Assumed);
    assert!(few.notes.iter().any(|note| note.contains("too few")), "{:?}", few.notes);
}
