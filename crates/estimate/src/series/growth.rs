//! How a standard deviation grows with the distance from the last measurement.
//!
//! [`super::Continuation`] states it for a segment's ends, and straight chords approximate it in
//! the map's outer pieces. Under [`Growth::Walk`] the variance `d` seconds away is `F·P·Fᵀ + Q` of
//! [`crate::motion`], `σ² + 2·c·d + r·d² + q·d³/3`. To this it adds an effect that no measurement
//! so far can have shown: a change of temperature that begins at that point. It bends a clock by
//! [`BEND_NS_PER_S2`], or by more if the clock's own lines show more; once the oscillator has
//! settled, after [`SETTLING_S`], its rate is off by 0.1 ppm or correspondingly more.
//!
//! The function is convex, so a chord states more than it, never less.

use crate::motion::NS_PER_S_PER_PPM;

/// Growth of a standard deviation with the distance.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Growth {
    /// Proportional to the distance.
    Linear {
        /// Growth in millionths of the distance (1 ppm: 1 µs per second).
        ppm: f64,
    },
    /// Like a clock with known offset and rate whose rate wanders.
    Walk {
        /// Covariance of offset and rate, ns²/s; positive if their errors add up with the distance.
        covariance: f64,
        /// Variance of the rate, ns²/s².
        rate: f64,
        /// Density of the rate's random walk, ns²/s³.
        density: f64,
        /// Bend of the clock when its temperature begins to change, ns/s².
        bend: f64,
    },
}

/// A straight part of the standard deviation, `sigma_ns + growth·distance`.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Chord {
    /// Distance at which it begins.
    pub(super) from_ps: i128,
    /// Its value at distance zero, ns.
    pub(super) sigma_ns: f64,
    /// ns per ps.
    pub(super) growth: f64,
}

impl Growth {
    /// The standard deviation `seconds` away from where it is `sigma_ns`.
    pub(crate) fn sigma(self, sigma_ns: f64, seconds: f64) -> f64 {
        match self {
            Self::Linear { ppm } => sigma_ns + ppm.abs() * NS_PER_S_PER_PPM * seconds,
            Self::Walk { covariance, rate, density, bend } => {
                let most = sigma_ns * rate.max(0.0).sqrt();
                let known = sigma_ns * sigma_ns
                    + seconds * (2.0 * covariance.clamp(-most, most) + seconds * rate.max(0.0))
                    + density.max(0.0) * seconds.powi(3) / 3.0;
                known.max(0.0).sqrt().hypot(bend.max(0.0) * bent(seconds))
            }
        }
    }

    /// Chords from a knot outwards; the last is unbounded.
    pub(super) fn chords(self, sigma_ns: f64) -> Vec<Chord> {
        let Self::Walk { .. } = self else {
            let growth = (self.sigma(sigma_ns, 1.0) - sigma_ns) * 1e-12;
            return vec![Chord { from_ps: 0, sigma_ns, growth }];
        };
        let ends = (0..CHORDS).map(|power| SHORTEST_S * 2f64.powi(power));
        let mut from = 0.0;
        ends.map(|end| {
            let (here, there) = (self.sigma(sigma_ns, from), self.sigma(sigma_ns, end));
            let slope = (there - here) / (end - from);
            let chord = Chord {
                from_ps: (from * PS_PER_S).round() as i128,
                sigma_ns: here - slope * from,
                growth: slope / PS_PER_S,
            };
            from = end;
            chord
        })
        .collect()
    }
}

/// Deviation after `seconds` of a clock that bends by 1 ns/s² until it has settled, ns.
pub(super) fn bent(seconds: f64) -> f64 {
    seconds * seconds / (1.0 + seconds / SETTLING_S)
}

/// Bend of a clock's rate when its temperature begins to change: 10 ppb per second,
pub(crate) const BEND_NS_PER_S2: f64 = 10.0;
/// for this long, s.
const SETTLING_S: f64 = 10.0;
/// The first chord; each is twice as long as all before it,
const SHORTEST_S: f64 = 1.0 / 64.0;
/// the last ends after four years.
const CHORDS: i32 = 34;
const PS_PER_S: f64 = 1e12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_by_hand() {
        // 10 ns known, 3 ns/s the rate's error, 12 ns²/s³: after 2 s 100 + 9·4 + 12·8/3 = 168, and
        // 40/1.2 ns of a bend.
        let walk = Growth::Walk { covariance: 0.0, rate: 9.0, density: 12.0, bend: 10.0 };
        assert!((walk.sigma(10.0, 2.0) - 168f64.sqrt().hypot(40.0 / 1.2)).abs() < 1e-9);
        // Errors of offset and rate that are one: 10 + 3·2.
        let one = Growth::Walk { covariance: 30.0, rate: 9.0, density: 0.0, bend: 10.0 };
        assert!((one.sigma(10.0, 2.0) - 16f64.hypot(40.0 / 1.2)).abs() < 1e-9);
        // A covariance that cannot be is the largest that can.
        assert_eq!(
            Growth::Walk { covariance: 1e9, rate: 9.0, density: 0.0, bend: 10.0 }.sigma(10.0, 2.0),
            one.sigma(10.0, 2.0)
        );
        assert_eq!(Growth::Linear { ppm: 2.0 }.sigma(10.0, 3.0), 6_010.0);
    }

    #[test]
    fn chords_state_no_less_and_little_more() {
        for covariance in [-25.0, 0.0, 25.0] {
            let walk = Growth::Walk { covariance, rate: 9.0, density: 4.0, bend: 10.0 };
            let chords = walk.chords(10.0);
            for k in 0..4000 {
                let seconds = 1e-3 * 1.005f64.powi(k);
                let distance = (seconds * PS_PER_S) as i128;
                let chord = chords[chords.partition_point(|chord| chord.from_ps <= distance) - 1];
                let (stated, exact) = (chord.sigma_ns + chord.growth * distance as f64, walk.sigma(10.0, seconds));
                let excess = if distance < (1i128 << 31) * 15_625_000_000 { stated / exact - 1.0 } else { 0.0 };
                assert!((-1e-6..0.3).contains(&excess), "{seconds} s: {stated} {exact}");
            }
        }
        assert_eq!(Growth::Linear { ppm: 1.0 }.chords(7.0).len(), 1);
    }
}
