//! Lines of smoothed runs of two nodes whose clocks are known.

use probe_sync_lines::{
    ClockBreak, ClockEvent, Culprit, EdgeFit, Fault, FaultKind, Findings, NodeEstimate, NodeWindow, OffsetRecord,
    StepRecord,
};
use probe_sync_time::{Duration, Edge, Exchange, NodeId, RoundId, StampSource, Timestamp};

use super::*;
use crate::round::{SolvedRound, Solver, SolverOptions};
use crate::series::{Axis, KnownBreaks, OffsetSample, Step, TimeMap};

const NS_PER_S: f64 = 1e9;

/// Rounds of two nodes; node 1 is ahead by `offset_ns(t)`, t in seconds, and its line of each round
/// is exact.
fn rounds(ids: &[u64], middle_s: impl Fn(u64) -> f64, offset_ns: impl Fn(f64) -> f64) -> Vec<SolvedRound> {
    let options = SolverOptions::new(2, NodeId(0));
    let mut solver = Solver::new(options);
    let round = |id: &u64| {
        let middle = middle_s(*id);
        let middle_ns = (middle * NS_PER_S) as i64;
        let rate = (offset_ns(middle + 0.01) - offset_ns(middle - 0.01)) / 0.02;
        let beta = offset_ns(middle);
        let edge = EdgeFit {
            src_node_id: NodeId(0),
            dst_node_id: NodeId(1),
            midpoint: Timestamp::from_ns(middle_ns),
            alpha: rate / NS_PER_S,
            beta,
            pairs_count: 500,
            lost_count: 0,
            covariance: [25.0, 0.0, 1e-16],
            margin_ns: 1_000.0,
            bound_lo_ns: beta - 1_000.0,
            bound_hi_ns: beta + 1_000.0,
            alpha_bounds: [-1e-4, 1e-4],
            feasible: true,
            purity: 1.0,
            stamp: StampSource::Kernel,
            stamp_errors_ns: [0.0; 2],
        };
        let window = serde_json::json!({
            "node_id": 0, "window_id": id, "round_id": id, "edges": [edge], "stop_requested": false,
            "window_start_ns": middle_ns - 500_000_000, "window_end_ns": middle_ns + 500_000_000,
        });
        let window: NodeWindow = serde_json::from_value(window).expect("a line of windows/node0.jsonl");
        solver.solve(RoundId(*id), &window, std::slice::from_ref(&window)).expect("two nodes")
    };
    ids.iter().map(round).collect()
}

fn swing(t: f64) -> f64 {
    3e6 + 2_000.0 * (t / 4.0).sin()
}

#[test]
fn knots_lie_on_the_curve_inside_their_hard_intervals() {
    let smoothed = Smoothed::new(
        &SolverOptions::new(2, NodeId(0)),
        rounds(&[0, 1, 2, 3, 4, 5, 6, 7], |id| id as f64, swing),
        None,
    );
    let knots = smoothed.knots(Duration::from_ms(125), 2).expect("not many");
    let lines: Vec<OffsetRecord> = smoothed.knot_lines(knots).collect();
    assert_eq!(lines.len(), 2 * 8 * 8, "eight rounds of a second");
    for (number, line) in lines.iter().enumerate() {
        let middle_ns = line.window_start.midpoint(line.window_end).as_ns();
        assert_eq!(line.window_id, number as u64 / 2);
        assert_eq!(line.round_id.0, number as u64 / 16, "each knot is in the round that it lies in");
        assert_eq!(middle_ns, -437_500_000 + 125_000_000 * (number as i64 / 2));
        let expected = if line.estimate.node_id == NodeId(1) { swing(middle_ns as f64 / NS_PER_S) } else { 0.0 };
        let NodeEstimate { offset_ns, bound_lo_ns, bound_hi_ns, sigma_ns, reachable, .. } = line.estimate;
        assert!((offset_ns - expected).abs() <= 20.0, "{offset_ns} instead of {expected} at {middle_ns}");
        assert!(bound_lo_ns <= expected && expected <= bound_hi_ns, "{expected} outside of {line:?}");
        assert!(bound_hi_ns - bound_lo_ns < 10_000.0 && sigma_ns < 1_000.0 && reachable, "{line:?}");
    }
}

