//! The machine-readable result of `probe_sync sim`: the `--json` document, whose rows are also
//! those of the CSV files.
//!
//! Errors are |estimate − truth|. Lengths are rounded to a thousandth of a nanosecond, and a value
//! that no run provides is null, or an empty field in CSV. It computes nothing; every figure comes
//! from `probe_sync_sim`.

use std::path::Path;

use anyhow::Context as _;
use probe_sync_sim::Scenario;
use probe_sync_sim::accuracy::cells::{Demand, Outcome};
use probe_sync_sim::accuracy::{Cost, Coverage, Plan, Summary};
use probe_sync_time::StampSource;
use schemars::JsonSchema;
use serde::Serialize;

use super::args::SimArgs;

/// Of `sim`.
#[derive(Serialize, JsonSchema)]
pub struct Document {
    schema: u32,
    /// `scenario`, `cells`, `faults`, `swinging`, `adaptive` or `warming`.
    simulation: &'static str,
    /// Runs of each line, or of all lines together where they share the seeds.
    seeds: usize,
    /// What was simulated: what all cells have in common, or the one scenario; null where each line
    /// has one of its own.
    pub scenario: Option<Simulated>,
    /// What a host pays; null where nobody asked for it.
    pub cost: Option<Cost>,
    /// By cell and method; empty but for `scenario` and `cells`.
    pub methods: Vec<MethodRow>,
    /// What is demanded, and whether it was reached.
    pub demands: Vec<Demand>,
    /// With --faults: by fault.
    pub faults: Vec<FaultRow>,
    /// With --swinging: by length of window, with pauses and without.
    pub swinging: Vec<SwingingRow>,
    /// With --adaptive: by cell and pace.
    pub adaptive: Vec<AdaptiveRow>,
    /// With --warming: by cell.
    pub warming: Vec<WarmingRow>,
}

/// What was simulated.
#[derive(Serialize, JsonSchema)]
pub struct Simulated {
    nodes: u32,
    /// Pairs of nodes that probe each other.
    edges: usize,
    /// Edges of a node.
    neighbors: u32,
    /// The node whose offset is zero.
    reference: u32,
    duration_s: f64,
    window_s: f64,
    /// Share of the time in which a packet finds a queue; null where cells differ in it.
    load: Option<f64>,
    /// Time between two exchanges of a node, ns; null where cells differ in it.
    gap_ns: Option<i64>,
    /// Where timestamps are taken: `hardware`, `kernel` or `user`; null where cells differ in it.
    stamps: Option<StampSource>,
}

/// A method in a cell, all seeds together.
#[derive(Serialize, JsonSchema)]
pub struct MethodRow {
    cell: String,
    /// As `--methods` names it; `probe_sync_between` is probe_sync between the middles of windows.
    method: String,
    seeds: usize,
    estimates: usize,
    /// Nodes and windows without an estimate.
    missing: usize,
    /// Quantiles of the error.
    p50_ns: Option<f64>,
    p95_ns: Option<f64>,
    p99_ns: Option<f64>,
    max_ns: Option<f64>,
    rms_ns: Option<f64>,
    /// Share of the 95 % intervals that hold the truth.
    coverage_95: Option<f64>,
    /// Their mean half-width.
    half_width_95_ns: Option<f64>,
    half_width_per_rms: Option<f64>,
    hard_intervals: Option<usize>,
    /// Hard intervals that the truth was outside of.
    hard_violated: Option<usize>,
    /// What the paths' asymmetry alone makes of an error.
    floor_p50_ns: Option<f64>,
    floor_p99_ns: Option<f64>,
    packets: u64,
}

