//! A node's activity between two rounds: probing, answering, watching its clock, taking snapshot
//! pairs and counting.

pub(crate) mod account;
pub(crate) mod counters;
mod driver;
pub(crate) mod prober;
pub mod snapshots;
pub(crate) mod stop;
pub(crate) mod virtual_clocks;
