//! The band about a line in which the offset of two clocks stays whatever shape their rates take: it makes the hard bounds a proof.
//!
//! Place in the flow: moves the packets' constraints before `edge_fit` takes the extremes of all lines, or, where a bend is proven, of all
//! parabolas. A clock whose rate changes follows neither. By hand: every packet takes 900 ns, and node 1 loses 1.5 µs in a second
//! and gains it back in the next. Packets a second before and after the middle say −900 to 900 ns, the truth between them is −1500.
//!
//! **Assumption.** From the first packet to the last, the midpoint included, each clock's rate stays within a range of 3 ppm, which is what
//! its clock watch may miss. So there is a rate b such that alpha stays within b ± r/2, r = 6 ppm. Nothing is said about when or how often it changes.
//!
//! **Proof.** θ(x) = θ(0) + ∫₀ˣ alpha, so |θ(x) − θ(0) − b·x| ≤ r·|x|/2. A forward packet says θ(x) ≤ u and a reverse packet l ≤ θ(x). So for
//! a = θ(0), and that b,
//!
//! ```text
//! l − r·|x|/2  ≤  a + b·x  ≤  u + r·|x|/2        at every packet.
//! ```
//!
//! The truth is one of the pairs (a, b) that satisfy all of these; the smallest and the largest a of all such pairs are therefore bounds of θ(0).
//! For fixed x the band's height is a number, so this is the linear program of `hull` with moved ordinates: exact, O(n log n). There is no
//! condition on how many packets there are, where they lie, or what they met. A packet near the midpoint is hardly moved, so dense
//! packets cost nothing.
//!
//! By hand, the packets above: each is moved by 3 µs, the bounds are ± 3.9 µs. Packets in the middle as well are not moved and bind: −2400 to −600 ns,
//! where the truth is −1500 and lines alone say −900 to −600.
//!
//! alpha itself is within b ± r/2, so its own bounds are the smallest and the largest such b, and r/2 more.
//!
//! Where a bend c is proven, `θ(x) − c·x²/2` takes the place of θ: at the midpoint the bounds then hold for rates that change evenly by any amount, and by
//! r besides. Lines are the case c = 0 and always among those that count, so a bend that is wrongly taken for proven does no harm.
//!
//! alpha is the ratio of two rates, less one. Where the clocks' rates differ by up to `max_skew`, 3 ppm of each make r·(1 + `max_skew`) of it, and rates
//! that are stated per ns of such a clock as much again: r is larger by 2·`max_skew`, a thousandth.
//!
//! What it does not do: cover jumps, or rates that change by more.

use super::input::FitOptions;
use super::packets::Packets;

/// The range over which alpha may vary, ns per ns.
#[derive(Copy, Clone, Debug)]
pub(super) struct Band {
    range: f64,
}

impl Band {
    pub(super) fn new(options: &FitOptions) -> Self {
        Self { range: options.max_kink_ppm * 1e-6 * (1.0 + 2.0 * options.max_skew) }
    }

    /// How far theta may be from its line at `x` ns from the midpoint, ns.
    pub(super) fn height(self, x: f64) -> f64 {
        0.5 * self.range * x.abs()
    }

    /// The packets as constraints on the line.
    pub(super) fn widened(self, packets: &Packets) -> Packets {
        let mut moved = packets.clone();
        moved.forward.iter_mut().chain(&mut moved.reverse).for_each(|packet| packet.slack += self.height(packet.x));
        moved
    }

    /// Bounds of alpha, from those of the line's slope; no clocks differ by more than `limit`.
    pub(super) fn alphas(self, [slowest, fastest]: [f64; 2], limit: f64) -> [f64; 2] {
        [(slowest - 0.5 * self.range).max(-limit), (fastest + 0.5 * self.range).min(limit)]
    }
}
