//! What is paired, what is not, and why.

use probe_sync_formats::model::{CollectiveEvent, Device, Recipients, Replicas};

use super::*;
use crate::collectives::testing::{
    Node, all, group, groups_of, hlo, look, numbered, of_device, ordered, part, together, with,
};

/// The pairs: (node, event) per operation, and orders; and what was not paired.
#[derive(Debug)]
struct Found {
    operations: Vec<Vec<(usize, usize)>>,
    orders: Vec<Order>,
    matching: Matching,
}

fn run(nodes: &[Node], options: MatchOptions) -> Found {
    let (mut operations, mut orders) = (Vec::new(), Vec::new());
    let matching = with(nodes, |nodes| {
        match_operations(nodes, &Pairing::new(nodes, options, true), options, &mut |operation| {
            operations.push(operation.parts.iter().map(|part| (part.node, part.ordinal as usize)).collect::<Vec<_>>());
            orders.push(operation.order.clone());
        })
    });
    let given: usize = nodes.iter().map(|node| node.events.len()).sum();
    let doubtful: usize = matching.ambiguous.iter().map(|line| line.parts).sum();
    let paired: usize = operations.iter().map(Vec::len).sum();
    let counted = paired + doubtful + matching.unpaired + matching.unordered;
    assert_eq!((counted, matching.lost), (given, 0), "every part is accounted for: {matching:?}");
    assert_eq!(matching.operations, operations.len());
    Found { operations, orders, matching }
}

/// The operations as lists of (node, event); ambiguous instances.
fn check(nodes: &[Node], expected: &[&[(usize, usize)]], ambiguous: usize) {
    let found = run(nodes, MatchOptions::default());
    assert_eq!(found.operations, expected, "{found:?}");
    let counted: usize = found.matching.ambiguous.iter().map(|line| line.instances).sum();
    assert_eq!(counted, ambiguous, "{found:?}");
}

#[test]
fn labels_pair_whatever_the_order_of_the_file() {
    let one = Node::new(vec![all(hlo("psum.7", 2), 50, 60), all(hlo("psum.7", 1), 0, 10)]);
    let two =
        Node::new(vec![all(hlo("psum.7", 1), 0, 10), all(hlo("psum.7", 2), 50, 60), all(hlo("psum.7", 3), 70, 80)]);
    check(&[one, two], &[&[(0, 1), (1, 0)], &[(0, 0), (1, 1)]], 0);
}

#[test]
fn devices_overlap_and_turns_of_a_loop_do_not() {
    // Node 0: two devices, two turns; device B of turn 0 is still busy when device A begins turn 1.
    // Node 1: one device.
    let op = || hlo("psum.7", 1);
    let two = || Node::new(vec![all(op(), 0, 8), all(op(), 1, 12), all(op(), 9, 30), all(op(), 13, 30)]);
    let one = || Node::new(vec![all(op(), 0, 9), all(op(), 10, 30)]);
    check(&[two(), one()], &[&[(0, 0), (0, 1), (1, 0)], &[(0, 2), (0, 3), (1, 1)]], 0);
    // A turn fell out of node 1's window.
    let cut = Node::new(vec![all(op(), 10, 30)]);
    check(&[two(), cut], &[], 4);
}

