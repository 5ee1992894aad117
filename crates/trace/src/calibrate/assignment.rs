//! Whether the traces' own collectives allow the nodes that traces were given by a number.
//!
//! Place in the flow: the last step of `calibrate`, where a rank or a place in a list has settled whose a trace is. Two launchers may number the same hosts differently, and a restart
//! renumbers ranks: then every trace is corrected by another node's offset. So the collectives are judged on the clocks that came of it, and where they break, every other
//! assignment of these traces to these nodes is tried. One on which all hold is named. What it does not do: take it; a wrong guess would be as silent.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;

use super::calibrated::{Calibrated, CalibratedTrace, as_is, look};
use super::request::Request;
use super::source::Source;
use super::traces;
use crate::Error;
use crate::clocks::{NodeClock, Offsets, Timeline, node_clock};
use crate::collectives::{CheckOptions, CheckReport, MapTime, MatchOptions, Pairing, check, span};
use crate::nodes::{self, NodeTrace, SettledBy};

/// Compares the assignment with what the collectives allow; what is worth telling where they contradict it and no other holds.
///
/// # Errors
/// [`Error::Nodes`] names the assignment with which all operations hold.
pub(super) fn confirm(
    calibrated: &Calibrated,
    offsets: &Offsets,
    request: &Request,
    source: &Source,
    paths: &[PathBuf],
) -> Result<Option<String>, Error> {
    let judged: Vec<&CalibratedTrace> =
        calibrated.traces.iter().filter(|of| of.clock.is_some() && !of.trace.facts.merged).collect();
    let movable: Vec<usize> = (0..judged.len()).filter(|place| by_number(&judged[*place].trace)).collect();
    let mut nodes: BTreeMap<u32, usize> = BTreeMap::new();
    movable.iter().for_each(|place| *nodes.entry(judged[*place].trace.node).or_default() += 1);
    if nodes.len() < 2 {
        return Ok(None);
    }
    let present: Vec<(&NodeTrace, Option<&NodeClock>)> =
        judged.iter().map(|of| (&of.trace, of.clock.as_ref())).collect();
    let broken = report(&present);
    if broken.violations() == 0 {
        return Ok(None);
    }
    let contradicted = format!(
        "the traces' own collectives contradict their nodes: {} of {} happens-before edges are broken, by up to {}",
        broken.broken,
        broken.edges,
        span(broken.worst_ns)
    );
    let mut search =
        Search { judged: &judged, movable: &movable, candidates: BTreeMap::new(), checks_left: Cell::new(CHECKS_MAX) };
    if movable.len() <= MOVABLE_MAX {
        for &place in &movable {
            for &node in nodes.keys() {
                if let Some(candidate) = candidate(&judged[place].trace, node, offsets, request, source, paths) {
                    search.candidates.insert((place, node), candidate);
                }
            }
        }
        if let Some(found) = search.find(&mut nodes, &mut Vec::new()) {
            return Err(Error::Nodes { problem: refusal(&contradicted, &search, &found, paths) });
        }
    }
    Ok(Some(format!("{contradicted}; a clock is wrong, and no other assignment to these nodes mends it")))
}

/// Whether a number settled the node: numbers may be another launcher's.
fn by_number(trace: &NodeTrace) -> bool {
    matches!(trace.settled_by, SettledBy::Rank { .. } | SettledBy::ListOrder)
}

/// A trace as it would be on another node.
fn candidate(
    trace: &NodeTrace,
    node: u32,
    offsets: &Offsets,
    request: &Request,
    source: &Source,
    paths: &[PathBuf],
) -> Option<(NodeTrace, NodeClock)> {
    let mut moved = [NodeTrace { node, ..trace.clone() }];
    let snapshots = traces::snapshots(request, source, paths, &mut moved).ok()?.pop()?;
    let [moved] = moved;
    let clock = node_clock(&moved.facts, offsets, node, snapshots.as_ref(), Timeline::Host);
    Some((moved, clock.ok()?))
}

