//! What a run says at its end: the table's content, the truth's verdict, the cost, the exact packet accounts.
//!
//! Place in the flow: the round loop feeds solved rounds in; at the end every rank adds its [`RankAccount`]; the CLI
//! prints the resulting [`RunReport`] as a table or as JSON.
//!
//! The truth's verdict covers rounds from the second on ([`FIRST_JUDGED_ROUND`]), because in the first one the nodes do
//! not know yet where each other's windows are. Nodes whose clock, or whose reference's clock, was flagged in a round are not judged in it.

use probe_sync_estimate::faults::{Fault, FaultKind};
use probe_sync_estimate::round::GlobalWindowData;
use probe_sync_estimate::window::ClockEvent;
pub use probe_sync_estimate::window::PeerPackets;
use probe_sync_time::{Edge, NodeId, RoundId, SkewedClock, StampSource};
use serde::{Deserialize, Serialize};

use crate::adaptive::PacingReport;
use crate::roster::Roster;
use crate::truth;

/// The first round whose errors count.
pub const FIRST_JUDGED_ROUND: RoundId = RoundId(1);

/// Half-width of a 95 % interval in standard deviations.
pub const SIGMAS_95: f64 = 1.959_964;

/// What one rank did, gathered at the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankAccount {
    /// Packets by peer, if the rank probes for a node.
    pub packets: Vec<PeerPackets>,
    /// Exchanges started, finished, lost, by out-edge.
    pub exchanges: Vec<EdgeExchanges>,
    /// Counters by name: late, duplicate, foreign packets, missing stamps and so on.
    pub counters: Vec<(String, u64)>,
    /// Where stamps came from in the end; a socket may have stepped down during the run.
    pub stamp: Option<StampSource>,
    /// Peers that packets could not be sent to, with the latest reason.
    pub unreachable: Vec<(NodeId, String)>,
    /// Processor time since the rounds began, ns.
    pub cpu_ns: u64,
    /// Wall time since the rounds began, ns.
    pub wall_ns: u64,
}

/// Exchanges of one out-edge.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeExchanges {
    /// The edge.
    pub edge: Edge,
    /// Begun.
    pub started: u64,
    /// Finished with all eight timestamps.
    pub finished: u64,
    /// Not finished in time.
    pub lost: u64,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReport {
    /// The run, as in every file.
    pub run_id: String,
    /// How the ranks talked: mpi, tcp.
    pub backend: String,
    /// Number of ranks.
    pub ranks: usize,
    /// Solved rounds.
    pub rounds: u64,
    /// True when a signal ended the run.
    pub interrupted: bool,
    /// Why the run failed; what is here then comes from the rounds finished before.
    pub error: Option<String>,
    /// Where the files are.
    pub out: String,
    /// The last round, by node.
    pub nodes: Vec<NodeRow>,
    /// The verdict of known truth.
    pub truth: Option<TruthVerdict>,
    /// Packets by direction: what one side sent and the other received.
    pub packets: Vec<DirectionPackets>,
    /// Directions in which packets could not be sent.
    pub unreachable_peers: Vec<UnreachablePeer>,
    /// Counters summed over ranks.
    pub counters: std::collections::BTreeMap<String, u64>,
    /// Processor time of all ranks while probing, as a fraction of one core.
    pub cpu_cores: f64,
    /// Wall time of the rounds, s.
    pub seconds: f64,
    /// Median and largest time from the end of the root's window to the solved round, before its broadcast, µs.
    pub round_latency_us: [f64; 2],
    /// Every disturbance of a system clock: round, node, event.
    pub clock_events: Vec<(RoundId, NodeId, ClockEvent)>,
    /// Clocks and paths that went wrong, by name, in the order in which they became sure.
    pub faults: Vec<Fault>,
    /// How many of each kind, also of those beyond what is kept.
    pub faults_by_kind: std::collections::BTreeMap<FaultKind, u64>,
    /// Standard deviation of path asymmetry seen in the last round, ns.
    pub asymmetry_sd_ns: f64,
    /// What adaptive probing did; null when the pace was fixed.
    pub pacing: Option<PacingReport>,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeRow {
    /// The node.
    pub node_id: NodeId,
    /// Its rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Its timestamps.
    pub stamp: StampSource,
    /// Joined to the reference by fitted edges in the last round.
    pub reachable: bool,
    /// The node's or the reference's system clock was disturbed in the last round: do not trust its line.
    pub clock_disturbed: bool,
    /// offset_i = S_i − S_0, ns.
    pub offset_ns: f64,
    /// Rate against the reference, ppm.
    pub drift_ppm: f64,
    /// Half-width of the 95 % interval, ns.
    pub half_width_95_ns: f64,
    /// Hard interval, ns; null where nothing bounds it.
    pub hard_interval_ns: [Option<f64>; 2],
    /// Edges that took part.
    pub edges: u32,
    /// Lost exchanges of its out-edges over the run.
    pub lost: u64,
    /// Known truth.
    pub true_offset_ns: Option<f64>,
    /// offset − truth in the last round, ns.
    pub error_ns: Option<f64>,
    /// The truth lay inside the hard interval in every judged round; null when none was judged.
    pub bounds_held: Option<bool>,
}

/// How estimates compared with known truth, over nodes and rounds from the second on, the reference left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TruthVerdict {
    /// Node-rounds judged.
    pub judged: usize,
    /// Node-rounds without an estimate, flagged for a disturbed clock, or beyond what is kept.
    pub not_judged: usize,
    /// Largest |error|, ns.
    pub worst_error_ns: f64,
    /// Median |error|, ns.
    pub median_error_ns: f64,
    /// Median half-width of the 95 % interval, ns.
    pub median_half_width_95_ns: f64,
    /// Share of truths inside the 95 % interval.
    pub coverage_95: f64,
    /// Median width of the hard interval, ns.
    pub median_hard_width_ns: f64,
    /// Truths outside their hard interval: must be 0.
    pub outside_hard_interval: usize,
    /// Largest |error of the rate|, ppm.
    pub worst_drift_error_ppm: f64,
}

