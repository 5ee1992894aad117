//! What one window brought to one node, and the fit of its edges.
//!
//! Place in the flow: first step of a round. Whoever probes (a live node, a simulation, a recording) cuts its exchanges into a
//! [`WindowCut`]; [`fit_window`] turns it into what the node contributes to the round.
//! What it does not do: choose when to cut; count packets.

use probe_sync_time::{Edge, Exchange, NodeId, RoundId, System, Timestamp};

use crate::edge_fit::{self, EdgeWindow, FitOptions};
use crate::window::{ClockEvent, NodeWindowData, PeerPackets};

/// What one window brought to one node.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowCut {
    /// The node.
    pub node: NodeId,
    /// The window's start on this node's clock.
    pub start: Timestamp<System>,
    /// The window's end on this node's clock.
    pub end: Timestamp<System>,
    /// The out-edges, in order of their destination.
    pub edges: Vec<EdgeCut>,
    /// A disturbance of the system clock, if the node saw it.
    pub clock_event: Option<ClockEvent>,
    /// Packets by peer, also those that the system refused to send. Empty: they were not counted.
    pub packets: Vec<PeerPackets>,
}

/// What one window brought on one edge.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeCut {
    /// The edge.
    pub edge: Edge,
    /// The exchanges that finished.
    pub exchanges: Vec<Exchange>,
    /// How many were given up.
    pub lost: u32,
    /// What all stamps of the source and of the destination may be wrong by because they were converted from an interface's clock, ns.
    pub stamp_errors_ns: [f64; 2],
}

impl WindowCut {
    /// The middle of the window on the node's own clock, where x of its edges is 0.
    pub fn midpoint(&self) -> Timestamp<System> {
        self.start.midpoint(self.end)
    }

    /// The edges as the fits take them.
    pub fn edge_windows(&self) -> impl Iterator<Item = EdgeWindow<'_>> {
        let midpoint = self.midpoint();
        self.edges.iter().map(move |EdgeCut { edge, exchanges, lost, stamp_errors_ns }| EdgeWindow {
            edge: *edge,
            midpoint,
            exchanges,
            lost: *lost,
            stamp_errors_ns: *stamp_errors_ns,
        })
    }
}

/// Fits every edge of a cut window; also how many exchanges no fit used.
pub fn fit_window(
    cut: &WindowCut,
    round_id: RoundId,
    options: &FitOptions,
    stop_requested: bool,
) -> (NodeWindowData, u64) {
    let (mut left_out, mut unfitted) = (0, Vec::new());
    let edges = cut
        .edge_windows()
        .filter_map(|window| {
            let Some((line, diagnostics)) = edge_fit::fit_with_diagnostics(&window, options) else {
                unfitted.extend((window.lost > 0).then_some((window.edge.dst, window.lost)));
                return None;
            };
            left_out += u64::from(diagnostics.left_out);
            Some(line)
        })
        .collect();
    let data = NodeWindowData {
        node_id: cut.node,
        round_id,
        window_start: cut.start,
        window_end: cut.end,
        edges,
        clock_event: cut.clock_event,
        stop_requested,
        packets: cut.packets.clone(),
        unfitted,
    };
    (data, left_out)
}
