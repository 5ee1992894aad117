//! Happens-before over matched collectives: which edges hold under a time map, which do not, and by
//! how much.
//!
//! It runs once with the raw times and once with the corrected ones.
//!
//! Does uncertainty explain a broken edge? The two times were corrected with errors of standard
//! deviations σ_e and σ_s, from different nodes and so taken as independent: the difference has
//! √(σ_e² + σ_s²), and up to three times that is explained. Adding the two σ was rejected: it is
//! exact only for fully correlated errors of opposite sign, and it hides faults of up to 1.4 times
//! the size. An edge counts as explained when every start that its end precedes is explained. For
//! raw times pass 0, which claims equal clocks. An infinite σ says that a clock is not known: an
//! edge that depends on such a clock neither holds nor is explained. It is counted apart
//! ([`CheckReport::unjudged_edges`]), unless a start on a known clock already breaks it. Two traces
//! of one node share its clock, and with it what is wrong about its offset; but each has been tied
//! to that clock by a fit of its own, whose σ count between them. A trace that only markers tie to
//! its clock may be early as a whole; so much more is explained where its end is the one that comes
//! too soon. Two parts of one trace are on one timeline: nothing explains them.
//!
//! Verdict: a broken edge that uncertainty does not explain is a violation. Parts that could not be
//! kept or read back are no part of the verdict, and it says so ([`CheckReport::unjudged_parts`]):
//! edges that hold are then not enough. What a check comes to is its [`Outcome`], which a command
//! shows in its exit status. Ambiguous operations are not judged; they are counted separately.

use std::collections::BTreeMap;

use probe_sync_formats::model::{Instance, MappedTime, PS_PER_NS, Picoseconds};
use serde::Serialize;

use super::NodeCollectives;
use super::matching::{Ambiguous, Evidence, MatchOptions, Operation, Order, Pairing, Part, match_operations};

/// Assumptions of a check, and the length of its report.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct CheckOptions {
    /// Options of matching.
    pub matching: MatchOptions,
    /// A broken edge is explained if it is within this many standard deviations.
    pub deviations: f64,
    /// Most broken edges listed in the report, worst first; the others are only counted.
    pub listed_max: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { matching: MatchOptions::default(), deviations: 3.0, listed_max: 1000 }
    }
}

/// Results of a check.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckReport {
    /// Happens-before edges judged.
    pub edges: usize,
    /// Edges judged broken.
    pub broken: usize,
    /// Broken edges that clock uncertainty explains.
    pub explained: usize,
    /// Broken edges whose end is that of a call, which may return before its operation has run:
    /// such an edge proves nothing unless the call waits.
    pub broken_of_calls: usize,
    /// Further edges that depend on an unknown clock and are not judged.
    pub unjudged_edges: usize,
    /// Operations with parts on at least two nodes.
    pub instances: usize,
    /// Largest amount by which an edge is broken, ns; 0 if none is.
    pub worst_ns: f64,
    /// Operations of all ranks with all starts on known clocks.
    pub start_gaps: usize,
    /// Mean over these operations of the latest start minus the earliest, ns; 0 if there are none.
    /// It reflects waiting ranks as well as clock differences.
    pub start_gap_mean_ns: f64,
    /// Results by operation name.
    pub operations: Vec<OperationLine>,
    /// Results by node.
    pub nodes: Vec<NodeLine>,
    /// Broken edges: unexplained before explained, worst first.
    pub broken_edges: Vec<BrokenEdge>,
    /// Broken edges that are not listed.
    pub broken_edges_left_out: usize,
    /// Instances that cannot be matched with certainty; they do not count for the verdict.
    pub ambiguous_instances: usize,
    /// Ambiguous operations, with reasons.
    pub ambiguous: Vec<Ambiguous>,
    /// Parts for which no other node has a counterpart.
    pub unpaired_parts: usize,
    /// Parts whose order the trace does not determine.
    pub unordered_parts: usize,
    /// Parts that were not judged for another reason: traces with unknown clocks next to others
    /// with known ones, files into which several traces were merged, or parts that could not be
    /// kept or read back because memory for names or the disk was full.
    pub unjudged_parts: u64,
}

/// Outcome of a check.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every edge of every matched operation holds, or is explained by clock uncertainty.
    Holds,
    /// Edges are broken by more than uncertainty explains.
    Violated,
    /// Everything that was judged holds, but some parts or edges could not be judged. Not a
    /// success.
    Incomplete,
    /// There was no edge to judge.
    Nothing,
}

impl CheckReport {
    /// Returns the outcome.
    pub fn outcome(&self) -> Outcome {
        let whole = self.unjudged_parts == 0 && self.unjudged_edges == 0;
        match (self.violations(), whole, self.edges) {
            (0, true, 0) => Outcome::Nothing,
            (0, true, _) => Outcome::Holds,
            (0, false, _) => Outcome::Incomplete,
            _ => Outcome::Violated,
        }
    }

