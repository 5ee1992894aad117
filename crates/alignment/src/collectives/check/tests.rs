//! Checks of hand-made traces, with every sign spelled out.

use probe_sync_formats::model::parts::CollectiveParts;
use probe_sync_formats::model::{CollectiveEvent, CollectiveKind, Recipients, Replicas};

use super::*;
use crate::collectives::testing::{
    Node, all, group, groups_of, hlo, numbered, of_device, ordered, part, store, together, with, with_parts,
};

/// The check, with clocks that are known.
fn judged(nodes: &[NodeCollectives<'_>], options: &CheckOptions) -> CheckReport {
    check(nodes, &Pairing::new(nodes, options.matching, true), options)
}

fn run(nodes: &[Node]) -> CheckReport {
    with(nodes, |nodes| judged(nodes, &CheckOptions::default()))
}

/// The check of stored parts, on equal clocks.
fn of_parts(parts: &[CollectiveParts]) -> CheckReport {
    let map = |at: Picoseconds| MappedTime { at, ..MappedTime::default() };
    with_parts(parts, &map, |nodes| judged(nodes, &CheckOptions::default()))
}

/// (edges, broken, explained).
fn totals(nodes: &[Node], expected: (usize, usize, usize)) {
    let report = run(nodes);
    assert_eq!((report.edges, report.broken, report.explained), expected, "{report:#?}");
    assert_eq!(report.violations(), expected.1 - expected.2, "{report:#?}");
}

/// A barrier that truly lasts from 0 to 300 on node 0 and from 100 to 310 on node 1, whose clock is
/// 1000 ns ahead.
fn barrier() -> [Node; 2] {
    [Node::new(vec![all(hlo("psum.7", 1), 10_000, 10_300)]), Node::new(vec![all(hlo("psum.7", 1), 11_100, 11_310)])]
}

#[test]
fn an_end_before_a_start_is_named_and_correction_mends_it() {
    // Raw: node 0 ends at 10300, 800 ns before node 1 claims to begin. Node 1's own end is after
    // both starts.
    let report = run(&barrier());
    assert_eq!((report.edges, report.broken, report.violations()), (2, 1, 1));
    let [edge] = &report.broken_edges[..] else { panic!("{report:?}") };
    assert_eq!((edge.ended_node, edge.end_ns, edge.started_node, edge.start_ns), (0, 10_300, 1, 11_100));
    assert_eq!((edge.by_ns, edge.explained, edge.uncertainty_ns), (800.0, false, 0.0));
    assert_eq!((report.start_gaps, report.start_gap_mean_ns), (1, 1_100.0));
    assert_eq!((edge.instance.as_str(), report.nodes[0].broken), ("jit_f, run 1", 1));
    // t_ref = t − offset, offset = +1000: node 1 from 10100 to 10310.
    let [first, second] = barrier();
    totals(&[first, second.corrected(1000, 5.0)], (2, 0, 0));
    // The wrong sign makes it worse: node 1 from 12100.
    let [first, second] = barrier();
    assert_eq!(run(&[first, second.corrected(-1000, 0.0)]).worst_ns, 1800.0);
    // A correction by 1900 breaks the other edge: node 1 ends at 9410, 590 ns before node 0 begins.
    let [first, second] = barrier();
    let report = run(&[first, second.corrected(1900, 0.0)]);
    assert_eq!((report.broken, report.broken_edges[0].ended_node, report.worst_ns), (1, 1, 590.0));
}

#[test]
fn uncertainty_adds_in_quadrature_and_explains_up_to_three_deviations() {
    let sigmas = |first: f64, second: f64| {
        let [a, b] = barrier();
        [a.corrected(0, first), b.corrected(0, second)]
    };
    // 800 ns against 3·√(160² + 213²) = 799.2 ns and 3·√(160² + 214²) = 801.6 ns.
    totals(&sigmas(160.0, 213.0), (2, 1, 0));
    totals(&sigmas(160.0, 214.0), (2, 1, 1));
    assert_eq!(run(&sigmas(160.0, 213.0)).broken_edges[0].uncertainty_ns, 3.0 * 160.0f64.hypot(213.0));
}

#[test]
fn an_unknown_clock_neither_holds_nor_explains() {
    for (first, second) in [(0.0, f64::INFINITY), (f64::INFINITY, 0.0), (f64::INFINITY, f64::INFINITY)] {
        // Held or broken on the face of it: nobody knows.
        for offset in [0, 1000] {
            let [a, b] = barrier();
            let report = run(&[a.corrected(0, first), b.corrected(offset, second)]);
            assert_eq!((report.edges, report.broken, report.explained, report.unjudged_edges), (0, 0, 0, 2));
            assert_eq!((report.outcome(), report.broken_edges.len()), (Outcome::Incomplete, 0));
            assert_eq!((report.operations[0].unjudged_edges, report.unjudged()), (2, "2 edges".to_owned()));
            let text = crate::collectives::table(None, &report);
            assert!(text.contains("nothing to check: all 2 edges depend on an unknown clock"), "{text}");
            let json = serde_json::to_value(&report).expect("JSON");
            assert_eq!((json["unjudged_edges"].as_u64(), json["edges"].as_u64()), (Some(2), Some(0)));
        }
    }
    // A third node whose clock is not known: what is broken between the other two is so all the
    // same, but no more holds.
    let third = || Node::new(vec![all(hlo("psum.7", 1), 10_200, 10_305)]).corrected(0, f64::INFINITY);
    let [a, b] = barrier();
    let report = run(&[a, b, third()]);
    assert_eq!((report.edges, report.violations(), report.unjudged_edges), (1, 1, 2));
    assert_eq!((report.outcome(), report.broken_edges[0].started_node), (Outcome::Violated, 1));
    let [a, b] = barrier();
    let report = run(&[a, b.corrected(1000, 5.0), third()]);
    assert_eq!((report.edges, report.broken, report.unjudged_edges), (0, 0, 3));
    // Broken on the face of it but explained: with an unknown clock beside, that is no judgement
    // either.
    let [a, b] = barrier();
    let report = run(&[a, b.corrected(0, 1000.0), third()]);
    assert_eq!((report.edges, report.explained, report.unjudged_edges), (0, 0, 3));
    // Another operation that only the two show is judged.
    let more = |node: Node| {
        let mut events = node.events;
        events.push(all(hlo("psum.7", 2), 20_000, 21_500));
        Node { events, ..node }
    };
    let [a, b] = barrier();
    let report = run(&[more(a), more(b.corrected(1000, 5.0)), third()]);
    assert_eq!((report.edges, report.unjudged_edges, report.outcome()), (2, 3, Outcome::Incomplete));
    let text = crate::collectives::table(None, &report);
    let first = "causality holds on all 2 edges; 3 edges could not be checked";
    assert_eq!(text.lines().next(), Some(first), "{text}");
    assert!(text.contains("not checked: 3 edges that depend on an unknown clock"), "{text}");
}

#[test]
fn two_clocks_within_one_trace_are_not_compared_where_one_is_not_known() {
    // One trace, a host's part on Unix time and a device's on a clock that counts from the
    // machine's start; another trace.
    let parts = [
        store(&[
            of_device(0, together(), all(hlo("psum.7", 1), 1_000_000, 1_000_010)),
            of_device(1, together(), all(hlo("psum.7", 1), 5, 15)),
        ]),
        store(&[of_device(2, together(), all(hlo("psum.7", 1), 1_000_000, 1_000_010))]),
    ];
    let map = |at: Picoseconds| {
        let sigma_ns = if at < 500_000_000 { f64::INFINITY } else { 0.0 };
        MappedTime { at, sigma_ns, own_sigma_ns: sigma_ns, early_by_ns: 0.0 }
    };
    let report = with_parts(&parts, &map, |nodes| judged(nodes, &CheckOptions::default()));
    assert_eq!((report.edges, report.broken, report.unjudged_edges), (0, 0, 3), "{report:?}");
}

#[test]
fn an_uncertain_late_start_does_not_excuse_a_certain_one() {
    // Node 0 ends at 100. Node 1, badly known, begins at 400; node 2, well known, at 300.
    let node = |start, end, sigma| Node::new(vec![all(hlo("psum.7", 1), start, end)]).corrected(0, sigma);
    let report = run(&[node(0, 100, 0.0), node(400, 500, 1000.0), node(300, 500, 1.0)]);
    assert_eq!((report.edges, report.broken, report.explained), (3, 1, 0));
    assert_eq!((report.broken_edges[0].started_node, report.broken_edges[0].by_ns), (2, 200.0));
}

#[test]
fn rooted_and_point_to_point_order_only_what_they_carry() {
    let three = |kind: CollectiveKind, spans: [(i128, i128); 3]| -> Vec<Node> {
        spans.map(|(start, end)| Node::new(vec![part(hlo("x", 1), kind.clone(), start, end)])).into()
    };
    // Disjoint in time: node 0, then 1, then 2. All-to-all: the ends of 0 and 1 come too early.
    let spans = [(0, 10), (20, 30), (40, 50)];
    totals(&three(CollectiveKind::AllToAll, spans), (3, 2, 0));
    // From node 0 all is well; from node 2 both others ended before it began.
    totals(&three(CollectiveKind::FromRoot(Some(0)), spans), (2, 0, 0));
    totals(&three(CollectiveKind::FromRoot(Some(2)), spans), (2, 2, 0));
    // To node 2 all is well; node 0 as the root ended before the others began: one end, one edge.
    totals(&three(CollectiveKind::ToRoot(Some(2)), spans), (1, 0, 0));
    totals(&three(CollectiveKind::ToRoot(Some(0)), spans), (1, 1, 0));
    totals(&three(CollectiveKind::FromRoot(None), spans), (0, 0, 0));
    totals(&three(CollectiveKind::Unknown, spans), (0, 0, 0));
    let peers = |source, destination| CollectiveKind::PointToPoint { source, destination };
    let two = |kind| three(kind, spans).into_iter().take(2).collect::<Vec<_>>();
    totals(&two(peers(Some(0), Some(1))), (1, 0, 0));
    totals(&two(peers(Some(1), Some(0))), (1, 1, 0));
    totals(&two(peers(Some(1), None)), (0, 0, 0));
    totals(&two(peers(Some(0), Some(2))), (0, 0, 0));
    assert_eq!(run(&two(peers(Some(0), Some(2)))).unordered_parts, 2);
}

#[test]
fn equal_times_and_instants_hold() {
    // An end at the very ps of the latest start is no earlier than it.
    totals(&[Node::new(vec![all(hlo("psum.7", 1), 0, 70)]), Node::new(vec![all(hlo("psum.7", 1), 70, 70)])], (2, 0, 0));
}

#[test]
fn only_the_worst_broken_edges_are_listed_and_all_are_counted() {
    let count = 300i128;
    let first = (0..count).map(|k| all(hlo("psum.7", k as i64), k * 1000, k * 1000 + 10)).collect();
    let second = (0..count).map(|k| all(hlo("psum.7", k as i64), k * 1000 + 20 + k, k * 1000 + 900)).collect();
    let options = CheckOptions { listed_max: 5, ..CheckOptions::default() };
    let report = with(&[Node::new(first), Node::new(second)], |nodes| judged(nodes, &options));
    assert_eq!((report.broken, report.broken_edges.len(), report.broken_edges_left_out), (300, 5, 295));
    let worst: Vec<f64> = report.broken_edges.iter().map(|edge| edge.by_ns).collect();
    assert_eq!(worst, [309.0, 308.0, 307.0, 306.0, 305.0]);
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!((json["broken"].as_u64(), json["operations"][0]["evidence"].as_str()), (Some(300), Some("label")));
}

#[test]
fn the_table_tells_before_and_after() {
    let before = run(&barrier());
    let [first, second] = barrier();
    let after = run(&[first, second.corrected(1000, 5.0)]);
    let text = crate::collectives::table(Some(&before), &after);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "causality holds on all 2 edges");
    assert!(lines[2].starts_with("psum.7") && lines[2].ends_with("1 (by up to 800 ns)       0"), "{text}");
    let text = crate::collectives::table(None, &before);
    let first = "1 of 2 edges are broken, 1 of them beyond the clocks' uncertainty\n  psum.7 (jit_f, run 1): host0 ended 800 ns before";
    assert!(text.starts_with(first), "{text}");
    let details = crate::collectives::details(&before);
    assert!(details.contains("end at 10300 ns on node 0 (host0), begin at "), "{details}");
}

