//! The smoothed run: offsets and errors at any time, and between any two nodes.
//!
//! The joint solution's states are expressed relative to the reference's. Between knots the offset
//! follows the cubic that is the mean of the random walk. The variance of an offset has three
//! parts:
//! - random: measurement and wander, from `variance`, with the node's per-round noise from the
//!   graph's mean Laplacian, scaled by how much of the node's usual information each round holds;
//! - the bridge between knots (`motion`), and prediction beyond the ends;
//! - asymmetry: constant in time, the graph's share of σ² (`evidence`).

use probe_sync_lines::NodeEstimate;
use probe_sync_time::{NodeId, Reference, Timestamp};

use super::fit::Fit;
use super::layout::PARTS;
use super::variance::Variances;
use super::white_fm;
use crate::graph::components::held;
use crate::graph::covariance;
use crate::graph::linear::{Block, Laplacian, Link, Pair, inverse};
use crate::motion::{NS_PER_S_PER_PPM, between, bridge, hermite, square, walk, window_excess};
use crate::statistics::SIGMAS_95;

/// A smoothed offset.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct SmoothedOffset {
    /// First minus second clock (the second is the reference unless requested otherwise), ns.
    pub offset_ns: f64,
    /// Rate of this difference, ppm.
    pub drift_ppm: f64,
    /// Standard deviation of the offset, including asymmetry, ns. If few loops show the asymmetry
    /// of paths, it is that of the normal distribution with the same 95 % interval.
    pub sigma_ns: f64,
    /// Half-width of the 95 % interval, ns.
    pub half_width_95_ns: f64,
    /// Part of `sigma_ns` due to path asymmetry, which more probing cannot reduce, ns.
    pub asymmetry_sigma_ns: f64,
    /// Standard deviation of the rate, ppm.
    pub drift_sigma_ppm: f64,
    /// Covariance of the errors of offset and rate, ns·ppm.
    pub offset_drift_covariance: f64,
}

/// The asymmetry found between two nodes.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct PathAsymmetry {
    /// The nodes, smaller first.
    pub nodes: [NodeId; 2],
    /// Amount by which theta from the first to the second seems too large, ns.
    pub offset_ns: f64,
    /// Weight among the others, 0 to 1: small for an outlier.
    pub weight: f64,
}

/// A smoothed run.
#[derive(Clone, Debug)]
pub struct RunSolution {
    origin_ns: i64,
    knots: Vec<f64>,
    reach: f64,
    /// By node, in order of time, without overlap.
    nodes: Vec<Vec<Stretch>>,
    random: Laplacian,
    fixed: Laplacian,
    /// Per node, how much of its constant error is asymmetry.
    asymmetric_share: Vec<f64>,
    /// Share of each node's total that a round holds, per node and knot.
    share: Vec<Vec<f64>>,
    /// Density of each node's random walk when nothing happens to its clock, ns²/s³.
    pub walk_density: Vec<f64>,
    /// Density of each node's random walk from each knot to the next, ns²/s³.
    walks: Vec<Vec<f64>>,
    /// By node, density of its motion within a window, ns²/s.
    white_fm: Vec<f64>,
    within: Within,
    /// Growth of the variance of lines because the scale is known from few residuals only.
    scale_spread: f64,
    /// Standard deviation of the asymmetry of a median path, ns.
    pub asymmetry_sd_ns: f64,
    /// All pairs of nodes with packets between them.
    pub asymmetries: Vec<PathAsymmetry>,
    /// Factors by which the variances of the edges' offsets and rates were multiplied.
    pub noise_scales: [f64; 2],
    /// Steps of the iterative solver, over all passes.
    pub solver_steps: usize,
    /// True if the last solution reached its accuracy.
    pub converged: bool,
}

/// One clock against the reference, without a step of either.
#[derive(Clone, Debug)]
struct Stretch {
    first: usize,
    /// Subtracted from offsets, ns.
    potential: i128,
    states: Vec<Pair>,
    variances: Variances,
    /// Variance that asymmetry causes, ns².
    asymmetry: f64,
    /// From each state to the next, the reference's included.
    walks: Vec<f64>,
    within: Within,
}

