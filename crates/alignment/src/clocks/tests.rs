//! A node's whole clock, hop by hop, with wander, steps and missing pairs.

use probe_sync_estimate::series::{Axis, OffsetSample};

use super::pairs::tests::Simulated;
use super::*;

const EPOCH_NS: i64 = 1_795_187_116_632_205_972;

/// Exact offsets of a simulated node every 20 ms of true time, on its own clock; node 0 shows true
/// time.
fn table(simulated: &Simulated) -> Offsets {
    let mut offsets = Offsets::new("table.csv", Axis::Own);
    let row = |k: i32| {
        let seconds = f64::from(k) * 0.02;
        let offset_ns = simulated.error_ns(seconds).round();
        let at_ns = EPOCH_NS + i64::from(k) * 20_000_000 + offset_ns as i64;
        OffsetSample::bare(at_ns, offset_ns)
    };
    offsets.nodes.insert(1, (-5..100).map(row).collect());
    offsets
}

fn facts(pairs: Vec<ClockPair>) -> TraceFacts {
    let start = i128::from(EPOCH_NS) * 1000;
    TraceFacts { span: Some((start, start + 1_800_000_000_000)), pairs, ..TraceFacts::default() }
}

/// The largest error over the trace, ns, and whether anything was clamped. R of the simulated trace
/// is true time.
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

