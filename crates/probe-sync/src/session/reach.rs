//! The bounds of a clock that its run can reach: path and host asymmetry leave an interval that no
//! further packet narrows.
//!
//! Loops of a graph reveal asymmetry over the first rounds, and the part of sigma that it causes
//! falls meanwhile. So a bound is refused only when this part alone has exceeded it, with room to
//! spare, in each of the last [`ROUNDS`] rounds and falls no longer.

use std::collections::VecDeque;

use probe_sync_lines::NodeEstimate;

use crate::report::SIGMAS_95;

/// The parts of the half-width of a node's 95 % interval that probing does not reduce, ns, in its
/// last rounds.
#[derive(Debug, Default)]
pub(super) struct Floors(VecDeque<f64>);

impl Floors {
    /// Adds the node's estimate of the next round.
    pub fn observe(&mut self, node: Option<&NodeEstimate>) {
        match node.filter(|node| node.reachable) {
            Some(node) => {
                self.0.truncate(ROUNDS - 1);
                self.0.push_front(SIGMAS_95 * node.asymmetry_sigma_ns);
            }
            // What was known before says nothing of the links on which it comes back.
            None => self.0.clear(),
        }
    }

    /// Returns the smallest half-width that the run can reach, ns, if that is certainly more than
    /// `half_width_ns`.
    pub fn beyond(&self, half_width_ns: f64) -> Option<f64> {
        let (latest, oldest) = (*self.0.front()?, *self.0.back()?);
        let least = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        let settled = self.0.len() == ROUNDS && latest >= SETTLED * oldest;
        (settled && half_width_ns < SETTLED * least).then_some(latest)
    }
}

/// Number of rounds that have to agree.
const ROUNDS: usize = 6;

/// A value has settled if it falls by less than this factor over these rounds.
const SETTLED: f64 = 0.9;

#[cfg(test)]
mod tests {
    use probe_sync_time::NodeId;

    use super::*;

    fn check(asymmetry_sigma_ns: &[f64], half_width_ns: f64, expected: Option<f64>) {
        let mut floors = Floors::default();
        for sigma in asymmetry_sigma_ns {
            let node = NodeEstimate {
                node_id: NodeId(1),
                offset_ns: 0.0,
                drift_ppm: 0.0,
                residual: 0.0,
                reachable: *sigma >= 0.0,
                converged: true,
                sigma_ns: 1e3,
                asymmetry_sigma_ns: *sigma,
                drift_sigma_ppm: 0.0,
                bound_lo_ns: 0.0,
                bound_hi_ns: 0.0,
                edges_used: 1,
                edges_excluded: 0,
            };
            floors.observe(Some(&node));
        }
        assert_eq!(floors.beyond(half_width_ns), expected, "{asymmetry_sigma_ns:?} for {half_width_ns}");
    }

    #[test]
    fn a_bound_below_the_floor_is_refused_once_the_floor_has_settled() {
        check(&[100.0; 6], 50.0, Some(SIGMAS_95 * 100.0));
        check(&[100.0; 5], 50.0, None);
        check(&[100.0; 6], 190.0, None);
        check(&[0.0; 6], 0.0, None);
        // Loops are still revealing asymmetry.
        check(&[200.0, 180.0, 160.0, 140.0, 120.0, 100.0], 50.0, None);
        check(&[900.0, 100.0, 99.0, 98.0, 97.0, 96.0, 95.0], 50.0, Some(SIGMAS_95 * 95.0));
        // The node was away.
        check(&[100.0, 100.0, 100.0, -1.0, 100.0, 100.0, 100.0], 50.0, None);
    }
}