#[test]
fn a_step_leaves_no_knots_between_the_rounds_around_it() {
    let stepped = |t: f64| if t < 3.2 { 0.0 } else { 50_000.0 };
    let mut rounds = rounds(&[0, 1, 2, 3, 4, 5, 6], |id| id as f64, stepped);
    // Whatever the watch made of it, the verdict of round 5 is that round 4 was the first after a
    // step.
    for round in &mut rounds {
        round.data.watch = Findings::default();
    }
    let step = ClockBreak { node: NodeId(1), round: RoundId(4) };
    rounds[5].data.watch.breaks = vec![step, step];
    let smoothed = Smoothed::new(&SolverOptions::new(2, NodeId(0)), rounds, None);
    assert_eq!(smoothed.breaks, 1, "one step, told twice");
    let knots = smoothed.knots(Duration::from_ms(100), 2).expect("not many");
    for line in smoothed.knot_lines(knots).filter(|line| line.estimate.node_id == NodeId(1)) {
        let middle = line.window_start.midpoint(line.window_end).as_ns() as f64 / NS_PER_S;
        let gap = middle > 3.0 && middle < 4.0;
        assert_eq!((line.clock_disturbed, line.estimate.reachable), (gap, !gap), "{middle} s");
        let wrong = (line.estimate.offset_ns - stepped(middle)).abs();
        assert!(gap || wrong < 20.0, "{wrong} ns at {middle} s");
    }
}

#[test]
fn missing_and_misplaced_rounds_are_survived() {
    // Round 2 is missing, and the reference is set back by two seconds before round 5.
    let set_back = |id: u64| if id < 5 { id as f64 } else { id as f64 - 2.0 };
    let mut rounds = rounds(&[0, 1, 3, 4, 5, 6, 7, 8], set_back, |_| 700.0);
    for round in &mut rounds {
        round.data.watch = Findings::default();
    }
    rounds[2].data.watch.breaks = vec![ClockBreak { node: NodeId(1), round: RoundId(2) }];
    let smoothed = Smoothed::new(&SolverOptions::new(2, NodeId(0)), rounds, None);
    assert_eq!(smoothed.unsmoothed().collect::<Vec<RoundId>>(), [RoundId(5), RoundId(6)]);
    assert_eq!(smoothed.round_lines().count(), 2 * 8);
    for line in smoothed.round_lines().filter(|line| line.estimate.node_id == NodeId(1)) {
        assert!((line.estimate.offset_ns - 700.0).abs() < 20.0, "{line:?}");
    }
}

#[test]
fn too_many_knots_are_refused() {
    let smoothed = Smoothed::new(&SolverOptions::new(2, NodeId(0)), rounds(&[0, 7_000], |id| id as f64, |_| 0.0), None);
    for (spacing, nodes, fits) in [
        (Duration::from_ms(1), 1, true),
        (Duration::from_ms(1), 2, false),
        (Duration::from_ms(2), 2, true),
        (Duration::from_us(999), 1, false),
        (Duration::from_ms(-5), 1, false),
    ] {
        let knots = smoothed.knots(spacing, nodes);
        assert_eq!(knots.is_ok(), fits, "{spacing:?} for {nodes} nodes: {knots:?}");
    }
}

/// Offset of the line at `at` between written lines of a node, joined by straight lines; and the
/// smaller sigma of both.
fn joined(lines: &[&OffsetRecord], at_ns: f64) -> Option<(f64, f64)> {
    let middle = |line: &OffsetRecord| line.window_start.midpoint(line.window_end).as_ns() as f64;
    let next = lines.partition_point(|line| middle(line) <= at_ns);
    let [a, b] = [lines.get(next.checked_sub(1)?)?, lines.get(next)?];
    let share = (at_ns - middle(a)) / (middle(b) - middle(a));
    let offset = a.estimate.offset_ns + share * (b.estimate.offset_ns - a.estimate.offset_ns);
    Some((offset, a.estimate.sigma_ns.min(b.estimate.sigma_ns)))
}

