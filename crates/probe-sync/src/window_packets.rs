//! Packets of one window, counted at both ends: what each node says of its peers, and what passed each way.
//!
//! Place in the flow: the probe thread asks [`Tally::since_last`] at every cut; the counts travel in
//! [`NodeWindowData`]; at the root [`directions`] lays both ends of a pair beside each other for the fault watch, which tells loss
//! one way from loss both ways.
//!
//! lost(i→j) = sent(i towards j) − received(j from i), each in its own node's window. The windows of two nodes do not end at
//! the same instant, and packets are on their way at a cut. Counts are differences of running totals, though: what one
//! round lacks the next one has too many of. Over two rounds running the mistake is that of the last cut alone, and the watch
//! wants two rounds with more than a tenth missing.
//!
//! What it does not do: the exact account at a run's end (`report`), name faults (`estimate::faults`).

use std::collections::BTreeMap;

use probe_sync_estimate::faults::DirectionCount;
use probe_sync_estimate::window::{NodeWindowData, PeerPackets};
use probe_sync_probe::{Counters, PeerCounters};
use probe_sync_time::{Edge, NodeId};

/// An endpoint's totals at the last cut.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    before: BTreeMap<NodeId, PeerCounters>,
}

impl Tally {
    /// What passed since the call before, for every peer that ever had traffic or an edge from here. A packet that the system
    /// refused to send counts as sent: its peer lacks it all the same.
    pub fn since_last(&mut self, counters: Counters) -> Vec<PeerPackets> {
        let given = |counts: &PeerCounters| counts.sent + counts.send_failed;
        let passed = counters.peers.iter().map(|(&peer, now)| {
            let before = self.before.get(&peer).copied().unwrap_or_default();
            PeerPackets {
                peer,
                sent: given(now).saturating_sub(given(&before)),
                received: now.first_copies().saturating_sub(before.first_copies()),
            }
        });
        let passed = passed.collect();
        self.before = counters.peers;
        passed
    }
}

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

#[cfg(test)]
#[path = "window_packets_tests.rs"]
mod tests;
