//! One straight piece of a time map, in exact integers.
//!
//! On a piece `correction(t) = c0 + ⌊(t − t0)·rise/run + ½⌋`, a rational slope evaluated without
//! loss: with `t − t0 = k·run + m`, 0 ≤ m < run, the product is `k·rise + m·rise/run`, whose second
//! part fits 128 bits. Three properties follow. Both ends of a piece between two knots are hit
//! exactly, so pieces join without a seam. With rise ≤ run the corrected time never goes backwards,
//! because one more picosecond of t adds at most one of correction. A slope of 0 changes no digit.
//!
//! [`Fast`] gives the same bits sooner: a fixed-point slope guesses the quotient, and the exact
//! remainder puts it right. A fixed-point slope alone, the tempting way, would miss the next knot
//! by picoseconds and count false clamps.

use super::place::Place;

/// A slope as an exact fraction: `rise_ps` of correction per `run_ps` of time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Slope {
    rise_ps: i128,
    run_ps: i128,
}

impl Slope {
    /// No change of the correction.
    pub(super) const FLAT: Slope = Slope { rise_ps: 0, run_ps: 1 };

    /// The exact fraction; `None` if `run_ps` is not positive or the two are too long to be
    /// multiplied exactly.
    pub(super) fn exact(rise_ps: i128, run_ps: i128) -> Option<Self> {
        let fits = bits(rise_ps) + bits(run_ps) <= PRODUCT_BITS;
        (run_ps > 0 && fits).then_some(Self { rise_ps, run_ps })
    }

    /// The fraction, shortened from below until it fits: for positions that need not hit a knot.
    pub(super) fn near(rise_ps: i128, run_ps: i128) -> Self {
        let excess = (bits(rise_ps) + bits(run_ps)).saturating_sub(PRODUCT_BITS).div_ceil(2);
        Self::exact(rise_ps >> excess, run_ps >> excess).unwrap_or(Self::FLAT)
    }

    /// A slope in parts per million.
    pub(super) fn from_ppm(ppm: f64) -> Self {
        // 2^50 steps per unit: 1e-15, finer than any clock's rate is known. `as` saturates, and NaN
        // becomes 0.
        Self { rise_ps: (ppm * 1e-6 * PPM_RUN as f64).round() as i128, run_ps: PPM_RUN }
    }

    /// As a float.
    pub(super) fn value(self) -> f64 {
        self.rise_ps as f64 / self.run_ps as f64
    }

    /// Returns true if the correction never changes.
    pub(super) fn is_flat(self) -> bool {
        self.rise_ps == 0
    }

    /// The nearer of this slope and ±`limit`.
    pub(super) fn limited(self, limit: f64) -> Self {
        if self.value().abs() <= limit { self } else { Self::from_ppm(self.value().signum() * limit * 1e6) }
    }

    /// ⌊d·rise/run + ½⌋, exactly.
    pub(super) fn times(self, d: i128) -> i128 {
        let (whole, rest) = (d.div_euclid(self.run_ps), d.rem_euclid(self.run_ps));
        whole.saturating_mul(self.rise_ps).saturating_add(self.round(rest))
    }

    fn round(self, rest: i128) -> i128 {
        (2 * rest * self.rise_ps + self.run_ps).div_euclid(2 * self.run_ps)
    }

    /// The slope of the inverse map's correction, seen on the corrected axis: −rise per (run −
    /// rise).
    pub(super) fn inverse(self) -> Option<Self> {
        Self::exact(-self.rise_ps, self.run_ps - self.rise_ps)
    }

    /// The slope of the sum of both corrections when `next` maps what this one returned: s + n·(1 −
    /// s).
    pub(super) fn then(self, next: Self) -> Self {
        if next.rise_ps == 0 {
            return self;
        }
        if self.rise_ps == 0 {
            return next;
        }
        let (a, b) = (self.shortened(), next.shortened());
        Self::near(a.rise_ps * b.run_ps + b.rise_ps * (a.run_ps - a.rise_ps), a.run_ps * b.run_ps)
    }

    fn shortened(self) -> Self {
        let excess = bits(self.run_ps).max(bits(self.rise_ps)).saturating_sub(SHORT_BITS);
        Self { rise_ps: self.rise_ps >> excess, run_ps: (self.run_ps >> excess).max(1) }
    }
}

/// A straight piece of the map; how far it reaches is known to its owner.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Piece {
    /// The first time at which it holds.
    pub(super) from_ps: i128,
    /// Anchor of the slope.
    pub(super) origin_ps: i128,
    /// The correction there.
    pub(super) correction_ps: i128,
    pub(super) slope: Slope,
    pub(super) place: Place,
    /// Uncertainty at the origin, ns.
    pub(super) sigma_ns: f64,
    /// Its change per picosecond of t.
    pub(super) growth: f64,
}

impl Piece {
    /// The piece that changes nothing, everywhere.
    pub(super) const IDENTITY: Piece = Piece {
        from_ps: i128::MIN,
        origin_ps: 0,
        correction_ps: 0,
        slope: Slope::FLAT,
        place: Place::Inside,
        sigma_ns: 0.0,
        growth: 0.0,
    };

