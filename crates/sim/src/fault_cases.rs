//! The faults that a run must survive, each simulated end to end and compared with the same run
//! without the fault.
//!
//! A [`FaultCase`] adds its faults to a scenario. [`run_case`] solves every round as in a live run,
//! smooths the run as `solve` does, and notes which faults were named and when, which healthy nodes
//! or edges were left out, and the healthy nodes' errors. [`compare`] sets the result against the
//! clean run of the same seed.
//!
//! Faults begin in the middle of a window, where they hurt most. What counts as healthy: every node
//! that the case does not list as sick; nodes that are cut off count again two rounds after they
//! are back. Errors are compared where both runs have an estimate.

use std::collections::{BTreeMap, BTreeSet};

use probe_sync_estimate::round::SolvedRound;
use probe_sync_estimate::run::Smoothed;
use probe_sync_lines::{Culprit, Fault as Named, FaultKind as Kind, NodeEstimate};
use probe_sync_time::{Edge, NodeId, RoundId};

use crate::accuracy::quantile;
use crate::error::Error;
use crate::runs::rounds::Rounds;
use crate::runs::running::Running;
use crate::runs::simulation::Simulation;
use crate::scenario::Scenario;
use crate::scenario::faults::{Fault, FaultKind, WrongStamps};

/// A fault and how it must be named.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultCase {
    /// Short name, for a table.
    pub name: &'static str,
    /// The simulated faults.
    pub faults: Vec<Fault>,
    /// What must be named: any of these kinds, the culprit, and the time from which it can be seen,
    /// s since the start.
    pub expected: Vec<(Vec<Kind>, Culprit, f64)>,
    /// Nodes whose estimates are not judged.
    pub sick: Vec<NodeId>,
    /// An edge between healthy nodes that may be excluded.
    pub sick_edge: Option<Edge>,
}

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseOutcome {
    /// Everything that was named.
    pub named: Vec<Named>,
    /// Rounds from the start of each expected fault until it was named; `None` if it was not named.
    pub delays: Vec<Option<u64>>,
    /// Faults named that were not expected.
    pub others: Vec<Named>,
    /// Excluded edges between healthy nodes, with the round.
    pub healthy_left_out: BTreeSet<(RoundId, Edge)>,
    /// Rounds of healthy nodes whose estimates were declared invalid.
    pub healthy_invalid: usize,
    /// Errors of usable live estimates of healthy nodes by round and node, ns.
    pub live: Errors,
    /// The same with the smoother over the whole run.
    pub smoothed: Errors,
    /// Rounds of the run.
    pub rounds: usize,
}

/// Errors by round and node, ns.
pub type Errors = BTreeMap<(RoundId, NodeId), f64>;

/// 99th percentiles of |error| of a case and of the clean runs, over the same rounds and nodes, ns.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Live, with and without the fault.
    pub live_ns: [f64; 2],
    /// Smoothed, with and without the fault.
    pub smoothed_ns: [f64; 2],
}

/// The faults to survive, on the edges of the seed. Needs nine nodes and a `start_s` well after the
/// start of the run.
pub fn cases(base: &Scenario, edges: &[Edge], start_s: f64) -> Vec<FaultCase> {
    let after_reference = |places: u32| NodeId((base.reference.0 + places) % base.nodes.max(1));
    let node = after_reference(5);
    let edge = edges.iter().copied().find(|edge| edge.src == node);
    let edge = edge.unwrap_or(Edge { src: node, dst: after_reference(6) });
    let mut far: Vec<NodeId> = (4..8).map(after_reference).collect();
    far.sort_unstable();
    let maker = Maker { reference: base.reference, node, edge, far, start_s };
    [maker.clocks(), maker.falsetickers(), maker.paths(), maker.losses()].concat()
}

/// Creates cases about one node or one of its edges.
struct Maker {
    reference: NodeId,
    node: NodeId,
    /// The nodes that a partition cuts off.
    far: Vec<NodeId>,
    edge: Edge,
    start_s: f64,
}