/// A fault of the list.
#[derive(Serialize, JsonSchema)]
pub struct FaultRow {
    pub fault: String,
    pub runs: usize,
    /// Most rounds from the fault's begin to its name; null where some run named none, or there was
    /// none.
    pub worst_delay_rounds: Option<u64>,
    /// Faults that were not named.
    pub unnamed: usize,
    /// Names that nobody expected.
    pub others: usize,
    /// Rounds in which a healthy edge was left out, and a healthy node had no valid estimate.
    pub healthy_left_out: usize,
    pub healthy_invalid: usize,
    /// The healthy nodes' error, live and smoothed, each with the fault and without.
    pub p99_live_ns: Option<f64>,
    pub p99_live_clean_ns: Option<f64>,
    pub p99_smoothed_ns: Option<f64>,
    pub p99_smoothed_clean_ns: Option<f64>,
    /// What the first run said, or the first name that nobody expected.
    pub said: String,
}

/// Runs with clocks that swing.
#[derive(Serialize, JsonSchema)]
pub struct SwingingRow {
    pub window_s: f64,
    /// Whether nodes paused.
    pub pauses: bool,
    pub runs: usize,
    /// Faults named, none of which happened.
    pub false_names: usize,
    pub rate_changes: usize,
    pub estimates_live: usize,
    pub unusable_live: usize,
    /// Estimates further from the truth than they state.
    pub outside_live: usize,
    pub p99_live_ns: Option<f64>,
    pub estimates_smoothed: usize,
    pub unusable_smoothed: usize,
    pub outside_smoothed: usize,
    pub p99_smoothed_ns: Option<f64>,
    /// Hard intervals that the truth was outside of.
    pub hard_violated: usize,
}

/// A cell at one pace.
#[derive(Serialize, JsonSchema)]
pub struct AdaptiveRow {
    pub cell: String,
    /// `fixed` or `adaptive`.
    pub pace: &'static str,
    pub packets: u64,
    /// Share of nodes and rounds whose error is within the target; without an estimate they are
    /// not.
    pub within: Option<f64>,
    /// The error live.
    pub p99_ns: Option<f64>,
    /// The error of each window alone.
    pub window_p99_ns: Option<f64>,
    /// Median half-width of the 95 % intervals.
    pub median_half_width_95_ns: Option<f64>,
    /// Median time between two exchanges of a host after the last round.
    pub last_cadence_ns: Option<f64>,
    pub extra_edges: usize,
}

/// A cell whose clocks warm up.
#[derive(Serialize, JsonSchema)]
pub struct WarmingRow {
    pub cell: String,
    pub p50_ns: Option<f64>,
    pub p99_ns: Option<f64>,
    /// What the paths' asymmetry alone makes of an error.
    pub floor_p99_ns: Option<f64>,
    pub max_ns: Option<f64>,
    /// Mean half-width of the 95 % intervals, and the share of them that holds the truth.
    pub half_width_95_ns: Option<f64>,
    pub coverage_95: Option<f64>,
    /// Hard intervals that the truth was outside of.
    pub hard_violated: usize,
    pub missing: usize,
    /// A node's mean error over the run in its stated asymmetry, root mean square.
    pub asymmetry_z: Option<f64>,
    /// The windows' lines joined by straight ones.
    pub joined_p50_ns: Option<f64>,
    pub joined_p99_ns: Option<f64>,
    pub live_p50_ns: Option<f64>,
    pub live_p99_ns: Option<f64>,
    pub live_coverage_95: Option<f64>,
    /// Longest time between two usable lines of the windows.
    pub hole_s: Option<f64>,
    pub rate_changes: usize,
    /// Names of anything but changes of rate.
    pub others: usize,
}

impl Document {
    /// Of a simulation; its rows come into it afterwards.
    pub fn new(simulation: &'static str, seeds: usize) -> Self {
        Self {
            schema: 1,
            simulation,
            seeds,
            scenario: None,
            cost: None,
            methods: Vec::new(),
            demands: Vec::new(),
            faults: Vec::new(),
            swinging: Vec::new(),
            adaptive: Vec::new(),
            warming: Vec::new(),
        }
    }

