//! The packets of one window seen from both ends, as counts per direction between two nodes.
//!
//! Every node counts packets by peer from cut to cut, and the counts travel in [`NodeWindow`].
//! [`directions`] joins both ends of a pair for the fault watch, which distinguishes loss in one
//! direction from loss in both.
//!
//! lost(i→j) = sent(i towards j) − received(j from i), each in its own node's window. The windows
//! of two nodes do not end at the same instant, and packets are on their way at a cut. Counts are
//! differences of running totals, though: what one round lacks the next one has too many of. By how
//! much one window is longer than the other is known, and the watch allows for as many packets
//! ([`DirectionCount::apart`]): a control message that was late moves a window by more than a real
//! loss. It also allows for what came too much in the round before.

use std::collections::BTreeMap;

use probe_sync_lines::{NodeWindow, PeerPackets};
use probe_sync_time::{Edge, NodeId};

use crate::faults::DirectionCount;

/// Returns the packets in each direction between the nodes of a round. Nothing is known about a
/// node that is absent, or was recorded before packets were counted; one that counted others but
/// not this sender received nothing.
pub fn directions(windows: &[NodeWindow], nodes: usize) -> Vec<DirectionCount> {
    let mut counted: BTreeMap<NodeId, (&NodeWindow, BTreeMap<NodeId, u64>)> = BTreeMap::new();
    for window in windows.iter().filter(|window| !window.packets.is_empty()) {
        let received = window.packets.iter().map(|packets| (packets.peer, packets.received));
        counted.insert(window.node_id, (window, received.collect()));
    }
    let mut all = Vec::new();
    for window in windows.iter().filter(|window| window.node_id.index() < nodes) {
        let from = window.node_id;
        let peers = window.packets.iter().filter(|packets| packets.peer.index() < nodes && packets.peer != from);
        for &PeerPackets { peer: to, sent, .. } in peers {
            if let Some((there, received)) = counted.get(&to) {
                let received = received.get(&from).copied().unwrap_or(0);
                all.push(DirectionCount { from, to, sent, received, apart: apart(window, there) });
            }
        }
    }
    all
}

/// Returns the share of itself by which the sender's window is longer than the receiver's, or 0. A
/// window that is only later lacks at its end what it has in excess at its beginning.
///
/// Example: the receiver's window of 1 s begins 0.3 s late and ends with the sender's, so of the
/// packets of 1 s it counted those of 0.7 s.
fn apart(sender: &NodeWindow, receiver: &NodeWindow) -> f64 {
    let length = |window: &NodeWindow| (window.window_end - window.window_start).as_ns() as f64;
    (1.0 - length(receiver) / length(sender).max(1.0)).clamp(0.0, 1.0)
}

/// Returns the losses on edges without a fit.
pub fn unfitted(windows: &[NodeWindow], nodes: usize) -> Vec<(Edge, u32)> {
    let of_node = |window: &NodeWindow| {
        let src = window.node_id;
        window.unfitted.clone().into_iter().map(move |(dst, lost)| (Edge { src, dst }, lost))
    };
    let known = |edge: Edge| edge.src.index().max(edge.dst.index()) < nodes;
    windows.iter().flat_map(of_node).filter(|(edge, _)| known(*edge)).collect()
}
