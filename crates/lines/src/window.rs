//! The types passed between the stages of a round: the fitted edges of a node, and the estimate of
//! a node.
//!
//! `edge_fit` turns each edge's window into an [`EdgeFit`]; a node's edges travel to the
//! master as [`NodeWindow`]; `graph` turns all of them into one [`NodeEstimate`] per node. The
//! solved round as a whole is [`crate::Round`].
//!
//! Signs: `theta(x) = alpha·x + beta` is offset_dst − offset_src, x in ns since `midpoint` on the
//! SOURCE's clock.

use probe_sync_time::{Edge, NodeId, RoundId, StampSource, System, Timestamp};
use serde::{Deserialize, Serialize};

/// The fitted line of one edge over one window. Existing readers know some fields by shorter names
/// in JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeFit {
    /// The node that probed.
    #[serde(rename = "src")]
    pub src_node_id: NodeId,
    /// The node that answered.
    #[serde(rename = "dst")]
    pub dst_node_id: NodeId,
    /// Time of x = 0 on the source's clock.
    #[serde(rename = "midpoint_ns")]
    pub midpoint: Timestamp<System>,
    /// Rate of the destination's clock relative to the source's, ns per ns of the source's clock.
    pub alpha: f64,
    /// offset_dst − offset_src at the midpoint, ns.
    pub beta: f64,
    /// Finished exchanges that the fit used.
    #[serde(rename = "pairs")]
    pub pairs_count: u32,
    /// Exchanges started but not finished.
    #[serde(rename = "lost")]
    pub lost_count: u32,
    /// Var(beta) ns², Cov(beta, alpha) ns, Var(alpha), of the random error alone (no path
    /// asymmetry).
    pub covariance: [f64; 3],
    /// Half the vertical gap between forward and reverse points, ns: the one-way delay floor if the
    /// path is symmetric. The error that asymmetry can cause never exceeds it. Negative: no line
    /// separates the points.
    pub margin_ns: f64,
    /// Smallest theta at the midpoint that rates within 3 ppm allow, ns; −∞ (JSON: null) if the
    /// packets do not bound it.
    #[serde(with = "infinite_low")]
    pub bound_lo_ns: f64,
    /// Largest theta at the midpoint that rates within 3 ppm allow, ns; +∞ (JSON: null) if the
    /// packets do not bound it.
    #[serde(with = "infinite_high")]
    pub bound_hi_ns: f64,
    /// Smallest and largest alpha at any time of the window. Shifting the midpoint by dx moves the
    /// bounds by at most these · dx.
    pub alpha_bounds: [f64; 2],
    /// False if no line, or parabola where one is proven, fits the packets: a clock stepped or
    /// changed its rate, or a timestamp is wrong. The bounds may still hold; they are infinite if
    /// no rates within 3 ppm explain the packets.
    pub feasible: bool,
    /// Mean purity weight of the coded pairs, 0 to 1.
    pub purity: f64,
    /// Source of the stamps.
    pub stamp: StampSource,
    /// Largest common error of all stamps of the source and of the destination, from the conversion
    /// of an interface's clock, in one direction, ns. The hard bounds include it; the covariance
    /// does not, because averaging does not remove it.
    #[serde(default)]
    pub stamp_errors_ns: [f64; 2],
}

impl EdgeFit {
    /// Returns the edge.
    pub fn edge(&self) -> Edge {
        Edge { src: self.src_node_id, dst: self.dst_node_id }
    }
}

/// What one node contributes to a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "NodeWindowKeys", into = "NodeWindowKeys")]
pub struct NodeWindow {
    /// The node.
    pub node_id: NodeId,
    /// The round, which is the window's number too.
    pub round_id: RoundId,
    /// The window's start on this node's clock.
    pub window_start: Timestamp<System>,
    /// The window's end on this node's clock.
    pub window_end: Timestamp<System>,
    /// This node's out-edges that have a fit.
    pub edges: Vec<EdgeFit>,
    /// Step or slew of the node's clock during the window.
    pub clock_event: Option<ClockEvent>,
    /// True if this node was asked to end the run.
    pub stop_requested: bool,
    /// Packets by peer; empty if they were not counted.
    pub packets: Vec<PeerPackets>,
    /// Exchanges lost on this node's out-edges that have no fit, by destination.
    pub unfitted: Vec<(NodeId, u32)>,
    /// The node's adherence to the schedule of the round; empty if it was not observed.
    pub punctuality: Punctuality,
}

impl NodeWindow {
    /// Returns the middle of the window on this node's clock.
    pub const fn midpoint(&self) -> Timestamp<System> {
        self.window_start.midpoint(self.window_end)
    }
}

/// A node's adherence to the schedule of a round. Used for metrics only, never for estimates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Punctuality {
    /// Delay from the planned to the actual end of the window, on the node's clock, ns. `None` if
    /// the node did not know the end yet, or was asked to stop.
    pub end_late_ns: Option<i64>,
    /// Time at which the decision about this window reached the node, on its clock. `None` in the
    /// first window of a process.
    #[serde(rename = "decision_at_ns")]
    pub decision_at: Option<Timestamp<System>>,
    /// Largest number of commands queued for the probe thread since the previous window was cut.
    pub commands_waiting: u32,
    /// Finished exchanges, by stamp source.
    pub exchanges: Vec<(StampSource, u32)>,
    /// Files of the node that cannot be written, for example because the disk is full.
    pub files_stopped: u32,
    /// Connections and messages to other ranks that the node's process retried since its start.
    #[serde(default)]
    pub control_retries: u64,
    /// The node's snapshot pairs since its start.
    #[serde(default)]
    pub snapshots: SnapshotCounts,
}

