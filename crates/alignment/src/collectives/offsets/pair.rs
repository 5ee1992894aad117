//! The clock of one node against that of another in a window: an estimate, and bounds that hold
//! whatever the clocks did.
//!
//! **Bounds.** Let every rate that a clock has within the window lie in a range of width X,
//! in whatever shape. Then the rate of node j against node i stays within ±X of the middle c of
//! its own range, so with x = 0 at the moment asked for
//!   θ(x) = θ(0) + ∫rate  is within  X·|x|  of the line  θ(0) + c·x.
//! Hence every forward point has θ(0) + c·x ≤ u + X·|x| and every reverse point θ(0) + c·x ≥ l −
//! X·|x|, and θ(0) lies between the extremes of a over all lines a + b·x that satisfy this.
//! [`fit_packets`] finds these exactly, of points that are wider by X·|x|. Example: X = 10 ppm, one
//! operation 1 ms before and one 1 ms after, each of which allows 900 to 1100 ns: 890 to 1110 ns.
//!
//! **One step.** A clock that steps within the window breaks this, and not every step shows: one
//! that is smaller than the operations last leaves lines that fit, and none of them may be true. So
//! the operations certainly before the moment and those certainly after it are taken apart. One
//! step lies on one side of the moment and leaves the other side as it is; one of both intervals
//! has the truth, and so has the interval that covers both. A side that no line fits has the step
//! for certain, and the other one counts alone. Where both have one nothing is claimed, and where a
//! side has no operations all are taken together. On real sets of some tens of operations in 2 s
//! this makes the bounds 1.5 to 2 times as wide; the standard deviations, which are about what is
//! usual, are those of all operations together.

use std::collections::BTreeSet;

use probe_sync_estimate::edge_fit::{FitOptions, OneWayPacket, PacketWindow, StampNoise, fit_packets};
use probe_sync_estimate::statistics::TO_SIGMA;
use probe_sync_lines::EdgeFit;
use probe_sync_time::{Edge, StampSource, Timestamp};

use super::options::OffsetOptions;
use super::used::Visit;

/// The line of a pair, and findings about its clocks.
pub(super) struct Fitted {
    pub(super) line: EdgeFit,
    /// The interval of beta if no clock stepped, ns; `None` if timestamps prove that one did, or
    /// changed its rate by more than is assumed.
    pub(super) unstepped: Option<[f64; 2]>,
}

/// The pairs of nodes that become edges. Beyond [`ALL_PAIRS_NODES`] nodes of an operation a node is
/// paired with those at distances of powers of two only: pairs grow with the square, knowledge does
/// not.
pub(super) fn pairs(visits: &[Vec<Visit>]) -> BTreeSet<(usize, usize)> {
    let mut pairs = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for stays in visits {
        let places: Vec<usize> = stays.iter().map(|visit| visit.node).collect();
        // Operations of one group give the same pairs.
        if !seen.insert(places.clone()) {
            continue;
        }
        for (at, source) in places.iter().enumerate() {
            for (distance, destination) in places[at + 1..].iter().enumerate() {
                if places.len() <= ALL_PAIRS_NODES || (distance + 1).is_power_of_two() {
                    pairs.insert((*source, *destination));
                }
            }
        }
    }
    pairs
}

/// The stays that two nodes share. Collected pair by pair: all at once they would take the square
/// of the nodes in memory.
pub(super) fn stays(visits: &[Vec<Visit>], source: usize, destination: usize) -> Vec<[Visit; 2]> {
    let stay = |stays: &[Visit], node: usize| {
        stays.binary_search_by_key(&node, |visit| visit.node).ok().map(|place| stays[place])
    };
    visits.iter().filter_map(|stays| Some([stay(stays, source)?, stay(stays, destination)?])).collect()
}

/// Fits a pair; `None` if it shares no operation. `fences` are those of the source's and of the
/// destination's clock, see [`super::windows`].
pub(super) fn fit(edge: Edge, stays: &[[Visit; 2]], fences: [[i64; 2]; 2], options: &OffsetOptions) -> Option<Fitted> {
    let first = stays.iter().map(|[source, _]| source.start).min()?;
    let last = stays.iter().map(|[source, _]| source.end).max()?;
    let [before, after] = fences[0];
    let middle_ns = (i128::midpoint(first.into(), last.into()) as i64).max(before).min(after);
    let extremes = |stays: &[[Visit; 2]]| extremes(edge, stays, middle_ns, options);
    let side = |is_on: &dyn Fn(&Visit, [i64; 2]) -> bool| -> Vec<[Visit; 2]> {
        let both = |stays: &&[Visit; 2]| stays.iter().zip(fences).all(|(stay, fences)| is_on(stay, fences));
        stays.iter().filter(both).copied().collect()
    };
    let sides = [side(&|stay, [before, _]| stay.end <= before), side(&|stay, [_, after]| stay.start >= after)];
    let whole = extremes(stays)?;
    let claimed = match sides.map(|side| extremes(&side)) {
        [Some(past), Some(future)] if past.feasible && future.feasible => around(&past, &future),
        [Some(side), Some(other)] | [Some(other), Some(side)] if side.feasible && !other.feasible => side,
        [Some(_), Some(_)] => {
            EdgeFit { bound_lo_ns: f64::NEG_INFINITY, bound_hi_ns: f64::INFINITY, feasible: false, ..whole.clone() }
        }
        _ => whole.clone(),
    };
    let [slowest, fastest] = claimed.alpha_bounds;
    let (beta, alpha, covariance) = ends(stays, middle_ns, whole.margin_ns);
    // The line is the middle of the rates.
    let change = options.max_rate_change_ppm * 1e-6;
    let alpha_bounds = [slowest - change, fastest + change];
    let alpha = alpha.clamp(alpha_bounds[0], alpha_bounds[1]);
    let unstepped = whole.feasible.then_some([whole.bound_lo_ns, whole.bound_hi_ns]);
    let line = EdgeFit { beta, alpha, covariance, alpha_bounds, margin_ns: whole.margin_ns, ..claimed };
    Some(Fitted { line, unstepped })
}

