//! Robust estimation: spanning tree, reweighted least squares, asymmetry variance and outliers.
//! - Weights: edge e has covariance C_e (random error) plus the asymmetry variance σ_a²·s_e²·k_e on
//!   its offset, where s_e is its margin over the median margin and k_e the number of edges between
//!   the same two nodes: those share one path, so k of them may count as one asymmetry and not as
//!   k. Student-t with ν = 4 for the pair (offset, drift): w = min(1, (ν + 2)/(ν + rᵀC⁻¹r)).
//!   Capped, because an edge that no loop tests has r = 0 and must not count for more than its
//!   covariance says.
//! - Asymmetry: E Σ w·r² = Σ w·C + σ_a²·(L − N + 1) for L links, hence with a prior of variance p²
//!   and weight m `σ_a² = (m·p² + max(0, Σ w·(r²/(k s²) − C/(k s²)·(L−N+1)/L))) / (m + L − N + 1)`.
//!   A graph without loops has only the prior. Drifts get an excess variance in the same way,
//!   without prior. Both are held to [`EXCESS_OVER_TYPICAL`] times what the MEDIAN residual says: E
//!   r² = σ²·(L − N + 1)/L, so σ² ≈ median(r²)/(0.455·(L − N + 1)/L). Without that a node whose
//!   timestamps differ by peer feeds the variance by which its own edges are judged (6 edges of 48
//!   suffice) until no edge is an outlier any more.
//! - Broken windows: an edge that no straight line fits by more than a typical delay saw a clock
//!   step. It says nothing about this round and is left out before anything is solved, while any
//!   edge is left that fits.
//! - Outliers: residuals beyond so many ([`OUTLIER_DEVIATIONS`]) scaled median absolute and
//!   standard deviations; the weights of nearer ones are small already. A node most of whose edges
//!   are outliers loses them at once.
//!
//! It cannot find a node whose edges are all wrong by the same amount; that is indistinguishable
//! from an offset.

use std::collections::{BTreeMap, VecDeque};

use probe_sync_lines::EdgeFit;
use probe_sync_time::Edge;

use super::bounds::{self, Arc, Intervals};
use super::edges::{Equation, Moved, State};
use super::input::{GraphInput, GraphOptions};
use super::linear::{Laplacian, Link, Pair, inverse, times};
use crate::statistics::{TO_SIGMA, median};

/// A round being solved.
pub(super) struct Problem {
    pub(super) options: GraphOptions,
    pub(super) reference: usize,
    pub(super) equations: Vec<Equation>,
    pub(super) excluded: Vec<(Edge, String)>,
    pub(super) states: Vec<State>,
    pub(super) reachable: Vec<bool>,
    /// Edges that close a loop, with the sum of the loop, ns.
    pub(super) loops: Vec<(Edge, f64)>,
    /// Median margin of the usable edges, ns.
    pub(super) margin: f64,
    /// Excess variances: asymmetry in ns², drift in (ns/s)².
    pub(super) excess: Pair,
    pub(super) converged: bool,
    pub(super) iterations: u32,
    pub(super) solver_steps: u32,
    /// The last normal matrix.
    pub(super) laplacian: Laplacian,
    /// Student-t weight of each equation.
    pub(super) weights: Vec<f64>,
    midpoint: i128,
}

