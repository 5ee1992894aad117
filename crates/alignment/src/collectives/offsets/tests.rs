//! Bounds from hand-made collectives, with the arithmetic written out, and from many random ones.

use proptest::prelude::*;

use super::pair::{ends, fit};
use super::used::Visit;
use super::*;
use crate::collectives::matching::MatchOptions;
use crate::collectives::testing::{Node, all, hlo, with};

fn run(nodes: &[Node], options: &OffsetOptions) -> CollectiveOffsets {
    with(nodes, |nodes| from_collectives(nodes, options)).expect("offsets")
}

/// The nodes of the only window.
fn only(found: &CollectiveOffsets) -> &[NodeOffset] {
    assert_eq!(found.windows.len(), 1);
    &found.windows[0].nodes
}

/// Clocks that keep their rate.
fn exact() -> OffsetOptions {
    OffsetOptions { max_rate_change_ppm: 0.0, max_skew: 1e-9, ..OffsetOptions::default() }
}

#[test]
fn two_barriers_bound_an_offset_by_hand() {
    // Node 1 is 1000 ns ahead. First barrier: node 0 from 0 to 300, node 1 from 1100 to 1300 of its
    // clock:
    //   θ ≤ 1300 − 0 = 1300, θ ≥ 1100 − 300 = 800.
    // Second: node 0 from 5000 to 5250, node 1 from 6050 to 6260: θ ≤ 6260 − 5000 = 1260, θ ≥ 6050
    // − 5250 = 800.
    let nodes = [
        Node::new(vec![all(hlo("psum.7", 1), 0, 300), all(hlo("psum.7", 2), 5000, 5250)]),
        Node::new(vec![all(hlo("psum.7", 1), 1100, 1300), all(hlo("psum.7", 2), 6050, 6260)]),
    ];
    let found = run(&nodes, &exact());
    let window = &found.windows[0];
    assert_eq!((found.operations, window.pairs, found.span_ns, window.reference_time_ns), (2, 1, [0, 5250], 2625));
    let node = &only(&found)[1];
    let (low, high) = (node.bound_lo_ns.unwrap(), node.bound_hi_ns.unwrap());
    assert!((low - 800.0).abs() < 0.01 && (high - 1260.0).abs() < 0.01, "{node:?}");
    // The ends differ by 1300 − 300 = 1000 and 6260 − 5250 = 1010.
    assert!((node.offset_ns - 1005.0).abs() < 0.01, "{node:?}");
    assert!(node.sigma_ns.unwrap() >= 460.0 / 12f64.sqrt() - 0.01);
    assert_eq!((window.nodes[0].offset_ns, window.nodes[0].bound_hi_ns), (0.0, Some(0.0)));
    // From node 1's side everything changes its sign.
    let turned = run(&nodes, &OffsetOptions { reference: 1, ..exact() });
    assert!((only(&turned)[0].offset_ns + 1005.0).abs() < 0.01, "{turned:?}");
}

#[test]
fn rates_that_change_widen_the_bounds_by_as_much_and_the_sentence_says_so() {
    // An operation 1 ms before and one 1 ms after the middle, each of which allows 900 to 1100 ns.
    let ms = 1_000_000;
    let nodes = [
        Node::new(vec![all(hlo("psum.7", 1), 0, 100), all(hlo("psum.7", 2), 2 * ms, 2 * ms + 100)]),
        Node::new(vec![all(hlo("psum.7", 1), 1000, 1100), all(hlo("psum.7", 2), 2 * ms + 1000, 2 * ms + 1100)]),
    ];
    let found = run(&nodes, &exact());
    let text = found.text();
    assert!(text.contains("certainly within 900 ns to 1.100 µs, a width of 200 ns, if no clock changed"), "{text}");
    let found = run(&nodes, &OffsetOptions::default());
    let node = &only(&found)[1];
    let (low, high) = (node.bound_lo_ns.unwrap(), node.bound_hi_ns.unwrap());
    assert!((low - 889.0).abs() < 1.1 && (high - 1111.0).abs() < 1.1, "{node:?}");
    assert!(found.text().contains("if no clock changed its rate by more than 10 ppm within "), "{}", found.text());
    let [slowest, fastest] = node.drift_bounds_ppm;
    assert!((slowest + 121.0).abs() < 1.0 && (fastest - 121.0).abs() < 1.0, "{node:?}");
}

/// Stays of nodes 0 and 1 that end `x` after 5 s, and 1000 ns + `late` + 20 ppm of x later on node
/// 1.
fn stays(ends: &[(i64, i64)]) -> Vec<[Visit; 2]> {
    let stay = |&(x, late): &(i64, i64)| {
        let end = 5_000_000_000 + x;
        let other = end + 1000 + late + x / 50_000;
        [Visit { node: 0, start: end - 500, end }, Visit { node: 1, start: other - 400, end: other }]
    };
    ends.iter().map(stay).collect()
}

