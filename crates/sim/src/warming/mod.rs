//! Clocks that warm up: the errors of the lines of a whole run, and whether their stated
//! uncertainty covers them.
//!
//! This second generator was written from a description and not from the first one (`world`), so
//! that code tuned on the first is evaluated on different data. It has 16 nodes with 6 neighbours
//! each and 20 coded pairs per second on each edge for 64 s; `clock` generates the clocks,
//! `network` the paths and stamps. Its exchanges pass through the code of a live run: windows of 4
//! s, `fit_window`, one `Solver`; then [`Smoothed`] with all exchanges, with lines every 250 ms.
//! [`run`] compares these lines with the truth, from the first to the last, and [`WarmingOutcome`]
//! pools seeds.
//!
//! It does not drive endpoints (`world` does), lose packets or let clocks step, so every reported
//! step is false and every missing line is a gap.

mod cell;
mod clock;
mod draw;
mod judge;
mod network;

use probe_sync_estimate::round::{SolverOptions, WindowCut};
use probe_sync_estimate::run::Smoothed;
use probe_sync_lines::Hosts;

use self::cell::REFERENCE;
pub use self::cell::WarmingCell;
use self::draw::{Size, World};
pub use self::judge::{WarmingOutcome, WarmingRun};
use crate::cuts;

/// Runs one seed of a cell and judges it.
pub fn run(cell: &WarmingCell, seed: u64) -> WarmingRun {
    run_for(cell, seed, &SIZE)
}

/// A run of that size.
fn run_for(cell: &WarmingCell, seed: u64, size: &Size) -> WarmingRun {
    let world = World::new(cell, seed, size);
    let nodes = size.nodes;
    let windows = (size.seconds / size.window_s) as usize;
    // These hosts have no asymmetry of their own, and the estimator is told so.
    let hosts = Hosts::one(nodes as usize);
    let options = SolverOptions { hosts, ..SolverOptions::new(nodes as usize, REFERENCE) };
    let cuts: Vec<Vec<WindowCut>> = (0..windows).map(|window| world.cuts(window)).collect();
    let rounds = cuts::solve(&options, &cuts);
    let recorded = cuts::recorded(&cuts);
    let live = rounds.iter().map(|round| round.data.all_nodes.clone()).collect::<Vec<_>>();
    let smoothed = Smoothed::new(&options, rounds, Some(&recorded));
    judge::judge(&world, &smoothed, &live)
}

const SIZE: Size = Size { nodes: 16, neighbors: 6, seconds: 64.0, window_s: 4.0 };

#[cfg(test)]
mod tests;
