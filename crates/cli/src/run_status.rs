//! `probe_sync status`, which reports the state of a run from its files.
//!
//! It works during and after a run, in a separate process.

use std::io::IsTerminal as _;
use std::time::Duration;

use probe_sync::standing::{Standing, State, standing};
use probe_sync_formats::words::counted;

use crate::args::StatusArgs;
use crate::table::{fitted, unsigned};
use crate::{node_table, output};

/// Prints the status, once or until the run is over.
///
/// # Errors
/// Names the file that is missing or unreadable; or the run's process is gone, and no other rank
/// has taken over for half a minute.
pub fn run(arguments: &StatusArgs) -> anyhow::Result<()> {
    let is_drawn_anew = arguments.watch && !arguments.json && std::io::stdout().is_terminal();
    let mut times_gone = 0;
    loop {
        let found = standing(&arguments.run_dir)?;
        match arguments.json {
            true => output::json_line(&found)?,
            false => {
                if is_drawn_anew {
                    output::print(CLEAR)?;
                }
                output::tell(&rendered(&found, arguments.all))?;
            }
        }
        match found.state {
            State::Ended => return Ok(()),
            State::Broken if !arguments.watch || times_gone >= TIMES_GONE_MAX => anyhow::bail!(BROKEN),
            _ if !arguments.watch => return Ok(()),
            _ => {}
        }
        times_gone = if found.is_gone { times_gone + 1 } else { 0 };
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
            lines.push(format!("            is lost; the clock of node {node} maintains its timeline"));
        }
        if let Some(phase) = &round.phase {
            lines.push(format!("phase       {phase}"));
        }
        lines.push(format!("reached     {reached} of {others} other nodes; worst 95 % interval {worst}"));
    }
    lines.extend(found.missing_ranks.iter().map(|rank| format!("missing     rank {rank}: the run started without it")));
    lines.extend(found.late.late.iter().map(|late| format!("late        {late}")));
    lines.extend(found.late.waiting.iter().map(|wait| format!("waiting     {wait}")));
    let count = found.faults.len();
    lines.push(format!("faults      {count} in the last {}", counted(found.faults_of_rounds, "round")));
    let newest = found.faults.iter().skip(count.saturating_sub(FAULTS_MAX));
    lines.extend(newest.map(|fault| format!("            {fault}")));
    let mut text = lines.join("\n") + "\n";
    if let Some(round) = &found.round {
        let others = found.nodes.iter().filter(|node| node.node != round.reference);
        let nodes = if all { others.collect() } else { node_table::worst(others, NODES_MAX) };
        if !nodes.is_empty() {
            text += &format!("\n{}", fitted(node_table::table(&nodes), &[5, 3]));
        }
        let left = found.nodes.len().saturating_sub(1 + nodes.len());
        if left > 0 {
            text += &format!("{} with smaller uncertainty: --all\n", counted(left, "node"));
        }
    }
    text
}

fn state(found: &Standing) -> String {
    let process = found.process.map(|process| format!(" (process {process})")).unwrap_or_default();
    match found.state {
        State::Starting => format!("no window has ended yet{process}"),
        State::Running => format!("running{process}"),
        State::Paused => format!("paused{process}; continue with probe_sync ctl resume"),
        State::Stalled => format!("STALLED{process}: the next round is late"),
        State::Broken => format!("BROKEN: {BROKEN}"),
        State::Ended => "ended".into(),
    }
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
/// Consecutive looks at a run whose process is gone; another rank may take over meanwhile.
const TIMES_GONE_MAX: u32 = 30;
/// Moves to the upper left corner of the terminal and clears below.
const CLEAR: &str = "\x1b[H\x1b[2J";
const NODES_MAX: usize = 10;
const BROKEN: &str = "no new rounds, no report, and no process on this host has the directory open";
const FAULTS_MAX: usize = 5;
