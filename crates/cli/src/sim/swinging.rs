//! `probe_sync sim --swinging`, which simulates clocks that swing on a loaded machine and reports
//! the false statements made about them.
//!
//! `swinging` of the pure crate runs and judges a seed. This module runs the seeds, groups them by
//! window length and by whether nodes paused, prints a table and writes `swinging.csv` and a page.
//!
//! `probe_sync_sim::swinging` defines what counts as false or outside.

use anyhow::Context;
use comfy_table::{CellAlignment, ContentArrangement, Table, TableStyle};
use probe_sync_sim::accuracy::quantile;
use probe_sync_sim::swinging::{self, Outside, SIGMAS, SLACK_NS, Stated, SwingingOutcome, WINDOWS_S};

use super::args::{SimArgs, cell_scenario};
use super::document::{Document, SwingingRow, ns, written};
use super::page;
use super::seeds::Seeds;
use crate::table::{fitted, unsigned};

/// Seeds of `--swinging`.
pub const SEEDS: u64 = 200;

/// Runs with windows of one length, with or without pauses.
#[derive(Default)]
struct Row {
    window_s: f64,
    pauses: bool,
    runs: usize,
    false_names: usize,
    rate_changes: usize,
    live: Stated,
    smoothed: Stated,
    example: String,
}

/// Runs the seeds.
///
/// # Errors
/// Returns an error if a file cannot be written, or if a signal interrupted it.
pub fn run(arguments: &SimArgs, seeds: &mut Seeds) -> anyhow::Result<()> {
    let base = cell_scenario()?;
    seeds.expect(1);
    let of_seed = |seed, _: &dyn Fn(f64) -> bool| swinging::run(&base, seed).map(|outcome| Some((seed, outcome)));
    let runs = seeds.map("swinging", of_seed)?.context("stopped by a signal; nothing was written")?;
    seeds.finish();
    let mut rows: Vec<Row> = Vec::new();
    for window_s in WINDOWS_S {
        rows.extend([false, true].map(|pauses| Row { window_s, pauses, ..Row::default() }));
    }
    for (seed, outcome) in &runs {
        let window_s = swinging::scenario(&base, *seed).window_s;
        let row =
            rows.iter_mut().find(|row| (row.window_s - window_s).abs() < 1e-9 && row.pauses == swinging::pauses(*seed));
        row.context("a seed without a row")?.take_in(outcome);
    }
    rows.retain(|row| row.runs > 0);
    let mut document = Document::new("swinging", seeds.count());
    document.swinging = rows.iter().map(Row::document).collect();
    document.tell(arguments, &table(&rows))?;
    let Some(out) = &arguments.out else { return Ok(()) };
    page::write_rows(out, "swinging", &document.swinging, &[])?;
    written(arguments, out)
}

impl Row {
    fn take_in(&mut self, outcome: &SwingingOutcome) {
        self.runs += 1;
        let wrong: Vec<String> = outcome.false_names().map(ToString::to_string).collect();
        self.false_names += wrong.len();
        self.rate_changes += outcome.rate_changes();
        if self.example.is_empty() {
            self.example = wrong.into_iter().next().unwrap_or_default();
        }
        self.live.add(&outcome.live);
        self.smoothed.add(&outcome.smoothed);
    }

    fn document(&self) -> SwingingRow {
        let Self { live, smoothed, .. } = self;
        SwingingRow {
            window_s: self.window_s,
            pauses: self.pauses,
            runs: self.runs,
            false_names: self.false_names,
            rate_changes: self.rate_changes,
            estimates_live: live.errors_ns.len(),
            unusable_live: live.unusable,
            outside_live: live.outside,
            p99_live_ns: ns(p99(live)),
            estimates_smoothed: smoothed.errors_ns.len(),
            unusable_smoothed: smoothed.unusable,
            outside_smoothed: smoothed.outside,
            p99_smoothed_ns: ns(p99(smoothed)),
            hard_violated: live.outside_hard + smoothed.outside_hard,
        }
    }

    /// The first false name, otherwise the estimate that exceeds its stated uncertainty the most.
    fn said(&self) -> String {
        let farthest = self.smoothed.farthest.or(self.live.farthest).filter(|_| self.example.is_empty());
        farthest.map_or_else(
            || self.example.clone(),
            |Outside { round, node, error_ns, sigma_ns }| {
                format!("round {round}: node {node} off by {error_ns:.0} ns, sigma {sigma_ns:.0} ns")
            },
        )
    }
}

/// 99th percentile of |error|, ns.
fn p99(stated: &Stated) -> f64 {
    let mut errors = stated.errors_ns.clone();
    errors.sort_unstable_by(f64::total_cmp);
    quantile(&errors, 0.99)
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "window",
        "pauses",
        "runs",
        "false",
        "rates",
        "estimates",
        "unusable",
        "p99 live",
        "outside",
        "p99 smoothed",
        "outside",
        "not in hard",
        "first false alarm, or farthest outside",
    ]);
    for row in rows {
        let estimates = row.live.errors_ns.len() + row.smoothed.errors_ns.len();
        table.add_row([
            format!("{} s", row.window_s),
            if row.pauses { "yes" } else { "no" }.to_owned(),
            row.runs.to_string(),
            row.false_names.to_string(),
            row.rate_changes.to_string(),
            estimates.to_string(),
            (row.live.unusable + row.smoothed.unusable).to_string(),
            unsigned(p99(&row.live)),
            row.live.outside.to_string(),
            unsigned(p99(&row.smoothed)),
            row.smoothed.outside.to_string(),
            (row.live.outside_hard + row.smoothed.outside_hard).to_string(),
            row.said(),
        ]);
    }
    for column in table.column_iter_mut().filter(|column| (2..12).contains(&column.index)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "false: clock and path faults reported although none happened; rates: rate changes reported; outside: further from the truth \
        than {SIGMAS} sigma + {SLACK_NS} ns\n{}",
        fitted(table, &[])
    )
}
