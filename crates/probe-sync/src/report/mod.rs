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

pub use probe_sync_estimate::statistics::{SIGMAS_95, median};
use probe_sync_files::continuations;
use probe_sync_lines::{ClockEvent, Fault, FaultKind};
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

/// Report on a finished run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunReport {
    /// Version of this document, [`SCHEMA`]; raised when a field is removed or changes its meaning.
    /// 0 in reports from before versions were introduced.
    #[serde(default)]
    pub schema: u32,
    /// Run id, as in every file.
    pub run_id: String,
    /// Backend of the collectives: mpi, tcp.
    pub backend: String,
    /// Number of ranks.
    pub ranks: usize,
    /// Reference node, whose offset is zero.
    pub reference: NodeId,
    /// Number of solved rounds.
    pub rounds: u64,
    /// Round mode: master, timed, local.
    pub round_mode: String,
    /// True if the run was stopped, by a signal or by any rank, before its duration was over.
    /// Stopping a run without a duration is its normal end and does not count.
    pub interrupted: bool,
    /// Why the run failed; the report then covers the rounds finished before.
    pub error: Option<String>,
    /// Directory of the files.
    pub out: String,
    /// Results of the last round, by node.
    pub nodes: Vec<NodeRow>,
    /// Comparison with known truth.
    pub truth: Option<TruthVerdict>,
    /// Ranks without which the run continued for a time or to its end.
    pub absences: Vec<Absence>,
    /// Packets by direction, as sent by one side and received by the other; only pairs of ranks
    /// present for the whole run.
    pub packets: Vec<DirectionPackets>,
    /// Directions in which packets could not be sent.
    pub unreachable_peers: Vec<UnreachablePeer>,
    /// Nodes whose offset no round determined.
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
    /// All disturbances of system clocks: round, node, event.
    pub clock_events: Vec<(RoundId, NodeId, ClockEvent)>,
    /// Takeover from the previous master; null at rank 0.
    pub taken_over: Option<TakenOver>,
    /// Nodes that carried the timeline of a missing reference, in order.
    pub carriers: Vec<Carrier>,
    /// Named phases of the run, in order.
    pub phases: Vec<Phase>,
    /// Faults of clocks and paths, in the order in which they were reported.
    pub faults: Vec<Fault>,
    /// Number of faults by kind, including those that `faults` no longer holds.
    pub faults_by_kind: BTreeMap<FaultKind, u64>,
    /// Standard deviation of path asymmetry seen in the last round, ns.
    pub asymmetry_sd_ns: f64,
    /// Results of adaptive probing; null if the pace was fixed.
    pub pacing: Option<PacingReport>,
    /// Recorded files that are incomplete: not written for some time, or with their oldest segments
    /// removed.
    pub files: Vec<StreamState>,
    /// Documents that could not be written at the end of the run, with the reason.
    pub unwritten: Vec<String>,
}

/// A rank's takeover of the master role from another.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TakenOver {
    /// The previous master's rank.
    pub from_rank: usize,
    /// First round decided by the new master.
    pub first_round: RoundId,
}

/// A node whose clock carried the timeline of a missing reference.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Carrier {
    /// The node.
    pub node: NodeId,
    /// First round in which the node carried it.
    pub since: RoundId,
    /// Half-width of the node's own 95 % interval relative to the timeline in the last round that
    /// it carried, ns; +∞ (JSON: null) if unknown.
    #[serde(deserialize_with = "null_is_infinite")]
    pub half_width_95_ns: f64,
}

/// Results for one node: a line of the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeRow {
    /// The node.
    pub node_id: NodeId,
    /// Rank of the node.
    pub rank: u32,
    /// Host name.
    pub host: String,
    /// Stamp source.
    pub stamp: StampSource,
    /// True if fitted edges joined the node to the reference in the last round.
    pub reachable: bool,
    /// True if the system clock of the node or of the reference was disturbed in the last round; do
    /// not trust the values.
    pub clock_disturbed: bool,
    /// This clock minus the reference clock, ns.
    pub offset_ns: f64,
    /// Rate relative to the reference, ppm.
    pub drift_ppm: f64,
    /// Half-width of the 95 % interval, ns; +∞ (JSON: null) unless `reachable`.
    #[serde(deserialize_with = "null_is_infinite")]
    pub half_width_95_ns: f64,
    /// Hard interval, ns; null for an end without a bound.
    pub hard_interval_ns: [Option<f64>; 2],
    /// Edges that were used.
    pub edges: u32,
    /// Exchanges lost on the node's out-edges over the run.
    pub lost: u64,
    /// True offset, ns, if known.
    pub true_offset_ns: Option<f64>,
    /// offset − truth in the last round, ns.
    pub error_ns: Option<f64>,
    /// True if the hard interval contained the truth in every judged round; null if none was
    /// judged.
    pub bounds_held: Option<bool>,
}

/// Comparison of estimates with known truth, over nodes and rounds from the second on, without the
/// reference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TruthVerdict {
    /// Node-rounds judged.
    pub judged: usize,
    /// Node-rounds without an estimate, with a disturbed clock, or beyond what is kept.
    pub not_judged: usize,
    /// Largest |error|, ns.
    pub worst_error_ns: f64,
    /// Median |error|, ns.
    pub median_error_ns: f64,
    /// Median half-width of the 95 % interval, ns.
    pub median_half_width_95_ns: f64,
    /// Share of the 95 % intervals that contain the truth.
    pub coverage_95: f64,
    /// Median width of the hard interval, ns.
    pub median_hard_width_ns: f64,
    /// Hard intervals that do not contain the truth: must be 0.
    pub outside_hard_interval: usize,
    /// Largest |error of the rate|, ppm; NaN (JSON: null) if the true rates are unknown.
    pub worst_drift_error_ppm: f64,
}

/// A direction in which packets cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnreachablePeer {
    /// The sender.
    pub src: NodeId,
    /// The unreachable receiver.
    pub dst: NodeId,
    /// Address of the receiver.
    pub address: String,
    /// Latest error message of the system.
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
    /// Packets sent by `src`.
    pub sent: u64,
    /// Packets received by `dst`.
    pub received: u64,
    /// Packets lost: sent minus received.
    pub lost: i64,
}

/// Version of the report.
pub const SCHEMA: u32 = 2;

impl RunReport {
    /// Reads the report in a run's directory; `None` if the run was killed or is still going. A
    /// rank that took over from a lost master leaves its report in its own folder, and the last one
    /// counts.
    ///
    /// # Errors
    /// [`Error::File`] names a file that cannot be read or is not a report.
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

/// Joins both sides' packet accounts, indexed by node. Accounts that are not `whole`, because they
/// cover only part of the run, are not compared.
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

/// Lists the directions in which packets cannot be sent; `accounts` is indexed by node.
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
    use probe_sync_lines::PeerPackets;

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
