//! The iteration of the joint solution: solve, update weights, scales and asymmetries, and solve
//! again.
//!
//! A [`Fit`] holds the current belief; [`Fit::settle`] iterates until it converges, and
//! [`Fit::level`] shifts whole clocks to fit the constant parts of the node pairs' thetas.

use std::collections::BTreeSet;

use super::evidence::{self, Constants, Deviation};
use super::layout::{Layout, Measure, NodePair, PARTS};
use super::round::SmootherOptions;
use super::student::{self, SCALE_MIN, WEIGHTED_PAIR, WEIGHTED_SINGLE};
use super::system::{System, Weights};
use super::variance::Variances;
use super::walks::{self, Moved};
use crate::graph::components::held;
use crate::graph::linear::{Block, Laplacian, Link, Pair, inverse, times};

/// The present estimate of the iteration.
pub(super) struct Fit {
    pub(super) reference: usize,
    pub(super) layout: Layout,
    /// By node, undisturbed density of its rate's random walk, ns²/s³.
    pub(super) usual_walks: Vec<f64>,
    /// By state, the density from there to the span's next.
    pub(super) walks: Vec<f64>,
    /// Whether every window has three knots.
    pub(super) refined: bool,
    /// Factor on the variance that random walks leave unknown.
    pub(super) mixed: f64,
    pub(super) states: Vec<Pair>,
    /// By node pair, ns.
    pub(super) asymmetries: Vec<f64>,
    /// Covariance of every measure, not yet rescaled.
    pub(super) covariances: Vec<Block>,
    /// By node, density of its motion within a window, ns²/s.
    pub(super) white_fm: Vec<f64>,
    /// Growth of the variance of lines because the scale is known from few residuals only.
    pub(super) scale_spread: f64,
    /// By node, variance of the usual error common to all its edges in a round, ns².
    usual_shared: Vec<f64>,
    /// By state, that variance there.
    pub(super) shared: Vec<f64>,
    /// By measure, what that adds to its variance so that all edges of a node together reach the
    /// node's variance, ns².
    excess: Vec<f64>,
    /// Factors on the variances of offset and rate.
    pub(super) scales: Pair,
    /// Student-t weights of measures and node pairs.
    pub(super) robust: (Vec<f64>, Vec<f64>),
    /// Variance of a median path's asymmetry, ns².
    pub(super) asymmetry: f64,
    /// Per node pair, the random variance of the constant part of theta if it comes from all
    /// packets together, ns².
    pub(super) levels: Vec<Option<f64>>,
    /// Steps of the solver, and whether the last solution was reached.
    pub(super) steps: usize,
    pub(super) converged: bool,
}

/// The constant part of a node pair's theta that the states leave.
#[derive(Copy, Clone, Debug)]
pub(super) struct Level {
    /// ns, positive when theta from the first node to the second is larger than the states say.
    pub(super) value: f64,
    /// Of its random error, ns².
    pub(super) variance: f64,
}

impl Fit {
    pub(super) fn new(layout: Layout, constants: &[Constants], options: &SmootherOptions) -> Self {
        let unknown = || evidence::asymmetry(&[], 0.0, layout.margin_ns);
        let asymmetry = options.asymmetry_variance.unwrap_or_else(unknown);
        let usual_walks: Vec<f64> = constants.iter().map(|node| node.walk).collect();
        let usual_shared: Vec<f64> = constants.iter().map(|node| node.shared).collect();
        let walks = walks::usual(&layout, &usual_walks);
        let mut fit = Self {
            reference: options.reference.index(),
            states: layout.start.clone(),
            asymmetries: vec![0.0; layout.node_pairs.len()],
            levels: vec![None; layout.node_pairs.len()],
            covariances: layout.measures.iter().map(|measure| measure.covariance).collect(),
            shared: walks::usual(&layout, &usual_shared),
            usual_shared,
            white_fm: constants.iter().map(|node| node.white_fm).collect(),
            scale_spread: 1.0,
            excess: Vec::new(),
            scales: [1.0; 2],
            robust: (vec![1.0; layout.measures.len()], vec![1.0; layout.node_pairs.len()]),
            asymmetry,
            steps: 0,
            converged: true,
            refined: false,
            mixed: 1.0,
            usual_walks,
            walks,
            layout,
        };
        fit.share_errors();
        fit
    }

