//! The line of one edge over one window, `theta(x) = alpha·x + beta`, with covariance and hard
//! bounds.
//!
//! The exchanges of an edge and window become an [`EdgeFit`], which goes to the master.
//! Forward packets (x, u) satisfy u ≥ θ(x), reverse packets (x, l) satisfy l ≤ θ(x) (see
//! `probe_sync_time::Exchange`). Software stamps satisfy this exactly: the transmit stamp is taken
//! before the packet enters the wire and the receive stamp after it leaves.
//!
//! Methods: [`FitMethod::Hull`], the line with the largest vertical margin (exact, O(n log n),
//! derived in `hull`; for equal counts and exponential queueing it is the maximum-likelihood line);
//! [`FitMethod::Svm`], the linear soft-margin classifier of Huygens (Geng et al., NSDI 2018);
//! [`FitMethod::MinRtt`], as NTP does it. Hard bounds, feasibility and the margin come from the
//! hulls whatever the method.
//!
//! Glitched stamps. One stamp that makes a delay too small would bind the hull. Three answers,
//! measured with the simulation in this module's tests (90 exchanges per 4 s window, 200 windows,
//! |error| of beta in ns, median / p95):
//!
//! | answer | light, 1 % glitched | medium, 1 % glitched | heavy, none | heavy, 1 % glitched |
//! |---|---|---|---|---|
//! | plain hull | 3870 / 9107 | 3546 / 9187 | 0.1 / 0.3 | 0.2 / 6547 |
//! | every suspicious packet relaxed, see `packets` | 1.4 / 2.1 | 0.0 / 2.1 | 0.3 / 3556 | 0.5 / 3137 |
//! | relaxed unless the window supports it (chosen) | 1.4 / 2.1 | 0.0 / 2.1 | 0.1 / 0.3 | 0.1 / 3874 |
//!
//! A packet is supported when it lies no further below the floor that the other packets form than
//! their own spacing explains; then it is a clean packet whose partner was queued. The line uses
//! the third answer; the hard bounds use the second, because a bound may be too wide but not wrong.
//! Two glitches in one pair still pass.
//!
//! Rates that change. A clock whose rate changes follows no line. So the hard bounds relax each
//! packet by what such a change can amount to at its distance from the midpoint, see `band`.
//!
//! Bent windows. A rate that changes within the window bends the packets' floor, and a line misses
//! the midpoint by `c·W²/16`; where packets prove a bend they are straightened first, see `bend`.
//!
//! Converted stamps. Those of an interface are put on the system clock by a conversion that may be
//! wrong for seconds in one direction, at both ends ([`EdgeWindow::stamp_errors_ns`]): the hard
//! bounds are wider by the sum. No packet shows it, so the covariance has nothing of it; sigma of
//! the nodes does (`stamp_errors`).
//!
//! It does not know path asymmetry, which is invisible from one edge, and it does not move
//! midpoints to another clock.

mod band;
mod bend;
mod hull;
mod input;
mod line;
mod min_rtt;
mod one_way;
mod packets;
mod spread;
pub mod svm;

use probe_sync_lines::EdgeFit;

use self::band::Band;
use self::hull::{Envelope, Gap};
use self::input::allowance;
pub use self::input::{EdgeWindow, FitMethod, FitOptions, StampNoise};
pub(crate) use self::input::{MAX_SKEW, WATCH_LIMIT_PPM};
pub use self::line::FitDiagnostics;
use self::line::{Line, absolute};
pub use self::one_way::{OneWayPacket, PacketWindow, fit_packets};
use self::packets::{Packet, Packets};
pub(crate) use self::spread::shift_covariance;
use self::spread::{Constraints, Spread, points};

