//! Offsets and drifts from collectives alone: bounds and estimates when no probes were sent.
//!
//! An all-to-all operation with start S and end E on each node's own clock acts as a pair of
//! one-way packets between every two nodes: node j had received by E_j what node i began to send at
//! S_i. With θ = offset_j − offset_i and τ the true instant of S_i, E_j ≥ (node j's clock at τ) =
//! S_i + θ(τ). So u = E_j − S_i ≥ θ at the time S_i of node i's clock, and likewise l = S_j − E_i ≤
//! θ at the time E_i of node i's clock. These are exactly a forward and a reverse packet of
//! `probe_sync_estimate::edge_fit`, with the operation's duration and waiting as the delay. Each
//! pair of nodes thus becomes an edge, and `graph` turns the edges into offsets, drifts and hard
//! intervals. Example: node 1 is 1000 ns ahead. Node 0 is in a barrier from 0 to 300, node 1 from
//! 1100 to 1300 of its own clock: u = 1300 − 0 = 1300 ≥ 1000 and l = 1100 − 300 = 800 ≤ 1000, so
//! the offset is in [800, 1300].
//!
//! The trace is cut into windows of some seconds ([`windows`]), and each window has its own offsets
//! and bounds, so that a clock that swings or warms up is followed. What the bounds of a window
//! assume, and how they survive a step, is derived in [`pair`].
//!
//! The estimate is another matter. The middle of the gap between u and l assumes that both
//! directions waited equally at their quickest, and with tens of operations two lucky extremes
//! decide. Ends know more: whoever came last, all nodes are released together, so E_j − E_i
//! scatters about θ, to either side alike. A robust line through the E_j − E_i (`ends`) was off by
//! 10 to 107 µs on the real sets of 4 nodes (bounds 0.7 to 1.1 ms wide), the middle of the gap by
//! 20 to 312 µs. Nodes that always end late bias it, so `sigma_ns` is never below what a truth
//! anywhere in the interval would have (its width/√12).
//!
//! An estimate that breaks an operation all the same is moved to the nearest that breaks none
//! (`nearest`).
//!
//! Where the parts are calls, all this holds only if every call waits for its operation
//! ([`CollectiveOffsets::of_calls`]): a call that returns at once ends before others begin, and
//! moves bounds and estimate alike.
//!
//! It does not derive bounds from rooted or point-to-point operations, which have one direction
//! only, or from ambiguous ones.

mod nearest;
mod options;
mod pair;
mod text;
mod used;
mod windows;

use probe_sync_estimate::graph::{GraphInput, GraphOptions, GraphSolution, solve};
use probe_sync_lines::{EdgeFit, NodeEstimate};
use probe_sync_time::{Edge, NodeId, Timestamp};
use serde::Serialize;

pub use self::options::MAX_RATE_CHANGE_PPM;
pub(crate) use self::options::{Half, OffsetOptions};

use self::nearest::Clock;
use self::used::Used;
use self::windows::Window;
use super::NodeCollectives;
use super::matching::{Matching, Order, Pairing, match_operations};
use crate::Error;

/// Offsets over the length of the traces.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CollectiveOffsets {
    /// The node whose offset is zero.
    pub reference: u32,
    /// First start and last end of the operations used, on the reference's clock, ns.
    pub span_ns: [i64; 2],
    /// All-to-all operations used.
    pub operations: usize,
    /// The bounds hold if no clock changed its rate by more than this within a window, ppm, and
    /// none stepped.
    pub max_rate_change_ppm: f64,
    /// Windows in order of time, except those without an operation of the reference.
    pub windows: Vec<OffsetWindow>,
    /// Some offsets come from library calls, which may return before their operation has run:
    /// bounds and estimates hold only if every call waits for its operation.
    pub of_calls: bool,
    /// Inconsistencies, as sentences: omitted pairs, and cycles of bounds that contradict each
    /// other.
    pub notes: Vec<String>,
}

/// Offsets over one window, each a line through the window's reference time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OffsetWindow {
    /// The instant at which the offsets hold, on the reference's clock, ns.
    pub reference_time_ns: i64,
    /// All-to-all operations in the window.
    pub operations: usize,
    /// Pairs of nodes that share operations.
    pub pairs: usize,
    /// All nodes, in the order given.
    pub nodes: Vec<NodeOffset>,
}