/// A node that another cannot send to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnreachablePeer {
    /// The sender.
    pub src: NodeId,
    /// Whom it cannot reach.
    pub dst: NodeId,
    /// Its address.
    pub address: String,
    /// What the system said last.
    pub reason: String,
}

/// Packets from one node to another.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DirectionPackets {
    /// The sender.
    pub src: NodeId,
    /// The receiver.
    pub dst: NodeId,
    /// Sent by the one.
    pub sent: u64,
    /// Received by the other.
    pub received: u64,
    /// The difference.
    pub lost: i64,
}

/// Collects what the verdict needs while rounds go by.
#[derive(Clone, Debug, Default)]
pub struct Judge {
    clocks: Vec<SkewedClock>,
    samples: Vec<Judged>,
    not_judged: usize,
    held: Vec<Option<bool>>,
}

#[derive(Copy, Clone, Debug)]
struct Judged {
    error_ns: f64,
    drift_error_ppm: f64,
    half_width_ns: f64,
    hard_width_ns: f64,
    inside_hard: bool,
}

impl Judge {
    /// A judge who knows every node's virtual clock; empty when there is no truth.
    pub fn new(clocks: Vec<SkewedClock>) -> Self {
        Self { held: vec![None; clocks.len()], clocks, ..Self::default() }
    }

    /// The true offset of a node at the middle of a round.
    pub fn true_offset_ns(&self, node: NodeId, round: &GlobalWindowData) -> Option<f64> {
        let clock = self.clocks.get(node.index())?;
        Some(truth::true_offset_ns(clock, round.midpoint().as_ns()))
    }

    fn true_drift_ppm(&self, node: NodeId, round: &GlobalWindowData) -> f64 {
        truth::true_drift_ppm(&self.clocks[node.index()], round.midpoint().as_ns())
    }

    /// Whether the truth lay inside the hard interval in every judged round; `None` when none was judged.
    pub fn bounds_held(&self, node: NodeId) -> Option<bool> {
        self.held.get(node.index()).copied().flatten()
    }

