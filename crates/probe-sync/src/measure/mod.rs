//! What a node does between two rounds: probe, answer, watch its clock, take snapshot pairs, count.
//!
//! Place in the flow: after `join` has told who takes part; `round` cuts windows out of it.
//! What it does not do: fit, gather, solve.

pub(crate) mod account;
pub(crate) mod counters;
mod driver;
pub(crate) mod prober;
pub mod snapshots;
pub(crate) mod stop;
pub(crate) mod virtual_clocks;
