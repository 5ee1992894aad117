//! The documents that a run writes once, `run.json`, `report.json` and `truth.json`, and the rows
//! of nodes that the page shows.
//!
//! They are read before the rounds. `report.json` is read with the type that wrote it, so that the
//! page's values are its values. It does not fail if a document is truncated; the page names the
//! unreadable one.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use probe_sync::report::{NodeRow, RunReport};
use probe_sync::{Error as RunError, Truth, config};
use probe_sync_files::{newest, open_regular};
use probe_sync_lines::{Fault, Round};
use probe_sync_time::{NodeId, StampSource};
use serde::Deserialize;

use crate::Error;
use crate::quantity::unsigned;
use crate::series::Survey;
use crate::table::Table;

/// The documents of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Documents {
    run: RunDocument,
    /// Its final report.
    pub report: Option<RunReport>,
    /// The readings of its virtual clocks.
    pub truth: Option<Truth>,
    /// What could not be read.
    pub notes: Vec<String>,
}

/// The parts of `run.json` that are needed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct RunDocument {
    run_id: String,
    version: String,
    backend: String,
    ranks: usize,
    reference: Option<NodeId>,
    configuration: BTreeMap<String, String>,
    nodes: Vec<NodeDocument>,
}

#[derive(Clone, Debug, Deserialize)]
struct NodeDocument {
    node_id: NodeId,
    #[serde(default)]
    rank: u32,
    #[serde(default)]
    hostname: String,
    stamp: Option<StampSource>,
}

impl Documents {
    /// Reads the documents.
    pub fn read(directory: &Path) -> Result<Self, Error> {
        let mut documents = Self::default();
        let mut text = Vec::new();
        let read = open_regular(&directory.join("run.json")).and_then(|mut file| file.read_to_end(&mut text));
        read.map_err(|source| Error::File { path: directory.join("run.json"), source })?;
        match serde_json::from_slice(&text) {
            Ok(run) => documents.run = run,
            Err(error) => {
                documents.notes.push(format!("run.json cannot be read: {error}. Its information is omitted."));
            }
        }
        documents.report = documents.or_noted("report.json", RunReport::read(directory));
        documents.truth = documents.or_noted("truth.json", Truth::read(directory));
        Ok(documents)
    }

    fn or_noted<T>(&mut self, name: &str, read: Result<Option<T>, RunError>) -> Option<T> {
        read.unwrap_or_else(|error| {
            // The path is this machine's.
            let reason = match &error {
                RunError::File { source, .. } => source.to_string(),
                other => other.to_string(),
            };
            self.notes.push(format!("{name} cannot be read: {reason}. Its information is omitted."));
            None
        })
    }

    /// The node whose offset is zero.
    pub fn reference(&self) -> Option<NodeId> {
        self.report.as_ref().map(|report| report.reference).or(self.run.reference)
    }

    /// Target half-width, ns; `None` at a fixed pace.
    pub fn target_ns(&self) -> Option<f64> {
        let pacing = self.report.as_ref().and_then(|report| report.pacing.as_ref());
        let configured = || {
            let text = self.run.configuration.get("target_error")?;
            config::duration(text).ok().map(|target| target.as_ns() as f64)
        };
        pacing.map(|pacing| pacing.target_ns).or_else(configured)
    }

    /// All faults in the order in which they were confirmed: from the report, otherwise from the
    /// rounds on disk.
    pub fn faults(&self, directory: &Path) -> Result<Vec<Fault>, Error> {
        match &self.report {
            Some(report) => Ok(report.faults.clone()),
            None => recorded_faults(directory),
        }
    }

    /// The rows of the nodes from the report, otherwise from the last round.
    pub fn rows(&self, survey: &Survey) -> Vec<NodeRow> {
        if let Some(report) = &self.report {
            return report.nodes.clone();
        }
        survey.nodes.iter().map(|(node, of)| self.row(*node, &of.last)).collect()
    }

    fn row(&self, node: NodeId, last: &crate::rounds::Estimate) -> NodeRow {
        let named = self.run.nodes.iter().find(|named| named.node_id == node);
        let finite = |bound: f64| bound.is_finite().then_some(bound);
        let truth = Some(last.truth_ns).filter(|truth| truth.is_finite());
        NodeRow {
            node_id: node,
            rank: named.map_or(node.0, |named| named.rank),
            host: named.map(|named| named.hostname.clone()).unwrap_or_default(),
            stamp: named.and_then(|named| named.stamp).unwrap_or(StampSource::User),
            reachable: last.reachable,
            clock_disturbed: last.disturbed,
            offset_ns: last.offset_ns,
            drift_ppm: last.rate_ppm,
            half_width_95_ns: last.half_width_ns,
            hard_interval_ns: last.hard_ns.map(finite),
            edges: 0,
            lost: 0,
            true_offset_ns: truth,
            error_ns: truth.filter(|_| last.reachable).map(|truth| last.offset_ns - truth),
            bounds_held: None,
        }
    }

