//! How wrong each method is, on identical packets, against the truth that only a simulation knows.
//!
//! Place in the flow: above [`Rounds`]; the command `probe_sync sim` runs many seeds of [`judge`] and prints what
//! [`Pool`]s make of them. Every window's packets go to every method: the baselines (`baselines`, joined to nodes by
//! `joining`) and ours, `estimate::graph` per window and `estimate::smoother` over the run. All are judged at the middle
//! of each window as the reference sees it; ours also in between, where users' events are.
//!
//! The floor is what stays when everything but path asymmetry is known: an asymmetry b of an edge shifts its θ by b, no method
//! can tell it from an offset, and least squares over the true b alone gives each node's share.
//!
//! What it does not do: run threads, print, or decide whether a figure is good; `cells` has the demands.

mod baselines;
pub mod cells;
mod cost;
mod joining;
mod statistics;
mod svm;

use probe_sync_estimate::edge_fit::EdgeWindow;
use probe_sync_estimate::graph::GraphSolution;
use probe_sync_estimate::smoother::{self, RunSolution, SmoothedOffset, SmootherOptions, smooth_run};
use probe_sync_estimate::window::{EdgeAlphaBeta, NodeEstimate};
use probe_sync_time::{Duration, Edge, NodeId, System, Timestamp};

use self::baselines::Fastest;
pub use self::baselines::Tuning;
pub use self::cost::{CPU_SECONDS_PER_PACKET, Cost, HEADER_BYTES};
use self::joining::{EdgeLine, Joining, join};
pub use self::statistics::{Coverage, Pool, Summary, geometric_mean, quantile};
use crate::rounds::{Round, Rounds};
use crate::running::Running;
use crate::scenario::Scenario;
use crate::simulation::{Error, Simulation};

/// A way to estimate offsets.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// Smallest round trip per window, summed along a tree.
    Ntp,
    /// Hard coded-probe filter, soft-margin classifier, minimum-norm loop correction.
    Huygens,
    /// Soft-margin classifier on all packets, least squares.
    Svm,
    /// Mean offset of all exchanges, least squares.
    Mean,
    /// Ours for one window: robust hull and graph.
    Hull,
    /// Ours over the run: the smoother.
    Ours,
}

impl Method {
    /// All, in the order of tables.
    pub const ALL: [Self; 6] = [Self::Ntp, Self::Huygens, Self::Svm, Self::Mean, Self::Hull, Self::Ours];

    /// Those that others made.
    pub const BASELINES: [Self; 4] = [Self::Ntp, Self::Huygens, Self::Svm, Self::Mean];

    /// The name on the command line and in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ntp => "ntp",
            Self::Huygens => "huygens",
            Self::Svm => "svm",
            Self::Mean => "mean",
            Self::Hull => "hull",
            Self::Ours => "ours",
        }
    }

    /// The method of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }
}

/// What to judge, and how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Length of the run.
    pub duration: Duration,
    /// Length of a window.
    pub window: Duration,
    /// The methods, each once.
    pub methods: Vec<Method>,
    /// The baselines' free parameters.
    pub tuning: Tuning,
}

/// One estimate beside the truth.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The node.
    pub node: NodeId,
    /// The window.
    pub window: usize,
    /// When, on the reference's clock, ns.
    pub at_ns: i64,
    /// The true offset, ns.
    pub truth_ns: f64,
    /// The estimated offset, ns; None where the method has none.
    pub estimate_ns: Option<f64>,
    /// Half-width of the 95 % interval, ns, where the method states one.
    pub half_width_95_ns: Option<f64>,
    /// The hard interval, ns, where the method states one.
    pub hard_ns: Option<[f64; 2]>,
}

impl Judgement {
    /// Estimate minus truth, ns.
    pub fn error_ns(&self) -> Option<f64> {
        self.estimate_ns.map(|estimate| estimate - self.truth_ns)
    }
}

/// One judged run.
#[derive(Clone, Debug, PartialEq)]
pub struct SeedRun {
    /// The seed.
    pub seed: u64,
    /// By method, in the plan's order: every node but the reference in every window.
    pub methods: Vec<(Method, Vec<Judgement>)>,
    /// Ours between the windows' middles; empty unless the plan holds [`Method::Ours`].
    pub between: Vec<Judgement>,
    /// |error| that path asymmetry alone causes, per node but the reference, ns.
    pub floor_ns: Vec<f64>,
    /// Packets that were sent.
    pub packets: u64,
    /// Edges that were probed.
    pub edges: usize,
}

