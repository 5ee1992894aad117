//! The smoother's live variant: bounded cost per round, knowing the past only.
//!
//! What the joint solution does at once is done step by step, with the same model and the same
//! sources of evidence:
//! 1. every line is corrected by its node pair's asymmetry as known so far, and the round is solved
//!    by least squares with the random errors alone as weights: what is constant does not come in
//!    again each round;
//! 2. every node's state runs through Kalman filters for a bank of wander densities and of errors
//!    that all edges of a node share in a round, and the likeliest one speaks (the node's own
//!    innovations, and everybody's, decide);
//! 3. every node pair's mean deviation from the filtered states is solved as a graph of its own:
//!    what its loops deny goes into the states, the rest is asymmetry.
//!
//! Cost: three solutions of a graph Laplacian, one or two covariances, and a few hundred operations
//! per node; nothing grows with the run.

use std::collections::BTreeMap;

use probe_sync_time::NodeId;

use super::bank::{self, BANK, Bank, FORGET};
use super::evidence::{self, Deviation};
use super::lines::{self, Line, believable, seen};
use super::round::SmootherRound;
use super::solution::SmoothedOffset;
use super::student::{FREEDOM, WEIGHTED_PAIR, WEIGHTED_SINGLE, factor};
use super::white_fm::{self, DENSITIES};
use crate::graph::components::held;
use crate::graph::covariance;
use crate::graph::edges::{Equation, PER_SECOND};
use crate::graph::linear::{Block, Laplacian, Link, Pair, inverse, times};
use crate::kalman::Belief;
use crate::motion::NS_PER_S_PER_PPM;
use crate::statistics::{SIGMAS_95, median};

/// The live smoother of one run.
#[derive(Clone, Debug)]
pub struct Online {
    reference: usize,
    last_ns: Option<i64>,
    nodes: Vec<Bank>,
    node_pairs: BTreeMap<[usize; 2], Mean>,
    /// Log likelihood of each filter of the bank, over all nodes, forgetting.
    common: [f64; BANK],
    /// Log of how usual each filter is.
    usual: [f64; BANK],
    /// Log of their sum.
    usual_sum: f64,
    /// Log of how probable each density of white rates is.
    white_prior: [f64; DENSITIES],
    /// By node, the selected filter.
    chosen: Vec<usize>,
    /// Weighted squares and number of independent residuals, offset and rate.
    scatter: [[f64; 2]; 2],
    asymmetry: f64,
    /// The same for white rates, and for measurements beyond the gates.
    common_white: ([f64; DENSITIES], f64),
    /// Length of the shortest window so far, s; 0 before the second round.
    window: f64,
    /// Length of the latest window, s; twice the one before at most, since a longer gap is a round
    /// that is missing.
    latest_window: f64,
    /// Rounds taken.
    rounds: u64,
    /// Variance that asymmetry causes per node.
    fixed: Vec<f64>,
    /// Per node, the ratio of the variance of a round's state to that from its own edges alone.
    spread: Vec<f64>,
}

/// A node pair's deviation from the states, averaged over rounds.
#[derive(Copy, Clone, Debug)]
struct Mean {
    /// Σ 1/v and Σ d/v.
    weight: f64,
    sum: f64,
    margin: f64,
    asymmetry: f64,
    /// Apparent excess of its asymmetry's variance over that of the others.
    excess: f64,
}

impl Default for Mean {
    fn default() -> Self {
        Self { weight: 0.0, sum: 0.0, margin: 0.0, asymmetry: 0.0, excess: 1.0 }
    }
}

impl Online {
    /// Creates a smoother without knowledge.
    pub fn new(nodes: usize, reference: NodeId) -> Self {
        let usual = bank::usual();
        let mut online = Self {
            reference: reference.index(),
            last_ns: None,
            nodes: vec![Bank::default(); nodes],
            node_pairs: BTreeMap::new(),
            common: [0.0; BANK],
            usual,
            usual_sum: white_fm::log_sum(&usual),
            white_prior: white_fm::prior(),
            chosen: Vec::new(),
            scatter: [[SCATTER_PRIOR; 2]; 2],
            asymmetry: 0.0,
            common_white: ([0.0; DENSITIES], 0.0),
            window: 0.0,
            latest_window: 0.0,
            rounds: 0,
            fixed: Vec::new(),
            spread: Vec::new(),
        };
        online.weigh_filters();
        online
    }

