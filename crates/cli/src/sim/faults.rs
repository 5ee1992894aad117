//! `probe_sync sim --faults`, which injects every fault of the list and reports what was named,
//! when, and the errors of the healthy nodes.
//!
//! `fault_cases` of the pure crate runs and judges; this module runs its cases over the seeds,
//! prints a table and writes `faults.csv` and a page. The last lines are clean runs of the twelve
//! cells, where any named fault is a false alarm. In the lines after them clocks warm up, and
//! anything named there other than a change of rate is a false alarm too.
//!
//! `probe_sync_sim::fault_cases` defines what counts as named or healthy.

use anyhow::{Context, bail};
use comfy_table::{CellAlignment, ContentArrangement, Table, TableStyle};
use probe_sync_lines::FaultKind;
use probe_sync_sim::accuracy::cells::{Cell, with_stamps};
use probe_sync_sim::fault_cases::{CaseOutcome, FaultCase, cases, clean, compare, run_case};
use probe_sync_sim::{Scenario, Simulation, Thermal};
use probe_sync_time::StampSource;

use super::args::{SimArgs, StampKind, cell_scenario};
use super::document::{Document, FaultRow, ns, written};
use super::page;
use super::seeds::Seeds;
use crate::output::Usage;
use crate::table::{fitted, unsigned};

/// Seeds of `--faults`.
pub const SEEDS: u64 = 20;

/// A line of the table.
struct Row {
    name: String,
    runs: usize,
    /// Largest number of rounds from the start of a fault until it is named; `None` if one was not
    /// named in some run.
    worst_delay: Option<u64>,
    unnamed: usize,
    others: usize,
    healthy_left_out: usize,
    healthy_invalid: usize,
    /// Live and smoothed, with and without the fault, ns; `None` for clean runs.
    p99_ns: Option<[[f64; 2]; 2]>,
    example: String,
}

/// Runs the cases and, over all loads, clean runs.
///
/// # Errors
/// Returns an error if the scenario is too small for the faults, if a file cannot be written, or if
/// a signal interrupted it.
pub fn run(arguments: &SimArgs, seeds: &mut Seeds) -> anyhow::Result<()> {
    let base = scenario(arguments).map_err(|error| error.context(Usage))?;
    let start_s = START_WINDOWS * base.window_s;
    if base.nodes < NODES_MIN || base.duration_s < start_s + ROOM_WINDOWS * base.window_s {
        bail!(
            anyhow::anyhow!("--faults needs {NODES_MIN} nodes and {} windows", START_WINDOWS + ROOM_WINDOWS)
                .context(Usage)
        );
    }
    let names: Vec<&str> = cases(&base, &[], start_s).iter().map(|case| case.name).collect();
    let cells = if arguments.scenario.is_some() { Vec::new() } else { Cell::all().to_vec() };
    // Clocks that warm up, at the rate of the faults: 200 pairs per second would cost hours and
    // show the same.
    let warming: Vec<Cell> = cells.iter().copied().filter(|cell| cell.pairs_per_second < 200.0).collect();
    seeds.expect(names.len() + 1 + cells.len() + warming.len());
    let stopped = || anyhow::anyhow!("stopped by a signal; nothing was written");
    let without = seeds.map("clean", |seed, _| run_case(&base, &clean(), seed).map(Some))?.with_context(stopped)?;
    let mut rows = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let of_seed = |seed, _: &dyn Fn(f64) -> bool| {
            let edges = Simulation::new(base.clone(), seed)?.edges().to_vec();
            let case: FaultCase = cases(&base, &edges, start_s).swap_remove(at);
            run_case(&base, &case, seed).map(Some)
        };
        let runs = seeds.map(name, of_seed)?.with_context(stopped)?;
        rows.push(Row::new(name, runs, Some(&without)));
    }
    rows.push(Row::new("clean", without, None));
    for cell in cells {
        let scenario = cell.scenario(&cell_scenario()?);
        let name = format!("clean, {}", cell.name());
        let runs = seeds.map(&name, |seed, _| run_case(&scenario, &clean(), seed).map(Some))?.with_context(stopped)?;
        rows.push(Row::new(&name, runs, None));
    }
    for cell in warming {
        let mut scenario = cell.scenario(&cell_scenario()?);
        scenario.clocks.thermal = WARMING;
        let name = format!("warming, {}", cell.name());
        let of_seed =
            |seed, _: &dyn Fn(f64) -> bool| run_case(&scenario, &clean(), seed).map(|run| Some(without_rates(run)));
        rows.push(Row::new(&name, seeds.map(&name, of_seed)?.with_context(stopped)?, None));
    }
    seeds.finish();
    let mut document = Document::new("faults", seeds.count());
    document.faults = rows.iter().map(Row::document).collect();
    document.tell(arguments, &table(&rows))?;
    let Some(out) = &arguments.out else { return Ok(()) };
    page::write_rows(out, "faults", &document.faults, &[])?;
    written(arguments, out)
}

