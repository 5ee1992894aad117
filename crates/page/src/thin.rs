//! Thinning of a long run, which preserves extremes.
//!
//! A short run has a column per round. A longer one is cut into buckets with an equal number of
//! rounds, and each bucket gets two columns, at its first and its last round. For a value they hold
//! its minimum and maximum, in the order in which they occurred; for a band both hold its lowest
//! and highest edge. A screen pixel thus still shows the extent of all its rounds, as in Jugel et
//! al., "M4: A Visualization-Oriented Time Series Data Aggregation", 2014, but without its first
//! and last value, which lie between the extremes.

/// Which rounds share columns.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    rounds: usize,
    buckets: usize,
}

/// Minimum and maximum of some values, with the order in which they came.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Extremes {
    low: f64,
    high: f64,
    /// The maximum came last.
    rises: bool,
}

impl Columns {
    /// Creates columns for this many rounds of this many nodes with series, with or without other
    /// nodes: their rows need space, too.
    pub fn new(rounds: usize, nodes: usize, others: bool) -> Self {
        let values = if others { VALUES_BESIDE_OTHERS } else { VALUES_MAX };
        let most = (values / nodes.max(1)).clamp(COLUMNS_MIN, COLUMNS_MAX);
        // A thinned band has edges of its own: more numbers a column.
        Self { rounds, buckets: if rounds <= most { rounds } else { most * 2 / 5 } }
    }

    /// Rounds share columns.
    pub fn are_thinned(self) -> bool {
        self.buckets < self.rounds
    }

    /// Number of buckets.
    pub fn buckets(self) -> usize {
        self.buckets
    }

    /// Columns of a bucket.
    pub fn of_bucket(self) -> usize {
        if self.are_thinned() { 2 } else { 1 }
    }

    /// The bucket of the round at this index.
    pub fn bucket(self, round: usize) -> usize {
        // Wide enough for any product.
        (round as u128 * self.buckets as u128 / self.rounds.max(1) as u128) as usize
    }
}

impl Extremes {
    /// Without any value.
    pub const NONE: Self = Self { low: f64::INFINITY, high: f64::NEG_INFINITY, rises: true };

    /// Adds a value; NaN is ignored.
    pub fn take(&mut self, value: f64) {
        if value < self.low {
            self.low = value;
            self.rises = false;
        }
        if value > self.high {
            self.high = value;
            self.rises = true;
        }
    }

    /// Minimum; NaN without values.
    pub fn low(self) -> f64 {
        if self.low <= self.high { self.low } else { f64::NAN }
    }

    /// Maximum; NaN without values.
    pub fn high(self) -> f64 {
        if self.low <= self.high { self.high } else { f64::NAN }
    }

    /// Both, in the order in which they came.
    pub fn in_order(self) -> [f64; 2] {
        if self.rises { [self.low(), self.high()] } else { [self.high(), self.low()] }
    }
}

/// Columns times nodes: some 2 MB of text, and the page stays below 3.
const VALUES_MAX: usize = 60_000;
/// The same if a table of a thousand nodes and their edges takes 1 MB.
const VALUES_BESIDE_OTHERS: usize = 24_000;
/// No screen is wider, and zooming in shows the extremes of a bucket.
const COLUMNS_MAX: usize = 1_000;
const COLUMNS_MIN: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rounds_have_a_column_each_and_many_share() {
        let check = |rounds, nodes, buckets, thinned| {
            let columns = Columns::new(rounds, nodes, nodes >= 64);
            assert_eq!((columns.buckets(), columns.are_thinned()), (buckets, thinned), "{rounds} rounds of {nodes}");
            let of: Vec<usize> = (0..rounds).map(|round| columns.bucket(round)).collect();
            assert!(of.is_sorted() && of.first().is_none_or(|first| *first == 0), "in order");
            assert!(of.last().is_none_or(|last| *last == buckets - 1), "all are used");
            let least = (0..buckets).map(|bucket| of.iter().filter(|of| **of == bucket).count()).min();
            assert!(!thinned || least >= Some(2), "two columns need two rounds");
        };
        check(0, 5, 0, false);
        check(1, 5, 1, false);
        check(900, 63, 900, false);
        check(375, 64, 375, false);
        check(1_000, 3, 1_000, false);
        check(1_001, 3, 400, true);
        check(953, 63, 380, true);
        check(43_200, 63, 380, true);
        check(43_200, 64, 150, true);
        check(5_000, 100_000, 80, true);
    }

    #[test]
    fn extremes_stay_in_the_order_in_which_they_came() {
        let check = |values: &[f64], expected: [f64; 2]| {
            let mut extremes = Extremes::NONE;
            values.iter().for_each(|value| extremes.take(*value));
            let found = extremes.in_order();
            let same = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
            assert!(found.iter().zip(&expected).all(same), "{values:?}: {found:?}");
        };
        check(&[], [f64::NAN; 2]);
        check(&[f64::NAN], [f64::NAN; 2]);
        check(&[3.0], [3.0, 3.0]);
        check(&[3.0, f64::NAN, -7.0, 1.0], [3.0, -7.0]);
        check(&[0.0, -7.0, 1.0, 9.0, 2.0], [-7.0, 9.0]);
    }
}