/// Clock of one node relative to the reference: offset(t) = offset_ns + drift_ppm·1e-6·(t −
/// reference_time_ns).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeOffset {
    /// Node number.
    pub node: u32,
    /// Host name.
    pub name: String,
    /// A chain of shared operations connects the node to the reference; otherwise the values below
    /// are meaningless.
    pub reachable: bool,
    /// S_i − S_reference at the reference time, ns.
    pub offset_ns: f64,
    /// Rate relative to the reference, ppm.
    pub drift_ppm: f64,
    /// Standard deviation of `offset_ns`; `None` if unknown.
    pub sigma_ns: Option<f64>,
    /// Standard deviation of `drift_ppm`; `None` if unknown.
    pub drift_sigma_ppm: Option<f64>,
    /// Lower end of the hard interval of `offset_ns`; `None` if it is unbounded.
    pub bound_lo_ns: Option<f64>,
    /// Upper end of it.
    pub bound_hi_ns: Option<f64>,
    /// Hard interval of `drift_ppm`.
    pub drift_bounds_ppm: [f64; 2],
}

impl NodeOffset {
    /// Width of the hard interval at the reference time, ns.
    pub fn width_ns(&self) -> Option<f64> {
        Some(self.bound_hi_ns? - self.bound_lo_ns?)
    }
}

/// Computes bounds and estimates of every node's clock; `map` of each node leads to its own clock.
///
/// # Errors
/// Returns an error if the reference is not among the nodes, or shares no all-to-all operation with
/// any other.
pub(crate) fn from_collectives(
    nodes: &[NodeCollectives<'_>],
    options: &OffsetOptions,
) -> Result<CollectiveOffsets, Error> {
    let problem = |problem: &str| Error::Collectives { problem: problem.to_owned() };
    let reference = nodes.iter().position(|node| node.node == options.reference);
    let reference = reference.ok_or_else(|| problem("the reference node has no trace"))?;
    let mut used = Used::new(used::VISITS_MAX);
    let pairing = Pairing::new(nodes, options.matching, false);
    let matching = match_operations(nodes, &pairing, options.matching, &mut |operation| {
        if options.half.is_none_or(|half| half.holds(operation)) {
            used.take(nodes, operation);
        }
    });
    let (operations, step) = (used.visits.len(), used.step);
    let (span_ns, windows) =
        windows::cut(used, nodes.len(), reference).ok_or_else(|| problem(&not_shared(&matching)))?;
    let mut notes = pairing.notes();
    notes.extend(left_out(&matching, step));
    let solver = Solver { nodes, reference, options };
    let windows = windows.iter().map(|window| solver.window(window, &mut notes)).collect::<Result<_, _>>()?;
    Ok(CollectiveOffsets {
        reference: options.reference,
        span_ns,
        operations,
        max_rate_change_ppm: options.max_rate_change_ppm,
        windows,
        of_calls: nodes.iter().any(|node| node.parts.of_calls()),
        notes,
    })
}

/// Common to all windows.
struct Solver<'a> {
    nodes: &'a [NodeCollectives<'a>],
    /// Index of the reference among the nodes.
    reference: usize,
    options: &'a OffsetOptions,
}