#[test]
fn a_mesh_whose_rows_work_apart_is_not_accused() {
    // Four nodes on perfect clocks; devices 0 and 1 sum together, 2 and 3 200 µs later; ten times.
    let row = |device: u64, begins: i128| {
        let groups = || groups_of(&[&[0, 1], &[2, 3]]);
        let event = |k: i64| {
            let start = begins + i128::from(k) * 1_000_000;
            of_device(device, groups(), all(hlo("psum.7", k), start, start + 50_000))
        };
        Node::new((0..10).map(event).collect())
    };
    let nodes = [row(0, 0), row(1, 100), row(2, 200_000), row(3, 200_100)];
    totals(&nodes, (40, 0, 0));
    // Taken for one operation every end of the first row comes too soon.
    let mut as_one = nodes;
    let of_all = |event: &mut CollectiveEvent| event.label.replicas = together();
    as_one.iter_mut().flat_map(|node| &mut node.events).for_each(of_all);
    totals(&as_one, (40, 20, 0));
    as_one.iter_mut().flat_map(|node| &mut node.events).for_each(|event| event.label.replicas = Replicas::Unknown);
    let report = run(&as_one);
    assert_eq!((report.edges, report.ambiguous_instances, report.outcome()), (0, 10, Outcome::Nothing));
    assert!(crate::collectives::table(None, &report).contains("none of the 10 operations on several nodes"));
}

