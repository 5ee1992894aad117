//! Which nodes probe which: a ring plus random chords, the same on every rank.
//!
//! The ring makes the graph connected and gives each node an out-edge. Chords start as the
//! circulant graph of the wanted degree (node i joined to i ± 2, i ± 3, …) and are then shuffled by
//! double edge swaps, (a,b) (c,d) → (a,d) (c,b), which keep every degree exact; drawing chords at
//! random instead leaves nodes short. Random chords make the graph's diameter, and with it the
//! error between far nodes, grow as log N.
//!
//! Orientation: the ring is a directed cycle; chords are oriented along trails (Hierholzer) that
//! start at nodes of odd degree, so in- and out-degree of a node differ by at most 1. Whatever the
//! prober's role does to the measured offset, the responder's does in reverse, and balanced roles
//! cancel it.
//!
//! By hand: 5 nodes, 4 neighbours: ring 0→1→2→3→4→0 and the chords of the pentagram 0–2–4–1–3–0.
//!
//! It does not know hosts or distances.

use std::collections::HashSet;

use probe_sync_time::Edge;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Returns the directed edges of a run, sorted: each undirected pair once (two nodes: both
/// directions), about `neighbors` undirected edges per node, at least the ring. `neighbors ≥ nodes
/// − 1` gives the complete graph.
pub fn edges(nodes: u32, neighbors: u32, seed: u64) -> Vec<Edge> {
    if nodes < 2 {
        return Vec::new();
    }
    let ring = (0..nodes).map(|i| Edge::new(i, (i + 1) % nodes));
    let mut chords = circulant_chords(nodes, neighbors);
    if u64::from(neighbors) + 1 < u64::from(nodes) {
        swap_ends(&mut chords, nodes, &mut ChaCha8Rng::seed_from_u64(seed));
    }
    let mut edges: Vec<Edge> = ring.chain(orient(nodes, &chords)).collect();
    edges.sort_unstable();
    edges
}

/// Returns the undirected pairs, beyond the ring, of the circulant graph of degree `neighbors` (one
/// node may have one less).
fn circulant_chords(nodes: u32, neighbors: u32) -> Vec<[u32; 2]> {
    let neighbors = neighbors.min(nodes - 1);
    let whole = neighbors / 2;
    let mut chords: Vec<[u32; 2]> =
        (2..=whole).flat_map(|step| (0..nodes).map(move |i| [i, wrap(i, step, nodes)])).collect();
    if neighbors % 2 == 1 && neighbors > 1 {
        // One more per node: i to its opposite. Of an odd number of nodes, one stays without.
        let step = nodes / 2;
        chords.extend((0..step).map(|i| [i, i + step]));
    }
    chords
}

/// Swaps the ends of random pairs of chords, never making a loop, a double edge or a ring edge.
fn swap_ends(chords: &mut [[u32; 2]], nodes: u32, rng: &mut ChaCha8Rng) {
    let Some(last) = u32::try_from(chords.len()).ok().and_then(|count| count.checked_sub(1)) else { return };
    let mut present: HashSet<[u32; 2]> = chords.iter().map(|chord| sorted(*chord)).collect();
    let is_free = |present: &HashSet<[u32; 2]>, [a, b]: [u32; 2]| {
        let apart = a.abs_diff(b);
        apart > 1 && apart < nodes - 1 && !present.contains(&sorted([a, b]))
    };
    for _ in 0..chords.len() * SWAPS_PER_CHORD {
        // u32 and not usize: the latter draws other numbers on other machines.
        let (first, second) = (rng.random_range(0..=last) as usize, rng.random_range(0..=last) as usize);
        let flip = rng.random_bool(0.5);
        let [a, b] = chords[first];
        let [c, d] = if flip { [chords[second][1], chords[second][0]] } else { chords[second] };
        let made = [[a, d], [c, b]];
        let distinct = first != second && sorted(made[0]) != sorted(made[1]);
        if distinct && made.iter().all(|chord| is_free(&present, *chord)) {
            present.remove(&sorted([a, b]));
            present.remove(&sorted([c, d]));
            present.extend(made.map(sorted));
            [chords[first], chords[second]] = made;
        }
    }
}

/// Directs every chord so that each node has as many in as out, ±1 if the number is odd.
fn orient(nodes: u32, chords: &[[u32; 2]]) -> Vec<Edge> {
    let mut at: Vec<Vec<(u32, usize)>> = vec![Vec::new(); nodes as usize];
    for (index, [a, b]) in chords.iter().enumerate() {
        at[*a as usize].push((*b, index));
        at[*b as usize].push((*a, index));
    }
    // A trail that starts at an odd node ends at an odd node, and each is the end of one trail.
    // What they leave over has even degrees everywhere, at odd nodes too, so the trails of the
    // second pass are closed.
    let odd: Vec<u32> = (0..nodes).filter(|i| at[*i as usize].len() % 2 == 1).collect();
    let mut used = vec![false; chords.len()];
    let mut directed = Vec::with_capacity(chords.len());
    // Bounded: each step takes a chord out of a list.
    for start in odd.into_iter().chain(0..nodes) {
        let mut here = start;
        while let Some((there, index)) = at[here as usize].pop() {
            if !std::mem::replace(&mut used[index], true) {
                directed.push(Edge::new(here, there));
                here = there;
            }
        }
    }
    directed
}

fn wrap(node: u32, step: u32, nodes: u32) -> u32 {
    ((u64::from(node) + u64::from(step)) % u64::from(nodes)) as u32
}

fn sorted([a, b]: [u32; 2]) -> [u32; 2] {
    [a.min(b), a.max(b)]
}

/// Swap attempts per chord; ten mix well, so that what remains of the circulant is what chance
/// would leave.
const SWAPS_PER_CHORD: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Undirected degree, and out-degree minus in-degree, of each node.
    fn degrees(nodes: u32, edges: &[Edge]) -> (Vec<u32>, Vec<i32>) {
        let (mut degree, mut excess) = (vec![0; nodes as usize], vec![0; nodes as usize]);
        for edge in edges {
            degree[edge.src.index()] += 1;
            degree[edge.dst.index()] += 1;
            excess[edge.src.index()] += 1;
            excess[edge.dst.index()] -= 1;
        }
        (degree, excess)
    }

    fn check(nodes: u32, neighbors: u32, seed: u64) {
        let edges = edges(nodes, neighbors, seed);
        let pairs: HashSet<[u32; 2]> = edges.iter().map(|edge| sorted([edge.src.0, edge.dst.0])).collect();
        assert_eq!(pairs.len(), edges.len(), "each pair once");
        assert!(pairs.iter().all(|[a, b]| a < b && *b < nodes));
        for i in 0..nodes {
            let next = Edge::new(i, (i + 1) % nodes);
            assert!(edges.binary_search(&next).is_ok(), "{next:?} of the ring is missing");
        }
        let (degree, excess) = degrees(nodes, &edges);
        let wanted = neighbors.clamp(2, nodes - 1);
        let short = degree.iter().filter(|degree| **degree + 1 == wanted).count();
        assert!(degree.iter().all(|degree| (wanted - 1..=wanted).contains(degree)), "{degree:?}");
        assert_eq!(short as u32, if wanted % 2 == 1 { nodes % 2 } else { 0 }, "nodes short of one");
        assert!(excess.iter().all(|excess| excess.abs() <= 1), "{excess:?}");
    }

    #[test]
    fn small_runs_by_hand() {
        assert_eq!(edges(0, 10, 1), []);
        assert_eq!(edges(1, 10, 1), []);
        assert_eq!(edges(2, 10, 1), [Edge::new(0, 1), Edge::new(1, 0)]);
        assert_eq!(edges(3, 10, 1), [Edge::new(0, 1), Edge::new(1, 2), Edge::new(2, 0)]);
        assert_eq!(edges(4, 1, 1).len(), 4);
        assert_eq!(edges(4, 3, 1).len(), 6);
    }

    /// A trail may leave an odd node with two chords unused; a second pass must take them.
    #[test]
    fn chords_that_odd_trails_leave_over_are_kept() {
        check(35, 11, 16_946_730_191_050_100_446);
    }

    #[test]
    fn large_runs_and_dense_runs() {
        check(10_240, 10, 3);
        check(1024, 10, 3);
        check(300, 298, 3);
        check(300, 299, 3);
        check(301, 299, 3);
    }

    #[test]
    fn another_seed_gives_other_chords_and_shuffling_leaves_little_of_the_circulant() {
        assert_eq!(edges(256, 10, 1), edges(256, 10, 1));
        assert_ne!(edges(256, 10, 1), edges(256, 10, 2));
        let near = edges(256, 10, 1).into_iter().filter(|edge| {
            let apart = edge.src.0.abs_diff(edge.dst.0);
            (2..=5).contains(&apart.min(256 - apart))
        });
        // 1024 chords; by chance 1024 · 8/253 = 32 of them are that near.
        assert!(near.count() < 70);
    }

    /// The point of random chords: every node is few hops from node 0.
    #[test]
    fn the_graph_has_a_small_diameter() {
        let nodes = 1024;
        let mut near: Vec<Vec<usize>> = vec![Vec::new(); nodes];
        for edge in edges(nodes as u32, 10, 5) {
            near[edge.src.index()].push(edge.dst.index());
            near[edge.dst.index()].push(edge.src.index());
        }
        let (mut reached, mut front, mut hops) = (HashSet::from([0]), vec![0], 0);
        while reached.len() < nodes && hops < 6 {
            front = front.iter().flat_map(|i| near[*i].clone()).filter(|i| reached.insert(*i)).collect();
            hops += 1;
        }
        assert!(reached.len() == nodes && hops <= 5, "{hops} hops reach {} nodes", reached.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn rings_with_chords(nodes in 3u32..1024, neighbors in 0u32..14, seed: u64) {
            check(nodes, neighbors, seed);
        }

        #[test]
        fn every_degree_of_small_runs(nodes in 3u32..40, neighbors in 0u32..42, seed: u64) {
            check(nodes, neighbors, seed);
        }
    }
}