/// Simulates one seed and judges all methods of the plan; None when `stopped` said so.
///
/// # Errors
/// When the scenario cannot be run.
pub fn judge(
    scenario: &Scenario,
    seed: u64,
    plan: &Plan,
    stopped: &dyn Fn() -> bool,
) -> Result<Option<SeedRun>, Error> {
    let simulation = Simulation::new(scenario.clone(), seed)?;
    let mut rounds = Rounds::new(&simulation, plan.duration, plan.window)?;
    let mut record = Record::new(plan, simulation.edges());
    while let Some(round) = rounds.step() {
        if stopped() {
            return Ok(None);
        }
        record.take(round);
    }
    Ok(Some(record.judged(seed, &simulation, rounds.running())))
}

/// What is kept of a run: lines, not packets.
struct Record<'a> {
    plan: &'a Plan,
    edges: &'a [Edge],
    windows: Vec<WindowRecord>,
    /// NTP's samples of each edge, in order of time.
    fastest: Vec<Vec<Fastest>>,
}

struct WindowRecord {
    reference_midpoint_ns: i64,
    /// Where each edge's source has the middle of its window.
    midpoints: Vec<(usize, i64)>,
    /// Our edges; empty unless the smoother will want them.
    fitted: Vec<EdgeAlphaBeta>,
    solution: GraphSolution,
    /// By method, for those that fit windows.
    lines: Vec<(Method, Vec<EdgeLine>)>,
}

impl WindowRecord {
    fn as_round(&self) -> smoother::Round<'_> {
        smoother::Round {
            reference_midpoint_ns: self.reference_midpoint_ns,
            edges: &self.fitted,
            solution: &self.solution,
            left_out: &[],
        }
    }
}

impl<'a> Record<'a> {
    fn new(plan: &'a Plan, edges: &'a [Edge]) -> Self {
        Self { plan, edges, windows: Vec::new(), fastest: vec![Vec::new(); edges.len()] }
    }

    fn take(&mut self, round: Round) {
        let edge_windows: Vec<EdgeWindow<'_>> = round.cuts.iter().flat_map(|cut| cut.edge_windows()).collect();
        let place = |edge: &Edge| self.edges.binary_search(edge).ok();
        let midpoints = edge_windows.iter().filter_map(|w| Some((place(&w.edge)?, w.midpoint_ns))).collect();
        let fit = |method| -> Option<Vec<EdgeLine>> {
            let fit: &dyn Fn(&EdgeWindow<'_>) -> Option<EdgeLine> = match method {
                Method::Huygens => &|window| baselines::huygens(window, &self.plan.tuning),
                Method::Svm => &|window| baselines::svm(window, &self.plan.tuning),
                Method::Mean => &baselines::mean,
                Method::Ntp | Method::Hull | Method::Ours => return None,
            };
            Some(edge_windows.iter().filter_map(fit).collect())
        };
        let lines = self.plan.methods.iter().filter_map(|method| Some((*method, fit(*method)?))).collect();
        if self.plan.methods.contains(&Method::Ntp) {
            for window in &edge_windows {
                if let (Ok(at), Some(sample)) = (self.edges.binary_search(&window.edge), baselines::fastest(window)) {
                    self.fastest[at].push(sample);
                }
            }
        }
        drop(edge_windows);
        let Round { edges, reference_midpoint_ns, solution, .. } = round;
        let fitted = if self.plan.methods.contains(&Method::Ours) { edges } else { Vec::new() };
        self.windows.push(WindowRecord { reference_midpoint_ns, midpoints, fitted, solution, lines });
    }

    fn judged(&self, seed: u64, simulation: &Simulation, running: &Running<'_>) -> SeedRun {
        let smoothed = self.smoothed();
        let judge = |method: &Method| (*method, self.judgements(*method, smoothed.as_ref(), running));
        let methods = self.plan.methods.iter().map(judge).collect();
        SeedRun {
            seed,
            methods,
            between: smoothed.iter().flat_map(|smoothed| self.between(smoothed, running)).collect(),
            floor_ns: floor_ns(simulation),
            packets: running.packets_sent(),
            edges: self.edges.len(),
        }
    }

    /// The run as our smoother sees it, where the plan wants it.
    fn smoothed(&self) -> Option<RunSolution> {
        let nodes = self.windows.first()?.solution.nodes.len();
        let wanted = self.plan.methods.contains(&Method::Ours);
        wanted.then(|| {
            let rounds: Vec<smoother::Round<'_>> = self.windows.iter().map(WindowRecord::as_round).collect();
            smooth_run(nodes, &rounds, &[], &SmootherOptions::default())
        })
    }

    fn judgements(&self, method: Method, smoothed: Option<&RunSolution>, running: &Running<'_>) -> Vec<Judgement> {
        let judged = self.windows.iter().enumerate().flat_map(|(index, window)| {
            let estimates = self.estimates(method, smoothed, window);
            let at_ns = window.reference_midpoint_ns;
            let judge = move |(node, estimate): (usize, Estimate)| estimate.judged(running, node, index, at_ns);
            estimates.into_iter().enumerate().skip(1).map(judge).collect::<Vec<_>>()
        });
        judged.collect()
    }

