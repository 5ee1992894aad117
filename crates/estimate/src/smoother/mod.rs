//! The smoother over a whole run: every node's offset at any time, with its error, from all rounds together.
//!
//! Place in the flow: after the rounds (`graph` gave each round's offsets, `faults` said which edges lie and which clocks were
//! stepped), before `series` and alignment. One sparse system holds every node's clock at every round's midpoint, the random walk of its
//! rate, every edge's line with its covariance, and one constant asymmetry per pair of nodes (`layout`, `system`). Around it
//! iterate Student-t weights, the scale of the edges' covariances, the asymmetries' variance and each clock's wander (`evidence`). The error
//! comes from the same model (`variance`, `solution`). `docs/accuracy.md` derives it and shows how it was calibrated.
//!
//! Two nodes by hand: node 1 is 1000 ns ahead and gains nothing; rounds measure theta = 990, 1010, 1000 with equal
//! errors. All is one clock without wander, so the smoothed offset is 1000 ns at every round, with a third of a round's variance.
//! A path asymmetry of +30 ns would make all three 30 ns larger and nothing here would show it: with two nodes there is no
//! loop, so the interval takes its width from the prior alone.
//!
//! What no estimator can see: asymmetry common to all paths between two parts of the nodes. The interval assumes that the
//! asymmetries of different pairs are independent; the hard interval of `graph` does not.
//!
//! What it does not do: decide what is a step or a lie (`faults`), or read packets again.

mod evidence;
mod layout;
mod motion;
mod online;
mod packets;
mod solution;
mod system;
mod variance;

use std::collections::BTreeSet;

use probe_sync_time::{Edge, NodeId, Reference, Timestamp};

use self::evidence::Deviation;
use self::layout::{Bond, Layout};
pub use self::online::Online;
pub use self::packets::Exchanges;
use self::packets::Level;
pub use self::solution::{PathAsymmetry, RunSolution, SmoothedOffset};
use self::system::{System, Weights};
use self::variance::Variances;
use crate::graph::GraphSolution;
use crate::graph::linear::{Block, Laplacian, Link, Pair, inverse, times};
use crate::median::median;
use crate::window::{EdgeAlphaBeta, NodeEstimate};

/// A solved round, as the smoother takes it.
#[derive(Copy, Clone, Debug)]
pub struct Round<'a> {
    /// The instant at which the round's offsets hold, ns on the reference's clock. Rounds come in order of it.
    pub reference_midpoint: Timestamp<Reference>,
    /// The round's fitted edges.
    pub edges: &'a [EdgeAlphaBeta],
    /// What the graph made of them, in order of node.
    pub nodes: &'a [NodeEstimate],
    /// Edges that the graph left out; they are left out here too.
    pub excluded: &'a [(Edge, String)],
    /// More edges to be left out.
    pub left_out: &'a [Edge],
}

impl<'a> Round<'a> {
    /// A round as the graph solved it.
    pub fn solved(
        reference_midpoint: Timestamp<Reference>,
        edges: &'a [EdgeAlphaBeta],
        solution: &'a GraphSolution,
        left_out: &'a [Edge],
    ) -> Self {
        let GraphSolution { nodes, excluded, .. } = solution;
        Self { reference_midpoint, edges, nodes, excluded, left_out }
    }
}

/// A clock that is not continued from one round to the next: it was stepped or restarted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Break {
    /// Whose clock.
    pub node: NodeId,
    /// The first round (place in the list) that sees the clock after the break.
    pub round: usize,
}

/// What the smoother may assume.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct SmootherOptions {
    /// Index of the reference node.
    pub reference: NodeId,
    /// Density of the rates' random walk, ns²/s³, positive, if it is known; otherwise it is estimated.
    pub walk_density: Option<f64>,
    /// Variance of the paths' asymmetry, ns², if it is known; otherwise it is estimated.
    pub asymmetry_variance: Option<f64>,
    /// Scale the edges' covariances to their residuals.
    pub rescale: bool,
    /// Weigh down lines and asymmetries that lie far from the rest (Student-t).
    pub robust: bool,
}

