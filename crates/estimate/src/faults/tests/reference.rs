//! What the reference's own clock does, and what all nodes share, told apart from what one node
//! does.

use super::*;

/// Node `NODE` jumps by `NS` before round `AT`.
fn jumps<const NODE: u32, const AT: u64, const NS: i64>(round: u64, node: u32) -> f64 {
    if node == NODE && round >= AT { NS as f64 } else { 0.0 }
}

fn breaks_of_all_but_the_reference(round: u64) -> Vec<(u32, u64)> {
    (1..NODES as u32).map(|node| (node, round)).collect()
}

#[track_caller]
fn check_first(what: &str, offset: fn(u64, u32) -> f64, expected: (u32, u64)) {
    for seed in 0..8 {
        let verdicts = watched(seed, Change { offset: Some(offset), ..Change::default() });
        let (who, round) = expected;
        assert_eq!(named(&verdicts), [(FaultKind::Step, node(who), round)], "{what}, seed {seed}");
        let breaks = if who == 0 { breaks_of_all_but_the_reference(round) } else { vec![(who, round)] };
        assert_eq!(broken_into(&verdicts), breaks, "{what}, seed {seed}");
        let size = offset(round, who);
        let stated = verdicts.iter().flat_map(|findings| &findings.faults).next().map_or(0.0, |fault| fault.size);
        assert!((stated - size).abs() < 1e3, "{what}, seed {seed}: {stated} ns instead of {size}");
    }
}

#[test]
fn a_step_in_the_first_rounds_breaks_what_was_before() {
    check_first("the reference, before the second round", jumps::<0, 1, 10_000_000>, (0, 1));
    check_first("the reference, back, before the second round", jumps::<0, 1, -10_000_000>, (0, 1));
    check_first("the reference, before the third round", jumps::<0, 2, 10_000_000>, (0, 2));
    check_first("50 µs of the reference", jumps::<0, 1, 50_000>, (0, 1));
    check_first("a node, before the second round", jumps::<5, 1, -10_000_000>, (5, 1));
    check_first("a node, before the third round", jumps::<5, 2, -10_000_000>, (5, 2));
}

#[test]
fn one_bad_window_at_the_beginning_is_no_step() {
    // Inside what the packets of the first window allow: it may have been that window.
    let near = Change { offset: Some(jumps::<5, 1, 5_000>), ..Change::default() };
    for seed in 0..8 {
        let verdicts = watched(seed, near);
        assert!(named(&verdicts).iter().all(|(kind, ..)| *kind != FaultKind::Step), "seed {seed}: {verdicts:?}");
        assert_eq!(broken_into(&verdicts), [], "seed {seed}");
    }
}

#[test]
fn a_step_that_the_reference_saw_in_its_first_rounds_breaks_what_was_before() {
    let change = Change {
        offset: Some(|round, node| if node == 0 && round > 1 { 1e7 } else { 0.0 }),
        edge: Some(|round, edge| {
            if round == 1 {
                broken_window(edge, 0, 1e7);
            }
            true
        }),
        events: Some(|round| if round == 1 { vec![event(0, 10_000_000, 0.0)] } else { Vec::new() }),
        ..Change::default()
    };
    for seed in 0..8 {
        let verdicts = watched(seed, change);
        assert_eq!(named(&verdicts), [(FaultKind::Step, node(0), 1)], "seed {seed}");
        assert_eq!(broken_into(&verdicts), breaks_of_all_but_the_reference(1), "seed {seed}");
        assert_eq!(verdicts[1].invalid.first(), Some(&NodeId(0)), "seed {seed}");
    }
}

/// The reference jumps by 10 ms before [`BEGIN`], node 5 by 50 µs before `AT`.
fn both<const AT: u64>(round: u64, node: u32) -> f64 {
    jumps::<0, BEGIN, 10_000_000>(round, node) + jumps::<5, AT, 50_000>(round, node)
}

#[test]
fn a_node_that_steps_when_the_reference_does_is_named_too() {
    for (at, offset) in [
        (BEGIN, both::<BEGIN> as fn(u64, u32) -> f64),
        (BEGIN + 1, both::<{ BEGIN + 1 }>),
        (BEGIN + 2, both::<{ BEGIN + 2 }>),
    ] {
        for seed in 0..8 {
            let verdicts = watched(seed, Change { offset: Some(offset), ..Change::default() });
            let mut all = named(&verdicts);
            all.sort_unstable_by_key(|(_, who, _)| who.clone());
            let expected = [(FaultKind::Step, node(0), BEGIN), (FaultKind::Step, node(5), at)];
            assert_eq!(all, expected, "node 5 at {at}, seed {seed}");
            assert!(broken_into(&verdicts).contains(&(5, at)), "node 5 at {at}, seed {seed}");
            let own = verdicts.iter().flat_map(|v| &v.faults).find(|fault| fault.culprit == node(5)).expect("named");
            assert!((own.size - 5e4).abs() < 1e3, "node 5 at {at}, seed {seed}: {own:?}");
        }
    }
}

/// Errors of 200 ns and 63 ns/s, as the edges state them; the same for the same round and edge.
fn scattered(round: u64, edge: &mut EdgeFit) {
    let key = (round << 16) | (u64::from(edge.src_node_id.0) << 8) | u64::from(edge.dst_node_id.0);
    let mut random = ChaCha8Rng::seed_from_u64(key);
    shift(edge, 200.0 * normal(&mut random));
    edge.alpha += 6.3e-8 * normal(&mut random);
    edge.covariance = [40_000.0, 0.0, 4e-15];
}

