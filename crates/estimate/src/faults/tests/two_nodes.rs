//! Two nodes: what one edge shows may be the doing of either, and only the nodes' own watches tell.

use super::*;

const BOTH: [NodeId; 2] = [NodeId(0), NodeId(1)];

#[track_caller]
fn check(what: &str, change: Change, expected: &[(FaultKind, Culprit, u64)]) -> Vec<Findings> {
    let mut last = Vec::new();
    for seed in 0..8 {
        last = watched_over(2, &[(0, 1)], seed, change);
        assert_eq!(named(&last), expected, "{what}, seed {seed}");
    }
    last
}

/// Node `NODE` jumps by `NS` before the round after [`BEGIN`]: within it.
fn jumps<const NODE: u32, const NS: i64>(round: u64, node: u32) -> f64 {
    if node == NODE && round > BEGIN { NS as f64 } else { 0.0 }
}

fn broken<const NODE: u32>(round: u64, edge: &mut EdgeFit) -> bool {
    if round == BEGIN {
        broken_window(edge, NODE, 1e7);
    }
    true
}

fn sees<const NODE: u32>(round: u64) -> Vec<(NodeId, ClockEvent)> {
    if round == BEGIN { vec![event(NODE, 10_000_000, 0.0)] } else { Vec::new() }
}

#[test]
fn who_saw_the_own_step_is_named() {
    let reference = Change {
        offset: Some(jumps::<0, 10_000_000>),
        edge: Some(broken::<0>),
        events: Some(sees::<0>),
        ..Change::default()
    };
    let verdicts = check("the reference sees it", reference, &[(FaultKind::Step, node(0), BEGIN)]);
    assert_eq!(broken_into(&verdicts), [(1, BEGIN)], "seen from the reference the other does not go on");
    let size = verdicts.iter().flat_map(|findings| &findings.faults).next().map_or(0.0, |fault| fault.size);
    assert!((size - 1e7).abs() < 1e3, "the reference jumped ahead, not {size} ns");
    let between = Change { edge: None, ..reference };
    check("between its windows", between, &[(FaultKind::Step, node(0), BEGIN)]);
    let other = Change {
        offset: Some(jumps::<1, 10_000_000>),
        edge: Some(broken::<1>),
        events: Some(sees::<1>),
        ..Change::default()
    };
    check("the other sees it", other, &[(FaultKind::Step, node(1), BEGIN)]);
}

#[test]
fn a_watch_that_looks_late_names_the_right_one_too() {
    // The window's packets prove the step in its own round, the watch sees it in the next.
    let late = Change {
        offset: Some(jumps::<0, 10_000_000>),
        edge: Some(broken::<0>),
        events: Some(|round| if round == BEGIN + 1 { vec![event(0, 10_000_000, 0.0)] } else { Vec::new() }),
        ..Change::default()
    };
    check("a round late", late, &[(FaultKind::Step, node(0), BEGIN)]);
}

#[test]
fn what_nobody_saw_is_said_of_neither() {
    let either = || Culprit::Nodes(BOTH.to_vec());
    let unseen = Change { offset: Some(jumps::<0, 10_000_000>), edge: Some(broken::<0>), ..Change::default() };
    let verdicts = check("the reference", unseen, &[(FaultKind::Step, either(), BEGIN)]);
    assert_eq!(broken_into(&verdicts), [(1, BEGIN)]);
    assert!(verdicts[BEGIN as usize].left_out.contains(&(RoundId(BEGIN), Edge::new(0, 1))));
    let said = verdicts.iter().flat_map(|findings| &findings.faults).next().expect("named").to_string();
    assert_eq!(said.split(" by ").next(), Some("round 6: the clocks of nodes 0 and 1 stepped apart"), "{said}");
    assert!(said.ends_with("it is unclear which of the two changed"), "{said}");
    let other = Change { offset: Some(jumps::<1, 10_000_000>), edge: Some(broken::<1>), ..Change::default() };
    check("the other", other, &[(FaultKind::Step, either(), BEGIN)]);
    let there_and_back = Change { offset: None, ..unseen };
    check("back again", there_and_back, &[(FaultKind::Glitch, either(), BEGIN)]);
}

#[test]
fn both_are_named_where_both_saw_it() {
    let change = Change {
        offset: Some(|round, node| jumps::<0, 10_000_000>(round, node) + jumps::<1, 3_000_000>(round, node)),
        edge: Some(broken::<0>),
        events: Some(|round| {
            if round == BEGIN { vec![event(0, 10_000_000, 0.0), event(1, 3_000_000, 0.0)] } else { Vec::new() }
        }),
        ..Change::default()
    };
    check("both", change, &[(FaultKind::Step, node(0), BEGIN), (FaultKind::Step, node(1), BEGIN)]);
}

/// Node 0 gains 2 µs/s from [`BEGIN`] on.
fn gains(round: u64, node: u32) -> f64 {
    if node == 0 && round >= BEGIN { 2_000.0 * WINDOW_S * ((round - BEGIN) as f64 + 0.5) } else { 0.0 }
}

#[test]
fn a_rate_that_changes_is_his_who_saw_it() {
    let unseen = Change {
        offset: Some(gains),
        edge: Some(|round, edge| {
            if round >= BEGIN {
                turn(edge, 0, 2_000.0);
            }
            true
        }),
        ..Change::default()
    };
    let verdicts = check("unseen", unseen, &[(FaultKind::RateJump, Culprit::Nodes(BOTH.to_vec()), BEGIN)]);
    let said = verdicts.iter().flat_map(|findings| &findings.faults).next().expect("named").to_string();
    assert!(said.starts_with("round 6: the rates of nodes 0 and 1 diverged by -2."), "{said}");
    let seen =
        Change { events: Some(|round| if round == BEGIN { vec![event(0, 0, 2.0)] } else { Vec::new() }), ..unseen };
    let verdicts = check("seen", seen, &[(FaultKind::RateJump, node(0), BEGIN)]);
    let size = verdicts.iter().flat_map(|findings| &findings.faults).next().map_or(0.0, |fault| fault.size);
    assert!((size - 2.0).abs() < 0.2, "{size} ppm");
    assert_eq!(broken_into(&verdicts), []);
}
