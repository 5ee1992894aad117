//! The kink that a window may hold although neither its packets nor the clock watches show it.
//!
//! Place in the flow: widens the hard bounds of `edge_fit`. Those are the extremes of all lines (or parabolas, where a bend is proven) that
//! the packets allow. A clock whose rate changes suddenly follows neither. By hand: theta falls along one line and rises along
//! another, K below its chord in the middle of the window, and every packet takes d. The lines above all reverse packets lie above
//! chord − d there, the truth is chord − K. So for d < K ≤ 2d lines are feasible, and all of them exclude the truth.
//!
//! How far the truth can be beyond the bounds. Every bound at the midpoint is the value there of a line through two packets, and where the
//! packets lie it errs to that side by their delays, which may be zero. Let the rate stay within a range r over the time T that the
//! packets cover. Then theta at the midpoint is within r·x₁·x₂/(x₁ + x₂) ≤ r·T/4 of its chord from −x₁ to x₂, and within r·x₁ ≤ r·T/2 of
//! the line through x₁ and a later place, drawn back to the midpoint: x₁ is T/2 where the packets lie about the midpoint, else the
//! longer of both arms. So both bounds are widened by r times that, and slopes by r. Where the midpoint lies outside of the packets
//! the rate may be another from the last packet on: r times the distance more.
//! - The clock watches of both ends report changes of rate above a limit, so r ≤ `max_kink_ppm` = twice that limit.
//! - Where a bend was looked for, a kink that packets show was taken for one: a parabola recovers ¾ of K of the gap (a line loses K/2 on
//!   either side, the best parabola K/8). One that would have gained [`bend::GAIN`] spacings, and [`SCATTER`] for their scatter, was
//!   not there: K ≤ (GAIN + SCATTER)/¾ spacings. Where packets show that much their floors are dense, and the lines that hurt are chords:
//!   the others lie beyond by r·T/16 at most. So K = r·T/4 is all, and slopes are off by 4K/T.
//! - Where a bend was found it may have been a kink. Among parabolas through its middle the best is (√2 − 1)/2 of K off elsewhere
//!   (K·|x| against c·x² on −1 … 1, c = K·(1 + √2)/2): the truth is beyond what parabolas allow by no more than that.
//!
//! What it does not do: cover jumps, which are another assumption, or rates that change by more than the watches report.

use super::bend;

/// What bounds a kink.
pub(super) struct Watched {
    /// First and last packet, ns from the midpoint.
    pub(super) span: [f64; 2],
    /// Largest change of alpha that the clock watches of both ends may have missed, ns per ns.
    pub(super) rate: f64,
    /// Mean spacing of the lowest packets, ns, where a bend was looked for.
    pub(super) spacing: Option<f64>,
    /// Whether one was found, so that the bounds are those of parabolas.
    pub(super) bent: bool,
}

impl Watched {
    /// By how much theta may lie beyond the bounds, ns, and alpha beyond its own.
    pub(super) fn kink(&self) -> (f64, f64) {
        let [first, last] = self.span;
        let length = (last - first).max(0.0);
        let beyond = first.max(-last).max(0.0);
        let largest = 0.25 * self.rate * length;
        let beside = if self.bent { BESIDE_PARABOLA * largest } else { 0.0 };
        let unseen =
            self.spacing.map_or(f64::INFINITY, |spacing| (bend::GAIN + SCATTER) / RECOVERED * spacing + beside);
        // The farther end of the packets from the midpoint, or from their nearer end where the midpoint lies outside.
        let arm = first.abs().max(last.abs()) - beyond;
        let height = (self.rate * arm).min(unseen) + self.rate * beyond;
        (height, if length > 0.0 { (4.0 * height / length).min(self.rate) } else { self.rate })
    }
}

/// Spacings by which the gains of two windows with the same kink differ, generously.
const SCATTER: f64 = 5.0;

/// Share of a kink's height by which every parabola through its middle misses it somewhere.
const BESIDE_PARABOLA: f64 = 0.207_107;

/// Share of a kink's height that the best parabola gains over the best line in the gap of both directions.
const RECOVERED: f64 = 0.75;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_watch_misses_and_what_packets_show() {
        // 4 s of packets about the midpoint, 6 ppm: 12 µs. Packets 50 ns apart show a kink of 16 times that.
        let watched = |span, spacing| Watched { span, rate: 6e-6, spacing, bent: false }.kink();
        assert_eq!(watched([-2e9, 2e9], None), (12_000.0, 6e-6));
        let (height, rate) = watched([-2e9, 2e9], Some(50.0));
        assert!((height - 800.0).abs() < 1e-9 && (rate - 0.8e-6).abs() < 1e-15, "{height} {rate}");
        // Taken for a bend it is beside the parabola by a fifth of the 6 µs that the watches may miss.
        let bent = Watched { span: [-2e9, 2e9], rate: 6e-6, spacing: Some(50.0), bent: true }.kink().0;
        assert!((bent - 800.0 - 0.207_107 * 6_000.0).abs() < 1e-6, "{bent}");
        // All packets in the first half: a second may pass at another rate, and no packet tells.
        assert_eq!(watched([-2e9, -1e9], Some(0.0)), (6_000.0, 6e-6));
        // Packets of one half only: nearly all of it may pass at a rate that the last packets do not have.
        assert_eq!(watched([0.0, 2e9], None), (12_000.0, 6e-6));
        assert_eq!(watched([-2e9, -1e9], None), (12_000.0, 6e-6));
        assert_eq!(watched([0.0, 0.0], None), (0.0, 6e-6));
    }
}
