//! Packets of one window laid beside each other from both ends: what passed each way between two nodes.
//!
//! Place in the flow: every node counts packets by peer from cut to cut; the counts travel in [`NodeWindowData`]; [`directions`]
//! joins both ends of a pair for the fault watch, which tells loss one way from loss both ways.
//!
//! lost(i→j) = sent(i towards j) − received(j from i), each in its own node's window. The windows of two nodes do not end at
//! the same instant, and packets are on their way at a cut. Counts are differences of running totals, though: what one
//! round lacks the next one has too many of. Over two rounds running the mistake is that of the last cut alone, and the watch
//! wants two rounds with more than a tenth missing.
//!
//! What it does not do: count (crate `probe`), keep the exact account at a run's end, name faults (`faults`).

use std::collections::BTreeMap;

use probe_sync_time::{Edge, NodeId};

use crate::faults::DirectionCount;
use crate::window::{NodeWindowData, PeerPackets};

/// What passed each way between the nodes of a round. A node that is absent, or recorded before packets were counted, says
/// nothing; one that counted others and not this sender received nothing.
pub fn directions(windows: &[NodeWindowData], nodes: usize) -> Vec<DirectionCount> {
    let of_node = |window: &NodeWindowData| {
        let received = window.packets.iter().map(|packets| (packets.peer, packets.received));
        (window.node_id, received.collect::<BTreeMap<NodeId, u64>>())
    };
    let received: BTreeMap<NodeId, BTreeMap<NodeId, u64>> =
        windows.iter().filter(|window| !window.packets.is_empty()).map(of_node).collect();
    let mut all = Vec::new();
    for window in windows.iter().filter(|window| window.node_id.index() < nodes) {
        let from = window.node_id;
        let peers = window.packets.iter().filter(|packets| packets.peer.index() < nodes && packets.peer != from);
        for &PeerPackets { peer: to, sent, .. } in peers {
            if let Some(there) = received.get(&to) {
                all.push(DirectionCount { from, to, sent, received: there.get(&from).copied().unwrap_or(0) });
            }
        }
    }
    all
}

/// Losses on edges that have no fit.
pub fn unfitted(windows: &[NodeWindowData], nodes: usize) -> Vec<(Edge, u32)> {
    let of_node = |window: &NodeWindowData| {
        let src = window.node_id;
        window.unfitted.clone().into_iter().map(move |(dst, lost)| (Edge { src, dst }, lost))
    };
    let known = |edge: Edge| edge.src.index().max(edge.dst.index()) < nodes;
    windows.iter().flat_map(of_node).filter(|(edge, _)| known(*edge)).collect()
}