    /// Distributes the errors shared by the edges of a node over these. With d measures in a round
    /// of variance v + d·r² each, as if independent, the node is known to v/d + r²: measured by
    /// three edges with 3 ns² each, and r = 2 ns, to 1 + 4 ns². Of the two ends the larger part
    /// counts: if all nodes are alike, two of them are then known to 2·r² relative to each other,
    /// as they must be.
    pub(super) fn share_errors(&mut self) {
        let layout = &self.layout;
        let parts = if self.refined { PARTS } else { 1 };
        // All knots of a window count at its first.
        let window = |span: usize, measure: &Measure| layout.state(span, measure.knot / parts * parts);
        let mut degrees = vec![0.0; layout.states];
        for measure in &layout.measures {
            for span in [measure.from, measure.to] {
                degrees[window(span, measure)] += 1.0;
            }
        }
        let excess = |measure: &Measure| {
            let of = |span: usize| degrees[window(span, measure)] * self.shared[layout.state(span, measure.knot)];
            of(measure.from).max(of(measure.to))
        };
        self.excess = layout.measures.iter().map(excess).collect();
    }

    /// Solves and reweighs until nothing moves.
    pub(super) fn settle(&mut self, options: &SmootherOptions) {
        for _ in 0..PASSES {
            if !self.pass(options) {
                break;
            }
        }
    }

    /// Moves whole clocks by a constant each, to the positions required by the constant parts of
    /// the node pairs' thetas. If the packets together say nothing about a node pair, the mean of
    /// its measures is used.
    pub(super) fn level(&mut self, floors: &[Option<Level>], options: &SmootherOptions) {
        let weights = self.weights();
        let apart = System::new(&self.layout, &weights).all_apart(&self.states);
        let whole = |node: usize| self.layout.spans.iter().filter(|span| span.node == node).count() == 1;
        let means = self.mean_rests(&apart);
        let blend = |share: f64| -> Vec<Level> {
            let level = |((node_pair, mean), floor): ((&NodePair, &Level), &Option<Level>)| {
                let Some(floor) = floor.filter(|_| node_pair.nodes.into_iter().all(whole)) else { return *mean };
                Level {
                    value: share * floor.value + (1.0 - share) * mean.value,
                    variance: share * share * floor.variance + (1.0 - share).powi(2) * mean.variance,
                }
            };
            self.layout.node_pairs.iter().zip(&means).zip(floors).map(level).collect()
        };
        // Both are biased, each in its way; what is wrong with them breaks the loops, and so the
        // loops choose.
        let candidates = (0..=FLOOR_SHARES).map(|k| blend(f64::from(k) / f64::from(FLOOR_SHARES)));
        let broken = |levels: &Vec<Level>| {
            let (rests, _) = self.level_once(levels);
            rests
                .iter()
                .zip(&self.robust.1)
                .zip(&self.layout.node_pairs)
                .map(|((r, w), b)| w * r.value * r.value / b.scale)
                .sum::<f64>()
        };
        let Some(levels) = candidates.min_by(|a, b| broken(a).total_cmp(&broken(b))) else { return };
        let mut shift = Vec::new();
        for _ in 0..LEVEL_PASSES {
            let (rests, found) = self.level_once(&levels);
            shift = found;
            self.judge_node_pairs(&rests, options);
            self.asymmetries = rests.iter().map(|rest| rest.value).collect();
        }
        for span in &self.layout.spans {
            let states = &mut self.states[span.base..span.base + span.len()];
            states.iter_mut().for_each(|state| state[0] += shift[span.node][0]);
        }
        self.levels = levels.iter().map(|level| Some(level.variance)).collect();
    }

    /// The mean residual of every node pair's theta after the states.
    pub(super) fn means(&self) -> Vec<Level> {
        let weights = self.weights();
        let apart = System::new(&self.layout, &weights).all_apart(&self.states);
        self.mean_rests(&apart)
    }

    /// The residuals of every node pair's level after the best constant per clock, and these
    /// constants.
    fn level_once(&self, levels: &[Level]) -> (Vec<Level>, Vec<Pair>) {
        let link = |(at, level): (usize, &Level)| {
            let [from, to] = self.layout.node_pairs[at].nodes;
            Link { from, to, weight: [1.0 / (self.asymmetry_of(at) + level.variance), 0.0, 1.0] }
        };
        let links: Vec<Link> = levels.iter().enumerate().map(link).collect();
        let mut shift = vec![[0.0; 2]; self.usual_walks.len()];
        let held = held(shift.len(), &links, self.reference);
        let graph = Laplacian::new(links, held);
        let right = graph.right_side(levels.iter().map(|level| [level.value, 0.0]));
        graph.solve_iterative(&right, &mut shift, TOLERANCE, STEPS_MAX);
        let rest = |(level, NodePair { nodes: [from, to], .. }): (&Level, &NodePair)| Level {
            value: level.value - (shift[*to][0] - shift[*from][0]),
            ..*level
        };
        (levels.iter().zip(&self.layout.node_pairs).map(rest).collect(), shift)
    }

