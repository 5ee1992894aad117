//! Runs of the simulated world: prepared, driven window by window, solved round by round.
//!
//! `simulation` prepares a run from a scenario and a seed; `running` drives it and cuts windows;
//! `rounds` sends each window through the stages of a live round; `outcome` is what a finished run
//! gives.

pub(crate) mod outcome;
pub(crate) mod rounds;
pub(crate) mod running;
pub(crate) mod simulation;
