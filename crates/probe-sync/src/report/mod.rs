//! The results of a run at its end: the contents of the table, the comparison with the truth, the
//! cost and the exact packet accounts.
//!
//! `recorder` keeps the root's data of every round, `judge` compares it with known truth, and
//! `metrics` exposes it to observers. At the end every rank adds its account, and all of it becomes
//! the [`RunReport`], which the CLI prints as a table or as JSON.

mod absences;
mod documents;
mod judge;
mod metrics;
pub(crate) mod parts;
mod phases;
mod recorder;
mod whole;

use std::collections::BTreeMap;
use std::path::Path;

use probe_sync_estimate::faults::{Fault, FaultKind};
pub use probe_sync_estimate::statistics::{SIGMAS_95, median};
use probe_sync_estimate::window::ClockEvent;
use probe_sync_files::continuations;
use probe_sync_time::{NodeId, RoundId, StampSource};
use serde::{Deserialize, Serialize};

pub use self::absences::Absence;
pub(crate) use self::metrics::Observed;
pub use self::phases::Phase;
pub(crate) use self::recorder::{Recorder, Stopped};
use crate::Error;
use crate::infinity::null_is_infinite;
use crate::join::Ready;
use crate::measure::account::RankAccount;
use crate::measure::counters::Counter;
use crate::pace::adaptive::PacingReport;
pub use crate::store::StreamState;

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunReport {
    /// Version of this form, [`SCHEMA`]: a field that is taken away or means something else gives
    /// another number. 0 in reports from before there was one.
    #[serde(default)]
    pub schema: u32,
    /// The run, as in every file.
    pub run_id: String,
    /// How the ranks talked: mpi, tcp.
    pub backend: String,
    /// Number of ranks.
    pub ranks: usize,
    /// The node whose offset is zero.
    pub reference: NodeId,
    /// Solved rounds.
    pub rounds: u64,
    /// How rounds came about: master, timed, local.
    pub round_mode: String,
    /// True when a run was stopped, by a signal or on any rank, before its duration was over. A run
    /// without a duration goes on until it is stopped, which is its orderly end.
    pub interrupted: bool,
    /// Why the run failed; what is here then comes from the rounds finished before.
    pub error: Option<String>,
    /// Where the files are.
    pub out: String,
    /// The last round, by node.
    pub nodes: Vec<NodeRow>,
    /// The verdict of known truth.
    pub truth: Option<TruthVerdict>,
    /// Ranks without which the run went on for a time, or to its end.
    pub absences: Vec<Absence>,
    /// Packets by direction: what one side sent and the other received, both of them present all
    /// the time.
    pub packets: Vec<DirectionPackets>,
    /// Directions in which packets could not be sent.
    pub unreachable_peers: Vec<UnreachablePeer>,
    /// Nodes of which no round knew an offset.
    #[serde(default)]
    pub never_reached: Vec<NodeId>,
    /// Counters summed over ranks.
    pub counters: BTreeMap<Counter, u64>,
    /// Processor time of all ranks while probing, as a fraction of one core.
    pub cpu_cores: f64,
    /// Wall time of the rounds, s.
    pub seconds: f64,
    /// Median and largest time from the end of the root's window to the solved round, before its
    /// broadcast, µs.
    pub round_latency_us: [f64; 2],
    /// Every disturbance of a system clock: round, node, event.
    pub clock_events: Vec<(RoundId, NodeId, ClockEvent)>,
    /// Where another rank was the master before; null at rank 0.
    pub taken_over: Option<TakenOver>,
    /// Nodes that carried the timeline of a reference that was gone, one after the other.
    pub carriers: Vec<Carrier>,
    /// Named parts of the run, in their order.
    pub phases: Vec<Phase>,
    /// Clocks and paths that went wrong, by name, in the order in which they became sure.
    pub faults: Vec<Fault>,
    /// How many of each kind, also of those beyond what is kept.
    pub faults_by_kind: BTreeMap<FaultKind, u64>,
    /// Standard deviation of path asymmetry seen in the last round, ns.
    pub asymmetry_sd_ns: f64,
    /// What adaptive probing did; null when the pace was fixed.
    pub pacing: Option<PacingReport>,
    /// Recorded files that are not all that was measured: not written for some time, or with their
    /// oldest segments removed.
    pub files: Vec<StreamState>,
    /// Documents that could not be written at the end, with the reason.
    pub unwritten: Vec<String>,
}