#[test]
fn ranks_that_send_each_other_nothing_are_not_accused() {
    // Rank 0 sends to rank 1 only; rank 2 comes when rank 0 and rank 1 have long gone, and sends to
    // nobody.
    let node = |members: u64, start: i128, end: i128| {
        let recipients = Recipients::Members(members);
        Node::new(vec![CollectiveEvent { recipients, ..all(numbered(group("0", &[0, 1, 2]), 1), start, end) }])
    };
    totals(&[node(0b010, 0, 100), node(0b000, 10, 110), node(0b000, 900, 910)], (1, 0, 0));
    // Rank 1 ends before rank 0, which sends to it, begins.
    let report = run(&[node(0b010, 200, 300), node(0b000, 10, 110), node(0b000, 900, 910)]);
    assert_eq!((report.edges, report.broken, report.worst_ns), (1, 1, 90.0));
    assert_eq!((report.broken_edges[0].ended_node, report.broken_edges[0].started_node), (1, 0));
}

/// Two traces with a barrier: rank 0 ends at 1000, rank 1 begins at 1000 + `late` ns; the map says
/// how sure it is.
fn two_ranks(late: i128, clocks: [u32; 2], time: MappedTime) -> CheckReport {
    let at = |start: i128, end: i128| store(&[all(hlo("psum.7", 1), start, end)]);
    let parts: [CollectiveParts; 2] = [at(0, 1000), at(1000 + late, 10_000)];
    let map = |at: Picoseconds| MappedTime { at, ..time };
    with_parts(&parts, &map, |nodes| {
        let mut nodes = nodes.to_vec();
        nodes.iter_mut().zip(clocks).for_each(|(node, clock)| node.clock = clock);
        judged(&nodes, &CheckOptions::default())
    })
}