#[test]
fn ends_on_a_line_give_that_line_and_its_covariance() {
    let exact = stays(&[(-1_000_000_000, 0), (0, 0), (2_000_000_000, 0)]);
    let (beta, alpha, covariance) = ends(&exact, 5_000_000_000, 30.0);
    assert!((beta - 1000.0).abs() < 0.01 && (alpha - 20e-6).abs() < 1e-11, "{beta} {alpha}");
    // Each end scatters by a tenth of the margin, 3 ns: Σw = 3/9, Σwx = 10⁹/9, Σwx² = 5·10¹⁸/9.
    let (w0, wx, wxx) = (3.0 / 9.0, 1e9 / 9.0, 5e18 / 9.0);
    let determinant = w0 * wxx - wx * wx;
    for (found, expected) in covariance.into_iter().zip([wxx, -wx, w0].map(|sum| sum / determinant)) {
        assert!((found / expected - 1.0).abs() < 1e-6, "{found} instead of {expected}");
    }
    // One stay that was prolonged by a millisecond says nothing.
    let second = 1_000_000_000;
    let one_late = stays(&[(-2 * second, 0), (-second, 1_000_000), (0, 0), (second, 0), (2 * second, 0)]);
    let (beta, alpha, _) = ends(&one_late, 5_000_000_000, 30.0);
    assert!((beta - 1000.0).abs() < 0.1 && (alpha - 20e-6).abs() < 1e-10, "{beta} {alpha}");
}

#[test]
fn a_line_is_as_sure_as_its_ends_are() {
    let stays = stays(&[(-1_000_000_000, 0), (0, 0), (2_000_000_000, 0)]);
    let edge = Edge { src: NodeId(0), dst: NodeId(1) };
    let fitted = fit(edge, &stays, [[i64::MIN, i64::MAX]; 2], &OffsetOptions::default()).expect("a line").line;
    let [first, last] = [stays[0][0].start, stays[2][0].end];
    let (beta, _, covariance) = ends(&stays, first.midpoint(last), fitted.margin_ns);
    assert_eq!((fitted.beta, fitted.covariance), (beta, covariance));
}

#[test]
fn bounds_of_rates_add_up_along_a_chain_in_both_directions() {
    let stays = stays(&[(0, 0), (1_000_000, 0)]);
    let edge = |src: u32, dst: u32, ppm: [f64; 2], feasible| {
        let edge = Edge { src: NodeId(src), dst: NodeId(dst) };
        let fitted = fit(edge, &stays, [[i64::MIN, i64::MAX]; 2], &OffsetOptions::default()).expect("a line").line;
        EdgeFit { alpha_bounds: ppm.map(|ppm| ppm * 1e-6), feasible, ..fitted }
    };
    let edges = [edge(0, 1, [1.0, 3.0], true), edge(1, 2, [-2.0, 1.0], true), edge(0, 2, [5.0, 5.0], false)];
    // Of each edge max_skew² = 0.01 ppm is added on both sides.
    let check = |reference: usize, expected: [[f64; 2]; 3]| {
        let found = drift_bounds(3, reference, &edges, 1e-4);
        for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
            assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
        }
    };
    check(0, [[0.0, 0.0], [0.99, 3.01], [-1.02, 4.02]]);
    check(2, [[-4.02, 1.02], [-1.01, 2.01], [0.0, 0.0]]);
}

#[test]
fn bounds_pass_through_a_third_node() {
    // Nodes 0 and 2 meet only through node 1: 1 − 0 in [800, 1300], 2 − 1 in [−600, −100], so 2 − 0
    // in [200, 1200].
    let nodes = [
        Node::new(vec![all(hlo("a", 1), 0, 300)]),
        Node::new(vec![all(hlo("a", 1), 1100, 1300), all(hlo("b", 1), 5000, 5300)]),
        Node::new(vec![all(hlo("b", 1), 4700, 4900)]),
        Node::new(vec![]),
    ];
    let found = run(&nodes, &exact());
    let node = &only(&found)[2];
    let (low, high) = (node.bound_lo_ns.unwrap(), node.bound_hi_ns.unwrap());
    assert!((low - 200.0).abs() < 0.1 && (high - 1200.0).abs() < 0.1, "{node:?}");
    assert!(!only(&found)[3].reachable && only(&found)[3].sigma_ns.is_none());
    assert!(found.text().contains("node 3 (host3): no operation connects it"), "{}", found.text());
}

#[test]
fn a_step_between_operations_is_told() {
    // θ in [900, 1100], and later in [100_900, 101_100]: no clock of at most 1 ppm does that within
    // 10 ms.
    let at = |k: i64, start: i128, end: i128| all(hlo("psum.7", k), start, end);
    let nodes = [
        Node::new(vec![at(1, 0, 100), at(2, 10_000_000, 10_000_100)]),
        Node::new(vec![at(1, 1000, 1100), at(2, 10_101_000, 10_101_100)]),
    ];
    let found = run(&nodes, &OffsetOptions { max_skew: 1e-6, ..exact() });
    assert!(found.notes.iter().any(|note| note.contains("inconsistent with clocks")), "{found:?}");
    assert!(found.notes.iter().any(|note| note.contains("nodes 0 and 1")), "{found:?}");
    assert_eq!(only(&found)[1].bound_lo_ns, None, "no bound is better than a wrong one");
}

