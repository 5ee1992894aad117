//! One node's data from one window, and the fit of its edges.
//!
//! Every source of exchanges (a live node, a simulation, a recording) cuts them into a
//! [`WindowCut`]; [`fit_window`] turns it into the node's contribution to the round.

use std::borrow::Cow;

use probe_sync_lines::{ClockEvent, NodeWindow, PeerPackets, Punctuality};
use probe_sync_time::{Duration, Edge, Exchange, NodeId, RoundId, System, Timestamp};

use super::step;
use crate::edge_fit::{self, EdgeWindow, FitOptions};
use crate::statistics::median;

/// Results of one window at one node.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowCut {
    /// The node.
    pub node: NodeId,
    /// The window's start on this node's clock.
    pub start: Timestamp<System>,
    /// The window's end on this node's clock.
    pub end: Timestamp<System>,
    /// Out-edges, in order of destination.
    pub edges: Vec<EdgeCut>,
    /// Disturbance of the system clock detected by the node, if any.
    pub clock_event: Option<ClockEvent>,
    /// Packets by peer, including those that the system refused to send. Empty if they were not
    /// counted.
    pub packets: Vec<PeerPackets>,
}

/// Results of one window on one edge.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeCut {
    /// The edge.
    pub edge: Edge,
    /// Finished exchanges.
    pub exchanges: Vec<Exchange>,
    /// Number of exchanges given up.
    pub lost: u32,
    /// Bounds of the errors that the conversion of an interface's clock causes in all stamps of the
    /// source and of the destination, ns.
    pub stamp_errors_ns: [f64; 2],
}

impl WindowCut {
    /// Returns the midpoint of the window on the node's own clock, where x of its edges is 0.
    pub fn midpoint(&self) -> Timestamp<System> {
        self.start.midpoint(self.end)
    }

    /// Returns the edges as input for the fits.
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

/// Fits every edge of a window; also returns the number of exchanges that no fit used.
pub fn fit_window(cut: &WindowCut, round_id: RoundId, options: &FitOptions, stop_requested: bool) -> (NodeWindow, u64) {
    let (mut left_out, mut unfitted) = (0, Vec::new());
    let edges = cut
        .edge_windows()
        .filter_map(|window| {
            let own = begun_in(window.exchanges, [cut.start, cut.end]);
            left_out += (window.exchanges.len() - own.len()) as u64;
            let window = EdgeWindow { exchanges: &own, ..window };
            let Some((line, diagnostics)) = edge_fit::fit_with_diagnostics(&window, options) else {
                unfitted.extend((window.lost > 0).then_some((window.edge.dst, window.lost)));
                return None;
            };
            if !options.wants(line.pairs_count, line.lost_count) {
                // Its losses alone would look like an edge of which nothing came back.
                left_out += u64::from(line.pairs_count) + u64::from(diagnostics.left_out);
                return None;
            }
            left_out += u64::from(diagnostics.left_out);
            Some(line)
        })
        .collect();
    let data = NodeWindow {
        node_id: cut.node,
        round_id,
        window_start: cut.start,
        window_end: cut.end,
        edges,
        clock_event: cut.clock_event.map(|event| step::placed(event, cut.edges.iter().map(|edge| &edge.exchanges[..]))),
        stop_requested,
        packets: cut.packets.clone(),
        unfitted,
        punctuality: Punctuality::default(),
    };
    (data, left_out)
}

/// The exchanges that began in the window, or shortly before: a paused node answers late, and a
/// line through the window says nothing about the time before it, where clocks may have been on
/// another one.
fn begun_in(exchanges: &[Exchange], [start, end]: [Timestamp<System>; 2]) -> Cow<'_, [Exchange]> {
    let usual = median(exchanges.iter().map(|exchange| (exchange.t[7] - exchange.t[0]).as_ns_f64()));
    let part = Duration::from_ns((end - start).as_ns() / LEADS_PER_WINDOW).clamp(LEAD_LIMITS[0], LEAD_LIMITS[1]);
    let lead = Duration::from_ns_f64(LEAD_OF_USUAL * usual).clamp(LEAD_LIMITS[0], part);
    let own = |exchange: &Exchange| exchange.t[0] >= start - lead;
    if exchanges.iter().all(own) {
        return Cow::Borrowed(exchanges);
    }
    Cow::Owned(exchanges.iter().copied().filter(own).collect())
}