impl Problem {
    pub(super) fn new(input: &GraphInput<'_>, options: &GraphOptions) -> Self {
        let mut equations = Vec::with_capacity(input.edges.len());
        let mut excluded = Vec::new();
        let fits = input.edges.iter().filter(|edge| edge.feasible && Equation::defect(edge).is_none());
        let typical = median(fits.map(|edge| edge.margin_ns.max(MARGIN_MIN_NS)));
        for (index, fitted) in input.edges.iter().enumerate() {
            match Equation::defect(fitted) {
                Some(defect) => excluded.push((fitted.edge(), format!("the fit {defect}"))),
                None if broken(fitted, typical) => excluded.push((
                    fitted.edge(),
                    format!("no straight line fits its packets within {:.0} ns: a clock stepped", -fitted.margin_ns),
                )),
                None => equations.push(Equation::new(index, fitted)),
            }
        }
        let margins = || equations.iter().map(|equation| input.edges[equation.index].margin_ns.max(0.0));
        let margin = median(margins()).max(MARGIN_MIN_NS);
        let least = asymmetry_scales_min(equations.iter().map(|edge| [edge.from, edge.to]));
        let scales: Vec<f64> = margins().zip(least).map(|(of, least)| (of / margin).max(least)).collect();
        equations.iter_mut().zip(scales).for_each(|(equation, scale)| equation.asymmetry_scale = scale);
        Self {
            options: *options,
            reference: input.reference.index(),
            equations,
            excluded,
            states: vec![State::default(); input.nodes],
            reachable: vec![false; input.nodes],
            loops: Vec::new(),
            margin,
            excess: [0.0; 2],
            converged: false,
            iterations: 0,
            solver_steps: 0,
            laplacian: Laplacian::new(Vec::new(), Vec::new()),
            weights: Vec::new(),
            midpoint: i128::from(input.reference_midpoint.as_ns()),
        }
    }

    /// Walks a spanning tree from the reference: determines which nodes are reachable, their first
    /// states, and the sums of the loops.
    pub(super) fn connect(&mut self) {
        let nodes = self.states.len();
        let mut touching = vec![Vec::new(); nodes];
        for (index, equation) in self.equations.iter().enumerate() {
            touching[equation.from].push(index);
            touching[equation.to].push(index);
        }
        self.states = vec![State::default(); nodes];
        self.reachable = vec![false; nodes];
        self.reachable[self.reference] = true;
        let mut in_tree = vec![false; self.equations.len()];
        let mut queue = VecDeque::from([self.reference]);
        while let Some(node) = queue.pop_front() {
            for &index in &touching[node] {
                let equation = &self.equations[index];
                let other = equation.from + equation.to - node;
                if !self.reachable[other] {
                    self.reachable[other] = true;
                    in_tree[index] = true;
                    self.states[other] = self.continued(equation, node);
                    queue.push_back(other);
                }
            }
        }
        let closes = |index: &usize| !in_tree[*index] && self.reachable[self.equations[*index].from];
        let closing = (0..self.equations.len()).filter(closes).map(|index| &self.equations[index]);
        self.loops = closing.map(|equation| (equation.edge, self.moved(equation).residual[0])).collect();
        self.count_parallel();
    }

    /// The state of an equation's other end that satisfies it.
    fn continued(&self, equation: &Equation, node: usize) -> State {
        let known = self.states[node];
        if node == equation.from {
            let end = State { potential: known.potential + equation.step(), x: [0.0; 2] };
            State { x: equation.at(self.midpoint, &known, &end).residual, ..end }
        } else {
            let end = State { potential: known.potential - equation.step(), x: [0.0; 2] };
            let [offset, rate] = equation.at(self.midpoint, &end, &known).residual;
            State { x: [-offset, -rate], ..end }
        }
    }

    fn count_parallel(&mut self) {
        let key = |equation: &Equation| (equation.from.min(equation.to), equation.from.max(equation.to));
        let mut keys: Vec<_> = self.equations.iter().map(key).collect();
        keys.sort_unstable();
        for equation in &mut self.equations {
            let key = key(equation);
            let first = keys.partition_point(|other| *other < key);
            let past = keys.partition_point(|other| *other <= key);
            equation.parallel = (past - first) as f64;
        }
    }