#[test]
fn sequence_numbers_belong_to_a_group_and_a_kind() {
    let numbered = |name: &str, ranks: &[u32], sequence: i64, start: i128| {
        all(numbered(group(name, ranks), sequence), start, start + 5)
    };
    let world = [0, 1, 2];
    let nodes = [
        Node::new(vec![numbered("0", &world, 7, 0), numbered("1", &[0, 1], 7, 10)]),
        Node::new(vec![numbered("1", &[0, 1], 7, 10), numbered("0", &world, 7, 20)]),
        Node::new(vec![numbered("0", &world, 7, 0)]),
    ];
    check(&nodes, &[&[(0, 0), (1, 1), (2, 0)], &[(0, 1), (1, 0)]], 0);
    // The launch on the host and the kernel carry one number and do not overlap: which is which is
    // not said.
    let twice = || Node::new(vec![numbered("0", &[0, 1], 7, 0), numbered("0", &[0, 1], 7, 10)]);
    check(&[twice(), twice()], &[], 2);
    // A rank that is no member shows it.
    let outside = || Node::new(vec![numbered("0", &[0, 5], 7, 0)]);
    check(&[outside(), outside()], &[], 1);
    // A group whose members are not listed is trusted only when it is complete.
    let unlisted = |size: u32| {
        let key = GroupKey { name: "0".to_owned(), ranks: None, size: Some(size), is_from_making: false };
        Node::new(vec![all(crate::collectives::testing::numbered(key, 1), 0, 5)])
    };
    check(&[unlisted(2), unlisted(2)], &[&[(0, 0), (1, 0)]], 0);
    check(&[unlisted(4), unlisted(4)], &[], 1);
}

#[test]
fn a_group_of_unknown_size_is_whole_only_where_all_nodes_show_it() {
    let unknown = || {
        let key = GroupKey { name: "0".to_owned(), ranks: None, size: None, is_from_making: false };
        Node::new(vec![all(numbered(key, 1), 0, 5)])
    };
    check(&[unknown(), unknown()], &[&[(0, 0), (1, 0)]], 0);
    check(&[unknown(), unknown(), Node::new(vec![])], &[], 1);
}

#[test]
fn peers_are_found_by_rank_in_the_group_or_in_the_job() {
    let message = |source: u32, destination: u32| {
        let kind = CollectiveKind::PointToPoint { source: Some(source), destination: Some(destination) };
        part(numbered(group("1", &[2, 1]), 1), kind, 0, 5)
    };
    let found = |source, destination| {
        let nodes = [
            Node::new(vec![]),
            Node::new(vec![message(source, destination)]),
            Node::new(vec![message(source, destination)]),
        ];
        run(&nodes, MatchOptions::default()).orders.first().cloned()
    };
    assert_eq!(found(0, 1), Some(Order::Between { source: 2, destination: 1 }));
    assert_eq!(found(1, 2), Some(Order::Between { source: 1, destination: 2 }));
    assert_eq!(found(0, 7), None);
}

#[test]
fn long_lists_of_members_are_found_among_the_groups() {
    let short = || GroupKey { name: "dp".to_owned(), ranks: None, size: Some(9), is_from_making: false };
    let node = || Node::new(vec![all(numbered(short(), 1), 0, 5)]);
    let listed = |ranks: &[u32]| node().groups(&[("dp", ranks)]);
    check(&[listed(&[0, 1, 9]), listed(&[0, 1, 9])], &[&[(0, 0), (1, 0)]], 0);
    check(&[listed(&[0, 8]), listed(&[1, 9])], &[], 1);
    check(&[listed(&[0, 1, 9]), node()], &[], 1);
}

#[test]
fn messages_need_a_group() {
    let kind = || CollectiveKind::PointToPoint { source: Some(0), destination: Some(1) };
    let message = |group: Option<GroupKey>, start: i128| part(ordered(group, "p2p"), kind(), start, start + 5);
    let pair = |group: fn() -> Option<GroupKey>, steps: bool, sent: i128, received: i128| {
        let messages = |count: i128| {
            let node = Node::new((0..count).map(|k| message(group(), 10 * k)).collect());
            if steps { node.steps(&[(0, -1, 6), (1, 9, 16)]) } else { node }
        };
        [messages(sent), messages(received)]
    };
    let named: fn() -> Option<GroupKey> = || Some(group("0", &[0, 1, 2]));
    check(&pair(named, true, 2, 2), &[&[(0, 0), (1, 0)], &[(0, 1), (1, 1)]], 0);
    check(&pair(named, true, 2, 1), &[&[(0, 0), (1, 0)]], 0);
    check(&pair(|| None, true, 2, 2), &[], 2);
    // Times do not say which: a message may be received long after it was sent.
    check(&pair(named, false, 2, 2), &[], 2);
}

