//! `probe_sync sim --warming`, which simulates warming clocks with the second generator and reports
//! the errors, whether the stated intervals hold, and the faults named.
//!
//! `probe_sync_sim::warming` runs and judges a seed; this module runs its three cells over the
//! seeds, prints a table with requirements and writes `warming.csv` and a page.

use anyhow::Context;
use comfy_table::{CellAlignment, ContentArrangement, Table, TableStyle};
use probe_sync_sim::accuracy::cells::Demand;
use probe_sync_sim::accuracy::{Coverage, Summary, quantile};
use probe_sync_sim::warming::{WarmingCell, WarmingOutcome, run as run_seed};
use probe_sync_time::StampSource;

use super::args::SimArgs;
use super::document::{Document, WarmingRow, ns, share, written};
use super::seeds::Seeds;
use super::{page, tables};
use crate::table::{fitted, unsigned};

/// Seeds of `--warming`.
pub const SEEDS: u64 = 12;

/// A cell, its seeds pooled.
struct Row {
    cell: WarmingCell,
    outcome: WarmingOutcome,
    lines: Summary,
    joined: Summary,
    live: Summary,
}

/// Runs the cells.
///
/// # Errors
/// Returns an error if a file cannot be written or if a signal interrupted it.
pub fn run(arguments: &SimArgs, seeds: &mut Seeds) -> anyhow::Result<()> {
    seeds.expect(WarmingCell::ALL.len());
    let mut rows = Vec::new();
    for cell in WarmingCell::ALL {
        let runs = seeds.map(&cell.name(), |seed, _| Ok(Some(run_seed(&cell, seed))))?;
        let mut outcome = WarmingOutcome::default();
        runs.context("stopped by a signal; nothing was written")?.iter().for_each(|run| outcome.add(run));
        rows.push(Row::new(cell, outcome));
    }
    seeds.finish();
    let mut document = Document::new("warming", seeds.count());
    document.warming = rows.iter().map(Row::document).collect();
    document.demands = demands(&rows);
    document.tell(arguments, &(table(&rows) + &tables::demands(&document.demands)))?;
    let Some(out) = &arguments.out else { return Ok(()) };
    page::write_rows(out, "warming", &document.warming, &document.demands)?;
    written(arguments, out)
}

impl Row {
    fn new(cell: WarmingCell, outcome: WarmingOutcome) -> Self {
        let [lines, joined, live] = [&outcome.lines, &outcome.joined, &outcome.live].map(|pool| pool.summary());
        Self { cell, outcome, lines, joined, live }
    }

    fn floor_p99_ns(&self) -> f64 {
        let mut sorted = self.outcome.floor_ns.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        quantile(&sorted, 0.99)
    }

    fn document(&self) -> WarmingRow {
        let Self { lines, joined, live, outcome, .. } = self;
        let coverage = |of: &Summary| of.interval.as_ref().and_then(|interval| share(interval.share()));
        WarmingRow {
            cell: self.cell.name(),
            p50_ns: ns(lines.p50_ns),
            p99_ns: ns(lines.p99_ns),
            floor_p99_ns: ns(self.floor_p99_ns()),
            max_ns: ns(lines.max_ns),
            half_width_95_ns: lines.interval.as_ref().and_then(|interval| ns(interval.half_width_ns)),
            coverage_95: coverage(lines),
            hard_violated: lines.hard.map_or(0, |hard| hard.count - hard.held),
            missing: lines.missing,
            asymmetry_z: share(self.asymmetry_z()[0]),
            joined_p50_ns: ns(joined.p50_ns),
            joined_p99_ns: ns(joined.p99_ns),
            live_p50_ns: ns(live.p50_ns),
            live_p99_ns: ns(live.p99_ns),
            live_coverage_95: coverage(live),
            hole_s: ns(outcome.hole_s),
            rate_changes: outcome.rate_changes,
            others: outcome.others.len(),
        }
    }