/// Fits a window's line; `None` if there is no exchange.
///
/// ```
/// use probe_sync_estimate::edge_fit::{EdgeWindow, FitOptions, fit};
/// use probe_sync_time::{Edge, Exchange, StampSource, Timestamp};
///
/// // Node 1 is 1000 ns ahead of node 0, every packet takes 200 ns. Two packets each way: sent, received, sent, received.
/// let exchange = |seq: u32, at: i64| Exchange {
///     edge: Edge::new(0, 1),
///     seq,
///     stamp: StampSource::Kernel,
///     t: [at, at + 1200, at + 100, at + 1300, at + 2000, at + 1200, at + 2100, at + 1300].map(Timestamp::from_ns),
/// };
/// let exchanges: Vec<Exchange> = (0..20).map(|seq| exchange(seq, i64::from(seq) * 50_000_000)).collect();
/// let midpoint = Timestamp::from_ns(500_000_000);
/// let window = EdgeWindow { edge: Edge::new(0, 1), midpoint, exchanges: &exchanges, lost: 0, stamp_errors_ns: [0.0; 2] };
/// let line = fit(&window, &FitOptions::default()).expect("there are exchanges");
/// assert!((line.beta - 1000.0).abs() < 1.0, "theta = offset_1 − offset_0 in ns, positive: node 1 is ahead");
/// assert!((line.margin_ns - 200.0).abs() < 1.0, "half of the round trip");
/// assert!(line.bound_lo_ns <= 800.0 && line.bound_hi_ns >= 1200.0, "asymmetry can hide no more than the delay");
/// ```
pub fn fit(window: &EdgeWindow<'_>, options: &FitOptions) -> Option<EdgeFit> {
    fit_with_diagnostics(window, options).map(|(line, _)| line)
}

/// Fits like [`fit`], and returns diagnostics of what was skipped.
pub(crate) fn fit_with_diagnostics(window: &EdgeWindow<'_>, options: &FitOptions) -> Option<(EdgeFit, FitDiagnostics)> {
    let mut packets = Packets::new(window, options)?;
    let limit = options.max_skew;
    let allowance = allowance(options.stamp_noise.of(packets.stamp)) + window.conversion_allowance();
    let limits =
        bend::Limits { skew: limit, bend: options.max_bend_ppm_per_s * PER_NS, allowance, quantum: options.tick_ns };

    let may_bend = options.method == FitMethod::Hull && options.max_bend_ppm_per_s > 0.0 && bend::can_be_told(&packets);
    let bend = if may_bend { bend::find(&packets, &limits) } else { None };
    let band = Band::new(options);
    let within = band.widened(&packets);
    let bounds = match bend {
        Some(bend) => bend::bounds(&within, bend, &limits),
        None => gap(&within)?.bounds(limit, allowance),
    };
    let lines = bend::gap(&packets, bend.unwrap_or(0.0))?.bounds(limit, allowance);
    let bend = bend.map(|proven| straighten(&mut packets, proven, &limits));
    let (packets, gap) = supported(packets, limit, allowance)?;
    let best = gap.best(limit, allowance);

    let hull_line = Line { intercept: gap.middle(best.slope), slope: best.slope };
    let line = match options.method {
        FitMethod::Hull => hull_line,
        FitMethod::Svm => svm_line(&packets, hull_line, limit),
        FitMethod::MinRtt => min_rtt::line(&packets, limit),
    };
    let nothing = ([f64::NEG_INFINITY, f64::INFINITY], [-limit, limit]);
    let (intercepts, slopes) = lines.unwrap_or(nothing);
    let beta = packets.base as f64 + line.intercept;
    let step = float_step(beta);
    let quantum = options.tick_ns.max(step);
    let constraints = Constraints { slope_bounded: best.bounded, slopes, intercepts, quantum, bent: bend.is_some() };
    let mut covariance = Spread::new(&packets.forward, &packets.reverse, best.slope).covariance(&constraints);
    let ([lowest, highest], hard_slopes) = bounds.unwrap_or(nothing);
    // What it was rounded to as one number of 64 bits, and as much when it is moved to another
    // time.
    covariance[0] += step.powi(2) / 6.0;
    // A baseline's distance from the best line counts as its error.
    covariance[0] += (line.intercept - hull_line.intercept).powi(2);
    covariance[2] += (line.slope - hull_line.slope).powi(2);

    let fitted = EdgeFit {
        src_node_id: window.edge.src,
        dst_node_id: window.edge.dst,
        midpoint: window.midpoint,
        alpha: line.slope,
        beta,
        pairs_count: packets.exchanges() as u32,
        lost_count: window.lost,
        covariance,
        margin_ns: 0.5 * gap.at(best.slope),
        bound_lo_ns: absolute(packets.base, lowest, f64::next_down),
        bound_hi_ns: absolute(packets.base, highest, f64::next_up),
        alpha_bounds: band.alphas(hard_slopes, limit),
        feasible: lines.is_some(),
        purity: packets.purity,
        stamp: packets.stamp,
        stamp_errors_ns: window.stamp_errors_ns,
    };
    Some((fitted, diagnostics(&packets, best.bounded, bend)))
}

/// Returns the distance between 64-bit floats around a value: 256 ns if a clock shows 1970.
pub(crate) fn float_step(value: f64) -> f64 {
    value.abs().next_up() - value.abs()
}