/// `counts[r]` parts of one look on rank r, one after the other.
fn counted(look_of: &str, counts: &[usize], groups: &[(&str, &[u32])]) -> Vec<Node> {
    let parts = |count: usize| (0..count as i128).map(|k| all(look(look_of), 10 * k, 10 * k + 5)).collect();
    let listed = |rank: usize| -> Vec<(&str, &[u32])> {
        groups.iter().copied().filter(|(_, ranks)| ranks.contains(&(rank as u32))).collect()
    };
    (counts.iter().enumerate()).map(|(rank, &count)| Node::new(parts(count)).groups(&listed(rank))).collect()
}

#[test]
fn order_pairs_only_where_counts_leave_one_group() {
    let (world, pair): (&[u32], &[u32]) = (&[0, 1, 2, 3], &[0, 2]);
    let trap = [("0", world), ("1", pair)];
    let run = |look_of, counts: &[usize], groups: &[(&str, &[u32])], options| {
        let found = run(&counted(look_of, counts, groups), options);
        (found.operations.len(), found.matching.ambiguous.first().map_or(0, |line| line.instances), found)
    };
    let default = MatchOptions::default();
    let by_count = MatchOptions { reductions_by_count: true, ..MatchOptions::default() };
    let check = |found: (usize, usize, Found), expected: (usize, usize)| {
        assert_eq!((found.0, found.1), expected, "{:?}", found.2);
    };
    check(run("gather [[4]]", &[3, 3, 3, 3], &trap, default), (3, 0));
    check(run("gather [[4]]", &[6, 3, 6, 3], &trap, default), (0, 6));
    check(run("gather [[4]]", &[3, 0, 3, 0], &trap, default), (3, 0));
    check(run("gather [[4]]", &[3, 3, 3, 2], &trap, default), (0, 3));
    check(run("gather [[4]]", &[3, 3, 3, 3], &[], default), (3, 0));
    check(run("gather [[4]]", &[3, 2, 3, 3], &[], default), (0, 3));
    // The sub-group's all-reduce looks like the world's.
    check(run("all_reduce [[4]]", &[6, 3, 6, 3], &trap, default), (0, 6));
    check(run("all_reduce [[4]]", &[6, 3, 6, 3], &trap, by_count), (0, 6));
    check(run("AllReduce [[4]]", &[3, 3, 3, 3], &trap, default), (0, 3));
    check(run("all_reduce [[4]]", &[3, 3, 3, 3], &trap, by_count), (3, 0));
    check(run("all_reduce [[4]]", &[3, 3, 3, 3], &trap[..1], default), (3, 0));
    check(run("all_reduce [[4]]", &[3, 3, 3, 3], &[], default), (0, 3));
    let reason = &run("gather [[4]]", &[6, 3, 6, 3], &trap, default).2.matching.ambiguous[0].reason;
    assert_eq!(
        reason,
        "the nodes issued 6, 3, 6, 3 of them: any of the process groups 0 [0, 1, 2, 3] and 1 [0, 2] may have issued it"
    );
}

#[test]
fn a_named_group_pairs_by_order_when_its_counts_agree() {
    let named = |count: i128| {
        let instance = || ordered(Some(group("1", &[0, 1])), "all_reduce");
        Node::new((0..count).map(|k| all(instance(), 10 * k, 10 * k + 5)).collect())
    };
    check(&[named(2), named(2), named(0)], &[&[(0, 0), (1, 0)], &[(0, 1), (1, 1)]], 0);
    check(&[named(2), named(1), named(0)], &[], 2);
    check(&[named(2), named(0)], &[], 0);
}

#[test]
fn parts_that_overlap_on_one_rank_are_not_ordered_by_their_starts() {
    let tangled = Node::new([(0, 5), (10, 30), (20, 40), (50, 60)].map(|(s, e)| all(look("gather"), s, e)).into());
    let plain = Node::new([(0, 5), (10, 15), (20, 25), (30, 35)].map(|(s, e)| all(look("gather"), s, e)).into());
    check(&[plain, tangled], &[&[(0, 0), (1, 0)], &[(0, 3), (1, 3)]], 2);
}

