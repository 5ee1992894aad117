//! Uses the traces' own collectives to check the nodes that were assigned to traces by number.
//!
//! The check applies if a rank or a position in a list determined a trace's node. Two launchers may
//! number the same hosts differently, and a restart renumbers ranks; every trace would then be
//! corrected by another node's offset. The collectives are therefore checked on the resulting
//! clocks. If some are violated, every other assignment of these traces to these nodes is tried,
//! and one under which all hold is named. If all hold but only times tell which operations belong
//! together, clocks that are wrong by whole steps would pair the wrong operations. So if all hold
//! equally, with other pairs, after two traces exchange their nodes, the numbers alone are not
//! proof, and the assignment is also refused. It does not adopt another assignment, because a wrong
//! guess would also go unnoticed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::Error;
use probe_sync_formats::words::counted;

use super::source::Source;
use super::traces;
use crate::calibrated::{Calibrated, CalibratedTrace, as_is, look};
use crate::clocks::{NodeClock, Offsets, Timeline, node_clock};
use crate::collectives::{CheckOptions, CheckReport, MapTime, MatchOptions, Pairing, check, span};
use crate::nodes::{self, NodeTrace, SettledBy};
use crate::request::Request;

/// Compares the assignment with what the collectives allow. Returns what is worth telling the user
/// if they contradict it and no other assignment holds.
///
/// # Errors
/// [`Error::Nodes`] naming the assignment with which all operations hold.
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
    let nodes: BTreeSet<u32> = movable.iter().map(|place| judged[*place].trace.node).collect();
    if nodes.len() < 2 {
        return Ok(None);
    }
    let placed: Vec<Placed<'_>> = judged.iter().map(|of| (&of.trace, of.clock.as_ref())).collect();
    let (pairing, found) = look_at(&placed);
    if found.violations() == 0 && !pairing.is_by_times() {
        return Ok(None);
    }
    let search =
        Search::new(&judged, &movable, &nodes, |trace, node| candidate(trace, node, offsets, request, source, paths));
    if found.violations() > 0 {
        let contradicted = format!(
            "the traces' collectives contradict their assignment to nodes: {} of {} happens-before edges are broken, by up to {}",
            found.broken,
            found.edges,
            span(found.worst_ns)
        );
        return match search.best() {
            Some((given, others)) => {
                Err(Error::Nodes { problem: refusal(&contradicted, &search, &given, others, paths) })
            }
            None => {
                Ok(Some(format!("{contradicted}; a clock is wrong, and no other assignment to these nodes fixes this")))
            }
        };
    }
    match search.exchange() {
        Some(given) => {
            let open = "the traces' collectives are consistent with these nodes, but, paired differently, also with others; only the \
                times determine the pairing";
            Err(Error::Nodes { problem: refusal(open, &search, &given, 0, paths) })
        }
        None => Ok(None),
    }
}

