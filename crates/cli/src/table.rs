//! The final report for people: one line per node, then what the truth says, what was lost, and
//! what it cost.

use std::sync::atomic::{AtomicBool, Ordering};

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, TableStyle};
use probe_sync::PacingReport;
use probe_sync::report::{Absence, NodeRow, RunReport, StreamState, TruthVerdict};
use probe_sync_formats::words::counted;
pub use probe_sync_page::{signed, unsigned};

/// The report as text.
pub fn render(report: &RunReport) -> String {
    let mut text = if report.round_mode == "local" {
        let out = &report.out;
        format!(
            "no rounds: every node kept its windows in a file; to compute offsets from them: probe_sync solve --windows \
            {out}/windows/*.jsonl --out \
             {out}/offsets.jsonl\n"
        )
    } else if report.rounds == 0 {
        "stopped before the first window ended: nothing was measured\n".to_owned()
    } else {
        // What is known of the node itself stays longest.
        fitted(table(report), &[8, 6, 7, 5])
    };
    for line in remarks(report) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// All columns of tables are requested.
static WIDE: AtomicBool = AtomicBool::new(false);

/// Sets whether all columns of tables are shown, however wide they become.
pub fn set_wide(wide: bool) {
    WIDE.store(wide, Ordering::Relaxed);
}

/// Returns the setting.
pub fn is_wide() -> bool {
    WIDE.load(Ordering::Relaxed)
}

/// A table as text of at most 80 columns: if it is wider, columns are omitted one by one, first the
/// given ones in their order, then the rest from the last to the second; a line tells which, and
/// how to see them.
pub fn fitted(table: Table, first: &[usize]) -> String {
    if is_wide() { lines_of(&table) } else { narrowed(table, first) }
}

/// A table as lines without trailing spaces.
pub fn lines_of(table: &Table) -> String {
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn narrowed(mut table: Table, first: &[usize]) -> String {
    let too_wide = |table: &Table| table.lines().any(|line| line.trim_end().chars().count() > WIDTH);
    let names: Vec<String> =
        table.header().map(|row| row.cell_iter().map(comfy_table::Cell::content).collect()).unwrap_or_default();
    let rest = (1..names.len()).rev().filter(|column| !first.contains(column));
    let mut hidden: Vec<usize> = Vec::new();
    for column in first.iter().copied().filter(|column| *column < names.len()).chain(rest) {
        if !too_wide(&table) {
            break;
        }
        if let Some(column) = table.column_mut(column) {
            column.set_constraint(ColumnConstraint::Hidden);
        }
        hidden.push(column);
    }
    hidden.sort_unstable();
    let names: Vec<&str> = hidden.into_iter().map(|column| names[column].as_str()).collect();
    let mut text = lines_of(&table);
    if !names.is_empty() {
        text += &format!("more columns with --wide: {}\n", names.join(", "));
    }
    text
}

/// Smallest width of a terminal.
const WIDTH: usize = 80;

fn table(report: &RunReport) -> Table {
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled);
    let mut header =
        vec!["node", "host", "offset", "rate ppm", "±95 %", "hard interval", "edges", "lost exchanges", "stamps"];
    if report.truth.is_some() {
        header.extend(["error", "in bounds"]);
    }
    table.set_header(header);
    for node in &report.nodes {
        table.add_row(row(node, node.node_id == report.reference));
    }
    for column in table.column_iter_mut() {
        if column.index != 1 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn row(node: &NodeRow, is_reference: bool) -> Vec<String> {
    let mut cells = vec![node.node_id.to_string(), node.host.clone()];
    if is_reference {
        cells.extend(["reference".into(), String::new(), String::new(), String::new()]);
    } else if node.reachable {
        cells.extend([
            format!("{}{}", signed(node.offset_ns), if node.clock_disturbed { " (clock disturbed)" } else { "" }),
            format!("{:+.4}", node.drift_ppm),
            unsigned(node.half_width_95_ns),
            hard_interval(node),
        ]);
    } else {
        cells.extend(["unreachable".into(), String::new(), String::new(), String::new()]);
    }
    cells.extend([node.edges.to_string(), node.lost.to_string(), node.stamp.as_str().to_owned()]);
    if !is_reference && node.true_offset_ns.is_some() {
        cells.push(node.error_ns.map_or_else(String::new, signed));
        cells.push(node.bounds_held.map_or("not judged", |held| if held { "yes" } else { "NO" }).into());
    }
    cells
}

/// The hard interval as distances from the estimate, which are easier to read than two long
/// numbers.
fn hard_interval(node: &NodeRow) -> String {
    let side = |bound: Option<f64>| bound.map_or_else(|| "∞".into(), |b| unsigned((b - node.offset_ns).abs()));
    format!("-{} +{}", side(node.hard_interval_ns[0]), side(node.hard_interval_ns[1]))
}

/// What is missing in a recorded file.
fn file(file: &StreamState) -> String {
    let mut parts = Vec::new();
    if let Some(reason) = &file.reason {
        let now = if file.stopped.is_some() { "not written until the end" } else { "not written for some time" };
        parts.push(format!("{now}; {} rounds are missing: {reason}", file.rounds_missing));
    }
    if file.removed_segments > 0 {
        parts.push(format!(
            "the {} oldest segments were removed to stay within keep_bytes: {} rounds, {} bytes",
            file.removed_segments, file.removed_rounds, file.removed_bytes
        ));
    }
    format!("{}: {}", file.name, parts.join("; "))
}

fn remarks(report: &RunReport) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(truth) = &report.truth {
        lines.push(verdict(truth));
    }
    for (round, node, event) in report.clock_events.iter().take(MAX_LINES) {
        lines.push(format!(
            "clock of node {node} was disturbed in round {round}: step {}, rate change {:+.3} ppm; affected offsets of that round are \
            marked clock_disturbed",
            signed(event.step_ns as f64),
            event.slew_ppm
        ));
    }
    if let Some(taken_over) = report.taken_over {
        lines.push(format!(
            "rank {} was lost: this rank is the master from round {} on, and its files are in {}; earlier rounds are in the parent folder",
            taken_over.from_rank, taken_over.first_round, report.out
        ));
    }
    for carrier in report.carriers.iter().take(MAX_LINES) {
        lines.push(format!(
            "the reference was lost: from round {} on the clock of node {} maintained its timeline, with ±{} (95 %) at the end",
            carrier.since,
            carrier.node,
            unsigned(carrier.half_width_95_ns)
        ));
    }
    for phase in report.phases.iter().take(MAX_LINES) {
        let length = unsigned((phase.end_ns - phase.start_ns).as_ns_f64());
        lines.push(format!("phase {}: rounds {} to {}, {length}", phase.name, phase.first, phase.last));
    }
    if report.phases.len() > MAX_LINES {
        lines.push(format!("{} in report.json", counted(report.phases.len() - MAX_LINES, "more phase")));
    }
    for fault in report.faults.iter().take(MAX_LINES) {
        lines.push(fault.to_string());
    }
    if report.faults.len() > MAX_LINES {
        lines.push(format!("{} in report.json", counted(report.faults.len() - MAX_LINES, "more fault")));
    }
    for absence in report.absences.iter().take(MAX_LINES) {
        lines.push(self::absence(absence));
    }
    lines.extend(never_reached(report));
    for peer in report.unreachable_peers.iter().take(MAX_LINES) {
        lines.push(format!(
            "node {} cannot send to node {} ({}): {}; check routes and firewalls",
            peer.src, peer.dst, peer.address, peer.reason
        ));
    }
    lines.extend(report.files.iter().take(MAX_LINES).map(file));
    lines.extend(report.unwritten.iter().cloned());
    lines.extend(report.pacing.as_ref().map(pacing));
    let (sent, lost) = report.packets.iter().fold((0, 0), |sum, p| (sum.0 + p.sent, sum.1 + p.lost));
    lines.push(format!(
        "{} in {:.1} s over {}; {sent} packets sent, {lost} packets lost; {:.1} % of one core{}; files in {}",
        counted(report.rounds, "round"),
        report.seconds,
        report.backend,
        report.cpu_cores * 100.0,
        if report.ranks == 1 { String::new() } else { format!(" for all {} ranks", report.ranks) },
        report.out
    ));
    lines.push(
        "If all paths to a group of nodes are slower in one direction, no measurement can detect it; the hard interval still holds."
            .to_owned(),
    );
    lines
}

fn never_reached(report: &RunReport) -> impl Iterator<Item = String> {
    report.never_reached.iter().take(MAX_LINES).map(|node| {
        let host = report.nodes.get(node.index()).map_or("?", |row| row.host.as_str());
        format!(
            "node {node} ({host}) was never reached: no probe came back from it, or too few of its exchanges finished for --min-pairs and \
            --max-loss-ratio. Allow UDP between all hosts, or choose an open port with --port; probe_sync doctor --peers, started like the run, shows which hosts cannot communicate and why"
        )
    })
}

fn absence(absence: &Absence) -> String {
    let Absence { rank, host, from, reason, back, .. } = absence;
    let until = back.map_or_else(|| "and did not come back".to_owned(), |round| format!("to the end of round {round}"));
    let on = if host.is_empty() { String::new() } else { format!(" on {host}") };
    format!("rank {rank}{on} was absent from round {from} {until}: {reason}")
}

fn verdict(truth: &TruthVerdict) -> String {
    if truth.judged == 0 {
        return format!(
            "truth: nothing to compare; comparison begins with the second round ({} node-rounds had no usable estimate)",
            truth.not_judged
        );
    }
    format!(
        "truth: worst error {}, median {} over {} node-rounds; hard interval contained the truth in {} of {}; 95 % interval \
         covered {:.1} % with median half-width {}; {} node-rounds not compared",
        unsigned(truth.worst_error_ns),
        unsigned(truth.median_error_ns),
        truth.judged,
        truth.judged - truth.outside_hard_interval,
        truth.judged,
        truth.coverage_95 * 100.0,
        unsigned(truth.median_half_width_95_ns),
        truth.not_judged
    )
}

fn pacing(pacing: &PacingReport) -> String {
    let extra = match pacing.extra_edges_most {
        0 => String::new(),
        most => format!(", at most {}", counted(most, "extra edge")),
    };
    format!(
        "adaptive: {}; all nodes met it in {} of {} rounds; cadence {} at first, {} at the end ({} to {}); {:.0} exchanges \
         per host, {:.1} % of the fixed cadence's{extra}",
        pacing.reason(),
        pacing.rounds_within,
        pacing.rounds,
        unsigned(pacing.configured_cadence_ns as f64),
        unsigned(pacing.final_cadence_ns as f64),
        unsigned(pacing.shortest_cadence_ns as f64),
        unsigned(pacing.longest_cadence_ns as f64),
        pacing.exchanges_per_host,
        100.0 * pacing.exchanges_per_host / pacing.exchanges_per_host_fixed.max(1.0),
    )
}

/// Keeps a table readable; the report file names them all.
const MAX_LINES: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_too_wide_loses_columns_and_says_which() {
        let made = |host: &str| {
            let mut table = Table::new();
            table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled);
            table.set_header(["node", "host", "offset", "edges", "stamps"]);
            table.add_row(["0", host, "+1.234567 ms", "12", "software"]);
            table
        };
        let check = |host: &str, first: &[usize], expected: &str| {
            let text = narrowed(made(host), first);
            assert!(text.ends_with(expected), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        };
        check("gpu", &[3], "software\n");
        check(&"g".repeat(45), &[3], "more columns with --wide: edges\n");
        check(&"g".repeat(45), &[], "more columns with --wide: stamps\n");
        check(&"g".repeat(54), &[4], "more columns with --wide: edges, stamps\n");
        check(&"g".repeat(90), &[4], "more columns with --wide: host, offset, edges, stamps\n");
    }
}
