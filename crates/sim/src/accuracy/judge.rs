//! Runs one seed and evaluates all methods of a plan on the same packets.

use super::joining;
use super::plan::{Method, Plan, SeedRun};
use super::record::Record;
use crate::error::Error;
use crate::runs::rounds::{HandOver, Rounds};
use crate::runs::simulation::Simulation;
use crate::scenario::Scenario;

/// Simulates one seed and judges all methods of the plan. `goes_on` is told the completed share of
/// the time, 0 to 1, and returns whether to continue; the result is `None` if it returned false.
/// `hand_over` determines whether a window is solved in parallel with the simulation of the next;
/// it changes no result.
///
/// # Errors
/// Returns an error if the scenario cannot be run.
pub fn judge(
    scenario: &Scenario,
    seed: u64,
    plan: &Plan,
    goes_on: &dyn Fn(f64) -> bool,
    hand_over: HandOver,
) -> Result<Option<SeedRun>, Error> {
    let simulation = Simulation::new(scenario.clone(), seed)?;
    let mut rounds = Rounds::new(&simulation, plan.duration, plan.window)?;
    let mut record = Record::new(plan, simulation.edges(), &rounds);
    let simulated = if plan.methods.contains(&Method::Ours) { SIMULATED_OF_ALL_PACKETS } else { SIMULATED };
    // The last window is solved when all is simulated.
    let windows = plan.duration.as_ns_f64() / plan.window.as_ns_f64();
    let watched = |share| goes_on(simulated * share * windows / (windows + SOLVED));
    rounds.all(&watched, hand_over, &mut |round| record.take(round));
    if !goes_on(simulated) {
        return Ok(None);
    }
    let running = rounds.running();
    // Judging is not broken off: what it answers here is for nobody.
    let mut told = |share| _ = goes_on(simulated + (1.0 - simulated) * share);
    let (methods, between) = record.judged(running, &mut told);
    let floor_ns = floor_ns(&simulation);
    let (windows, lost) = record.into_windows_and_lost();
    Ok(Some(SeedRun {
        seed,
        methods,
        between,
        floor_ns,
        packets: running.packets_sent(),
        edges: simulation.edges().len(),
        windows,
        lost,
    }))
}

/// |error| of every node but the reference when each edge is known but for its path's asymmetry, ns.
fn floor_ns(simulation: &Simulation) -> Vec<f64> {
    let ends: Vec<(usize, usize)> = simulation.edges().iter().map(|e| (e.src.index(), e.dst.index())).collect();
    let biases: Vec<f64> = simulation.edges().iter().map(|edge| simulation.asymmetry_ns(*edge)).collect();
    let reference = simulation.scenario().reference;
    let errors = joining::potentials(simulation.scenario().nodes as usize, reference, &ends, &biases);
    let others = errors.into_iter().enumerate().filter(|(node, _)| *node != reference.index());
    others.map(|(_, error)| error.abs()).collect()
}

/// Time to solve a window relative to the time to simulate it (512 nodes: 5.2 of 16.0 s).
const SOLVED: f64 = 0.3;

/// Share of the time spent on packets; the rest is judging. Judging all packets at once takes long
/// (64 nodes, 16 s: 2.5 of 8.0 s).
const SIMULATED_OF_ALL_PACKETS: f64 = 0.67;
const SIMULATED: f64 = 0.98;
