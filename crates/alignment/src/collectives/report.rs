//! A check as text: one line per operation, before and after.

use std::collections::BTreeMap;
use std::fmt::Write;

use probe_sync_formats::words::counted;
use probe_sync_time::with_unit;

use super::check::{BrokenEdge, CheckReport, OperationLine};
use super::matching::Ambiguous;

/// A check as text: the verdict, the worst violated edges in one line each, the table of operations
/// (with the same check before correction, if there is one), and what could not be judged.
pub(crate) fn table(before: Option<&CheckReport>, after: &CheckReport) -> String {
    outline(before, after, usize::MAX) + &limits(after)
}

/// A check as a text of some 20 lines: of many operations those with the most violated edges, and a
/// line that counts what could not be judged.
pub(crate) fn brief(before: Option<&CheckReport>, after: &CheckReport) -> String {
    let parts = after.unordered_parts + after.unpaired_parts + after.unjudged_parts as usize;
    let all = [(after.ambiguous_instances, "operation"), (after.unjudged_edges, "edge"), (parts, "part")];
    let counts: Vec<String> =
        all.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| counted(count, what)).collect();
    let rest = match counts.is_empty() {
        true => String::new(),
        false => format!("not checked: {}; -v says why\n", counts.join(", ")),
    };
    outline(before, after, OPERATIONS_SHOWN) + &rest
}

/// The verdict, the worst broken edges and the table of operations.
fn outline(before: Option<&CheckReport>, after: &CheckReport, operations_max: usize) -> String {
    let mut text = format!("{}\n", verdict(after));
    for edge in after.broken_edges.iter().take(EDGES_SHOWN) {
        let _ = writeln!(text, "  {}", sentence(edge, &edge.label));
    }
    let hidden = after.broken - after.broken_edges.len().min(EDGES_SHOWN);
    if hidden > 0 {
        let _ = writeln!(text, "  … and {}", counted(hidden, "more broken edge"));
    }
    let mut rows: Vec<[String; 5]> =
        vec![["operation", "instances", "edges", "broken before", "broken"].map(str::to_owned)];
    let previous: BTreeMap<&str, &OperationLine> =
        before.iter().flat_map(|report| &report.operations).map(|line| (line.name.as_str(), line)).collect();
    let amount = |broken: usize, worst_ns: f64| match broken {
        0 => "0".to_owned(),
        _ => format!("{broken} (by up to {})", span(worst_ns)),
    };
    let mut operations: Vec<&OperationLine> = after.operations.iter().collect();
    let hidden = operations.len().saturating_sub(operations_max);
    if hidden > 0 {
        operations.sort_by_key(|line| std::cmp::Reverse(line.broken));
        operations.truncate(operations_max);
    }
    for line in operations {
        let known = previous.get(line.name.as_str());
        let before = known.map_or_else(String::new, |line| match (line.edges, line.unjudged_edges) {
            (0, 1..) => "unknown".to_owned(),
            _ => amount(line.broken, line.worst_ns),
        });
        let now = amount(line.broken, line.worst_ns);
        rows.push([line.name.clone(), line.instances.to_string(), line.edges.to_string(), before, now]);
    }
    let was = before.map_or_else(String::new, |report| match (report.edges, report.unjudged_edges) {
        (0, 1..) => "unknown".to_owned(),
        _ => amount(report.broken, report.worst_ns),
    });
    let now = amount(after.broken, after.worst_ns);
    rows.push(["all".to_owned(), after.instances.to_string(), after.edges.to_string(), was, now]);
    let keep: &[usize] = if before.is_some() { &[0, 1, 2, 3, 4] } else { &[0, 1, 2, 4] };
    lay_out(&mut text, &rows, keep);
    if hidden > 0 {
        let _ = writeln!(text, "… and {}; -v prints all", counted(hidden, "more operation"));
    }
    text
}

/// What could not be judged, with the reasons.
fn limits(after: &CheckReport) -> String {
    let mut text = String::new();
    ambiguous(&mut text, after);
    if after.unordered_parts + after.unpaired_parts > 0 {
        let _ = writeln!(
            text,
            "not checked: {} without a known root or peer, {} found on no other node",
            counted(after.unordered_parts, "part"),
            counted(after.unpaired_parts, "part")
        );
    }
    if after.unjudged_edges > 0 {
        let _ = writeln!(text, "not checked: {} edges that depend on an unknown clock", after.unjudged_edges);
    }
    if after.unjudged_parts > 0 {
        let _ = writeln!(
            text,
            "not checked: {} parts with an unknown clock, from merged files, or that could not be stored or read back",
            after.unjudged_parts
        );
    }
    text
}