fn without_faults(mut rounds: Vec<SolvedRound>) -> Vec<SolvedRound> {
    for round in &mut rounds {
        round.data.watch = Findings::default();
        round.data.all_nodes[1].bound_lo_ns = f64::NEG_INFINITY;
        round.data.all_nodes[1].bound_hi_ns = f64::INFINITY;
    }
    rounds
}

#[test]
fn straight_lines_between_sufficient_lines_add_a_tenth_of_sigma_from_the_first_packet_to_the_last() {
    let onset = |t: f64| 1e5 + 200.0 * ((t - 4.0).max(0.0) - 15.0 * (1.0 - (-(t - 4.0).max(0.0) / 15.0).exp()));
    let turn = std::f64::consts::TAU / 20.0;
    let curves: [(&str, &dyn Fn(f64) -> f64); 5] = [
        ("straight", &|t| 3e6 + 4e3 * t),
        ("onset", &onset),
        ("slow", &|t| 5e3 * (turn / 3.0 * t + 1.0).sin()),
        ("wide", &|t| 5e4 * (turn * t).sin()),
        ("wide, later", &|t| 5e4 * (turn * t + 2.0).sin()),
    ];
    for (name, curve) in curves {
        let rounds = rounds(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], |id| id as f64, curve);
        let smoothed = Smoothed::new(&SolverOptions::new(2, NodeId(0)), without_faults(rounds), None);
        let (knots, share) = smoothed.sufficient_knots();
        let count = knots.count();
        let lines: Vec<OffsetRecord> = smoothed.knot_lines(knots).collect();
        assert_eq!((share, lines.len() as u64), (1.0, 2 * count));
        assert!((count > 60) == name.starts_with("wide"), "{name}: {count} lines");
        let own: Vec<&OffsetRecord> = lines.iter().filter(|line| line.estimate.node_id == NodeId(1)).collect();
        let ends = [own[0], own[own.len() - 1]].map(|line| line.window_start.midpoint(line.window_end).as_ns());
        assert_eq!(ends, [-500_000_000, 11_500_000_000], "the first window's start, the last one's end");
        for at_ns in (ends[0]..ends[1]).step_by(7_000_000) {
            let (straight, sigma) = joined(&own, at_ns as f64).expect("between lines");
            let smooth = smoothed.at(NodeId(1), Timestamp::from_ns(at_ns)).expect("smoothed").offset_ns;
            assert!((straight - smooth).abs() <= 0.1 * sigma + 0.1, "{name} {at_ns}: {straight} {smooth} {sigma}");
            let wrong = straight - curve(at_ns as f64 / NS_PER_S);
            assert!(wrong.abs() <= 4.1 * sigma + 0.2 && wrong.abs() < 150.0, "{name} {at_ns}: {wrong} under {sigma}");
        }
        let fields = own.iter().all(|line| line.wander.is_some() && line.offset_drift_covariance.is_some());
        assert!(fields && own.iter().all(|line| line.estimate.reachable), "{name}");
    }
}

#[test]
fn no_more_lines_than_may_be() {
    // Swinging for two hours with 50 ppm: more lines would suffice than there may be.
    let swing = |t: f64| 5e6 * (t * 0.7).sin();
    let smoothed = Smoothed::new(
        &SolverOptions::new(2, NodeId(0)),
        without_faults(rounds(&(0..40).collect::<Vec<_>>(), |id| id as f64 * 180.0, swing)),
        None,
    );
    let (knots, share) = smoothed.sufficient_knots();
    assert!(share <= 1.0 && knots.count() * 2 <= 10_000_100, "{share} {}", knots.count());
    let none = Smoothed::new(&SolverOptions::new(2, NodeId(0)), Vec::new(), None);
    assert_eq!(none.sufficient_knots().0.count(), 0);
}