    /// The correction at t.
    pub(super) fn correction(&self, t: i128) -> i128 {
        self.correction_ps.saturating_add(self.slope.times(t.saturating_sub(self.origin_ps)))
    }

    /// t − correction(t).
    pub(super) fn apply(&self, t: i128) -> i128 {
        t.saturating_sub(self.correction(t))
    }

    /// Uncertainty at t, ns.
    pub(super) fn sigma(&self, t: i128) -> f64 {
        self.sigma_after(t.saturating_sub(self.origin_ps) as f64)
    }

    pub(super) fn sigma_after(&self, d: f64) -> f64 {
        (self.sigma_ns + self.growth * d).abs()
    }

    /// The time that this piece corrects to `corrected`, to the nearest picosecond or so.
    pub(super) fn solve(&self, corrected: i128) -> Option<i128> {
        Some(self.inverse()?.apply(corrected))
    }

    /// The inverse of this piece, including `from_ps`; `None` if the corrected time does not
    /// increase along it.
    pub(super) fn inverse(&self) -> Option<Self> {
        let slope = self.slope.inverse()?;
        Some(Self {
            from_ps: if self.from_ps == i128::MIN { i128::MIN } else { self.apply(self.from_ps) },
            origin_ps: self.origin_ps.saturating_sub(self.correction_ps),
            correction_ps: self.correction_ps.saturating_neg(),
            slope,
            growth: self.growth / (1.0 - self.slope.value()),
            ..*self
        })
    }
}

/// A slope prepared for fast evaluation.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Fast {
    rise: i64,
    run: i64,
    /// rise/run · 2^62, rounded.
    scaled: i64,
}

impl Fast {
    /// `None` for slopes that are too steep or too long; those are evaluated the slow way.
    pub(super) fn new(slope: Slope) -> Option<Self> {
        let run = i64::try_from(slope.run_ps).ok().filter(|&run| run < REACH)?;
        let rise = i64::try_from(slope.rise_ps).ok().filter(|rise| rise.unsigned_abs() < run.unsigned_abs())?;
        let scaled = ((i128::from(rise) << 62) / i128::from(run)) as i64;
        Some(Self { rise, run, scaled })
    }

    /// ⌊d·rise/run + ½⌋, the same bits as [`Slope::times`]; `None` if d is out of range.
    pub(super) fn times(self, d: i128) -> Option<i64> {
        let d = i64::try_from(d).ok().filter(|d| d.unsigned_abs() < REACH.unsigned_abs())?;
        let mut quotient = ((i128::from(d) * i128::from(self.scaled)) >> 62) as i64;
        let twice = 2 * i128::from(self.run);
        let wanted = 2 * i128::from(d) * i128::from(self.rise) + i128::from(self.run);
        let mut rest = wanted - i128::from(quotient) * twice;
        // |d| < 2^61 and a slope that is off by less than 2^-62: the guess is off by two at most.
        while rest < 0 {
            quotient -= 1;
            rest += twice;
        }
        while rest >= twice {
            quotient += 1;
            rest -= twice;
        }
        Some(quotient)
    }
}

/// Bits needed for a number's magnitude.
fn bits(number: i128) -> u32 {
    128 - number.unsigned_abs().leading_zeros()
}

/// 2·rise·run + run must stay below 2^127.
const PRODUCT_BITS: u32 = 124;
/// Three factors of this length, summed, fit 128 bits.
const SHORT_BITS: u32 = 60;
const PPM_RUN: i128 = 1 << 50;
/// 2^61 ps, 26 days.
const REACH: i64 = 1 << 61;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fast_equals_slow(rise in -REACH..REACH, run in 1..REACH, d in -REACH + 1..REACH, shift in 0..60u32) {
            let slope = Slope::exact(i128::from(rise >> shift), i128::from(run)).expect("short enough");
            if let Some(fast) = Fast::new(slope) {
                prop_assert_eq!(fast.times(i128::from(d)).map(i128::from), Some(slope.times(i128::from(d))));
            }
        }

        #[test]
        fn a_slope_of_at_most_one_never_goes_back(run in 1..REACH, share in 0.0..1.0f64, d in -REACH..REACH) {
            let slope = Slope::exact((run as f64 * share) as i128, i128::from(run)).expect("short enough");
            let step = slope.times(i128::from(d) + 1) - slope.times(i128::from(d));
            prop_assert!((0..=1).contains(&step));
        }
    }

    #[test]
    fn rounds_halves_up_on_both_sides_of_zero() {
        let half = Slope::exact(1, 2).expect("short");
        let found: Vec<i128> = (-4..=4).map(|d| half.times(d)).collect();
        assert_eq!(found, [-2, -1, -1, 0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn slopes_out_of_reach_are_refused_or_shortened() {
        assert_eq!(Slope::exact(1, 0), None);
        assert_eq!(Slope::exact(1 << 80, 1 << 80), None);
        assert!((Slope::near(1 << 80, 1 << 90).value() - 1.0 / 1024.0).abs() < 1e-12);
        assert_eq!(Slope::from_ppm(f64::NAN), Slope { rise_ps: 0, run_ps: PPM_RUN });
    }
}