/// All violated edges in the report, with times and the part explained by uncertainty.
pub(crate) fn details(report: &CheckReport) -> String {
    let mut text = String::new();
    for edge in &report.broken_edges {
        let BrokenEdge { ended_node, ended_name, end_ns, started_node, started_name, start_ns, .. } = edge;
        let uncertainty = span(edge.uncertainty_ns);
        let allowed = match edge.explained {
            true => format!("within the clocks' uncertainty of {uncertainty}"),
            false => format!("clock uncertainty {uncertainty}"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{}: end at {end_ns} ns on node {ended_node} ({ended_name}), begin at {start_ns} ns on node {started_node} \
             ({started_name}); {allowed}",
            sentence(edge, &format!("{} ({})", edge.operation, edge.instance)),
        );
    }
    text
}

/// One line per reason: whether few or many operations cannot be judged for a reason, the remedy is
/// the same.
fn ambiguous(text: &mut String, report: &CheckReport) {
    let mut by_reason: Vec<(&str, Vec<&Ambiguous>)> = Vec::new();
    for ambiguous in &report.ambiguous {
        match by_reason.iter_mut().find(|(reason, _)| *reason == ambiguous.reason) {
            Some((_, all)) => all.push(ambiguous),
            None => by_reason.push((&ambiguous.reason, vec![ambiguous])),
        }
    }
    for (reason, all) in by_reason {
        let instances: usize = all.iter().map(|ambiguous| ambiguous.instances).sum();
        let parts: usize = all.iter().map(|ambiguous| ambiguous.parts).sum();
        let which = match all[..] {
            [one] => one.operation.clone(),
            _ => format!("{} and {} more", all[0].operation, all.len() - 1),
        };
        let _ = writeln!(text, "ambiguous, not checked: {instances} × {which} ({}): {reason}", counted(parts, "part"));
    }
}

fn verdict(report: &CheckReport) -> String {
    let broken = match (report.edges, report.broken, report.violations()) {
        (0, ..) if report.ambiguous_instances > 0 && report.unjudged_edges == 0 => {
            let count = report.ambiguous_instances;
            format!("nothing to check: none of the {count} operations on several nodes can be paired with certainty")
        }
        (0, ..) if report.unjudged_edges > 0 => {
            format!("nothing to check: all {} edges depend on an unknown clock", report.unjudged_edges)
        }
        (0, ..) => "nothing to check: no operation has parts on two nodes".to_owned(),
        (1, 0, _) => "causality holds on the one edge that was checked".to_owned(),
        (edges, 0, _) => format!("causality holds on all {edges} edges"),
        (edges, broken, 0) => {
            format!("{broken} of {edges} edges are broken, all by no more than the clocks' uncertainty")
        }
        (edges, broken, violations) => {
            format!("{broken} of {edges} edges are broken, {violations} of them beyond the clocks' uncertainty")
        }
    };
    let broken = match report.broken_of_calls {
        0 => broken,
        calls => format!(
            "{broken}; {calls} of them end with a call that may return before its operation runs; also trace kernels (--kernel-trace)"
        ),
    };
    match report.unjudged() {
        none if none.is_empty() => broken,
        left => format!("{broken}; {left} could not be checked"),
    }
}

/// `all_gather #8: rank 2 ended 19.612 ms before rank 1 began`.
fn sentence(edge: &BrokenEdge, operation: &str) -> String {
    let BrokenEdge { ended_name, started_name, .. } = edge;
    // A name is `rank 2 (node 1, gpu-07)`; the details have the rest.
    let short = |name: &str| name.split(" (").next().unwrap_or_default().to_owned();
    let by = span(edge.by_ns);
    format!("{operation}: {} ended {by} before {} began", short(ended_name), short(started_name))
}

/// A length of time with a unit that suits it.
pub fn span(ns: f64) -> String {
    with_unit(ns, [0, 3, 3, 3])
}

/// Columns as wide as their widest cell; the first left-aligned, numbers right-aligned.
pub fn lay_out<const N: usize>(text: &mut String, rows: &[[String; N]], keep: &[usize]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = keep.iter().map(|&column| width(column)).collect();
    for row in rows {
        let mut line = String::new();
        for (place, (&column, &width)) in keep.iter().zip(&widths).enumerate() {
            let cell = &row[column];
            let _ = if place == 0 { write!(line, "{cell:<width$}") } else { write!(line, "  {cell:>width$}") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

/// Broken edges in the text; the details have more.
const EDGES_SHOWN: usize = 3;
/// Operations in a brief text.
const OPERATIONS_SHOWN: usize = 10;