/// `white_fm` by node: density of its clock's motion within a window, ns²/s.
pub(super) fn collect(nodes: usize, fit: &Fit, white_fm: &[f64]) -> RunSolution {
    let reference = fit.reference;
    let graphs = Graphs::new(nodes, fit, reference);
    let random = covariance(&graphs.random, reference);
    let fixed = covariance(&graphs.fixed, reference);
    let layout = &fit.layout;
    let mut paths: Vec<Vec<Stretch>> = vec![Vec::new(); nodes];
    let references: Vec<usize> = (0..layout.spans.len()).filter(|at| layout.spans[*at].node == reference).collect();
    for (at, span) in layout.spans.iter().enumerate() {
        if graphs.random.fixed()[span.node] && span.node != reference {
            continue;
        }
        for other in &references {
            let asymmetry = fixed[span.node][0] * graphs.asymmetric_share[span.node];
            let white_fm = white_fm[span.node] + white_fm[reference];
            let model = Model { noise: random[span.node], asymmetry, share: &graphs.share[span.node], white_fm };
            paths[span.node].extend(stretch(fit, [at, *other], &model));
        }
    }
    paths.iter_mut().for_each(|stretches| stretches.sort_by_key(|stretch| stretch.first));
    let asymmetries = layout.node_pairs.iter().zip(&fit.asymmetries).zip(&fit.robust.1);
    RunSolution {
        origin_ns: layout.origin_ns,
        reach: layout.window,
        knots: layout.knots.clone(),
        nodes: paths,
        random: graphs.random,
        fixed: graphs.fixed,
        share: graphs.share,
        asymmetric_share: graphs.asymmetric_share,
        asymmetry_sd_ns: fit.asymmetry.sqrt(),
        asymmetries: asymmetries
            .map(|((node_pair, offset_ns), weight)| PathAsymmetry {
                nodes: node_pair.nodes.map(|node| NodeId(node as u32)),
                offset_ns: *offset_ns,
                weight: *weight,
            })
            .collect(),
        noise_scales: fit.scales,
        solver_steps: fit.steps,
        converged: fit.converged,
        walks: walks(nodes, fit),
        white_fm: white_fm.to_vec(),
        within: Within::new(fit, 0.0),
        scale_spread: fit.scale_spread,
        walk_density: fit.usual_walks.clone(),
    }
}

/// The graph of the whole run, nodes as unknowns.
struct Graphs {
    /// Random error of a round with the mean information of all rounds.
    random: Laplacian,
    /// Constant error: asymmetry and the mean random part.
    fixed: Laplacian,
    /// Per node, how much of its constant error is asymmetry.
    asymmetric_share: Vec<f64>,
    /// Per node and knot: the round's information over the mean round's.
    share: Vec<Vec<f64>>,
}

