//! What is paired, what is not, and why.

use super::*;
use crate::collectives::testing::{Node, all, group, hlo, look, part, with};

fn run(nodes: &[Node], options: MatchOptions) -> Matching {
    let found = with(nodes, |nodes| match_operations(nodes, options));
    let given: usize = nodes.iter().map(|node| node.events.len()).sum();
    let doubtful: usize = found.ambiguous.iter().map(|line| line.parts).sum();
    let paired: usize = found.operations.iter().map(|operation| operation.parts.len()).sum();
    assert_eq!(paired + doubtful + found.unpaired + found.unordered, given, "every part is accounted for: {found:?}");
    found
}

/// The operations as lists of (node, event); ambiguous instances.
fn check(nodes: &[Node], expected: &[&[(usize, usize)]], ambiguous: usize) {
    let found = run(nodes, MatchOptions::default());
    let paired = |operation: &Operation| operation.parts.iter().map(|part| (part.node, part.event)).collect::<Vec<_>>();
    assert_eq!(found.operations.iter().map(paired).collect::<Vec<_>>(), expected, "{found:?}");
    assert_eq!(found.ambiguous.iter().map(|line| line.instances).sum::<usize>(), ambiguous, "{found:?}");
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
    // Node 0: two devices, two turns; device B of turn 0 is still busy when device A begins turn 1. Node 1: one device.
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
        all(Instance::Sequence { group: group(name, ranks), sequence }, start, start + 5)
    };
    let world = [0, 1, 2];
    let nodes = [
        Node::new(vec![numbered("0", &world, 7, 0), numbered("1", &[0, 1], 7, 10)]),
        Node::new(vec![numbered("1", &[0, 1], 7, 10), numbered("0", &world, 7, 20)]),
        Node::new(vec![numbered("0", &world, 7, 0)]),
    ];
    check(&nodes, &[&[(0, 0), (1, 1), (2, 0)], &[(0, 1), (1, 0)]], 0);
    // The launch on the host and the kernel carry one number and do not overlap: which is which is not said.
    let twice = || Node::new(vec![numbered("0", &[0, 1], 7, 0), numbered("0", &[0, 1], 7, 10)]);
    check(&[twice(), twice()], &[], 2);
    // A rank that is no member shows it.
    let outside = || Node::new(vec![numbered("0", &[0, 5], 7, 0)]);
    check(&[outside(), outside()], &[], 1);
    // A group whose members are not listed is trusted only when it is complete.
    let unlisted = |size: u32| {
        let key = GroupKey { name: "0".to_owned(), ranks: None, size: Some(size) };
        Node::new(vec![all(Instance::Sequence { group: key, sequence: 1 }, 0, 5)])
    };
    check(&[unlisted(2), unlisted(2)], &[&[(0, 0), (1, 0)]], 0);
    check(&[unlisted(4), unlisted(4)], &[], 1);
}

#[test]
fn peers_are_found_by_rank_in_the_group_or_in_the_job() {
    let message = |source: u32, destination: u32| {
        let kind = CollectiveKind::PointToPoint { source: Some(source), destination: Some(destination) };
        part(Instance::Sequence { group: group("1", &[2, 1]), sequence: 1 }, kind, 0, 5)
    };
    let found = |source, destination| {
        let nodes = [
            Node::new(vec![]),
            Node::new(vec![message(source, destination)]),
            Node::new(vec![message(source, destination)]),
        ];
        run(&nodes, MatchOptions::default()).operations.first().map(|operation| operation.order)
    };
    assert_eq!(found(0, 1), Some(Order::Between { source: 2, destination: 1 }));
    assert_eq!(found(1, 2), Some(Order::Between { source: 1, destination: 2 }));
    assert_eq!(found(0, 7), None);
}

#[test]
fn long_lists_of_members_are_found_among_the_groups() {
    let short = || GroupKey { name: "dp".to_owned(), ranks: None, size: Some(9) };
    let node = || Node::new(vec![all(Instance::Sequence { group: short(), sequence: 1 }, 0, 5)]);
    let listed = |ranks: &[u32]| node().groups(&[("dp", ranks)]);
    check(&[listed(&[0, 1, 9]), listed(&[0, 1, 9])], &[&[(0, 0), (1, 0)]], 0);
    check(&[listed(&[0, 8]), listed(&[1, 9])], &[], 1);
    check(&[listed(&[0, 1, 9]), node()], &[], 1);
}

#[test]
fn messages_need_a_group() {
    let kind = || CollectiveKind::PointToPoint { source: Some(0), destination: Some(1) };
    let message = |group: Option<GroupKey>, start: i128| {
        part(Instance::Order { group, signature: "p2p".to_owned() }, kind(), start, start + 5)
    };
    let pair = |group: fn() -> Option<GroupKey>, sent: i128, received: i128| {
        let messages = |count: i128| Node::new((0..count).map(|k| message(group(), 10 * k)).collect());
        [messages(sent), messages(received)]
    };
    let named: fn() -> Option<GroupKey> = || Some(group("0", &[0, 1, 2]));
    check(&pair(named, 2, 2), &[&[(0, 0), (1, 0)], &[(0, 1), (1, 1)]], 0);
    check(&pair(named, 2, 1), &[], 2);
    check(&pair(|| None, 2, 2), &[], 2);
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
        (found.operations.len(), found.ambiguous.first().map_or(0, |line| line.instances), found)
    };
    let default = MatchOptions::default();
    let by_count = MatchOptions { reductions_by_count: true };
    let check = |found: (usize, usize, Matching), expected: (usize, usize)| {
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
    let reason = &run("gather [[4]]", &[6, 3, 6, 3], &trap, default).2.ambiguous[0].reason;
    assert_eq!(
        reason,
        "the nodes did 6, 3, 6, 3 of them: any of the process groups 0 [0, 1, 2, 3] and 1 [0, 2] may have done it"
    );
}

#[test]
fn a_named_group_pairs_by_order_when_its_counts_agree() {
    let named = |count: i128| {
        let instance = |_| Instance::Order { group: Some(group("1", &[0, 1])), signature: "all_reduce".to_owned() };
        Node::new((0..count).map(|k| all(instance(k), 10 * k, 10 * k + 5)).collect())
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
