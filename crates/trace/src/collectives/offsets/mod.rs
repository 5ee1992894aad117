//! Offsets and drifts from collectives alone: bounds and estimates when nobody probed.
//!
//! Place in the flow: beside `check`, on the same matched operations. An all-to-all operation with start S and end E on
//! each node's own clock is a pair of one-way packets between every two nodes: what node i began at S_i, node j had
//! received by E_j. With θ = offset_j − offset_i and τ the true instant of S_i:
//!   E_j ≥ (node j's clock at τ) = S_i + θ(τ),  so  u = E_j − S_i ≥ θ  at the time S_i of node i's clock, and likewise
//!   l = S_j − E_i ≤ θ  at the time E_i of node i's clock.
//! That is exactly a forward and a reverse packet of `probe_sync_estimate::edge_fit`, with the operation's duration and
//! waiting as the delay. So each pair of nodes becomes an edge, and `graph` turns the edges into offsets, drifts and hard
//! intervals. Example: node 1 is 1000 ns ahead. Node 0 is in a barrier from 0 to 300, node 1 from 1100 to 1300 of its
//! clock: u = 1300 − 0 = 1300 ≥ 1000, l = 1100 − 300 = 800 ≤ 1000, so the offset is in [800, 1300].
//!
//! What the bounds assume: each clock is a straight line against the reference over the trace, to within
//! [`OffsetOptions::wander_ns`] per point, and its rate is right to within `max_skew`. Then truth is inside whatever the
//! collectives did.
//!
//! The estimate is another matter. The middle of the gap between u and l assumes that both directions waited equally at
//! their quickest, and with tens of operations two lucky extremes decide. Ends know more: whoever came last, all nodes are
//! released together, so E_j − E_i scatters about θ, to either side alike. A robust line through the E_j − E_i (`ends`) was
//! off by 10 to 107 µs on the real sets of 4 nodes (bounds 0.7 to 1.1 ms wide), the middle of the gap by 20 to 312 µs.
//! Nodes that always end late bias it, so `sigma_ns` is never below what a truth anywhere in the interval would have (its
//! width/√12).
//!
//! An estimate that breaks an operation all the same is moved to the nearest that breaks none (`nearest`).
//!
//! Where the parts are calls, all this holds only if every call waits for its operation ([`CollectiveOffsets::of_calls`]): a call that
//! returns at once ends before others begin, and moves bounds and estimate alike.
//!
//! What it does not do: bound clocks by rooted or point-to-point operations (one direction only), or use ambiguous ones.

mod nearest;
mod used;

use std::collections::BTreeSet;

use probe_sync_estimate::edge_fit::{EdgeWindow, FitOptions, StampNoise, fit};
use probe_sync_estimate::graph::{GraphInput, GraphOptions, solve};
use probe_sync_estimate::window::EdgeAlphaBeta;
use probe_sync_time::{Edge, Exchange, NodeId, StampSource, Timestamp};
use serde::Serialize;

use self::nearest::Clock;
use self::used::{Ordered, Used, Visit};
use super::NodeCollectives;
use super::matching::{MatchOptions, Matching, Order, match_operations};
use super::report::span;
use crate::Error;

/// What may be assumed about the clocks.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct OffsetOptions {
    /// How cautious pairing is.
    pub matching: MatchOptions,
    /// The node whose offset is zero, by its number.
    pub reference: u32,
    /// Largest |rate| of one clock against another, ns per ns.
    pub max_skew: f64,
    /// How far a point may be from the straight line that a clock follows, ns; widens the bounds.
    pub wander_ns: f64,
}

impl Default for OffsetOptions {
    fn default() -> Self {
        Self { matching: MatchOptions::default(), reference: 0, max_skew: 500e-6, wander_ns: 1000.0 }
    }
}

