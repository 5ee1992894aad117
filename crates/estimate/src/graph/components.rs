//! The connected components of a graph.
//!
//! `faults` uses them to decide which nodes are heard, and `smoother` to find which nodes are tied
//! to the reference and what to hold fixed in each component.

use super::linear::Link;

/// The part that each of `count` nodes is in, named by its smallest node. Links to other nodes are
/// left out.
pub(crate) fn parts(count: usize, links: impl Iterator<Item = [usize; 2]>) -> Vec<usize> {
    let mut parent: Vec<usize> = (0..count).collect();
    for [from, to] in links.filter(|link| link.iter().all(|node| *node < count)) {
        let (a, b) = (root(&mut parent, from), root(&mut parent, to));
        parent[a.max(b)] = a.min(b);
    }
    (0..count).map(|node| root(&mut parent, node)).collect()
}

fn root(parent: &mut [usize], mut node: usize) -> usize {
    while parent[node] != node {
        parent[node] = parent[parent[node]];
        node = parent[node];
    }
    node
}

/// Holds one node of every component: the first.
pub(crate) fn anchors(count: usize, links: &[Link]) -> Vec<bool> {
    let parts = parts(count, links.iter().map(|link| [link.from, link.to]));
    parts.into_iter().enumerate().map(|(node, part)| node == part).collect()
}

/// Holds the reference and all nodes that no chain of links connects to it.
pub(crate) fn held(nodes: usize, links: &[Link], reference: usize) -> Vec<bool> {
    let mut touching = vec![Vec::new(); nodes];
    for link in links {
        touching[link.from].push(link.to);
        touching[link.to].push(link.from);
    }
    let mut held = vec![true; nodes];
    let mut queue = vec![reference];
    while let Some(node) = queue.pop() {
        for other in touching.get(node).into_iter().flatten() {
            if *other != reference && std::mem::replace(&mut held[*other], false) {
                queue.push(*other);
            }
        }
    }
    held
}
