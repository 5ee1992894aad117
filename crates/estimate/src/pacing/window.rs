//! The length of the next window.
//!
//! If the length has limits (`window`), a run begins with the shortest window. It doubles the
//! length up to the longest while every node is within the target, or as good as packets make it,
//! and the clocks are calm: with the minimum number of exchanges per window, a longer window is
//! what saves packets. A clock whose rate changes by r from one window of length T to the next
//! deviates from a line by up to r·T/8 within a window. If that exceeds a quarter of the target for
//! the node that bends most, and noise of the rates alone does not explain it, the window is
//! halved; if a doubled window would exceed an eighth, the length stays. An alarm restores the
//! shortest window.

use probe_sync_lines::NodeEstimate;
use probe_sync_time::NodeId;

use super::error_budget::ErrorBudget;
use super::{Pacer, PacingRound};

impl Pacer {
    /// Chooses the next window's length, and returns the factor by which it changes.
    pub(super) fn next_window(&mut self, round: &PacingRound<'_>, error_budgets: &[(NodeId, ErrorBudget)]) -> f64 {
        let bend_ppm = self.bend_ppm(round);
        let (Some([shortest, longest]), Some(window)) = (self.options.window, self.window_ns) else { return 1.0 };
        // ppm · ns = 1e-6 ns.
        let departure_ns = bend_ppm * window as f64 * 1e-6 / 8.0;
        let target = self.options.target_ns;
        // A node whose asymmetry alone takes the target up is as good as packets make it.
        let within =
            error_budgets.iter().all(|(_, budget)| budget.half_width_ns() <= target || self.has_settled(budget));
        let next = if self.alarm_rounds > 0 {
            shortest
        } else if departure_ns > BEND_SHARE_MAX * target {
            window / 2
        } else if within && !error_budgets.is_empty() && departure_ns * 2.0 <= BEND_SHARE_MAX / 2.0 * target {
            window.saturating_mul(2)
        } else {
            window
        };
        let next = next.clamp(shortest, longest.max(shortest));
        self.window_ns = Some(next);
        next as f64 / window.max(1) as f64
    }

    /// Returns the largest change of a node's rate since the last round, ppm, beyond what the
    /// rates' own noise explains.
    fn bend_ppm(&mut self, round: &PacingRound<'_>) -> f64 {
        let sound = |node: &&NodeEstimate| node.reachable && !round.disturbed.contains(&node.node_id);
        let mut rates = vec![None; round.nodes.len()];
        for node in round.nodes.iter().filter(sound) {
            if let Some(rate) = rates.get_mut(node.node_id.index()) {
                *rate = Some([node.drift_ppm, node.drift_sigma_ppm.powi(2)]);
            }
        }
        let before = std::mem::replace(&mut self.rates, rates);
        let both = before.iter().zip(&self.rates).filter_map(|(before, now)| Some(((*before)?, (*now)?)));
        let bends = both.map(|([before, noise_before], [now, noise_now])| {
            let noise = (noise_before + noise_now).sqrt();
            ((now - before).abs() - NOISE_SIGMAS * noise).max(0.0)
        });
        bends.fold(0.0, f64::max)
    }
}

/// Share of the target by which a clock may leave a line within a window.
const BEND_SHARE_MAX: f64 = 0.25;
/// Standard deviations that noise may cause in a difference of rates: the largest of many nodes is
/// examined.
const NOISE_SIGMAS: f64 = 4.0;