impl Maker {
    fn clocks(&self) -> Vec<FaultCase> {
        let step = |node, seen| self.once(FaultKind::Step { node, step_ns: 10_000_000, seen });
        let reboot = FaultKind::Reboot { node: self.node, offset_ns: -300_000_000 };
        let reference = |name, seen| FaultCase {
            expected: vec![(vec![Kind::Step], Culprit::Node(self.reference), self.start_s)],
            sick: vec![self.reference],
            ..self.of_node(name, step(self.reference, seen), &[])
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

    fn falsetickers(&self) -> Vec<FaultCase> {
        let wrong = |constant_ns, ramp_ns_per_s, per_peer, stamps| {
            self.once(FaultKind::Falseticker { node: self.node, constant_ns, ramp_ns_per_s, per_peer, stamps })
        };
        let inconsistent = &[Kind::Falseticker];
        // Where all stamps are wrong alike for all peers it cannot be told from a wrong clock.
        vec![
            self.of_node(
                "falseticker, 10 µs to all",
                wrong(10e3, 0.0, false, WrongStamps::All),
                &[Kind::Step, Kind::Falseticker],
            ),
            self.of_node("falseticker, 200 ns/s to all", wrong(0.0, 200.0, false, WrongStamps::All), &[Kind::RateJump]),
            self.of_node("falseticker, 10 µs per peer", wrong(10e3, 0.0, true, WrongStamps::All), inconsistent),
            self.of_node("falseticker, 200 ns/s per peer", wrong(0.0, 200.0, true, WrongStamps::All), inconsistent),
            self.of_node(
                "falseticker, receive stamps 10 µs",
                wrong(10e3, 0.0, false, WrongStamps::Receive),
                inconsistent,
            ),
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

    fn losses(&self) -> Vec<FaultCase> {
        let loss = |from, to, both_ways| self.once(FaultKind::Loss { probability: 0.3, from, to, both_ways });
        let far = self.far.clone();
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

/// A run without faults: anything named is a false alarm.
pub fn clean() -> FaultCase {
    FaultCase { name: "clean", faults: Vec::new(), expected: Vec::new(), sick: Vec::new(), sick_edge: None }
}

/// Runs a case on `base`, whose own faults it replaces.
///
/// # Errors
/// Returns an error if the scenario contradicts itself.
pub fn run_case(base: &Scenario, case: &FaultCase, seed: u64) -> Result<CaseOutcome, Error> {
    let scenario = Scenario { faults: case.faults.clone(), ..base.clone() };
    let window_s = scenario.window_s;
    let (duration, window) = (scenario.duration(), scenario.window());
    let simulation = Simulation::new(scenario, seed)?;
    let mut rounds = Rounds::new(&simulation, duration, window)?;
    let reference = rounds.reference();
    let mut solved: Vec<SolvedRound> = Vec::new();
    while let Some(round) = rounds.step() {
        solved.push(round.solved);
    }
    let healthy = |node: &NodeId| !case.sick.contains(node);
    let mut outcome = CaseOutcome { rounds: solved.len(), ..CaseOutcome::default() };
    let fine = |edge: &Edge| Some(*edge) != case.sick_edge && healthy(&edge.src) && healthy(&edge.dst);
    for verdict in solved.iter().map(|round| &round.data.watch) {
        outcome.named.extend_from_slice(&verdict.faults);
        outcome.healthy_invalid += verdict.invalid.iter().filter(|node| healthy(node)).count();
        outcome.healthy_left_out.extend(verdict.left_out.iter().filter(|(_, edge)| fine(edge)).copied());
    }
    outcome.judge_names(case, window_s);
    let judged = |node: &NodeId| *node != reference && (healthy(node) || case.sick == [reference]);
    let of_run = |solved: &[SolvedRound]| errors(solved, &judged, rounds.running());
    outcome.live = of_run(&solved);
    outcome.smoothed = of_run(Smoothed::new(rounds.options(), solved, None).rounds());
    Ok(outcome)
}

/// Errors of the usable estimates of the judged nodes.
fn errors(rounds: &[SolvedRound], judged: &dyn Fn(&NodeId) -> bool, running: &Running<'_>) -> Errors {
    let mut errors = Errors::new();
    for data in rounds.iter().map(|round| &round.data) {
        let valid = |node: NodeId| !data.watch.invalid.contains(&node) && !data.watch.invalid.contains(&data.reference);
        let usable = |node: &&NodeEstimate| node.reachable && judged(&node.node_id) && valid(node.node_id);
        for node in data.all_nodes.iter().filter(usable) {
            let truth_ns = running.offset_ns(node.node_id, data.midpoint());
            errors.insert((data.round_id, node.node_id), node.offset_ns - truth_ns);
        }
    }
    errors
}

impl CaseOutcome {
    /// Compares the named faults with the expected ones: delays, and unexpected names.
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
    let of = |which: fn(&CaseOutcome) -> &Errors| {
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
    Comparison { live_ns: of(|outcome| &outcome.live), smoothed_ns: of(|outcome| &outcome.smoothed) }
}

fn p99(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    quantile(&values, 0.99)
}