    /// Least squares with Student-t weights until nothing moves.
    pub(super) fn reweight(&mut self) {
        let prior = self.options.asymmetry_prior * self.margin;
        self.excess = [prior * prior, 0.0];
        self.weights = vec![1.0; self.equations.len()];
        self.converged = false;
        for iteration in 0..REWEIGHTINGS_MAX {
            let moved = self.all_moved();
            if iteration > 0 {
                self.update_excess(&moved);
                self.weights = self.student_weights(&moved);
            }
            let step = self.step(&moved);
            self.iterations += 1;
            if iteration > 0 && step < STEP_MIN {
                self.converged = true;
                break;
            }
        }
    }

    /// Solves for a correction and applies it; its size in standard deviations per node.
    fn step(&mut self, moved: &[Moved]) -> f64 {
        let mut links = Vec::with_capacity(moved.len());
        for ((equation, moved), weight) in self.equations.iter().zip(moved).zip(&self.weights) {
            let used = self.reachable[equation.from];
            let precision = inverse(self.covariance(equation, moved)).filter(|_| used).unwrap_or([0.0; 3]);
            links.push(Link { from: equation.from, to: equation.to, weight: precision.map(|p| p * weight) });
        }
        let fixed = self.reachable.iter().enumerate().map(|(node, reachable)| node == self.reference || !reachable);
        self.laplacian = Laplacian::new(links, fixed.collect());
        let free = self.laplacian.free();
        if free == 0 {
            return 0.0;
        }
        let right = self.laplacian.right_side(moved.iter().map(|moved| moved.residual));
        let correction = self.correction(&right, free);
        let energy: f64 = correction.iter().zip(&right).map(|(x, b)| x[0] * b[0] + x[1] * b[1]).sum();
        for (state, correction) in self.states.iter_mut().zip(&correction) {
            state.x[0] += correction[0];
            state.x[1] += correction[1];
        }
        (energy.max(0.0) / free as f64).sqrt()
    }

    fn correction(&mut self, right: &[Pair], free: usize) -> Vec<Pair> {
        let dense = if free <= DENSE_MAX { self.laplacian.solve_dense(right) } else { None };
        dense.unwrap_or_else(|| {
            let mut x = vec![[0.0; 2]; right.len()];
            let tolerance = SOLVER_TOLERANCE * (free as f64).sqrt();
            let ended = self.laplacian.solve_iterative(right, &mut x, tolerance, SOLVER_STEPS_MAX);
            self.solver_steps += ended.steps as u32;
            x
        })
    }

    pub(super) fn moved(&self, equation: &Equation) -> Moved {
        equation.at(self.midpoint, &self.states[equation.from], &self.states[equation.to])
    }

    pub(super) fn all_moved(&self) -> Vec<Moved> {
        self.equations.iter().map(|equation| self.moved(equation)).collect()
    }

    /// Random error, asymmetry and excess of an edge.
    pub(super) fn covariance(&self, equation: &Equation, moved: &Moved) -> [f64; 3] {
        let [a, ab, b] = moved.covariance;
        [a + self.excess[0] * asymmetry_factor(equation), ab, b + self.excess[1]]
    }

    fn student_weights(&self, moved: &[Moved]) -> Vec<f64> {
        let weight = |(equation, moved): (&Equation, &Moved)| {
            let precision = inverse(self.covariance(equation, moved)).unwrap_or([0.0; 3]);
            let scaled = times(precision, moved.residual);
            let square = scaled[0] * moved.residual[0] + scaled[1] * moved.residual[1];
            ((FREEDOM + 2.0) / (FREEDOM + square)).min(1.0)
        };
        self.equations.iter().zip(moved).map(weight).collect()
    }

