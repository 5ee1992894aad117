//! Which fitted windows count.

use probe_sync_time::{Duration, System, Timestamp};

/// Which fits of windows count, and when they hold where the file does not say.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Fewest exchanges of a fit that counts.
    pub min_pairs: u32,
    /// A fit counts whose losses are at most this share of its exchanges; `None`: however many.
    pub max_loss_ratio: Option<f64>,
    /// Start of the window of `alpha_beta_nodeN.csv`, on the nodes' clocks.
    pub at: Option<Timestamp<System>>,
    /// Its length; `None`: 4 s, that profiler's default.
    pub window: Option<Duration>,
}

impl Selection {
    /// Whether a fit of so many exchanges and losses counts.
    pub(super) fn wants(&self, pairs: u32, lost: u32) -> bool {
        let few = |most: f64| f64::from(lost) <= most * f64::from(pairs);
        pairs >= self.min_pairs && self.max_loss_ratio.is_none_or(few)
    }
}