/// Both nodes' exchanges of a round, 20 ms apart; node 1 is ahead by `offset_ns(t)`.
fn exchanges(middle: f64, offset_ns: impl Fn(f64) -> f64) -> Vec<Exchange> {
    let exchange = |k: i32| {
        let t = middle - 0.49 + 0.02 * f64::from(k);
        let ahead = |t: f64| offset_ns(t).round() as i64;
        let now = (t * NS_PER_S) as i64;
        let late = |n: i64| 3_000 + (i64::from(k) * 7_919 + n * 104_729) % 600;
        let stamps = [
            now,
            now + late(0) + ahead(t),
            now + 1_000,
            now + 1_000 + late(1) + ahead(t),
            now + 40_000 + ahead(t),
            now + 40_000 + late(2),
            now + 41_000 + ahead(t),
            now + 41_000 + late(3),
        ];
        let (edge, stamp) = (Edge::new(0, 1), StampSource::Kernel);
        Exchange { edge, seq: k as u32, stamp, t: stamps.map(Timestamp::from_ns) }
    };
    (0..50).map(exchange).collect()
}

/// A run of eight rounds in which node 1 is stepped at 3.2 s, as the watch names it: into round 4.
fn stepped_run(step_ns: f64) -> (Vec<SolvedRound>, impl Fn(f64) -> f64 + Copy) {
    let stepped = move |t: f64| 2e5 + 4e3 * t + if t < 3.2 { 0.0 } else { step_ns };
    let mut rounds = without_faults(rounds(&[0, 1, 2, 3, 4, 5, 6, 7], |id| id as f64, stepped));
    rounds[5].data.watch.breaks = vec![ClockBreak { node: NodeId(1), round: RoundId(4) }];
    // The line of the step's own round says nothing.
    rounds[3].data.watch.left_out = vec![(RoundId(3), Edge::new(0, 1))];
    rounds[3].data.watch.invalid = vec![NodeId(1)];
    (rounds, stepped)
}

#[test]
fn a_step_is_placed_by_exchanges_and_lines_follow_the_clock_up_to_it() {
    for step_ns in [5_000.0, -5_000.0, 600_000.0, -600_000.0] {
        let (rounds, stepped) = stepped_run(step_ns);
        let all: Vec<Vec<Exchange>> = (0..8).map(|id| exchanges(f64::from(id), stepped)).collect();
        let recorded = |(id, exchanges): (usize, &Vec<Exchange>)| (RoundId(id as u64), exchanges.clone());
        let kept: Vec<(RoundId, Vec<Exchange>)> = all.iter().enumerate().map(recorded).collect();
        let recorded: Vec<Recorded<'_>> = kept
            .iter()
            .map(|(round_id, exchanges)| Recorded { round_id: *round_id, edge: Edge::new(0, 1), exchanges })
            .collect();
        let smoothed = Smoothed::new(&SolverOptions::new(2, NodeId(0)), rounds, Some(&recorded));
        let (knots, _) = smoothed.sufficient_knots();
        let lines: Vec<OffsetRecord> = smoothed.knot_lines(knots).collect();
        assert!(lines.len() < 200, "the step is not followed line by line: {}", lines.len());
        let steps: Vec<(RoundId, StepRecord)> =
            lines.iter().filter_map(|line| Some((line.round_id, line.step?))).collect();
        let [(_, step)] = steps[..] else { panic!("{step_ns}: {steps:?}") };
        let reading = 3_200_000_000 + stepped(3.1999).round() as i64;
        let (before, after) = (reading - step.after.as_ns(), step.before.as_ns() - reading - step_ns as i64);
        assert!((0..41_000_000).contains(&before) && (0..41_000_000).contains(&after), "{step_ns}: {before} {after}");
        for line in lines.iter().filter(|line| line.estimate.node_id == NodeId(1)) {
            let seconds = line.window_start.midpoint(line.window_end).as_ns() as f64 / NS_PER_S;
            let wrong = (line.estimate.offset_ns - stepped(seconds)).abs();
            let near = (seconds - 3.2).abs() < 0.05;
            assert!(near || wrong < 100.0 && line.estimate.reachable && !line.clock_disturbed, "{seconds}: {line:?}");
        }
    }
}