    /// Root mean square over the seeds, and the largest.
    fn asymmetry_z(&self) -> [f64; 2] {
        let all = &self.outcome.asymmetry_z;
        let square = all.iter().map(|z| z * z).sum::<f64>() / all.len().max(1) as f64;
        [square.sqrt(), all.iter().copied().fold(0.0, f64::max)]
    }
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "stamps, load",
        "p50",
        "p99",
        "of asymmetry alone",
        "max",
        "±95 % (mean)",
        "covers",
        "±/RMS",
        "hard violated",
        "missing",
        "z of asymmetry",
        "largest",
        "joined p50",
        "p99",
        "live p50",
        "p99",
        "covers",
        "longest hole",
        "rate changes",
        "others named",
    ]);
    for row in rows {
        let Row { lines, joined, live, outcome, .. } = row;
        let per_rms = lines.interval.map_or_else(String::new, |interval| format!("{:.2}", interval.half_width_per_rms));
        let hard = lines.hard.map_or_else(String::new, |hard| format!("{}/{}", hard.count - hard.held, hard.count));
        let [z, largest] = row.asymmetry_z();
        table.add_row([
            row.cell.name(),
            unsigned(lines.p50_ns),
            unsigned(lines.p99_ns),
            unsigned(row.floor_p99_ns()),
            unsigned(lines.max_ns),
            lines.interval.map_or_else(String::new, |interval| unsigned(interval.half_width_ns)),
            covers(lines.interval),
            per_rms,
            hard,
            lines.missing.to_string(),
            format!("{z:.2}"),
            format!("{largest:.2}"),
            unsigned(joined.p50_ns),
            unsigned(joined.p99_ns),
            unsigned(live.p50_ns),
            unsigned(live.p99_ns),
            covers(live.interval),
            unsigned(outcome.hole_s * 1e9),
            outcome.rate_changes.to_string(),
            outcome.others.len().to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let seeds = rows.first().map_or(0, |row| row.outcome.asymmetry_z.len());
    format!(
        "{seeds} seeds; |error| of every node every 250 ms; of asymmetry alone: p99 if everything else were known; z: mean error of a \
        node over the run relative to its stated asymmetry, RMS per seed;\njoined: the windows' estimates with linear interpolation; \
        longest hole: between two usable estimates of the windows\n\
         {}",
        fitted(table, &[])
    )
}

fn demands(rows: &[Row]) -> Vec<Demand> {
    let mut all = Vec::new();
    let mut demand = |what: &str, found: String, reached: bool| {
        all.push(Demand { what: what.to_owned(), found, reached });
    };
    let stated = rows.iter().filter_map(|row| row.lines.interval);
    let (held, count) = stated.fold((0, 0), |(held, count), interval| (held + interval.held, count + interval.count));
    let pooled = held as f64 / count.max(1) as f64;
    demand(
        "95 % intervals hold 93 to 97 % pooled",
        format!("{:.1} %", 100.0 * pooled),
        (0.93..=0.97).contains(&pooled),
    );
    for row in rows {
        let limit = if row.cell.stamps == StampSource::Hardware { 35.0 } else { 100.0 };
        let p99 = row.lines.p99_ns;
        demand(&format!("{}: p99 at most {limit} ns", row.cell.name()), format!("{p99:.1} ns"), p99 <= limit);
    }
    let others: Vec<&String> = rows.iter().flat_map(|row| &row.outcome.others).collect();
    let first = others.first().map_or_else(String::new, |first| format!(", first: {first}"));
    demand("only changes of rate are reported", format!("{} others{first}", others.len()), others.is_empty());
    let missing: usize = rows.iter().map(|row| row.lines.missing).sum();
    demand("no line is missing", format!("{missing} missing"), missing == 0);
    all
}

fn covers(interval: Option<Coverage>) -> String {
    interval.map_or_else(String::new, |interval| format!("{:.1} %", 100.0 * interval.share()))
}
