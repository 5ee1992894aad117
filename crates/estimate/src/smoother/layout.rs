//! The unknowns and the measurements: spans of clocks, links between nodes, and small-number
//! equations.
//!
//! Knots are the midpoints of the rounds on the reference clock. A node's clock is one [`Span`] of
//! knots, or several if it was stepped or restarted; each span has its own free offset and rate.
//! Each edge of a round is moved to the round's knot (`lines`) and becomes a [`Measure`] between
//! two spans. All edges between the same two nodes, whichever of them probed, share a [NodePair]
//! and therefore one path asymmetry.
//!
//! Offsets may be hours: every span has an integer potential, and unknowns are what is left of the
//! offset above it.

use std::collections::{BTreeMap, HashMap};

use probe_sync_time::NodeId;

use super::lines::{self, Line};
use super::round::SmootherRound;
use crate::graph::edges::{Equation, PER_SECOND};
use crate::graph::linear::{Block, Pair};
use crate::statistics::median;

/// Number of knots that replace one when the motion is refined by its packets (`refine`).
pub(super) const PARTS: usize = 3;

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
pub(super) struct NodePair {
    /// The nodes, smaller first: the asymmetry counts positive when theta from the first to the
    /// second looks larger.
    pub(super) nodes: [usize; 2],
    /// Its measures.
    pub(super) measures: std::ops::Range<usize>,
    /// Square of its asymmetry's scale, relative to the median node pair's.
    pub(super) scale: f64,
}

/// The measures of a node pair before they are placed.
#[derive(Default)]
struct Group {
    measures: Vec<Measure>,
    /// Of each, the margin, ns, and the number of exchanges of its line.
    margins: Vec<f64>,
    exchanges: Vec<f64>,
}

impl Group {
    /// Moves the stated error of each line towards those of all lines of the same path. A line
    /// through n exchanges estimates its error from the gaps between the lowest few of them: k =
    /// 2·(√n + 1) gaps, so its variance is off by a factor of about √(2/k); of a few lines through
    /// four exchanges, one may claim to be ten times better than it is and outweigh all others.
    /// With the path's median `v̄·n²` of variances that fall with n² it is `(k·v + m·v̄)/(k + m)`.
    fn share_errors(&mut self) {
        let known = || self.measures.iter().zip(&self.exchanges).filter(|(_, exchanges)| **exchanges >= GAPS_KNOWN_MIN);
        if known().count() < 2 {
            return;
        }
        // Not the mean: a line through one burst of packets knows its middle a thousand times worse
        // than the others.
        let claims = known().map(|(measure, exchanges)| measure.covariance[0] * exchanges * exchanges);
        let path = median(claims);
        for (measure, exchanges) in self.measures.iter_mut().zip(&self.exchanges) {
            if *exchanges >= GAPS_KNOWN_MIN {
                let gaps = 2.0 * (exchanges.sqrt() + 1.0);
                let usual = path / (exchanges * exchanges) / measure.covariance[0];
                let factor = (gaps + GAPS_OF_PATH * usual) / (gaps + GAPS_OF_PATH);
                measure.covariance.iter_mut().for_each(|variance| *variance *= factor);
            }
        }
    }
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
    /// Length of a window, s: initial distance of the knots.
    pub(super) window: f64,
    pub(super) spans: Vec<Span>,
    pub(super) node_pairs: Vec<NodePair>,
    pub(super) measures: Vec<Measure>,
    pub(super) states: usize,
    /// Median margin, ns.
    pub(super) margin_ns: f64,
    /// The estimates of the rounds, one per state: the start of the iteration.
    pub(super) start: Vec<Pair>,
}