/// Whether a number settled the node: numbers may be another launcher's.
fn by_number(trace: &NodeTrace) -> bool {
    matches!(trace.settled_by, SettledBy::Rank { .. } | SettledBy::RankOfAsMany { .. } | SettledBy::ListOrder)
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

/// A trace and its clock; `None`: unknown.
type Placed<'a> = (&'a NodeTrace, Option<&'a NodeClock>);

/// Pairs the operations of some traces on these clocks, and checks them.
fn look_at(traces: &[Placed<'_>]) -> (Pairing, CheckReport) {
    let maps: Vec<Option<Box<MapTime<'_>>>> = traces
        .iter()
        .map(|(_, clock)| Some(clock.map_or_else(|| -> Box<MapTime<'_>> { as_is(f64::INFINITY) }, look)))
        .collect();
    let traces: Vec<&NodeTrace> = traces.iter().map(|(trace, _)| *trace).collect();
    nodes::with_collectives(&traces, &maps, |nodes| {
        let pairing = Pairing::new(nodes, MatchOptions::default(), true);
        let report = check(nodes, &pairing, &CheckOptions::default());
        (pairing, report)
    })
}

/// Tries one trace after the other on the nodes that are left.
struct Search<'a> {
    judged: &'a [&'a CalibratedTrace],
    movable: &'a [usize],
    candidates: BTreeMap<(usize, u32), (NodeTrace, NodeClock)>,
    /// Checks that may still be made.
    checks_left: Cell<usize>,
    /// For each pair of traces and nodes checked so far: whether it holds.
    pairs: RefCell<BTreeMap<[(usize, u32); 2], bool>>,
}

/// An assignment that holds: number of edges that hold, number of traces that it moves, and the
/// nodes of the movable traces.
type Holding = (usize, usize, Vec<u32>);

impl<'a> Search<'a> {
    fn new(
        judged: &'a [&'a CalibratedTrace],
        movable: &'a [usize],
        nodes: &BTreeSet<u32>,
        candidate: impl Fn(&NodeTrace, u32) -> Option<(NodeTrace, NodeClock)>,
    ) -> Self {
        let mut candidates = BTreeMap::new();
        for &place in movable.iter().filter(|_| movable.len() <= MOVABLE_MAX) {
            for node in nodes {
                if let Some(found) = candidate(&judged[place].trace, *node) {
                    candidates.insert((place, *node), found);
                }
            }
        }
        Self { judged, movable, candidates, checks_left: Cell::new(CHECKS_MAX), pairs: RefCell::default() }
    }

    /// The assignment with which most edges hold, of several the one that moves the fewest traces;
    /// and how many others hold.
    fn best(&self) -> Option<(Vec<u32>, usize)> {
        let mut left: BTreeMap<u32, usize> = BTreeMap::new();
        self.movable.iter().for_each(|place| *left.entry(self.judged[*place].trace.node).or_default() += 1);
        let mut found = Vec::new();
        self.find(&mut left, &mut Vec::new(), &mut found);
        let others = found.len().saturating_sub(1);
        let best = found.into_iter().min_by_key(|(edges, moved, _)| (std::cmp::Reverse(*edges), *moved))?;
        Some((best.2, others))
    }

    fn find(&self, left: &mut BTreeMap<u32, usize>, given: &mut Vec<u32>, found: &mut Vec<Holding>) {
        let Some(&place) = self.movable.get(given.len()) else {
            let moved =
                given.iter().zip(self.movable).filter(|(node, place)| **node != self.judged[**place].trace.node);
            let moved = moved.count();
            if let Some((_, whole)) = self.look_at(&self.traces(given)).filter(|_| moved > 0)
                && whole.violations() == 0
                && whole.edges > 0
            {
                found.push((whole.edges, moved, given.clone()));
            }
            return;
        };
        let nodes: Vec<u32> = left.iter().filter(|(_, count)| **count > 0).map(|(node, _)| *node).collect();
        for node in nodes.into_iter().filter(|node| self.candidates.contains_key(&(place, *node))) {
            given.push(node);
            if found.len() < HOLDING_MAX && self.last_holds(given) {
                left.entry(node).and_modify(|count| *count -= 1);
                self.find(left, given, found);
                left.entry(node).and_modify(|count| *count += 1);
            }
            given.pop();
        }
    }

    /// Two traces that may have swapped their nodes: their operations may then also hold, paired
    /// differently.
    fn exchange(&self) -> Option<Vec<u32>> {
        let own: Vec<u32> = self.movable.iter().map(|place| self.judged[*place].trace.node).collect();
        let on = |number: usize, node: u32| {
            let (trace, clock) = self.candidates.get(&(self.movable[number], node))?;
            Some((trace, Some(clock)))
        };
        for one in 0..own.len() {
            for other in (one + 1..own.len()).filter(|other| own[*other] != own[one]) {
                let now = [on(one, own[one])?, on(other, own[other])?];
                let exchanged = [on(one, own[other])?, on(other, own[one])?];
                let (pairing, now) = self.look_at(&now)?;
                let (other_pairing, then) = self.look_at(&exchanged)?;
                // Several ways to pair them hold.
                let is_open = then.ambiguous_instances > now.ambiguous_instances;
                let may_be = then.violations() == 0 && (then.edges > 0 || is_open);
                if may_be && !pairing.pairs_as(&other_pairing) {
                    let mut given = own.clone();
                    given.swap(one, other);
                    return Some(given);
                }
            }
        }
        None
    }

    /// Checks some traces; `None` if enough checks were made.
    fn look_at(&self, traces: &[Placed<'_>]) -> Option<(Pairing, CheckReport)> {
        self.checks_left.set(self.checks_left.get().checked_sub(1)?);
        Some(look_at(traces))
    }

    /// Whether the trace assigned last holds against every one before it.
    fn last_holds(&self, given: &[u32]) -> bool {
        let Some((last, before)) = given.split_last() else { return true };
        let last = (self.movable[before.len()], *last);
        self.movable.iter().zip(before).all(|(place, node)| self.holds([(*place, *node), last]))
    }

    fn holds(&self, pair: [(usize, u32); 2]) -> bool {
        if let Some(known) = self.pairs.borrow().get(&pair) {
            return *known;
        }
        let placed: Option<Vec<Placed<'_>>> =
            pair.iter().map(|key| self.candidates.get(key).map(|(trace, clock)| (trace, Some(clock)))).collect();
        let holds = placed.and_then(|placed| self.look_at(&placed)).is_some_and(|(_, pair)| pair.violations() == 0);
        self.pairs.borrow_mut().insert(pair, holds);
        holds
    }

    /// All traces, the movable ones on the given nodes.
    fn traces(&self, given: &[u32]) -> Vec<Placed<'_>> {
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

/// Message of the refusal: which nodes make all operations hold, and how to specify them.
fn refusal(contradicted: &str, search: &Search<'_>, found: &[u32], others: usize, paths: &[PathBuf]) -> String {
    let node_of = |path: &PathBuf| {
        let place = search.judged.iter().position(|of| of.trace.path == *path)?;
        let number = search.movable.iter().position(|movable| *movable == place);
        Some(number.map_or(search.judged[place].trace.node, |number| found[number]))
    };
    let moves = |(place, node): &(&usize, &u32)| search.judged[**place].trace.node != **node;
    let moved = search.movable.iter().zip(found).filter(moves).map(|(place, node)| {
        let NodeTrace { path, facts, .. } = &search.judged[*place].trace;
        let rank = facts.identity.rank.map_or_else(String::new, |rank| format!("rank {rank}, "));
        format!("{rank}{} on node {node}", path.display())
    });
    let moved = moved.collect::<Vec<_>>().join("; ");
    let others = match others {
        0 => String::new(),
        others => format!(
            ", and also with {}, which {} fewer operations or moves more traces",
            counted(others, "other assignment"),
            if others == 1 { "pairs" } else { "pair" }
        ),
    };
    let nodes: Option<Vec<String>> = paths.iter().map(|path| Some(node_of(path)?.to_string())).collect();
    let remedy = nodes.map_or_else(|| "give --nodes".to_owned(), |nodes| format!("give --nodes {}", nodes.join(" ")));
    format!(
        "{contradicted}. All edges hold with {moved}{others}: the rank numbers may come from another launcher, or from a restart that \
        renumbered the ranks; {remedy}, in the order of the traces, or give the correct nodes"
    )
}

/// Most traces for which all assignments are tried.
const MOVABLE_MAX: usize = 16;
/// Checks of two traces, or of all, that are made for it.
const CHECKS_MAX: usize = 2000;
/// Assignments that hold and are compared.
const HOLDING_MAX: usize = 64;
