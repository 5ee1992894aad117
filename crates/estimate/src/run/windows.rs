//! The choice of windows for a recorded run from its own packets.
//!
//! It runs before smoothing if the run's exchanges are available. A live run has to choose its
//! windows before it knows its clocks. A line and its window are a compromise: with n exchanges in
//! a window of length T the error of the fit is a multiple of 1/n, and so of 1/T, and a clock whose
//! rate wanders leaves its line by T^1.5. A clock that a servo steers every second needs half a
//! second, an edge with one exchange every two seconds needs half a minute.
//!
//! So the exchanges are cut again, into windows half and twice as long, and so on while that helps,
//! fitted and solved as those of the live run, and the first pass of the smoother tells for each
//! length how well it knows the clocks: wander and noise by marginal likelihood, the error between
//! knots and at knots by the same model. The length that leaves the smallest error is taken
//! ([`Windows::best`]). No window crosses a step.
//!
//! By hand: ten exchanges a second, queues of 1 µs in the mean: in 1 s the lowest packets lie 100
//! ns apart, and a line errs by 150 ns; in 4 s by 37 ns. A rate that a servo sets anew each second
//! with 0.2 ppm leaves a line of 4 s by 200·√(4/12) = 115 ns, and one of 1 s by half of that.
//!
//! Hard intervals still come from the original rounds of the run.

use std::collections::BTreeMap;

use probe_sync_lines::{ClockBreak, EdgeFit};
use probe_sync_time::{Edge, Exchange, NodeId, Reference, RoundId, System, Timestamp};

use super::recorded::Recorded;
use crate::edge_fit::{self, EdgeWindow};
use crate::graph::{self, GraphInput, GraphOptions, GraphSolution};
use crate::round::{SolvedRound, SolverOptions};
use crate::smoother::{self, FirstPass, SmootherOptions};
use crate::statistics::{median, upper_median};

/// The exchanges of a run, ready to be cut.
pub(super) struct Windows<'a> {
    run: &'a SolverOptions,
    /// In order of time.
    rounds: Vec<&'a SolvedRound>,
    /// First round of each stretch without a step, and those whose clocks stepped there.
    stretches: Vec<(usize, Vec<NodeId>)>,
    /// By edge: the indices of rounds, and what was recorded in them.
    exchanges: BTreeMap<Edge, Vec<(usize, &'a [Exchange])>>,
}

/// One way to cut a run, solved.
pub(super) struct Cut {
    rounds: Vec<CutRound>,
    breaks: Vec<ClockBreak>,
}

struct CutRound {
    id: RoundId,
    middle: Timestamp<Reference>,
    edges: Vec<EdgeFit>,
    solution: GraphSolution,
}

/// A stretch divided into windows of equal length.
struct Grid {
    start_ns: i64,
    length_ns: f64,
    count: usize,
}

