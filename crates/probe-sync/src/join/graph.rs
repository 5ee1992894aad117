//! A probing graph that the nodes define themselves instead of the generated one: each names its
//! out-neighbours.
//!
//! The root builds the edges from all nodes' lists in step 1 of the handshake, so that all ranks
//! have the same graph although each knows only its own list. A graph that leaves a node without an
//! offset is refused.

use std::collections::BTreeSet;

use probe_sync_time::{Edge, NodeId};

use super::hello::Hello;
use super::neighbors::Neighbors;

/// Returns the edges given by the nodes, in order; `None` if no node gives any. `leaders` are the
/// nodes' own hellos, by node.
///
/// # Errors
/// Names the node whose list is missing, impossible or contradicted, or the first node that no
/// chain of edges joins to node 0.
pub(super) fn given(leaders: &[&Hello]) -> Result<Option<Vec<Edge>>, String> {
    let Some(first) = leaders.iter().position(|hello| hello.neighbors != Neighbors::default()) else { return Ok(None) };
    let mut edges = BTreeSet::new();
    for (node, hello) in leaders.iter().enumerate() {
        let Some(list) = &hello.neighbors.out else {
            return Err(format!(
                "node {node} ({}) has no out_neighbors, but node {first} ({}) has: give every node a list, with \"none\" for a node \
                that only answers",
                hello.hostname, leaders[first].hostname
            ));
        };
        for dst in list {
            let edge = Edge { src: NodeId(node as u32), dst: *dst };
            if dst.index() >= leaders.len() {
                return Err(format!(
                    "out_neighbors of node {node} ({}) names node {dst}, but the run has {} nodes, numbered from 0",
                    hello.hostname,
                    leaders.len()
                ));
            }
            if edge.src == edge.dst {
                return Err(format!("out_neighbors of node {node} ({}) names the node itself", hello.hostname));
            }
            edges.insert(edge);
        }
    }
    agree_on_answers(leaders, &edges)?;
    reach_all(leaders, &edges)?;
    Ok(Some(edges.into_iter().collect()))
}

/// Compares the nodes that should probe a node, by its own list, with those that do.
fn agree_on_answers(leaders: &[&Hello], edges: &BTreeSet<Edge>) -> Result<(), String> {
    for (node, hello) in leaders.iter().enumerate() {
        let Some(stated) = &hello.neighbors.into else { continue };
        let stated: BTreeSet<NodeId> = stated.iter().copied().collect();
        let really: BTreeSet<NodeId> =
            edges.iter().filter(|edge| edge.dst.index() == node).map(|edge| edge.src).collect();
        if let Some(other) = stated.symmetric_difference(&really).next() {
            let (says, does) = if stated.contains(other) { ("names", "lacks") } else { ("lacks", "names") };
            return Err(format!(
                "in_neighbors of node {node} ({}) {says} node {other}, but out_neighbors of node {other} {does} node {node}: make the \
                lists agree, or omit in_neighbors",
                hello.hostname
            ));
        }
    }
    Ok(())
}

fn reach_all(leaders: &[&Hello], edges: &BTreeSet<Edge>) -> Result<(), String> {
    let mut reached = vec![false; leaders.len()];
    let mut front = vec![0];
    // Bounded: each node is entered once.
    while let Some(node) = front.pop() {
        if std::mem::replace(&mut reached[node], true) {
            continue;
        }
        let of = edges.iter().filter_map(|edge| match (edge.src.index(), edge.dst.index()) {
            (src, dst) if src == node => Some(dst),
            (src, dst) if dst == node => Some(src),
            _ => None,
        });
        front.extend(of.filter(|other| !reached[*other]));
    }
    match reached.iter().position(|reached| !reached) {
        None => Ok(()),
        Some(node) => Err(format!(
            "no chain of out_neighbors connects node {node} ({}) to node 0, so it would have no offset; add an edge",
            leaders[node].hostname
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::hellos;
    use super::*;

    /// A node's lists: the nodes that it probes, and those that probe it.
    type Lists<'a> = (Option<&'a [u32]>, Option<&'a [u32]>);

    fn check(lists: &[Lists<'_>], expected: Result<Option<&[(u32, u32)]>, &str>) {
        let own = |list: Option<&[u32]>| list.map(|list| list.iter().copied().map(NodeId).collect());
        let hosts = ["a", "b", "c", "d"];
        let hellos: Vec<Hello> = hellos(&hosts[..lists.len()])
            .into_iter()
            .zip(lists)
            .map(|(hello, (out, into))| Hello { neighbors: Neighbors { out: own(*out), into: own(*into) }, ..hello })
            .collect();
        let found = given(&hellos.iter().collect::<Vec<_>>());
        match (found, expected) {
            (Ok(found), Ok(expected)) => {
                let edges = |pairs: &[(u32, u32)]| pairs.iter().map(|(src, dst)| Edge::new(*src, *dst)).collect();
                assert_eq!(found, expected.map(edges));
            }
            (Err(said), Err(part)) => assert!(said.contains(part), "{said}"),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn lists_of_all_nodes_make_one_graph() {
        const NO: Lists<'_> = (None, None);
        check(&[NO, NO], Ok(None));
        check(&[(Some(&[1]), None), (Some(&[]), Some(&[0]))], Ok(Some(&[(0, 1)])));
        check(
            &[(Some(&[2, 1, 1]), None), (Some(&[0]), Some(&[0])), (Some(&[]), None)],
            Ok(Some(&[(0, 1), (0, 2), (1, 0)])),
        );
        check(&[(Some(&[1]), None), NO], Err("node 1 (b) has no out_neighbors, but node 0 (a) has"));
        check(&[NO, (None, Some(&[0]))], Err("node 0 (a) has no out_neighbors, but node 1 (b)"));
        check(&[(Some(&[2]), None), (Some(&[]), None)], Err("names node 2, but the run has 2 nodes"));
        check(&[(Some(&[1]), None), (Some(&[1]), None)], Err("names the node itself"));
        check(
            &[(Some(&[1]), None), (Some(&[]), Some(&[]))],
            Err("in_neighbors of node 1 (b) lacks node 0, but out_neighbors of node 0 names node 1"),
        );
        check(
            &[(Some(&[1]), None), (Some(&[]), Some(&[0, 2])), (Some(&[0]), None)],
            Err("in_neighbors of node 1 (b) names node 2, but out_neighbors of node 2 lacks node 1"),
        );
        check(
            &[(Some(&[1]), None), (Some(&[]), None), (Some(&[3]), None), (Some(&[]), None)],
            Err("no chain of out_neighbors connects node 2 (c) to node 0"),
        );
    }
}
