//! Comparison of estimates with known truth, round by round.
//!
//! The root passes every solved round to the [`Judge`]; its verdict is part of the report. Rounds
//! count from the second on ([`FIRST_JUDGED_ROUND`]), because in the first one the nodes do not yet
//! know each other's windows. A node is not judged in a round in which its clock or its reference's
//! clock was flagged.

use probe_sync_lines::Round;
use probe_sync_time::{NodeId, RoundId};

use super::{SIGMAS_95, TruthVerdict, median};
use crate::measure::virtual_clocks::Truth;

/// Collects, over the rounds, what the verdict needs.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    truth: Truth,
    reference: NodeId,
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
    /// Creates a judge of a run relative to `reference`, with the truth if it is known.
    pub fn new(truth: Truth, reference: NodeId) -> Self {
        Self { held: vec![None; truth.clocks().len()], truth, reference, samples: Vec::new(), not_judged: 0 }
    }

    /// Returns the true offset of a node at the midpoint of a round.
    pub fn true_offset_ns(&self, node: NodeId, round: &Round) -> Option<f64> {
        self.truth.offset_ns(node, round.midpoint())
    }

    /// Returns true if the hard interval contained the truth in every judged round; `None` if none
    /// was judged.
    pub fn bounds_held(&self, node: NodeId) -> Option<bool> {
        self.held.get(node.index()).copied().flatten()
    }

    /// Judges a solved round.
    pub fn observe(&mut self, round: &Round) {
        if round.round_id < FIRST_JUDGED_ROUND {
            return;
        }
        for estimate in round.all_nodes.iter().filter(|node| node.node_id != self.reference) {
            let (node, at) = (estimate.node_id, round.midpoint());
            let known = self.truth.offset_ns(node, at).zip(self.truth.drift_ppm(node, at));
            let Some((true_offset, true_drift)) = known else { continue };
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
                drift_error_ppm: estimate.drift_ppm - true_drift,
                half_width_ns: SIGMAS_95 * estimate.sigma_ns,
                hard_width_ns: estimate.bound_hi_ns - estimate.bound_lo_ns,
                inside_hard,
            });
        }
    }

    /// Returns the verdict, if the truth is known.
    pub fn verdict(&self) -> Option<TruthVerdict> {
        if !self.truth.is_known() {
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

/// The first round whose errors count.
const FIRST_JUDGED_ROUND: RoundId = RoundId(1);
/// Most node-rounds judged: some hundred megabytes of memory.
const MAX_SAMPLES: usize = 1 << 21;
