//! Which fitted windows count.

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
        let few = |most: f64| f64::from(lost) <= most * f64::from(pairs);
        pairs >= self.min_pairs && self.max_loss_ratio.is_none_or(few)
    }
}