#[test]
fn ranks_of_one_host_get_the_tolerance_of_their_own_fits() {
    let time = MappedTime { at: 0, sigma_ns: 1000.0, own_sigma_ns: 100.0, early_by_ns: 0.0 };
    let explained = |late, clocks, time| {
        let report = two_ranks(late, clocks, time);
        assert_eq!((report.edges, report.broken), (2, 1), "{report:?}");
        report.explained == 1
    };
    // 3·√(100² + 100²) = 424.3 ns on one host; 3·√(1000² + 1000²) = 4242.6 ns between hosts.
    assert!(explained(424, [5, 5], time) && !explained(425, [5, 5], time));
    assert!(explained(4242, [5, 6], time) && !explained(4243, [5, 6], time));
    let early = MappedTime { early_by_ns: 50.0, ..time };
    assert!(explained(474, [5, 5], early) && !explained(475, [5, 5], early));
    assert!(explained(4292, [5, 6], early) && !explained(4293, [5, 6], early));
    // Within one trace nothing explains anything.
    let one = [Node::new(vec![
        of_device(0, together(), all(hlo("psum.7", 1), 0, 10)),
        of_device(1, together(), all(hlo("psum.7", 1), 11, 20)),
    ])];
    let two = Node::new(vec![of_device(2, together(), all(hlo("psum.7", 1), 0, 20))]);
    let [first] = one;
    totals(&[first.corrected(0, 1000.0), two.corrected(0, 1000.0)], (3, 1, 0));
}