#[test]
fn a_step_is_placed_by_a_clock_event_where_there_are_no_exchanges() {
    let (mut rounds, stepped) = stepped_run(80_000.0);
    let at_ns = 3_310_000_000 + stepped(3.31) as i64;
    let event = ClockEvent { step_ns: 80_000, slew_ppm: 0.0, at: Timestamp::from_ns(at_ns), step_between: None };
    rounds[3].data.clock_events = vec![(NodeId(1), event)];
    let smoothed = Smoothed::new(&SolverOptions::new(2, NodeId(0)), rounds, None);
    let (knots, _) = smoothed.sufficient_knots();
    let lines: Vec<OffsetRecord> = smoothed.knot_lines(knots).collect();
    let step = lines.iter().find_map(|line| line.step).expect("told");
    assert_eq!(step, StepRecord::of_event(&event).expect("a step"));
    for line in lines.iter().filter(|line| line.estimate.node_id == NodeId(1)) {
        let seconds = line.window_start.midpoint(line.window_end).as_ns() as f64 / NS_PER_S;
        let wrong = (line.estimate.offset_ns - stepped(seconds)).abs();
        let near = (3.0..3.32).contains(&seconds);
        assert!(near || wrong < 100.0 && line.estimate.reachable, "{seconds}: {line:?}");
    }
}

#[test]
fn the_lines_of_a_round_say_what_must_travel() {
    let mut rounds = without_faults(rounds(&[0, 1, 2, 3], |id| id as f64, |_| 0.0));
    let event =
        |step_ns, slew_ppm| ClockEvent { step_ns, slew_ppm, at: Timestamp::from_ns(2_000_000_000), step_between: None };
    rounds[2].data.clock_events = vec![(NodeId(0), event(0, 3.0)), (NodeId(1), event(-70, -4.0))];
    rounds[2].data.watch.breaks = vec![ClockBreak { node: NodeId(0), round: RoundId(1) }];
    let lines: Vec<OffsetRecord> = OffsetRecord::of_round(&rounds[2].data).collect();
    assert_eq!(lines.iter().map(|line| line.slew_ppm).collect::<Vec<_>>(), [3.0, 7.0], "of both clocks");
    assert_eq!(
        lines.iter().map(|line| line.broken_into).collect::<Vec<_>>(),
        [Some(RoundId(1)); 2],
        "the reference's is everybody's"
    );
    // Over at 2 s; 300 ms before it the clock showed 70 ns more than that.
    let step = StepRecord { after: Timestamp::from_ns(1_700_000_070), before: Timestamp::from_ns(2_000_000_000) };
    assert_eq!(lines.iter().map(|line| line.step).collect::<Vec<_>>(), [None, Some(step)]);
    // Packets told closer.
    let [after, before] = [1_990_000_000, 1_995_000_000].map(Timestamp::from_ns);
    rounds[2].data.clock_events[1].1.step_between = Some([after, before]);
    let closer = OffsetRecord::of_round(&rounds[2].data).nth(1).and_then(|line| line.step);
    assert_eq!(closer, Some(StepRecord { after, before }));
    assert!(lines.iter().all(|line| line.clock_disturbed));
    let text = serde_json::to_string(&lines[1]).expect("our own type");
    assert!(
        text.starts_with("{\"round_id\":2,\"window_id\":2,\"window_start_ns\":") && text.contains("\"converged\":true"),
        "{text}"
    );
    assert_eq!(serde_json::from_str::<OffsetRecord>(&text).expect("our own text"), lines[1]);
    let quiet = serde_json::to_string(&OffsetRecord::of_round(&rounds[0].data).nth(1)).expect("our own type");
    assert!(!quiet.contains("slew_ppm") && !quiet.contains("step") && !quiet.contains("broken_into"), "{quiet}");
}

/// What the reference, set back by `back` s at 3.2 s, shows at a true time; and a node that runs
/// on, 4 ppm fast.
fn set_back(t: f64, back: f64) -> [f64; 2] {
    [if t < 3.2 { t } else { t - back }, t + 2e-4 + 4e-6 * t]
}

