//! The metrics of single nodes and edges.
//!
//! They derive from a solved round and its windows. Times of different nodes are compared on the
//! reference clock, by the offsets of the round. It does not keep the values of an unreachable
//! node; they are removed until it returns.

use std::collections::HashMap;

use probe_sync_estimate::statistics::SIGMAS_95;
use probe_sync_lines::{NodeEstimate, NodeWindow, Round};
use probe_sync_time::NodeId;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::families::{self, Count, Families, Labels, Value, labels};
use super::observed::Observed;

/// Metrics by node and by edge.
#[derive(Debug)]
pub(super) struct Nodes {
    /// Labels, indexed by node.
    labels: Vec<Labels>,
    offset: Families<Value>,
    drift: Families<Value>,
    half_width: Families<Value>,
    sigma: Families<Value>,
    hard_width: Families<Value>,
    reachable: Families<Value>,
    converged: Families<Value>,
    clock_events: Families<Count>,
    round_end: Families<Value>,
    round_ends: Histogram,
    round_start: Families<Value>,
    round_starts: Histogram,
    commands_waiting: Families<Value>,
    timestamps: Families<Count>,
    lost: HashMap<(NodeId, NodeId), Count>,
    losses: Families<Count>,
}

impl Nodes {
    pub fn register(r: &mut Registry, hosts: &[&str]) -> Self {
        let of_node = |(node, host): (usize, &&str)| labels(&[("node", &node.to_string()), ("host", host)]);
        let end = "Delay between the planned end of a window and its actual end on a node, on the node's clock";
        let start = "Delay between the root's decision and its arrival at a node, on the reference clock";
        Self {
            labels: hosts.iter().enumerate().map(of_node).collect(),
            offset: families::seconds_by(r, "offset", "This clock minus the reference clock"),
            drift: families::values(r, "drift_ratio", "Rate of this clock relative to the reference"),
            half_width: families::seconds_by(r, "offset_half_width", "Half-width of the 95 % interval of the offset"),
            sigma: families::seconds_by(r, "offset_sigma", "Standard deviation of the offset"),
            hard_width: families::seconds_by(
                r,
                "offset_bound",
                "Largest possible error of the offset; only present if packets bound it",
            ),
            reachable: families::values(r, "node_reachable", "1 if fitted edges connect the node to the reference"),
            converged: families::values(r, "node_converged", "1 if the robust estimate of the node has converged"),
            clock_events: families::counts(
                r,
                "clock_events",
                "Windows in which a node's system clock was stepped or slewed",
            ),
            round_end: families::seconds_by(r, "node_round_end_latency", end),
            round_ends: families::duration(r, "round_end_latency", &format!("{end}, over all nodes")),
            round_start: families::seconds_by(r, "node_round_start_latency", start),
            round_starts: families::duration(r, "round_start_latency", &format!("{start}, over all nodes")),
            commands_waiting: families::values(
                r,
                "probe_queue_depth",
                "Maximum number of commands queued for a node's probe thread in a window",
            ),
            timestamps: families::counts(r, "timestamps", "Timestamps of finished exchanges, by source"),
            lost: HashMap::new(),
            losses: families::counts(r, "lost_exchanges", "Exchanges that were started but did not finish, by edge"),
        }
    }

    /// Sets the host of a node whose rank was missing.
    pub fn came(&mut self, node: NodeId, host: &str) {
        let own = labels(&[("node", &node.to_string()), ("host", host)]);
        let Some(before) = self.labels.get_mut(node.index()).map(|known| std::mem::replace(known, own)) else { return };
        [&self.reachable, &self.converged].into_iter().for_each(|family| _ = family.remove(&before));
    }

    /// Updates the metrics from a solved round.
    pub fn round(&mut self, round: &Round, observed: &Observed<'_>) {
        for estimate in &round.all_nodes {
            self.estimate(estimate);
        }
        for (node, _) in &round.clock_events {
            if let Some(labels) = self.labels.get(node.index()) {
                self.clock_events.get_or_create(labels).inc();
            }
        }
        for window in observed.windows {
            self.punctuality(window, round, observed);
            let fitted = window.edges.iter().map(|edge| (edge.dst_node_id, edge.lost_count));
            for (dst, lost) in fitted.chain(window.unfitted.iter().copied()) {
                self.lost(window.node_id, dst, lost);
            }
        }
    }

