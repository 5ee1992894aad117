//! The tables that `probe_sync sim` prints: the planner's answer, the cells and the requirements.
//!
//! This module only formats; every figure comes from `probe_sync_sim::accuracy`.

use comfy_table::{CellAlignment, ContentArrangement, Table, TableStyle};
use probe_sync_sim::Scenario;
use probe_sync_sim::accuracy::cells::{CellOutcome, Demand, Outcome};
use probe_sync_sim::accuracy::{Cost, Coverage, Method, Plan, Summary};

use crate::table::{fitted, unsigned};

/// Text output of a single scenario.
pub fn planner(scenario: &Scenario, plan: &Plan, outcome: &Outcome, cost: &Cost) -> String {
    let mut table = fresh(&["method", "error p50", "p95", "p99", "max", "±95 % (mean)", "covers", "missing"]);
    let mut add = |name: &str, summary: &Summary| {
        let (width, share) = interval(summary.interval);
        let quantiles = [summary.p50_ns, summary.p95_ns, summary.p99_ns, summary.max_ns].map(unsigned);
        let mut row = vec![name.to_owned()];
        row.extend(quantiles);
        row.extend([width, share, summary.missing.to_string()]);
        table.add_row(row);
    };
    for (method, pool) in &outcome.methods {
        add(method.as_str(), &pool.summary());
    }
    let between = outcome.between.summary();
    let mut explained = "";
    if between.count > 0 {
        explained = "between: a quarter and half a window away from the windows' midpoints, where the other rows are evaluated\n";
        add("probe_sync, between", &between);
    }
    align(&mut table);
    let [floor_p50, floor_p99] = outcome.floor();
    let seconds = plan.duration.as_ns_f64() * 1e-9;
    format!(
        "{} nodes, {} edges ({} neighbours each), {seconds} s in windows of {} s, {} seed(s)\n{}{explained}\
         asymmetry floor: p50 {}, p99 {}; on these paths no method can do better on average\n\
         per host: {:.0} packets/s sent and the same number received, {:.2} MB/s in total ({:.2} Mbit/s), {:.2} % of one core\n\
         {}",
        scenario.nodes,
        outcome.edges,
        scenario.neighbors,
        plan.window.as_ns_f64() * 1e-9,
        outcome.seeds,
        // What is stated of an error says more than its largest.
        fitted(table, &[2, 7, 4]),
        unsigned(floor_p50),
        unsigned(floor_p99),
        cost.packets_per_second,
        cost.bytes_per_second * 1e-6,
        cost.bytes_per_second * 8e-6,
        cost.cpu_share * 100.0,
        hard(outcome),
    )
}

/// The cells, one line each, for a terminal.
pub fn cells(outcomes: &[CellOutcome], methods: &[Method]) -> String {
    let (header, rows) = cell_rows(outcomes, methods);
    let mut table = fresh(&header.iter().map(String::as_str).collect::<Vec<_>>());
    table.add_rows(rows);
    align(&mut table);
    format!("|error| in ns, p50/p99\n{}", fitted(table, &[]))
}

/// The requirements, one per line.
pub fn demands(demands: &[Demand]) -> String {
    demands.iter().map(|demand| format!("{:12} {}: {}\n", verdict(demand), demand.what, demand.found)).collect()
}

/// Cells and requirements as in bench/LOG.md.
pub fn markdown(outcomes: &[CellOutcome], methods: &[Method], demands: &[Demand]) -> String {
    let (header, rows) = cell_rows(outcomes, methods);
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let seeds = outcomes.first().map_or(0, |of| of.outcome.seeds);
    let mut text = format!(
        "\\|error\\| in ns, p50/p99, {seeds} seeds.\n\n{}{}\n",
        line(&header),
        "|---".repeat(header.len()) + "|"
    );
    rows.iter().for_each(|row| text.push_str(&line(row)));
    text.push_str("\n| demand | found | |\n|---|---|---|\n");
    for demand in demands {
        text.push_str(&line(&[demand.what.clone(), demand.found.clone(), verdict(demand).to_owned()]));
    }
    text
}

fn verdict(demand: &Demand) -> &'static str {
    if demand.reached { "reached" } else { "NOT reached" }
}

/// Header and rows of the table of cells.
fn cell_rows(outcomes: &[CellOutcome], methods: &[Method]) -> (Vec<String>, Vec<Vec<String>>) {
    let names = methods.iter().map(|method| method.as_str());
    let about_ours = ["between", "floor", "±95 %", "covers", "±/RMS", "hard violated", "missing", "packets"];
    let header = ["cell"].into_iter().chain(names).chain(about_ours).map(str::to_owned).collect();
    let row = |CellOutcome { cell, outcome }: &CellOutcome| {
        let mut row = vec![cell.name()];
        row.extend(methods.iter().map(|method| outcome.summary(*method).map_or_else(String::new, |s| pair(&s))));
        let ours = outcome.summary(Method::Ours).unwrap_or_default();
        let [floor_p50, floor_p99] = outcome.floor();
        let (width, share) = interval(ours.interval);
        row.extend([
            pair(&outcome.between.summary()),
            format!("{floor_p50:.1}/{floor_p99:.1}"),
            width,
            share,
            ours.interval.map_or_else(String::new, |coverage| format!("{:.2}", coverage.half_width_per_rms)),
            ours.hard.map_or_else(String::new, |hard| format!("{}/{}", hard.count - hard.held, hard.count)),
            missing(outcome),
            outcome.packets.to_string(),
        ]);
        row
    };
    (header, outcomes.iter().map(row).collect())
}

fn hard(outcome: &Outcome) -> String {
    let stated = outcome.methods.iter().rev().find_map(|(_, pool)| pool.summary().hard);
    stated.map_or_else(String::new, |hard| {
        format!(
            "hard interval: contained the truth in {} of {}, mean half-width {}\n",
            hard.held,
            hard.count,
            unsigned(hard.half_width_ns)
        )
    })
}

fn pair(summary: &Summary) -> String {
    if summary.count == 0 { String::new() } else { format!("{:.1}/{:.1}", summary.p50_ns, summary.p99_ns) }
}

fn interval(coverage: Option<Coverage>) -> (String, String) {
    coverage.map_or_else(Default::default, |coverage| {
        (unsigned(coverage.half_width_ns), format!("{:.1} %", 100.0 * coverage.share()))
    })
}

/// Number of missing estimates by method; empty if there are none.
fn missing(outcome: &Outcome) -> String {
    let missing = outcome.methods.iter().map(|(method, pool)| (method.as_str(), pool.summary().missing));
    missing
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name} {count}"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn fresh(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    table
}

fn align(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}