#[track_caller]
fn check_warming(what: &str, change: Change, node_of: u32, ppm: f64) {
    let mut found = 0;
    for seed in 0..20 {
        let verdicts = watched(seed, change);
        let faults: Vec<&Fault> = verdicts.iter().flat_map(|findings| &findings.faults).collect();
        for fault in &faults {
            assert_eq!((fault.kind, &fault.culprit), (FaultKind::RateJump, &node(node_of)), "{what}, seed {seed}");
            assert!((0.3..3.0).contains(&(fault.size / ppm)), "{what}, seed {seed}: {fault:?}");
        }
        found += usize::from(!faults.is_empty());
    }
    assert!(found >= 18, "{what}: found in {found} of 20");
}

/// What a clock gained since [`BEGIN`] when its rate goes to 250 ns/s with a time constant of 5 s;
/// and its rate.
fn warmth(round: u64) -> [f64; 2] {
    let since = (WINDOW_S * (round as f64 - BEGIN as f64)).max(0.0);
    let left = (-since / 5.0).exp();
    [250.0 * (since - 5.0 * (1.0 - left)), 250.0 * (1.0 - left)]
}

fn warms<const NODE: u32>() -> Change {
    Change {
        offset: Some(|round, node| if node == NODE { warmth(round)[0] } else { 0.0 }),
        edge: Some(|round, edge| {
            scattered(round, edge);
            turn(edge, NODE, warmth(round)[1]);
            true
        }),
        ..Change::default()
    }
}

#[test]
fn a_reference_that_warms_up_is_named_and_no_healthy_node() {
    check_warming("the reference warms up", warms::<0>(), 0, 0.2);
}

#[test]
fn a_node_that_warms_up_is_still_named() {
    check_warming("node 5 warms up", warms::<5>(), 5, 0.2);
}

#[test]
fn a_load_that_ends_makes_no_step_of_a_change_of_rate() {
    // All margins fall by 3 µs; node 5's rate changes by 0.5 ppm with the same window.
    let change =
        Change {
            offset: Some(|round, node| {
                if node == 5 && round >= BEGIN { 500.0 * WINDOW_S * ((round - BEGIN) as f64 + 0.5) } else { 0.0 }
            }),
            edge: Some(|round, edge| {
                if round >= BEGIN {
                    turn(edge, 5, 500.0);
                    edge.margin_ns -= 3_000.0;
                }
                true
            }),
            ..Change::default()
        };
    for seed in 0..8 {
        let verdicts = watched(seed, change);
        let load = (FaultKind::RouteChange, Culprit::Everyone, BEGIN);
        assert_eq!(named(&verdicts), [load, (FaultKind::RateJump, node(5), BEGIN)], "seed {seed}");
        assert_eq!(broken_into(&verdicts), [], "seed {seed}: offsets go on");
    }
}

#[test]
fn a_load_that_ends_hides_no_step() {
    // 8 µs in the middle of the window in which it ends: the margins of node 5's edges fall by 4 µs
    // more than all others.
    let change = Change {
        offset: Some(|round, node| match node {
            5 if round == BEGIN => 4e3,
            5 if round > BEGIN => 8e3,
            _ => 0.0,
        }),
        edge: Some(|round, edge| {
            if round >= BEGIN {
                edge.margin_ns -= 1_000.0;
            }
            if round == BEGIN {
                turn(edge, 5, 8e3 / WINDOW_S);
                edge.margin_ns -= if of(edge, 5) { 4e3 } else { 0.0 };
            }
            true
        }),
        ..Change::default()
    };
    let load = (FaultKind::RouteChange, Culprit::Everyone, BEGIN);
    check("8 µs as a load ends", change, &[load, (FaultKind::Step, node(5), BEGIN)], touches(5));
}

#[test]
fn a_load_that_ends_while_a_clock_is_off_shows_no_step_later() {
    // Node 5 is off its prediction when the load ends, so its edges are not learnt from: their
    // least margins must fall all the same. Its rate changes again four rounds later.
    fn bent(round: u64) -> f64 {
        let since = |first: u64| if round >= first { WINDOW_S * ((round - first) as f64 + 0.5) } else { 0.0 };
        2_000.0 * since(BEGIN) + 500.0 * since(BEGIN + 4)
    }
    let change = Change {
        offset: Some(|round, node| if node == 5 { bent(round) } else { 0.0 }),
        edge: Some(|round, edge| {
            if round >= BEGIN {
                turn(edge, 5, if round >= BEGIN + 4 { 2_500.0 } else { 2_000.0 });
                edge.margin_ns -= 3_000.0;
            }
            true
        }),
        ..Change::default()
    };
    for seed in 0..8 {
        let verdicts = watched(seed, change);
        let kinds: Vec<FaultKind> = named(&verdicts).into_iter().map(|(kind, ..)| kind).collect();
        let (load, rates) = kinds.split_first().expect("a load and a rate");
        assert!(*load == FaultKind::RouteChange && !rates.is_empty(), "seed {seed}: {kinds:?}");
        assert!(rates.iter().all(|kind| *kind == FaultKind::RateJump), "seed {seed}: {kinds:?}");
    }
}
