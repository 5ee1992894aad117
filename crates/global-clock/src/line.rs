//! A straight line from one clock to another in integers: `y(x) = y₀ + (x − x₀) + (x − x₀)·rate`.
//!
//! [`crate::map`] consists of such lines. An f64 cannot hold absolute time (its resolution is 256
//! ns), and a reader must get the same answer in every process. The rate is an integer multiple of
//! 2⁻⁶⁰; the product is computed in 128 bits and rounded down. A line whose rate is above −1 never
//! falls, and neither does its rounded value.

/// Rate of one clock relative to another, in units of 2⁻⁶⁰ (about 10⁻¹⁸).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub i64);

impl Rate {
    /// Converts from parts per million, clamped to ± [`Rate::LARGEST_PPM`]; NaN becomes zero.
    pub fn from_ppm(ppm: f64) -> Self {
        // Truncating a float is saturating, and NaN is 0.
        Self((ppm.clamp(-Self::LARGEST_PPM, Self::LARGEST_PPM) * Self::ONE_PPM) as i64)
    }

    /// Returns the rate in parts per million.
    pub fn as_ppm(self) -> f64 {
        self.0 as f64 / Self::ONE_PPM
    }

    /// Returns the gain over `ns`, rounded down.
    pub const fn over(self, ns: i64) -> i64 {
        ((ns as i128 * self.0 as i128) >> SCALE) as i64
    }

    /// Returns the gain of a rate within ± ½, which every line has: the upper half of one product,
    /// without a shift that its reader would wait for.
    #[inline]
    const fn over_below_half(self, ns: i64) -> i64 {
        let rate = self.0.wrapping_shl(i64::BITS - SCALE);
        ((ns as i128 * rate as i128) >> i64::BITS) as i64
    }

    /// Returns the gain over `ns`, rounded up: for bounds.
    pub const fn over_at_most(self, ns: i64) -> i64 {
        self.over(ns).wrapping_add(1)
    }

    /// Largest rate of a clock.
    pub const LARGEST_PPM: f64 = 100_000.0;
    const ONE_PPM: f64 = (1_i64 << SCALE) as f64 * 1e-6;
}

/// A line through a point.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The point's x, ns.
    pub x: i64,
    /// The point's y, ns.
    pub y: i64,
    /// Rate at which y gains on x.
    pub rate: Rate,
}

impl Line {
    /// Returns y at `x`, rounded down. Wraps on overflow, because a page may contain anything.
    pub const fn at(&self, x: i64) -> i64 {
        let passed = x.wrapping_sub(self.x);
        self.y.wrapping_add(passed).wrapping_add(self.rate.over_below_half(passed))
    }

    /// Returns the x of this `y`, to within 1 ns.
    pub fn inverse(&self, y: i64) -> i64 {
        let mut x = self.x.wrapping_add(y.wrapping_sub(self.y));
        // Each turn leaves a tenth of the error, at usual rates a thousandth.
        for _ in 0..INVERSE_TURNS {
            let off = y.wrapping_sub(self.at(x));
            if off == 0 {
                break;
            }
            x = x.wrapping_add(off);
        }
        x
    }
}

const SCALE: u32 = 60;
const INVERSE_TURNS: usize = 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_by_hand() {
        let line = Line { x: 5_000, y: 9_000, rate: Rate::from_ppm(10.0) };
        // Truncating makes the rate less than 10 ppm by less than 10⁻¹⁸.
        assert!((1_009_009..=1_009_010).contains(&line.at(1_005_000)));
        assert_eq!(Line { rate: Rate::from_ppm(0.0), ..line }.at(4_000), 8_000);
        assert!((Rate::from_ppm(-3.5).as_ppm() + 3.5).abs() < 1e-9);
        assert_eq!((Rate::from_ppm(f64::NAN), Rate::from_ppm(1e99)), (Rate(0), Rate::from_ppm(Rate::LARGEST_PPM)));
    }

    proptest! {
        #[test]
        fn a_line_never_falls_and_has_an_inverse(
            x in -1_i64 << 60..1 << 60, passed in 0_i64..1 << 55, more in 0_i64..1_000_000, ppm in -1e3..1e3_f64,
        ) {
            let line = Line { x, y: 1_795_000_000_000_000_000, rate: Rate::from_ppm(ppm) };
            let (early, late) = (line.at(x + passed), line.at(x + passed + more));
            prop_assert!(late >= early);
            prop_assert!((line.inverse(early) - x - passed).abs() <= 1);
            prop_assert_eq!(line.rate.over_below_half(passed), line.rate.over(passed));
            let exact = ppm * 1e-6 * more as f64;
            prop_assert!(((late - early - more) as f64 - exact).abs() < 1.01);
        }

        #[test]
        fn any_number_is_taken(x: i64, y: i64, rate: i64, at: i64) {
            let line = Line { x, y, rate: Rate(rate) };
            let _ = (line.at(at), line.inverse(at), Rate(rate).over_at_most(at));
        }
    }
}
