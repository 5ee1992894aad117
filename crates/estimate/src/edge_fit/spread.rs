//! The random error of a fitted line, from the spacing of the lowest order statistics.
//!
//! Near the delay floor the n smallest delays of a direction are approximately a Poisson process:
//! neighbours are a mean spacing s apart (for exponential queueing of mean q, s = q/n), and every
//! error of a line through the gap scales with s. With `e₍₁₎ ≤ e₍₂₎ ≤ …` the heights of the packets
//! above the line's envelope, s ≈ (e₍ₖ₎ − e₍₁₎)/(k − 1), averaged over both directions; then
//! `sd(a) = A·s` at the packets' centre of mass and `sd(b) = B·s/sd(x)`. The simulation in the
//! tests of `edge_fit` calibrated A and B: with them ±1.96 sd covers the truth in 90 to 99 % of
//! cases at n = 8, 30 and 200.
//!
//! Packets that leave together meet the same queue, and hosts in the same state: the two of a pair,
//! and all exchanges that one wake-up starts with a peer. So what lies within `MOMENT_NS` counts
//! once per direction, with its lowest packet: for k independent packets a k-th of the number and a
//! k-th of the mean cancel, for equal ones only this is right. Counted one by one, the four
//! exchanges of each wake-up made sd 2 to 4 times too small on real hosts, where four wake-ups a
//! window are all that the default pace leaves.
//!
//! A block bootstrap was rejected: random, a hundred times slower, and wrong for extremes (it
//! cannot go below the smallest sample). What it does not cover: path asymmetry (GraphCalc adds it)
//! and the clocks' wander.

use super::hull::Point;
use super::packets::Packet;
use crate::statistics::{MOMENT_NS, lowest_by_moment};

/// Evidence from the spread of the packets.
pub(super) struct Spread {
    /// Mean spacing of the lowest packets, ns; `None` with fewer than [`MOMENTS_MIN`] moments.
    spacing: Option<f64>,
    /// Mean of x, ns.
    center: f64,
    /// Standard deviation of x, ns.
    width: f64,
}

/// The line and what bounds its covariance.
pub(super) struct Constraints {
    /// True if packets, and not only the limit, determined the slope.
    pub(super) slope_bounded: bool,
    /// Feasible slopes.
    pub(super) slopes: [f64; 2],
    /// Feasible intercepts at x = 0, ns; infinite if nothing is feasible.
    pub(super) intercepts: [f64; 2],
    /// The larger of the rounding of the stamps and of the result, ns.
    pub(super) quantum: f64,
    /// True if the packets were straightened: the uncertainty of the bend shifts the intercept.
    pub(super) bent: bool,
}

impl Spread {
    /// `heights`: per direction, the packets above the line of slope `b`.
    pub(super) fn new(forward: &[Packet], reverse: &[Packet], b: f64) -> Self {
        let spacings = [mean_spacing(forward, b), mean_spacing(reverse, b)];
        let spacing = match spacings {
            [Some(f), Some(r)] => Some(0.5 * (f + r)),
            _ => None,
        };
        let times = || forward.iter().map(|p| p.x).chain(reverse.iter().map(|p| -p.x));
        let count = (forward.len() + reverse.len()) as f64;
        let center = times().sum::<f64>() / count;
        let width = (times().map(|x| (x - center).powi(2)).sum::<f64>() / count).sqrt();
        Self { spacing, center, width }
    }

    /// Var(a), Cov(a, b), Var(b) at x = 0.
    pub(super) fn covariance(&self, constraints: &Constraints) -> [f64; 3] {
        let Constraints { slope_bounded, slopes, intercepts, quantum, bent } = constraints;
        let uniform = |width: f64| width * width / 12.0;
        let floor = uniform(*quantum);
        let slope_room = uniform(slopes[1] - slopes[0]);
        let room = uniform(intercepts[1] - intercepts[0]);
        let Some(spacing) = self.spacing.filter(|_| *slope_bounded && self.width > 0.0) else {
            // Too few packets to see their spread: anything feasible is equally likely.
            let slope = slope_room.max(f64::MIN_POSITIVE);
            let intercept = if room.is_finite() { room } else { self.spacing.unwrap_or(0.0).powi(2) };
            return [intercept.max(floor) + self.center.powi(2) * slope, -self.center * slope, slope];
        };
        let spacings = SPACINGS_INTERCEPT * if *bent { BENT } else { 1.0 };
        let at_center = (spacings * spacing).powi(2) + floor;
        let slope = (SPACINGS_SLOPE * spacing / self.width).powi(2) + floor / self.width.powi(2);
        let slope = slope.min(slope_room.max(floor / self.width.powi(2)));
        [at_center + self.center.powi(2) * slope, -self.center * slope, slope]
    }
}

/// Returns the mean spacing of the lowest packets at slope b, ns; `None` with fewer than
/// [`MOMENTS_MIN`] moments.
pub(super) fn mean_spacing(packets: &[Packet], b: f64) -> Option<f64> {
    let heights = packets.iter().map(|packet| (packet.x, packet.y + packet.slack - b * packet.x));
    let sorted = lowest_by_moment(heights, MOMENT_NS);
    if sorted.len() < MOMENTS_MIN {
        return None;
    }
    let lowest = ((sorted.len() as f64).sqrt() as usize + 2).min(sorted.len());
    Some((sorted[lowest - 1] - sorted[0]) / (lowest - 1) as f64)
}

/// Moves a covariance (a, ab, b) from x = 0 to x = dx.
pub(crate) fn shift_covariance([a, ab, b]: [f64; 3], dx: f64) -> [f64; 3] {
    [a + dx * (2.0 * ab + dx * b), ab + dx * b, b]
}

/// Returns the points of packets, relaxed.
pub(super) fn points(packets: &[Packet]) -> impl Iterator<Item = Point> {
    packets.iter().map(|packet| (packet.x, packet.y + packet.slack))
}

/// sd(a) at the centre of mass, in mean spacings.
const SPACINGS_INTERCEPT: f64 = 1.5;

/// How much less certain the middle of a parabola is than that of a line, in standard deviations:
/// 9/4 in variance for least squares, and the same here.
const BENT: f64 = 1.5;

/// sd(b)·sd(x), in mean spacings.
const SPACINGS_SLOPE: f64 = 1.7;

/// Fewest moments whose spacing is meaningful.
const MOMENTS_MIN: usize = 3;
