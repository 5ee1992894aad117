//! Nodes, edges, and the eight timestamps of one finished exchange.
//!
//! An exchange on edge i→j is six packets: `Pt1 Pt2 Pt3` from i to j, then `Pr1 Pr2 Pr3` back.
//! Packets 1 and 2 of each direction are the coded pair; packet 3 carries their transmit stamps.
//! Forward packets bound θ = offset_j − offset_i from above, `recv_j − send_i ≥ θ`; reverse packets
//! bound it from below, `send_j − recv_i ≤ θ`.
//!
//! Two nodes by hand: j is 1000 ns ahead, one-way delay 200 ns. i sends at 0, j stamps 1200:
//! `u = 1200 ≥ 1000`. j sends at its 2000, i stamps 1200: `l = 800 ≤ 1000`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Duration, System, Timestamp};

/// A node: a clock that takes part in a run, numbered from 0.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Returns the node's index in arrays.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// A random number in all packets and files of one run.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub u64);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A directed edge: `src` starts the exchanges, `dst` answers.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Edge {
    /// The node that probes.
    pub src: NodeId,
    /// The node that answers.
    pub dst: NodeId,
}

impl Edge {
    /// Creates the edge from node `src` to node `dst`.
    pub const fn new(src: u32, dst: u32) -> Self {
        Self { src: NodeId(src), dst: NodeId(dst) }
    }
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}→{}", self.src, self.dst)
    }
}
impl fmt::Debug for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "edge {}→{}", self.src, self.dst)
    }
}

/// The time when a packet left or arrived on a node's system clock, and where the clock was read.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// The reading.
    pub at: Timestamp<System>,
    /// Where the clock was read.
    pub source: StampSource,
}

/// Where a packet's timestamps were taken. Sources are never mixed within one fit.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum StampSource {
    /// By the network interface.
    Hardware,
    /// By the kernel: `SO_TIMESTAMPING` software stamps.
    Kernel,
    /// By this program around its system calls: a last resort, and counted.
    User,
}

impl StampSource {
    /// Returns the name used in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hardware => "hardware",
            Self::Kernel => "kernel",
            Self::User => "user",
        }
    }
}

/// One finished exchange on an edge: eight timestamps from one kind of source.
///
/// If one packet of a coded pair was lost, its two stamps are copies of its partner's. Code that is
/// unaware of that sees the partner twice; [`Exchange::forward_arrived`] and
/// [`Exchange::reverse_arrived`] return it once. Two packets that both arrived never have equal
/// stamps.
///
/// All stamps are on the system clock of the node that took them: `…_tx` of `Pt` and `…_rx` of `Pr`
/// on that of the source, the others on that of the destination.
///
/// ```
/// use probe_sync_time::{Edge, Exchange, StampSource, Timestamp};
///
/// // Node 1 is 1000 ns ahead of node 0, a packet takes 200 ns each way, the two packets of a pair are 100 ns apart.
/// // [pt1_tx, pt1_rx, pt2_tx, pt2_rx, pr1_tx, pr1_rx, pr2_tx, pr2_rx], each on the clock of its own node.
/// let t = [0, 1200, 100, 1300, 2000, 1200, 2100, 1300].map(Timestamp::from_ns);
/// let exchange = Exchange { edge: Edge::new(0, 1), seq: 0, stamp: StampSource::Kernel, t };
///
/// // Every forward packet bounds theta = offset_1 − offset_0 from above, every reverse packet from below.
/// let [(sent, upper), _] = exchange.forward();
/// let [(received, lower), _] = exchange.reverse();
/// assert_eq!((sent.as_ns(), upper.as_ns()), (0, 1000 + 200));
/// assert_eq!((received.as_ns(), lower.as_ns()), (1200, 1000 - 200));
/// ```
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// The edge.
    pub edge: Edge,
    /// Number of the exchange on this edge in this run.
    pub seq: u32,
    /// The less accurate of the two sides' stamp sources.
    pub stamp: StampSource,
    /// `[pt1_tx, pt1_rx, pt2_tx, pt2_rx, pr1_tx, pr1_rx, pr2_tx, pr2_rx]`.
    pub t: [Timestamp<System>; 8],
}