/// A run of eight rounds in which the reference is set back, which its watch sees, and all its
/// exchanges.
fn set_back_run(back: f64) -> Smoothed {
    let middle = |id: u64| set_back(id as f64, back)[0];
    // Of the time on the reference's clock; its rounds are on different sides of 3.1 s.
    let offset = |shown: f64| {
        let t = if shown < 3.1 { shown } else { shown + back };
        let [_, node] = set_back(t, back);
        (node - shown) * NS_PER_S
    };
    let mut rounds = without_faults(rounds(&[0, 1, 2, 3, 4, 5, 6, 7], middle, offset));
    rounds[5].data.watch.breaks = vec![ClockBreak { node: NodeId(1), round: RoundId(4) }];
    let culprit = Culprit::Node(NodeId(0));
    let (began, round) = (RoundId(4), RoundId(5));
    let fault = Fault { kind: FaultKind::Step, culprit, size: -back * NS_PER_S, began, round };
    rounds[5].data.watch.faults = vec![fault];
    rounds[3].data.watch.left_out = vec![(RoundId(3), Edge::new(0, 1))];
    rounds[3].data.watch.invalid = vec![NodeId(0)];
    let exchange = |k: i32, t: f64| {
        let late = |n: i64| 3e-6 + ((i64::from(k) * 7_919 + n * 104_729) % 600) as f64 * 1e-9;
        let at = |node: usize, t: f64| Timestamp::from_ns((set_back(t, back)[node] * NS_PER_S).round() as i64);
        let there = [at(0, t), at(1, t + late(0)), at(0, t + 1e-6), at(1, t + 1e-6 + late(1))];
        let back = [at(1, t + 4e-5), at(0, t + 4e-5 + late(2)), at(1, t + 4.1e-5), at(0, t + 4.1e-5 + late(3))];
        let [a, b, c, d, e, f, g, h] = [there, back].concat().try_into().expect("eight");
        Exchange { edge: Edge::new(0, 1), seq: k as u32, stamp: StampSource::Kernel, t: [a, b, c, d, e, f, g, h] }
    };
    let of_round = |id: i32| (0..50).map(|k| exchange(k, f64::from(id) - 0.49 + 0.02 * f64::from(k))).collect();
    let kept: Vec<Vec<Exchange>> = (0..8).map(of_round).collect();
    let recorded: Vec<Recorded<'_>> = (0..)
        .zip(&kept)
        .map(|(id, exchanges)| Recorded { round_id: RoundId(id), edge: Edge::new(0, 1), exchanges })
        .collect();
    Smoothed::new(&SolverOptions::new(2, NodeId(0)), rounds, Some(&recorded))
}

/// A node's lines as they are read for the alignment of a trace.
fn map_of(lines: &[OffsetRecord], node: NodeId) -> TimeMap {
    let own = lines.iter().filter(|line| line.estimate.node_id == node && line.estimate.reachable);
    let sample = |line: &OffsetRecord| OffsetSample {
        drift_ppm: Some(line.estimate.drift_ppm),
        sigma_ns: Some(line.estimate.sigma_ns),
        drift_sigma_ppm: Some(line.estimate.drift_sigma_ppm),
        offset_drift_covariance: line.offset_drift_covariance,
        wander: line.wander,
        disturbed: line.clock_disturbed,
        round: Some(line.round_id.0),
        ..OffsetSample::bare(line.window_start.midpoint(line.window_end).as_ns(), line.estimate.offset_ns)
    };
    let samples: Vec<OffsetSample> = own.map(sample).collect();
    let step = |line: &OffsetRecord| line.step.filter(|_| line.estimate.node_id == NodeId(0));
    let seen = |step: StepRecord| Step { after_ns: step.after.as_ns(), before_ns: step.before.as_ns() };
    let of_reference = lines.iter().filter_map(step).map(seen).collect();
    let known = KnownBreaks { of_reference, ..KnownBreaks::default() };
    TimeMap::from_offsets(&samples, Axis::Reference, &known).expect("usable").map
}