impl Solver<'_> {
    fn window(&self, window: &Window, notes: &mut Vec<String>) -> Result<OffsetWindow, Error> {
        let fences = windows::fences(&window.visits, self.nodes.len(), self.reference, window.middle_ns);
        let (mut edges, mut unstepped) = (Vec::new(), Vec::new());
        for (source, destination) in pair::pairs(&window.visits) {
            let edge = Edge { src: NodeId(source as u32), dst: NodeId(destination as u32) };
            let stays = pair::stays(&window.visits, source, destination);
            let Some(fitted) = pair::fit(edge, &stays, [fences[source], fences[destination]], self.options) else {
                continue;
            };
            if fitted.unstepped.is_none() {
                note(notes, || {
                    format!(
                        "the operations shared by {} in the {} before and after {} ns are inconsistent with clocks whose rates change \
                        by at most {} ppm: a clock stepped or changed its rate by more, or an operation was paired incorrectly",
                        self.named(edge),
                        super::report::span(window.length_ns as f64 / 2.0),
                        window.middle_ns,
                        self.options.max_rate_change_ppm
                    )
                });
            }
            unstepped.push(fitted.unstepped);
            edges.push(fitted.line);
        }
        let rooms = self.rooms(&edges, &unstepped, window.middle_ns)?;
        let solution = self.solved(&mut edges, window.middle_ns)?;
        for cycle in &solution.negative_cycles {
            let names: Vec<String> = cycle.iter().map(|edge| self.named(*edge)).collect();
            note(notes, || format!("bounds contradict each other around {}", names.join(", ")));
        }
        for (edge, reason) in &solution.excluded {
            note(notes, || format!("{} ignored: {reason}", self.named(*edge)));
        }
        let drifts = drift_bounds(self.nodes.len(), self.reference, &edges, self.options.max_skew);
        let estimates = solution.nodes.iter().zip(rooms).zip(self.nodes).zip(drifts);
        let mut found: Vec<NodeOffset> =
            estimates.map(|(((estimate, room), node), drift)| offset(estimate, room, node, drift)).collect();
        break_none(&mut found, self.reference, window);
        if windows::contradict(&fences, self.reference, window.middle_ns) {
            note(notes, || {
                format!(
                    "readings of a clock contradict the order of operations near {} ns: it stepped back, so offsets there have no bounds",
                    window.middle_ns
                )
            });
            for node in &mut found {
                (node.bound_lo_ns, node.bound_hi_ns) = (None, None);
            }
        }
        Ok(OffsetWindow {
            reference_time_ns: window.middle_ns,
            operations: window.visits.len(),
            pairs: edges.len(),
            nodes: found,
        })
    }

    /// Solves the graph, with the bounds of the edges widened by the possible errors of the
    /// offsets. An edge states theta at a time of its source's clock. The graph knows the position
    /// of the window's middle there only as well as the source's offset; its error is at most the
    /// width of the source's interval, and that of theta this times the rate.
    fn solved(&self, edges: &mut [EdgeFit], middle_ns: i64) -> Result<GraphSolution, Error> {
        let first = self.solution(edges, middle_ns, false)?;
        for edge in edges.iter_mut().filter(|edge| edge.src_node_id.index() != self.reference) {
            let source = &first.nodes[edge.src_node_id.index()];
            let [low, high] = [source.offset_ns - source.bound_lo_ns, source.bound_hi_ns - source.offset_ns];
            let [slowest, fastest] = edge.alpha_bounds;
            // Twice: the interval will itself be wider in the second solution.
            let wrong_by = 2.0 * low.max(high) * slowest.abs().max(fastest.abs());
            // Infinite times zero is no number.
            let wrong_by = if wrong_by.is_finite() { wrong_by } else { f64::INFINITY };
            edge.bound_lo_ns -= wrong_by;
            edge.bound_hi_ns += wrong_by;
        }
        self.solution(edges, middle_ns, true)
    }

    /// The widths of the nodes' intervals if no clock stepped, ns; infinite if unbounded.
    fn rooms(&self, edges: &[EdgeFit], unstepped: &[Option<[f64; 2]>], middle_ns: i64) -> Result<Vec<f64>, Error> {
        let narrow = |(edge, interval): (&EdgeFit, &Option<[f64; 2]>)| match interval {
            Some([bound_lo_ns, bound_hi_ns]) => {
                EdgeFit { bound_lo_ns: *bound_lo_ns, bound_hi_ns: *bound_hi_ns, ..edge.clone() }
            }
            None => edge.clone(),
        };
        let edges: Vec<EdgeFit> = edges.iter().zip(unstepped).map(narrow).collect();
        let solution = self.solution(&edges, middle_ns, false)?;
        Ok(solution.nodes.iter().map(|node| node.bound_hi_ns - node.bound_lo_ns).collect())
    }

    fn solution(&self, edges: &[EdgeFit], middle_ns: i64, covariance: bool) -> Result<GraphSolution, Error> {
        let input = GraphInput {
            nodes: self.nodes.len(),
            reference: NodeId(self.reference as u32),
            reference_midpoint: Timestamp::from_ns(middle_ns),
            edges,
        };
        // Some nodes end later than others every time.
        let assumed = GraphOptions { asymmetry_prior: ASYMMETRY_PRIOR, covariance, ..GraphOptions::default() };
        solve(&input, &assumed).map_err(|error| Error::Collectives { problem: error.to_string() })
    }

    /// An edge by the numbers of its nodes.
    fn named(&self, edge: Edge) -> String {
        format!("nodes {} and {}", self.nodes[edge.src.index()].node, self.nodes[edge.dst.index()].node)
    }
}