impl Graphs {
    fn new(nodes: usize, fit: &Fit, reference: usize) -> Self {
        let layout = &fit.layout;
        let rounds = layout.knots.len().max(1) as f64;
        let precision = fit.local_precision();
        let mut share = vec![vec![0.0; layout.knots.len()]; nodes];
        for span in &layout.spans {
            for k in 0..span.len() {
                share[span.node][span.first + k] = precision[span.base + k][0];
            }
        }
        for of_node in &mut share {
            let mean = of_node.iter().sum::<f64>() / rounds;
            of_node.iter_mut().for_each(|share| *share = if mean > 0.0 { *share / mean } else { 0.0 });
        }
        let (mut random, mut fixed) = (Vec::new(), Vec::new());
        let mut asymmetric = vec![[0.0; 2]; nodes];
        for (number, node_pair) in layout.node_pairs.iter().enumerate() {
            let mut total: Block = [0.0; 3];
            for at in node_pair.measures.clone() {
                let Some(precision) = inverse(fit.covariance(at)) else { continue };
                total.iter_mut().zip(precision).for_each(|(sum, p)| *sum += p * fit.robust.0[at]);
            }
            let [from, to] = node_pair.nodes;
            if total[0] > 0.0 {
                random.push(Link { from, to, weight: total.map(|p| p / rounds) });
                let asymmetry = fit.asymmetry_of(number);
                let weight = 1.0 / (asymmetry + fit.levels[number].unwrap_or_else(|| fit.mean_variance(number)));
                fixed.push(Link { from, to, weight: [weight, 0.0, 1.0] });
                for node in node_pair.nodes {
                    asymmetric[node] =
                        [asymmetric[node][0] + asymmetry * weight * weight, asymmetric[node][1] + weight];
                }
            }
        }
        let held = held(nodes, &random, reference);
        Self {
            random: Laplacian::new(random, held.clone()),
            fixed: Laplacian::new(fixed, held),
            asymmetric_share: asymmetric.iter().map(|[part, all]| if *all > 0.0 { part / all } else { 1.0 }).collect(),
            share,
        }
    }
}

struct Model<'a> {
    noise: Block,
    asymmetry: f64,
    share: &'a [f64],
    white_fm: f64,
}

/// A span relative to a span of the reference, where both are known.
fn stretch(fit: &Fit, [own, reference]: [usize; 2], model: &Model<'_>) -> Option<Stretch> {
    let layout = &fit.layout;
    let (span, other) = (&layout.spans[own], &layout.spans[reference]);
    let known = |knot: &usize| span.node == other.node || model.share[*knot] > 0.0;
    let mut knots = (span.first.max(other.first)..span.last.min(other.last) + 1).skip_while(|knot| !known(knot));
    let first = knots.next()?;
    let last = knots.filter(known).last().unwrap_or(first);
    let state = |knot: usize| {
        let (a, b) = (fit.states[layout.state(own, knot)], fit.states[layout.state(reference, knot)]);
        [a[0] - b[0], a[1] - b[1]]
    };
    let same = span.node == other.node;
    let walk = |knot: usize| fit.walks[layout.state(own, knot)] + fit.walks[layout.state(reference, knot)];
    let walks: Vec<f64> = (first..=last).map(|knot| if same { 0.0 } else { walk(knot) }).collect();
    let white_fm = if same { 0.0 } else { model.white_fm };
    let within = Within::new(fit, white_fm);
    let noise = |knot: usize| {
        let share = model.share[knot];
        let walk = around(&walks, knot - first);
        (share > 0.0).then(|| within.added(model.noise.map(|variance| fit.scale_spread * variance / share), walk))
    };
    let noise: Vec<Option<Block>> = (first..=last).map(noise).collect();
    let variances =
        if same { Variances::none(noise.len()) } else { Variances::new(&layout.knots[first..=last], &noise, &walks) };
    Some(Stretch {
        first,
        potential: span.potential - other.potential,
        states: (first..=last).map(state).collect(),
        variances,
        asymmetry: if same { 0.0 } else { model.asymmetry },
        walks,
        within,
    })
}

/// The density around a state: the larger of the intervals before and after it. After the last
/// state, the usual density.
fn around(walks: &[f64], at: usize) -> f64 {
    let before = at.checked_sub(1).map_or(0.0, |before| walks[before]);
    walks[at].max(before)
}

/// By node and knot: the density from there to the next.
fn walks(nodes: usize, fit: &Fit) -> Vec<Vec<f64>> {
    let usual = |node: usize| vec![fit.usual_walks.get(node).copied().unwrap_or(0.0); fit.layout.knots.len()];
    let mut walks: Vec<Vec<f64>> = (0..nodes).map(usual).collect();
    for span in &fit.layout.spans {
        let own = &fit.walks[span.base..span.base + span.len()];
        walks[span.node][span.first..=span.last].copy_from_slice(own);
    }
    walks
}

