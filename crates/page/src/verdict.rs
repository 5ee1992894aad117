//! The run described in words.
//!
//! `run`, `simulation` and `traces` request sentences, and `html` puts them at the top. A sentence
//! is good, bad or neutral. A missing measurement does not count as success.

use std::collections::BTreeMap;

use probe_sync::report::{NodeRow, RunReport, TruthVerdict};
use probe_sync_formats::words::counted;
use probe_sync_lines::{Fault, FaultKind};
use probe_sync_time::NodeId;

use crate::quantity::unsigned;

/// Mood of a sentence.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Mood {
    /// As expected.
    Good,
    /// Worth knowing.
    Plain,
    /// Needs attention.
    Bad,
}

/// A sentence of the verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// Mood.
    pub mood: Mood,
    /// Text.
    pub text: String,
}

impl Sentence {
    /// As expected.
    pub fn good(text: impl Into<String>) -> Self {
        Self { mood: Mood::Good, text: text.into() }
    }

    /// Worth knowing.
    pub fn plain(text: impl Into<String>) -> Self {
        Self { mood: Mood::Plain, text: text.into() }
    }

    /// Needs attention.
    pub fn bad(text: impl Into<String>) -> Self {
        Self { mood: Mood::Bad, text: text.into() }
    }

    /// Good or bad.
    pub fn of(is_good: bool, text: impl Into<String>) -> Self {
        if is_good { Self::good(text) } else { Self::bad(text) }
    }
}

/// Input of the verdict on a run.
pub(crate) struct Seen<'a> {
    pub report: &'a Option<RunReport>,
    pub nodes: &'a [NodeRow],
    pub reference: Option<NodeId>,
    pub target_ns: Option<f64>,
    pub faults: &'a [Fault],
    pub rounds: usize,
}

/// The verdict on a run.
pub(crate) fn of_run(seen: &Seen<'_>) -> Vec<Sentence> {
    let mut said = Vec::new();
    let report = seen.report.as_ref();
    if let Some(error) = report.and_then(|report| report.error.as_ref()) {
        said.push(Sentence::bad(format!("The run failed: {error}. This page shows the rounds before the failure.")));
    }
    if report.is_some_and(|report| report.round_mode == "local") {
        let how = "probe_sync solve --windows computes offsets from them";
        said.push(Sentence::plain(format!("No rounds were solved: every node kept its windows in a file, and {how}.")));
    } else if seen.rounds == 0 {
        said.push(Sentence::bad(
            "Nothing was measured: the run's files contain no rounds. Either it ended before its first window did, or that window is \
            not over yet.",
        ));
    } else {
        said.extend(knowledge(seen));
    }
    if report.is_none() {
        let last = if seen.rounds > 0 { " This page uses the last round in its files instead." } else { "" };
        said.push(Sentence::plain(format!(
            "The run has not written a report: it is still running, or it was killed.{last}"
        )));
    }
    if seen.rounds > 0 {
        said.push(faults(seen, report));
    }
    if let Some(truth) = report.and_then(|report| report.truth.as_ref()) {
        said.extend(truth_held(truth));
    }
    said.extend(report.into_iter().flat_map(losses));
    said
}

/// How well the nodes are known.
fn knowledge(seen: &Seen<'_>) -> Vec<Sentence> {
    let others: Vec<&NodeRow> = seen.nodes.iter().filter(|row| Some(row.node_id) != seen.reference).collect();
    let reached: Vec<&NodeRow> = others.iter().copied().filter(|row| row.reachable).collect();
    let mut said = Vec::new();
    let lost: Vec<NodeId> = others.iter().filter(|row| !row.reachable).map(|row| row.node_id).collect();
    if !lost.is_empty() {
        let of = format!("{} of {} other nodes were not reached in the last round", lost.len(), others.len());
        said.push(Sentence::bad(format!("{of}: {}.", names(&lost))));
    }
    let Some(worst) = reached.iter().max_by(|a, b| a.half_width_95_ns.total_cmp(&b.half_width_95_ns)) else {
        if others.is_empty() {
            said.push(Sentence::plain("The run has only one node, so there is nothing to compare its clock with."));
        }
        return said;
    };
    let width = unsigned(worst.half_width_95_ns);
    let all = if reached.len() == others.len() { "All" } else { "The" };
    let nodes =
        |count: usize| if count == 1 { "1 other node is".to_owned() } else { format!("{count} other nodes are") };
    let subject =
        if others.len() == 1 { "The other node is".to_owned() } else { format!("{all} {}", nodes(reached.len())) };
    said.push(match seen.target_ns {
        None => Sentence::good(format!("{subject} known within ±{width} (95 %) of the reference; the run had no target.")),
        Some(target) => {
            let within = reached.iter().filter(|row| row.half_width_95_ns <= target).count();
            if within == reached.len() {
                Sentence::good(format!("{subject} known within ±{width} (95 %) of the reference, target ±{}.", unsigned(target)))
            } else {
                Sentence::bad(format!(
                    "{within} of {} reached nodes are within the target of ±{} (95 %); the worst, node {}, is known within ±{width}.",
                    reached.len(),
                    unsigned(target),
                    worst.node_id
                ))
            }
        }
    });
    said.extend(disturbed(&reached));
    said
}