    fn update_excess(&mut self, moved: &[Moved]) {
        let nodes = self.reachable.iter().filter(|reachable| **reachable).count() as f64;
        let (mut links, mut surplus) = (0.0, [0.0; 2]);
        let used = |(equation, _): &(&Equation, &Moved)| self.reachable[equation.from];
        links +=
            self.equations.iter().zip(moved).filter(used).map(|(equation, _)| 1.0 / equation.parallel).sum::<f64>();
        let loops = (links - nodes + 1.0).max(0.0);
        let share = if links > 0.0 { loops / links } else { 0.0 };
        for ((equation, moved), weight) in self.equations.iter().zip(moved).zip(&self.weights) {
            if self.reachable[equation.from] {
                let factor = weight / asymmetry_factor(equation);
                surplus[0] += factor * (moved.residual[0].powi(2) - share * moved.covariance[0]);
                surplus[1] += weight / equation.parallel * (moved.residual[1].powi(2) - share * moved.covariance[2]);
            }
        }
        let GraphOptions { asymmetry_prior, asymmetry_prior_weight, .. } = self.options;
        let prior = (asymmetry_prior * self.margin).powi(2);
        let freedom = (asymmetry_prior_weight + loops).max(f64::MIN_POSITIVE);
        let most = self.largest_surplus(moved, share, loops);
        self.excess = [
            (asymmetry_prior_weight * prior + surplus[0].max(0.0).min(most[0])) / freedom,
            if loops > 0.0 { surplus[1].max(0.0).min(most[1]) / loops } else { 0.0 },
        ];
    }

    /// The surplus that the median residuals allow; infinite if there are too few loops for a
    /// meaningful median. `share` is loops per link.
    fn largest_surplus(&self, moved: &[Moved], share: f64, loops: f64) -> Pair {
        if share < LOOPS_PER_LINK_MIN || moved.len() < MEDIAN_LINKS_MIN {
            return [f64::INFINITY; 2];
        }
        let used = || self.equations.iter().zip(moved).filter(|(equation, _)| self.reachable[equation.from]);
        let offsets = median(used().map(|(e, moved)| moved.residual[0].powi(2) / asymmetry_factor(e)));
        let rates = median(used().map(|(e, moved)| moved.residual[1].powi(2) / e.parallel));
        [offsets, rates].map(|square| EXCESS_OVER_TYPICAL * loops * square / (CHI_SQUARE_MEDIAN * share))
    }

    /// Residuals of offset and rate in standard deviations.
    pub(super) fn normalised(&self, equation: &Equation, moved: &Moved) -> Pair {
        let [a, _, b] = self.covariance(equation, moved);
        [moved.residual[0].abs() / a.sqrt(), moved.residual[1].abs() / b.sqrt()]
    }

    /// Excludes the edges far outside the scatter; true when there were any. At most one per node
    /// and attempt, because a falseticker disturbs its neighbours' residuals too.
    pub(super) fn exclude_outliers(&mut self) -> bool {
        let moved = self.all_moved();
        let scores: Vec<Pair> = self.equations.iter().zip(&moved).map(|(e, m)| self.normalised(e, m)).collect();
        let limit =
            |k: usize| OUTLIER_DEVIATIONS[k] * (TO_SIGMA * median(scores.iter().map(|score| score[k]))).max(1.0);
        let limits = [limit(0), limit(1)];
        let over = |score: &Pair| (score[0] / limits[0]).max(score[1] / limits[1]);
        let mut suspects: Vec<usize> = (0..scores.len()).filter(|&at| over(&scores[at]) > 1.0).collect();
        suspects.sort_by(|&a, &b| over(&scores[b]).total_cmp(&over(&scores[a])));
        let falsetickers = self.mostly(&suspects);
        let mut touched = vec![false; self.states.len()];
        let mut out = Vec::new();
        for at in suspects {
            let Equation { from, to, .. } = self.equations[at];
            let of_falseticker = falsetickers[from] != falsetickers[to];
            if (of_falseticker || !touched[from] && !touched[to]) && self.reachable[from] {
                (touched[from], touched[to]) = (true, true);
                let [offset, rate] = moved[at].residual;
                let [offset_score, rate_score] = scores[at];
                out.push((at, format!(
                    "outlier: {offset:.1} ns ({offset_score:.1} sd) and {:.4} ppm ({rate_score:.1} sd) from the other edges",
                    rate / 1e3
                )));
            }
        }
        self.exclude(out)
    }