/// Motion of clocks within a window. It affects all edges of a node alike, so no number of edges
/// reduces it and no loop shows it; compared with the walk from round to round it is too small to
/// be smoothed.
#[derive(Copy, Clone, Debug)]
struct Within {
    /// Length of a window, s, and of the part of it that a knot's measures are from;
    /// [`Fit::mixed`].
    window: f64,
    part: f64,
    white_fm: f64,
    mixed: f64,
}

impl Within {
    fn new(fit: &Fit, white_fm: f64) -> Self {
        let window = fit.layout.window;
        Self { window, part: if fit.refined { window / PARTS as f64 } else { window }, white_fm, mixed: fit.mixed }
    }

    /// A round's covariance with it.
    fn added(&self, [a, ab, b]: Block, walk: f64) -> Block {
        let [offset, rate] = window_excess(walk, self.window);
        [a + offset, ab, b + rate]
    }
}

impl RunSolution {
    /// Returns the offset of `node` from the reference when the reference's clock shows `at`;
    /// `None` if no packets show it.
    pub fn at(&self, node: NodeId, at: Timestamp<Reference>) -> Option<SmoothedOffset> {
        let t = self.seconds(at.as_ns());
        let stretch = self.stretch(node.index(), t)?;
        Some(stretch.at(&self.knots, t))
    }

    /// Returns the offset of `first` from `second`, with the error of this difference: smaller than
    /// the two errors relative to the reference suggest, because these have much in common.
    pub fn between(&self, first: NodeId, second: NodeId, at: Timestamp<Reference>) -> Option<SmoothedOffset> {
        let t = self.seconds(at.as_ns());
        let (a, b) = (self.stretch(first.index(), t)?, self.stretch(second.index(), t)?);
        if first == second {
            return self.at(first, at).map(|_| SmoothedOffset::ZERO);
        }
        let [x, y] = [a, b].map(|stretch| stretch.at(&self.knots, t));
        let noise = self.difference(&self.random, [first, second], 2)?;
        let fixed = self.difference(&self.fixed, [first, second], 1)?;
        let start = a.first.max(b.first);
        let end = (a.first + a.states.len()).min(b.first + b.states.len());
        if start >= end {
            return None;
        }
        let walk = |knot: usize| self.walks[first.index()][knot] + self.walks[second.index()][knot];
        let white_fm = self.white_fm[first.index()] + self.white_fm[second.index()];
        let within = Within { white_fm, ..self.within };
        let walks: Vec<f64> = (start..end).map(walk).collect();
        let measured = |knot: usize| {
            let share = self.share[first.index()][knot].min(self.share[second.index()][knot]);
            (share > 0.0 || knot == start)
                .then(|| noise.map(|variance| self.scale_spread * variance / share.max(SHARE_MIN)))
                .map(|noise| within.added(noise, around(&walks, knot - start)))
        };
        let noise: Vec<Option<Block>> = (start..end).map(measured).collect();
        let common = Stretch {
            first: start,
            potential: 0,
            states: vec![[0.0; 2]; end - start],
            variances: Variances::new(&self.knots[start..end], &noise, &walks),
            asymmetry: fixed[0] * 0.5 * (self.asymmetric_share[first.index()] + self.asymmetric_share[second.index()]),
            walks,
            within,
        };
        let error = common.at(&self.knots, t);
        Some(SmoothedOffset { offset_ns: x.offset_ns - y.offset_ns, drift_ppm: x.drift_ppm - y.drift_ppm, ..error })
    }

    /// The largest density of the random walk of `node` against the reference between two times,
    /// ns²/s³.
    pub(crate) fn walk_between(&self, node: NodeId, [a, b]: [Timestamp<Reference>; 2]) -> f64 {
        let [a, b] = [a.min(b), a.max(b)].map(|at| self.seconds(at.as_ns()));
        let Some(stretch) = self.stretch(node.index(), 0.5 * (a + b)) else { return 0.0 };
        let times = &self.knots[stretch.first..stretch.first + stretch.states.len()];
        let from = times.partition_point(|knot| *knot <= a).saturating_sub(1);
        let to = times.partition_point(|knot| *knot < b).clamp(from + 1, times.len());
        stretch.walks[from..to].iter().copied().fold(around(&stretch.walks, from.min(times.len() - 1)), f64::max)
    }

