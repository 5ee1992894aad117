//! `probe_sync status`: how a run stands, from its files.
//!
//! Place in the flow: after or beside a run, in a process of its own. What it does not do: read files (`probe_sync::standing`).

use std::io::IsTerminal as _;
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, TableStyle};
use probe_sync::standing::{NodeStanding, Standing, State, standing};

use crate::args::StatusArgs;
use crate::output;
use crate::table::{fitted, signed, unsigned};

/// Prints it, once or until the run is over.
///
/// # Errors
/// Names the file that is missing or cannot be read.
pub fn run(arguments: &StatusArgs) -> anyhow::Result<()> {
    let is_drawn_anew = arguments.watch && !arguments.json && std::io::stdout().is_terminal();
    loop {
        let found = standing(&arguments.run_dir)?;
        let text = if arguments.json {
            format!("{}\n", serde_json::to_string(&found)?)
        } else {
            rendered(&found, arguments.all)
        };
        output::print(&if is_drawn_anew { format!("{CLEAR}{text}") } else { text })?;
        if !arguments.watch || found.state == State::Ended {
            return Ok(());
        }
        std::thread::sleep(AGAIN);
    }
}

fn rendered(found: &Standing, all: bool) -> String {
    let mut lines = vec![format!("{}: {}", found.run_dir.display(), state(found))];
    if let Some(round) = &found.round {
        let others = found.nodes.len().saturating_sub(1);
        let reached = found.nodes.iter().filter(|node| node.reachable && node.node != round.reference).count();
        let worst = round.worst_half_width_95_ns.map_or_else(|| "none".to_owned(), |ns| format!("±{}", unsigned(ns)));
        lines.push(format!("last round  {}, {} ago; window {}", round.number, age(round.age_s), age(round.window_s)));
        let host = found.nodes.iter().find(|node| node.node == round.reference).map_or("", |node| node.host.as_str());
        lines.push(format!("reference   node {} on {host}", round.reference));
        if let Some(node) = round.carried_by {
            lines.push(format!("            is gone; the clock of node {node} carries its timeline"));
        }
        if let Some(phase) = &round.phase {
            lines.push(format!("phase       {phase}"));
        }
        lines.push(format!("reached     {reached} of {others} other nodes; worst 95 % interval {worst}"));
    }
    let count = found.faults.len();
    lines.push(format!("faults      {count} in the last {} rounds", found.faults_of_rounds));
    let newest = found.faults.iter().skip(count.saturating_sub(FAULTS_MAX));
    lines.extend(newest.map(|fault| format!("            {fault}")));
    let mut text = lines.join("\n") + "\n";
    if let Some(round) = &found.round {
        let mut nodes: Vec<&NodeStanding> = found.nodes.iter().filter(|node| node.node != round.reference).collect();
        if !all {
            nodes.sort_by(|a, b| a.reachable.cmp(&b.reachable).then(b.half_width_95_ns.total_cmp(&a.half_width_95_ns)));
            nodes.truncate(NODES_MAX);
        }
        if !nodes.is_empty() {
            text += &format!("\n{}", fitted(table(&nodes), &[5, 3]));
        }
        let left = found.nodes.len().saturating_sub(1 + nodes.len());
        if left > 0 {
            text += &format!("{left} nodes that are known better: --all\n");
        }
    }
    text
}

fn state(found: &Standing) -> String {
    let process = found.process.map(|process| format!(" (process {process})")).unwrap_or_default();
    match found.state {
        State::Starting => format!("no window has ended yet{process}"),
        State::Running => format!("running{process}"),
        State::Paused => format!("paused{process}; probe_sync ctl resume goes on"),
        State::Stalled => format!("STALLED{process}: the next round is late"),
        State::Broken => "BROKEN OFF: no new rounds, no report, and no process of this host holds the directory".into(),
        State::Ended => "ended".into(),
    }
}

fn table(nodes: &[&NodeStanding]) -> Table {
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
            signed(node.offset_ns),
            format!("{:+.3}", node.rate_ppm),
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

/// How far the offset can be from the one shown, at most.
fn farthest(node: &NodeStanding) -> f64 {
    let side = |bound: Option<f64>| bound.map_or(f64::INFINITY, |bound| (bound - node.offset_ns).abs());
    node.hard_interval_ns.map(side).into_iter().fold(0.0, f64::max)
}

/// A name that leaves room for the numbers: its beginning and its end, where nodes differ.
fn shortened(host: &str) -> String {
    let letters: Vec<char> = host.chars().collect();
    if letters.len() <= HOST_MAX {
        return host.to_owned();
    }
    let (begin, end) = (&letters[..HOST_MAX / 2], &letters[letters.len() - (HOST_MAX - HOST_MAX / 2 - 1)..]);
    begin.iter().chain(&['~']).chain(end).collect()
}

fn age(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 100.0 => format!("{s:.1} s"),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

const AGAIN: Duration = Duration::from_secs(1);
/// To the terminal's upper left corner, and nothing below.
const CLEAR: &str = "\x1b[H\x1b[2J";
const NODES_MAX: usize = 10;
const FAULTS_MAX: usize = 5;
const HOST_MAX: usize = 15;
