//! The line of one edge from one-way packets: an application's messages, captured on both hosts.
//!
//! This is the counterpart of `fit` for packets that are not our exchanges: any number in each
//! direction, unpaired, from one stamp source. Constraints, line and hard bounds are those of
//! `fit`: u ≥ θ(x) forward, l ≤ θ(x) reverse, the line with the largest vertical margin between the
//! hulls, and the extremes of all lines that the packets allow within their band.
//!
//! The covariance is another. `fit` takes it from the spacing of the fastest packets, which rests
//! on equal probes in both directions and on pairs that tell a queue from the floor. Messages of an
//! application have neither: data flows one way and acknowledgements the other, so the floors
//! differ by an unknown part of the margin, and few packets do not show where a floor is. What is
//! left is the polygon of the lines that all packets allow. With nothing to prefer one to another
//! each is taken as equally likely, and the covariance is the polygon's second moment about the
//! fitted line, exact (see `Gap::moments`). Hence, unlike that of `fit`, it INCLUDES asymmetry, and
//! more packets do not shrink it below what the margin leaves open. ±1.96 standard deviations about
//! the middle hold 96 % of a triangular law and all of a uniform one, the shapes between which a
//! polygon's intercepts and slopes lie.
//!
//! Two nodes by hand: node 1 is 1000 ns ahead. A packet sent at 0 is received at 1200: θ ≤ 1200.
//! One sent back at 2000 of node 1's clock is received at 1200: θ ≥ 800. The line is 1000, the
//! margin 200, and if the rate is known the standard deviation 400/√12 = 115.
//!
//! It does not match packets of two captures or exclude packets with wrong stamps: without pairs a
//! wrong stamp looks like a fast packet, so a packet that contradicts the others makes the fit
//! infeasible.

use probe_sync_lines::EdgeFit;
use probe_sync_time::{Edge, StampSource, System, Timestamp};

use super::band::Band;
use super::hull::{Envelope, Gap, Point};
use super::input::{FitOptions, allowance};
use super::line::{FitDiagnostics, Line, absolute};
use crate::statistics::upper_median_by;

/// A packet seen on both hosts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct OneWayPacket {
    /// Departure, on the sender's clock.
    pub sent: Timestamp<System>,
    /// Arrival, on the receiver's clock.
    pub received: Timestamp<System>,
}

/// The packets between two nodes in a stretch of time.
#[derive(Copy, Clone, Debug)]
pub struct PacketWindow<'a> {
    /// The edge i→j; theta is offset_j − offset_i.
    pub edge: Edge,
    /// Position of x = 0, ns on the source's clock.
    pub midpoint: Timestamp<System>,
    /// From i to j, in any order.
    pub forward: &'a [OneWayPacket],
    /// From j to i, in any order.
    pub reverse: &'a [OneWayPacket],
    /// Source of all stamps.
    pub stamp: StampSource,
}

/// Fits a line to one-way packets; `None` unless there is one in each direction. The method in the
/// options is ignored; choose a wide `max_skew` (packets of a tenth of a second may leave the rate
/// uncertain by a thousandth), because it is a bound too. `pairs_count` is the number of packets in
/// the direction that has fewer, and `purity` is 0, because there are no pairs.
pub fn fit_packets(window: &PacketWindow<'_>, options: &FitOptions) -> Option<(EdgeFit, FitDiagnostics)> {
    let limit = options.max_skew;
    let noise_ns = options.stamp_noise.of(window.stamp);
    let allowance = allowance(noise_ns);
    let base = base(window)?;
    let gap = gap(window, base, |_| 0.0)?;
    let best = gap.best(limit, allowance);
    let line = Line { intercept: gap.middle(best.slope), slope: best.slope };
    let band = Band::new(options);
    let bounds = self::gap(window, base, |x| band.height(x))?.bounds(limit, allowance);
    let (intercepts, slopes) = bounds.unwrap_or(([f64::NEG_INFINITY, f64::INFINITY], [-limit, limit]));
    let beta = base as f64 + line.intercept;
    let quantum = options.tick_ns.max(beta.abs().next_up() - beta.abs()).max(noise_ns);
    let fitted = EdgeFit {
        src_node_id: window.edge.src,
        dst_node_id: window.edge.dst,
        midpoint: window.midpoint,
        alpha: line.slope,
        beta,
        pairs_count: u32::try_from(window.forward.len().min(window.reverse.len())).unwrap_or(u32::MAX),
        lost_count: 0,
        covariance: covariance(&gap, [limit, allowance], line, quantum),
        margin_ns: 0.5 * gap.at(best.slope),
        bound_lo_ns: absolute(base, intercepts[0], f64::next_down),
        bound_hi_ns: absolute(base, intercepts[1], f64::next_up),
        alpha_bounds: band.alphas(slopes, limit),
        feasible: gap.at(best.slope) + allowance >= 0.0,
        purity: 0.0,
        stamp: window.stamp,
        stamp_errors_ns: [0.0; 2],
    };
    Some((fitted, FitDiagnostics { alpha_determined: best.bounded, ..FitDiagnostics::default() }))
}

/// Returns the polygon's second moments, or for contradictory packets those of their overlap.
fn covariance(gap: &Gap, [limit, allowance]: [f64; 2], line: Line, quantum: f64) -> [f64; 3] {
    // An overlap is how wrong some packet is at least: as much allowance makes a line feasible,
    // twice as much a polygon.
    let overlap = (-gap.at(line.slope)).max(0.0);
    let about = [line.intercept, line.slope];
    let moments = gap.moments(limit, allowance.max(2.0 * overlap), about);
    let [a, ab, b] = moments.unwrap_or([0.0, 0.0, limit * limit / 3.0]);
    let rounding = quantum * quantum / 12.0;
    [a + rounding, ab, b + f64::MIN_POSITIVE.max(b * 1e-9)]
}

/// Returns the envelopes of both directions, with ordinates above `base` and `room` ns farther out.
fn gap(window: &PacketWindow<'_>, base: i64, room: impl Fn(f64) -> f64) -> Option<Gap> {
    let since = |at: Timestamp<System>| (i128::from(at.as_ns()) - i128::from(window.midpoint.as_ns())) as f64;
    let above = |from: Timestamp<System>, to: Timestamp<System>| {
        (i128::from(to.as_ns()) - i128::from(from.as_ns()) - i128::from(base)) as f64
    };
    let forward = window.forward.iter().map(|p| (since(p.sent), above(p.sent, p.received)));
    // l = send_j − recv_i; mirrored, see `hull`.
    let reverse = window.reverse.iter().map(|p| (-since(p.received), -above(p.received, p.sent)));
    let out = |(x, y): Point| (x, y + room(x));
    Some(Gap { forward: Envelope::new(forward.map(out))?, reverse: Envelope::new(reverse.map(out))? })
}

/// Returns the median of u, saturated: a base near all ordinates that a single wrong stamp does not
/// affect.
fn base(window: &PacketWindow<'_>) -> Option<i64> {
    let mut ordinates: Vec<i64> =
        window.forward.iter().map(|p| p.received.as_ns().saturating_sub(p.sent.as_ns())).collect();
    upper_median_by(&mut ordinates, i64::cmp)
}