    /// Prints it where a program asked, else the text.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn tell(&self, arguments: &SimArgs, text: &str) -> anyhow::Result<()> {
        if arguments.json { crate::output::json(self) } else { crate::output::tell(text) }
    }
}

impl Simulated {
    /// One scenario's.
    pub fn new(scenario: &Scenario, plan: &Plan, edges: usize) -> Self {
        let [duration_s, window_s] = [plan.duration, plan.window].map(|time| time.as_ns_f64() * 1e-9);
        let (nodes, neighbors, reference) = (scenario.nodes, scenario.neighbors, scenario.reference.0);
        let (load, gap_ns, stamps) = (None, None, None);
        Self { nodes, edges, neighbors, reference, duration_s, window_s, load, gap_ns, stamps }
    }

    /// The same of a run that has a load, a pace and stamps of its own.
    pub fn alone(scenario: &Scenario, plan: &Plan, edges: usize) -> Self {
        let out_edges = edges as f64 / f64::from(scenario.nodes.max(1));
        Self {
            load: Some(scenario.network.load),
            gap_ns: Some(scenario.gap_of(out_edges.round() as usize).as_ns()),
            stamps: Some(scenario.stamps.source),
            ..Self::new(scenario, plan, edges)
        }
    }
}

impl MethodRow {
    /// All of all cells.
    pub fn all(named: &[(String, Outcome)]) -> Vec<Self> {
        let mut rows = Vec::new();
        for (cell, outcome) in named {
            let summaries = outcome.methods.iter().map(|(method, pool)| (method.as_str(), pool.summary()));
            let between = Some(("probe_sync_between", outcome.between.summary())).filter(|(_, of)| of.count > 0);
            rows.extend(summaries.chain(between).map(|(method, summary)| Self::new(cell, method, outcome, &summary)));
        }
        rows
    }

    fn new(cell: &str, method: &str, outcome: &Outcome, summary: &Summary) -> Self {
        let Summary { count, missing, p50_ns, p95_ns, p99_ns, max_ns, rms_ns, interval, hard } = summary;
        let stated = |of: fn(&Coverage) -> f64| interval.as_ref().map(of);
        let floor = outcome.floor().map(ns);
        Self {
            cell: cell.to_owned(),
            method: method.to_owned(),
            seeds: outcome.seeds,
            estimates: *count,
            missing: *missing,
            p50_ns: ns(*p50_ns),
            p95_ns: ns(*p95_ns),
            p99_ns: ns(*p99_ns),
            max_ns: ns(*max_ns),
            rms_ns: ns(*rms_ns),
            coverage_95: stated(Coverage::share).and_then(share),
            half_width_95_ns: stated(|of| of.half_width_ns).and_then(ns),
            half_width_per_rms: stated(|of| of.half_width_per_rms).and_then(share),
            hard_intervals: hard.map(|hard| hard.count),
            hard_violated: hard.map(|hard| hard.count - hard.held),
            floor_p50_ns: floor[0],
            floor_p99_ns: floor[1],
            packets: outcome.packets,
        }
    }
}

/// A length, without digits that mean nothing.
pub fn ns(value: f64) -> Option<f64> {
    value.is_finite().then(|| (value * 1e3).round() / 1e3)
}

/// A share or a ratio, likewise.
pub fn share(value: f64) -> Option<f64> {
    value.is_finite().then(|| (value * 1e5).round() / 1e5)
}

/// Rows as CSV, their fields' names first.
///
/// # Errors
/// Never but for a row that is no line.
pub fn csv<T: Serialize>(rows: &[T]) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    rows.iter().try_for_each(|row| writer.serialize(row)).context("a row of a CSV file")?;
    writer.into_inner().context("a row of a CSV file")
}

/// Tells people where the files are.
///
/// # Errors
/// When standard output cannot be written.
pub fn written(arguments: &SimArgs, out: &Path) -> anyhow::Result<()> {
    if arguments.json { Ok(()) } else { crate::output::tell(&format!("files in {}\n", out.display())) }
}