fn given(pairs: Vec<ClockPair>) -> Snapshots {
    Snapshots { pairs, ..Snapshots::default() }
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
    let sample = OffsetSample { drift_ppm: Some(0.0), sigma_ns: Some(5.0), ..OffsetSample::bare(EPOCH_NS, 1e6) };
    offsets.nodes.insert(1, vec![sample]);
    let span = (3_600_000_000_000_000, 3_630_000_000_000_000);
    let trace = TraceFacts { span: Some(span), ..TraceFacts::default() };
    let pairs = given(boottime_pairs());
    let host = node_clock(&trace, &offsets, 1, Some(&pairs), Timeline::Host).expect("a map");
    // Pairs are on S = R + constant; node 1 is 1 ms ahead.
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
fn pairs_of_a_raw_clock_beside_a_trace_on_unix_time_are_the_ordinary_case() {
    let offsets = Offsets::new("offsets", Axis::Reference);
    let time = i128::from(EPOCH_NS) * 1000 + 77;
    let unmoved = |facts: &TraceFacts, snapshots: Option<Snapshots>| {
        let clock = node_clock(facts, &offsets, 0, snapshots.as_ref(), Timeline::Host).expect("a map");
        assert_eq!((clock.tie, clock.chain.map(time).time_ps, &clock.raw), (Tie::Assumed, time, &None));
        assert_eq!(clock.notes.len(), 1, "{:?}", clock.notes);
        assert!(!clock.notes.iter().any(|note| note.contains("another clock")), "{:?}", clock.notes);
    };
    unmoved(&facts(vec![]), Some(given(boottime_pairs())));
    // The same pairs inside the file: its events stay where they are, and do not go decades away.
    unmoved(&facts(boottime_pairs()), None);
}

#[test]
fn planes_on_a_raw_clock_have_a_map_of_their_own() {
    let mut offsets = Offsets::new("offsets", Axis::Reference);
    let sample = OffsetSample { drift_ppm: Some(0.0), sigma_ns: Some(5.0), ..OffsetSample::bare(EPOCH_NS, 1e6) };
    offsets.nodes.insert(1, vec![sample]);
    let (boot, unix) = (3_601_000_000_000_000i128, i128::from(EPOCH_NS) * 1000 + 1_000_000_000_000);
    let plane =
        probe_sync_formats::model::PlaneSpan { plane: "/device:GPU:0".to_owned(), span: (boot, boot + 1_000_000) };
    let session = Some((i128::from(EPOCH_NS) * 1000, i128::from(EPOCH_NS) * 1000 + 1_800_000_000_000));
    let raw = |pairs: Vec<ClockPair>| TraceFacts { since_boot: vec![plane.clone()], session, ..facts(pairs) };
    let named = Snapshots { clock: Some("boottime".to_owned()), ..given(boottime_pairs()) };
    let unnamed = "10 pairs without a clock name, assumed to be the profiler's, relate it to the system clock";
    for (trace, given, note) in [
        (raw(vec![]), Some(named), "10 pairs of the clock boottime relate it to the system clock"),
        (raw(vec![]), Some(given(boottime_pairs())), unnamed),
        (raw(boottime_pairs()), None, unnamed),
    ] {
        let clock = node_clock(&trace, &offsets, 1, given.as_ref(), Timeline::Host).expect("a map");
        assert!(clock.notes.iter().any(|said| said.ends_with(note)), "{:?}", clock.notes);
        // 1 s after the pairs' first moment, on either clock; node 1 is 1 ms ahead.
        let [raw, file] = [boot, unix].map(|time| clock.look(time));
        assert_eq!((raw.at, file.at), (unix - 1_000_000_000, unix - 1_000_000_000), "{:?}", clock.notes);
        assert!(raw.own_sigma_ns > 0.0 && file.own_sigma_ns == 0.0, "{raw:?} {file:?}");
        assert!(raw.sigma_ns > raw.own_sigma_ns, "{raw:?}");
    }
    let refused = node_clock(&raw(vec![]), &offsets, 1, None, Timeline::Host).expect_err("no pairs").to_string();
    assert!(refused.starts_with("node 1: the plane /device:GPU:0 does not use Unix time"), "{refused}");
    // All planes are raw: the session's start is Unix time all the same.
    let all_raw = TraceFacts { span: None, ..raw(boottime_pairs()) };
    let clock = node_clock(&all_raw, &offsets, 1, None, Timeline::Host).expect("a map");
    assert_eq!(clock.chain.map(unix).time_ps, unix - 1_000_000_000);
}

#[test]
fn what_is_left_out_of_the_offsets_is_noted() {
    let simulated = Simulated { count: 40, amplitude_ns: 0.0, step_ns: 0.0 };
    let notes = |change: &dyn Fn(&mut Vec<OffsetSample>)| {
        let mut offsets = table(&simulated);
        change(offsets.nodes.get_mut(&1).expect("node 1"));
        let clock = node_clock(&facts(vec![]), &offsets, 1, None, Timeline::Host).expect("a map");
        let about =
            clock.notes.into_iter().filter(|note| note.contains("offsets") && !note.contains("have no uncertainty"));
        about.map(|note| note.split(" offsets").next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(notes(&|_| {}), Vec::<String>::new());
    assert_eq!(notes(&|samples| samples[40].disturbed = true), ["1 of 105"]);
    assert_eq!(notes(&|samples| samples[40].offset_ns = f64::NAN), ["1 of 105"]);
    let both = notes(&|samples| {
        samples[40].offset_ns = f64::NAN;
        samples[50].disturbed = true;
        samples[51].disturbed = true;
    });
    assert_eq!(both, ["2 of 105", "1 of 103"]);
}

#[test]
fn steps_are_noted_by_who_saw_them() {
    let [still, stepped] = [0.0, 2e6].map(|step_ns| Simulated { count: 40, amplitude_ns: 0.0, step_ns });
    let check = |markers: Vec<ClockPair>, offsets: &Offsets, expected: Option<&str>| {
        let clock = node_clock(&facts(markers), offsets, 1, None, Timeline::Host).expect("a map");
        let found: Vec<String> = clock.notes.into_iter().filter(|note| note.contains("steps")).collect();
        assert_eq!(found.len(), usize::from(expected.is_some()), "{found:?}");
        assert!(expected.is_none_or(|expected| found[0].starts_with(expected)), "{found:?}");
    };
    check(vec![], &table(&still), None);
    check(still.markers(), &table(&still), None);
    check(
        stepped.markers(),
        &table(&stepped),
        Some("1 steps of the system clock, visible in pairs and in offsets, are"),
    );
    check(stepped.markers(), &table(&still), Some("1 steps in the pairs have no counterpart in the offsets"));
    check(vec![], &table(&stepped), Some("1 steps in the offsets, but no pairs to locate them"));
}

#[test]
fn uncertainty_is_that_of_the_middle_and_of_the_worst_place() {
    for sample_s in [0, 8] {
        let mut offsets = Offsets::new("offsets", Axis::Reference);
        let at_ns = EPOCH_NS + sample_s * 1_000_000_000;
        let sample = OffsetSample {
            drift_ppm: Some(0.0),
            sigma_ns: Some(5.0),
            drift_sigma_ppm: Some(1.0),
            ..OffsetSample::bare(at_ns, 0.0)
        };
        offsets.nodes.insert(1, vec![sample]);
        let start = i128::from(EPOCH_NS) * 1000;
        let trace = TraceFacts { span: Some((start, start + 8 * SECOND_PS)), ..TraceFacts::default() };
        let clock = node_clock(&trace, &offsets, 1, None, Timeline::Host).expect("a map");
        let sigma = |second: i128| clock.chain.map(start + second * SECOND_PS).sigma_ns;
        let stated = clock.uncertainty.expect("there are events");
        assert!(sigma(4) > sigma(i128::from(sample_s)) && sigma(8 - i128::from(sample_s)) > sigma(4));
        assert_eq!((stated.middle_ns, stated.largest_ns), (sigma(4), sigma(8 - i128::from(sample_s))));
    }
}

#[test]
fn only_times_on_the_files_own_clock_are_early_by_the_markers_delay() {
    let offsets = Offsets::new("offsets", Axis::Reference);
    let boot = 3_601_000_000_000_000i128;
    let plane =
        probe_sync_formats::model::PlaneSpan { plane: "/device:GPU:0".to_owned(), span: (boot, boot + 1_000_000) };
    let session = Some((i128::from(EPOCH_NS) * 1000, i128::from(EPOCH_NS) * 1000 + 1_800_000_000_000));
    let markers = Simulated { count: 40, amplitude_ns: 0.0, step_ns: 0.0 }.markers();
    let trace = TraceFacts { since_boot: vec![plane], session, ..facts(markers) };
    let pairs = given(boottime_pairs());
    let clock = node_clock(&trace, &offsets, 0, Some(&pairs), Timeline::Host).expect("a map");
    assert_eq!(clock.look(boot).early_by_ns, 0.0, "its pairs are bracketed");
    assert_eq!(clock.look(UNIX_TIME_MIN_PS - 1).early_by_ns, 0.0);
    assert_eq!(clock.look(i128::from(EPOCH_NS) * 1000).early_by_ns, 40_000.0);
}

#[test]
fn too_few_markers_are_named_and_left_out() {
    let offsets = Offsets::new("offsets", Axis::Reference);
    let two = Simulated { count: 40, amplitude_ns: 0.0, step_ns: 0.0 }.markers()[..2].to_vec();
    let few = node_clock(&facts(two), &offsets, 0, None, Timeline::Host).expect("a map");
    assert_eq!(few.tie, Tie::Assumed);
    assert!(few.notes.iter().any(|note| note.contains("too few")), "{:?}", few.notes);
}

/// The real sets of `../shared/data`, whose clocks are known exactly.
mod data_sets {
    use std::path::Path;

    use serde::Deserialize;

    use super::super::*;
    use probe_sync_formats::testing::folder;

    /// `truth.json` of one node; these sets have neither wander nor steps.
    #[derive(Deserialize)]
    struct Truth {
        t0_ns: i64,
        off_ns: f64,
        ppm: f64,
        amp_ns: f64,
        step_ns: f64,
    }

    impl Truth {
        fn of(folder: &Path, node: u32) -> Self {
            let text = std::fs::read_to_string(folder.join("truth.json")).expect("truth.json");
            let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            let truth: Self = serde_json::from_value(all["nodes"][node.to_string()].clone()).expect("a node's clock");
            assert_eq!((truth.amp_ns, truth.step_ns), (0.0, 0.0));
            truth
        }

        /// What the node's clock shows at true time t, ps.
        fn shows_ps(&self, t_ns: i64) -> i128 {
            let error_ns = self.off_ns + self.ppm * 1e-6 * (t_ns - self.t0_ns) as f64;
            i128::from(t_ns) * 1000 + (error_ns * 1000.0).round() as i128
        }
    }

    /// A row of `clock_nodeK.json`.
    #[derive(Deserialize)]
    struct Snapshot {
        true_ns: i64,
        node_realtime_ns: i64,
        node_monotonic_raw_ns: i64,
        win: f64,
    }

    fn snapshots(folder: &Path, node: u32) -> Vec<Snapshot> {
        let text = std::fs::read_to_string(folder.join(format!("clock_node{node}.json"))).expect("clock file");
        let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        serde_json::from_value(all["snapshots"].clone()).expect("snapshots")
    }

    #[test]
    fn exact_offsets_reproduce_the_true_clocks() {
        for name in ["jax/b_4node_offset_drift", "torch/b_4node_offset_drift"] {
            let Some(folder) = folder(name) else { return };
            let offsets = Offsets::read(&folder.join("offsets.csv")).expect("offsets");
            for node in 0..4 {
                let truth = Truth::of(&folder, node);
                let clock = node_clock(&TraceFacts::default(), &offsets, node, None, Timeline::Host).expect("a map");
                let rows = &offsets.nodes[&node];
                let true_at = |k: usize| rows[k].at_ns - rows[k].offset_ns as i64;
                let (from, until) = (true_at(0), true_at(rows.len() - 1));
                let mut worst = 0;
                for k in 0..=1000 {
                    let time = from + (until - from) / 1000 * k;
                    let found = clock.chain.map(truth.shows_ps(time));
                    worst = worst.max((found.time_ps - i128::from(time) * 1000).abs());
                    assert!(!found.clamped);
                }
                assert!(worst <= 1000, "{name} node {node}: {worst} ps");
            }
        }
    }

    #[test]
    fn a_raw_clock_is_tied_to_the_true_one_by_bracketed_pairs() {
        for name in ["jax/b_4node_offset_drift", "torch/b_4node_offset_drift"] {
            let Some(folder) = folder(name) else { return };
            let offsets = Offsets::read(&folder.join("offsets.csv")).expect("offsets");
            for node in 0..4 {
                let rows = snapshots(&folder, node);
                let raw_ps = |row: &Snapshot| i128::from(row.node_monotonic_raw_ns) * 1000;
                let pairs: Vec<ClockPair> = rows
                    .iter()
                    .map(|row| ClockPair {
                        tracer_ps: raw_ps(row),
                        system_ns: row.node_realtime_ns,
                        kind: PairKind::Bracketed(row.win),
                    })
                    .collect();
                let pairs = Snapshots { pairs, ..Snapshots::default() };
                let clock =
                    node_clock(&TraceFacts::default(), &offsets, node, Some(&pairs), Timeline::Host).expect("a map");
                for row in &rows {
                    // Readings are good to half of their bracket.
                    let error = clock.chain.map(raw_ps(row)).time_ps - i128::from(row.true_ns) * 1000;
                    assert!(error.abs() as f64 * 1e-3 < 0.5 * row.win + 100.0, "{name} node {node}: {error} ps");
                }
            }
        }
    }
}

#[test]
fn pairs_of_a_day_away_are_the_last_that_are_of_the_trace() {
    let span = (5 * DAY_PS, 6 * DAY_PS);
    let at = |tracer_ps| [ClockPair { tracer_ps, system_ns: 0, kind: PairKind::Bracketed(100.0) }];
    let elsewhere =
        [4 * DAY_PS, 4 * DAY_PS - 1, 7 * DAY_PS, 7 * DAY_PS + 1].map(|tracer| is_elsewhere(&at(tracer), span));
    assert_eq!(elsewhere, [false, true, false, true]);
}

#[test]
fn the_span_of_a_trace_is_moved_by_what_its_pairs_say() {
    // The tracer's clock is 3 s behind at one pair and 5 s at the other.
    let pair = |tracer_ns: i64, ahead_ns: i64| ClockPair {
        tracer_ps: i128::from(tracer_ns) * 1000,
        system_ns: tracer_ns + ahead_ns,
        kind: PairKind::Bracketed(100.0),
    };
    let second = 1_000_000_000;
    let trace = facts(vec![pair(EPOCH_NS, 3 * second), pair(EPOCH_NS + 1000 * second, 5 * second)]);
    // 1.8 s of events.
    let span = own_span(&trace, None).expect("events");
    assert_eq!(
        (span.first_ns, span.last_ns),
        (i128::from(EPOCH_NS + 3 * second), i128::from(EPOCH_NS + 6_800_000_000))
    );
}

#[test]
fn a_trace_without_events_assumes_nothing_of_its_times() {
    let simulated = Simulated { count: 40, amplitude_ns: 0.0, step_ns: 0.0 };
    let notes =
        |trace: &TraceFacts| node_clock(trace, &table(&simulated), 1, None, Timeline::Host).expect("a map").notes;
    let assumed = |notes: Vec<String>| {
        notes.iter().any(|note| note.contains("assuming that the trace's times are CLOCK_REALTIME"))
    };
    assert!(assumed(notes(&facts(vec![]))));
    assert!(!assumed(notes(&TraceFacts::default())));
}