fn diagnostics(packets: &Packets, alpha_determined: bool, bend: Option<f64>) -> FitDiagnostics {
    let relaxed = packets.forward.iter().chain(&packets.reverse).filter(|packet| packet.slack > 0.0).count() as u32;
    FitDiagnostics {
        left_out: packets.left_out,
        relaxed,
        alpha_determined,
        bend_ppm_per_s: bend.map(|bend| bend / PER_NS),
    }
}

/// Returns the support vector machine's line, |slope| ≤ `limit`, or the hull's if the machine finds
/// none. Lengths are in units of their root mean square about the hull's line.
fn svm_line(packets: &Packets, hull: Line, limit: f64) -> Line {
    let forward: Vec<svm::Point> = packets.forward.iter().map(|p| (p.x, p.y)).collect();
    let reverse: Vec<svm::Point> = packets.reverse.iter().map(|p| (-p.x, -p.y)).collect();
    let all = || forward.iter().chain(&reverse);
    let units = svm::Units {
        x_ns: root_mean_square(all().map(|p| p.0)),
        y_ns: root_mean_square(all().map(|(x, y)| y - hull.intercept - hull.slope * x)),
        bias: 1.0,
    };
    let found = svm::separating_line(&forward, &reverse, (hull.intercept, hull.slope), units);
    found.map_or(hull, |(intercept, slope)| Line { intercept, slope: slope.clamp(-limit, limit) })
}

/// Returns the root mean square; 1 if all values are zero.
fn root_mean_square(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = values.clone().count().max(1) as f64;
    let square = values.map(|value| value * value).sum::<f64>() / count;
    if square > 0.0 { square.sqrt() } else { 1.0 }
}

/// Straightens the packets by the bend shown by the supported ones, and returns it.
fn straighten(packets: &mut Packets, proven: f64, limits: &bend::Limits) -> f64 {
    let mut bend = proven;
    for _ in 0..BEND_ROUNDS {
        let mut straight = packets.clone();
        bend::straighten(&mut straight, bend);
        let Some((supported, _)) = supported(straight, limits.skew, limits.allowance) else { break };
        let slacks = |from: &[Packet], to: &mut [Packet]| {
            to.iter_mut().zip(from).for_each(|(to, from)| to.slack = from.slack);
        };
        slacks(&supported.forward, &mut packets.forward);
        slacks(&supported.reverse, &mut packets.reverse);
        bend = bend::refine(packets, limits).unwrap_or(bend);
    }
    bend::straighten(packets, bend);
    bend
}

/// Returns the packets, without slack for those that the window supports, and their gap. A packet
/// is supported if it is no further below the floor of the others than chance explains; it then
/// belongs to the floor itself, hence the iteration.
fn supported(mut packets: Packets, limit: f64, allowance: f64) -> Option<(Packets, Gap)> {
    let mut current = gap(&packets)?;
    for _ in 0..SUPPORT_ROUNDS {
        let slope = current.best(limit, allowance).slope;
        let forward = support_side(&mut packets.forward, current.forward.at(slope), slope);
        let reverse = support_side(&mut packets.reverse, current.reverse.at(slope), slope);
        if !forward && !reverse {
            break;
        }
        current = gap(&packets)?;
    }
    Some((packets, current))
}

/// Returns true if a packet was found to be supported.
fn support_side(side: &mut [Packet], floor: f64, slope: f64) -> bool {
    let reach = SUPPORT_SPACINGS * spread::mean_spacing(side, slope).unwrap_or(0.0);
    let mut changed = false;
    for packet in side.iter_mut().filter(|packet| packet.slack > 0.0) {
        if packet.y - slope * packet.x >= floor - reach {
            packet.slack = 0.0;
            changed = true;
        }
    }
    changed
}

fn gap(packets: &Packets) -> Option<Gap> {
    Some(Gap { forward: Envelope::new(points(&packets.forward))?, reverse: Envelope::new(points(&packets.reverse))? })
}

/// A suspicious packet this many mean spacings below the floor of the others is a glitch: chance
/// leaves that much room with probability exp(−8) for independent delays near a sharp floor, and
/// more often for rounded ones.
const SUPPORT_SPACINGS: f64 = 8.0;

/// Rounds of removing slack along a parabola; the second finds little more.
const BEND_ROUNDS: usize = 2;

/// One ppm per second, per ns.
const PER_NS: f64 = 1e-15;

/// Rounds of removing slack; two or three suffice in practice.
const SUPPORT_ROUNDS: usize = 5;

#[cfg(test)]
mod tests;
