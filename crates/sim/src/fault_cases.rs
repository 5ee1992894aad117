//! The faults to survive, each run through the whole chain and held against the same run without it.
//!
//! Place in the flow: beside `accuracy`, above [`Rounds`]: a [`FaultCase`] puts its faults into a scenario, [`run_case`] lets
//! [`Watch`](probe_sync_estimate::faults::Watch) look at every round, smooths the run with its verdicts, and notes what was named when, which
//! healthy things were left out, and the healthy nodes' errors. [`compare`] holds them against the clean run of the same seed.
//!
//! Faults begin in the middle of a window, where they hurt most. What counts as healthy: every node that the case does not list as
//! sick; nodes that are cut off count again two rounds after they are back. Errors are compared where both runs have an estimate.
//!
//! What it does not do: print; the command does.

use std::collections::{BTreeMap, BTreeSet};

use probe_sync_estimate::faults::{Culprit, Fault as Named, FaultKind as Kind};
use probe_sync_estimate::smoother::{self, SmootherOptions};
use probe_sync_time::{Edge, NodeId};

use crate::course::Course;
use crate::scenario::faults::{Fault, FaultKind, LieStamps};
use crate::runs::rounds::{REFERENCE, Round, Rounds};
use crate::scenario::Scenario;
use crate::error::Error;
use crate::runs::simulation::Simulation;

/// A fault and what must be said of it.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultCase {
    /// Short, for a table.
    pub name: &'static str,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// What must be named: any of these kinds, who, and the time from which it can be seen, s since the start.
    pub expected: Vec<(Vec<Kind>, Culprit, f64)>,
    /// Nodes whose estimates are not judged.
    pub sick: Vec<NodeId>,
    /// Whether an edge between healthy nodes may be left out.
    pub sick_edge: Option<Edge>,
}

/// What became of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseOutcome {
    /// Everything that was named.
    pub named: Vec<Named>,
    /// Rounds from each expected fault's begin to its naming; None where it was not named.
    pub delays: Vec<Option<u64>>,
    /// Faults named that were not expected.
    pub others: Vec<Named>,
    /// Edges between healthy nodes that were left out, and the round.
    pub healthy_left_out: BTreeSet<(usize, Edge)>,
    /// Rounds of healthy nodes that were called spoilt.
    pub healthy_spoilt: usize,
    /// Errors of usable estimates of healthy nodes by round and node, ns.
    pub errors: BTreeMap<(usize, NodeId), f64>,
    /// The same with the smoother over the whole run.
    pub smoothed: BTreeMap<(usize, NodeId), f64>,
    /// Rounds of the run.
    pub rounds: usize,
}

/// 99th percentiles of |error| of a case and of the clean runs, over the same rounds and nodes, ns.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Per round, with the fault and without.
    pub per_round_ns: [f64; 2],
    /// Smoothed, with the fault and without.
    pub smoothed_ns: [f64; 2],
}

/// The faults to survive, on the edges that the seed gives. Needs nine nodes and `start_s` a good way into the run.
pub fn cases(edges: &[Edge], start_s: f64) -> Vec<FaultCase> {
    let node = NodeId(5);
    let edge = edges.iter().copied().find(|edge| edge.src == node).unwrap_or(Edge { src: node, dst: NodeId(6) });
    let maker = Maker { node, edge, start_s };
    [maker.clocks(), maker.liars(), maker.paths(), maker.presence()].concat()
}

/// Makes cases about one node or one of its edges.
struct Maker {
    node: NodeId,
    edge: Edge,
    start_s: f64,
}

impl Maker {
    fn clocks(&self) -> Vec<FaultCase> {
        let step = |node, seen| self.once(FaultKind::Step { node, step_ns: 10_000_000, seen });
        let reboot = FaultKind::Reboot { node: self.node, offset_ns: -300_000_000 };
        let reference = |name, seen| FaultCase {
            expected: vec![(vec![Kind::Step], Culprit::Node(REFERENCE), self.start_s)],
            sick: vec![REFERENCE],
            ..self.of_node(name, step(REFERENCE, seen), &[])
        };
        let returns = (vec![Kind::Restart], Culprit::Node(self.node), self.start_s + 10.0);
        let mut long = self.of_node("reboot, 10 s", self.during(10.0, reboot.clone()), &[Kind::Silent]);
        long.expected.push(returns);
        vec![
            self.of_node("step 10 ms", step(self.node, true), &[Kind::Step]),
            self.of_node("step 10 ms, unseen", step(self.node, false), &[Kind::Step]),
            reference("reference steps 10 ms", true),
            reference("reference steps, unseen", false),
            long,
            self.of_node("reboot, 1 s", self.during(1.0, reboot), &[Kind::Restart, Kind::Step]),
        ]
    }

