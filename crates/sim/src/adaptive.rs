//! Adaptive probing over a simulated run: the packets it sends and the offset errors meanwhile.
//!
//! As in a live run, every round is solved and the [`Pacer`] decides ([`Pacer::after`]); its
//! decision applies to all nodes before the next window. The same seed without a pacer gives the
//! fixed pace for comparison.
//!
//! The graph's assumption about asymmetry common to all edges of a node is left out: the simulated
//! paths have none.
//!
//! It does not lose rounds or evaluate fault detection; `fault_cases` covers faults.

use std::collections::BTreeSet;

use probe_sync_estimate::pacing::{Pacer, PacingOptions, PacingStep};
use probe_sync_estimate::statistics::SIGMAS_95;
use probe_sync_time::{Duration, Edge, NodeId};

use crate::error::Error;
use crate::runs::rounds::{Rounds, SimulatedRound};
use crate::runs::simulation::Simulation;
use crate::scenario::Scenario;

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdaptiveRun {
    /// Packets sent by all nodes.
    pub packets: u64,
    /// |error| of every node but the reference in every round at the window's middle, of the window alone, ns.
    pub window_errors_ns: Vec<f64>,
    /// The same for the live smoother.
    pub live_errors_ns: Vec<f64>,
    /// Half-widths of the live smoother's 95 % intervals, in the same order, ns.
    pub half_widths_ns: Vec<f64>,
    /// Nodes and rounds without an estimate.
    pub missing: usize,
    /// Decisions after each round; empty at a fixed pace.
    pub steps: Vec<PacingStep>,
}

/// Simulates `duration` in windows of `window`: at the scenario's gap, or paced by `pacing`, whose
/// cadence is then the gap of the first window whatever the scenario says. `goes_on` is told the
/// completed share, 0 to 1, and returns whether to continue; the result is `None` if it returned
/// false.
///
/// # Errors
/// Returns an error if the scenario cannot be run, or if the window does not fit.
pub fn run(
    scenario: &Scenario,
    seed: u64,
    [duration, window]: [Duration; 2],
    pacing: Option<PacingOptions>,
    goes_on: &dyn Fn(f64) -> bool,
) -> Result<Option<AdaptiveRun>, Error> {
    let mut scenario = scenario.clone();
    if let Some(options) = &pacing {
        scenario.pairs_per_second = None;
        scenario.gap = Duration::from_ns(options.cadence_ns.max(options.budget.cadence_min_ns()));
    }
    let simulation = Simulation::new(scenario, seed)?;
    let count = simulation.scenario().nodes;
    let nodes = count as usize;
    let mut rounds = Rounds::new(&simulation, duration, window)?;
    let mut master = Master {
        nodes: count,
        pacer: pacing.map(|options| Pacer::new(nodes, simulation.edges(), options)),
        edges: simulation.edges(),
        extra: Vec::new(),
        run: AdaptiveRun::default(),
    };
    while let Some(round) = rounds.step_watched(goes_on) {
        master.take(&round, &mut rounds)?;
    }
    if !goes_on(1.0) {
        return Ok(None);
    }
    master.run.packets = rounds.running().packets_sent();
    Ok(Some(master.run))
}

/// State kept from round to round.
struct Master<'a> {
    nodes: u32,
    pacer: Option<Pacer>,
    /// The edges of the run.
    edges: &'a [Edge],
    extra: Vec<Edge>,
    run: AdaptiveRun,
}

impl Master<'_> {
    fn take(&mut self, round: &SimulatedRound, rounds: &mut Rounds<'_>) -> Result<(), Error> {
        self.judge(round, rounds);
        let Some(pacer) = &mut self.pacer else { return Ok(()) };
        let step = pacer.after(&round.solved);
        self.apply(&step, rounds)?;
        self.run.steps.push(step);
        Ok(())
    }

    fn judge(&mut self, round: &SimulatedRound, rounds: &Rounds<'_>) {
        let both = round.solved.alone.nodes.iter().zip(&round.solved.data.all_nodes);
        for (alone, live) in both.filter(|(node, _)| node.node_id != rounds.reference()) {
            let truth = rounds.running().offset_ns(live.node_id, round.midpoint());
            if live.reachable {
                self.run.window_errors_ns.push((alone.offset_ns - truth).abs());
                self.run.live_errors_ns.push((live.offset_ns - truth).abs());
                self.run.half_widths_ns.push(SIGMAS_95 * live.sigma_ns);
            } else {
                self.run.missing += 1;
            }
        }
    }

    fn apply(&mut self, step: &PacingStep, rounds: &mut Rounds<'_>) -> Result<(), Error> {
        let running = rounds.running_mut();
        for node in 0..self.nodes {
            running.set_gap(NodeId(node), Duration::from_ns(step.cadence_ns));
        }
        if self.extra != step.extra_edges {
            let changed = self.extra.iter().chain(&step.extra_edges).map(|edge| edge.src);
            for node in changed.collect::<BTreeSet<NodeId>>() {
                let all = self.edges.iter().chain(&step.extra_edges).filter(|edge| edge.src == node);
                let peers: Vec<NodeId> = all.map(|edge| edge.dst).collect();
                running.set_out_edges(node, &peers)?;
            }
            self.extra.clone_from(&step.extra_edges);
        }
        Ok(())
    }
}
