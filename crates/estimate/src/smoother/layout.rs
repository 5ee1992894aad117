//! What is unknown and what was measured: spans of clocks, links between nodes, and small-number equations.
//!
//! Place in the flow: first step of `smoother`. Knots are the midpoints of the rounds on the reference's clock. A node's
//! clock is one [`Span`] of knots, or several where it was stepped or restarted: offset and rate are then free anew. Each
//! edge of a round is moved to the round's knot (`graph::edges`) and becomes a [`Measure`] between two spans; all
//! edges between the same two nodes, whichever of them probed, share a [`Bond`] and with it one path asymmetry.
//!
//! Offsets may be hours: every span has an integer potential, and unknowns are what is left of the offset above it.

use std::collections::{BTreeMap, HashMap, HashSet};

use probe_sync_time::Edge;

use super::{Break, Round};
use crate::graph::edges::{Equation, Moved, PER_SECOND, State};
use crate::graph::linear::{Block, Pair, inverse};
use crate::median::median;
use crate::window::NodeEstimate;

/// A stretch of one node's clock without a step.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) node: usize,
    /// First and last knot that any packet tells about.
    pub(super) first: usize,
    pub(super) last: usize,
    /// Place of the first knot's state among all states.
    pub(super) base: usize,
    /// Subtracted from all offsets, ns.
    pub(super) potential: i128,
}

impl Span {
    pub(super) fn len(&self) -> usize {
        self.last - self.first + 1
    }
}

/// The paths between two nodes, both ways.
#[derive(Clone, Debug)]
pub(super) struct Bond {
    /// The nodes, smaller first: the asymmetry counts positive when theta from the first to the second looks larger.
    pub(super) nodes: [usize; 2],
    /// Its measures.
    pub(super) measures: std::ops::Range<usize>,
    /// Square of its asymmetry's scale, relative to the median bond's.
    pub(super) scale: f64,
}

/// One edge's line at a knot: x_to − x_from + sign·asymmetry = value, with covariance.
#[derive(Clone, Debug)]
pub(super) struct Measure {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) knot: usize,
    pub(super) sign: f64,
    /// Offset in ns and rate in ns/s.
    pub(super) value: Pair,
    pub(super) covariance: Block,
}

/// Everything that the solver needs of a run.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// The first knot on the reference's clock, ns.
    pub(super) origin_ns: i64,
    /// Knots in seconds since the first.
    pub(super) knots: Vec<f64>,
    pub(super) spans: Vec<Span>,
    pub(super) bonds: Vec<Bond>,
    pub(super) measures: Vec<Measure>,
    pub(super) states: usize,
    /// Median margin, ns.
    pub(super) margin_ns: f64,
    /// What the rounds believed, one per state: where the iteration starts.
    pub(super) start: Vec<Pair>,
}