    fn liars(&self) -> Vec<FaultCase> {
        let lie = |constant_ns, ramp_ns_per_s, per_peer, stamps| {
            self.once(FaultKind::Liar { node: self.node, constant_ns, ramp_ns_per_s, per_peer, stamps })
        };
        // Told alike to all with all stamps, a lie is what a wrong clock would say.
        vec![
            self.of_node("liar, 10 µs to all", lie(10e3, 0.0, false, LieStamps::All), &[Kind::Step, Kind::Liar]),
            self.of_node("liar, 200 ns/s to all", lie(0.0, 200.0, false, LieStamps::All), &[Kind::RateJump]),
            self.of_node("liar, 10 µs per peer", lie(10e3, 0.0, true, LieStamps::All), &[Kind::Liar]),
            self.of_node("liar, 200 ns/s per peer", lie(0.0, 200.0, true, LieStamps::All), &[Kind::Liar]),
            self.of_node("liar, receive stamps 10 µs", lie(10e3, 0.0, false, LieStamps::Receive), &[Kind::Liar]),
        ]
    }

    fn paths(&self) -> Vec<FaultCase> {
        let Edge { src, dst } = self.edge;
        let longer = FaultKind::Asymmetry { src, dst, extra_ns: 5_000 };
        let route = FaultKind::RouteChange { src, dst, extra_ns: 20_000, both_ways: true };
        let asymmetric = &[Kind::AsymmetricEdge];
        let always = Fault { start_s: 0.0, end_s: None, what: longer.clone() };
        let mut from_start = self.of_edge("asymmetric edge from the start", vec![always], asymmetric);
        from_start.expected[0].2 = 0.0;
        vec![
            self.of_edge("asymmetric edge, 5 µs", self.once(longer), asymmetric),
            from_start,
            self.of_edge("route change, 20 µs", self.once(route), &[Kind::RouteChange]),
        ]
    }

    fn presence(&self) -> Vec<FaultCase> {
        let loss = |from, to, both_ways| self.once(FaultKind::Loss { probability: 0.3, from, to, both_ways });
        let far: Vec<NodeId> = (4..8).map(NodeId).collect();
        let group = Culprit::Nodes(far.clone());
        let Edge { src, dst } = self.edge;
        let mut one_way = self.of_edge("loss 30 %, one way", loss(Some(src), Some(dst), false), &[Kind::OneWayLoss]);
        one_way.sick_edge = None;
        let late = self.once(FaultKind::LateJoin { node: self.node });
        let mut late = self.of_node("late join", late, &[Kind::JoinedLate]);
        late.expected.push((vec![Kind::Silent], Culprit::Node(self.node), 0.0));
        let all = (vec![Kind::Loss], Culprit::Everyone, self.start_s);
        let healthy = |case| FaultCase { sick: Vec::new(), ..case };
        let cut = self.during(20.0, FaultKind::Partition { nodes: far.clone() });
        vec![
            healthy(FaultCase { expected: vec![all], ..self.of_node("loss 30 %, all", loss(None, None, false), &[]) }),
            healthy(self.of_node("loss 30 %, one node", loss(Some(self.node), None, true), &[Kind::Loss])),
            one_way,
            FaultCase {
                expected: vec![
                    (vec![Kind::Partition], group.clone(), self.start_s),
                    (vec![Kind::Rejoined], group, self.start_s + 20.0),
                ],
                sick: far,
                ..self.of_node("partition, 20 s", cut, &[])
            },
            late,
        ]
    }

    fn once(&self, what: FaultKind) -> Vec<Fault> {
        vec![Fault { start_s: self.start_s, end_s: None, what }]
    }

    fn during(&self, seconds: f64, what: FaultKind) -> Vec<Fault> {
        vec![Fault { start_s: self.start_s, end_s: Some(self.start_s + seconds), what }]
    }

    fn of_node(&self, name: &'static str, faults: Vec<Fault>, kinds: &[Kind]) -> FaultCase {
        let expected = vec![(kinds.to_vec(), Culprit::Node(self.node), self.start_s)];
        FaultCase { name, faults, expected, sick: vec![self.node], sick_edge: None }
    }

    fn of_edge(&self, name: &'static str, faults: Vec<Fault>, kinds: &[Kind]) -> FaultCase {
        let expected = vec![(kinds.to_vec(), Culprit::Edge(self.edge), self.start_s)];
        FaultCase { name, faults, expected, sick: Vec::new(), sick_edge: Some(self.edge) }
    }
}

/// A run without faults: whatever is named is a false alarm.
pub fn clean() -> FaultCase {
    FaultCase { name: "clean", faults: Vec::new(), expected: Vec::new(), sick: Vec::new(), sick_edge: None }
}

