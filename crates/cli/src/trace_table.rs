//! What `align` and `merge` did to each trace, as a table.

use std::path::Path;

use comfy_table::{CellAlignment, ContentArrangement, Table, TableStyle};
use probe_sync_alignment::{AlignmentStats, CalibratedTrace};
use probe_sync_formats::words::counted;

use crate::table::{signed, unsigned};
use crate::telling::telling;
use crate::trace_notes::TraceNotes;

/// The traces of one call, in the order in which they were written.
#[derive(Debug, Default)]
pub struct TraceTable {
    rows: Vec<[String; COLUMNS]>,
    /// A line for each trace with its notes below, for `-v`.
    lines: String,
    notes: TraceNotes,
    events: u64,
    uncertainty_ns: f64,
}

impl TraceTable {
    /// Adds a trace that was written to `output`.
    pub fn add(&mut self, of: &CalibratedTrace, output: &Path, stats: &AlignmentStats) {
        let path = &of.trace.path;
        let moved = stats.correction_ns.filter(|_| of.map.is_some());
        let without = || {
            let moved = if of.map.is_none() { "unchanged" } else { "moved to another clock" };
            if stats.times > 0 { moved } else { "no times" }.to_owned()
        };
        let is_known = stats.uncertainty_ns.is_finite();
        let uncertainty = if is_known { unsigned(stats.uncertainty_ns) } else { "unknown".to_owned() };
        self.events += stats.events;
        self.uncertainty_ns = self.uncertainty_ns.max(stats.uncertainty_ns);
        let [least, median, most] = moved.map_or_else(Default::default, |ends| ends.map(signed));
        let correction = match moved {
            Some(_) => format!("moved by {least} (median {median}, to {most})"),
            None => without(),
        };
        let unsure =
            if is_known { format!("uncertainty up to {uncertainty}") } else { "uncertainty unknown".to_owned() };
        self.lines += &format!(
            "{} → {}: {}, {correction}, {unsure}\n",
            path.display(),
            output.display(),
            counted(stats.events, "event")
        );
        self.lines += &self.notes.take(path, Some(&of.trace), &notes_of(stats));
        let by = if moved.is_some() { median } else { without() };
        self.rows.push([name(path), stats.events.to_string(), by, least, most, uncertainty]);
    }

    /// Prints the summary, the table, and each kind of note once; with `-v` a line for each trace
    /// and all its notes.
    ///
    /// # Errors
    /// Returns an error if standard output cannot be written.
    pub fn tell(&self, output: &Path) -> anyhow::Result<()> {
        let uncertainty = match self.uncertainty_ns {
            ns if ns.is_finite() => format!("uncertainty up to {}", unsigned(ns)),
            _ => "uncertainty of some unknown".to_owned(),
        };
        let [traces, events] = [counted(self.rows.len(), "trace"), counted(self.events, "event")];
        crate::output::tell(&format!("{}: {traces}, {events}, {uncertainty}\n", output.display()))?;
        if telling().verbose {
            return crate::output::tell(&self.lines);
        }
        crate::output::tell(&self.table())?;
        crate::output::tell_note(&self.notes.text())
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(["trace", "events", "moved by (median)", "from", "to", "uncertainty"]);
        table.add_rows(self.rows.iter().take(ROWS_SHOWN));
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let more = self.rows.len().saturating_sub(ROWS_SHOWN);
        let rest = (more > 0).then(|| format!("… and {}; -v prints all\n", counted(more, "more trace")));
        crate::table::lines_of(&table) + &rest.unwrap_or_default()
    }
}

/// Notes on a trace in addition to its numbers.
fn notes_of(stats: &AlignmentStats) -> Vec<String> {
    let mut notes = Vec::new();
    let mut of_all = |count: u64, what: &str| {
        if count > 0 {
            let percent = 100.0 * count as f64 / stats.times.max(1) as f64;
            notes.push(format!("{count} of {} timestamps ({percent:.0} %) {what}", stats.times));
        }
    };
    let outside = stats.extrapolated_before + stats.extrapolated_after - stats.beyond_pairs;
    of_all(outside, "lie outside the measured time range, where the correction is extrapolated");
    let of_pairs =
        "lie before the first or after the last clock pair or marker of the trace, where its clock is extrapolated";
    of_all(stats.beyond_pairs, of_pairs);
    of_all(stats.clamped, "were moved later to keep the times of one clock in order");
    if let (Some(node), Some(by)) = (stats.node, &stats.node_settled_by) {
        notes.push(format!("node {node}, by {by}"));
    }
    notes.extend_from_slice(&stats.notes);
    notes
}

/// The name of a file, with its folder if that may distinguish it, shortened in the middle if it is
/// long.
fn name(path: &Path) -> String {
    let last: Vec<_> = path.iter().rev().take(2).collect();
    let whole: std::path::PathBuf = last.into_iter().rev().collect();
    let whole = whole.display().to_string();
    let letters: Vec<char> = whole.chars().collect();
    if letters.len() <= NAME_MAX {
        return whole;
    }
    let end = NAME_MAX / 2;
    let begin = NAME_MAX - 1 - end;
    letters[..begin].iter().chain(&['…']).chain(&letters[letters.len() - end..]).collect()
}

const COLUMNS: usize = 6;
/// Rows in the table; `-v` prints all traces.
const ROWS_SHOWN: usize = 8;
/// Longest name, in characters, so that the table fits into 100 columns.
const NAME_MAX: usize = 36;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_its_beginning_and_its_end() {
        assert_eq!(name(Path::new("/data/run/node0.pt.trace.json.gz")), "run/node0.pt.trace.json.gz");
        let long = name(Path::new(&format!("/data/{}/rank17.json", "x".repeat(60))));
        assert_eq!(long.chars().count(), NAME_MAX);
        assert!(long.starts_with("xxx") && long.ends_with("x/rank17.json"), "{long}");
    }
}
