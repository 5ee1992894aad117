//! From raw profiler traces to traces on one clock, and the proof that causality holds on it.
//!
//! Flow: [`formats`] read what a trace knows of its clock and its collectives ([`model`]) → `clocks` make a node's time map
//! out of offsets and snapshot pairs → `align` rewrites a trace through the map → `merge` puts all nodes into one file →
//! `collectives` proves or disproves happens-before. What it does not do: measure (crate `probe-sync`), draw.
#![forbid(unsafe_code)]

pub mod align;
pub mod clocks;
pub mod collectives;
pub mod error;
pub mod formats;
pub mod merge;
pub mod model;
pub mod nodes;

pub use error::Error;
