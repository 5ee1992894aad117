//! One round, from a window's exchanges to the solved round. A live run, `solve` and every
//! simulation share this code.
//!
//! Flow: a node's probing is cut into a [`WindowCut`] → [`fit_window`] makes
//! [`NodeWindow`](probe_sync_lines::NodeWindow) of it → all nodes' data go to the master,
//! whose [`Solver`] runs graph → watch → smoother → clamp → [`SolvedRound`], which holds the
//! [`Round`] that is broadcast, with the master's [`Decision`].

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
