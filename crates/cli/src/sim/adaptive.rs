//! `probe_sync sim --adaptive`, which measures how much adaptive probing saves on a quiet network
//! and whether it meets its target on others.
//!
//! `probe_sync_sim::adaptive` runs one seed at the fixed default pace and one with the target. This
//! module runs the six cells (stamps and loads at the cadence of a real run) over the seeds, prints
//! a table with two requirements and writes `adaptive.csv`.

use anyhow::{Context, bail};
use comfy_table::{CellAlignment, ContentArrangement, Table, TableStyle};
use probe_sync::Config;
use probe_sync_estimate::pacing::{PacingOptions, Verdict};
use probe_sync_sim::Scenario;
use probe_sync_sim::accuracy::cells::{Demand, with_stamps};
use probe_sync_sim::accuracy::quantile;
use probe_sync_sim::adaptive::{self, AdaptiveRun};
use probe_sync_time::{Duration, StampSource};

use super::args::{SimArgs, cell_scenario};
use super::document::{AdaptiveRow, Document, ns, share, written};
use super::seeds::Seeds;
use super::{page, tables};
use crate::output::Usage;
use crate::table::{fitted, unsigned};

/// Seeds of `--adaptive`.
pub const SEEDS: u64 = 5;

/// The target if none is given.
pub const TARGET: Duration = Duration::from_ns(200);

/// One scenario, at the fixed pace and with the target.
struct Row {
    name: String,
    /// Required to save packets and to meet the target.
    quiet: bool,
    loaded: bool,
    fixed: Figures,
    adaptive: Figures,
    /// Cadence after the last round, median over the seeds.
    cadence_ns: f64,
    /// Runs that ended with the target reached, and number of runs.
    reached: [usize; 2],
    extra_edges: usize,
}

/// Pooled over the seeds.
struct Figures {
    packets: u64,
    /// Share of nodes and rounds with |error| ≤ target; those without an estimate count as missed.
    within: f64,
    p99_ns: f64,
    window_p99_ns: f64,
    half_width_ns: f64,
}

/// Runs the cells, or the given scenario.
///
/// # Errors
/// Returns an error if the scenario is invalid, if a file cannot be written, or if a signal
/// interrupted it.
pub fn run(arguments: &SimArgs, seeds: &mut Seeds) -> anyhow::Result<()> {
    let target = arguments.target_error.unwrap_or(TARGET);
    if target <= Duration::ZERO {
        bail!(anyhow::anyhow!("--target-error must be greater than zero, for example 200ns").context(Usage));
    }
    let options = Config { adaptive: true, target_error: Some(target), ..Config::default() }
        .pacing()
        .context("adaptive probing was asked for")?;
    let scenarios = scenarios(arguments).map_err(|error| error.context(Usage))?;
    let mut rows = Vec::new();
    seeds.expect(scenarios.len());
    for (name, scenario) in scenarios {
        let times = [arguments.duration.unwrap_or(scenario.duration()), arguments.window.unwrap_or(scenario.window())];
        let load = scenario.network.load;
        let of_seed = |seed, goes_on: &dyn Fn(f64) -> bool| {
            let half =
                |pacing, done: f64| adaptive::run(&scenario, seed, times, pacing, &|share| goes_on(done + share / 2.0));
            Ok(match (half(None, 0.0)?, half(Some(options), 0.5)?) {
                (Some(fixed), Some(adaptive)) => Some([fixed, adaptive]),
                _ => None,
            })
        };
        let runs = seeds.map(&name, of_seed)?.context("stopped by a signal; nothing was written")?;
        rows.push(Row::new(name, load, &runs, &options));
    }
    seeds.finish();
    let mut document = Document::new("adaptive", seeds.count());
    document.adaptive = rows.iter().flat_map(Row::document).collect();
    document.demands = demands(&rows);
    document.tell(arguments, &(table(&rows, target) + &tables::demands(&document.demands)))?;
    let Some(out) = &arguments.out else { return Ok(()) };
    page::write_rows(out, "adaptive", &document.adaptive, &document.demands)?;
    written(arguments, out)
}

/// By name: stamps and loads, at the cadence of a real run.
fn scenarios(arguments: &SimArgs) -> anyhow::Result<Vec<(String, Scenario)>> {
    if arguments.scenario.is_some() {
        return Ok(vec![("scenario".into(), arguments.scenario()?)]);
    }
    let base = cell_scenario()?;
    let mut base = Scenario { pairs_per_second: None, gap: Config::default().cadence(), ..base };
    arguments.change(&mut base)?;
    let loads = arguments.load.map_or(LOADS.to_vec(), |load| vec![load]);
    let mut all = Vec::new();
    for (kind, source) in [("hw", StampSource::Hardware), ("sw", StampSource::Kernel)] {
        for load in &loads {
            let mut scenario = with_stamps(&base, source);
            scenario.network.load = *load;
            all.push((format!("{kind} {load}"), scenario));
        }
    }
    Ok(all)
}