    /// Facts about the run.
    pub fn facts(&self, survey: &Survey) -> Vec<(String, String)> {
        let RunDocument { run_id, version, backend, ranks, configuration, .. } = &self.run;
        let span = survey.seconds(survey.last_at_ns) * 1e9;
        let mut facts = vec![
            ("run", run_id.clone()),
            ("ranks", format!("{ranks} over {backend}")),
            ("nodes", self.run.nodes.len().max(survey.nodes.len()).to_string()),
            ("reference", self.reference().map_or_else(|| "unknown".into(), |node| format!("node {node}"))),
            (
                "rounds",
                if survey.rounds > 1 {
                    format!("{} in {}", survey.rounds, unsigned(span))
                } else {
                    survey.rounds.to_string()
                },
            ),
            ("probe_sync", version.clone()),
        ];
        if let Some(seed) = configuration.get("inject_skew").filter(|seed| *seed != "none") {
            facts.push(("virtual clocks", format!("seed {seed}")));
        }
        facts.retain(|(_, value)| !value.is_empty());
        facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The cost of the run, and other tables of the report.
    pub fn tables(&self) -> Vec<Table> {
        let Some(report) = &self.report else { return Vec::new() };
        let mut tables = vec![cost(report)];
        if !report.phases.is_empty() {
            let mut table = Table::new("Phases", &["phase", "first round", "last round", "length"]);
            let row = |phase: &probe_sync::report::Phase| {
                let length = unsigned((phase.end_ns - phase.start_ns).as_ns_f64());
                vec![phase.name.clone(), phase.first.to_string(), phase.last.to_string(), length]
            };
            table.rows = report.phases.iter().take(ROWS_MAX).map(row).collect();
            tables.push(table);
        }
        let counted = report.counters.iter().filter(|(_, count)| **count > 0);
        let mut table = Table::new("Counters, all ranks together", &["counter", "count", "meaning"]);
        table.rows = counted
            .map(|(counter, count)| vec![counter.name().to_owned(), count.to_string(), counter.help().to_owned()])
            .collect();
        tables.push(table);
        tables
    }
}

fn cost(report: &RunReport) -> Table {
    let (sent, lost) = report.packets.iter().fold((0, 0), |sum, of| (sum.0 + of.sent, sum.1 + of.lost));
    let share = if sent > 0 { 100.0 * lost as f64 / sent as f64 } else { 0.0 };
    let mut table = Table::new("Cost", &["what", "value"]);
    let mut row = |what: &str, value: String| table.rows.push(vec![what.to_owned(), value]);
    row("packets sent", sent.to_string());
    row("packets lost", format!("{lost} ({share:.3} %)"));
    if report.seconds > 0.0 {
        row("packets per second, all nodes", format!("{:.0}", sent as f64 / report.seconds));
    }
    row("processor, all ranks", format!("{:.1} % of one core", 100.0 * report.cpu_cores));
    row("total time of the rounds", unsigned(report.seconds * 1e9));
    let [median, most] = report.round_latency_us.map(|us| unsigned(us * 1e3));
    row("from a window's end to its solution, median", median);
    row("from a window's end to its solution, longest", most);
    if let Some(pacing) = &report.pacing {
        row("pace", pacing.reason());
        let (first, last) = (pacing.configured_cadence_ns as f64, pacing.final_cadence_ns as f64);
        row(
            "interval between exchanges of a host, first and last",
            format!("{} and {}", unsigned(first), unsigned(last)),
        );
        let share = 100.0 * pacing.exchanges_per_host / pacing.exchanges_per_host_fixed.max(1.0);
        row(
            "exchanges per host",
            format!("{:.0}, {share:.1} % of those at the initial cadence", pacing.exchanges_per_host),
        );
    }
    table
}

/// Faults of the rounds at the end of `global_windows.jsonl`.
fn recorded_faults(directory: &Path) -> Result<Vec<Fault>, Error> {
    let path = newest(&directory.join("global_windows.jsonl"));
    let file = match open_regular(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(Error::File { path, source }),
    };
    let rounds = probe_sync::standing::last_lines(&file, |rounds: &[Round]| rounds.len() >= ROUNDS_MAX);
    let rounds = rounds.map_err(|source| Error::File { path, source })?;
    Ok(rounds.into_iter().rev().flat_map(|round| round.watch.faults).collect())
}

/// Most rows of a table of the report.
const ROWS_MAX: usize = 200;
/// Rounds searched for faults if there is no report.
const ROUNDS_MAX: usize = 4096;