    /// Adds a round; `broken` are the nodes whose clocks have a break before it. Returns every
    /// node's offset at the round's midpoint, `None` if no packets show it.
    pub fn observe(&mut self, round: &SmootherRound<'_>, broken: &[NodeId]) -> Vec<Option<SmoothedOffset>> {
        let delta = self.last_ns.map_or(0, |last| i128::from(round.reference_midpoint.as_ns()) - i128::from(last));
        // The reference's clock was set back: no prediction goes on from there.
        let set_back = self.last_ns.is_some() && delta <= 0;
        let delta = delta.max(0) as f64 / PER_SECOND;
        self.last_ns = Some(round.reference_midpoint.as_ns());
        // Windows tile time; a longer gap is a round that is missing.
        if delta > 0.0 {
            self.window = if self.window > 0.0 { self.window.min(delta) } else { delta };
            self.latest_window = if self.latest_window > 0.0 { delta.min(2.0 * self.latest_window) } else { delta };
        }
        self.forget(broken, set_back, round);
        let lines = self.lines(round);
        self.forget_node_pairs(round, &lines);
        let scales = self.scatter.map(factor);
        let (measured, noise) = self.least_squares(round, &lines, scales);
        let wakes = self.wakes(&lines);
        for node in 0..self.nodes.len() {
            if delta > 0.0 {
                self.nodes[node].predict(delta);
            }
            if let (Some(state), true) = (measured[node], node != self.reference) {
                let [offset, covariance, rate] = noise[node];
                let late = wakes[node].unwrap_or(0.0);
                // Lateness that comes or goes within the window tilts the line by as much from its
                // middle to its end.
                let tilt = if self.latest_window > 0.0 { 2.0 * late / self.latest_window } else { 0.0 };
                let noise = [offset + late.powi(2), covariance, rate + tilt.powi(2)];
                let scale = if wakes[node].is_some() { WAKE_SCALE } else { 1.0 };
                self.nodes[node].update(state, noise, (self.window, scale), &self.usual);
            }
        }
        self.weigh_filters();
        self.renew_node_pairs(&lines, scales);
        self.renew_asymmetry();
        self.rounds += 1;
        (0..self.nodes.len()).map(|node| self.estimate(node)).collect()
    }

    /// Returns the standard deviation of the asymmetry of a median path, ns.
    pub fn asymmetry_sd_ns(&self) -> f64 {
        self.asymmetry.sqrt()
    }

    /// Returns the density of the random walk of a node's rate relative to the reference, ns²/s³.
    pub fn walk_density(&self, node: NodeId) -> f64 {
        bank::density(self.chosen[node.index()])
    }

    fn forget(&mut self, broken: &[NodeId], set_back: bool, round: &SmootherRound<'_>) {
        let all = set_back || broken.iter().any(|node| node.index() == self.reference);
        for (node, bank) in self.nodes.iter_mut().enumerate() {
            if all || broken.iter().any(|other| other.index() == node) {
                bank.forget();
            }
            if bank.is_new() {
                let offset = round.nodes.get(node).filter(|estimate| believable(estimate));
                let offset = offset.map_or(0.0, |estimate| estimate.offset_ns);
                bank.potential = offset.round() as i128;
            }
        }
    }

    /// What was learned about an edge that is excluded now was learned from the fault.
    fn forget_node_pairs(&mut self, round: &SmootherRound<'_>, lines: &[Line]) {
        for edge in round.left_out {
            let (from, to) = (edge.src.index(), edge.dst.index());
            let key = [from.min(to), from.max(to)];
            if lines.iter().all(|line| line.key != key) {
                self.node_pairs.remove(&key);
            }
        }
    }

