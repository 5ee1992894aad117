//! Happens-before over matched collectives: which edges hold under a time map, which do not, and by how much.
//!
//! Place in the flow: after `matching`; run once with the raw times and once with the corrected ones. How edges are
//! counted is told in the module above.
//!
//! Does uncertainty explain a broken edge? The two times were corrected with errors of standard deviations σ_e and σ_s,
//! from different nodes and so taken as independent: the difference has √(σ_e² + σ_s²), and up to three times that is
//! explained. Adding the two σ was rejected: it is exact only for fully correlated errors of opposite sign, and it hides
//! faults of up to 1.4 times the size. An edge counts as explained when every start that its end precedes is explained.
//! An infinite σ (an uncalibrated node) explains everything; for raw times pass 0, which claims equal clocks.
//!
//! Verdict: a broken edge that uncertainty does not explain is a violation, and a command that finds one says so in its exit status.
//! What it does not do: judge ambiguous operations. They are counted apart.

use serde::Serialize;

use super::NodeCollectives;
use super::matching::{Ambiguous, Evidence, MatchOptions, Operation, Order, Part, event, match_operations, times};
use crate::model::{Instance, Picoseconds};

/// What a check may assume, and how much it tells.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct CheckOptions {
    /// How cautious pairing is.
    pub matching: MatchOptions,
    /// Standard deviations that explain a broken edge.
    pub deviations: f64,
    /// Broken edges that the report lists, the worst first; the others are counted.
    pub listed_max: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { matching: MatchOptions::default(), deviations: 3.0, listed_max: 1000 }
    }
}

/// The outcome of a check.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CheckReport {
    /// Happens-before edges that were judged.
    pub edges: usize,
    /// Edges that do not hold.
    pub broken: usize,
    /// Of the broken ones, those that the clocks' uncertainty explains.
    pub explained: usize,
    /// Operations with parts on at least two nodes.
    pub instances: usize,
    /// The largest amount by which an edge is broken, ns; 0 when none is.
    pub worst_ns: f64,
    /// The same by name of operation.
    pub operations: Vec<OperationLine>,
    /// The nodes, with their numbers of parts.
    pub nodes: Vec<NodeLine>,
    /// Broken edges, unexplained before explained, and worst first.
    pub broken_edges: Vec<BrokenEdge>,
    /// Broken edges that are not listed.
    pub broken_edges_left_out: usize,
    /// Instances that no order pairs with certainty; never a verdict.
    pub ambiguous_instances: usize,
    /// What they are, and why.
    pub ambiguous: Vec<Ambiguous>,
    /// Parts that no other node shows.
    pub unpaired_parts: usize,
    /// Parts that order nothing as far as the trace says.
    pub unordered_parts: usize,
}

impl CheckReport {
    /// Broken edges that uncertainty does not explain.
    pub fn violations(&self) -> usize {
        self.broken - self.explained
    }
}

/// All operations of one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationLine {
    /// The name.
    pub name: String,
    /// Why the parts belong together; the weakest where instances differ.
    pub evidence: Evidence,
    /// How many.
    pub instances: usize,
    /// Their edges.
    pub edges: usize,
    /// Those that do not hold.
    pub broken: usize,
    /// Of these, those that uncertainty explains.
    pub explained: usize,
    /// The largest amount, ns.
    pub worst_ns: f64,
}

/// A node that took part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeLine {
    /// Its number.
    pub node: u32,
    /// Its host.
    pub name: String,
    /// Its parts, judged or not.
    pub parts: usize,
    /// Edges whose end is here and does not hold.
    pub broken: usize,
}

/// An end that precedes a start that it must follow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BrokenEdge {
    /// The operation's name.
    pub operation: String,
    /// Which instance, in words.
    pub instance: String,
    /// The node on which it ended too early.
    pub ended_node: u32,
    /// That node's host.
    pub ended_name: String,
    /// The end, ns, rounded down.
    pub end_ns: i64,
    /// The node on which it had not yet begun.
    pub started_node: u32,
    /// That node's host.
    pub started_name: String,
    /// The start, ns, rounded down.
    pub start_ns: i64,
    /// Start minus end, ns.
    pub by_ns: f64,
    /// What the clocks' uncertainty can account for, ns; None: anything.
    pub uncertainty_ns: Option<f64>,
    /// Uncertainty accounts for it.
    pub explained: bool,
}

/// Judges every edge of the nodes' collectives, each node looked at through its map.
pub(crate) fn check(nodes: &[NodeCollectives<'_>], options: &CheckOptions) -> CheckReport {
    let matching = match_operations(nodes, options.matching);
    let line = |node: &NodeCollectives<'_>| NodeLine {
        node: node.node,
        name: node.name.to_owned(),
        parts: node.events.len(),
        broken: 0,
    };
    let mut report = CheckReport {
        instances: matching.operations.len(),
        nodes: nodes.iter().map(line).collect(),
        ambiguous_instances: matching.ambiguous.iter().map(|ambiguous| ambiguous.instances).sum(),
        ambiguous: matching.ambiguous,
        unpaired_parts: matching.unpaired,
        unordered_parts: matching.unordered,
        ..CheckReport::default()
    };
    let mut lines = std::collections::BTreeMap::new();
    for operation in &matching.operations {
        let name = event(nodes, operation.parts[0]).name.as_str();
        let line = lines.entry(name).or_insert_with(|| OperationLine {
            name: name.to_owned(),
            evidence: operation.evidence,
            instances: 0,
            edges: 0,
            broken: 0,
            explained: 0,
            worst_ns: 0.0,
        });
        line.instances += 1;
        line.evidence = line.evidence.max(operation.evidence);
        judge(nodes, operation, options, line, &mut report);
    }
    report.operations = lines.into_values().collect();
    for line in &report.operations {
        report.edges += line.edges;
        report.broken += line.broken;
        report.explained += line.explained;
        report.worst_ns = report.worst_ns.max(line.worst_ns);
    }
    trim(&mut report, options.listed_max);
    report
}