/// The file, or the base of the cells at 20 pairs per second; modified by the flags.
fn scenario(arguments: &SimArgs) -> anyhow::Result<Scenario> {
    if arguments.scenario.is_some() {
        return arguments.scenario();
    }
    let mut scenario = cell_scenario()?;
    arguments.change(&mut scenario)?;
    scenario.duration_s = arguments.duration.map_or(scenario.duration_s, |duration| duration.as_ns_f64() * 1e-9);
    scenario.window_s = arguments.window.map_or(scenario.window_s, |window| window.as_ns_f64() * 1e-9);
    let source = if arguments.stamps == Some(StampKind::Hw) { StampSource::Hardware } else { StampSource::Kernel };
    Ok(with_stamps(&scenario, source))
}

impl Row {
    fn new(name: &str, runs: Vec<CaseOutcome>, without: Option<&Vec<CaseOutcome>>) -> Self {
        let delays = || runs.iter().flat_map(|run| &run.delays);
        let unnamed = delays().filter(|delay| delay.is_none()).count();
        let worst_delay = if unnamed > 0 { None } else { delays().copied().flatten().max() };
        let odd = runs.iter().find_map(|run| run.others.first());
        let usual = || runs.first().map(|run| run.named.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
        let example = odd.map_or_else(|| usual().unwrap_or_default(), |odd| format!("not expected: {odd}"));
        let mut row = Self {
            name: name.to_owned(),
            runs: runs.len(),
            worst_delay,
            unnamed,
            others: runs.iter().map(|run| run.others.len()).sum(),
            healthy_left_out: runs.iter().map(|run| run.healthy_left_out.len()).sum(),
            healthy_invalid: runs.iter().map(|run| run.healthy_invalid).sum(),
            p99_ns: None,
            example,
        };
        if let Some(without) = without {
            let pairs: Vec<(CaseOutcome, CaseOutcome)> = runs.into_iter().zip(without.iter().cloned()).collect();
            let comparison = compare(&pairs);
            row.p99_ns = Some([comparison.live_ns, comparison.smoothed_ns]);
        }
        row
    }

    fn document(&self) -> FaultRow {
        let p99 = |which: usize, clean: usize| self.p99_ns.and_then(|both| ns(both[which][clean]));
        FaultRow {
            fault: self.name.clone(),
            runs: self.runs,
            worst_delay_rounds: self.worst_delay,
            unnamed: self.unnamed,
            others: self.others,
            healthy_left_out: self.healthy_left_out,
            healthy_invalid: self.healthy_invalid,
            p99_live_ns: p99(0, 0),
            p99_live_clean_ns: p99(0, 1),
            p99_smoothed_ns: p99(1, 0),
            p99_smoothed_clean_ns: p99(1, 1),
            said: self.example.clone(),
        }
    }
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "fault",
        "runs",
        "named after",
        "unnamed",
        "others",
        "left out",
        "invalid",
        "p99 live",
        "of clean",
        "smoothed",
        "of clean",
        "message (first run)",
    ]);
    for row in rows {
        let delay = match (row.worst_delay, row.p99_ns) {
            (Some(delay), _) => format!("≤ {delay} rounds"),
            (None, None) => String::new(),
            (None, Some(_)) => "NEVER".into(),
        };
        let counts =
            [row.unnamed, row.others, row.healthy_left_out, row.healthy_invalid].map(|count| count.to_string());
        let mut cells = vec![row.name.clone(), row.runs.to_string(), delay];
        cells.extend(counts);
        match row.p99_ns {
            Some(both) => both.iter().for_each(|[with, without]| {
                cells.push(unsigned(*with));
                cells.push(format!("{:.2}", ratio(*with, *without)));
            }),
            None => cells.extend([const { String::new() }; 4]),
        }
        cells.push(row.example.clone());
        table.add_row(cells);
    }
    for column in table.column_iter_mut().filter(|column| (1..11).contains(&column.index)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "named after: most rounds from the start of a fault to its detection; others: unexpected detections; left out: rounds of \
        healthy edges; invalid: rounds of healthy nodes; p99: healthy nodes' error\n{}",
        fitted(table, &[])
    )
}

fn ratio(with: f64, without: f64) -> f64 {
    if without > 0.0 { with / without } else { f64::NAN }
}

/// A clock that warms up has changed its rate, so naming that is correct; anything else is a false
/// alarm.
fn without_rates(mut run: CaseOutcome) -> CaseOutcome {
    run.others.retain(|named| named.kind != FaultKind::RateJump);
    run
}

/// Every 40 s the rate of a clock starts to approach another, 0.2 ppm away, with a time constant of
/// 15 s.
const WARMING: Thermal = Thermal { every_s: 40.0, sd_ppm: 0.2, tau_s: 15.0 };

/// Faults begin in the middle of the seventh window.
const START_WINDOWS: f64 = 6.5;

/// Windows after the start: a partition of 20 s, and its end.
const ROOM_WINDOWS: f64 = 8.0;

/// The cases use nodes up to the seventh.
const NODES_MIN: u32 = 9;