impl Default for SmootherOptions {
    fn default() -> Self {
        Self { reference: NodeId(0), walk_density: None, asymmetry_variance: None, rescale: true, robust: true }
    }
}

/// Smooths a run of `nodes` nodes from its rounds alone. Nodes and times that no packet tells about have no estimate.
pub fn smooth_run(nodes: usize, rounds: &[Round<'_>], breaks: &[Break], options: &SmootherOptions) -> RunSolution {
    solution::collect(nodes, fitted(nodes, rounds, breaks, options))
}

/// Smooths a run of which the exchanges are at hand: first from its rounds, then from all packets (see `packets`).
pub fn smooth_packets(
    nodes: usize,
    rounds: &[Round<'_>],
    breaks: &[Break],
    exchanges: &Exchanges<'_>,
    options: &SmootherOptions,
) -> RunSolution {
    let mut fit = fitted(nodes, rounds, breaks, options);
    packets::renew_motion(&mut fit, exchanges);
    fit.settle(options);
    let floors = packets::floors(&fit, exchanges);
    fit.level(&floors, options);
    solution::collect(nodes, fit)
}

fn fitted(nodes: usize, rounds: &[Round<'_>], breaks: &[Break], options: &SmootherOptions) -> Fit {
    let layout = Layout::new(nodes, rounds, &all_breaks(nodes, rounds, breaks, options.reference));
    let walks = evidence::walks(&layout, nodes, rounds, options);
    let mut fit = Fit::new(layout, walks, options);
    fit.settle(options);
    fit
}

/// The knots are times of the reference's clock: where that is stepped or does not go on, nobody's course can be followed.
fn all_breaks(nodes: usize, rounds: &[Round<'_>], breaks: &[Break], reference: NodeId) -> Vec<Break> {
    let stepped = breaks.iter().filter(|cut| cut.node == reference).map(|cut| cut.round);
    let set_back = (1..rounds.len()).filter(|k| !follows(&rounds[k - 1], &rounds[*k]));
    let everybody = |round: usize| (0..nodes).map(move |node| Break { node: NodeId(node as u32), round });
    breaks.iter().copied().chain(stepped.chain(set_back).flat_map(everybody)).collect()
}

/// Whether a round is so much later than the one before that a clock can be followed from one to the other.
fn follows(before: &Round<'_>, round: &Round<'_>) -> bool {
    i128::from(round.reference_midpoint.as_ns()) - i128::from(before.reference_midpoint.as_ns()) >= KNOTS_APART_MIN_NS
}

/// The iteration's present belief.
struct Fit {
    reference: usize,
    layout: Layout,
    walks: Vec<f64>,
    states: Vec<Pair>,
    /// Of every bond, ns.
    asymmetries: Vec<f64>,
    /// Covariance of every measure, not yet rescaled.
    covariances: Vec<Block>,
    /// Factors on the variances of offset and rate.
    scales: Pair,
    /// Student-t weights of measures and bonds.
    robust: (Vec<f64>, Vec<f64>),
    /// Variance of a median path's asymmetry, ns².
    asymmetry: f64,
    /// Per bond, the random variance of the constant part of theta where it comes from all packets together, ns².
    levels: Vec<Option<f64>>,
    /// Steps of the solver, and whether the last solution was reached.
    steps: usize,
    converged: bool,
}

impl Fit {
    fn new(layout: Layout, walks: Vec<f64>, options: &SmootherOptions) -> Self {
        let unknown = || evidence::asymmetry(&[], 0.0, layout.margin_ns);
        let asymmetry = options.asymmetry_variance.unwrap_or_else(unknown);
        Self {
            reference: options.reference.index(),
            states: layout.start.clone(),
            asymmetries: vec![0.0; layout.bonds.len()],
            levels: vec![None; layout.bonds.len()],
            covariances: layout.measures.iter().map(|measure| measure.covariance).collect(),
            scales: [1.0; 2],
            robust: (vec![1.0; layout.measures.len()], vec![1.0; layout.bonds.len()]),
            asymmetry,
            steps: 0,
            converged: true,
            walks,
            layout,
        }
    }

    /// Solves and reweighs until nothing moves.
    fn settle(&mut self, options: &SmootherOptions) {
        for _ in 0..PASSES {
            if !self.pass(options) {
                break;
            }
        }
    }

    /// Moves whole clocks by a constant each, to where the constant parts of the bonds' thetas want them. Where the
    /// packets together say nothing of a bond, the mean of its measures speaks.
    fn level(&mut self, floors: &[Option<Level>], options: &SmootherOptions) {
        let weights = self.weights();
        let apart = System::new(&self.layout, &weights).all_apart(&self.states);
        let whole = |node: usize| self.layout.spans.iter().filter(|span| span.node == node).count() == 1;
        let blend = |share: f64| -> Vec<Level> {
            let level = |(bond, floor): (&Bond, &Option<Level>)| {
                let mean = mean(&self.layout, &weights, &apart, bond);
                let Some(floor) = floor.filter(|_| bond.nodes.into_iter().all(whole)) else { return mean };
                Level {
                    value: share * floor.value + (1.0 - share) * mean.value,
                    variance: share * share * floor.variance + (1.0 - share).powi(2) * mean.variance,
                }
            };
            self.layout.bonds.iter().zip(floors).map(level).collect()
        };
        // Both are biased, each in its way; what is wrong with them breaks the loops, and so the loops choose.
        let candidates = (0..=FLOOR_SHARES).map(|k| blend(f64::from(k) / f64::from(FLOOR_SHARES)));
        let broken = |levels: &Vec<Level>| {
            let (rests, _) = self.level_once(levels);
            rests
                .iter()
                .zip(&self.robust.1)
                .zip(&self.layout.bonds)
                .map(|((r, w), b)| w * r.value * r.value / b.scale)
                .sum::<f64>()
        };
        let Some(levels) = candidates.min_by(|a, b| broken(a).total_cmp(&broken(b))) else { return };
        let mut shift = Vec::new();
        for _ in 0..LEVEL_PASSES {
            let (rests, found) = self.level_once(&levels);
            shift = found;
            self.judge_bonds(&rests, options);
            self.asymmetries = rests.iter().map(|rest| rest.value).collect();
        }
        for span in &self.layout.spans {
            let states = &mut self.states[span.base..span.base + span.len()];
            states.iter_mut().for_each(|state| state[0] += shift[span.node][0]);
        }
        self.levels = levels.iter().map(|level| Some(level.variance)).collect();
    }

    /// What the states leave of every bond's theta in the mean.
    fn means(&self) -> Vec<Level> {
        let weights = self.weights();
        let apart = System::new(&self.layout, &weights).all_apart(&self.states);
        self.layout.bonds.iter().map(|bond| mean(&self.layout, &weights, &apart, bond)).collect()
    }

    /// What the best constant per clock leaves of every bond's level, and these constants.
    fn level_once(&self, levels: &[Level]) -> (Vec<Level>, Vec<Pair>) {
        let link = |(at, level): (usize, &Level)| {
            let [from, to] = self.layout.bonds[at].nodes;
            Link { from, to, weight: [1.0 / (self.asymmetry_of(at) + level.variance), 0.0, 1.0] }
        };
        let links: Vec<Link> = levels.iter().enumerate().map(link).collect();
        let mut shift = vec![[0.0; 2]; self.walks.len()];
        let held = solution::component(shift.len(), &links, self.reference);
        let graph = Laplacian::new(links, held);
        let right = graph.right_side(levels.iter().map(|level| [level.value, 0.0]));
        graph.solve_iterative(&right, &mut shift, TOLERANCE, STEPS_MAX);
        let rest = |(level, Bond { nodes: [from, to], .. }): (&Level, &Bond)| Level {
            value: level.value - (shift[*to][0] - shift[*from][0]),
            ..*level
        };
        (levels.iter().zip(&self.layout.bonds).map(rest).collect(), shift)
    }

    /// Variance of a bond's asymmetry, larger for one that lies far from the rest, ns².
    fn asymmetry_of(&self, bond: usize) -> f64 {
        let floor = ASYMMETRY_MIN_NS * ASYMMETRY_MIN_NS;
        (self.asymmetry * self.layout.bonds[bond].scale).max(floor) / self.robust.1[bond].max(f64::MIN_POSITIVE)
    }

    /// The rescaled covariance of a measure.
    fn covariance(&self, at: usize) -> Block {
        self.rescaled(self.covariances[at])
    }

    fn rescaled(&self, [a, ab, b]: Block) -> Block {
        [a * self.scales[0], ab * (self.scales[0] * self.scales[1]).sqrt(), b * self.scales[1]]
    }

    fn weights(&self) -> Weights {
        let measure = |at: usize| {
            let precision = inverse(self.covariance(at)).unwrap_or([0.0; 3]);
            precision.map(|p| p * self.robust.0[at])
        };
        Weights {
            measures: (0..self.covariances.len()).map(measure).collect(),
            bonds: (0..self.layout.bonds.len()).map(|bond| 1.0 / self.asymmetry_of(bond)).collect(),
            walks: self.walks.clone(),
        }
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
        let rests: Vec<Level> =
            self.layout.bonds.iter().map(|bond| mean(&self.layout, &weights, &apart, bond)).collect();
        self.judge_bonds(&rests, options);
        self.judge_measures(&apart, options);
        let moved = before.iter().zip(&self.states).map(|(a, b)| (a[0] - b[0]).abs()).fold(0.0, f64::max);
        moved > SETTLED_NS
    }

    /// Renews the asymmetries' variance and the bonds' robust weights from what the states leave of the bonds' thetas.
    fn judge_bonds(&mut self, rests: &[Level], options: &SmootherOptions) {
        let bonds = rests.len() as f64;
        let seen: BTreeSet<usize> = self.layout.bonds.iter().flat_map(|bond| bond.nodes).collect();
        let visible = if rests.is_empty() { 0.0 } else { ((bonds - seen.len() as f64 + 1.0) / bonds).clamp(0.0, 1.0) };
        let deviation = |(rest, bond): (&Level, &Bond)| Deviation {
            square: rest.value * rest.value,
            scale: bond.scale,
            random: rest.variance,
        };
        let deviations: Vec<Deviation> = rests.iter().zip(&self.layout.bonds).map(deviation).collect();
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
                ((FREEDOM + 1.0) / (FREEDOM + d.square / expected)).min(1.0)
            };
            self.robust.1 = deviations.iter().map(weight).collect();
        }
    }

    /// Renews the scales of the covariances and the measures' robust weights.
    fn judge_measures(&mut self, apart: &[Pair], options: &SmootherOptions) {
        let residuals = self.residuals(apart);
        if options.rescale {
            let kept = if options.robust { WEIGHTED_PAIR } else { 1.0 };
            let freedom = self.freedom();
            for (k, freedom) in freedom.into_iter().enumerate().filter(|(_, freedom)| *freedom >= FREEDOM_MIN) {
                let squares = residuals.iter().zip(&self.robust.0).zip(&self.covariances);
                let sum: f64 = squares
                    .map(|((residual, weight), covariance)| weight * residual[k].powi(2) / covariance[2 * k])
                    .sum();
                self.scales[k] = (sum / (kept * freedom)).clamp(SCALE_MIN, 1.0 / SCALE_MIN);
            }
        }
        if !options.robust {
            return;
        }
        let weight = |at: usize| {
            let precision = inverse(self.covariance(at)).unwrap_or([0.0; 3]);
            let scaled = times(precision, residuals[at]);
            let square = scaled[0] * residuals[at][0] + scaled[1] * residuals[at][1];
            ((FREEDOM + 2.0) / (FREEDOM + square)).min(1.0)
        };
        self.robust.0 = (0..residuals.len()).map(weight).collect();
    }

    fn residuals(&self, apart: &[Pair]) -> Vec<Pair> {
        let mut residuals = vec![[0.0; 2]; self.layout.measures.len()];
        for (bond, asymmetry) in self.layout.bonds.iter().zip(&self.asymmetries) {
            for at in bond.measures.clone() {
                let measure = &self.layout.measures[at];
                residuals[at] =
                    [measure.value[0] - apart[at][0] - measure.sign * asymmetry, measure.value[1] - apart[at][1]];
            }
        }
        residuals
    }

    /// Independent residuals of offset and of rate: measures less what the states and asymmetries took up.
    fn freedom(&self) -> Pair {
        let mut taken = [0.0; 2];
        let precision = self.local_precision();
        for span in &self.layout.spans {
            let noise: Vec<Option<Block>> =
                precision[span.base..span.base + span.len()].iter().map(|block| inverse(*block)).collect();
            let times = &self.layout.knots[span.first..=span.last];
            let smoothed = Variances::new(times, &noise, self.walks[span.node]);
            for (after, noise) in smoothed.at.iter().zip(&noise) {
                if let Some(noise) = noise {
                    taken = [taken[0] + (after[0] / noise[0]).min(1.0), taken[1] + (after[2] / noise[2]).min(1.0)];
                }
            }
        }
        // One of the clocks is the others' reference.
        let spans = self.layout.spans.len().max(1) as f64;
        let tied = (spans - 1.0) / spans;
        let loops = (self.layout.bonds.len() as f64 - spans + 1.0).max(0.0);
        let total = self.layout.measures.len() as f64;
        [total - tied * taken[0] - loops, total - tied * taken[1]]
    }

    /// What each state's edges alone say of it, as if the neighbours were known: precision per state.
    fn local_precision(&self) -> Vec<Block> {
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

/// Mean residual of a bond over all its measures.
fn mean(layout: &Layout, weights: &Weights, apart: &[Pair], bond: &Bond) -> Level {
    let (mut pull, mut grip) = (0.0, 0.0);
    for at in bond.measures.clone() {
        let measure = &layout.measures[at];
        let residual = [measure.value[0] - apart[at][0], measure.value[1] - apart[at][1]];
        pull += measure.sign * times(weights.measures[at], residual)[0];
        grip += weights.measures[at][0];
    }
    let variance = if grip > 0.0 { 1.0 / grip } else { f64::INFINITY };
    Level { value: if grip > 0.0 { pull / grip } else { 0.0 }, variance }
}

/// Median distance of the knots: the windows' length, s.
fn typical_window(knots: &[f64]) -> f64 {
    median(knots.windows(2).map(|pair| pair[1] - pair[0]).filter(|apart| *apart > 0.0))
}

/// Knots closer than this would make the random walk between them stiffer than f64 can hold beside the measures, ns.
const KNOTS_APART_MIN_NS: i128 = 1_000_000;

/// Rounds of solving and reweighting.
const PASSES: usize = 6;

/// Accuracy of each solution, standard deviations per span.
const TOLERANCE: f64 = 1e-3;

/// In so many steps the floors may replace the means of the measures.
const FLOOR_SHARES: u32 = 4;

/// Alternations between the constant parts and the asymmetries' variance.
const LEVEL_PASSES: usize = 4;

/// Steps of the solver per solution.
const STEPS_MAX: usize = 400;

/// Iteration ends when no offset moved by more, ns.
const SETTLED_NS: f64 = 0.01;

/// ν of the Student-t weights.
const FREEDOM: f64 = 4.0;

/// What capped Student-t weights leave of a normal variable's variance, E[w·z²]: of one number, and of a pair. Sums of
/// weighted squares are divided by it, or every variance would come out a fifth too small.
const WEIGHTED_SINGLE: f64 = 0.766_616;
const WEIGHTED_PAIR: f64 = 0.789_388;

/// Fewest independent residuals from which a scale is taken.
const FREEDOM_MIN: f64 = 12.0;

/// Smallest factor on a variance, and one over the largest.
const SCALE_MIN: f64 = 0.04;

/// Floor of the asymmetry's standard deviation, ns.
const ASYMMETRY_MIN_NS: f64 = 0.05;

/// The normal distribution's 97.5 % point.
const NORMAL_975: f64 = 1.959_964;

#[cfg(test)]
mod tests;