    /// The times at which states were solved for, in order; between them offsets are cubics.
    pub(crate) fn knots(&self) -> impl DoubleEndedIterator<Item = Timestamp<Reference>> {
        let at = |knot: &f64| i128::from(self.origin_ns) + (knot * 1e9).round() as i128;
        self.knots.iter().map(move |knot| Timestamp::from_ns(at(knot).clamp(i64::MIN.into(), i64::MAX.into()) as i64))
    }

    fn seconds(&self, reference_ns: i64) -> f64 {
        (i128::from(reference_ns) - i128::from(self.origin_ns)) as f64 / 1e9
    }

    /// The stretch that knows most about time `t`: the last that begins before it, or the one
    /// after.
    fn stretch(&self, node: usize, t: f64) -> Option<&Stretch> {
        let stretches = self.nodes.get(node)?;
        let next = stretches.partition_point(|stretch| self.knots[stretch.first] <= t);
        let outside = |stretch: &&Stretch| {
            let (first, last) = (self.knots[stretch.first], self.knots[stretch.first + stretch.states.len() - 1]);
            (first - t).max(t - last).max(0.0)
        };
        let near = stretches.get(next.saturating_sub(1)..(next + 1).min(stretches.len()))?;
        let nearest = near.iter().min_by(|a, b| outside(a).total_cmp(&outside(b)))?;
        (outside(&nearest) <= self.reach.max(REACH_MIN_S)).then_some(nearest)
    }

    /// Covariance of the difference of two nodes under a Laplacian's inverse.
    fn difference(&self, laplacian: &Laplacian, [first, second]: [NodeId; 2], components: usize) -> Option<Block> {
        let mut block = [0.0, 0.0, 1.0];
        for component in 0..components {
            let mut right = vec![[0.0; 2]; laplacian.fixed().len()];
            for (node, sign) in [(first, 1.0), (second, -1.0)] {
                if !laplacian.fixed()[node.index()] {
                    right[node.index()][component] = sign;
                }
            }
            let mut x = vec![[0.0; 2]; right.len()];
            let tolerance = 1e-4 * laplacian.size(&right);
            laplacian.solve_iterative(&right, &mut x, tolerance, DIFFERENCE_STEPS_MAX);
            let apart = x[first.index()][component] - x[second.index()][component];
            block[2 * component] = apart;
        }
        (block[0] > 0.0).then_some(block)
    }
}

impl SmoothedOffset {
    pub(crate) const ZERO: Self = Self {
        offset_ns: 0.0,
        drift_ppm: 0.0,
        sigma_ns: 0.0,
        half_width_95_ns: 0.0,
        asymmetry_sigma_ns: 0.0,
        drift_sigma_ppm: 0.0,
        offset_drift_covariance: 0.0,
    };

    /// Puts this offset with its error into the node's estimate, clamped to the round's hard
    /// interval; returns true if it had to be moved. A node that the round itself did not reach is
    /// unchanged.
    pub fn put_into(&self, node: &mut NodeEstimate) -> bool {
        if !node.reachable {
            return false;
        }
        let inside = self.offset_ns.max(node.bound_lo_ns).min(node.bound_hi_ns);
        node.offset_ns = inside;
        node.drift_ppm = self.drift_ppm;
        node.sigma_ns = self.sigma_ns;
        node.asymmetry_sigma_ns = self.asymmetry_sigma_ns;
        node.drift_sigma_ppm = self.drift_sigma_ppm;
        inside != self.offset_ns
    }
}

