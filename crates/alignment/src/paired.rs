//! The pairing of operations across the traces of a command, computed with the best available
//! clocks.

use crate::calibrated::{Calibrated, as_is};
use crate::collectives::{MapTime, MatchOptions, Pairing};
use crate::nodes::{self, NodeTrace};

/// Pairs the operations of all traces that belong to one process each.
pub fn pairing(calibrated: &Calibrated) -> Pairing {
    let single = || calibrated.traces.iter().filter(|of| !of.trace.facts.merged);
    // Without a map all may be on one clock already.
    let sigma_ns = if calibrated.common_clock().is_ok() { 0.0 } else { f64::INFINITY };
    let traces: Vec<&NodeTrace> = single().map(|of| &of.trace).collect();
    let maps: Vec<Option<Box<MapTime<'_>>>> =
        single().map(|of| Some(of.look().unwrap_or_else(|| as_is(sigma_ns)))).collect();
    nodes::with_collectives(&traces, &maps, |nodes| Pairing::new(nodes, MatchOptions::default(), true))
}