    /// Describes what could not be judged, as in `3 edges and 7 parts of collectives`; empty if
    /// nothing.
    pub fn unjudged(&self) -> String {
        let counts = [(self.unjudged_edges as u64, "edges"), (self.unjudged_parts, "parts of collectives")];
        let told = counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        told.collect::<Vec<_>>().join(" and ")
    }

    fn count_start_gap(&mut self, starts: &[Instant<'_>]) {
        let times = || starts.iter().map(|start| start.time.at);
        let known = starts.iter().all(|start| start.time.sigma_ns.is_finite());
        let Some((earliest, latest)) = times().min().zip(times().max()).filter(|_| known) else { return };
        self.start_gaps += 1;
        self.start_gap_mean_ns += (nanoseconds(latest - earliest) - self.start_gap_mean_ns) / self.start_gaps as f64;
    }

    /// Returns the number of broken edges that uncertainty does not explain.
    pub fn violations(&self) -> usize {
        self.broken - self.explained
    }
}

/// All operations of one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OperationLine {
    /// Operation name.
    pub name: String,
    /// Evidence for matching the parts; the weakest of the instances.
    pub evidence: Evidence,
    /// Number of instances.
    pub instances: usize,
    /// Edges judged.
    pub edges: usize,
    /// Edges judged broken.
    pub broken: usize,
    /// Broken edges that clock uncertainty explains.
    pub explained: usize,
    /// Further edges that depend on an unknown clock and are not judged.
    pub unjudged_edges: usize,
    /// Largest amount by which an edge is broken, ns.
    pub worst_ns: f64,
}

/// A node that took part.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeLine {
    /// Number of the node.
    pub node: u32,
    /// Host name.
    pub name: String,
    /// Parts on the node, judged or not.
    pub parts: usize,
    /// Broken edges that end on this node.
    pub broken: usize,
}

/// An end that precedes a start that it should follow.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BrokenEdge {
    /// Operation name.
    pub operation: String,
    /// Description of the instance.
    pub instance: String,
    /// Shortest unambiguous description of operation and instance.
    #[serde(skip)]
    pub label: String,
    /// Node on which it ended too early.
    pub ended_node: u32,
    /// Host of the node on which it ended.
    pub ended_name: String,
    /// End, ns, rounded down.
    pub end_ns: i64,
    /// Node on which it had not begun yet.
    pub started_node: u32,
    /// Host of the node on which it started.
    pub started_name: String,
    /// Start, ns, rounded down.
    pub start_ns: i64,
    /// Amount of the violation, ns: start minus end.
    pub by_ns: f64,
    /// Amount that clock uncertainty can explain, ns.
    pub uncertainty_ns: f64,
    /// True if clock uncertainty explains the violation.
    pub explained: bool,
}

/// Judges every edge of the nodes' collectives, with each node's times mapped.
pub(crate) fn check(nodes: &[NodeCollectives<'_>], pairing: &Pairing, options: &CheckOptions) -> CheckReport {
    let line = |node: &NodeCollectives<'_>| NodeLine {
        node: node.node,
        name: node.name.to_owned(),
        parts: node.parts.len() as usize,
        broken: 0,
    };
    let report = CheckReport { nodes: nodes.iter().map(line).collect(), ..CheckReport::default() };
    let mut judge = Judge { nodes, options, lines: BTreeMap::new(), report };
    let matching = match_operations(nodes, pairing, options.matching, &mut |operation| judge.operation(operation));
    let Judge { lines, mut report, .. } = judge;
    report.instances = matching.operations;
    report.ambiguous_instances = matching.ambiguous.iter().map(|ambiguous| ambiguous.instances).sum();
    report.ambiguous = matching.ambiguous;
    report.unpaired_parts = matching.unpaired;
    report.unordered_parts = matching.unordered;
    report.unjudged_parts = matching.lost;
    report.operations = lines.into_values().collect();
    for line in &report.operations {
        report.edges += line.edges;
        report.broken += line.broken;
        report.explained += line.explained;
        report.unjudged_edges += line.unjudged_edges;
        report.worst_ns = report.worst_ns.max(line.worst_ns);
    }
    trim(&mut report, options.listed_max);
    report
}

/// One end of a part on the common clock.
#[derive(Copy, Clone, Debug)]
struct Instant<'a> {
    part: Part<'a>,
    clock: u32,
    time: MappedTime,
}

/// Judges one operation at a time.
struct Judge<'a> {
    nodes: &'a [NodeCollectives<'a>],
    options: &'a CheckOptions,
    lines: BTreeMap<String, OperationLine>,
    report: CheckReport,
}