    /// Variance of a node pair's asymmetry, larger for outliers, ns².
    pub(super) fn asymmetry_of(&self, node_pair: usize) -> f64 {
        let floor = ASYMMETRY_MIN_NS * ASYMMETRY_MIN_NS;
        (self.asymmetry * self.layout.node_pairs[node_pair].scale).max(floor)
            / self.robust.1[node_pair].max(f64::MIN_POSITIVE)
    }

    /// The rescaled covariance of a measure, including what it shares with others of its ends.
    pub(super) fn covariance(&self, at: usize) -> Block {
        let [a, ab, b] = self.own_covariance(at);
        [a + self.excess[at], ab, b]
    }

    /// The rescaled covariance of a measure's own error.
    pub(super) fn own_covariance(&self, at: usize) -> Block {
        self.rescaled(self.covariances[at])
    }

    /// The covariance of a measure alone: its own variance and what its two ends share with others.
    fn alone(&self, at: usize) -> Block {
        let [a, ab, b] = self.own_covariance(at);
        let Measure { from, to, knot, .. } = self.layout.measures[at];
        let shared = [from, to].map(|span| self.shared[self.layout.state(span, knot)]);
        [a + shared[0] + shared[1], ab, b]
    }

    pub(super) fn rescaled(&self, [a, ab, b]: Block) -> Block {
        [a * self.scales[0], ab * (self.scales[0] * self.scales[1]).sqrt(), b * self.scales[1]]
    }

    pub(super) fn weights(&self) -> Weights {
        Weights {
            measures: self.precisions(),
            node_pairs: (0..self.layout.node_pairs.len()).map(|node_pair| 1.0 / self.asymmetry_of(node_pair)).collect(),
            walks: self.walks.clone(),
        }
    }

    /// By measure, with less weight for outliers.
    fn precisions(&self) -> Vec<Block> {
        let precision = |at: usize| inverse(self.covariance(at)).unwrap_or([0.0; 3]).map(|p| p * self.robust.0[at]);
        (0..self.covariances.len()).map(precision).collect()
    }

    /// The mean residual of every node pair's theta after the states, from whose measures they
    /// differ by `apart`.
    fn mean_rests(&self, apart: &[Pair]) -> Vec<Level> {
        let weights = self.precisions();
        let rest =
            |number: usize| Level { value: self.mean(&weights, apart, number), variance: self.mean_variance(number) };
        (0..self.layout.node_pairs.len()).map(rest).collect()
    }

    /// Mean residual of a node pair over all its measures, with the weights of the solution: a
    /// round with an unusual error of a node counts as little here as there. With a measure's own
    /// precision instead, what the states did not follow in that round would look like an
    /// asymmetry.
    fn mean(&self, weights: &[Block], apart: &[Pair], number: usize) -> f64 {
        let (mut residual_sum, mut weight_sum) = (0.0, 0.0);
        for at in self.layout.node_pairs[number].measures.clone() {
            let measure = &self.layout.measures[at];
            let residual = [measure.value[0] - apart[at][0], measure.value[1] - apart[at][1]];
            residual_sum += measure.sign * times(weights[at], residual)[0];
            weight_sum += weights[at][0];
        }
        if weight_sum > 0.0 { residual_sum / weight_sum } else { 0.0 }
    }

    /// Variance of that mean due to each measure's own error, Σ w²·v/(Σ w)²: errors common to the
    /// edges of nodes are in the states. If nothing is shared, w is 1/v, and this 1/Σ w.
    pub(super) fn mean_variance(&self, number: usize) -> f64 {
        let (mut squares, mut sum) = (0.0, 0.0);
        for at in self.layout.node_pairs[number].measures.clone() {
            let [Some(all), Some(own)] = [self.covariance(at), self.own_covariance(at)].map(inverse) else { continue };
            let weight = all[0] * self.robust.0[at];
            (squares, sum) = (squares + weight * all[0] / own[0], sum + weight);
        }
        if sum > 0.0 { squares / (sum * sum) } else { f64::INFINITY }
    }

