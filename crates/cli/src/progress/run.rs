//! What a person sees while a run goes on: the nodes' table, drawn in place on a terminal; a line
//! per round otherwise.

use std::time::Duration;

use probe_sync_formats::words::counted;
use probe_sync_lines::{NodeEstimate, Round};

use console::{Term, truncate_str};
use indicatif::ProgressBar;
use probe_sync::report::{SIGMAS_95, median};
use probe_sync::standing::NodeStanding;
use probe_sync::{Observer, Started};
use probe_sync_time::StampSource;

use super::drawn::{draw, draws, style};
use crate::node_table;
use crate::screen;
use crate::signals::Starting;
use crate::table::unsigned;
use crate::telling::{LogFormat, telling};

/// Shows the progress of a run at rank 0.
#[derive(Default)]
pub struct RunProgress {
    bar: Option<ProgressBar>,
    hosts: Vec<String>,
    /// Until the run has started.
    starting: Option<Starting>,
}

impl RunProgress {
    /// Creates the progress of a run that is about to start.
    pub fn new(starting: Starting) -> Self {
        Self { starting: Some(starting), ..Self::default() }
    }

    /// Leaves the last table on the screen.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}

impl Observer for RunProgress {
    fn joined(&mut self) {
        self.starting = None;
    }

    fn started(&mut self, started: &Started<'_>) {
        tracing::info!("{}", what_starts(started));
        self.hosts = started.hosts.iter().map(|host| (*host).to_owned()).collect();
        self.bar = draws().then(|| draw(ProgressBar::new_spinner(), style("{msg}\n{spinner} {elapsed_precise}")));
    }