impl Exchange {
    /// Returns the transmit time on the source's clock and `u = recv_j − send_i` of both forward
    /// packets.
    pub fn forward(&self) -> [(Timestamp<System>, Duration); 2] {
        let t = &self.t;
        [(t[0], t[1].ahead_of(t[0])), (t[2], t[3].ahead_of(t[2]))]
    }

    /// Returns the receive time on the source's clock and `l = send_j − recv_i` of both reverse
    /// packets.
    pub fn reverse(&self) -> [(Timestamp<System>, Duration); 2] {
        let t = &self.t;
        [(t[5], t[4].ahead_of(t[5])), (t[7], t[6].ahead_of(t[7]))]
    }

    /// Returns the values of [`Exchange::forward`] for the packets that arrived: two, or one if its
    /// partner was lost.
    pub fn forward_arrived(&self) -> impl Iterator<Item = (Timestamp<System>, Duration)> {
        let arrived = if self.forward_is_whole() { 2 } else { 1 };
        self.forward().into_iter().take(arrived)
    }

    /// Returns the values of [`Exchange::reverse`] for the packets that arrived: two, or one if its
    /// partner was lost.
    pub fn reverse_arrived(&self) -> impl Iterator<Item = (Timestamp<System>, Duration)> {
        let arrived = if self.reverse_is_whole() { 2 } else { 1 };
        self.reverse().into_iter().take(arrived)
    }

    /// Returns true if both packets of the forward coded pair arrived.
    pub fn forward_is_whole(&self) -> bool {
        self.t[0..2] != self.t[2..4]
    }

    /// Returns true if both packets of the reverse coded pair arrived.
    pub fn reverse_is_whole(&self) -> bool {
        self.t[4..6] != self.t[6..8]
    }

    /// Returns the change of the forward coded pair's spacing on the way, `(recv₂−recv₁) −
    /// (send₂−send₁)`.
    pub fn forward_gap_change(&self) -> Duration {
        let t = &self.t;
        (t[3] - t[1]) - (t[2] - t[0])
    }

    /// Returns the change of the reverse coded pair's spacing on the way, `(recv₂−recv₁) −
    /// (send₂−send₁)`.
    pub fn reverse_gap_change(&self) -> Duration {
        let t = &self.t;
        (t[7] - t[5]) - (t[6] - t[4])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_nodes_by_hand() {
        let t = [0, 1200, 100, 1300, 2000, 1200, 2100, 1350].map(Timestamp::from_ns);
        let exchange = Exchange { edge: Edge::new(0, 1), seq: 0, stamp: StampSource::Kernel, t };
        assert_eq!(exchange.forward().map(|(_, u)| u.as_ns()), [1200, 1200]);
        assert_eq!(exchange.reverse().map(|(_, l)| l.as_ns()), [800, 750]);
        assert_eq!(exchange.forward_gap_change().as_ns(), 0);
        assert_eq!(exchange.reverse_gap_change().as_ns(), 50);
        assert_eq!((exchange.forward_arrived().count(), exchange.reverse_arrived().count()), (2, 2));
    }

    #[test]
    fn a_lost_partner_is_not_seen_twice() {
        let t = [100, 1300, 100, 1300, 2000, 1200, 2100, 1350].map(Timestamp::from_ns);
        let exchange = Exchange { edge: Edge::new(0, 1), seq: 0, stamp: StampSource::Kernel, t };
        assert!(!exchange.forward_is_whole() && exchange.reverse_is_whole());
        assert_eq!(exchange.forward_arrived().map(|(_, u)| u.as_ns()).collect::<Vec<_>>(), [1200]);
        assert_eq!(exchange.reverse_arrived().count(), 2);
    }
}
