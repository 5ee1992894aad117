//! The faults of a scenario and their times, for clocks, nodes and paths.
//!
//! In a scenario file:
//!
//! ```toml
//! [[faults]]
//! start_s = 24.0
//! what.step = { node = 5, step_ns = 10_000_000 }
//! ```

use probe_sync_time::NodeId;
use serde::{Deserialize, Serialize};

/// A simulated fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Start, s since the start of the run.
    #[serde(default)]
    pub start_s: f64,
    /// End, s since the start of the run; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_s: Option<f64>,
    /// Kind of fault.
    pub what: FaultKind,
}

/// The kinds of fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FaultKind {
    /// A clock steps.
    Step {
        /// The node with the clock.
        node: NodeId,
        /// Size of the step, ns; positive is forward.
        step_ns: i64,
        /// Whether the node's clock watch sees it.
        #[serde(default = "yes")]
        seen: bool,
    },
    /// A clock's rate changes, and changes back at the end.
    Slew {
        /// The node with the clock.
        node: NodeId,
        /// Change of the rate, ppm.
        ppm: f64,
        /// Whether the node's clock watch sees it.
        #[serde(default = "yes")]
        seen: bool,
    },
    /// A node is silent from start to end and comes back with a stepped clock; the state of its
    /// process is lost. Only its sequence numbers continue, as if taken from a clock: peers would
    /// take smaller ones for late packets.
    Reboot {
        /// The node.
        node: NodeId,
        /// Step of its clock, ns.
        offset_ns: i64,
    },
    /// A node's process does not run from start to end, as on a machine with more processes than
    /// cores. Packets that arrive meanwhile have their timestamps (those of the system calls,
    /// [`StampSource::User`](probe_sync_time::StampSource), only at the end) and are all handled at
    /// the end.
    Pause {
        /// The node.
        node: NodeId,
    },
    /// A node is silent until the start of the fault.
    LateJoin {
        /// The node.
        node: NodeId,
    },
    /// A node's timestamps are wrong by `constant_ns + ramp_ns_per_s · time since start`.
    Falseticker {
        /// The node.
        node: NodeId,
        /// The constant part of the error, ns.
        #[serde(default)]
        constant_ns: f64,
        /// The growing part, ns per s.
        #[serde(default)]
        ramp_ns_per_s: f64,
        /// The error differs between peers: −1, +1, −2, +2, … times, in order of the peers.
        #[serde(default)]
        per_peer: bool,
        /// Which timestamps are wrong.
        #[serde(default)]
        stamps: WrongStamps,
    },
    /// Packets from one node to another take longer, those back do not.
    Asymmetry {
        /// Sender.
        src: NodeId,
        /// Receiver.
        dst: NodeId,
        /// Additional delay, ns.
        extra_ns: i64,
    },
    /// The path between two nodes becomes longer (or shorter) from one packet to the next.
    RouteChange {
        /// Sender.
        src: NodeId,
        /// Receiver.
        dst: NodeId,
        /// Additional delay, ns.
        extra_ns: i64,
        /// Also from `dst` to `src`.
        #[serde(default = "yes")]
        both_ways: bool,
    },
    /// Packets are lost.
    Loss {
        /// Share of packets lost, in addition to the network's loss.
        probability: f64,
        /// From this node only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<NodeId>,
        /// To this node only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<NodeId>,
        /// Also in the opposite direction.
        #[serde(default)]
        both_ways: bool,
    },
    /// No packet passes between some nodes and the others.
    Partition {
        /// The nodes that are cut off.
        nodes: Vec<NodeId>,
    },
}

/// Which timestamps of a falseticker are wrong.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WrongStamps {
    /// Transmit and receive timestamps, as with a wrong clock.
    #[default]
    All,
    /// Receive timestamps alone, as with a path that is longer in one direction.
    Receive,
}

impl Fault {
    /// First and last instant, ns since the start; the last is excluded.
    pub fn span(&self) -> Span {
        let end_ns = self.end_s.map_or(i64::MAX, nanoseconds);
        Span { start_ns: nanoseconds(self.start_s), end_ns }
    }

    /// When the affected node is silent.
    pub(crate) fn silence(&self) -> Option<(NodeId, Span)> {
        match self.what {
            FaultKind::Reboot { node, .. } => Some((node, self.span())),
            FaultKind::LateJoin { node } => Some((node, Span { start_ns: i64::MIN, end_ns: self.span().start_ns })),
            _ => None,
        }
    }

    /// When the process of `node` does not run.
    pub(crate) fn pause(&self, of: NodeId) -> Option<Span> {
        matches!(self.what, FaultKind::Pause { node } if node == of).then(|| self.span())
    }

    /// Additional delay of packets from one node to another, ns.
    pub(crate) fn extra_ns(&self, from: NodeId, to: NodeId) -> Option<f64> {
        match self.what {
            FaultKind::Asymmetry { src, dst, extra_ns } if (src, dst) == (from, to) => Some(extra_ns as f64),
            FaultKind::RouteChange { src, dst, extra_ns, both_ways }
                if (src, dst) == (from, to) || both_ways && (src, dst) == (to, from) =>
            {
                Some(extra_ns as f64)
            }
            _ => None,
        }
    }

    /// Probability with which it loses packets from one node to another.
    pub(crate) fn loss(&self, sender: NodeId, receiver: NodeId) -> Option<f64> {
        match &self.what {
            FaultKind::Loss { probability, from, to, both_ways } => {
                let concerns =
                    |sender, receiver| from.is_none_or(|from| from == sender) && to.is_none_or(|to| to == receiver);
                let hit = concerns(sender, receiver) || *both_ways && concerns(receiver, sender);
                hit.then_some(*probability)
            }
            FaultKind::Partition { nodes } => (nodes.contains(&sender) != nodes.contains(&receiver)).then_some(1.0),
            _ => None,
        }
    }
}

/// A span between two instants, ns since the start.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first instant.
    pub start_ns: i64,
    /// The first instant after it.
    pub end_ns: i64,
}

impl Span {
    /// Whether `at` is in it.
    pub fn contains(&self, at: i64) -> bool {
        (self.start_ns..self.end_ns).contains(&at)
    }
}

/// Seconds as integer nanoseconds.
pub(crate) fn nanoseconds(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}

fn yes() -> bool {
    true
}