    /// Solves with the present weights and renews them; false when nothing is left to gain.
    fn pass(&mut self, options: &SmootherOptions) -> bool {
        let weights = self.weights();
        let system = System::new(&self.layout, &weights);
        let before = self.states.clone();
        let end = system.solve(&mut self.states, TOLERANCE, STEPS_MAX);
        self.steps += end.steps;
        self.converged = end.reached;
        self.asymmetries = system.asymmetries(&self.states);
        let apart = system.all_apart(&self.states);
        let rests = self.mean_rests(&apart);
        self.judge_node_pairs(&rests, options);
        self.judge_measures(&apart, options);
        if options.walk_density.is_none() {
            self.walks = self.followed();
            self.judge_shared(&apart);
        }
        let moved = before.iter().zip(&self.states).map(|(a, b)| (a[0] - b[0]).abs()).fold(0.0, f64::max);
        moved > SETTLED_NS
    }

    /// The density of every interval as the present states show it.
    fn followed(&self) -> Vec<f64> {
        let precision = self.local_precision();
        let (layout, states, walks, usual) = (&self.layout, &self.states, &self.walks, &self.usual_walks);
        walks::follow(&Moved { layout, states, walks, usual, precision: &precision })
    }

    /// Updates the variance of the asymmetries and the robust weights of the node pairs from the
    /// residuals of their thetas.
    fn judge_node_pairs(&mut self, rests: &[Level], options: &SmootherOptions) {
        let node_pairs = rests.len() as f64;
        let seen: BTreeSet<usize> = self.layout.node_pairs.iter().flat_map(|node_pair| node_pair.nodes).collect();
        let visible =
            if rests.is_empty() { 0.0 } else { ((node_pairs - seen.len() as f64 + 1.0) / node_pairs).clamp(0.0, 1.0) };
        let deviation = |(rest, node_pair): (&Level, &NodePair)| Deviation {
            square: rest.value * rest.value,
            scale: node_pair.scale,
            random: rest.variance,
        };
        let deviations: Vec<Deviation> = rests.iter().zip(&self.layout.node_pairs).map(deviation).collect();
        let kept = if options.robust { WEIGHTED_SINGLE } else { 1.0 };
        let weighted: Vec<Deviation> = deviations
            .iter()
            .zip(&self.robust.1)
            .map(|(deviation, weight)| Deviation { square: deviation.square * weight / kept, ..*deviation })
            .collect();
        if options.asymmetry_variance.is_none() {
            self.asymmetry = evidence::asymmetry(&weighted, visible, self.layout.margin_ns);
        }
        if options.robust && visible > 0.0 {
            let weight = |d: &Deviation| {
                let expected = visible * (self.asymmetry * d.scale + d.random);
                student::weight(1.0, d.square / expected)
            };
            self.robust.1 = deviations.iter().map(weight).collect();
        }
    }

    /// Updates the error common to the edges of each state, from their mean residual ē: usually r²,
    /// and more in a round with an unusual error of the node, `(ν·r² + ē²)/(ν + 1)`. As with the
    /// jumps of the states (see `walks`), and in competition with them: beyond
    /// [`evidence::SHARED_ONCE_MAX_NS`] they alone explain the observations.
    fn judge_shared(&mut self, apart: &[Pair]) {
        let residuals = self.residuals(apart);
        let mut means = vec![[0.0; 2]; self.layout.states];
        for (at, measure) in self.layout.measures.iter().enumerate() {
            let precision = 1.0 / self.own_covariance(at)[0];
            for (span, sign) in [(measure.from, -1.0), (measure.to, 1.0)] {
                let [sum, weight] = &mut means[self.layout.state(span, measure.knot)];
                (*sum, *weight) = (*sum + sign * precision * residuals[at][0], *weight + precision);
            }
        }
        for span in &self.layout.spans {
            let usual = self.usual_shared[span.node];
            let states = span.base..span.base + span.len();
            for (shared, [sum, weight]) in self.shared[states.clone()].iter_mut().zip(&means[states]) {
                let beyond = if *weight > 0.0 { ((sum / weight).powi(2) - 1.0 / weight).max(0.0) } else { 0.0 };
                let most = usual.max(evidence::SHARED_ONCE_MAX_NS.powi(2));
                *shared = ((student::FREEDOM * usual + beyond) / (student::FREEDOM + 1.0)).clamp(usual, most);
            }
        }
        self.share_errors();
    }

