//! The timestamp errors of a falseticker, by peer.
//!
//! The event loop asks for the error of every stamp; `stamps` adds it to the clock's reading.
//!
//! A clock's own faults are in `oscillator`.

use probe_sync_time::{Edge, NodeId};

use crate::scenario::faults::{Fault, FaultKind, Span, WrongStamps};

/// The error of one falseticker's timestamps.
#[derive(Clone, Debug)]
pub(crate) struct StampError {
    span: Span,
    constant_ns: f64,
    ramp_ns_per_s: f64,
    stamps: WrongStamps,
    /// Peer and multiple, sorted by peer; empty: the same for all.
    multiples: Vec<(NodeId, f64)>,
}

impl StampError {
    /// The errors of `node`, whose peers are given by `edges`.
    pub(crate) fn of(node: NodeId, faults: &[Fault], edges: &[Edge]) -> Vec<Self> {
        let error = |fault: &Fault| match fault.what {
            FaultKind::Falseticker { node: whose, constant_ns, ramp_ns_per_s, per_peer, stamps } if whose == node => {
                let multiples = if per_peer { multiples(node, edges) } else { Vec::new() };
                Some(Self { span: fault.span(), constant_ns, ramp_ns_per_s, stamps, multiples })
            }
            _ => None,
        };
        faults.iter().filter_map(error).collect()
    }

    /// Error of a timestamp taken at `at` for a packet to or from `peer`, ns.
    pub(crate) fn error_ns(&self, at: i64, peer: NodeId, received: bool) -> f64 {
        if !self.span.contains(at) || self.stamps == WrongStamps::Receive && !received {
            return 0.0;
        }
        let place = self.multiples.binary_search_by_key(&peer, |(peer, _)| *peer);
        let multiple = place.map_or(1.0, |place| self.multiples[place].1);
        multiple * (self.constant_ns + self.ramp_ns_per_s * (at - self.span.start_ns) as f64 * 1e-9)
    }
}

/// −1, +1, −2, +2, … for the peers of `node` in order.
fn multiples(node: NodeId, edges: &[Edge]) -> Vec<(NodeId, f64)> {
    let peer = |edge: &Edge| match (edge.src == node, edge.dst == node) {
        (true, _) => Some(edge.dst),
        (_, true) => Some(edge.src),
        _ => None,
    };
    let mut peers: Vec<NodeId> = edges.iter().filter_map(peer).collect();
    peers.sort_unstable();
    peers.dedup();
    let multiple = |place: usize| {
        let size = (place / 2 + 1) as f64;
        if place.is_multiple_of(2) { -size } else { size }
    };
    peers.into_iter().enumerate().map(|(place, peer)| (peer, multiple(place))).collect()
}