    fn lines(&mut self, round: &SmootherRound<'_>) -> Vec<Line> {
        let line = |(equation, margin): (Equation, f64)| {
            let potentials = [equation.from, equation.to].map(|node| self.nodes[node].potential);
            Line::new(round, (&equation, margin), potentials)
        };
        let lines: Vec<Line> = lines::usable(self.nodes.len(), round).into_iter().filter_map(line).collect();
        for line in &lines {
            let node_pair = self.node_pairs.entry(line.key).or_default();
            node_pair.margin = if node_pair.margin == 0.0 { line.margin } else { node_pair.margin.min(line.margin) };
        }
        lines
    }

    /// For every node most of whose lines use timestamps taken by a program: their possible common
    /// error in this round, ns. A thread that wakes late reads the clock late for all of them. The
    /// excess of a node pair's margin over its minimum is such lateness on one side or on both, and
    /// it moves an offset by at most the same amount.
    fn wakes(&self, lines: &[Line]) -> Vec<Option<f64>> {
        let mut of_program: Vec<Vec<f64>> = vec![Vec::new(); self.nodes.len()];
        let mut others = vec![0; self.nodes.len()];
        for line in lines {
            let least = self.node_pairs.get(&line.key).map_or(line.margin, |node_pair| node_pair.margin);
            let late = (line.margin - least).max(WAKE_SHARE * least);
            for node in [line.from, line.to] {
                if line.of_program { of_program[node].push(late) } else { others[node] += 1 }
            }
        }
        let of_node = |(late, others): (Vec<f64>, usize)| (late.len() > others).then(|| median(late));
        of_program.into_iter().zip(others).map(of_node).collect()
    }

    /// Every node's state of this round alone, above its potential, and its covariance.
    fn least_squares(
        &mut self,
        round: &SmootherRound<'_>,
        lines: &[Line],
        scales: Pair,
    ) -> (Vec<Option<Pair>>, Vec<Block>) {
        let residuals: Vec<Pair> = lines
            .iter()
            .map(|line| {
                let known = self.node_pairs.get(&line.key).map_or(0.0, |node_pair| node_pair.asymmetry);
                [line.moved.residual[0] - line.sign * known, line.moved.residual[1]]
            })
            .collect();
        let precision: Vec<Block> =
            lines.iter().map(|line| inverse(scaled(line.moved.covariance, scales)).unwrap_or([0.0; 3])).collect();
        let mut weights = vec![1.0; lines.len()];
        let nodes = self.nodes.len();
        let mut shift = vec![[0.0; 2]; nodes];
        let mut graph = Laplacian::new(Vec::new(), vec![true; nodes]);
        for _ in 0..REWEIGHTINGS {
            let links: Vec<Link> = lines
                .iter()
                .zip(precision.iter().zip(&weights))
                .map(|(line, (p, w))| Link { from: line.from, to: line.to, weight: p.map(|p| p * w) })
                .collect();
            let fixed = held(nodes, &links, self.reference);
            graph = Laplacian::new(links, fixed);
            let right = graph.right_side(residuals.iter().copied());
            solve(&graph, &right, &mut shift);
            for (at, line) in lines.iter().enumerate() {
                let left = remainder(residuals[at], &shift, line);
                let scaled = times(precision[at], left);
                weights[at] = ((FREEDOM + 2.0) / (FREEDOM + scaled[0] * left[0] + scaled[1] * left[1])).min(1.0);
            }
        }
        self.scatter_of(lines, &residuals, &shift, &weights);
        let noise = self.noise(&graph);
        let state = |node: usize| {
            let at = seen(round, node, self.nodes[node].potential)?;
            (!graph.fixed()[node]).then(|| [at[0] + shift[node][0], at[1] + shift[node][1]])
        };
        ((0..nodes).map(state).collect(), noise)
    }

    /// Covariance of every node's state in this round. In large graphs the share of the neighbours'
    /// errors, which changes slowly, is not renewed in every round.
    fn noise(&mut self, graph: &Laplacian) -> Vec<Block> {
        let own = graph.local_inverse();
        if self.spread.len() != own.len() || self.due(0) {
            let whole = covariance(graph, self.reference);
            let ratio = |(whole, own): (&Block, &Block)| if own[0] > 0.0 { (whole[0] / own[0]).max(1.0) } else { 0.0 };
            self.spread = whole.iter().zip(own).map(ratio).collect();
            return whole;
        }
        let usual = median(self.spread.iter().copied().filter(|ratio| *ratio > 0.0));
        let scaled = |(own, ratio): (&Block, &f64)| own.map(|v| v * if *ratio > 0.0 { *ratio } else { usual });
        own.iter().zip(&self.spread).map(scaled).collect()
    }

