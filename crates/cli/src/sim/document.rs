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

/// Output of `probe_sync sim --json`.
#[derive(Serialize, JsonSchema)]
pub struct Document {
    schema: u32,
    /// `scenario`, `cells`, `faults` or `adaptive`.
    simulation: &'static str,
    /// Runs per row, or of all rows together if they share the seeds.
    seeds: usize,
    /// The simulated scenario, or what all cells have in common; null if each row has its own.
    pub scenario: Option<Simulated>,
    /// Cost per host; null if not requested.
    pub cost: Option<Cost>,
    /// Rows by cell and method; empty except for `scenario` and `cells`.
    pub methods: Vec<MethodRow>,
    /// Requirements, and whether they were met.
    pub demands: Vec<Demand>,
    /// With `--faults`: rows by fault.
    pub faults: Vec<FaultRow>,
    /// With `--adaptive`: rows by cell and pace.
    pub adaptive: Vec<AdaptiveRow>,
}

/// The simulated scenario.
#[derive(Serialize, JsonSchema)]
pub struct Simulated {
    nodes: u32,
    /// Pairs of nodes that probe each other.
    edges: usize,
    /// Edges per node.
    neighbors: u32,
    /// Reference node, whose offset is zero.
    reference: u32,
    duration_s: f64,
    window_s: f64,
    /// Share of the time in which a packet finds a queue; null if the cells differ.
    load: Option<f64>,
    /// Time between two exchanges of a node, ns; null if the cells differ.
    gap_ns: Option<i64>,
    /// Where timestamps are taken: `hardware`, `kernel` or `user`; null if the cells differ.
    stamps: Option<StampSource>,
}

/// One method in one cell, over all seeds.
#[derive(Serialize, JsonSchema)]
pub struct MethodRow {
    cell: String,
    /// Name as in `--methods`; `probe_sync_between` is probe_sync between window midpoints.
    method: String,
    seeds: usize,
    estimates: usize,
    /// Node-windows without an estimate.
    missing: usize,
    /// Median error, ns; the following fields are other quantiles, the maximum and the root mean
    /// square.
    p50_ns: Option<f64>,
    p95_ns: Option<f64>,
    p99_ns: Option<f64>,
    max_ns: Option<f64>,
    rms_ns: Option<f64>,
    /// Share of the 95 % intervals that contain the truth.
    coverage_95: Option<f64>,
    /// Mean half-width of the 95 % intervals, ns.
    half_width_95_ns: Option<f64>,
    half_width_per_rms: Option<f64>,
    hard_intervals: Option<usize>,
    /// Hard intervals that do not contain the truth.
    hard_violated: Option<usize>,
    /// Median error that path asymmetry alone causes, ns; `floor_p99_ns` is the 99th percentile.
    floor_p50_ns: Option<f64>,
    floor_p99_ns: Option<f64>,
    packets: u64,
}

/// One simulated fault.
#[derive(Serialize, JsonSchema)]
pub struct FaultRow {
    pub fault: String,
    pub runs: usize,
    /// Largest number of rounds from the start of the fault until it was named; null if a run did
    /// not name it, or if there was no fault.
    pub worst_delay_rounds: Option<u64>,
    /// Faults that were not named.
    pub unnamed: usize,
    /// Faults named that were not expected.
    pub others: usize,
    /// Rounds in which a healthy edge was excluded; `healthy_invalid` counts those in which a
    /// healthy node had no valid estimate.
    pub healthy_left_out: usize,
    pub healthy_invalid: usize,
    /// 99th percentile of the healthy nodes' error, ns: live and smoothed, each with and without
    /// the fault.
    pub p99_live_ns: Option<f64>,
    pub p99_live_clean_ns: Option<f64>,
    pub p99_smoothed_ns: Option<f64>,
    pub p99_smoothed_clean_ns: Option<f64>,
    /// Faults named by the first run, or the first unexpected one.
    pub said: String,
}

/// One cell at one pace.
#[derive(Serialize, JsonSchema)]
pub struct AdaptiveRow {
    pub cell: String,
    /// `fixed` or `adaptive`.
    pub pace: &'static str,
    pub packets: u64,
    /// Share of node-rounds whose error is within the target; those without an estimate count as
    /// outside.
    pub within: Option<f64>,
    /// 99th percentile of the live error, ns.
    pub p99_ns: Option<f64>,
    /// 99th percentile of the error of single windows, ns.
    pub window_p99_ns: Option<f64>,
    /// Median half-width of the 95 % intervals, ns.
    pub median_half_width_95_ns: Option<f64>,
    /// Median time between two exchanges of a host after the last round, ns.
    pub last_cadence_ns: Option<f64>,
    pub extra_edges: usize,
}

impl Document {
    /// Creates a document without rows.
    pub fn new(simulation: &'static str, seeds: usize) -> Self {
        Self {
            schema: 2,
            simulation,
            seeds,
            scenario: None,
            cost: None,
            methods: Vec::new(),
            demands: Vec::new(),
            faults: Vec::new(),
            adaptive: Vec::new(),
        }
    }

    /// Prints the document as JSON if requested, otherwise the text.
    ///
    /// # Errors
    /// Returns an error if standard output cannot be written.
    pub fn tell(&self, arguments: &SimArgs, text: &str) -> anyhow::Result<()> {
        if arguments.json { crate::output::json(self) } else { crate::output::tell(text) }
    }
}

impl Simulated {
    /// Describes a scenario, without what may differ between cells.
    pub fn new(scenario: &Scenario, plan: &Plan, edges: usize) -> Self {
        let [duration_s, window_s] = [plan.duration, plan.window].map(|time| time.as_ns_f64() * 1e-9);
        let (nodes, neighbors, reference) = (scenario.nodes, scenario.neighbors, scenario.reference.0);
        let (load, gap_ns, stamps) = (None, None, None);
        Self { nodes, edges, neighbors, reference, duration_s, window_s, load, gap_ns, stamps }
    }

    /// Describes a single run, with its load, pace and stamp source.
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
    /// Returns one row per cell and method.
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

/// Rounds a time to 0.001 ns; `None` if it is not finite.
pub fn ns(value: f64) -> Option<f64> {
    value.is_finite().then(|| (value * 1e3).round() / 1e3)
}

/// Rounds a share or ratio to five decimals; `None` if it is not finite.
pub fn share(value: f64) -> Option<f64> {
    value.is_finite().then(|| (value * 1e5).round() / 1e5)
}

/// Formats rows as CSV, with field names as the header.
///
/// # Errors
/// Returns an error if a row cannot be written as CSV.
pub fn csv<T: Serialize>(rows: &[T]) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    rows.iter().try_for_each(|row| writer.serialize(row)).context("a row of a CSV file")?;
    writer.into_inner().context("a row of a CSV file")
}

/// Prints where the files are, unless JSON was requested.
///
/// # Errors
/// Returns an error if standard output cannot be written.
pub fn written(arguments: &SimArgs, out: &Path) -> anyhow::Result<()> {
    if arguments.json { Ok(()) } else { crate::output::tell(&format!("files in {}\n", out.display())) }
}
