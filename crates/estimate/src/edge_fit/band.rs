//! The band around a line that the offset of two clocks cannot leave, however their rates vary. It
//! makes the hard bounds a proof.
//!
//! It relaxes the packets' constraints before `edge_fit` takes the extremes of all lines, or of all
//! parabolas if a bend is proven.
//!
//! **Assumption.** From the first packet to the last, midpoint included, each clock's rate stays
//! within a range of 3 ppm, largest less smallest. So there is a rate b such that
//! alpha stays within b ± r/2, with r = 6 ppm. When and how often it changes does not matter.
//!
//! **Proof.** θ(x) = θ(0) + ∫₀ˣ alpha, so |θ(x) − θ(0) − b·x| ≤ r·|x|/2. A forward packet states
//! θ(x) ≤ u, a reverse packet l ≤ θ(x). Hence, with a = θ(0) and that b,
//!
//! ```text
//! l − r·|x|/2  ≤  a + b·x  ≤  u + r·|x|/2        for every packet.
//! ```
//!
//! The truth is one of the pairs (a, b) that satisfy all of these, so θ(0) lies between the
//! smallest and the largest a of all such pairs. At a given x the height of the band is a constant:
//! this is the linear program of `hull` with other ordinates, solved exactly in O(n log n). It
//! holds for any number of packets at any times. A packet near the midpoint is hardly relaxed, so
//! dense packets cost next to nothing.
//!
//! **By hand.** Every packet takes 900 ns. Node 1 loses 1.5 µs in the second before the midpoint
//! and regains it in the second after. Packets one second before and after it state −900 to 900 ns
//! as they are; relaxed by 3 µs they state ±3.9 µs. Packets at the midpoint are not relaxed: with
//! them the bounds are −2400 to −600 ns. The truth is −1500, and lines alone state −900 to −600.
//!
//! alpha lies within b ± r/2, so its bounds are the smallest and the largest such b, and r/2
//! beyond.
//!
//! **Bends.** Where a bend c is proven, `θ(x) − c·x²/2` takes the place of θ. At the midpoint the
//! bounds then also hold for rates that change evenly by any amount, and by r besides. Lines are
//! the case c = 0, which is always included, so a bend that is proven wrongly does no harm.
//!
//! **Second order.** alpha + 1 is the ratio of two rates, per ns of a clock that may itself be off.
//! With rates up to `max_skew` apart, 3 ppm of each make up to r·(1 + 2·`max_skew`).
//!
//! The proof does not cover jumps, or rates that change by more than assumed.

use super::input::FitOptions;
use super::packets::Packets;

/// Range over which alpha may vary, ns per ns.
#[derive(Copy, Clone, Debug)]
pub(super) struct Band {
    range: f64,
}

impl Band {
    pub(super) fn new(options: &FitOptions) -> Self {
        Self { range: options.rate_range_ppm * 1e-6 * (1.0 + 2.0 * options.max_skew) }
    }

    /// Returns how far theta may be from its line at `x` ns from the midpoint, ns.
    pub(super) fn height(self, x: f64) -> f64 {
        0.5 * self.range * x.abs()
    }

    /// Returns the packets as constraints on the line.
    pub(super) fn widened(self, packets: &Packets) -> Packets {
        let mut moved = packets.clone();
        moved.forward.iter_mut().chain(&mut moved.reverse).for_each(|packet| packet.slack += self.height(packet.x));
        moved
    }

    /// Returns the bounds of alpha, given those of the line's slope; no clocks differ by more than
    /// `limit`.
    pub(super) fn alphas(self, [slowest, fastest]: [f64; 2], limit: f64) -> [f64; 2] {
        [(slowest - 0.5 * self.range).max(-limit), (fastest + 0.5 * self.range).min(limit)]
    }
}