/// A mesh of 2 × 2 that sums over its rows: devices 0 and 1 together, 2 and 3 together, one on each
/// node.
fn mesh(replicas: &[Replicas; 4], devices: [u64; 4]) -> Vec<Node> {
    let pair_begins = [0, 0, 200_000, 200_000];
    let node = |place: usize| {
        let event = all(hlo("psum.7", 1), pair_begins[place], pair_begins[place] + 50);
        Node::new(vec![of_device(devices[place], replicas[place].clone(), event)])
    };
    (0..4).map(node).collect()
}

#[test]
fn replica_groups_are_not_taken_for_one_operation() {
    let rows = || groups_of(&[&[0, 1], &[2, 3]]);
    let of = |replicas: Replicas| std::array::from_fn(|_| replicas.clone());
    check(&mesh(&of(rows()), [0, 1, 2, 3]), &[&[(0, 0), (1, 0)], &[(2, 0), (3, 0)]], 0);
    check(&mesh(&of(groups_of(&[&[0, 2], &[1, 3]])), [0, 1, 2, 3]), &[&[(0, 0), (2, 0)], &[(1, 0), (3, 0)]], 0);
    check(&mesh(&of(together()), [0, 1, 2, 3]), &[&[(0, 0), (1, 0), (2, 0), (3, 0)]], 0);
    // A group whose other half has no trace here.
    check(&mesh(&of(groups_of(&[&[0, 9], &[1, 8], &[2, 3]])), [0, 1, 2, 3]), &[&[(2, 0), (3, 0)]], 0);
}

#[test]
fn replica_groups_that_are_not_certain_leave_it_ambiguous() {
    let rows = || groups_of(&[&[0, 1], &[2, 3]]);
    let of = |replicas: Replicas| std::array::from_fn(|_| replicas.clone());
    let reason = |nodes: &[Node]| {
        let found = run(nodes, MatchOptions::default());
        assert!(found.operations.is_empty(), "{found:?}");
        assert_eq!((found.matching.ambiguous[0].instances, found.matching.ambiguous[0].parts), (1, 4));
        found.matching.ambiguous[0].reason.clone()
    };
    assert!(reason(&mesh(&of(Replicas::Unknown), [0, 1, 2, 3])).contains("lacks its program"));
    assert!(reason(&mesh(&of(Replicas::Absent), [0, 1, 2, 3])).contains("lacks its program"));
    // Only those whose programs state the same are paired; of the others nothing is certain.
    let mixed = [rows(), rows(), Replicas::Unknown, rows()];
    check(&mesh(&mixed, [0, 1, 2, 3]), &[&[(0, 0), (1, 0)]], 1);
    let differing = [rows(), rows(), rows(), together()];
    check(&mesh(&differing, [0, 1, 2, 3]), &[&[(0, 0), (1, 0)]], 0);
    // Every host counts its devices from 0, or a device is in no group or in two.
    assert!(reason(&mesh(&of(rows()), [0, 0, 1, 1])).contains("which devices belong to which process"));
    assert!(reason(&mesh(&of(rows()), [0, 1, 2, 7])).contains("which devices belong to which process"));
    let twice = groups_of(&[&[0, 1], &[1, 2, 3]]);
    assert!(reason(&mesh(&of(twice), [0, 1, 2, 3])).contains("which devices belong to which process"));
    let nameless = |mut nodes: Vec<Node>| {
        nodes[3].events[0].label.device = None;
        nodes
    };
    // Planes are numbered by their host, or by a merge.
    let of_planes = |mut nodes: Vec<Node>| {
        for (number, node) in (0..).zip(&mut nodes) {
            node.events[0].label.device = Some(Device::OfPlane(number));
        }
        nodes
    };
    assert!(reason(&of_planes(mesh(&of(rows()), [0, 1, 2, 3]))).contains("which devices belong to which process"));
    check(&of_planes(mesh(&of(together()), [0; 4])), &[&[(0, 0), (1, 0), (2, 0), (3, 0)]], 0);
    assert!(reason(&nameless(mesh(&of(rows()), [0, 1, 2, 3]))).contains("which devices belong to which process"));
    check(&nameless(mesh(&of(together()), [0, 1, 2, 3])), &[&[(0, 0), (1, 0), (2, 0), (3, 0)]], 0);
}