/// Runs a case on `base`, whose own faults it replaces.
///
/// # Errors
/// When the scenario contradicts itself.
pub fn run_case(base: &Scenario, case: &FaultCase, seed: u64) -> Result<CaseOutcome, Error> {
    let scenario = Scenario { faults: case.faults.clone(), ..base.clone() };
    let window_s = scenario.window_s;
    let (duration, window) = (scenario.duration(), scenario.window());
    let simulation = Simulation::new(scenario, seed)?;
    let mut rounds = Rounds::new(&simulation, duration, window)?;
    let mut course = Course::default();
    let mut outcome = CaseOutcome::default();
    let mut kept: Vec<Round> = Vec::new();
    while let Some(round) = rounds.step() {
        outcome.named.extend(course.take(&round, rounds.running()).faults);
        kept.push(round);
    }
    let spoilt = course.spoilt();
    let healthy = |node: NodeId| !case.sick.contains(&node);
    outcome.rounds = kept.len();
    outcome.healthy_spoilt = spoilt.iter().filter(|(_, node)| healthy(*node)).count();
    let fine = |edge: &Edge| Some(*edge) != case.sick_edge && healthy(edge.src) && healthy(edge.dst);
    outcome.healthy_left_out = course.all_left_out().iter().filter(|(_, edge)| fine(edge)).copied().collect();
    outcome.judge_names(case, window_s);
    let usable = |round: usize, node: NodeId| !spoilt.contains(&(round, node)) && !spoilt.contains(&(round, REFERENCE));
    let judged: Vec<NodeId> =
        (1..base.nodes).map(NodeId).filter(|node| healthy(*node) || case.sick == [REFERENCE]).collect();
    let truth =
        |node: NodeId, round: &Round| rounds.running().offset_ns(node, round.reference_midpoint.of_reference_node());
    let smoothed = smooth(base.nodes as usize, &kept, &course);
    for round in &kept {
        for node in judged.iter().copied().filter(|node| usable(round.index, *node)) {
            let key = (round.index, node);
            let estimate = &round.solution.nodes[node.index()];
            if estimate.reachable {
                outcome.errors.insert(key, estimate.offset_ns - truth(node, round));
            }
            if let Some(at) = smoothed.at(node, round.reference_midpoint).filter(|_| estimate.reachable) {
                outcome.smoothed.insert(key, at.offset_ns - truth(node, round));
            }
        }
    }
    Ok(outcome)
}

fn smooth(nodes: usize, rounds: &[Round], course: &Course) -> smoother::RunSolution {
    let left_out: Vec<Vec<Edge>> = rounds.iter().map(|round| course.left_out(round.index)).collect();
    let given: Vec<smoother::Round<'_>> = rounds
        .iter()
        .zip(&left_out)
        .map(|(round, out)| smoother::Round::solved(round.reference_midpoint, &round.edges, &round.solution, out))
        .collect();
    smoother::smooth_run(nodes, &given, course.breaks(), &SmootherOptions::default())
}

impl CaseOutcome {
    /// What was expected and when it came, and what nobody expected.
    fn judge_names(&mut self, case: &FaultCase, window_s: f64) {
        let mut expected_ones = vec![false; self.named.len()];
        for (kinds, culprit, from_s) in &case.expected {
            let begin = (from_s / window_s) as u64;
            let at = self
                .named
                .iter()
                .position(|named| kinds.contains(&named.kind) && named.culprit == *culprit && named.round.0 >= begin);
            self.delays.push(at.map(|at| self.named[at].round.0 - begin));
            at.into_iter().for_each(|at| expected_ones[at] = true);
        }
        // A node that is expected to be named may be named twice; a return is no alarm.
        let known = |named: &Named| case.expected.iter().any(|(_, culprit, _)| *culprit == named.culprit);
        let others = self.named.iter().zip(&expected_ones).filter(|(named, expected)| !**expected && !known(named));
        self.others = others.map(|(named, _)| named.clone()).collect();
    }
}

/// Percentiles over pooled seeds: pairs of a case's run and the clean run of the same seed.
pub fn compare(pairs: &[(CaseOutcome, CaseOutcome)]) -> Comparison {
    let of = |which: fn(&CaseOutcome) -> &BTreeMap<(usize, NodeId), f64>| {
        let mut both: [Vec<f64>; 2] = Default::default();
        for (faulty, clean) in pairs {
            for (key, error) in which(faulty) {
                if let Some(without) = which(clean).get(key) {
                    both[0].push(error.abs());
                    both[1].push(without.abs());
                }
            }
        }
        both.map(p99)
    };
    Comparison { per_round_ns: of(|outcome| &outcome.errors), smoothed_ns: of(|outcome| &outcome.smoothed) }
}

fn p99(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let at = (values.len() * 99).div_ceil(100).saturating_sub(1);
    values.get(at).copied().unwrap_or(0.0)
}