    /// The nodes most of whose edges are among `suspects`.
    fn mostly(&self, suspects: &[usize]) -> Vec<bool> {
        let mut counts = vec![[0usize; 2]; self.states.len()];
        let mut count = |at: usize, which: usize| {
            let Equation { from, to, .. } = self.equations[at];
            counts[from][which] += 1;
            counts[to][which] += 1;
        };
        suspects.iter().for_each(|&at| count(at, 0));
        (0..self.equations.len()).for_each(|at| count(at, 1));
        counts.iter().map(|[bad, all]| *bad >= OUTLIERS_MIN && 2 * bad > *all).collect()
    }

    fn exclude(&mut self, mut out: Vec<(usize, String)>) -> bool {
        let any = !out.is_empty();
        // From the back, so that the places of the others stay.
        out.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        for (at, reason) in out {
            let equation = self.equations.remove(at);
            self.excluded.push((equation.edge, reason));
        }
        any
    }

    /// Returns hard intervals relative to the states, or the equations on a negative cycle. An edge
    /// is moved to where its source's state puts the midpoint; the second pass allows for all
    /// positions that the source's own interval permits.
    pub(super) fn intervals(&self) -> Result<Intervals, Vec<usize>> {
        let exact = bounds::intervals(self.states.len(), self.reference, &self.arcs(|_| 0.0))?;
        let room = |equation: &Equation| {
            let [low, high] = exact[equation.from];
            let off = high.max(-low);
            if off.is_finite() { SECOND_ORDER * equation.per_offset() * off } else { f64::INFINITY }
        };
        bounds::intervals(self.states.len(), self.reference, &self.arcs(room))
    }

    fn arcs(&self, room: impl Fn(&Equation) -> f64) -> Vec<Arc> {
        let mut arcs = Vec::with_capacity(2 * self.equations.len());
        for (edge, equation) in self.equations.iter().enumerate() {
            if self.reachable[equation.from] {
                let ([low, high], room) = (self.moved(equation).bounds, room(equation));
                arcs.push(Arc { from: equation.from, to: equation.to, length: high + room, edge });
                arcs.push(Arc { from: equation.to, to: equation.from, length: room - low, edge });
            }
        }
        arcs
    }

    /// Excludes the culprit of a negative cycle. If the residuals do not single one out, all edges
    /// of the cycle stay in the estimate and lose their hard bounds: one of them is wrong, and no
    /// bound is better than a wrong one.
    pub(super) fn resolve_cycle(&mut self, cycle: &[usize]) {
        let score = |at: usize| self.normalised(&self.equations[at], &self.moved(&self.equations[at]))[0];
        let mut ranked: Vec<(usize, f64)> = cycle.iter().map(|&at| (at, score(at))).collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
        match ranked[..] {
            [(culprit, worst), (_, next), ..] if worst > CULPRIT_LEAD * next => {
                let reason =
                    format!("its hard bounds contradict a loop of {} edges, in which it fits worst", cycle.len());
                self.exclude(vec![(culprit, reason)]);
            }
            _ => cycle.iter().for_each(|&at| self.equations[at].drop_bounds()),
        }
    }
}

/// Whether no straight line explains the packets of an edge's window, by more than the typical
/// margin. Zero: no edge of the round fits, and all are equally good.
fn broken(fitted: &EdgeFit, typical_margin_ns: f64) -> bool {
    typical_margin_ns > 0.0 && !fitted.feasible && -fitted.margin_ns > typical_margin_ns
}