impl<'a> Windows<'a> {
    /// `places` are the positions of clock steps, `useful` tells which exchanges of which round may
    /// be used.
    pub(super) fn new(
        run: &'a SolverOptions,
        rounds: Vec<&'a SolvedRound>,
        places: &[(NodeId, usize)],
        recorded: &[Recorded<'a>],
        useful: impl Fn(usize, Edge) -> bool,
    ) -> Self {
        let place: BTreeMap<RoundId, usize> =
            rounds.iter().enumerate().map(|(place, round)| (round.data.round_id, place)).collect();
        let mut exchanges: BTreeMap<Edge, Vec<(usize, &[Exchange])>> = BTreeMap::new();
        for Recorded { round_id, edge, exchanges: some } in recorded {
            if let Some(place) = place.get(round_id).copied().filter(|place| useful(*place, *edge)) {
                exchanges.entry(*edge).or_default().push((place, some));
            }
        }
        let mut stretches: BTreeMap<usize, Vec<NodeId>> = BTreeMap::from([(0, Vec::new())]);
        for (node, place) in places {
            stretches.entry(*place).or_default().push(*node);
        }
        Self { run, rounds, stretches: stretches.into_iter().collect(), exchanges }
    }

    /// The division that reveals most about the clocks, as judged by the smoother's first pass;
    /// `None` if that is `live`, the run's own.
    pub(super) fn best(&self, live: &FirstPass, options: &SmootherOptions) -> Option<FirstPass> {
        let (Some(first), Some(last)) = (self.rounds.first(), self.rounds.last()) else { return None };
        let lengths = self.rounds.iter().map(|round| (round.data.window_end - round.data.window_start).as_ns_f64());
        let (usual, whole) = (median(lengths), (last.data.window_end - first.data.window_start).as_ns_f64());
        let asked = [first, last].map(|round| round.data.midpoint());
        let own = live.errors(self.run.nodes, asked);
        let mut best = None;
        let mut least = own.score(&own)? - GAIN_MIN;
        // One way, and, where that does not help, the other. What a clock did within long windows
        // may make those of half the length look worse than they are, so one miss is no end.
        for factor in [0.5, 2.0] {
            let mut misses = 0;
            for length in (1..=STEPS_MAX).map(|step| usual * f64::powi(factor, step)) {
                // Longer windows than these may be few enough.
                if factor > 1.0 && !self.can_hold(length, whole) {
                    continue;
                }
                let Some(cut) = self.allows(length, whole, factor).then(|| self.cut(length)).flatten() else { break };
                let pass = cut.first_pass(self.run.nodes, options);
                match pass.errors(self.run.nodes, asked).score(&own).filter(|score| *score < least) {
                    Some(score) => (least, best, misses) = (score, Some(pass), 0),
                    None => misses += 1,
                }
                if misses > MISSES_MAX {
                    break;
                }
            }
            if best.is_some() {
                return if factor < 1.0 { best.map(FirstPass::of_shorter_windows) } else { best };
            }
        }
        None
    }

    /// Whether windows of this length contain enough exchanges, if shorter than the run's own, and
    /// whether there are enough of them.
    fn allows(&self, length_ns: f64, whole_ns: f64, factor: f64) -> bool {
        let mut counts: Vec<f64> = self
            .exchanges
            .values()
            .map(|rounds| rounds.iter().map(|(_, some)| some.len()).sum::<usize>() as f64 * length_ns / whole_ns)
            .collect();
        let enough = upper_median(&mut counts).is_some_and(|per_window| per_window >= EXCHANGES_MIN);
        length_ns >= LENGTH_MIN_NS
            && (factor > 1.0 || enough)
            && whole_ns / length_ns >= WINDOWS_MIN
            && self.can_hold(length_ns, whole_ns)
    }

    /// Whether the fits of windows of this length are few enough to be held.
    fn can_hold(&self, length_ns: f64, whole_ns: f64) -> bool {
        whole_ns / length_ns * self.exchanges.len() as f64 <= FITS_MAX
    }

    /// Divides and solves; `None` if the graph cannot be solved.
    fn cut(&self, length_ns: f64) -> Option<Cut> {
        let mut cut = Cut { rounds: Vec::new(), breaks: Vec::new() };
        for (number, (from, stepped)) in self.stretches.iter().enumerate() {
            let to = self.stretches.get(number + 1).map_or(self.rounds.len(), |(next, _)| *next);
            let id = RoundId(cut.rounds.len() as u64);
            cut.breaks.extend(stepped.iter().map(|node| ClockBreak { node: *node, round: id }));
            let Some(grid) = self.grid([*from, to], length_ns) else { continue };
            let mut fitted: Vec<Vec<EdgeFit>> = vec![Vec::new(); grid.count];
            for (edge, some) in &self.exchanges {
                self.fit(*edge, some, [*from, to], &grid, &mut fitted);
            }
            for (window, edges) in fitted.into_iter().enumerate().filter(|(_, edges)| !edges.is_empty()) {
                let middle = grid.middle(window);
                let SolverOptions { nodes, reference, .. } = *self.run;
                let input = GraphInput { nodes, reference, reference_midpoint: middle, edges: &edges };
                let solution = graph::solve(&input, &GraphOptions { covariance: false, ..self.run.graph }).ok()?;
                cut.rounds.push(CutRound { id: RoundId(cut.rounds.len() as u64), middle, edges, solution });
            }
        }
        Some(cut)
    }

    fn grid(&self, [from, to]: [usize; 2], length_ns: f64) -> Option<Grid> {
        let (first, last) = (self.rounds.get(from)?, self.rounds.get(to.checked_sub(1)?)?);
        let whole = (last.data.window_end - first.data.window_start).as_ns_f64();
        let count = (whole / length_ns).round().max(1.0);
        Some(Grid { start_ns: first.data.window_start.as_ns(), length_ns: whole / count, count: count as usize })
    }

    /// Fits an edge in every window of a stretch.
    fn fit(
        &self,
        edge: Edge,
        recorded: &[(usize, &[Exchange])],
        [from, to]: [usize; 2],
        grid: &Grid,
        fitted: &mut [Vec<EdgeFit>],
    ) {
        let mut windows: BTreeMap<usize, (usize, [f64; 2], Vec<Exchange>)> = BTreeMap::new();
        for (place, some) in recorded.iter().filter(|(place, _)| (from..to).contains(place)) {
            // Where the source was not reached nothing says which window its exchanges belong to.
            let Some(apart) = self.apart(*place, edge.src) else { continue };
            for exchange in *some {
                let window = grid.window(self.on_reference(*place, apart, exchange.t[0]));
                windows.entry(window).or_insert_with(|| (*place, apart, Vec::new())).2.push(*exchange);
            }
        }
        let stamp_errors_ns = self.stamp_errors_ns(edge);
        for (window, (place, apart, exchanges)) in windows {
            let midpoint = self.on_source(place, apart, grid.middle(window));
            let window_of_edge = EdgeWindow { edge, midpoint, exchanges: &exchanges, lost: 0, stamp_errors_ns };
            fitted[window].extend(edge_fit::fit(&window_of_edge, &self.run.fit));
        }
    }

    /// Returns a node's offset at the midpoint of a round, ns, and its rate, ns per ns; `None` if
    /// the round did not reach it.
    fn apart(&self, place: usize, node: NodeId) -> Option<[f64; 2]> {
        let estimate = self.rounds[place].data.all_nodes.get(node.index()).filter(|estimate| estimate.reachable)?;
        Some([estimate.offset_ns, estimate.drift_ppm * 1e-6])
    }

    fn on_reference(&self, place: usize, [offset, rate]: [f64; 2], at: Timestamp<System>) -> i64 {
        let shown = at.as_ns().saturating_sub(offset.round() as i64);
        let since = shown.saturating_sub(self.rounds[place].data.midpoint().as_ns()) as f64;
        shown.saturating_sub((rate * since) as i64)
    }

    fn on_source(&self, place: usize, [offset, rate]: [f64; 2], at: Timestamp<Reference>) -> Timestamp<System> {
        let since = at.as_ns().saturating_sub(self.rounds[place].data.midpoint().as_ns()) as f64;
        Timestamp::from_ns(at.as_ns().saturating_add((offset + rate * since).round() as i64))
    }

    /// The largest that any round states.
    fn stamp_errors_ns(&self, edge: Edge) -> [f64; 2] {
        let own = self.rounds.iter().flat_map(|round| &round.edges).filter(|fitted| fitted.edge() == edge);
        own.fold([0.0; 2], |most, fitted| [0, 1].map(|end| f64::max(most[end], fitted.stamp_errors_ns[end])))
    }
}

impl Grid {
    /// The window that contains a time of the reference's clock; times outside belong to the
    /// outermost.
    fn window(&self, at_ns: i64) -> usize {
        let since = at_ns.saturating_sub(self.start_ns) as f64 / self.length_ns;
        (since.max(0.0) as usize).min(self.count - 1)
    }