#[test]
fn what_cannot_be_answered_is_an_error() {
    let alone = [Node::new(vec![all(hlo("a", 1), 0, 300)]), Node::new(vec![])];
    let refused = |reference| with(&alone, |nodes| from_collectives(nodes, &OffsetOptions { reference, ..exact() }));
    assert!(refused(0).unwrap_err().to_string().contains("certainly shared with another node"));
    assert!(refused(9).unwrap_err().to_string().contains("the reference node has no trace"));
}

#[test]
fn more_operations_than_fit_are_thinned_evenly() {
    let node = || {
        Node::new((0..1000).map(|k| all(hlo("psum.7", k), 1000 * i128::from(k), 1000 * i128::from(k) + 9)).collect())
    };
    with(&[node(), node()], |nodes| {
        let mut used = Used::new(100);
        let matching = match_operations(
            nodes,
            &Pairing::new(nodes, MatchOptions::default(), false),
            MatchOptions::default(),
            &mut |operation| used.take(nodes, operation),
        );
        // 2000 stays: one in 32 operations is 64 of them, one in 16 would be 126.
        assert_eq!((used.step, used.held, used.seen), (5, 64, 1000));
        let starts: Vec<i64> = used.visits.iter().map(|stays| stays[0].start).collect();
        assert_eq!(starts, (0..32).map(|k| 32_000 * k).collect::<Vec<i64>>());
        let notes = left_out(&matching, used.step);
        assert_eq!(notes, ["using one in 32 operations, evenly spread, because all of them would not fit in memory"]);
        assert_eq!(left_out(&matching, 0), Vec::<String>::new());
    });
    let doubtful = Matching { lost: 3, ..Matching::default() };
    assert!(left_out(&doubtful, 0)[0].starts_with("3 parts could not be stored"));
}

#[test]
fn ambiguous_operations_are_not_used_and_told() {
    let sure = || all(hlo("psum.7", 1), 0, 300);
    let unsure = |end: i128| {
        let mut event = all(hlo("psum.8", 1), 5000, end);
        event.label.replicas = probe_sync_formats::model::Replicas::Unknown;
        event
    };
    let found = run(&[Node::new(vec![sure(), unsure(5001)]), Node::new(vec![sure(), unsure(9000)])], &exact());
    assert_eq!((found.operations, found.span_ns), (1, [0, 300]));
    assert!(found.notes.iter().any(|note| note.contains("1 operations are ambiguous")), "{found:?}");
}

#[test]
fn times_out_of_range_are_left_out() {
    let far = i128::from(i64::MAX) * 4;
    let node = || Node::new(vec![all(hlo("a", 1), far, far + 10), all(hlo("a", 2), 0, 10)]);
    assert_eq!(run(&[node(), node()], &exact()).operations, 1);
}

proptest! {
    /// Truth is inside, whatever the waits: clocks with offsets of seconds and drifts to 400 ppm,
    /// operations of which each node ends after all have begun.
    #[test]
    fn truth_is_inside_the_bounds(
        clocks in prop::collection::vec((-3_000_000_000i64..3_000_000_000, -200i64..200), 1..4),
        turns in prop::collection::vec(prop::collection::vec((0i64..2_000_000, 0i64..2_000_000), 4), 2..30),
    ) {
        let clocks: Vec<(i64, i64)> = [(0, 0)].into_iter().chain(clocks).collect();
        let own = |node: usize, at: i64| {
            let (offset, ppm) = clocks[node];
            i128::from(at + offset) + i128::from(at) * i128::from(ppm) / 1_000_000
        };
        let mut nodes: Vec<Node> = clocks.iter().map(|_| Node::new(vec![])).collect();
        for (turn, waits) in turns.iter().enumerate() {
            let base = 1_000_000_000 + turn as i64 * 50_000_000;
            let begun = (0..clocks.len()).map(|node| base + waits[node].0).max().unwrap();
            for (node, list) in nodes.iter_mut().enumerate() {
                let (start, end) = (own(node, base + waits[node].0), own(node, begun + waits[node].1));
                list.events.push(all(hlo("psum.7", turn as i64), start, end));
            }
        }
        let found = run(&nodes, &OffsetOptions { max_rate_change_ppm: 0.0, ..OffsetOptions::default() });
        let window = &found.windows[0];
        for (node, estimate) in window.nodes.iter().enumerate() {
            let truth = (own(node, window.reference_time_ns) - i128::from(window.reference_time_ns)) as f64;
            let (low, high) = (estimate.bound_lo_ns.unwrap(), estimate.bound_hi_ns.unwrap());
            prop_assert!(low <= truth && truth <= high, "node {}: {} not in {}..{}", node, truth, low, high);
            prop_assert!(low <= estimate.offset_ns && estimate.offset_ns <= high);
            let [slowest, fastest] = estimate.drift_bounds_ppm;
            let rate = clocks[node].1 as f64;
            prop_assert!(slowest <= rate && rate <= fastest, "node {}: {} not in {}..{}", node, rate, slowest, fastest);
        }
    }
}