impl Layout {
    pub(super) fn new(nodes: usize, rounds: &[SmootherRound<'_>], breaks: &[(NodeId, usize)]) -> Self {
        let origin_ns = rounds.first().map_or(0, |round| round.reference_midpoint.as_ns());
        let since =
            |round: &SmootherRound<'_>| (i128::from(round.reference_midpoint.as_ns()) - i128::from(origin_ns)) as f64;
        let knots: Vec<f64> = rounds.iter().map(|round| since(round) / PER_SECOND).collect();
        let usable: Vec<Vec<(Equation, f64)>> = rounds.iter().map(|round| lines::usable(nodes, round)).collect();
        let spans = spans(nodes, rounds, breaks, &usable);
        let span_at = SpanIndex::new(nodes, &spans);
        let mut grouped: BTreeMap<[usize; 2], Group> = BTreeMap::new();
        for (knot, equations) in usable.iter().enumerate() {
            for (equation, margin) in equations {
                if let Some(measure) = measure((equation, *margin), knot, &rounds[knot], &spans, &span_at) {
                    let key = [equation.from.min(equation.to), equation.from.max(equation.to)];
                    let group = grouped.entry(key).or_default();
                    group.measures.push(measure);
                    group.margins.push(*margin);
                    group.exchanges.push(f64::from(rounds[knot].edges[equation.index].pairs_count));
                }
            }
        }
        let states = spans.iter().map(Span::len).sum();
        let mut layout = Self {
            origin_ns,
            window: typical_window(&knots),
            knots,
            spans,
            node_pairs: Vec::with_capacity(grouped.len()),
            measures: Vec::new(),
            states,
            margin_ns: MARGIN_MIN_NS,
            start: vec![[0.0; 2]; states],
        };
        layout.take(grouped);
        layout.believe(rounds);
        layout
    }

    fn take(&mut self, grouped: BTreeMap<[usize; 2], Group>) {
        let mut margins = Vec::with_capacity(grouped.len());
        for (nodes, mut group) in grouped {
            let first = self.measures.len();
            group.share_errors();
            self.measures.extend(group.measures);
            self.node_pairs.push(NodePair { nodes, measures: first..self.measures.len(), scale: 1.0 });
            margins.push(median(group.margins));
        }
        self.margin_ns = median(margins.iter().copied()).max(MARGIN_MIN_NS);
        for (node_pair, margin) in self.node_pairs.iter_mut().zip(margins) {
            // Longer paths can be more asymmetric; shorter ones than usual are not therefore
            // better.
            node_pair.scale = 0.5 * (1.0 + (margin / self.margin_ns).powi(2));
        }
    }

    fn believe(&mut self, rounds: &[SmootherRound<'_>]) {
        for span in &self.spans {
            let mut last = [0.0; 2];
            for (round, start) in rounds[span.first..=span.last].iter().zip(&mut self.start[span.base..]) {
                last = lines::seen(round, span.node, span.potential).unwrap_or(last);
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

/// Cuts every node's knots at its breaks and trims them to where there are packets.
fn spans(
    nodes: usize,
    rounds: &[SmootherRound<'_>],
    breaks: &[(NodeId, usize)],
    usable: &[Vec<(Equation, f64)>],
) -> Vec<Span> {
    let mut measured: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for (knot, equations) in usable.iter().enumerate() {
        for node in equations.iter().flat_map(|(equation, _)| [equation.from, equation.to]) {
            if measured[node].last() != Some(&knot) {
                measured[node].push(knot);
            }
        }
    }
    let mut cuts: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for (node, place) in breaks.iter().filter(|(node, _)| node.index() < nodes) {
        cuts[node.index()].push(*place);
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
    (equation, margin): (&Equation, f64),
    knot: usize,
    round: &SmootherRound<'_>,
    spans: &[Span],
    index: &SpanIndex,
) -> Option<Measure> {
    let (from, to) = (index.at(equation.from, knot, spans)?, index.at(equation.to, knot, spans)?);
    let Line { moved, believed: [a, b], sign, .. } =
        Line::new(round, (equation, margin), [from, to].map(|at| spans[at].potential))?;
    let value = [0, 1].map(|k| moved.residual[k] + b[k] - a[k]);
    Some(Measure { from, to, knot, sign, value, covariance: moved.covariance })
}

/// Median distance of the knots: the windows' length, s.
fn typical_window(knots: &[f64]) -> f64 {
    median(knots.windows(2).map(|pair| pair[1] - pair[0]).filter(|apart| *apart > 0.0))
}

/// Fewest exchanges whose gaps tell anything.
const GAPS_KNOWN_MIN: f64 = 3.0;

/// Gaps that the other lines of a path count for.
const GAPS_OF_PATH: f64 = 8.0;

/// Floor of the margin that asymmetries are compared with, ns.
const MARGIN_MIN_NS: f64 = 1.0;
