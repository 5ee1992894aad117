//! Which fitted windows count.

use probe_sync_estimate::edge_fit::FitOptions;
use probe_sync_time::{Duration, System, Timestamp};

/// Which fits of windows to use, and when they hold if the file does not state it.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Fewest exchanges of a fit that is used.
    pub min_pairs: u32,
    /// Largest share of lost exchanges of a fit that is used; `None`: unlimited.
    pub max_loss_ratio: Option<f64>,
    /// Start of the window of `alpha_beta_nodeN.csv`, on the nodes' clocks.
    pub at: Option<Timestamp<System>>,
    /// Length of that window; `None`: 4 s, that profiler's default.
    pub window: Option<Duration>,
}

impl Selection {
    /// Returns true if a fit with this many exchanges and losses is used.
    pub(super) fn wants(&self, pairs: u32, lost: u32) -> bool {
        let max_loss_ratio = self.max_loss_ratio.unwrap_or(f64::INFINITY);
        FitOptions { min_pairs: self.min_pairs, max_loss_ratio, ..FitOptions::default() }.wants(pairs, lost)
    }
}