/// Nodes whose last estimate is not reliable.
fn disturbed(reached: &[&NodeRow]) -> Option<Sentence> {
    let disturbed: Vec<NodeId> = reached.iter().filter(|row| row.clock_disturbed).map(|row| row.node_id).collect();
    let who = names(&disturbed);
    let text = format!("In the last round a clock was stepped or slewed: do not trust the last values of {who}.");
    (!disturbed.is_empty()).then(|| Sentence::bad(text))
}

fn faults(seen: &Seen<'_>, report: Option<&RunReport>) -> Sentence {
    let counted = report.map(|report| report.faults_by_kind.clone()).unwrap_or_else(|| {
        let mut counts: BTreeMap<FaultKind, u64> = BTreeMap::new();
        seen.faults.iter().for_each(|fault| *counts.entry(fault.kind).or_default() += 1);
        counts
    });
    let count: u64 = counted.values().sum();
    let kinds: Vec<String> =
        counted.iter().map(|(kind, count)| format!("{count} {}", kind.as_str().replace('_', " "))).collect();
    match count {
        0 => Sentence::good("No clock or path faults were found."),
        1 => Sentence::bad(format!("1 fault was found: {}.", kinds.join(", "))),
        _ => Sentence::bad(format!("{count} faults were found: {}.", kinds.join(", "))),
    }
}

/// Comparison with the known truth.
pub(crate) fn truth_held(truth: &TruthVerdict) -> Vec<Sentence> {
    let TruthVerdict { judged, outside_hard_interval, .. } = truth;
    if *judged == 0 {
        return vec![Sentence::plain(
            "The true clocks are known, but no estimate was compared with them: comparison begins with the second round.",
        )];
    }
    let worst = format!(
        "Compared with the true clocks, the worst error was {} and the median {}.",
        unsigned(truth.worst_error_ns),
        unsigned(truth.median_error_ns)
    );
    let covered =
        format!("The 95 % interval contained the truth in {:.1} % of {judged} estimates.", 100.0 * truth.coverage_95);
    let bounds = match outside_hard_interval {
        0 => "Hard intervals were never violated.".to_owned(),
        crossed => format!("Hard intervals were violated in {crossed} of {judged} estimates, which must never happen."),
    };
    vec![
        Sentence::plain(worst),
        Sentence::of(truth.coverage_95 >= COVERAGE_MIN, covered),
        Sentence::of(*outside_hard_interval == 0, bounds),
    ]
}

/// Missing ranks, directions and files.
fn losses(report: &RunReport) -> Vec<Sentence> {
    let mut said = Vec::new();
    let away: Vec<usize> = report.absences.iter().map(|absence| absence.rank).collect();
    if !away.is_empty() {
        let back = report.absences.iter().filter(|absence| absence.back.is_some()).count();
        said.push(Sentence::bad(format!(
            "The run continued without {} temporarily or until its end; {back} of {} absences ended.",
            listed("rank", &away.iter().map(ToString::to_string).collect::<Vec<_>>()),
            away.len()
        )));
    }
    if !report.unreachable_peers.is_empty() {
        let pair = |peer: &probe_sync::report::UnreachablePeer| format!("{} to {}", peer.src, peer.dst);
        let pairs: Vec<String> = report.unreachable_peers.iter().map(pair).collect();
        said.push(Sentence::bad(format!(
            "Packets could not be sent from {}; check routes and firewalls.",
            listed("node", &pairs)
        )));
    }
    for file in report.files.iter().filter(|file| file.reason.is_some()).take(NAMES_MAX) {
        said.push(Sentence::bad(format!(
            "{} lacks {}, because writing failed.",
            file.name,
            counted(file.rounds_missing, "round")
        )));
    }
    said
}