/// Counts of a node's snapshot pairs, by outcome.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotCounts {
    /// Pairs taken.
    pub taken: u64,
    /// Pairs not taken because the tracer clock could not be read.
    pub failed: u64,
    /// Periods without a pair because the thread was not scheduled.
    pub missed_deadline: u64,
    /// Pairs evicted from the full ring; they are in the JSON lines only.
    pub dropped: u64,
    /// Pairs whose bracket was 5 µs or wider at every attempt.
    pub wide: u64,
}

/// Packets exchanged between a node and one peer.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerPackets {
    /// The peer.
    pub peer: NodeId,
    /// Packets sent to the peer.
    pub sent: u64,
    /// Packets received from the peer, without duplicates.
    pub received: u64,
}

/// A disturbance of the system clock, detected by comparison with `CLOCK_MONOTONIC_RAW`.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClockEvent {
    /// Size of the step, ns; 0 if only the rate changed.
    pub step_ns: i64,
    /// The change of rate within the window, ppm.
    pub slew_ppm: f64,
    /// Time of detection, on the node's clock.
    #[serde(rename = "at_ns")]
    #[cfg_attr(feature = "schema", schemars(with = "i64"))]
    pub at: Timestamp<System>,
    /// Readings of the node's clock between which the step, or all steps, happened: the last before
    /// and the first after, taken by the watch, or closer ones if packets show them. If the clock
    /// was set back, the second may be smaller.
    #[serde(rename = "step_between_ns", default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<[i64; 2]>"))]
    pub step_between: Option<[Timestamp<System>; 2]>,
}

/// The estimate for one node in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeEstimate {
    /// The node.
    pub node_id: NodeId,
    /// offset_i = S_i − S_reference at the window's midpoint, ns. Meaningless unless `reachable`.
    pub offset_ns: f64,
    /// Rate of this clock relative to the reference, ppm.
    pub drift_ppm: f64,
    /// Weighted RMS residual of the node's edges, ns.
    pub residual: f64,
    /// True if a chain of fitted edges joins the node to the reference.
    pub reachable: bool,
    /// True if the robust reweighting settled.
    pub converged: bool,
    /// Standard deviation of `offset_ns`, including path asymmetry and the conversion of hardware
    /// stamps, ns; +∞ (JSON: null) unless `reachable`.
    #[serde(with = "infinite_high")]
    pub sigma_ns: f64,
    /// Part of `sigma_ns` due to path asymmetry and the conversion of hardware stamps, which more
    /// probing cannot reduce, ns; 0 if not determined separately.
    #[serde(default)]
    pub asymmetry_sigma_ns: f64,
    /// Standard deviation of `drift_ppm`; +∞ (JSON: null) unless `reachable`.
    #[serde(with = "infinite_high")]
    pub drift_sigma_ppm: f64,
    /// Lower end of the hard interval, ns; −∞ (JSON: null) if unbounded. An offset outside the
    /// interval cannot have produced the round's packets, unless within the window a clock jumped,
    /// its rate varied by more than 3 ppm, or two clocks' rates differed by more than 500 ppm.
    #[serde(with = "infinite_low")]
    pub bound_lo_ns: f64,
    /// Upper end of the hard interval, ns; +∞ (JSON: null) if unbounded.
    #[serde(with = "infinite_high")]
    pub bound_hi_ns: f64,
    /// Edges of this node that were used.
    pub edges_used: u32,
    /// Edges of this node excluded as outliers or as proven faulty.
    pub edges_excluded: u32,
}

/// The keys of [`NodeWindow`] in files, which have two names for the number of a round.
#[derive(Serialize, Deserialize)]
struct NodeWindowKeys {
    node_id: NodeId,
    window_id: RoundId,
    round_id: RoundId,
    window_start_ns: Timestamp<System>,
    window_end_ns: Timestamp<System>,
    edges: Vec<EdgeFit>,
    clock_event: Option<ClockEvent>,
    stop_requested: bool,
    #[serde(default)]
    packets: Vec<PeerPackets>,
    #[serde(default)]
    unfitted: Vec<(NodeId, u32)>,
    #[serde(default)]
    punctuality: Punctuality,
}

impl From<NodeWindow> for NodeWindowKeys {
    fn from(data: NodeWindow) -> Self {
        let NodeWindow { node_id, round_id, window_start, window_end, edges, .. } = data;
        let NodeWindow { clock_event, stop_requested, packets, unfitted, punctuality, .. } = data;
        Self {
            node_id,
            window_id: round_id,
            round_id,
            window_start_ns: window_start,
            window_end_ns: window_end,
            edges,
            clock_event,
            stop_requested,
            packets,
            unfitted,
            punctuality,
        }
    }
}

impl From<NodeWindowKeys> for NodeWindow {
    fn from(keys: NodeWindowKeys) -> Self {
        Self {
            node_id: keys.node_id,
            round_id: keys.round_id,
            window_start: keys.window_start_ns,
            window_end: keys.window_end_ns,
            edges: keys.edges,
            clock_event: keys.clock_event,
            stop_requested: keys.stop_requested,
            packets: keys.packets,
            unfitted: keys.unfitted,
            punctuality: keys.punctuality,
        }
    }
}

/// JSON has no infinity: −∞ is written as null.
mod infinite_low {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        value.is_finite().then_some(*value).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NEG_INFINITY))
    }
}

/// JSON has no infinity: +∞ is written as null.
mod infinite_high {
    use serde::{Deserialize, Deserializer};

    pub use super::infinite_low::serialize;

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
    }
}