/// Offsets over one trace, each a line about the reference time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CollectiveOffsets {
    /// The node whose offset is zero.
    pub reference: u32,
    /// The instant at which the offsets hold, on the reference's clock, ns.
    pub reference_time_ns: i64,
    /// First start and last end of the operations used, on the reference's clock, ns.
    pub span_ns: [i64; 2],
    /// All-to-all operations used.
    pub operations: usize,
    /// Pairs of nodes that share operations.
    pub pairs: usize,
    /// Every node, in the order given.
    pub nodes: Vec<NodeOffset>,
    /// Some were learnt from calls of a library, which may return before their operation has run: bounds and estimates hold only if every
    /// call waits for it.
    pub of_calls: bool,
    /// What did not fit together, as sentences: pairs left out, cycles of bounds that contradict each other.
    pub notes: Vec<String>,
}

/// One node's clock against the reference's: offset(t) = offset_ns + drift_ppm·1e-6·(t − reference_time_ns).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeOffset {
    /// Its number.
    pub node: u32,
    /// Its host.
    pub name: String,
    /// Some chain of shared operations joins the node to the reference; otherwise nothing below means anything.
    pub reachable: bool,
    /// S_i − S_reference at the reference time, ns.
    pub offset_ns: f64,
    /// Rate against the reference, ppm.
    pub drift_ppm: f64,
    /// Standard deviation of `offset_ns`; None where unknown.
    pub sigma_ns: Option<f64>,
    /// Standard deviation of `drift_ppm`; None where unknown.
    pub drift_sigma_ppm: Option<f64>,
    /// The hard interval of `offset_ns`; None where nothing bounds it.
    pub bound_lo_ns: Option<f64>,
    /// Its upper end.
    pub bound_hi_ns: Option<f64>,
    /// The hard interval of `drift_ppm`.
    pub drift_bounds_ppm: [f64; 2],
}

impl NodeOffset {
    /// Width of the hard interval at the reference time, ns.
    pub fn width_ns(&self) -> Option<f64> {
        Some(self.bound_hi_ns? - self.bound_lo_ns?)
    }
}

impl CollectiveOffsets {
    /// How wide the bounds are, a line per node.
    pub fn text(&self) -> String {
        let mut text = format!(
            "offsets from {} collective operations over {}, at {} ns of node {}'s clock\n",
            self.operations,
            span(self.span_ns[1] as f64 - self.span_ns[0] as f64),
            self.reference_time_ns,
            self.reference
        );
        for node in &self.nodes {
            text.push_str(&node.sentence(self.of_calls));
        }
        if let Some(warning) = self.warning() {
            text.push_str(&format!("{warning}\n"));
        }
        for note in &self.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text
    }

    /// On what the bounds depend that nothing here can see, and what to do.
    pub fn warning(&self) -> Option<&'static str> {
        self.of_calls.then_some(OF_CALLS)
    }
}

impl NodeOffset {
    fn sentence(&self, of_calls: bool) -> String {
        let Self { node, name, .. } = self;
        if !self.reachable {
            return format!("node {node} ({name}): no operation joins it to the reference\n");
        }
        let bounds = match (self.bound_lo_ns, self.bound_hi_ns, self.width_ns()) {
            (Some(low), Some(high), Some(width)) => {
                let within = if of_calls { "if every call waits, within" } else { "certainly within" };
                format!("{within} {} to {}, which is {} wide", span(low), span(high), span(width))
            }
            _ => "without bounds".to_owned(),
        };
        let [low, high] = self.drift_bounds_ppm;
        format!(
            "node {node} ({name}): offset {} ± {}, {bounds}; drift {:.1} ppm, within {low:.1} to {high:.1}\n",
            span(self.offset_ns),
            span(self.sigma_ns.unwrap_or(f64::INFINITY)),
            self.drift_ppm,
        )
    }
}