    fn estimate(&self, estimate: &NodeEstimate) {
        let Some(labels) = self.labels.get(estimate.node_id.index()) else { return };
        let truth = |value: bool| f64::from(u8::from(value));
        self.reachable.get_or_create(labels).set(truth(estimate.reachable));
        self.converged.get_or_create(labels).set(truth(estimate.converged));
        let bound_ns = (estimate.bound_hi_ns - estimate.offset_ns).max(estimate.offset_ns - estimate.bound_lo_ns);
        let values = [
            (&self.offset, estimate.offset_ns * 1e-9),
            (&self.drift, estimate.drift_ppm * 1e-6),
            (&self.half_width, half_width_ns(estimate) * 1e-9),
            (&self.sigma, estimate.sigma_ns * 1e-9),
            (&self.hard_width, bound_ns * 1e-9),
        ];
        for (family, value) in values {
            if estimate.reachable && value.is_finite() {
                family.get_or_create(labels).set(value);
            } else {
                family.remove(labels);
            }
        }
    }

    fn punctuality(&self, window: &NodeWindow, round: &Round, observed: &Observed<'_>) {
        let Some(labels) = self.labels.get(window.node_id.index()) else { return };
        let punctuality = &window.punctuality;
        self.commands_waiting.get_or_create(labels).set(punctuality.commands_waiting.into());
        for (source, exchanges) in &punctuality.exchanges {
            let source = families::labels(&[("source", source.as_str())]);
            self.timestamps.get_or_create(&source).inc_by(u64::from(*exchanges) * STAMPS_OF_EXCHANGE);
        }
        if let Some(late_ns) = punctuality.end_late_ns {
            let late = late_ns as f64 * 1e-9;
            self.round_end.get_or_create(labels).set(late);
            self.round_ends.observe(late.max(0.0));
        }
        let Some(((root, decided), received)) = observed.decided.zip(punctuality.decision_at) else { return };
        let Some((offset, of_root)) = offset_ns(round, window.node_id).zip(offset_ns(round, root)) else { return };
        let took = (received.ahead_of(decided).as_ns_f64() - (offset - of_root)) * 1e-9;
        self.round_start.get_or_create(labels).set(took);
        self.round_starts.observe(took.max(0.0));
    }

    /// Counts lost exchanges of an edge. Edges that never lost any are not listed, because most
    /// lose none.
    fn lost(&mut self, src: NodeId, dst: NodeId, lost: u32) {
        if lost == 0 {
            return;
        }
        let new = || {
            let edge = labels(&[("src", &src.to_string()), ("dst", &dst.to_string())]);
            self.losses.get_or_create_owned(&edge)
        };
        self.lost.entry((src, dst)).or_insert_with(new).inc_by(lost.into());
    }
}

/// Returns the half-width of the 95 % interval; infinite if the node is unreachable.
pub(super) fn half_width_ns(estimate: &NodeEstimate) -> f64 {
    if estimate.reachable { estimate.sigma_ns * SIGMAS_95 } else { f64::INFINITY }
}

/// Returns the time between the first and the last cut of the round's windows, on the reference
/// clock; `None` if fewer than two can be compared.
pub(super) fn sequence_skew_ns(round: &Round, windows: &[NodeWindow]) -> Option<f64> {
    let first = windows.first()?.window_end;
    let cut =
        |window: &NodeWindow| Some(window.window_end.ahead_of(first).as_ns_f64() - offset_ns(round, window.node_id)?);
    let cuts: Vec<f64> = windows.iter().filter_map(cut).collect();
    let [least, most] = [f64::min as fn(f64, f64) -> f64, f64::max].map(|of| cuts.iter().copied().reduce(of));
    most.zip(least).filter(|_| cuts.len() > 1).map(|(most, least)| most - least)
}

fn offset_ns(round: &Round, node: NodeId) -> Option<f64> {
    round.all_nodes.get(node.index()).filter(|estimate| estimate.reachable).map(|estimate| estimate.offset_ns)
}

const STAMPS_OF_EXCHANGE: u64 = 8;
