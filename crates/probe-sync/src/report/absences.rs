//! Which ranks were absent from the run, when and why.

use probe_sync_time::{Duration, NodeId, RoundId};
use serde::{Deserialize, Serialize};

use crate::join::Plan;

/// A rank without which the run continued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Absence {
    /// The rank.
    pub rank: usize,
    /// Node of the rank, or of the leader that it follows.
    pub node_id: NodeId,
    /// Host name; empty if the rank has not joined yet.
    pub host: String,
    /// First round without the rank.
    pub from: RoundId,
    /// What showed that the rank was gone.
    pub reason: String,
    /// Round at whose end the rank took part again; null if it did not.
    pub back: Option<RoundId>,
}

/// All absences of a run.
#[derive(Debug, Default)]
pub(super) struct Absences(Vec<Absence>);

impl Absences {
    /// Records that a rank is gone.
    pub fn left(&mut self, plan: &Plan, rank: usize, from: RoundId, reason: &str, backend: &str) {
        let (node_id, host) = (plan.node_of_rank[rank], plan.hostnames[rank].clone());
        // Over MPI a process cannot join a job that runs already.
        let back = if backend == "mpi" { "" } else { ", and it may rejoin if it is restarted as before" };
        tracing::warn!("round {from}: lost rank {rank} on {host}: {reason}; the others continue{back}");
        if self.0.len() < MOST {
            self.0.push(Absence { rank, node_id, host, from, reason: reason.to_owned(), back: None });
        }
    }

    /// Records that a rank has not joined within `limit`, so the run begins without it.
    pub fn missing(&mut self, plan: &Plan, rank: usize, limit: Duration) {
        let reason = format!("it did not join within {:.0?}", limit.to_std());
        tracing::warn!("rank {rank} is missing: {reason}; the run starts without it, and it can join later");
        if self.0.len() < MOST {
            let node_id = plan.node_of_rank[rank];
            self.0.push(Absence { rank, node_id, host: String::new(), from: RoundId::default(), reason, back: None });
        }
    }

    /// Records that a missing rank has joined, from this host.
    pub fn came(&mut self, rank: usize, host: &str) {
        let absences = self.0.iter_mut().filter(|absence| absence.rank == rank && absence.host.is_empty());
        absences.for_each(|absence| host.clone_into(&mut absence.host));
    }

    /// Records that a rank is back.
    pub fn back(&mut self, rank: usize, round: RoundId) {
        tracing::info!("round {round}: rank {rank} is back");
        if let Some(absence) = self.0.iter_mut().rfind(|absence| absence.rank == rank) {
            absence.back = Some(round);
        }
    }

    /// Returns the number of ranks that are absent now.
    pub fn away(&self) -> usize {
        self.0.iter().filter(|absence| absence.back.is_none()).count()
    }

    /// Returns true if this node's rank is absent now.
    pub fn is_away(&self, node: NodeId, plan: &Plan) -> bool {
        self.of(node, plan).any(|absence| absence.back.is_none())
    }

    /// Returns true if this node's rank has ever been absent, so that its account covers only part
    /// of the run.
    pub fn was_away(&self, node: NodeId, plan: &Plan) -> bool {
        self.of(node, plan).next().is_some()
    }

    /// Returns all absences, in the order in which ranks left.
    pub fn all(&self) -> Vec<Absence> {
        self.0.clone()
    }

    fn of(&self, node: NodeId, plan: &Plan) -> impl Iterator<Item = &Absence> {
        let rank = plan.rank_of_node[node.index()] as usize;
        self.0.iter().filter(move |absence| absence.rank == rank)
    }
}

/// Most absences kept for the report.
const MOST: usize = 10_000;
