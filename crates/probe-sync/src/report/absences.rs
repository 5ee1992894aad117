//! Which ranks were absent from the run, when and why.

use probe_sync_time::{Duration, NodeId, RoundId};
use serde::{Deserialize, Serialize};

use crate::join::Plan;

/// A rank without which the run went on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Absence {
    /// The rank.
    pub rank: usize,
    /// The node that it is, or follows.
    pub node_id: NodeId,
    /// Its host; empty while it has not come.
    pub host: String,
    /// The first round without it.
    pub from: RoundId,
    /// What showed that it was gone.
    pub reason: String,
    /// The round at whose end it took part again; null if it did not.
    pub back: Option<RoundId>,
}

/// All absences of a run.
#[derive(Debug, Default)]
pub(super) struct Absences(Vec<Absence>);

impl Absences {
    /// A rank is gone.
    pub fn left(&mut self, plan: &Plan, rank: usize, from: RoundId, reason: &str, backend: &str) {
        let (node_id, host) = (plan.node_of_rank[rank], plan.hostnames[rank].clone());
        // Over MPI a process cannot join a job that runs already.
        let back = if backend == "mpi" { "" } else { ", and it may rejoin if it is restarted as before" };
        tracing::warn!("round {from}: lost rank {rank} on {host}: {reason}; the others continue{back}");
        if self.0.len() < MOST {
            self.0.push(Absence { rank, node_id, host, from, reason: reason.to_owned(), back: None });
        }
    }

    /// A rank has not come within this time, and the run begins without it.
    pub fn missing(&mut self, plan: &Plan, rank: usize, limit: Duration) {
        let reason = format!("it did not join within {:.0?}", limit.to_std());
        tracing::warn!("rank {rank} is missing: {reason}; the run starts without it, and it can join later");
        if self.0.len() < MOST {
            let node_id = plan.node_of_rank[rank];
            self.0.push(Absence { rank, node_id, host: String::new(), from: RoundId::default(), reason, back: None });
        }
    }

    /// A rank that was missing has come, from this host.
    pub fn came(&mut self, rank: usize, host: &str) {
        let absences = self.0.iter_mut().filter(|absence| absence.rank == rank && absence.host.is_empty());
        absences.for_each(|absence| host.clone_into(&mut absence.host));
    }

    /// It is back.
    pub fn back(&mut self, rank: usize, round: RoundId) {
        tracing::info!("round {round}: rank {rank} is back");
        if let Some(absence) = self.0.iter_mut().rfind(|absence| absence.rank == rank) {
            absence.back = Some(round);
        }
    }

    /// Ranks that are away now.
    pub fn away(&self) -> usize {
        self.0.iter().filter(|absence| absence.back.is_none()).count()
    }

    /// Whether this node's rank is away now.
    pub fn is_away(&self, node: NodeId, plan: &Plan) -> bool {
        self.of(node, plan).any(|absence| absence.back.is_none())
    }

    /// Whether this node's rank has ever been away: its account is of a part of the run.
    pub fn was_away(&self, node: NodeId, plan: &Plan) -> bool {
        self.of(node, plan).next().is_some()
    }

    /// In the order in which ranks left.
    pub fn all(&self) -> Vec<Absence> {
        self.0.clone()
    }

    fn of(&self, node: NodeId, plan: &Plan) -> impl Iterator<Item = &Absence> {
        let rank = plan.rank_of_node[node.index()] as usize;
        self.0.iter().filter(move |absence| absence.rank == rank)
    }
}

/// Absences kept for the report.
const MOST: usize = 10_000;