/// An exchange that takes longer than this, relative to typical exchanges of the window, was
/// delayed by a pause.
const LEAD_OF_USUAL: f64 = 1.5;
/// No more than this part of a window may lead: its line holds no further.
const LEADS_PER_WINDOW: i64 = 2;
/// At least a few polls at a fast pace, at most the duration of an exchange without pauses: two
/// polls of 250 ms and the path.
const LEAD_LIMITS: [Duration; 2] = [Duration::from_ms(150), Duration::from_ms(600)];

#[cfg(test)]
mod tests {
    use probe_sync_time::StampSource;

    use super::*;

    #[test]
    fn edges_with_too_few_exchanges_or_too_many_losses_are_not_fitted() {
        let exchange = |begun: i64| Exchange {
            edge: Edge::new(0, 1),
            seq: 0,
            stamp: StampSource::Kernel,
            t: [0, 1200, 100, 1300, 2000, 1200, 2100, 1300].map(|ns| Timestamp::from_ns(begun + ns)),
        };
        let exchanges: Vec<Exchange> = (0..20).map(|number| exchange(number * 50_000_000)).collect();
        let cut = WindowCut {
            node: NodeId(0),
            start: Timestamp::from_ns(0),
            end: Timestamp::from_ns(1_000_000_000),
            edges: vec![EdgeCut { edge: Edge::new(0, 1), exchanges, lost: 10, stamp_errors_ns: [0.0; 2] }],
            clock_event: None,
            packets: Vec::new(),
        };
        for (min_pairs, max_loss_ratio, used) in
            [(0, f64::INFINITY, true), (20, 0.5, true), (21, 0.5, false), (20, 0.49, false)]
        {
            let options = FitOptions { min_pairs, max_loss_ratio, ..FitOptions::default() };
            let (window, left_out) = fit_window(&cut, RoundId(0), &options, false);
            let expected = if used { (1, vec![], 0) } else { (0, vec![], 20) };
            assert_eq!((window.edges.len(), window.unfitted, left_out), expected, "{min_pairs}, {max_loss_ratio}");
        }
    }

    #[test]
    fn what_began_long_before_the_window_is_not_fitted() {
        let exchange = |begun: i64, took: i64| Exchange {
            edge: Edge::new(0, 1),
            seq: 0,
            stamp: StampSource::Kernel,
            t: [0, 1200, 100, 1300, took, took - 800, took + 100, took - 700].map(|ns| Timestamp::from_ns(begun + ns)),
        };
        let start = Timestamp::from_ns(10_000_000_000);
        // What exchanges take, the window, and how far they may lead.
        for (took_ms, window_ms, lead_ms) in
            [(20, 2_000, 150), (120, 2_000, 180), (300, 2_000, 450), (450, 500, 250), (450, 60_000, 600)]
        {
            let (took, lead) = (took_ms * 1_000_000 + 700, lead_ms * 1_000_000);
            let exchanges: Vec<Exchange> =
                [-lead - 2_000, -lead, 0, 500_000_000].map(|at| exchange(start.as_ns() + at, took)).into();
            let cut = WindowCut {
                node: NodeId(0),
                start,
                end: start + Duration::from_ms(window_ms),
                edges: vec![EdgeCut { edge: Edge::new(0, 1), exchanges, lost: 0, stamp_errors_ns: [0.0; 2] }],
                clock_event: None,
                packets: Vec::new(),
            };
            let (data, left_out) = fit_window(&cut, RoundId::default(), &FitOptions::default(), false);
            assert_eq!((data.edges[0].pairs_count, left_out), (3, 1), "{took_ms} ms in {window_ms} ms");
        }
    }
}