    /// Whether the expensive part number `part` of the work is done in this round.
    fn due(&self, part: u64) -> bool {
        self.nodes.len() <= DEAR_EACH_ROUND || (self.rounds + part * DEAR_ROUNDS / 2).is_multiple_of(DEAR_ROUNDS)
    }

    /// Distance of the lines from their least squares, relative to their stated errors; forgets
    /// slowly.
    fn scatter_of(&mut self, lines: &[Line], residuals: &[Pair], shift: &[Pair], weights: &[f64]) {
        let mut touched: Vec<usize> = lines.iter().flat_map(|line| [line.from, line.to]).collect();
        touched.sort_unstable();
        touched.dedup();
        let freedom = lines.len() as f64 - touched.len() as f64 + 1.0;
        // The first rounds' residuals still hold the asymmetries.
        let settled =
            self.node_pairs.values().filter(|node_pair| node_pair.weight > 0.0).count() * 2 > self.node_pairs.len();
        if freedom < 1.0 || !settled {
            return;
        }
        for k in 0..2 {
            let squares: f64 = lines
                .iter()
                .enumerate()
                .map(|(at, line)| {
                    weights[at] * remainder(residuals[at], shift, line)[k].powi(2) / line.moved.covariance[2 * k]
                })
                .sum();
            let [sum, count] = &mut self.scatter[k];
            (*sum, *count) = (FORGET * *sum + squares / WEIGHTED_PAIR, FORGET * *count + freedom);
        }
    }

    /// Averages the likelihoods of the filters over all nodes, and selects the filter of every node.
    fn weigh_filters(&mut self) {
        let heard = self.nodes.iter().filter(|bank| !bank.is_new()).count().max(1) as f64;
        let mut total = [0.0; BANK];
        for bank in &self.nodes {
            total.iter_mut().zip(&bank.likelihood).for_each(|(sum, likelihood)| *sum += likelihood);
        }
        self.common = total.map(|sum| sum / heard);
        let (mut white, mut beyond) = ([0.0; DENSITIES], 0.0);
        for bank in &self.nodes {
            white.iter_mut().zip(&bank.white.likelihood).for_each(|(sum, likelihood)| *sum += likelihood);
            beyond += bank.beyond_gate;
        }
        self.common_white = (white.map(|sum| sum / heard), beyond / heard);
        self.chosen = (0..self.nodes.len()).map(|node| self.likeliest(node)).collect();
    }

    fn scores(&self, node: usize) -> [f64; BANK] {
        let likelihood = &self.nodes[node].likelihood;
        std::array::from_fn(|k| likelihood[k] + COMMON_WEIGHT * self.common[k] + self.usual[k])
    }

    /// How far the node's lines miss the midpoints of their windows because its rate is set anew
    /// within them, beyond what `walk` explains, ns².
    fn strayed(&self, node: usize, walk: f64) -> f64 {
        let bank = &self.nodes[node];
        let walks = white_fm::log_sum(&self.scores(node)) - self.usual_sum;
        let (common, beyond) = &self.common_white;
        let walks = walks + bank.beyond_gate + COMMON_WEIGHT * beyond;
        let white = std::array::from_fn(|at| bank.white.likelihood[at] + COMMON_WEIGHT * common[at]);
        let density = white_fm::mean_density(&white_fm::weights(&white, walks, &self.white_prior));
        white_fm::excess(density, walk, self.latest_window)[0]
    }

    fn likeliest(&self, node: usize) -> usize {
        let scores = self.scores(node);
        (0..BANK).max_by(|a, b| scores[*a].total_cmp(&scores[*b])).unwrap_or(0)
    }