/// One end of a part on the common clock.
#[derive(Copy, Clone, Debug)]
struct Instant {
    part: Part,
    clock: u32,
    at: Picoseconds,
    sigma_ns: f64,
}

/// The ends that must follow, and the starts that they must follow.
fn sides(nodes: &[NodeCollectives<'_>], operation: &Operation) -> (Vec<Instant>, Vec<Instant>) {
    let instant = |part: Part, at: Picoseconds| {
        let (at, sigma_ns) = (nodes[part.node].map)(at);
        Instant { part, clock: nodes[part.node].clock, at, sigma_ns }
    };
    let ends = |keep: &dyn Fn(usize) -> bool| -> Vec<Instant> {
        let kept = operation.parts.iter().filter(|part| keep(part.node));
        kept.map(|&part| instant(part, times(nodes, part).1)).collect()
    };
    let starts = |keep: &dyn Fn(usize) -> bool| -> Vec<Instant> {
        let kept = operation.parts.iter().filter(|part| keep(part.node));
        kept.map(|&part| instant(part, times(nodes, part).0)).collect()
    };
    match operation.order {
        Order::AllToAll => (ends(&|_| true), starts(&|_| true)),
        Order::From(root) => (ends(&|node| node != root), starts(&|node| node == root)),
        Order::To(root) => (ends(&|node| node == root), starts(&|node| node != root)),
        Order::Between { source, destination } => (ends(&|node| node == destination), starts(&|node| node == source)),
    }
}

fn judge(
    nodes: &[NodeCollectives<'_>],
    operation: &Operation,
    options: &CheckOptions,
    line: &mut OperationLine,
    report: &mut CheckReport,
) {
    let (ends, starts) = sides(nodes, operation);
    let latest = starts.iter().map(|start| start.at).max();
    for end in &ends {
        line.edges += 1;
        if latest.is_some_and(|latest| end.at >= latest) {
            continue;
        }
        let Some((start, allowed)) = culprit(end, &starts, options.deviations) else {
            continue;
        };
        let by_ns = nanoseconds(start.at - end.at);
        let explained = by_ns <= allowed;
        line.broken += 1;
        line.explained += usize::from(explained);
        line.worst_ns = line.worst_ns.max(by_ns);
        report.nodes[end.part.node].broken += 1;
        let (ended, started) = (&nodes[end.part.node], &nodes[start.part.node]);
        report.broken_edges.push(BrokenEdge {
            operation: line.name.clone(),
            instance: instance_text(&event(nodes, end.part).instance, operation),
            ended_node: ended.node,
            ended_name: ended.name.to_owned(),
            end_ns: whole_ns(end.at),
            started_node: started.node,
            started_name: started.name.to_owned(),
            start_ns: whole_ns(start.at),
            by_ns,
            uncertainty_ns: allowed.is_finite().then_some(allowed),
            explained,
        });
        if report.broken_edges.len() >= 2 * options.listed_max.max(LISTED_MIN) {
            trim(report, options.listed_max);
        }
    }
}

/// Of the starts after `end` the one that uncertainty explains least, and what it explains, ns.
fn culprit<'a>(end: &Instant, starts: &'a [Instant], deviations: f64) -> Option<(&'a Instant, f64)> {
    let allowed = |start: &Instant| {
        // Parts on one node, by whichever rank: one clock, no uncertainty between the two.
        let same = start.clock == end.clock;
        if same { 0.0 } else { deviations * end.sigma_ns.hypot(start.sigma_ns) }
    };
    let excess = |start: &Instant| nanoseconds(start.at - end.at) - allowed(start);
    let later = starts.iter().filter(|start| start.at > end.at);
    let worst = later.max_by(|a, b| excess(a).total_cmp(&excess(b)).then(a.at.cmp(&b.at)))?;
    Some((worst, allowed(worst)))
}

/// Sorts the broken edges and keeps the worst.
fn trim(report: &mut CheckReport, listed_max: usize) {
    let order = |a: &BrokenEdge, b: &BrokenEdge| {
        a.explained.cmp(&b.explained).then(b.by_ns.total_cmp(&a.by_ns)).then(a.end_ns.cmp(&b.end_ns))
    };
    report.broken_edges.sort_by(order);
    report.broken_edges_left_out += report.broken_edges.len().saturating_sub(listed_max);
    report.broken_edges.truncate(listed_max);
}

fn instance_text(instance: &Instance, operation: &Operation) -> String {
    match instance {
        Instance::Hlo { module, run_id, .. } => {
            let turn = if operation.turn > 0 { format!(", turn {}", operation.turn) } else { String::new() };
            format!("{module}, run {run_id}{turn}")
        }
        Instance::Sequence { group, sequence } => format!("group {}, number {sequence}", group.name),
        Instance::Order { group, signature } => {
            let group = group.as_ref().map_or_else(String::new, |group| format!("group {}, ", group.name));
            format!("{group}{signature}, place {}", operation.turn)
        }
    }
}

/// A difference of times, ps to ns.
fn nanoseconds(difference: Picoseconds) -> f64 {
    difference as f64 / PS_PER_NS as f64
}

/// Whole ns, rounded down and held within i64.
pub(super) fn whole_ns(at: Picoseconds) -> i64 {
    at.div_euclid(PS_PER_NS).clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

pub(super) const PS_PER_NS: Picoseconds = 1000;

/// Broken edges are not trimmed before there are this many.
const LISTED_MIN: usize = 64;

#[cfg(test)]
mod tests;
