//! The pooling of errors over many nodes, windows and seeds into the few figures that are compared.
//!
//! Quantiles use the nearest rank: the p99 of n values is the ⌈0.99·n⌉-th smallest, a value that
//! occurred. The root mean square and half-widths cover all estimates that state an interval.
//!
//! Errors are not weighted: each node of each window counts once.

use super::plan::Judgement;

/// Collects judgements.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// |error| of every estimate, ns.
    errors_ns: Vec<f64>,
    missing: usize,
    half_widths: Claims,
    hard: Claims,
}

/// Stated intervals.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
struct Claims {
    count: usize,
    held: usize,
    /// Sum of the half-widths, ns.
    half_width_sum_ns: f64,
    /// Sum of the squared errors of the corresponding estimates, ns².
    square_sum: f64,
}

/// The quantities compared.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Estimates judged.
    pub count: usize,
    /// Node-windows without an estimate of the method.
    pub missing: usize,
    /// Median of |error|, ns.
    pub p50_ns: f64,
    /// 95th percentile of |error|, ns.
    pub p95_ns: f64,
    /// 99th percentile of |error|, ns.
    pub p99_ns: f64,
    /// Largest |error|, ns.
    pub max_ns: f64,
    /// Root mean square error, ns.
    pub rms_ns: f64,
    /// The 95 % intervals, if the method states any.
    pub interval: Option<Coverage>,
    /// The hard intervals, if the method states any.
    pub hard: Option<Coverage>,
}

/// Coverage of the stated intervals.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Coverage {
    /// Number of intervals.
    pub count: usize,
    /// Number of intervals that contain the truth.
    pub held: usize,
    /// Mean half-width, ns.
    pub half_width_ns: f64,
    /// Mean half-width divided by the root mean square error of the same estimates.
    pub half_width_per_rms: f64,
}

impl Coverage {
    /// Share of intervals that contain the truth.
    pub fn share(&self) -> f64 {
        self.held as f64 / self.count as f64
    }
}

impl Pool {
    /// Adds one judgement.
    pub fn add(&mut self, judgement: &Judgement) {
        let Some(error_ns) = judgement.error_ns() else {
            self.missing += 1;
            return;
        };
        self.errors_ns.push(error_ns.abs());
        if let Some(half_width_ns) = judgement.half_width_95_ns {
            self.half_widths.add(half_width_ns, error_ns.abs() <= half_width_ns, error_ns);
        }
        if let Some([low_ns, high_ns]) = judgement.hard_ns {
            let held = low_ns <= judgement.truth_ns && judgement.truth_ns <= high_ns;
            self.hard.add(0.5 * (high_ns - low_ns), held, error_ns);
        }
    }

    /// Returns the summary; zeros if nothing was judged.
    pub fn summary(&self) -> Summary {
        let mut sorted = self.errors_ns.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let square = sorted.iter().map(|error| error * error).sum::<f64>() / sorted.len().max(1) as f64;
        Summary {
            count: sorted.len(),
            missing: self.missing,
            p50_ns: quantile(&sorted, 0.50),
            p95_ns: quantile(&sorted, 0.95),
            p99_ns: quantile(&sorted, 0.99),
            max_ns: quantile(&sorted, 1.0),
            rms_ns: square.sqrt(),
            interval: self.half_widths.coverage(),
            hard: self.hard.coverage(),
        }
    }

    /// Returns all |error|, ascending, ns.
    pub fn sorted_errors_ns(&self) -> Vec<f64> {
        let mut sorted = self.errors_ns.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted
    }
}

impl Claims {
    fn add(&mut self, half_width_ns: f64, held: bool, error_ns: f64) {
        self.count += 1;
        self.held += usize::from(held);
        self.half_width_sum_ns += half_width_ns;
        self.square_sum += error_ns * error_ns;
    }

    fn coverage(&self) -> Option<Coverage> {
        let count = self.count as f64;
        (self.count > 0).then(|| {
            let half_width_ns = self.half_width_sum_ns / count;
            let rms_ns = (self.square_sum / count).sqrt();
            Coverage { count: self.count, held: self.held, half_width_ns, half_width_per_rms: half_width_ns / rms_ns }
        })
    }
}

/// Returns the ⌈share·n⌉-th smallest of sorted values; 0 without values.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0.0)
}

/// exp of the mean logarithm; 1 without values.
pub(super) fn geometric_mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = values.into_iter().fold((0.0, 0), |(sum, count), value| (sum + value.ln(), count + 1));
    if count == 0 { 1.0 } else { (sum / f64::from(count)).exp() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_sync_time::{NodeId, Timestamp};

    #[test]
    fn quantiles_are_values_that_occurred() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        for (share, expected) in [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (0.991, 100.0), (1.0, 100.0)] {
            assert_eq!(quantile(&hundred, share), expected, "{share}");
        }
        assert_eq!(quantile(&[], 0.5), 0.0);
        assert_eq!(quantile(&[7.0], 0.5), 7.0);
    }

    #[test]
    fn a_pool_by_hand() {
        let judgement = |error: f64, half_width_95_ns, hard_ns| Judgement {
            node: NodeId(1),
            window: 0,
            at: Timestamp::from_ns(0),
            truth_ns: 100.0,
            estimate_ns: Some(100.0 + error),
            half_width_95_ns,
            hard_ns,
            rate_ppm: None,
        };
        let nothing = Judgement { estimate_ns: None, ..judgement(0.0, None, None) };
        let all =
            [judgement(-3.0, Some(2.0), Some([90.0, 110.0])), judgement(4.0, Some(6.0), Some([101.0, 110.0])), nothing];
        for times in [1, 2] {
            let mut pool = Pool::default();
            (0..times).flat_map(|_| &all).for_each(|judgement| pool.add(judgement));
            let count = 2 * times;
            let summary = pool.summary();
            assert_eq!((summary.count, summary.missing), (count, count / 2));
            assert_eq!((summary.p50_ns, summary.max_ns, summary.rms_ns), (3.0, 4.0, 12.5f64.sqrt()));
            let interval = summary.interval.expect("stated");
            assert_eq!((interval.share(), interval.half_width_ns), (0.5, 4.0));
            assert_eq!(interval.half_width_per_rms, 4.0 / 12.5f64.sqrt());
            assert_eq!(summary.hard.expect("stated").held, count / 2);
        }
        assert_eq!(Pool::default().summary(), Summary::default());
        assert!((geometric_mean([2.0, 8.0]) - 4.0).abs() < 1e-12);
        assert_eq!(geometric_mean([]), 1.0);
    }
}