/// Bounds and estimates of every node's clock; `map` of each node leads to its own clock.
///
/// # Errors
/// When the reference is not among the nodes, or shares no all-to-all operation with any other.
pub(crate) fn from_collectives(
    nodes: &[NodeCollectives<'_>],
    options: &OffsetOptions,
) -> Result<CollectiveOffsets, Error> {
    let problem = |problem: &str| Error::Collectives { problem: problem.to_owned() };
    let reference = nodes.iter().position(|node| node.node == options.reference);
    let reference = reference.ok_or_else(|| problem("the reference node has no trace"))?;
    let mut used = Used::new(used::VISITS_MAX);
    let matching = match_operations(nodes, options.matching, &mut |operation| used.take(nodes, operation));
    let Used { visits, directed, step, .. } = used;
    let span_ns = window(&visits, reference)
        .ok_or_else(|| problem("no all-to-all operation of the reference node is surely shared with another node"))?;
    let middle = i128::midpoint(span_ns[0].into(), span_ns[1].into()) as i64;

    let mut notes = left_out(&matching, step);
    let mut edges = Vec::new();
    for (source, destination) in pairs(&visits) {
        let edge = Edge { src: NodeId(source as u32), dst: NodeId(destination as u32) };
        let Some(line) = line(edge, &points(&visits, source, destination), options) else { continue };
        if !line.feasible && notes.len() < NOTES_MAX {
            notes.push(format!(
                "the operations shared by {} fit no straight clock: one stepped, wanders by more than {}, or an operation \
                 was paired wrongly",
                named(nodes, edge),
                span(options.wander_ns)
            ));
        }
        edges.push(line);
    }
    let input = GraphInput {
        nodes: nodes.len(),
        reference: NodeId(reference as u32),
        reference_midpoint: Timestamp::from_ns(middle),
        edges: &edges,
    };
    // Some nodes end later than others every time.
    let assumed = GraphOptions { asymmetry_prior: ASYMMETRY_PRIOR, ..GraphOptions::default() };
    let solution = solve(&input, &assumed).map_err(|error| problem(&error.to_string()))?;
    for cycle in &solution.negative_cycles {
        let names: Vec<String> = cycle.iter().map(|edge| named(nodes, *edge)).collect();
        notes.push(format!("bounds contradict each other around {}", names.join(", ")));
    }
    let excluded = solution.excluded.iter().map(|(edge, reason)| format!("{} left out: {reason}", named(nodes, *edge)));
    notes.extend(excluded.take(NOTES_MAX));
    let drifts = drift_bounds(nodes.len(), reference, &edges, options.max_skew);
    let estimates = solution.nodes.iter().zip(nodes).zip(drifts);
    let mut found: Vec<NodeOffset> = estimates.map(|((estimate, node), drift)| offset(estimate, node, drift)).collect();
    break_none(&mut found, reference, &visits, &directed, middle);
    Ok(CollectiveOffsets {
        reference: options.reference,
        reference_time_ns: middle,
        span_ns,
        operations: visits.len(),
        pairs: edges.len(),
        of_calls: nodes.iter().any(|node| node.parts.of_calls()),
        nodes: found,
        notes,
    })
}

/// Moves the estimates, where they break an operation, to the nearest that break none.
fn break_none(found: &mut [NodeOffset], reference: usize, visits: &[Vec<Visit>], directed: &[Ordered], middle_ns: i64) {
    let clock = |(place, node): (usize, &NodeOffset)| {
        let stated = node.sigma_ns.zip(node.drift_sigma_ppm).map(|(offset, drift)| [offset, drift * 1e-6]);
        let sigma = if place == reference { [0.0; 2] } else { stated? };
        node.reachable.then(|| Clock::new(node.offset_ns, node.drift_ppm * 1e-6, sigma))
    };
    let clocks = found.iter().enumerate().map(clock).collect();
    let all = visits.iter().map(|stays| (&Order::AllToAll, &stays[..]));
    let operations = all.chain(directed.iter().map(|ordered| (&ordered.order, &ordered.stays[..])));
    let Some(clocks) = nearest::nearest(clocks, &operations, middle_ns) else { return };
    for (node, clock) in found.iter_mut().zip(clocks) {
        let Some(clock) = clock else { continue };
        (node.offset_ns, node.drift_ppm) = (clock.offset_ns(), clock.rate() * 1e6);
    }
}

/// What was not used, as notes.
fn left_out(matching: &Matching, step: u32) -> Vec<String> {
    let mut notes = Vec::new();
    if step > 0 {
        notes.push(format!("one in {} operations is used, evenly spread: all would not fit into memory", 1u64 << step));
    }
    let ambiguous: usize = matching.ambiguous.iter().map(|line| line.instances).sum();
    if ambiguous > 0 {
        notes.push(format!("{ambiguous} operations are ambiguous and not used; check names them"));
    }
    if matching.lost > 0 {
        notes.push(format!("{} parts could not be kept or read back, and are not used", matching.lost));
    }
    notes
}

/// First start and last end on the reference's clock.
fn window(visits: &[Vec<Visit>], reference: usize) -> Option<[i64; 2]> {
    let stays = || visits.iter().flatten().filter(|visit| visit.node == reference);
    Some([stays().map(|visit| visit.start).min()?, stays().map(|visit| visit.end).max()?])
}

/// The pairs of nodes that become edges. Beyond [`ALL_PAIRS_NODES`] nodes of an operation a node is paired with those at
/// distances of powers of two only: pairs grow with the square, knowledge does not.
fn pairs(visits: &[Vec<Visit>]) -> BTreeSet<(usize, usize)> {
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

/// The stays that two nodes share. Collected pair by pair: all at once they would take the square of the nodes in memory.
fn points(visits: &[Vec<Visit>], source: usize, destination: usize) -> Vec<[Visit; 2]> {
    let stay = |stays: &[Visit], node: usize| {
        stays.binary_search_by_key(&node, |visit| visit.node).ok().map(|place| stays[place])
    };
    visits.iter().filter_map(|stays| Some([stay(stays, source)?, stay(stays, destination)?])).collect()
}

/// The fitted line of one pair.
fn line(edge: Edge, points: &[[Visit; 2]], options: &OffsetOptions) -> Option<EdgeAlphaBeta> {
    let at = Timestamp::from_ns;
    let exchange = |(seq, [source, destination]): (usize, &[Visit; 2])| {
        let forward = [at(source.start), at(destination.end)];
        let reverse = [at(destination.start), at(source.end)];
        let t = [forward[0], forward[1], forward[0], forward[1], reverse[0], reverse[1], reverse[0], reverse[1]];
        Exchange { edge, seq: seq as u32, stamp: StampSource::User, t }
    };
    let exchanges: Vec<Exchange> = points.iter().enumerate().map(exchange).collect();
    let first = points.iter().map(|[source, _]| source.start).min()?;
    let last = points.iter().map(|[source, _]| source.end).max()?;
    let midpoint_ns = i128::midpoint(first.into(), last.into()) as i64;
    // The fit widens by three standard deviations of two stamps.
    let user_ns = options.wander_ns / (3.0 * std::f64::consts::SQRT_2);
    let stamp_noise = StampNoise { user_ns, ..FitOptions::default().stamp_noise };
    // No clock watch saw these clocks: what their rates may do is `wander_ns`, and the bounds are widened by that alone.
    let fitting = FitOptions { stamp_noise, max_skew: options.max_skew, max_kink_ppm: 0.0, ..FitOptions::default() };
    let bounded = fit(
        &EdgeWindow {
            edge,
            midpoint: Timestamp::from_ns(midpoint_ns),
            exchanges: &exchanges,
            lost: 0,
            stamp_errors_ns: [0.0; 2],
        },
        &fitting,
    )?;
    let [slowest, fastest] = bounded.alpha_bounds;
    let (beta, alpha, covariance) = ends(points, midpoint_ns, bounded.margin_ns);
    Some(EdgeAlphaBeta { beta, alpha: alpha.clamp(slowest, fastest.max(slowest)), covariance, ..bounded })
}

/// The line through E_j − E_i over E_i: beta in ns at the midpoint, alpha, and their covariance. Least squares, reweighted
/// by w = 1/(1 + (r/s)²) with s from the median |r|, as a stay that one node alone prolonged says nothing; alpha is held
/// near zero by a prior, since seconds of collectives cannot see ppm and crystals of servers differ by tens of them.
fn ends(points: &[[Visit; 2]], midpoint_ns: i64, margin_ns: f64) -> (f64, f64, [f64; 3]) {
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
        let scatter = NORMAL_MAD * *residuals.select_nth_unstable_by(middle, f64::total_cmp).1;
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

/// Smallest and largest feasible rate of each node against the reference, ppm: shortest paths over the pairs' rates, as
/// for offsets. A chain of two rates adds up only to first order; the rest is below `max_skew`² per pair and added.
fn drift_bounds(nodes: usize, reference: usize, edges: &[EdgeAlphaBeta], max_skew: f64) -> Vec<[f64; 2]> {
    let mut high = vec![max_skew; nodes];
    let mut low = vec![-max_skew; nodes];
    (low[reference], high[reference]) = (0.0, 0.0);
    let second_order = max_skew * max_skew;
    for _ in 0..nodes {
        let mut moved = false;
        for edge in edges.iter().filter(|edge| edge.feasible) {
            let (i, j) = (edge.src_node_id.index(), edge.dst_node_id.index());
            let [slowest, fastest] = [edge.alpha_bounds[0] - second_order, edge.alpha_bounds[1] + second_order];
            for (to, bound) in [(j, high[i] + fastest), (i, high[j] - slowest)] {
                if bound < high[to] {
                    (high[to], moved) = (bound, true);
                }
            }
            for (to, bound) in [(j, low[i] + slowest), (i, low[j] - fastest)] {
                if bound > low[to] {
                    (low[to], moved) = (bound, true);
                }
            }
        }
        if !moved {
            break;
        }
    }
    (0..nodes).map(|node| if node == reference { [0.0; 2] } else { [low[node] * 1e6, high[node] * 1e6] }).collect()
}

fn offset(
    estimate: &probe_sync_estimate::window::NodeEstimate,
    node: &NodeCollectives<'_>,
    drift_bounds_ppm: [f64; 2],
) -> NodeOffset {
    let finite = |value: f64| (estimate.reachable && value.is_finite()).then_some(value);
    let (low, high) = (finite(estimate.bound_lo_ns), finite(estimate.bound_hi_ns));
    let uniform = |low: f64, high: f64| (high - low).max(0.0) / 12f64.sqrt();
    let room = low.zip(high).map_or(0.0, |(low, high)| uniform(low, high));
    let drift_room = uniform(drift_bounds_ppm[0], drift_bounds_ppm[1]);
    NodeOffset {
        node: node.node,
        name: node.name.to_owned(),
        reachable: estimate.reachable,
        offset_ns: estimate.offset_ns,
        drift_ppm: estimate.drift_ppm,
        sigma_ns: finite(estimate.sigma_ns).map(|sigma| sigma.max(room)),
        drift_sigma_ppm: finite(estimate.drift_sigma_ppm).map(|sigma| sigma.max(drift_room)),
        bound_lo_ns: low,
        bound_hi_ns: high,
        drift_bounds_ppm,
    }
}

/// An edge by the numbers of its nodes.
fn named(nodes: &[NodeCollectives<'_>], edge: Edge) -> String {
    format!("nodes {} and {}", nodes[edge.src.index()].node, nodes[edge.dst.index()].node)
}

const OF_CALLS: &str = "these offsets are learnt from calls of NCCL or RCCL, and they and their bounds hold only if every call waits for its \
                        operation: one that returns before shifts them unseen; trace kernels too (--kernel-trace), or measure \
                        the clocks with a run";

/// Nodes of one operation up to which every pair is an edge: 2016 edges.
const ALL_PAIRS_NODES: usize = 64;

/// The bias of a pair's ends as a share of the margin, before loops say more.
const ASYMMETRY_PRIOR: f64 = 0.3;

/// Standard deviation of a clock's rate against another's before anything is seen, ns per ns.
const DRIFT_PRIOR: f64 = 50e-6;

/// Rounds of reweighting in `ends`; it settles in five or so.
const REWEIGHTINGS: usize = 10;

/// A normal distribution's standard deviation over its median absolute deviation.
const NORMAL_MAD: f64 = 1.4826;

/// Ends scatter by at least this share of the margin, whatever a few of them say.
const SCATTER_MIN: f64 = 0.1;

/// Pairs that are named, per kind of note.
const NOTES_MAX: usize = 16;

#[cfg(test)]
mod tests;