    fn round(&mut self, round: &Round, latency: Duration) {
        let (widths, happened) = (Widths::of(round), happened(round));
        let line = line(round, &widths, latency);
        match &self.bar {
            Some(bar) => {
                // What happened stays above the table that the next round draws anew.
                if !happened.is_empty() {
                    let text = format!("round {}{happened}", round.round_id);
                    bar.println(screen::shown(&text, &Term::stderr()));
                }
                bar.set_message(self.drawn(round, &line));
            }
            None if telling().log_format == LogFormat::Json => tracing::info!(
                round = round.round_id.0,
                nodes = widths.nodes,
                reached = widths.reached.len(),
                half_width_95_median_ns = widths.median(),
                half_width_95_worst_ns = widths.worst(),
                solved_s = latency.as_secs_f64(),
                "{line}{happened}"
            ),
            None => tracing::info!("{line}{happened}"),
        }
        for fault in round.watch.faults.iter().take(MAX_NAMED) {
            tracing::warn!("{fault}");
        }
    }
}

impl RunProgress {
    /// The table of the least certain nodes, as many as fit the terminal, and the line of the
    /// round. No line is wider than the terminal: wrapped lines cannot be redrawn.
    fn drawn(&self, round: &Round, line: &str) -> String {
        let (rows, columns) = Term::stderr().size();
        let others = round.all_nodes.iter().filter(|node| node.node_id != round.reference);
        let standing = others.map(|node| {
            let host = self.hosts.get(node.node_id.index()).cloned().unwrap_or_default();
            NodeStanding::new(node, host, round.clock_disturbed(node.node_id))
        });
        let standing: Vec<NodeStanding> = standing.collect();
        let shown =
            node_table::worst(standing.iter(), usize::from(rows).saturating_sub(ROWS_BESIDE).clamp(1, NODES_MAX));
        let mut text = if shown.is_empty() { String::new() } else { format!("{}\n", node_table::table(&shown)) };
        if shown.len() < standing.len() {
            text += &format!("{} nodes with smaller uncertainty\n", standing.len() - shown.len());
        }
        text += line;
        let lines = text.lines().map(|line| truncate_str(line, usize::from(columns).saturating_sub(1), "…"));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// How well the nodes are known after a round.
struct Widths {
    /// All but the reference.
    nodes: usize,
    /// Half-widths of the 95 % intervals of the reachable nodes, ns.
    reached: Vec<f64>,
}

impl Widths {
    fn of(round: &Round) -> Self {
        let others = || round.all_nodes.iter().filter(|node| node.node_id != round.reference);
        let width = |node: &NodeEstimate| node.sigma_ns * SIGMAS_95;
        Self { nodes: others().count(), reached: others().filter(|node| node.reachable).map(width).collect() }
    }

    fn median(&self) -> Option<f64> {
        (!self.reached.is_empty()).then(|| median(self.reached.clone()))
    }

    fn worst(&self) -> Option<f64> {
        self.reached.iter().copied().reduce(f64::max)
    }
}

fn what_starts(started: &Started<'_>) -> String {
    format!(
        "{} over {}, {} on {}, reference node {}, {}, {} timestamps, window {}, cadence {}, files in {}",
        counted(started.ranks, "rank"),
        started.backend,
        counted(started.nodes, "node"),
        counted(started.clocks, "host clock"),
        started.reference,
        counted(started.edges, "edge"),
        stamps(&started.stamps),
        unsigned(started.config.window().as_ns_f64()),
        unsigned(started.config.cadence().as_ns_f64()),
        started.config.out.display()
    )
}

/// The stamp source of most nodes, and which nodes have others.
fn stamps(of_nodes: &[StampSource]) -> String {
    let count = |stamp: &StampSource| of_nodes.iter().filter(|other| *other == stamp).count();
    let Some(most) = of_nodes.iter().min_by_key(|stamp| (usize::MAX - count(stamp), **stamp)) else {
        return "no".into();
    };
    let others = || of_nodes.iter().zip(0..).filter(|(stamp, _)| *stamp != most);
    let named = others().take(MAX_NAMED).map(|(stamp, node)| format!("{} on node {node}", stamp.as_str()));
    let more = others().count().saturating_sub(MAX_NAMED);
    let more = (more > 0).then(|| format!("others on {more} more"));
    let all: Vec<String> = [most.as_str().to_owned()].into_iter().chain(named).chain(more).collect();
    all.join(", ")
}

fn line(round: &Round, widths: &Widths, latency: Duration) -> String {
    let text = match (widths.median(), widths.worst()) {
        (Some(median), Some(worst)) => format!("±95 % median {} worst {}", unsigned(median), unsigned(worst)),
        _ => "no node reached".to_owned(),
    };
    let Widths { nodes, reached } = widths;
    format!(
        "round {}: {}/{nodes} nodes, {text}, solved in {:.1} ms",
        round.round_id,
        reached.len(),
        latency.as_secs_f64() * 1e3
    )
}

/// Excluded edges and disturbed clocks.
fn happened(round: &Round) -> String {
    let mut text = String::new();
    for (edge, reason) in round.excluded_edges.iter().take(MAX_NAMED) {
        text.push_str(&format!("; ignored edge {edge}: {reason}"));
    }
    for (node, _) in round.clock_events.iter().take(MAX_NAMED) {
        text.push_str(&format!("; clock of node {node} disturbed"));
    }
    text
}

/// Keeps a line readable; the files name every edge.
const MAX_NAMED: usize = 3;
/// Nodes in the table; `status --all` shows all.
const NODES_MAX: usize = 10;
/// Lines of a terminal that the table leaves free: its header, and lines above and below.
const ROWS_BESIDE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_that_reads_the_clock_itself_does_not_speak_for_all() {
        use StampSource::{Kernel, User};
        assert_eq!(stamps(&[Kernel, Kernel]), "kernel");
        assert_eq!(stamps(&[Kernel, User, Kernel]), "kernel, user on node 1");
        assert_eq!(stamps(&[User, Kernel]), "kernel, user on node 0");
        assert_eq!(stamps(&[User]), "user");
        let many = [[Kernel; 6].as_slice(), &[User; 5]].concat();
        assert_eq!(stamps(&many), "kernel, user on node 6, user on node 7, user on node 8, others on 2 more");
    }
}