fn names(nodes: &[NodeId]) -> String {
    listed("node", &nodes.iter().map(ToString::to_string).collect::<Vec<_>>())
}

/// "node 3", "nodes 3, 4 and 9 more".
fn listed(what: &str, names: &[String]) -> String {
    let plural = if names.len() == 1 { "" } else { "s" };
    let shown = names[..names.len().min(NAMES_MAX)].join(", ");
    let more = names.len().saturating_sub(NAMES_MAX);
    if more > 0 { format!("{what}{plural} {shown} and {more} more") } else { format!("{what}{plural} {shown}") }
}

/// An interval that should contain 95 % may by chance contain somewhat less.
const COVERAGE_MIN: f64 = 0.9;
/// Most names in a sentence.
const NAMES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use probe_sync_lines::Culprit;
    use probe_sync_time::{RoundId, StampSource};

    use super::*;

    fn row(node: u32, half_width_95_ns: f64) -> NodeRow {
        NodeRow {
            node_id: NodeId(node),
            rank: node,
            host: "h".into(),
            stamp: StampSource::Kernel,
            reachable: half_width_95_ns.is_finite(),
            clock_disturbed: false,
            offset_ns: 0.0,
            drift_ppm: 0.0,
            half_width_95_ns,
            hard_interval_ns: [None; 2],
            edges: 1,
            lost: 0,
            true_offset_ns: None,
            error_ns: None,
            bounds_held: None,
        }
    }

    fn check(widths_ns: &[f64], target_ns: Option<f64>, rounds: usize, expected: &[(Mood, &str)]) {
        let nodes: Vec<NodeRow> = widths_ns.iter().enumerate().map(|(node, ns)| row(node as u32, *ns)).collect();
        let fault = Fault {
            kind: FaultKind::OneWayLoss,
            culprit: Culprit::Everyone,
            size: 0.5,
            began: RoundId(1),
            round: RoundId(2),
        };
        let seen =
            Seen { report: &None, nodes: &nodes, reference: Some(NodeId(0)), target_ns, faults: &[fault], rounds };
        let found = of_run(&seen);
        for (mood, part) in expected {
            let is_there = |said: &Sentence| said.mood == *mood && said.text.contains(part);
            assert!(found.iter().any(is_there), "{part} is not said: {found:#?}");
        }
    }

    #[test]
    fn the_verdict_says_who_is_known_and_who_is_not() {
        use Mood::{Bad, Good, Plain};
        check(
            &[0.0, 500.0, 900.0],
            Some(1000.0),
            5,
            &[(Good, "All 2 other nodes are known within ±900 ns (95 %) of the reference, target ±1 µs.")],
        );
        check(
            &[0.0, 500.0, 1900.0],
            Some(1000.0),
            5,
            &[(
                Bad,
                "1 of 2 reached nodes are within the target of ±1 µs (95 %); the worst, node 2, is known within ±1.9 µs.",
            )],
        );
        check(
            &[0.0, 500.0, f64::INFINITY],
            None,
            5,
            &[
                (Bad, "1 of 2 other nodes were not reached in the last round: node 2."),
                (Good, "The 1 other node is known within ±500 ns"),
                (Bad, "1 fault was found: 1 one way loss."),
                (Plain, "The run has not written a report"),
            ],
        );
        check(&[], None, 0, &[(Bad, "Nothing was measured"), (Plain, "not written a report")]);
        check(&[0.0], None, 1, &[(Plain, "one node")]);
    }

    #[test]
    fn truth_that_lies_outside_is_said() {
        let truth = TruthVerdict { judged: 40, coverage_95: 0.96, ..TruthVerdict::default() };
        let moods = |truth: &TruthVerdict| truth_held(truth).iter().map(|said| said.mood).collect::<Vec<_>>();
        assert_eq!(moods(&truth), [Mood::Plain, Mood::Good, Mood::Good]);
        assert_eq!(moods(&TruthVerdict { outside_hard_interval: 1, ..truth.clone() })[2], Mood::Bad);
        assert_eq!(moods(&TruthVerdict { coverage_95: 0.5, ..truth })[1], Mood::Bad);
        assert_eq!(moods(&TruthVerdict::default()), [Mood::Plain]);
    }
}