impl<'a> Judge<'a> {
    fn operation(&mut self, operation: &Operation<'a>) {
        let name = operation.parts.first().map_or("", |part| part.label.name.as_str());
        if !self.lines.contains_key(name) {
            let line = OperationLine { name: name.to_owned(), ..OperationLine::new(operation.evidence) };
            self.lines.insert(name.to_owned(), line);
        }
        let mut judged = OperationLine::new(operation.evidence);
        judged.instances = 1;
        let (ends, starts) = self.sides(operation);
        if operation.order == Order::AllToAll {
            self.report.count_start_gap(&starts);
        }
        if let Order::Exchange(receivers) = &operation.order {
            for end in &ends {
                let place = receivers.binary_search_by_key(&end.part.node, |(receiver, _)| *receiver);
                let senders = place.map_or(&[][..], |place| &receivers[place].1);
                let sends = |start: &&Instant<'_>| senders.contains(&start.part.node);
                let of_senders: Vec<Instant<'_>> = starts.iter().filter(sends).copied().collect();
                if !of_senders.is_empty() {
                    self.edge(operation, end, &of_senders, &mut judged);
                }
            }
        } else {
            for end in &ends {
                self.edge(operation, end, &starts, &mut judged);
            }
        }
        if let Some(line) = self.lines.get_mut(name) {
            line.add(&judged);
        }
    }

    /// Returns the ends that must follow, and the starts that they must follow.
    fn sides(&self, operation: &Operation<'a>) -> (Vec<Instant<'a>>, Vec<Instant<'a>>) {
        let (from, to): (Option<usize>, Option<usize>) = match operation.order {
            Order::AllToAll | Order::Exchange(_) => (None, None),
            Order::From(root) => (Some(root), None),
            Order::To(root) => (None, Some(root)),
            Order::Between { source, destination } => (Some(source), Some(destination)),
        };
        let starts_here = |node: usize| from.map_or(to != Some(node), |from| from == node);
        let ends_here = |node: usize| to.map_or(from != Some(node), |to| to == node);
        let instant = |part: &Part<'a>, at: Picoseconds| {
            let node = &self.nodes[part.node];
            Instant { part: *part, clock: node.clock, time: (node.map)(at) }
        };
        let of = |keep: &dyn Fn(usize) -> bool, at: &dyn Fn(&Part<'a>) -> Picoseconds| {
            let kept = operation.parts.iter().filter(|part| keep(part.node));
            kept.map(|part| instant(part, at(part))).collect()
        };
        (of(&ends_here, &|part| part.end_ps), of(&starts_here, &|part| part.start_ps))
    }

    /// Compares one end with the starts that it must follow.
    fn edge(&mut self, operation: &Operation<'_>, end: &Instant<'_>, starts: &[Instant<'_>], line: &mut OperationLine) {
        let (start, allowed) = match standing(end, starts, self.options.deviations) {
            Standing::Unknown => {
                line.unjudged_edges += 1;
                return;
            }
            Standing::Holds => {
                line.edges += 1;
                return;
            }
            Standing::Broken { start, allowed_ns } => (start, allowed_ns),
        };
        line.edges += 1;
        let by_ns = nanoseconds(start.time.at - end.time.at);
        let explained = by_ns <= allowed;
        line.broken += 1;
        line.explained += usize::from(explained);
        line.worst_ns = line.worst_ns.max(by_ns);
        self.report.nodes[end.part.node].broken += 1;
        self.report.broken_of_calls += usize::from(self.nodes[end.part.node].parts.of_calls());
        let (ended, started) = (&self.nodes[end.part.node], &self.nodes[start.part.node]);
        let name = operation.parts.first().map_or("", |part| part.label.name.as_str());
        self.report.broken_edges.push(BrokenEdge {
            operation: name.to_owned(),
            instance: instance_text(&end.part.label.instance, operation),
            label: short_label(name, &end.part.label.instance, operation),
            ended_node: ended.node,
            ended_name: ended.name.to_owned(),
            end_ns: whole_ns(end.time.at),
            started_node: started.node,
            started_name: started.name.to_owned(),
            start_ns: whole_ns(start.time.at),
            by_ns,
            uncertainty_ns: allowed,
            explained,
        });
        if self.report.broken_edges.len() >= 2 * self.options.listed_max.max(LISTED_MIN) {
            trim(&mut self.report, self.options.listed_max);
        }
    }
}

impl OperationLine {
    fn new(evidence: Evidence) -> Self {
        let (name, worst_ns) = (String::new(), 0.0);
        Self { name, evidence, instances: 0, edges: 0, broken: 0, explained: 0, unjudged_edges: 0, worst_ns }
    }

    fn add(&mut self, judged: &Self) {
        self.evidence = self.evidence.max(judged.evidence);
        self.instances += judged.instances;
        self.edges += judged.edges;
        self.broken += judged.broken;
        self.explained += judged.explained;
        self.unjudged_edges += judged.unjudged_edges;
        self.worst_ns = self.worst_ns.max(judged.worst_ns);
    }
}