impl Row {
    fn new(name: String, load: f64, runs: &[[AdaptiveRun; 2]], options: &PacingOptions) -> Self {
        let last = |run: &AdaptiveRun| run.steps.last().map(|step| (step.cadence_ns as f64, step.verdict));
        let ends: Vec<(f64, Verdict)> = runs.iter().filter_map(|[_, adaptive]| last(adaptive)).collect();
        let cadences: Vec<f64> = ends.iter().map(|(cadence, _)| *cadence).collect();
        let all = |which: usize| runs.iter().map(|pair| &pair[which]).collect::<Vec<_>>();
        let figures = |which: usize| Figures::new(&all(which), options.target_ns);
        let steps = runs.iter().flat_map(|[_, adaptive]| &adaptive.steps);
        Self {
            name,
            quiet: load <= LOADS[0],
            loaded: load >= LOADS[2],
            fixed: figures(0),
            adaptive: figures(1),
            cadence_ns: probe_sync::report::median(cadences),
            reached: [ends.iter().filter(|(_, verdict)| *verdict == Verdict::Reached).count(), ends.len()],
            extra_edges: steps.map(|step| step.extra_edges.len()).max().unwrap_or(0),
        }
    }

    fn document(&self) -> [AdaptiveRow; 2] {
        let row = |pace, of: &Figures, cadence_ns, extra_edges| AdaptiveRow {
            cell: self.name.clone(),
            pace,
            packets: of.packets,
            within: share(of.within),
            p99_ns: ns(of.p99_ns),
            window_p99_ns: ns(of.window_p99_ns),
            median_half_width_95_ns: ns(of.half_width_ns),
            last_cadence_ns: ns(cadence_ns),
            extra_edges,
        };
        [
            row("fixed", &self.fixed, Config::default().cadence().as_ns_f64(), 0),
            row("adaptive", &self.adaptive, self.cadence_ns, self.extra_edges),
        ]
    }

    fn share_of_packets(&self) -> f64 {
        self.adaptive.packets as f64 / self.fixed.packets.max(1) as f64
    }
}

impl Figures {
    fn new(runs: &[&AdaptiveRun], target_ns: f64) -> Self {
        let pooled = |of: fn(&AdaptiveRun) -> &Vec<f64>| -> Vec<f64> {
            let mut all: Vec<f64> = runs.iter().flat_map(|run| of(run)).copied().collect();
            all.sort_unstable_by(f64::total_cmp);
            all
        };
        let live = pooled(|run| &run.live_errors_ns);
        let missing: usize = runs.iter().map(|run| run.missing).sum();
        let good = live.partition_point(|error| *error <= target_ns);
        Self {
            packets: runs.iter().map(|run| run.packets).sum(),
            within: good as f64 / (live.len() + missing).max(1) as f64,
            p99_ns: quantile(&live, 0.99),
            window_p99_ns: quantile(&pooled(|run| &run.window_errors_ns), 0.99),
            half_width_ns: quantile(&pooled(|run| &run.half_widths_ns), 0.5),
        }
    }
}

fn table(rows: &[Row], target: Duration) -> String {
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "stamps, load",
        "packets fixed",
        "adaptive",
        "share",
        "cadence at last",
        "within: fixed",
        "adaptive",
        "p99: fixed",
        "adaptive",
        "window alone",
        "±95 %: fixed",
        "adaptive",
        "extra edges",
        "reached",
    ]);
    let per_cent = |share: f64| format!("{:.1} %", 100.0 * share);
    for row in rows {
        let (fixed, adaptive) = (&row.fixed, &row.adaptive);
        let [reached, runs] = row.reached;
        table.add_row([
            row.name.clone(),
            fixed.packets.to_string(),
            adaptive.packets.to_string(),
            per_cent(row.share_of_packets()),
            unsigned(row.cadence_ns),
            per_cent(fixed.within),
            per_cent(adaptive.within),
            unsigned(fixed.p99_ns),
            unsigned(adaptive.p99_ns),
            unsigned(adaptive.window_p99_ns),
            unsigned(fixed.half_width_ns),
            unsigned(adaptive.half_width_ns),
            row.extra_edges.to_string(),
            format!("{reached} of {runs}"),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "target ±{}; within: nodes and rounds with |error| at most that; p99: |error| of the live smoother; window alone: without \
         it; ±95 %: median\n{}",
        unsigned(target.as_ns_f64()),
        fitted(table, &[])
    )
}

/// Requirements for quiet and loaded cells.
fn demands(rows: &[Row]) -> Vec<Demand> {
    let most = rows.iter().filter(|row| row.quiet).max_by(|a, b| a.share_of_packets().total_cmp(&b.share_of_packets()));
    let least = rows.iter().filter(|row| row.loaded).min_by(|a, b| a.adaptive.within.total_cmp(&b.adaptive.within));
    let quiet = most.map(|row| (row, row.share_of_packets())).map(|(row, share)| Demand {
        what: "quiet: at most 1/5 of the fixed packets".into(),
        found: format!("{:.1} % ({})", 100.0 * share, row.name),
        reached: share <= PACKETS_SHARE_MAX,
    });
    let loaded = least.map(|row| (row, row.adaptive.within)).map(|(row, within)| Demand {
        what: "loaded: at least 95 % within the target".into(),
        found: format!("{:.1} % ({})", 100.0 * within, row.name),
        reached: within >= WITHIN_MIN,
    });
    quiet.into_iter().chain(loaded).collect()
}

/// Quiet, medium, loaded.
const LOADS: [f64; 3] = [0.2, 0.5, 0.8];

/// Share of the packets of the fixed pace that quiet cells may take.
const PACKETS_SHARE_MAX: f64 = 0.2;

/// Share of nodes and rounds that must be within the target in loaded cells.
const WITHIN_MIN: f64 = 0.95;
