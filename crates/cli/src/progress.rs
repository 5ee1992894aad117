//! What a person sees while a run goes on: one line per round, drawn in place on a terminal, logged otherwise.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use probe_sync::report::{SIGMAS_95, median};
use probe_sync::{Observer, Started};
use probe_sync_estimate::round::GlobalWindowData;
use probe_sync_estimate::window::NodeEstimate;

use crate::table::unsigned;

/// Shows the progress of a run at rank 0.
pub struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Nothing is shown before the run starts.
    pub fn new() -> Self {
        Self { bar: None }
    }

    /// Leaves the last line standing.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}

impl Observer for Progress {
    fn started(&mut self, started: &Started<'_>) {
        tracing::info!("{}", what_starts(started));
        if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new_spinner();
            let style = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            bar.set_style(style);
            bar.enable_steady_tick(REDRAW);
            *DRAWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
            self.bar = Some(bar);
        }
    }

    fn round(&mut self, round: &GlobalWindowData, latency: Duration) {
        let (line, happened) = (line(round, latency), happened(round));
        match &self.bar {
            Some(bar) => {
                // What happened stays above the line that the next round draws anew.
                if !happened.is_empty() {
                    bar.println(format!("round {}{happened}", round.round_id));
                }
                bar.set_message(line);
            }
            None => tracing::info!("{line}{happened}"),
        }
        for fault in round.watch.faults.iter().take(MAX_NAMED) {
            tracing::warn!("{fault}");
        }
    }
}

/// Standard error, where it does not run into the line that is drawn in place: what is written there stays above it.
pub struct AboveTheLine;

impl Write for AboveTheLine {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        let bar = DRAWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match bar.filter(|bar| !bar.is_finished()) {
            Some(bar) => bar.suspend(|| std::io::stderr().write(text)),
            None => std::io::stderr().write(text),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// The line that is drawn in place.
static DRAWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

fn what_starts(started: &Started<'_>) -> String {
    format!(
        "{} ranks over {}, {} nodes on {} host clock(s), reference node {}, {} edges, {} timestamps, window {}, cadence {}, files in {}",
        started.ranks,
        started.backend,
        started.nodes,
        started.clocks,
        started.reference,
        started.edges,
        started.stamp.as_str(),
        unsigned(started.config.window().as_ns_f64()),
        unsigned(started.config.cadence().as_ns_f64()),
        started.config.out.display()
    )
}

fn line(round: &GlobalWindowData, latency: Duration) -> String {
    let others = |node: &&NodeEstimate| node.node_id != round.reference;
    let reached: Vec<f64> = round
        .all_nodes
        .iter()
        .filter(others)
        .filter(|node| node.reachable)
        .map(|node| node.sigma_ns * SIGMAS_95)
        .collect();
    let worst = reached.iter().copied().fold(0.0, f64::max);
    let widths = match reached.len() {
        0 => "no node reached".to_owned(),
        _ => format!("±95 % median {} worst {}", unsigned(median(reached.clone())), unsigned(worst)),
    };
    let nodes = round.all_nodes.iter().filter(others).count();
    format!(
        "round {}: {}/{nodes} nodes, {widths}, solved in {:.1} ms",
        round.round_id,
        reached.len(),
        latency.as_secs_f64() * 1e3
    )
}

/// Edges that were left out, and clocks that were disturbed.
fn happened(round: &GlobalWindowData) -> String {
    let mut text = String::new();
    for (edge, reason) in round.excluded_edges.iter().take(MAX_NAMED) {
        text.push_str(&format!("; edge {edge} left out: {reason}"));
    }
    for (node, _) in round.clock_events.iter().take(MAX_NAMED) {
        text.push_str(&format!("; clock of node {node} disturbed"));
    }
    text
}

const REDRAW: Duration = Duration::from_millis(250);
/// A line stays readable; the files name every edge.
const MAX_NAMED: usize = 3;