    /// Adds this round to the node pairs' means, and divides them into the parts due to the states
    /// and to asymmetry.
    fn renew_node_pairs(&mut self, lines: &[Line], scales: Pair) {
        let state = |node: usize| {
            let known = || self.nodes[node].settled(self.chosen[node]).map(|belief| belief.state[0]);
            if node == self.reference { Some(0.0) } else { known() }
        };
        let states: Vec<Option<f64>> = (0..self.nodes.len()).map(state).collect();
        for line in lines {
            let (Some(a), Some(b)) = (states[line.from], states[line.to]) else { continue };
            let node_pair = self.node_pairs.entry(line.key).or_default();
            let [from, to] = line.believed;
            let value = line.moved.residual[0] + (to[0] - from[0]);
            let variance = scaled(line.moved.covariance, scales)[0];
            node_pair.weight = PAIR_FORGET * node_pair.weight + 1.0 / variance;
            node_pair.sum = PAIR_FORGET * node_pair.sum + line.sign * (value - (b - a)) / variance;
        }
    }

    fn renew_asymmetry(&mut self) {
        let margin = median(self.node_pairs.values().map(|node_pair| node_pair.margin)).max(1.0);
        if self.asymmetry == 0.0 {
            self.asymmetry = evidence::asymmetry(&[], 0.0, margin);
        }
        let known: Vec<([usize; 2], Mean)> = self
            .node_pairs
            .iter()
            .filter(|(_, node_pair)| node_pair.weight > 0.0)
            .map(|(key, node_pair)| (*key, *node_pair))
            .collect();
        let scale = |node_pair: &Mean| 0.5 * (1.0 + (node_pair.margin / margin).powi(2));
        let asymmetric = |node_pair: &Mean| self.asymmetry * scale(node_pair) * node_pair.excess;
        let weight = |node_pair: &Mean| 1.0 / (asymmetric(node_pair) + 1.0 / node_pair.weight);
        let links: Vec<Link> = known
            .iter()
            .map(|(key, node_pair)| Link { from: key[0], to: key[1], weight: [weight(node_pair), 0.0, 1.0] })
            .collect();
        let graph = Laplacian::new(links.clone(), held(self.nodes.len(), &links, self.reference));
        let right = graph.right_side(known.iter().map(|(_, node_pair)| [node_pair.sum / node_pair.weight, 0.0]));
        let variances: Vec<f64> = known.iter().map(|(_, node_pair)| asymmetric(node_pair)).collect();
        let mut shift = vec![[0.0; 2]; self.nodes.len()];
        solve(&graph, &right, &mut shift);
        // Node pairs among nodes that nothing ties to the reference close no loops of its graph.
        let tied = |key: &[usize; 2]| key.iter().any(|node| !graph.fixed()[*node]);
        let node_pairs = known.iter().filter(|(key, _)| tied(key)).count() as f64;
        let visible = ((node_pairs - graph.free() as f64) / node_pairs.max(1.0)).clamp(0.0, 1.0);
        let mut deviations = Vec::with_capacity(known.len());
        for (key, old) in known.iter().filter(|(key, _)| tied(key)) {
            let rest = old.sum / old.weight - (shift[key[1]][0] - shift[key[0]][0]);
            let random = 1.0 / old.weight;
            deviations.push(Deviation {
                square: rest * rest / (old.excess * WEIGHTED_SINGLE),
                scale: scale(old),
                random,
            });
            if let Some(node_pair) = self.node_pairs.get_mut(key) {
                node_pair.asymmetry = asymmetric(old) * weight(old) * rest;
                node_pair.sum = rest * node_pair.weight;
                let expected = visible * (self.asymmetry * scale(old) + random);
                let square = if expected > 0.0 { rest * rest / expected } else { 0.0 };
                node_pair.excess = ((FREEDOM + square) / (FREEDOM + 1.0)).max(1.0);
            }
        }
        for (bank, shift) in self.nodes.iter_mut().zip(&shift) {
            bank.shift(shift[0]);
        }
        self.renew_fixed(&graph, &known, &variances);
        self.asymmetry = evidence::asymmetry(&deviations, visible, margin);
    }

