//! The purity of coded pairs: how well a pair's packets agree that they met no queue.
//!
//! Two packets leave a known gap apart. If both had the same delay they arrive the same gap apart,
//! so the change of the gap, Δgap = (recv₂−recv₁) − (send₂−send₁), is near zero for a clean pair.
//! The weight is `w = 1 / (1 + (Δgap/ε)²)` with `ε = max(clock tick, 4·MAD of the tight cluster)`.
//!
//! The pair test of Huygens (Geng et al., NSDI 2018) is a hard gate on Δgap. It was rejected: under
//! load few pairs pass and the fit starves. A weight leaves every packet in the window.
//!
//! It does not tell a queued packet from its clean partner; see `edge_fit` for that.

use probe_sync_time::Duration;

/// Returns the weight, 0 to 1, of a pair whose spacing changed by `gap_change`, where `epsilon_ns`
/// (> 0) is the change with weight one half.
pub fn weight(gap_change: Duration, epsilon_ns: f64) -> f64 {
    let ratio = gap_change.as_ns_f64() / epsilon_ns;
    1.0 / (1.0 + ratio * ratio)
}

/// Returns ε in ns: four times the median absolute deviation of the tight cluster of `gap_changes`,
/// at least `tick_ns`.
///
/// The tight cluster is the shortest interval that contains a quarter of the changes: even if three
/// quarters of the pairs were queued, it measures the stamps' noise and not the queues.
pub fn epsilon_ns(gap_changes: impl IntoIterator<Item = Duration>, tick_ns: f64) -> f64 {
    let mut sorted: Vec<f64> = gap_changes.into_iter().map(|change| change.as_ns_f64()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let cluster = tight_cluster(&sorted);
    let Some(&center) = cluster.get(cluster.len() / 2) else {
        return tick_ns;
    };
    let mut deviations: Vec<f64> = cluster.iter().map(|change| (change - center).abs()).collect();
    deviations.sort_unstable_by(f64::total_cmp);
    (MADS * deviations[deviations.len() / 2]).max(tick_ns)
}

/// Returns the shortest run of a quarter of the sorted values; all of them if there are few.
fn tight_cluster(sorted: &[f64]) -> &[f64] {
    let size = (sorted.len() / 4).max(CLUSTER_MIN.min(sorted.len()));
    if size == 0 {
        return sorted;
    }
    let width = |start: &usize| sorted[start + size - 1] - sorted[*start];
    let start = (0..=sorted.len() - size).min_by(|a, b| width(a).total_cmp(&width(b))).unwrap_or(0);
    &sorted[start..start + size]
}

/// ε in units of the tight cluster's median absolute deviation.
const MADS: f64 = 4.0;

/// Fewest changes that count as a cluster.
const CLUSTER_MIN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(changes: &[i64], expected: f64) {
        assert_eq!(epsilon_ns(changes.iter().map(|&c| Duration::from_ns(c)), 1.0), expected, "{changes:?}");
    }

    #[test]
    fn epsilon_measures_the_tight_cluster() {
        check(&[], 1.0);
        check(&[500], 1.0);
        check(&[0, 0, 0, 0, 0], 1.0);
        check(&[-4, -2, 0, 2], 8.0);
        // Three queued pairs in four do not widen it.
        check(&[-2, 0, 2, 4, 900, 1800, 2700, -900, -1800, -2700, 5000, 6000, 7000, 8000, -9000, 9000], 8.0);
    }

    #[test]
    fn the_weight_halves_at_epsilon() {
        assert_eq!(weight(Duration::ZERO, 7.0), 1.0);
        assert_eq!(weight(Duration::from_ns(7), 7.0), 0.5);
        assert_eq!(weight(Duration::from_ns(-7), 7.0), 0.5);
        assert!(weight(Duration::from_ns(i64::MIN), 7.0) < 1e-30);
    }
}