/// Returns for every edge, given by its two nodes, the least that its asymmetry may be, as a share
/// of the median edge's. A margin near zero is luck, a wrong stamp, or a short path whose packets
/// are late one way. Loops tell which: an edge whose nodes have d edges at least is tested by d − 1
/// others.
pub(crate) fn asymmetry_scales_min(edges: impl Iterator<Item = [usize; 2]> + Clone) -> Vec<f64> {
    let mut degrees = BTreeMap::new();
    edges.clone().flatten().for_each(|node| *degrees.entry(node).or_insert(0u32) += 1);
    let least = |[from, to]: [usize; 2]| {
        let others = f64::from(degrees[&from].min(degrees[&to]) - 1);
        1.0 - (1.0 - ASYMMETRY_SCALE_MIN) * others / (others + OTHERS_HALF)
    };
    edges.map(least).collect()
}

/// Factor on the asymmetry variance of the median edge.
fn asymmetry_factor(equation: &Equation) -> f64 {
    equation.asymmetry_scale.powi(2) * equation.parallel
}

/// The second pass widens the sources' intervals too: by |alpha| ≤ 500 ppm of themselves per hop,
/// less than a tenth on any path of up to 190 hops.
const SECOND_ORDER: f64 = 1.1;

/// ν of the Student-t weights.
const FREEDOM: f64 = 4.0;

/// Reweightings per attempt.
const REWEIGHTINGS_MAX: usize = 30;

/// Converged when a correction is smaller, standard deviations per node.
const STEP_MIN: f64 = 3e-3;

/// Nodes up to which the dense solver is faster (bench `graphcalc`).
const DENSE_MAX: usize = 12;

/// Accuracy of the iterative solver, standard deviations per node.
const SOLVER_TOLERANCE: f64 = 1e-3;

/// Steps of the iterative solver per solution.
const SOLVER_STEPS_MAX: usize = 2000;

/// Outliers lie beyond this many standard deviations of offset and rate, in units of the scatter's
/// own. Rates of a single window have long tails, and a rate that is really off shows in the
/// offset.
const OUTLIER_DEVIATIONS: Pair = [8.0, 20.0];

/// Largest estimated variance, relative to that of the median residual.
const EXCESS_OVER_TYPICAL: f64 = 4.0;

/// Median of the square of a standard normal number.
const CHI_SQUARE_MEDIAN: f64 = 0.4549;

/// With fewer loops per link than this many residuals are zero whatever the errors.
const LOOPS_PER_LINK_MIN: f64 = 0.5;

/// Fewest links whose median says something.
const MEDIAN_LINKS_MIN: usize = 16;

/// Fewest outliers that make their node a falseticker.
const OUTLIERS_MIN: usize = 3;

/// A cycle's culprit fits worse than the next by this factor.
const CULPRIT_LEAD: f64 = 2.0;

/// Floor of the margin that the asymmetry is a share of, ns.
const MARGIN_MIN_NS: f64 = 1.0;

/// Smallest asymmetry of an edge that very many others test, as a share of the median edge's.
const ASYMMETRY_SCALE_MIN: f64 = 0.25;
/// Number of other edges at which the smallest share is half way between 1 and
/// [`ASYMMETRY_SCALE_MIN`].
const OTHERS_HALF: f64 = 6.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_names_the_limits_of_outliers() {
        let document = include_str!("../../../../docs/graph_calc.md").split_whitespace().collect::<Vec<_>>().join(" ");
        let [offset, rate] = OUTLIER_DEVIATIONS;
        let sentence = format!("its offset residual exceeds {offset} of these or its rate residual exceeds {rate}");
        assert!(document.contains(&sentence), "docs/graph_calc.md lacks: {sentence}");
        let node = format!("a node that has at least {OUTLIERS_MIN} outliers");
        assert!(document.contains(&node), "docs/graph_calc.md lacks: {node}");
        let links = format!(
            "Where at least {MEDIAN_LINKS_MIN} links have at least one loop per two links, the sum is limited to {EXCESS_OVER_TYPICAL} times"
        );
        assert!(LOOPS_PER_LINK_MIN == 0.5 && document.contains(&links), "docs/graph_calc.md lacks: {links}");
    }
}
