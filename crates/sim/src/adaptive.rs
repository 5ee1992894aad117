//! Adaptive probing over a simulated run: what it sends, and how wrong the offsets are meanwhile.
//!
//! Place in the flow: beside `accuracy`, above [`Rounds`]. Every round goes through the stages of a live master: fits, graph, the
//! live smoother ([`Online`]), [`Pacer`]; the pacer's decision is applied to all nodes before the next window. The same seed without
//! a pacer is the fixed pace to compare with.
//!
//! The graph's assumption about asymmetry common to all edges of a node is left out: the simulated paths have none.
//!
//! What it does not do: lose rounds, name faults (`fault_cases`), print.

use std::collections::BTreeSet;

use probe_sync_estimate::pacing::{Pacer, PacingOptions, PacingRound, PacingStep};
use probe_sync_estimate::smoother::{self, Online, SmoothedOffset};
use probe_sync_estimate::window::NodeEstimate;
use probe_sync_time::{Duration, Edge, NodeId};

use crate::runs::rounds::{REFERENCE, Round, Rounds};
use crate::scenario::Scenario;
use crate::error::Error;
use crate::runs::simulation::Simulation;

/// What became of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdaptiveRun {
    /// Packets sent by all nodes.
    pub packets: u64,
    /// |error| of every node but the reference in every round at the window's middle, of the window alone, ns.
    pub window_errors_ns: Vec<f64>,
    /// The same of the live smoother.
    pub live_errors_ns: Vec<f64>,
    /// Half-width of the live smoother's 95 % intervals, in the same order, ns.
    pub half_widths_ns: Vec<f64>,
    /// Nodes and rounds without an estimate.
    pub missing: usize,
    /// What was decided after each round; empty at a fixed pace.
    pub steps: Vec<PacingStep>,
}

/// Simulates `duration` in windows of `window`: at the scenario's gap, or paced by `pacing`, whose cadence then is the first
/// window's gap whatever the scenario says. None when `stopped` said so.
///
/// # Errors
/// When the scenario cannot be run, or the window does not fit.
pub fn run(
    scenario: &Scenario,
    seed: u64,
    [duration, window]: [Duration; 2],
    pacing: Option<PacingOptions>,
    stopped: &dyn Fn() -> bool,
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
    rounds.graph.common_asymmetry = 0.0;
    let mut master = Master {
        nodes: count,
        online: Online::new(nodes, REFERENCE),
        pacer: pacing.map(|options| Pacer::new(nodes, simulation.edges(), options)),
        edges: simulation.edges(),
        extra: Vec::new(),
        run: AdaptiveRun::default(),
    };
    while let Some(round) = rounds.step() {
        if stopped() {
            return Ok(None);
        }
        master.take(&round, &mut rounds)?;
    }
    master.run.packets = rounds.running().packets_sent();
    Ok(Some(master.run))
}

/// What a live master keeps from round to round.
struct Master<'a> {
    nodes: u32,
    online: Online,
    pacer: Option<Pacer>,
    /// The run's own.
    edges: &'a [Edge],
    extra: Vec<Edge>,
    run: AdaptiveRun,
}

impl Master<'_> {
    fn take(&mut self, round: &Round, rounds: &mut Rounds<'_>) -> Result<(), Error> {
        let disturbed: Vec<NodeId> = round.clock_events().map(|(node, _)| node).collect();
        let view = smoother::Round::solved(round.reference_midpoint, &round.edges, &round.solution, &[]);
        let live = self.online.observe(&view, &disturbed);
        self.judge(round, &live, rounds);
        let Some(pacer) = &mut self.pacer else { return Ok(()) };
        let nodes = overlaid(&round.solution.nodes, &live);
        let asymmetry: Vec<f64> = live.iter().map(|of| of.as_ref().map_or(0.0, |of| of.asymmetry_sigma_ns)).collect();
        let step = pacer.next(&PacingRound {
            nodes: &nodes,
            reference: REFERENCE,
            edges: &round.edges,
            excluded: &round.solution.excluded,
            asymmetry_sd_ns: self.online.asymmetry_sd_ns(),
            assumed_sd_ns: 0.0,
            asymmetry_sigma_ns: Some(&asymmetry),
            disturbed: &disturbed,
        });
        self.apply(&step, rounds)?;
        self.run.steps.push(step);
        Ok(())
    }

    fn judge(&mut self, round: &Round, live: &[Option<SmoothedOffset>], rounds: &Rounds<'_>) {
        let at = round.reference_midpoint.of_reference_node();
        for (node, live) in round.solution.nodes.iter().zip(live).filter(|(node, _)| node.node_id != REFERENCE) {
            let truth = rounds.running().offset_ns(node.node_id, at);
            match live.as_ref().filter(|_| node.reachable) {
                Some(live) => {
                    self.run.window_errors_ns.push((node.offset_ns - truth).abs());
                    self.run.live_errors_ns.push((live.offset_ns - truth).abs());
                    self.run.half_widths_ns.push(live.half_width_95_ns);
                }
                None => self.run.missing += 1,
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

/// The round's nodes as the live smoother has them.
fn overlaid(nodes: &[NodeEstimate], live: &[Option<SmoothedOffset>]) -> Vec<NodeEstimate> {
    let overlay = |(node, live): (&NodeEstimate, &Option<SmoothedOffset>)| match live {
        Some(live) => NodeEstimate { sigma_ns: live.sigma_ns, ..node.clone() },
        None => node.clone(),
    };
    nodes.iter().zip(live).map(overlay).collect()
}
