//! Adaptive probing in a live run, which passes every solved round to `estimate::pacing` and
//! records its effects.
//!
//! `--target-error` or `--adaptive` enables it, on the root only; its [`PacingReport`] goes to
//! `run.json`, `report.json`, `metrics.prom` and the table. A target that cannot be reached is
//! logged once, when this is first known.

use probe_sync_estimate::pacing::{Pacer, PacingOptions, PacingStep, Verdict};
use probe_sync_estimate::round::SolvedRound;
use probe_sync_time::{Duration, Edge};
use serde::{Deserialize, Serialize};

use crate::infinity::null_is_infinite;

/// Results of adaptive probing in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PacingReport {
    /// Target half-width, ns.
    pub target_ns: f64,
    /// State of the target after the last round.
    pub verdict: Verdict,
    /// Rounds after which every node that could be judged was within the target.
    pub rounds_within: u64,
    /// Rounds judged.
    pub rounds: u64,
    /// Nodes within the target after the last round.
    pub nodes_within: u32,
    /// Nodes that could be judged after the last round.
    pub nodes_judged: u32,
    /// Half-width of the governing node after the last round, ns; +∞ (JSON: null) if unknown.
    #[serde(deserialize_with = "null_is_infinite")]
    pub half_width_ns: f64,
    /// Part of `half_width_ns` that more packets cannot reduce, ns.
    pub floor_ns: f64,
    /// The configured cadence, ns.
    pub configured_cadence_ns: i64,
    /// Cadence of the last decision, ns.
    pub final_cadence_ns: i64,
    /// Shortest cadence used, ns.
    pub shortest_cadence_ns: i64,
    /// Longest cadence used, ns.
    pub longest_cadence_ns: i64,
    /// Exchanges due on each host.
    pub exchanges_per_host: f64,
    /// Exchanges that would have been due on each host at the configured cadence.
    pub exchanges_per_host_fixed: f64,
    /// Edges probed in addition to the run's own, after the last round.
    pub extra_edges: Vec<Edge>,
    /// Largest number of such edges at a time.
    pub extra_edges_most: usize,
}

/// Chooses the pace from the target.
#[derive(Clone, Debug)]
pub(crate) struct Adaptive {
    pacer: Pacer,
    keeps_graph: bool,
    /// True if obstacles to the target are logged.
    speaks: bool,
    report: PacingReport,
    /// Verdict logged last.
    said: Verdict,
}

impl Adaptive {
    /// Creates the controller of a run of `nodes` nodes that probes `edges`; with `keeps_graph` it
    /// adds no edges, because the user chose them.
    pub fn new(nodes: usize, edges: &[Edge], options: PacingOptions, keeps_graph: bool, speaks: bool) -> Self {
        let report = PacingReport {
            target_ns: options.target_ns,
            verdict: Verdict::Unknown,
            rounds_within: 0,
            rounds: 0,
            nodes_within: 0,
            nodes_judged: 0,
            half_width_ns: 0.0,
            floor_ns: 0.0,
            configured_cadence_ns: options.cadence_ns,
            final_cadence_ns: options.cadence_ns,
            shortest_cadence_ns: i64::MAX,
            longest_cadence_ns: 0,
            exchanges_per_host: 0.0,
            exchanges_per_host_fixed: 0.0,
            extra_edges: Vec::new(),
            extra_edges_most: 0,
        };
        let pacer = Pacer::new(nodes, edges, options);
        Self { pacer, keeps_graph, speaks, report, said: Verdict::Unknown }
    }

    /// Judges a solved round that was measured at `cadence`, and decides the next.
    pub fn next(&mut self, round: &SolvedRound, cadence: Duration) -> PacingStep {
        let mut step = self.pacer.after(round);
        if self.keeps_graph {
            step.extra_edges.clear();
        }
        let window = round.data.window_end - round.data.window_start;
        self.account(&step, window.as_ns().max(0), cadence.as_ns());
        if self.speaks {
            self.say(&step);
        }
        step
    }

    /// Returns the results so far; `None` before the first round.
    pub fn report(&self) -> Option<PacingReport> {
        (self.report.rounds > 0).then(|| self.report.clone())
    }

    fn account(&mut self, step: &PacingStep, window_ns: i64, cadence_ns: i64) {
        let report = &mut self.report;
        report.rounds += 1;
        report.rounds_within += u64::from(step.nodes_judged > 0 && step.nodes_within == step.nodes_judged);
        report.verdict = step.verdict;
        (report.nodes_within, report.nodes_judged) = (step.nodes_within, step.nodes_judged);
        // JSON has no infinity.
        report.half_width_ns = if step.half_width_ns.is_finite() { step.half_width_ns } else { 0.0 };
        report.floor_ns = step.floor_ns;
        // Of the last round, as the shortest and the longest are; what would follow it was measured
        // by nobody.
        report.final_cadence_ns = cadence_ns;
        report.shortest_cadence_ns = report.shortest_cadence_ns.min(cadence_ns);
        report.longest_cadence_ns = report.longest_cadence_ns.max(cadence_ns);
        report.exchanges_per_host += window_ns as f64 / cadence_ns.max(1) as f64;
        report.exchanges_per_host_fixed += window_ns as f64 / report.configured_cadence_ns as f64;
        report.extra_edges.clone_from(&step.extra_edges);
        report.extra_edges_most = report.extra_edges_most.max(step.extra_edges.len());
    }

    /// Logs once what keeps the run from its target; the first round is too early to tell.
    fn say(&mut self, step: &PacingStep) {
        let news = step.verdict != self.said && self.report.rounds > 1;
        let hopeless =
            matches!(step.verdict, Verdict::AsymmetryAlone | Verdict::BudgetSpent | Verdict::PacketsDoNotHelp);
        if news && hopeless {
            self.said = step.verdict;
            tracing::warn!("{}", self.report.reason());
        }
        let (cadence_us, width) = (step.cadence_ns as f64 * 1e-3, length(step.half_width_ns));
        tracing::debug!("adaptive: next cadence {cadence_us} us, {:?} at ±{width}", step.verdict);
    }
}

impl PacingReport {
    /// Returns the state of the target in words.
    pub fn reason(&self) -> String {
        let target = format!("target ±{}", length(self.target_ns));
        let (width, floor) = (length(self.half_width_ns), length(self.floor_ns));
        match self.verdict {
            Verdict::Reached => format!("{target} reached by {} of {} nodes", self.nodes_within, self.nodes_judged),
            Verdict::OnTheWay => format!("{target} not reached yet: ±{width} after the last round"),
            Verdict::AsymmetryAlone => format!(
                "{target} not reachable: path asymmetry alone is ±{floor}, and more packets cannot reduce it; probing only as often \
                as that justifies"
            ),
            Verdict::BudgetSpent => {
                format!("{target} not reached: ±{width} using the whole budget; raise --budget-bps or --budget-cpu")
            }
            Verdict::PacketsDoNotHelp => format!(
                "{target} not reached: ±{width}, and faster probing did not reduce it (timestamp noise); back to the configured cadence"
            ),
            Verdict::Unknown => format!("{target}: no node could be evaluated"),
        }
    }
}

fn length(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.2} µs", ns * 1e-3),
        ns => format!("{:.2} ms", ns * 1e-6),
    }
}