/// Adds a note; beyond [`NOTES_MAX`] only that there are more.
fn note(notes: &mut Vec<String>, text: impl FnOnce() -> String) {
    match notes.len() {
        0..NOTES_MAX => notes.push(text()),
        NOTES_MAX => notes.push("further cases are not listed".to_owned()),
        _ => {}
    }
}

/// Moves estimates that violate an operation to the nearest ones that violate none.
fn break_none(found: &mut [NodeOffset], reference: usize, window: &Window) {
    let clock = |(place, node): (usize, &NodeOffset)| {
        let stated = node.sigma_ns.zip(node.drift_sigma_ppm).map(|(offset, drift)| [offset, drift * 1e-6]);
        let sigma = if place == reference { [0.0; 2] } else { stated? };
        node.reachable.then(|| Clock::new(node.offset_ns, node.drift_ppm * 1e-6, sigma))
    };
    let clocks = found.iter().enumerate().map(clock).collect();
    let all = window.visits.iter().map(|stays| (&Order::AllToAll, &stays[..]));
    let operations = all.chain(window.directed.iter().map(|ordered| (&ordered.order, &ordered.stays[..])));
    let Some(clocks) = nearest::nearest(clocks, &operations, window.middle_ns) else { return };
    for (node, clock) in found.iter_mut().zip(clocks) {
        let Some(clock) = clock else { continue };
        (node.offset_ns, node.drift_ppm) = (clock.offset_ns(), clock.rate() * 1e6);
    }
}

/// Why there is no operation to learn from.
fn not_shared(matching: &Matching) -> String {
    let why = matching.ambiguous.iter().max_by_key(|line| line.instances);
    let why =
        why.map_or_else(String::new, |line| format!("; of {} {}: {}", line.instances, line.operation, line.reason));
    format!("no all-to-all operation of the reference node is certainly shared with another node{why}")
}

/// What was not used, as notes.
fn left_out(matching: &Matching, step: u32) -> Vec<String> {
    let mut notes = Vec::new();
    if step > 0 {
        notes.push(format!(
            "using one in {} operations, evenly spread, because all of them would not fit in memory",
            1u64 << step
        ));
    }
    let ambiguous: usize = matching.ambiguous.iter().map(|line| line.instances).sum();
    if ambiguous > 0 {
        notes.push(format!("{ambiguous} operations are ambiguous and were ignored; probe_sync check lists them"));
    }
    if matching.lost > 0 {
        notes.push(format!("{} parts could not be stored or read back, and were ignored", matching.lost));
    }
    notes
}

/// Smallest and largest feasible rate of each node relative to the reference, ppm: shortest paths
/// over the pairs' rates, as for offsets. A chain of two rates adds up only to first order; the
/// rest is below `max_skew`² per pair and added.
fn drift_bounds(nodes: usize, reference: usize, edges: &[EdgeFit], max_skew: f64) -> Vec<[f64; 2]> {
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

/// The result for a node. `room_ns` is the width of its interval if no clock stepped.
fn offset(estimate: &NodeEstimate, room_ns: f64, node: &NodeCollectives<'_>, drift_bounds_ppm: [f64; 2]) -> NodeOffset {
    let finite = |value: f64| (estimate.reachable && value.is_finite()).then_some(value);
    let (low, high) = (finite(estimate.bound_lo_ns), finite(estimate.bound_hi_ns));
    let uniform = |width: f64| width.max(0.0) / 12f64.sqrt();
    let room = finite(room_ns).or(low.zip(high).map(|(low, high)| high - low)).map_or(0.0, uniform);
    let drift_room = uniform(drift_bounds_ppm[1] - drift_bounds_ppm[0]);
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

/// The bias of a pair's ends as a share of the margin, before loops say more.
const ASYMMETRY_PRIOR: f64 = 0.3;

/// Notes in all.
const NOTES_MAX: usize = 16;

#[cfg(test)]
mod jobs;
#[cfg(test)]
mod tests;