/// The extremes of all lines that some stays allow; `None` without any.
fn extremes(edge: Edge, stays: &[[Visit; 2]], middle_ns: i64, options: &OffsetOptions) -> Option<EdgeFit> {
    let at = Timestamp::from_ns;
    let room = |time_ns: i64| {
        let x = (i128::from(time_ns) - i128::from(middle_ns)).unsigned_abs() as f64;
        (options.max_rate_change_ppm * 1e-6 * (1.0 + options.max_skew) * x).ceil() as i64
    };
    let forward = |[source, destination]: &[Visit; 2]| OneWayPacket {
        sent: at(source.start),
        received: at(destination.end.saturating_add(room(source.start))),
    };
    let reverse = |[source, destination]: &[Visit; 2]| OneWayPacket {
        sent: at(destination.start.saturating_sub(room(source.end))),
        received: at(source.end),
    };
    let window = PacketWindow {
        edge,
        midpoint: at(middle_ns),
        forward: &stays.iter().map(forward).collect::<Vec<_>>(),
        reverse: &stays.iter().map(reverse).collect::<Vec<_>>(),
        stamp: StampSource::User,
    };
    // Starts and ends are rounded outwards and have their room, so neither stamps nor rates need
    // more.
    let stamp_noise = StampNoise { user_ns: 0.0, ..FitOptions::default().stamp_noise };
    let options = FitOptions { stamp_noise, max_skew: options.max_skew, rate_range_ppm: 0.0, ..FitOptions::default() };
    fit_packets(&window, &options).map(|(line, _)| line)
}

/// The bounds that cover those of both.
fn around(one: &EdgeFit, other: &EdgeFit) -> EdgeFit {
    let [slowest, fastest] = one.alpha_bounds;
    EdgeFit {
        bound_lo_ns: one.bound_lo_ns.min(other.bound_lo_ns),
        bound_hi_ns: one.bound_hi_ns.max(other.bound_hi_ns),
        alpha_bounds: [slowest.min(other.alpha_bounds[0]), fastest.max(other.alpha_bounds[1])],
        ..one.clone()
    }
}

/// The line through E_j − E_i over E_i: beta in ns at the midpoint, alpha, and their covariance.
/// Least squares, reweighted by w = 1/(1 + (r/s)²) with s from the median |r|, as a stay that one
/// node alone prolonged says nothing; a prior keeps alpha near zero, since seconds of collectives
/// cannot resolve ppm and crystals of servers differ by tens of them.
pub(super) fn ends(points: &[[Visit; 2]], midpoint_ns: i64, margin_ns: f64) -> (f64, f64, [f64; 3]) {
    let mut base: Vec<i64> = points.iter().map(|[source, destination]| destination.end - source.end).collect();
    let middle = base.len() / 2;
    let base = *base.select_nth_unstable(middle).1;
    let sample = |[source, destination]: &[Visit; 2]| {
        ((source.end - midpoint_ns) as f64, (destination.end - source.end - base) as f64)
    };
    let samples: Vec<(f64, f64)> = points.iter().map(sample).collect();
    let (mut a, mut b) = (0.0, 0.0);
    let mut covariance = [0.0; 3];
    for _ in 0..REWEIGHTINGS {
        let mut residuals: Vec<f64> = samples.iter().map(|(x, y)| (y - a - b * x).abs()).collect();
        let scatter = TO_SIGMA * *residuals.select_nth_unstable_by(middle, f64::total_cmp).1;
        let scatter = scatter.max(SCATTER_MIN * margin_ns).max(1.0);
        let [mut w0, mut wx, mut wxx, mut wy, mut wxy] = [0.0; 5];
        for (x, y) in &samples {
            let w = 1.0 / (1.0 + ((y - a - b * x) / scatter).powi(2)) / (scatter * scatter);
            (w0, wx, wxx, wy, wxy) = (w0 + w, wx + w * x, wxx + w * x * x, wy + w * y, wxy + w * x * y);
        }
        wxx += DRIFT_PRIOR.powi(-2);
        let determinant = w0 * wxx - wx * wx;
        (a, b) = ((wxx * wy - wx * wxy) / determinant, (w0 * wxy - wx * wy) / determinant);
        covariance = [wxx / determinant, -wx / determinant, w0 / determinant];
    }
    (base as f64 + a, b, covariance)
}

/// Nodes of one operation up to which every pair is an edge: 2016 edges.
const ALL_PAIRS_NODES: usize = 64;

/// Standard deviation of a clock's rate against another's before anything is seen, ns per ns.
const DRIFT_PRIOR: f64 = 50e-6;

/// Rounds of reweighting in `ends`; it settles in five or so.
const REWEIGHTINGS: usize = 10;

/// Smallest assumed scatter of ends, as a share of the margin, whatever a few of them say.
const SCATTER_MIN: f64 = 0.1;