#[test]
fn operations_known_by_order_alone_need_certain_replicas_too() {
    let nodes = |replicas: Replicas| {
        let node = |device: u64| {
            let event = |k: i128| of_device(device, replicas.clone(), all(look("gather"), 10 * k, 10 * k + 5));
            Node::new((0..2).map(event).collect())
        };
        [node(0), node(1)]
    };
    check(&nodes(together()), &[&[(0, 0), (1, 0)], &[(0, 1), (1, 1)]], 0);
    check(&nodes(Replicas::Absent), &[&[(0, 0), (1, 0)], &[(0, 1), (1, 1)]], 0);
    check(&nodes(Replicas::Unknown), &[], 2);
    check(&nodes(groups_of(&[&[0, 1]])), &[&[(0, 0), (1, 0)], &[(0, 1), (1, 1)]], 0);
    check(&nodes(groups_of(&[&[0], &[1]])), &[], 2);
    check(&nodes(groups_of(&[&[0]])), &[], 2);
}

#[test]
fn one_program_on_two_disjoint_meshes_is_two_operations() {
    let (first, second) = (|| groups_of(&[&[0, 1]]), || groups_of(&[&[2, 3]]));
    let replicas = [first(), first(), second(), second()];
    check(&mesh(&replicas, [0, 1, 2, 3]), &[&[(0, 0), (1, 0)], &[(2, 0), (3, 0)]], 0);
    // Hosts may number their devices as they like: each mesh's program says whose it is.
    check(&mesh(&replicas, [0; 4]), &[&[(0, 0), (1, 0)], &[(2, 0), (3, 0)]], 0);
    // Of each mesh one trace alone.
    let mut halves = mesh(&replicas, [0, 1, 2, 3]);
    halves.remove(2);
    halves.remove(1);
    let found = run(&halves, MatchOptions::default());
    assert_eq!((found.operations.len(), found.matching.unpaired), (0, 2));
    // Where only order tells executions apart.
    let by_order = |replicas: Replicas, start: i128, count: i128| {
        let event = |k: i128| of_device(0, replicas.clone(), all(look("gather"), start + 10 * k, start + 10 * k + 5));
        Node::new((0..count).map(event).collect())
    };
    let four = |counts: [i128; 4]| {
        [first(), first(), second(), second()]
            .into_iter()
            .zip(counts)
            .zip([0, 0, 900, 900])
            .map(|((replicas, count), start)| by_order(replicas, start, count))
            .collect::<Vec<_>>()
    };
    let of_first: [&[(usize, usize)]; 2] = [&[(0, 0), (1, 0)], &[(0, 1), (1, 1)]];
    check(&four([2, 2, 2, 2]), &[of_first[0], of_first[1], &[(2, 0), (3, 0)], &[(2, 1), (3, 1)]], 0);
    check(&four([2, 2, 2, 1]), &of_first, 2);
}

#[test]
fn an_execution_with_more_parts_than_are_held_is_ambiguous_and_the_next_is_not() {
    let options = MatchOptions { held_max: 3, ..MatchOptions::default() };
    for number in [|k| hlo("psum.7", k), |k| numbered(group("0", &[0, 1]), k)] {
        let node = |parts: i128| {
            let mut events: Vec<CollectiveEvent> = (0..parts).map(|k| all(number(1), k, 100)).collect();
            events.push(all(number(2), 200, 205));
            Node::new(events)
        };
        let found = run(&[node(2), node(3)], options);
        assert_eq!(found.operations, [vec![(0, 2), (1, 3)]], "{found:?}");
        let [line] = &found.matching.ambiguous[..] else { panic!("{found:?}") };
        assert_eq!((line.parts, line.instances), (5, 3), "{line:?}");
        // As many as are held are judged.
        let found = run(&[node(1), node(1)], MatchOptions { held_max: 2, ..options });
        assert_eq!((found.operations.len(), found.matching.ambiguous.len()), (2, 0), "{found:?}");
    }
}