#[test]
fn a_reference_that_is_set_back_leaves_no_wrong_time_under_a_small_error() {
    for back in [30e-6, 5e-3, 0.05, 0.3, 0.7] {
        let smoothed = set_back_run(back);
        let (knots, _) = smoothed.sufficient_knots();
        let lines: Vec<OffsetRecord> = smoothed.knot_lines(knots).collect();
        let steps: Vec<(NodeId, StepRecord)> =
            lines.iter().filter_map(|line| Some((line.estimate.node_id, line.step?))).collect();
        let [(NodeId(0), step)] = steps[..] else { panic!("{back} s: {steps:?}") };
        let [before, after] =
            [3_200_000_000 - step.after.as_ns(), step.before.as_ns() - 3_200_000_000 + (back * 1e9) as i64];
        assert!((0..21_000_000).contains(&before) && (0..21_000_000).contains(&after), "{back} s: {step:?}");
        // Lines of times that the reference showed twice follow the clock of before up to the step,
        // and of after from there.
        for line in lines.iter().filter(|line| line.estimate.node_id == NodeId(1) && line.estimate.reachable) {
            let shown = line.window_start.midpoint(line.window_end).as_ns() as f64 / NS_PER_S;
            let wrong = |t: f64| line.estimate.offset_ns - (set_back(t, back)[1] - shown) * NS_PER_S;
            let [first, second] = [wrong(shown).abs(), wrong(shown + back).abs()];
            let either = (3.2 - back - 0.05..3.25).contains(&shown);
            let off = if either {
                first.min(second)
            } else if shown < 3.2 {
                first
            } else {
                second
            };
            assert!(off < 100.0, "{back} s: off by {off} at {shown}");
        }
        let map = map_of(&lines, NodeId(1));
        let mut held = 0;
        for at_ms in -400..7_300 {
            let t = f64::from(at_ms) * 1e-3;
            let [shown, node] = set_back(t, back).map(|s| (s * NS_PER_S).round() as i128 * 1000);
            let mapped = map.map(node);
            let wrong_ns = (mapped.time_ps - shown).abs() as f64 * 1e-3;
            assert!(wrong_ns <= 4.0 * mapped.sigma_ns + 100.0, "{back} s: {t}: off by {wrong_ns} under {mapped:?}");
            held += i32::from(mapped.clamped);
            // A time between two exchanges and no longer: what lies further from the step is exact,
            // or held back and says so.
            let near = (3.175..3.225).contains(&t);
            assert!(near || mapped.clamped || wrong_ns < 100.0, "{back} s: {t}: off by {wrong_ns}");
            assert!(near || mapped.clamped || mapped.sigma_ns < 500.0, "{back} s: {t}: {mapped:?}");
        }
        assert!(held <= (back * 1e3) as i32 + 25, "{back} s: {held} ms are held back");
    }
}

#[test]
fn no_more_knots_than_there_is_room_for() {
    let smoothed = Smoothed::new(
        &SolverOptions::new(2, NodeId(0)),
        without_faults(rounds(&(0..40).collect::<Vec<_>>(), |id| id as f64, swing)),
        None,
    );
    let (all, share) = smoothed.sufficient_knots();
    assert_eq!(share, 1.0);
    // 40 midpoints and both ends are fixed.
    for (lines, most) in [(2 * all.count() as usize, all.count()), (100, 50), (84, 42), (20, 10), (5, 2)] {
        let (knots, share) = smoothed.knots_within(lines);
        assert!(knots.count() <= most && knots.count() + 8 >= most.min(all.count()), "{lines}: {}", knots.count());
        assert!((share < 1.0) == (knots.count() < all.count()), "{lines}: {share}");
        let stated = knots.count() as f64 / all.count() as f64;
        assert!((share - stated).abs() < 0.02, "{lines}: {share} instead of {stated}");
        assert_eq!([knots.at(0), knots.at(knots.count() - 1)], [all.at(0), all.at(all.count() - 1)], "{lines}");
    }
}

#[test]
fn a_step_of_the_reference_is_one_gap_for_all() {
    let smoothed = set_back_run(5e-3);
    assert_eq!(smoothed.gaps.len(), 1);
    let own = |node: u32| smoothed.gaps.own(NodeId(node)).count();
    assert_eq!((own(0), own(1)), (1, 0));
    assert!([0, 1].iter().all(|node| smoothed.gaps.of(NodeId(*node)).count() == 1), "and concerns everybody");
}
