//! Checks, cell by cell, whether 95 % intervals contain 95 % of the true values, and measures what
//! `solve` gains from windows of its own.
//!
//! Like [`warming`](crate::warming), it has its own generator, the third, with its own clocks,
//! hosts, paths and stamps; nothing was tuned on the seeds that its tables use. Its exchanges pass
//! through the code of a live run: `fit_window` and one `Solver` for the live estimates, then
//! [`Smoothed`] with all exchanges, as in `probe_sync solve`, and without them, as at the end of a
//! run.
//!
//! It does not drive endpoints, lose packets or let clocks step.

mod cell;
mod clock;
mod judge;
mod world;

use probe_sync_estimate::round::{SolverOptions, WindowCut};
use probe_sync_estimate::run::Smoothed;
use probe_sync_lines::Hosts;

pub use self::cell::{Cell, ClockKind, HostAsymmetry, Queue, Shape};
use self::judge::REFERENCE;
pub use self::judge::{Judged, Tally};
use self::world::World;
use crate::cuts;

/// Runs one seed of a cell and judges it.
pub fn run(cell: &Cell, seed: u64) -> Judged {
    let world = World::new(cell, seed);
    let options = options(cell);
    let cuts: Vec<Vec<WindowCut>> = (0..cell.windows).map(|window| world.cuts(window)).collect();
    let rounds = cuts::solve(&options, &cuts);
    let recorded = cuts::recorded(&cuts);
    let fits = Smoothed::new(&options, rounds.clone(), None);
    let solved = Smoothed::new(&options, rounds.clone(), Some(&recorded));
    judge::judge(&world, &rounds, [&fits, &solved])
}

/// Runs one seed of a cell and judges the map of every node this many seconds after the last line
/// of its run, as `align --extrapolate` uses it.
pub fn run_beyond<const N: usize>(cell: &Cell, seed: u64, seconds: [f64; N]) -> [Tally; N] {
    let world = World::new(cell, seed);
    let options = options(cell);
    let cuts: Vec<Vec<WindowCut>> = (0..cell.windows).map(|window| world.cuts(window)).collect();
    let smoothed = Smoothed::new(&options, cuts::solve(&options, &cuts), None);
    judge::beyond(&world, cell.nodes, &smoothed, seconds)
}

fn options(cell: &Cell) -> SolverOptions {
    let nodes = cell.nodes as usize;
    let hosts = if cell.host == HostAsymmetry::None { Hosts::one(nodes) } else { Hosts::default() };
    SolverOptions { hosts, ..SolverOptions::new(nodes, REFERENCE) }
}

#[cfg(test)]
mod tests;