    fn estimates(&self, method: Method, smoothed: Option<&RunSolution>, window: &WindowRecord) -> Vec<Estimate> {
        let nodes = window.solution.nodes.len();
        let joined = |lines: &[EdgeLine], joining| {
            let offsets = join(nodes, window.reference_midpoint_ns, lines, joining);
            offsets.into_iter().map(Estimate::bare).collect()
        };
        match method {
            Method::Ntp => {
                let line = |(at, midpoint_ns): &(usize, i64)| {
                    baselines::between(self.edges[*at], *midpoint_ns, &self.fastest[*at])
                };
                joined(&window.midpoints.iter().filter_map(line).collect::<Vec<_>>(), Joining::Tree)
            }
            Method::Huygens | Method::Svm | Method::Mean => {
                let lines = window.lines.iter().find(|(of, _)| *of == method).map_or(&[][..], |(_, lines)| lines);
                joined(lines, Joining::LeastSquares)
            }
            Method::Hull => window.solution.nodes.iter().map(Estimate::of_node).collect(),
            Method::Ours => {
                let at = |node: &NodeEstimate| smoothed?.at(node.node_id, window.reference_midpoint_ns);
                let estimate =
                    |node| Estimate { hard_ns: Estimate::of_node(node).hard_ns, ..Estimate::smooth(at(node)) };
                window.solution.nodes.iter().map(estimate).collect()
            }
        }
    }

    /// Ours in between: a quarter and half a window after each middle, and a quarter before it.
    fn between(&self, smoothed: &RunSolution, running: &Running<'_>) -> Vec<Judgement> {
        let mut judged = Vec::new();
        for (index, window) in self.windows.iter().enumerate() {
            let last = index + 1 == self.windows.len();
            for quarter in [-1, 1, 2].into_iter().filter(|quarter| *quarter < 2 || !last) {
                let at_ns = window.reference_midpoint_ns + self.plan.window.as_ns() / 4 * quarter;
                let nodes = 1..window.solution.nodes.len();
                judged.extend(nodes.map(|node| {
                    let estimate = Estimate::smooth(smoothed.at(NodeId(node as u32), at_ns));
                    estimate.judged(running, node, index, at_ns)
                }));
            }
        }
        judged
    }
}

/// |error| of every node but the reference when each edge is known but for its path's asymmetry, ns.
fn floor_ns(simulation: &Simulation) -> Vec<f64> {
    let ends: Vec<(usize, usize)> = simulation.edges().iter().map(|e| (e.src.index(), e.dst.index())).collect();
    let biases: Vec<f64> = simulation.edges().iter().map(|edge| simulation.asymmetry_ns(*edge)).collect();
    let errors = joining::potentials(simulation.scenario().nodes as usize, &ends, &biases);
    errors.into_iter().skip(1).map(f64::abs).collect()
}

/// What a method says about one node at one instant.
#[derive(Copy, Clone, Debug)]
struct Estimate {
    offset_ns: Option<f64>,
    half_width_95_ns: Option<f64>,
    hard_ns: Option<[f64; 2]>,
}

impl Estimate {
    fn bare(offset_ns: Option<f64>) -> Self {
        Self { offset_ns, half_width_95_ns: None, hard_ns: None }
    }

    fn smooth(smoothed: Option<SmoothedOffset>) -> Self {
        Self {
            offset_ns: smoothed.map(|smoothed| smoothed.offset_ns),
            half_width_95_ns: smoothed.map(|smoothed| smoothed.half_width_95_ns),
            hard_ns: None,
        }
    }

    fn of_node(node: &NodeEstimate) -> Self {
        let claimed = node.reachable.then_some(node);
        Self {
            offset_ns: claimed.map(|node| node.offset_ns),
            half_width_95_ns: claimed.map(|node| SIGMAS_95 * node.sigma_ns),
            hard_ns: claimed.map(|node| [node.bound_lo_ns, node.bound_hi_ns]),
        }
    }

    fn judged(self, running: &Running<'_>, node: usize, window: usize, at_ns: i64) -> Judgement {
        let node = NodeId(node as u32);
        let Self { offset_ns: estimate_ns, half_width_95_ns, hard_ns } = self;
        let truth_ns = running.offset_ns(node, Timestamp::<System>::from_ns(at_ns));
        Judgement { node, window, at_ns, truth_ns, estimate_ns, half_width_95_ns, hard_ns }
    }
}

/// Half-width of a 95 % interval of the normal distribution, in standard deviations.
const SIGMAS_95: f64 = 1.959964;