impl Layout {
    pub(super) fn new(nodes: usize, rounds: &[Round<'_>], breaks: &[Break]) -> Self {
        let origin_ns = rounds.first().map_or(0, |round| round.reference_midpoint.as_ns());
        let since = |round: &Round<'_>| (i128::from(round.reference_midpoint.as_ns()) - i128::from(origin_ns)) as f64;
        let knots: Vec<f64> = rounds.iter().map(|round| since(round) / PER_SECOND).collect();
        let usable: Vec<Vec<(Equation, f64)>> = rounds.iter().map(|round| equations(nodes, round)).collect();
        let spans = spans(nodes, rounds, breaks, &usable);
        let span_at = SpanIndex::new(nodes, &spans);
        let mut grouped: BTreeMap<[usize; 2], (Vec<Measure>, Vec<f64>)> = BTreeMap::new();
        for (knot, equations) in usable.iter().enumerate() {
            for (equation, margin) in equations {
                if let Some(measure) = measure(equation, knot, rounds, &spans, &span_at) {
                    let key = [equation.from.min(equation.to), equation.from.max(equation.to)];
                    let group = grouped.entry(key).or_default();
                    group.0.push(measure);
                    group.1.push(*margin);
                }
            }
        }
        let states = spans.iter().map(Span::len).sum();
        let mut layout = Self {
            origin_ns,
            knots,
            spans,
            bonds: Vec::with_capacity(grouped.len()),
            measures: Vec::new(),
            states,
            margin_ns: MARGIN_MIN_NS,
            start: vec![[0.0; 2]; states],
        };
        layout.take(grouped);
        layout.believe(rounds);
        layout
    }

    fn take(&mut self, grouped: BTreeMap<[usize; 2], (Vec<Measure>, Vec<f64>)>) {
        let mut margins = Vec::with_capacity(grouped.len());
        for (nodes, (measures, group)) in grouped {
            let first = self.measures.len();
            self.measures.extend(measures);
            self.bonds.push(Bond { nodes, measures: first..self.measures.len(), scale: 1.0 });
            margins.push(median(group));
        }
        self.margin_ns = median(margins.iter().copied()).max(MARGIN_MIN_NS);
        for (bond, margin) in self.bonds.iter_mut().zip(margins) {
            // Longer paths can be more asymmetric; shorter ones than usual are not therefore better.
            bond.scale = 0.5 * (1.0 + (margin / self.margin_ns).powi(2));
        }
    }

    fn believe(&mut self, rounds: &[Round<'_>]) {
        for span in &self.spans {
            let mut last = [0.0; 2];
            for (round, start) in rounds[span.first..=span.last].iter().zip(&mut self.start[span.base..]) {
                last = belief(round, span).unwrap_or(last);
                *start = last;
            }
        }
    }

    /// The state of a measure's end.
    pub(super) fn state(&self, span: usize, knot: usize) -> usize {
        let span = &self.spans[span];
        span.base + knot - span.first
    }
}

/// The usable edges of a round with their margins.
pub(super) fn equations(nodes: usize, round: &Round<'_>) -> Vec<(Equation, f64)> {
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

/// Cuts every node's knots at its breaks and trims them to where there are packets.
fn spans(nodes: usize, rounds: &[Round<'_>], breaks: &[Break], usable: &[Vec<(Equation, f64)>]) -> Vec<Span> {
    let mut measured: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for (knot, equations) in usable.iter().enumerate() {
        for node in equations.iter().flat_map(|(equation, _)| [equation.from, equation.to]) {
            if measured[node].last() != Some(&knot) {
                measured[node].push(knot);
            }
        }
    }
    let mut cuts: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for cut in breaks.iter().filter(|cut| cut.node.index() < nodes) {
        cuts[cut.node.index()].push(cut.round);
    }
    let mut spans = Vec::new();
    let mut base = 0;
    for (node, (knots, cuts)) in measured.iter().zip(&mut cuts).enumerate() {
        cuts.sort_unstable();
        let piece = |knot: usize| cuts.partition_point(|cut| *cut <= knot);
        for chunk in knots.chunk_by(|a, b| piece(*a) == piece(*b)) {
            let (first, last) = (chunk[0], chunk[chunk.len() - 1]);
            let offset = rounds[first].nodes[node].offset_ns;
            let span = Span { node, first, last, base, potential: offset.round() as i128 };
            base += span.len();
            spans.push(span);
        }
    }
    spans
}

/// Which span a node is in at a knot.
struct SpanIndex {
    of: HashMap<usize, Vec<usize>>,
}

impl SpanIndex {
    fn new(nodes: usize, spans: &[Span]) -> Self {
        let mut of: HashMap<usize, Vec<usize>> = HashMap::with_capacity(nodes);
        for (at, span) in spans.iter().enumerate() {
            of.entry(span.node).or_default().push(at);
        }
        Self { of }
    }

    fn at(&self, node: usize, knot: usize, spans: &[Span]) -> Option<usize> {
        let list = self.of.get(&node)?;
        list.iter().copied().find(|at| (spans[*at].first..=spans[*at].last).contains(&knot))
    }
}

fn measure(
    equation: &Equation,
    knot: usize,
    rounds: &[Round<'_>],
    spans: &[Span],
    index: &SpanIndex,
) -> Option<Measure> {
    let (from, to) = (index.at(equation.from, knot, spans)?, index.at(equation.to, knot, spans)?);
    let [a, b] = [from, to].map(|at| {
        let x = belief(&rounds[knot], &spans[at]).unwrap_or([0.0; 2]);
        State { potential: spans[at].potential, x }
    });
    let moved = equation.at(i128::from(rounds[knot].reference_midpoint.as_ns()), &a, &b);
    let value = [0, 1].map(|k| moved.residual[k] + b.x[k] - a.x[k]);
    let sign = if equation.from < equation.to { 1.0 } else { -1.0 };
    sound(&moved).then_some(Measure { from, to, knot, sign, value, covariance: moved.covariance })
}

/// Whether a line moved to a knot is worth anything. Beyond these limits its square or its inverse would be no number,
/// and one such line would spoil all nodes.
pub(super) fn sound(moved: &Moved) -> bool {
    let [a, _, b] = moved.covariance;
    let sized = |variance: f64| (VARIANCE_MIN..=VARIANCE_MAX).contains(&variance);
    moved.residual.iter().all(|x| x.is_finite()) && sized(a) && sized(b) && inverse(moved.covariance).is_some()
}

/// Whether a round's estimate of a node can be started from.
pub(super) fn believable(estimate: &NodeEstimate) -> bool {
    estimate.reachable && estimate.offset_ns.abs() <= OFFSET_MAX_NS && estimate.drift_ppm.abs() <= DRIFT_MAX_PPM
}

fn belief(round: &Round<'_>, span: &Span) -> Option<Pair> {
    seen(round, span.node, span.potential)
}

/// What a round says of a node, above a potential: ns and ns/s.
pub(super) fn seen(round: &Round<'_>, node: usize, potential: i128) -> Option<Pair> {
    let estimate = round.nodes.get(node).filter(|estimate| believable(estimate))?;
    let whole = estimate.offset_ns.round();
    let offset = (whole as i128 - potential) as f64 + (estimate.offset_ns - whole);
    Some([offset, estimate.drift_ppm * NS_PER_S_PER_PPM])
}

/// A millionth is 1000 ns per s.
pub(super) const NS_PER_S_PER_PPM: f64 = 1e3;

/// Differences of two i64 times are smaller, ns; so are margins.
const OFFSET_MAX_NS: f64 = 2e19;

/// A clock that runs twice as fast.
const DRIFT_MAX_PPM: f64 = 1e6;

/// Limits of a line's variances, ns² and ns²/s²: a thousandth of a nanosecond, and all of time.
const VARIANCE_MIN: f64 = 1e-6;
const VARIANCE_MAX: f64 = 1e39;

/// Floor of the margin that asymmetries are compared with, ns.
const MARGIN_MIN_NS: f64 = 1.0;