/// Result of comparing one end with the starts that it must follow.
enum Standing<'a, 'b> {
    /// It follows all starts.
    Holds,
    /// It precedes this start; if several, the one that uncertainty explains least.
    Broken {
        /// The start.
        start: &'a Instant<'b>,
        /// Amount that uncertainty explains, ns.
        allowed_ns: f64,
    },
    /// The comparison depends on an unknown clock.
    Unknown,
}

fn standing<'a, 'b>(end: &Instant<'_>, starts: &'a [Instant<'b>], deviations: f64) -> Standing<'a, 'b> {
    let allowed_ns = |start: &Instant<'_>| allowed_ns(end, start, deviations);
    let late_ns = |start: &Instant<'_>| nanoseconds(start.time.at - end.time.at);
    let (known, unknown): (Vec<_>, Vec<_>) =
        starts.iter().map(|start| (start, allowed_ns(start))).partition(|(_, allowed)| allowed.is_finite());
    let later = known.into_iter().filter(|(start, _)| start.time.at > end.time.at);
    let excess = |(start, allowed): &(&Instant<'_>, f64)| late_ns(start) - allowed;
    let worst = later.max_by(|a, b| excess(a).total_cmp(&excess(b)).then(a.0.time.at.cmp(&b.0.time.at)));
    match worst {
        // A start on a clock that is not known may be later still, but this is broken already.
        Some((start, allowed_ns)) if unknown.is_empty() || late_ns(start) > allowed_ns => {
            Standing::Broken { start, allowed_ns }
        }
        _ if !unknown.is_empty() => Standing::Unknown,
        _ => Standing::Holds,
    }
}

/// Returns the amount by which an end may precede a start within the clocks' uncertainty, ns; not
/// finite if a clock is unknown.
fn allowed_ns(end: &Instant<'_>, start: &Instant<'_>, deviations: f64) -> f64 {
    let sigma = |time: &MappedTime| if start.clock == end.clock { time.own_sigma_ns } else { time.sigma_ns };
    let sigma_ns = sigma(&end.time).hypot(sigma(&start.time));
    if start.part.node == end.part.node && sigma_ns.is_finite() {
        return 0.0;
    }
    deviations * sigma_ns + end.time.early_by_ns
}

/// Sorts the violated edges and keeps the worst.
fn trim(report: &mut CheckReport, listed_max: usize) {
    let order = |a: &BrokenEdge, b: &BrokenEdge| {
        a.explained.cmp(&b.explained).then(b.by_ns.total_cmp(&a.by_ns)).then(a.end_ns.cmp(&b.end_ns))
    };
    report.broken_edges.sort_by(order);
    report.broken_edges_left_out += report.broken_edges.len().saturating_sub(listed_max);
    report.broken_edges.truncate(listed_max);
}

/// Describes the instance of an operation.
pub fn instance_text(instance: &Instance, operation: &Operation<'_>) -> String {
    match instance {
        Instance::Hlo { module, .. } => {
            let turn = if operation.turn > 0 { format!(", turn {}", operation.turn) } else { String::new() };
            format!("{module}, run {}{turn}", operation.number)
        }
        Instance::Sequence { group } => format!("group {}, number {}", group.name, operation.number),
        Instance::Communicator { signature, .. } => format!("{signature} in a communicator of its own"),
        Instance::Order { group, signature } => {
            let group = group.as_ref().map_or_else(String::new, |group| format!("group {}, ", group.name));
            format!("{group}{signature}, place {}", operation.turn)
        }
    }
}

/// Formats `all_gather #8 of group 0`: an operation by its number, or its place, in its group.
fn short_label(name: &str, instance: &Instance, operation: &Operation<'_>) -> String {
    match instance {
        Instance::Sequence { group } => format!("{name} #{} of group {}", operation.number, group.name),
        Instance::Order { group: Some(group), .. } => format!("{name} #{} of group {}", operation.turn, group.name),
        Instance::Order { group: None, .. } => format!("{name} #{}", operation.turn),
        Instance::Hlo { .. } | Instance::Communicator { .. } => {
            format!("{name} ({})", instance_text(instance, operation))
        }
    }
}

/// Converts a difference of times from ps to ns.
fn nanoseconds(difference: Picoseconds) -> f64 {
    difference as f64 / PS_PER_NS as f64
}

/// Converts to whole ns, rounded down and clamped to i64.
pub(super) fn whole_ns(at: Picoseconds) -> i64 {
    at.div_euclid(PS_PER_NS).clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// Number of broken edges below which they are not trimmed.
const LISTED_MIN: usize = 64;

#[cfg(test)]
mod tests;
