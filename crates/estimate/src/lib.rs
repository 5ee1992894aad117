//! From exchanges to offsets with bounds, as pure functions.
//!
//! What comes in and goes out are `lines` of a run's files. Flow: exchanges of one edge and window →
//! purity weights → [`edge_fit`] (a line with covariance and hard bounds) → [`graph`] (all edges of
//! a round → offset, drift, interval per node) → [`faults`] (this round against those before: what
//! is wrong, and whose estimate must not be used) → [`smoother`] (all rounds together → offset and
//! error of every node at any time). [`round`] joins these stages for one round, [`run`] for all
//! rounds of a recorded run → [`regions`] (offsets of two levels of runs on one timeline) →
//! [`series`] (all rounds → a map of times per node). Nothing here reads a clock, opens a file,
//! spawns a thread or logs.
#![forbid(unsafe_code)]

mod error;
mod kalman;
mod motion;

pub mod edge_fit;
pub mod faults;
pub mod graph;
pub mod pacing;
mod purity;
pub mod regions;
pub mod round;
pub mod run;
pub mod series;
pub mod smoother;
mod stamp_errors;
pub mod statistics;
mod votes;

pub use error::Error;