#[test]
#[ignore = "long: judges 1.2 million collectives"]
fn no_verdict_on_part_of_the_evidence() {
    // 400 000 collectives per trace; node 1's clock was moved by 1 s for the last 99 999.
    let (count, moved) = (400_000i64, 99_999i64);
    let trace = |node: i64| {
        let mut parts = CollectiveParts::default();
        for k in 0..count {
            let step = if node == 1 && k >= count - moved { 1_000_000_000 } else { 0 };
            let start = i128::from(k) * 10_000 + step;
            parts.push(all(hlo("psum.7", k), start, start + 500));
        }
        parts.close();
        parts
    };
    let parts: Vec<CollectiveParts> = (0..3).map(trace).collect();
    let report = of_parts(&parts);
    assert_eq!((report.instances, report.edges), (count as usize, 3 * count as usize));
    // The two others end long before node 1 begins, each time.
    assert_eq!(report.violations(), 2 * moved as usize);
    assert_eq!((report.outcome(), report.unjudged_parts), (Outcome::Violated, 0));
    assert_eq!((report.broken_edges.len(), report.broken_edges_left_out), (1000, 2 * moved as usize - 1000));
}

#[test]
fn parts_that_cannot_be_read_back_are_in_the_verdict() {
    let count = 40_000i64;
    let instance = |way: usize, k: i64| match way {
        0 => hlo("psum.7", k),
        1 => numbered(group("0", &[0, 1]), k),
        _ => ordered(Some(group("0", &[0, 1])), "gather"),
    };
    for way in 0..3 {
        let start = |k: i64| i128::from(k) * 100;
        let trace = || store(&(0..count).map(|k| all(instance(way, k), start(k), start(k) + 50)).collect::<Vec<_>>());
        let mut parts = [trace(), trace()];
        parts[1].lose_runs();
        let report = of_parts(&parts);
        assert_eq!((report.edges, report.unjudged_parts), (0, 2 * count as u64), "way {way}");
        assert_eq!(report.outcome(), Outcome::Incomplete);
    }
}

