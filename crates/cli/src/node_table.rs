//! The table of how nodes stand: live, and of `status`.

use comfy_table::{CellAlignment, ContentArrangement, Table, TableStyle};
use probe_sync::standing::NodeStanding;
use probe_sync_lines::plain_name;

use crate::table::{signed, unsigned};

/// The least certain nodes, unreachable ones first.
pub fn worst<'a>(nodes: impl Iterator<Item = &'a NodeStanding>, most: usize) -> Vec<&'a NodeStanding> {
    let mut sorted: Vec<&NodeStanding> = nodes.collect();
    sorted.sort_by(|a, b| a.reachable.cmp(&b.reachable).then(b.half_width_95_ns.total_cmp(&a.half_width_95_ns)));
    sorted.truncate(most);
    sorted
}

/// One line per node.
pub fn table(nodes: &[&NodeStanding]) -> Table {
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["node", "host", "offset", "rate ppm", "±95 %", "hard", "state"]);
    for node in nodes {
        let state = match node {
            node if !node.reachable => "unreachable",
            node if node.clock_disturbed => "disturbed",
            node if !node.converged => "unsettled",
            _ => "ok",
        };
        table.add_row([
            node.node.to_string(),
            shortened(&node.host),
            node.offset_ns.map_or_else(|| UNKNOWN.to_owned(), signed),
            node.rate_ppm.map_or_else(|| UNKNOWN.to_owned(), |rate| format!("{rate:+.3}")),
            unsigned(node.half_width_95_ns),
            unsigned(farthest(node)),
            state.to_owned(),
        ]);
    }
    for column in table.column_iter_mut().filter(|column| ![1, 6].contains(&column.index)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Largest distance of the offset from the one shown.
fn farthest(node: &NodeStanding) -> f64 {
    let side =
        |bound: Option<f64>| bound.zip(node.offset_ns).map_or(f64::INFINITY, |(bound, offset)| (bound - offset).abs());
    node.hard_interval_ns.map(side).into_iter().fold(0.0, f64::max)
}

/// Shortens a name to leave room for the numbers: its beginning and its end, where names differ.
/// Host names are untrusted: anything that would move a terminal's cursor becomes `?`.
fn shortened(host: &str) -> String {
    let letters: Vec<char> = plain_name(host).chars().collect();
    if letters.len() <= HOST_MAX {
        return letters.into_iter().collect();
    }
    let (begin, end) = (&letters[..HOST_MAX / 2], &letters[letters.len() - (HOST_MAX - HOST_MAX / 2 - 1)..]);
    begin.iter().chain(&['~']).chain(end).collect()
}

const HOST_MAX: usize = 15;
/// Shown in place of an unknown number.
const UNKNOWN: &str = "?";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_leave_room_and_move_nothing() {
        assert_eq!(shortened("gpu-01"), "gpu-01");
        assert_eq!(shortened("ip-10-0-17-203.compute.internal"), "ip-10-0~nternal");
        assert_eq!(shortened("a\u{1b}[2Jb\n"), "a?[2Jb?");
    }
}