    /// The asymmetry's share of every node's error; in large graphs not in every round.
    fn renew_fixed(&mut self, graph: &Laplacian, known: &[([usize; 2], Mean)], asymmetric: &[f64]) {
        if self.fixed.len() == self.nodes.len() && !self.due(1) {
            return;
        }
        let mut part = vec![[0.0; 2]; self.nodes.len()];
        for ((key, node_pair), asymmetric) in known.iter().zip(asymmetric) {
            let weight = 1.0 / (asymmetric + 1.0 / node_pair.weight);
            for node in key {
                part[*node] = [part[*node][0] + asymmetric * weight * weight, part[*node][1] + weight];
            }
        }
        let whole = covariance(graph, self.reference);
        let share = |(whole, [part, all]): (&Block, [f64; 2])| if all > 0.0 { whole[0] * part / all } else { 0.0 };
        self.fixed = whole.iter().zip(part).map(share).collect();
    }

    fn estimate(&self, node: usize) -> Option<SmoothedOffset> {
        if node == self.reference {
            return Some(SmoothedOffset::ZERO);
        }
        let bank = &self.nodes[node];
        if bank.unheard > UNHEARD_MAX {
            return None;
        }
        let Belief { state, covariance } = bank.belief(self.chosen[node])?;
        let asymmetry = self.fixed.get(node).copied().unwrap_or(self.asymmetry);
        let chosen = self.chosen[node];
        // What all edges err by alike in the chosen filter explains a part of it.
        let stated = bank::shared_ns(chosen).powi(2).min(covariance[0]);
        let strayed = (self.strayed(node, bank::density(chosen)) - stated).max(0.0);
        let sigma_ns = (covariance[0] + strayed + asymmetry).sqrt();
        Some(SmoothedOffset {
            offset_ns: bank.potential as f64 + state[0],
            drift_ppm: state[1] / NS_PER_S_PER_PPM,
            sigma_ns,
            half_width_95_ns: SIGMAS_95 * sigma_ns,
            // More packets do not reduce what a clock strays within a window either.
            asymmetry_sigma_ns: (asymmetry + strayed).sqrt(),
            // Of the rate over the window: the pace tells by it whether rates change from window to
            // window.
            drift_sigma_ppm: covariance[2].sqrt() / NS_PER_S_PER_PPM,
            offset_drift_covariance: covariance[1] / NS_PER_S_PER_PPM,
        })
    }
}

fn scaled([a, ab, b]: Block, scales: Pair) -> Block {
    [a * scales[0], ab * (scales[0] * scales[1]).sqrt(), b * scales[1]]
}

fn remainder(residual: Pair, shift: &[Pair], line: &Line) -> Pair {
    [0, 1].map(|k| residual[k] - (shift[line.to][k] - shift[line.from][k]))
}

fn solve(graph: &Laplacian, right: &[Pair], x: &mut [Pair]) {
    let tolerance = TOLERANCE * (graph.free() as f64).sqrt();
    graph.solve_iterative(right, x, tolerance, STEPS_MAX);
}

/// Weight of a node pair's mean deviation one round later: a changed route is learned in some
/// hundred rounds, however long the run.
const PAIR_FORGET: f64 = 0.998;

/// Weight of the common wander in a node's own, in nodes.
const COMMON_WEIGHT: f64 = 4.0;

/// Independent residuals that the claimed covariances count for.
const SCATTER_PRIOR: f64 = 30.0;

/// Student-t weights per round.
const REWEIGHTINGS: usize = 2;

/// Accuracy of a solution, standard deviations per node, and most steps for it.
const TOLERANCE: f64 = 1e-3;
const STEPS_MAX: usize = 500;

/// Largest number of nodes for which covariances are updated in every round; above it, every this
/// many rounds.
const DEAR_EACH_ROUND: usize = 160;
const DEAR_ROUNDS: u64 = 8;

/// Share of the least margin that is the assumed error of a program's timestamps in every round:
/// before a second round nothing shows how late threads wake.
const WAKE_SHARE: f64 = 0.1;
/// How much larger the common errors of a node's lines are in a round with timestamps taken by a
/// program: 60 ns to 15 µs instead of 1 to 250 ns.
const WAKE_SCALE: f64 = 60.0;

/// Rounds after which a node that no packet tells about has no estimate.
const UNHEARD_MAX: u32 = 8;