#[test]
fn more_devices_than_a_program_has_are_of_several_programs() {
    // Two hosts that know nothing of each other run one program on their devices 0 and 1 each.
    let alone = |start: i128| {
        let of = |device: u64| of_device(device, groups_of(&[&[0, 1]]), all(hlo("psum.7", 1), start, start + 50));
        Node::new(vec![of(0), of(1)])
    };
    let found = run(&[alone(0), alone(200_000)], MatchOptions::default());
    assert_eq!((found.operations.len(), found.matching.ambiguous[0].parts), (0, 4));
    assert!(found.matching.ambiguous[0].reason.contains("it appears on more devices than its program has"));
    // One host's trace alone shows no operation of two nodes, and nothing that is ambiguous.
    let found = run(&[alone(0)], MatchOptions::default());
    assert_eq!((found.matching.ambiguous.len(), found.matching.unpaired), (0, 2));
}

#[test]
fn devices_of_one_host_are_lanes_of_their_own() {
    // Two devices of node 0 and one of node 1; two turns; the second turn of device 0 begins before
    // device 1 has ended its first.
    let event = |device: u64, number: (Instance, i64), start: i128, end: i128| {
        of_device(device, together(), all(number, start, end))
    };
    let lanes = |number: fn() -> (Instance, i64)| {
        let first = vec![
            event(0, number(), 0, 8),
            event(1, number(), 1, 12),
            event(0, number(), 9, 30),
            event(1, number(), 13, 30),
        ];
        [Node::new(first), Node::new(vec![event(8, number(), 0, 8), event(8, number(), 10, 30)])]
    };
    let turns: &[&[(usize, usize)]] = &[&[(0, 0), (0, 1), (1, 0)], &[(0, 2), (0, 3), (1, 1)]];
    check(&lanes(|| hlo("psum.7", 1)), turns, 0);
    check(&lanes(|| look("gather")), turns, 0);
    // A turn of one device is missing.
    let [mut first, second] = lanes(|| hlo("psum.7", 1));
    first.events.pop();
    check(&[first, second], &[], 3);
}

#[test]
fn an_exchange_binds_only_those_that_send() {
    let number = || numbered(group("0", &[2, 0, 1]), 4);
    let node = |recipients: Recipients| {
        let event = CollectiveEvent { recipients, ..all(number(), 0, 5) };
        Node::new(vec![event])
    };
    let orders = |recipients: [Recipients; 3]| run(&recipients.map(node), MatchOptions::default()).orders;
    use Recipients::{All, Members, Unknown};
    assert_eq!(orders([All, All, All]), [Order::AllToAll]);
    // Members by place in the group: place 0 is rank 2, place 1 rank 0, place 2 rank 1. Rank 0
    // sends to rank 2 alone, rank 1 to nobody, rank 2 to all.
    let expected = Order::Exchange(vec![(0, vec![2]), (1, vec![2]), (2, vec![0])]);
    assert_eq!(orders([Members(0b001), Members(0), All]), [expected]);
    let found = run(&[All, Unknown, All].map(node), MatchOptions::default());
    assert_eq!((found.orders.len(), found.matching.ambiguous[0].parts), (0, 3));
    assert!(found.matching.ambiguous[0].reason.contains("which ranks send"));
    // Without members listed nobody knows which bit is whose.
    let unlisted = |recipients: Recipients| {
        let key = GroupKey { name: "0".to_owned(), ranks: None, size: Some(2), is_from_making: false };
        Node::new(vec![CollectiveEvent { recipients, ..all(numbered(key, 4), 0, 5) }])
    };
    let found = run(&[unlisted(Members(1)), unlisted(All)], MatchOptions::default());
    assert_eq!((found.orders.len(), found.matching.unordered), (0, 2));
}