    /// Renews the scales of the covariances and the measures' robust weights.
    fn judge_measures(&mut self, apart: &[Pair], options: &SmootherOptions) {
        let residuals = self.residuals(apart);
        if options.rescale {
            let kept = if options.robust { WEIGHTED_PAIR } else { 1.0 };
            let freedom = self.freedom();
            self.scale_spread = student::few((freedom[0] / UNLIKE).max(FREEDOM_MIN));
            for (k, freedom) in freedom.into_iter().enumerate().filter(|(_, freedom)| *freedom >= FREEDOM_MIN) {
                let squares = residuals.iter().zip(&self.robust.0).enumerate();
                let sum: f64 =
                    squares.map(|(at, (residual, weight))| weight * residual[k].powi(2) / self.alone(at)[2 * k]).sum();
                // Against what is claimed now; where nothing is shared that is one step to where
                // the squares are as claimed.
                self.scales[k] = (self.scales[k] * sum / (kept * freedom)).clamp(SCALE_MIN, 1.0 / SCALE_MIN);
            }
        }
        if !options.robust {
            return;
        }
        let weight = |at: usize| {
            let precision = inverse(self.alone(at)).unwrap_or([0.0; 3]);
            let scaled = times(precision, residuals[at]);
            let square = scaled[0] * residuals[at][0] + scaled[1] * residuals[at][1];
            student::weight(2.0, square)
        };
        self.robust.0 = (0..residuals.len()).map(weight).collect();
    }

    fn residuals(&self, apart: &[Pair]) -> Vec<Pair> {
        let mut residuals = vec![[0.0; 2]; self.layout.measures.len()];
        for (node_pair, asymmetry) in self.layout.node_pairs.iter().zip(&self.asymmetries) {
            for at in node_pair.measures.clone() {
                let measure = &self.layout.measures[at];
                residuals[at] =
                    [measure.value[0] - apart[at][0] - measure.sign * asymmetry, measure.value[1] - apart[at][1]];
            }
        }
        residuals
    }

    /// Independent residuals of offset and of rate: number of measures minus the parameters of
    /// states and asymmetries.
    fn freedom(&self) -> Pair {
        let mut taken = [0.0; 2];
        let precision = self.local_precision();
        for span in &self.layout.spans {
            let noise: Vec<Option<Block>> =
                precision[span.base..span.base + span.len()].iter().map(|block| inverse(*block)).collect();
            let times = &self.layout.knots[span.first..=span.last];
            let smoothed = Variances::new(times, &noise, &self.walks[span.base..span.base + span.len()]);
            for (after, noise) in smoothed.at.iter().zip(&noise) {
                if let Some(noise) = noise {
                    taken = [taken[0] + (after[0] / noise[0]).min(1.0), taken[1] + (after[2] / noise[2]).min(1.0)];
                }
            }
        }
        // One of the clocks is the others' reference.
        let spans = self.layout.spans.len().max(1) as f64;
        let tied = (spans - 1.0) / spans;
        let loops = (self.layout.node_pairs.len() as f64 - spans + 1.0).max(0.0);
        let total = self.layout.measures.len() as f64;
        [total - tied * taken[0] - loops, total - tied * taken[1]]
    }

    /// The information of each state's edges alone, as if the neighbours were known: precision per
    /// state.
    pub(super) fn local_precision(&self) -> Vec<Block> {
        let mut sums = vec![[0.0; 3]; self.layout.states];
        for (at, measure) in self.layout.measures.iter().enumerate() {
            let Some(precision) = inverse(self.covariance(at)) else { continue };
            for span in [measure.from, measure.to] {
                let sum = &mut sums[self.layout.state(span, measure.knot)];
                sum.iter_mut().zip(precision).for_each(|(sum, p)| *sum += p * self.robust.0[at]);
            }
        }
        sums
    }
}

/// Rounds of solving and reweighting.
const PASSES: usize = 6;

/// Accuracy of each solution, standard deviations per span.
const TOLERANCE: f64 = 1e-3;

/// Number of steps in which the floors may replace the means of the measures.
const FLOOR_SHARES: u32 = 4;

/// Alternations between the constant parts and the asymmetries' variance.
const LEVEL_PASSES: usize = 4;

/// Steps of the solver per solution.
const STEPS_MAX: usize = 400;

/// Iteration ends when no offset moved by more, ns.
const SETTLED_NS: f64 = 0.01;

/// Lines with very different stated errors determine their common scale as well as this many times
/// fewer lines of one kind would.
const UNLIKE: f64 = 4.0;

/// Fewest independent residuals from which a scale is taken.
const FREEDOM_MIN: f64 = 12.0;

/// Floor of the asymmetry's standard deviation, ns.
const ASYMMETRY_MIN_NS: f64 = 0.05;
