//! One round, from a window's exchanges to the solved round. A live run, `solve` and every
//! simulation share this code.
//!
//! Flow: a node's probing is cut into a [`WindowCut`] → [`fit_window`] makes a
//! [`NodeWindow`](probe_sync_lines::NodeWindow) of it → the windows of all nodes go to the master,
//! whose [`Solver`] runs graph → watch → smoother → clamp → [`SolvedRound`], which holds the
//! [`Round`](probe_sync_lines::Round) that is broadcast, with the master's
//! [`Decision`](probe_sync_lines::Decision).

mod cut;
mod directions;
mod solver;
mod step;
mod timeline;

pub use cut::{EdgeCut, WindowCut, fit_window};
pub use directions::{directions, unfitted};
pub use solver::{SolvedRound, Solver, SolverOptions};
pub use timeline::Timeline;

#[cfg(test)]
mod tests;