    /// Judges a solved round.
    pub fn observe(&mut self, round: &GlobalWindowData) {
        if round.round_id < FIRST_JUDGED_ROUND {
            return;
        }
        for estimate in round.all_nodes.iter().filter(|node| node.node_id != truth::REFERENCE) {
            let Some(true_offset) = self.true_offset_ns(estimate.node_id, round) else { continue };
            let disturbed = round.clock_disturbed(estimate.node_id);
            if !estimate.reachable || disturbed || self.samples.len() >= MAX_SAMPLES {
                self.not_judged += 1;
                continue;
            }
            let inside_hard = (estimate.bound_lo_ns..=estimate.bound_hi_ns).contains(&true_offset);
            let held = &mut self.held[estimate.node_id.index()];
            *held = Some(held.unwrap_or(true) && inside_hard);
            self.samples.push(Judged {
                error_ns: estimate.offset_ns - true_offset,
                drift_error_ppm: estimate.drift_ppm - self.true_drift_ppm(estimate.node_id, round),
                half_width_ns: SIGMAS_95 * estimate.sigma_ns,
                hard_width_ns: estimate.bound_hi_ns - estimate.bound_lo_ns,
                inside_hard,
            });
        }
    }

    /// The verdict, if there is truth.
    pub fn verdict(&self) -> Option<TruthVerdict> {
        if self.clocks.is_empty() {
            return None;
        }
        let collect = |value: fn(&Judged) -> f64| self.samples.iter().map(value).collect::<Vec<_>>();
        let worst = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let errors = collect(|sample| sample.error_ns.abs());
        let covered = self.samples.iter().filter(|s| s.error_ns.abs() <= s.half_width_ns).count();
        Some(TruthVerdict {
            judged: self.samples.len(),
            not_judged: self.not_judged,
            worst_error_ns: worst(&errors),
            median_error_ns: median(errors),
            median_half_width_95_ns: median(collect(|sample| sample.half_width_ns)),
            coverage_95: covered as f64 / self.samples.len().max(1) as f64,
            median_hard_width_ns: median(collect(|sample| sample.hard_width_ns)),
            outside_hard_interval: self.samples.iter().filter(|sample| !sample.inside_hard).count(),
            worst_drift_error_ppm: worst(&collect(|sample| sample.drift_error_ppm.abs())),
        })
    }
}

/// Joins both sides' packet accounts. Indexed by node.
pub fn directions(accounts: &[&RankAccount]) -> Vec<DirectionPackets> {
    let mut all = Vec::new();
    for (src, account) in accounts.iter().enumerate() {
        for packets in &account.packets {
            let other = accounts.get(packets.peer.index());
            let back = other.and_then(|o| o.packets.iter().find(|p| p.peer.index() == src));
            let received = back.map_or(0, |packets| packets.received);
            let lost = packets.sent as i64 - received as i64;
            all.push(DirectionPackets {
                src: NodeId(src as u32),
                dst: packets.peer,
                sent: packets.sent,
                received,
                lost,
            });
        }
    }
    all
}

/// Who cannot send to whom. Indexed by node.
pub(crate) fn unreachable_peers(accounts: &[&RankAccount], roster: &Roster) -> Vec<UnreachablePeer> {
    let of_node = |(src, account): (usize, &&RankAccount)| {
        let peers = account.unreachable.clone().into_iter();
        peers.map(move |(dst, reason)| UnreachablePeer {
            src: NodeId(src as u32),
            dst,
            address: roster.nodes.get(dst.index()).map_or_else(String::new, |node| node.address.to_string()),
            reason,
        })
    };
    accounts.iter().enumerate().flat_map(of_node).collect()
}

/// The middle value; 0 of nothing.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => values[n / 2 - 1].midpoint(values[n / 2]),
    }
}

/// Node-rounds judged at most: some hundred megabytes of memory.
const MAX_SAMPLES: usize = 1 << 21;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_lost_are_what_one_side_sent_and_the_other_did_not_receive() {
        let account = |peer, sent, received| RankAccount {
            packets: vec![PeerPackets { peer: NodeId(peer), sent, received }],
            ..RankAccount::default()
        };
        let (zero, one) = (account(1, 10, 7), account(0, 8, 9));
        let directions = directions(&[&zero, &one]);
        assert_eq!((directions[0].received, directions[0].lost), (9, 1));
        assert_eq!((directions[1].received, directions[1].lost), (7, 1));
    }

    #[test]
    fn median_of_even_and_odd_counts() {
        assert_eq!((median(vec![3.0, 1.0, 2.0]), median(vec![1.0, 2.0]), median(Vec::new())), (2.0, 1.5, 0.0));
    }
}