/// Since when a rank is the master in place of another.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TakenOver {
    /// From this rank.
    pub from_rank: usize,
    /// The first round that it decides.
    pub first_round: RoundId,
}

/// A node whose clock carried the timeline of a reference that was gone.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Carrier {
    /// The node.
    pub node: NodeId,
    /// From this round on.
    pub since: RoundId,
    /// Half-width of its own 95 % interval against the timeline in the last round that it carried,
    /// ns; +∞ (JSON: null) where nothing was known.
    #[serde(deserialize_with = "null_is_infinite")]
    pub half_width_95_ns: f64,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// The node's or the reference's system clock was disturbed in the last round: do not trust its
    /// line.
    pub clock_disturbed: bool,
    /// This clock minus the reference clock, ns.
    pub offset_ns: f64,
    /// Rate against the reference, ppm.
    pub drift_ppm: f64,
    /// Half-width of the 95 % interval, ns; +∞ (JSON: null) unless `reachable`.
    #[serde(deserialize_with = "null_is_infinite")]
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

/// How estimates compared with known truth, over nodes and rounds from the second on, the reference
/// left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Largest |error of the rate|, ppm; not a number (JSON: null) where the true rates are not
    /// known.
    pub worst_drift_error_ppm: f64,
}

/// A node that another cannot send to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// Version of a report's form.
pub const SCHEMA: u32 = 2;

impl RunReport {
    /// The report that a run has left in its directory; none where it was killed, or goes on. A
    /// rank that took the place of a lost master leaves it in a folder of its own, and that of the
    /// last one counts.
    ///
    /// # Errors
    /// [`Error::File`] names the file that cannot be read, or is no report.
    pub fn read(directory: &Path) -> Result<Option<Self>, Error> {
        let first = directory.join("report.json");
        let offsets = continuations(&directory.join("offsets.jsonl")).pop().map(|(_, path)| path);
        let path = offsets.and_then(|path| Some(path.parent()?.join("report.json"))).unwrap_or(first);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file(&path, "read")(error)),
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| Error::file(&path, "read")(error.into()))
    }
}

/// Joins both sides' packet accounts. Indexed by node. Accounts that are not `whole`, of a part of
/// the run, compare with no other.
pub(crate) fn directions(accounts: &[&RankAccount], whole: impl Fn(NodeId) -> bool) -> Vec<DirectionPackets> {
    let mut all = Vec::new();
    for (src, account) in accounts.iter().enumerate().filter(|(src, _)| whole(NodeId(*src as u32))) {
        for packets in account.packets.iter().filter(|packets| whole(packets.peer)) {
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
pub(crate) fn unreachable_peers(accounts: &[&RankAccount], nodes: &[Ready]) -> Vec<UnreachablePeer> {
    let of_node = |(src, account): (usize, &&RankAccount)| {
        let peers = account.unreachable.clone().into_iter();
        peers.map(move |(dst, reason)| UnreachablePeer {
            src: NodeId(src as u32),
            dst,
            address: nodes.get(dst.index()).map_or_else(String::new, |node| node.address.to_string()),
            reason,
        })
    };
    accounts.iter().enumerate().flat_map(of_node).collect()
}

#[cfg(test)]
mod tests {
    use probe_sync_estimate::window::PeerPackets;

    use super::*;

    #[test]
    fn packets_lost_are_what_one_side_sent_and_the_other_did_not_receive() {
        let account = |peer, sent, received| RankAccount {
            packets: vec![PeerPackets { peer: NodeId(peer), sent, received }],
            ..RankAccount::default()
        };
        let (zero, one) = (account(1, 10, 7), account(0, 8, 9));
        let directions = directions(&[&zero, &one], |_| true);
        assert_eq!((directions[0].received, directions[0].lost), (9, 1));
        assert_eq!((directions[1].received, directions[1].lost), (7, 1));
        assert!(super::directions(&[&zero, &one], |node| node == NodeId(0)).is_empty(), "node 1 was started again");
    }
}