impl Stretch {
    fn at(&self, knots: &[f64], t: f64) -> SmoothedOffset {
        let times = &knots[self.first..self.first + self.states.len()];
        let next = times.partition_point(|knot| *knot <= t);
        let (state, [offset, across, rate]) = if next == 0 {
            self.beyond(0, t - times[0])
        } else if next == times.len() {
            self.beyond(next - 1, t - times[next - 1])
        } else {
            self.inside(next - 1, times, t)
        };
        // What lines miss because rates are new within windows. No neighbour knows it better, and
        // between the middles of two windows it is as large.
        let outside = if next == 0 || next == times.len() { t - times[next.saturating_sub(1)] } else { 0.0 };
        let Within { white_fm, part, mixed, .. } = self.within;
        let [missed, rate_missed] = white_fm::excess(white_fm, around(&self.walks, next.saturating_sub(1)), part);
        let offset = mixed * offset + missed + outside * outside * rate_missed;
        let (across, rate) = (across + outside * rate_missed, rate + rate_missed);
        let random = offset.max(0.0);
        let sigma_ns = (random + self.asymmetry).sqrt();
        SmoothedOffset {
            offset_ns: self.potential as f64 + state[0],
            drift_ppm: state[1] / NS_PER_S_PER_PPM,
            sigma_ns,
            half_width_95_ns: SIGMAS_95 * sigma_ns,
            asymmetry_sigma_ns: self.asymmetry.sqrt(),
            drift_sigma_ppm: rate.max(0.0).sqrt() / NS_PER_S_PER_PPM,
            offset_drift_covariance: across / NS_PER_S_PER_PPM,
        }
    }

    /// The density beyond an end: the last interval's.
    fn walk_beyond(&self, at: usize) -> f64 {
        around(&self.walks, at)
    }

    /// State and covariance `delta` seconds before the first or after the last knot.
    fn beyond(&self, at: usize, delta: f64) -> (Pair, Block) {
        let [x, f] = self.states[at];
        let [a, ab, b] = self.variances.at[at];
        let walked: Block = if delta == 0.0 { [0.0; 3] } else { walk(self.walk_beyond(at), delta.abs()) };
        let offset = a + delta * (2.0 * ab + delta * b) + walked[0];
        let across = ab + delta * b + delta.signum() * walked[1];
        ([x + delta * f, f], [offset, across, b + walked[2]])
    }

    /// State and covariance between knot `at` and the next.
    fn inside(&self, at: usize, times: &[f64], t: f64) -> (Pair, Block) {
        let delta = times[at + 1] - times[at];
        let s = (t - times[at]) / delta;
        let weights = hermite(s, delta);
        let (here, next) = (self.states[at], self.states[at + 1]);
        let mix = |[a, b]: [Pair; 2]| a[0] * here[0] + a[1] * here[1] + b[0] * next[0] + b[1] * next[1];
        let joint = self.variances.across[at];
        let covariance = |[a, b]: [Pair; 2], [c, d]: [Pair; 2]| {
            between(a, square(self.variances.at[at]), c)
                + between(b, square(self.variances.at[at + 1]), d)
                + between(a, joint, d)
                + between(c, joint, b)
        };
        let variance = |weights| covariance(weights, weights);
        // Time that no window covers.
        let uncovered = self.within.white_fm * (delta - self.within.window).max(0.0) * s * (1.0 - s);
        let offset = variance(weights[0]) + bridge(self.walks[at], delta, s).max(uncovered);
        // Between knots the rate wanders about the cubic's; at the ends it is the knots' own.
        let rate = variance(weights[1]) + self.walks[at] * delta * s * (1.0 - s);
        ([mix(weights[0]), mix(weights[1])], [offset, covariance(weights[0], weights[1]), rate])
    }
}

/// Steps of the iterative solver for one pair of nodes.
const DIFFERENCE_STEPS_MAX: usize = 500;
/// A round that tells this little of a node's usual tells nothing.
const SHARE_MIN: f64 = 1e-6;
/// Reach of a single round, s.
const REACH_MIN_S: f64 = 2.0;