    fn middle(&self, window: usize) -> Timestamp<Reference> {
        Timestamp::from_ns(self.start_ns.saturating_add(((window as f64 + 0.5) * self.length_ns).round() as i64))
    }
}

impl CutRound {
    fn view(&self) -> smoother::SmootherRound<'_> {
        smoother::SmootherRound::solved(self.id, self.middle, &self.edges, &self.solution, &[])
    }
}

impl Cut {
    fn first_pass(&self, nodes: usize, options: &SmootherOptions) -> FirstPass {
        let views: Vec<smoother::SmootherRound<'_>> = self.rounds.iter().map(CutRound::view).collect();
        FirstPass::new(nodes, &views, &self.breaks, options)
    }
}

/// Required decrease of the logarithm of the mean variance to replace the run's own windows: a
/// twentieth of sigma.
const GAIN_MIN: f64 = 0.1;

/// Longest and shortest windows differ from the run's own by this power of two at most.
const STEPS_MAX: i32 = 6;

/// Lengths in a row that may tell less than the best before them.
const MISSES_MAX: u32 = 1;

/// Shortest window, ns.
const LENGTH_MIN_NS: f64 = 1e8;

/// Fewest exchanges in the window of the median edge, if it is shorter than the run's own: a fit of
/// fewer does not know its own error.
const EXCHANGES_MIN: f64 = 8.0;

/// Fewest windows of a run.
const WINDOWS_MIN: f64 = 4.0;

/// Most fits of a cut, some 400 MB.
const FITS_MAX: f64 = 2e6;
