//! Packets of one window laid beside each other from both ends: what passed each way between two nodes.
//!
//! Place in the flow: every node counts packets by peer from cut to cut; the counts travel in [`NodeWindowData`]; [`directions`]
//! joins both ends of a pair for the fault watch, which tells loss one way from loss both ways.
//!
//! lost(i→j) = sent(i towards j) − received(j from i), each in its own node's window. The windows of two nodes do not end at
//! the same instant, and packets are on their way at a cut. Counts are differences of running totals, though: what one
//! round lacks the next one has too many of. Where both clocks are known, so is for how long only one of the two counted, and the watch
//! allows for as many packets ([`DirectionCount::apart`]): a control message that was late moves a window by more than a real loss.
//!
//! What it does not do: count (crate `probe`), keep the exact account at a run's end, name faults (`faults`).

use std::collections::BTreeMap;

use probe_sync_time::{Duration, Edge, NodeId};

use crate::faults::DirectionCount;
use crate::window::{NodeEstimate, NodeWindowData, PeerPackets};

/// What passed each way between the nodes of a round, whose offsets are `nodes`. A node that is absent, or recorded before packets were counted, says
/// nothing; one that counted others and not this sender received nothing.
pub fn directions(windows: &[NodeWindowData], nodes: &[NodeEstimate]) -> Vec<DirectionCount> {
    let mut counted: BTreeMap<NodeId, (&NodeWindowData, BTreeMap<NodeId, u64>)> = BTreeMap::new();
    for window in windows.iter().filter(|window| !window.packets.is_empty()) {
        let received = window.packets.iter().map(|packets| (packets.peer, packets.received));
        counted.insert(window.node_id, (window, received.collect()));
    }
    let mut all = Vec::new();
    for window in windows.iter().filter(|window| window.node_id.index() < nodes.len()) {
        let from = window.node_id;
        let peers = window.packets.iter().filter(|packets| packets.peer.index() < nodes.len() && packets.peer != from);
        for &PeerPackets { peer: to, sent, .. } in peers {
            if let Some((there, received)) = counted.get(&to) {
                let received = received.get(&from).copied().unwrap_or(0);
                all.push(DirectionCount { from, to, sent, received, apart: apart(window, there, nodes) });
            }
        }
    }
    all
}

/// For what share of the first window only one of two nodes was in its window; 0 where a clock is not known.
///
/// By hand: windows of 1 s, the second begins and ends 0.1 s later: 0.2 of the first.
fn apart(one: &NodeWindowData, other: &NodeWindowData, nodes: &[NodeEstimate]) -> f64 {
    let span = |window: &NodeWindowData| {
        let estimate = nodes.get(window.node_id.index()).filter(|estimate| estimate.reachable)?;
        let offset = Duration::from_ns_f64(estimate.offset_ns);
        Some([window.window_start - offset, window.window_end - offset])
    };
    let (Some([begin, end]), Some([others_begin, others_end])) = (span(one), span(other)) else { return 0.0 };
    let apart = (begin - others_begin).as_ns().unsigned_abs() + (end - others_end).as_ns().unsigned_abs();
    apart as f64 / (end - begin).as_ns().max(1) as f64
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
