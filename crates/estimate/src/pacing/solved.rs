//! The pace after a round, decided identically in a live run and in every simulation.
//!
//! It extracts the [`Pacer`]'s input from a round that [`crate::round::Solver`] solved and prepares
//! the [`Decision`](probe_sync_lines::Decision).

use probe_sync_time::NodeId;

use super::{Pacer, PacingRound, PacingStep};
use crate::round::SolvedRound;

impl Pacer {
    /// Judges a solved round that was measured at the current pace, and decides the next pace.
    pub fn after(&mut self, round: &SolvedRound) -> PacingStep {
        let data = &round.data;
        let seen = data.clock_events.iter().map(|(node, _)| node);
        let disturbed: Vec<NodeId> = seen.chain(&data.watch.invalid).copied().collect();
        let asymmetries: Vec<f64> = data.all_nodes.iter().map(|node| node.asymmetry_sigma_ns).collect();
        self.next(&PacingRound {
            nodes: &data.all_nodes,
            reference: data.reference,
            edges: &round.edges,
            excluded: &data.excluded_edges,
            asymmetry_sd_ns: data.asymmetry_sd_ns,
            asymmetry_sigma_ns: Some(&asymmetries),
            disturbed: &disturbed,
        })
    }
}