#[test]
fn what_could_not_be_judged_is_in_the_verdict() {
    let mut first = store(&[all(hlo("psum.7", 1), 0, 10)]);
    first.leave_out(7);
    let parts = [first, store(&[all(hlo("psum.7", 1), 5, 10)])];
    let report = of_parts(&parts);
    assert_eq!((report.edges, report.broken, report.unjudged_parts), (2, 0, 7));
    assert_eq!(report.outcome(), Outcome::Incomplete);
    let text = crate::collectives::table(None, &report);
    let first = "causality holds on all 2 edges; 7 parts of collectives could not be checked";
    assert_eq!(text.lines().next(), Some(first));
    let edges_too = CheckReport { unjudged_edges: 3, ..report };
    assert_eq!(edges_too.unjudged(), "3 edges and 7 parts of collectives");
    let outcome = |edges, broken, explained, unjudged_parts| {
        CheckReport { edges, broken, explained, unjudged_parts, ..CheckReport::default() }.outcome()
    };
    assert_eq!(outcome(0, 0, 0, 0), Outcome::Nothing);
    assert_eq!(outcome(0, 0, 0, 1), Outcome::Incomplete);
    assert_eq!(outcome(4, 2, 2, 0), Outcome::Holds);
    assert_eq!(outcome(4, 2, 1, 0), Outcome::Violated);
    assert_eq!(outcome(4, 2, 1, 9), Outcome::Violated);
}

#[test]
fn lines_of_one_operation_add_up() {
    let line = |k: usize, worst_ns: f64, evidence: Evidence| OperationLine {
        instances: 2 * k,
        edges: 3 * k,
        broken: 5 * k,
        explained: 7 * k,
        unjudged_edges: 11 * k,
        worst_ns,
        ..OperationLine::new(evidence)
    };
    let mut sum = line(1, 8.0, Evidence::GroupOrder);
    sum.add(&line(2, 4.0, Evidence::Label));
    assert_eq!(sum, line(3, 8.0, Evidence::GroupOrder));
    sum.add(&line(1, 9.0, Evidence::CountedOrder));
    assert_eq!(sum, line(4, 9.0, Evidence::CountedOrder));
}

#[test]
fn what_was_not_judged_is_in_the_table_only_where_there_is_some() {
    let text = |report: CheckReport| crate::collectives::report::table(None, &report);
    assert!(!text(CheckReport::default()).contains("not judged"));
    let one = || CheckReport { unordered_parts: 1, unpaired_parts: 1, ..CheckReport::default() };
    assert!(text(one()).contains("not checked: 1 part without a known root or peer, 1 part found on no other node"));
    let edges = text(CheckReport { unjudged_edges: 2, ..CheckReport::default() });
    assert!(edges.contains("not checked: 2 edges that depend on an unknown clock"), "{edges}");
    let of_part = text(CheckReport { edges: 1, unjudged_edges: 3, ..CheckReport::default() });
    assert!(of_part.contains("causality holds on the one edge that was checked"), "{of_part}");
    let parts = text(CheckReport { unjudged_parts: 3, ..CheckReport::default() });
    assert!(parts.contains("not checked: 3 parts with an unknown clock"), "{parts}");
}

#[test]
fn a_brief_text_counts_what_it_leaves_out() {
    let line =
        |broken: usize| OperationLine { broken, name: format!("psum.{broken}"), ..OperationLine::new(Evidence::Label) };
    let report = CheckReport {
        edges: 9,
        operations: (0..12).map(line).collect(),
        ambiguous_instances: 3,
        unordered_parts: 1,
        ..CheckReport::default()
    };
    let text = crate::collectives::brief(None, &report);
    assert!(text.contains("psum.11") && !text.contains("psum.1 "), "{text}");
    assert!(
        text.ends_with("… and 2 more operations; -v prints all\nnot checked: 3 operations, 1 part; -v says why\n"),
        "{text}"
    );
    assert!(text.lines().count() <= 20, "{text}");
    let all = crate::collectives::table(None, &report);
    assert!(all.contains("psum.1 ") && !all.contains("-v"), "{all}");
}