/// The check of some traces on these clocks.
fn report(traces: &[(&NodeTrace, Option<&NodeClock>)]) -> CheckReport {
    let maps: Vec<Option<Box<MapTime<'_>>>> = traces
        .iter()
        .map(|(_, clock)| Some(clock.map_or_else(|| -> Box<MapTime<'_>> { as_is(f64::INFINITY) }, look)))
        .collect();
    let traces: Vec<&NodeTrace> = traces.iter().map(|(trace, _)| *trace).collect();
    nodes::with_collectives(&traces, &maps, |nodes| {
        check(nodes, &Pairing::new(nodes, MatchOptions::default(), true), &CheckOptions::default())
    })
}

/// Tries one trace after the other on the nodes that are left.
struct Search<'a> {
    judged: &'a [&'a CalibratedTrace],
    movable: &'a [usize],
    candidates: BTreeMap<(usize, u32), (NodeTrace, NodeClock)>,
    /// Checks that are still made.
    checks_left: Cell<usize>,
}

impl Search<'_> {
    /// An assignment on which all operations hold: a node for each movable trace; `left` are the nodes and how many traces each still takes.
    fn find(&self, left: &mut BTreeMap<u32, usize>, given: &mut Vec<u32>) -> Option<Vec<u32>> {
        let Some(&place) = self.movable.get(given.len()) else {
            let whole = self.check(&self.traces(given))?;
            let moved = given.iter().zip(self.movable).any(|(node, place)| *node != self.judged[*place].trace.node);
            return (moved && whole.violations() == 0 && whole.edges > 0).then(|| given.clone());
        };
        let nodes: Vec<u32> = left.iter().filter(|(_, count)| **count > 0).map(|(node, _)| *node).collect();
        for node in nodes.into_iter().filter(|node| self.candidates.contains_key(&(place, *node))) {
            given.push(node);
            if self.last_holds(given) {
                left.entry(node).and_modify(|count| *count -= 1);
                let found = self.find(left, given);
                left.entry(node).and_modify(|count| *count += 1);
                if found.is_some() {
                    return found;
                }
            }
            given.pop();
        }
        None
    }

    /// The check of some traces; None where enough were made.
    fn check(&self, traces: &[(&NodeTrace, Option<&NodeClock>)]) -> Option<CheckReport> {
        self.checks_left.set(self.checks_left.get().checked_sub(1)?);
        Some(report(traces))
    }

    /// Whether the trace that was given a node last holds against every one before it.
    fn last_holds(&self, given: &[u32]) -> bool {
        let Some((last, before)) = given.split_last() else { return true };
        let of = |place: usize, node: u32| self.candidates.get(&(self.movable[place], node));
        let Some(last) = of(before.len(), *last) else { return false };
        before.iter().enumerate().filter_map(|(place, node)| of(place, *node)).all(|other| {
            let pair = self.check(&[(&last.0, Some(&last.1)), (&other.0, Some(&other.1))]);
            pair.is_some_and(|pair| pair.violations() == 0)
        })
    }

    /// All traces, the movable ones on the nodes given.
    fn traces(&self, given: &[u32]) -> Vec<(&NodeTrace, Option<&NodeClock>)> {
        let moved = |place: usize| {
            let number = self.movable.iter().position(|movable| *movable == place)?;
            self.candidates.get(&(place, *given.get(number)?))
        };
        let of = |place: usize| match moved(place) {
            Some((trace, clock)) => (trace, Some(clock)),
            None => (&self.judged[place].trace, self.judged[place].clock.as_ref()),
        };
        (0..self.judged.len()).map(of).collect()
    }
}

/// What the refusal says: which nodes make all hold, and how to say so.
fn refusal(contradicted: &str, search: &Search<'_>, found: &[u32], paths: &[PathBuf]) -> String {
    let node_of = |path: &PathBuf| {
        let place = search.judged.iter().position(|of| of.trace.path == *path)?;
        let number = search.movable.iter().position(|movable| *movable == place);
        Some(number.map_or(search.judged[place].trace.node, |number| found[number]))
    };
    let moved = search.movable.iter().zip(found).map(|(place, node)| {
        let NodeTrace { path, facts, .. } = &search.judged[*place].trace;
        let rank = facts.identity.rank.map_or_else(String::new, |rank| format!("rank {rank}, "));
        format!("{rank}{} on node {node}", path.display())
    });
    let moved = moved.collect::<Vec<_>>().join("; ");
    let nodes: Option<Vec<String>> = paths.iter().map(|path| Some(node_of(path)?.to_string())).collect();
    let remedy = nodes.map_or_else(|| "give --nodes".to_owned(), |nodes| format!("give --nodes {}", nodes.join(" ")));
    format!(
        "{contradicted}. All hold with {moved}: these numbers are another launcher's, or ranks were numbered anew by a restart; {remedy}, in the order of the traces"
    )
}

/// Traces of which all assignments are tried.
const MOVABLE_MAX: usize = 16;
/// Checks of two traces, or of all, that are made for it.
const CHECKS_MAX: usize = 2000;
