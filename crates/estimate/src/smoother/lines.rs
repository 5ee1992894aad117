//! The lines of a round, moved to the reference's midpoint using the round's own estimates of its
//! nodes.
//!
//! The joint smoother (`layout`) and the live one (`online`) both begin with it. It omits the edges
//! that the graph and the watch excluded, and moves every other edge by [`Equation::at`]. Offsets
//! are relative to an integer potential per node, chosen by the caller, which keeps the numbers
//! small over the period that each caller considers.

use std::collections::HashSet;

use probe_sync_lines::NodeEstimate;
use probe_sync_time::{Edge, StampSource};

use super::round::SmootherRound;
use crate::graph::edges::{Equation, Moved, State};
use crate::graph::linear::{Pair, inverse};

/// An edge's line at the reference's midpoint.
pub(super) struct Line {
    pub(super) from: usize,
    pub(super) to: usize,
    /// The nodes, smaller first.
    pub(super) key: [usize; 2],
    /// +1 when it runs from the smaller node to the larger, else −1.
    pub(super) sign: f64,
    pub(super) moved: Moved,
    /// The estimates of the round for both ends, relative to their potentials: ns, ns/s.
    pub(super) believed: [Pair; 2],
    pub(super) margin: f64,
    /// A program read the clock for its stamps.
    pub(super) of_program: bool,
}

impl Line {
    /// Moves an edge; `potentials` are those of its ends. `None` for a line that is useless at the
    /// midpoint.
    pub(super) fn new(
        round: &SmootherRound<'_>,
        (equation, margin): (&Equation, f64),
        potentials: [i128; 2],
    ) -> Option<Self> {
        let (from, to) = (equation.from, equation.to);
        let state = |node: usize, potential: i128| {
            let x = seen(round, node, potential).unwrap_or([0.0; 2]);
            State { potential, x }
        };
        let (a, b) = (state(from, potentials[0]), state(to, potentials[1]));
        let moved = equation.at(i128::from(round.reference_midpoint.as_ns()), &a, &b);
        let sign = if from < to { 1.0 } else { -1.0 };
        let key = [from.min(to), from.max(to)];
        sound(&moved).then(|| Self {
            from,
            to,
            key,
            sign,
            moved,
            believed: [a.x, b.x],
            margin,
            of_program: round.edges[equation.index].stamp == StampSource::User,
        })
    }
}

/// The usable edges of a round with their margins.
pub(super) fn usable(nodes: usize, round: &SmootherRound<'_>) -> Vec<(Equation, f64)> {
    let excluded: HashSet<Edge> =
        round.excluded.iter().map(|(edge, _)| *edge).chain(round.left_out.iter().copied()).collect();
    let reachable = |node: usize| round.nodes.get(node).is_some_and(believable);
    let inside = |equation: &Equation| equation.from.max(equation.to) < nodes;
    let fitted = round
        .edges
        .iter()
        .enumerate()
        .filter(|(_, edge)| Equation::defect(edge).is_none() && !excluded.contains(&edge.edge()));
    fitted
        .map(|(index, edge)| (Equation::new(index, edge), edge.margin_ns.clamp(0.0, OFFSET_MAX_NS)))
        .filter(|(equation, _)| inside(equation) && reachable(equation.from) && reachable(equation.to))
        .collect()
}

/// Whether a line moved to a knot is usable. Beyond these limits its square or its inverse would
/// not be finite, and one such line would make all nodes' estimates useless.
fn sound(moved: &Moved) -> bool {
    let [a, _, b] = moved.covariance;
    let sized = |variance: f64| (VARIANCE_MIN..=VARIANCE_MAX).contains(&variance);
    moved.residual.iter().all(|x| x.is_finite()) && sized(a) && sized(b) && inverse(moved.covariance).is_some()
}

/// Whether a round's estimate of a node is a usable starting point.
pub(super) fn believable(estimate: &NodeEstimate) -> bool {
    estimate.reachable && estimate.offset_ns.abs() <= OFFSET_MAX_NS && estimate.drift_ppm.abs() <= DRIFT_MAX_PPM
}

/// The estimate of a node in a round, relative to a potential: ns and ns/s.
pub(super) fn seen(round: &SmootherRound<'_>, node: usize, potential: i128) -> Option<Pair> {
    let estimate = round.nodes.get(node).filter(|estimate| believable(estimate))?;
    Some(State::above(potential, estimate).x)
}

/// Differences of two i64 times are smaller, ns; so are margins.
const OFFSET_MAX_NS: f64 = 2e19;

/// A clock that runs twice as fast.
const DRIFT_MAX_PPM: f64 = 1e6;

/// Limits of a line's variances, ns² and ns²/s²: a thousandth of a nanosecond, and all of time.
const VARIANCE_MIN: f64 = 1e-6;
const VARIANCE_MAX: f64 = 1e39;
