//! Checks for values that cannot have been measured, with the reason.
//!
//! Every line of a recording is checked before it is used.

use probe_sync_lines::NodeWindow;
use probe_sync_time::{System, Timestamp};

use crate::store::{ProbeLine, ProbeWindowLine};

/// Returns why an exchange cannot have been measured, if so.
pub(super) fn implausible(probe: &ProbeLine) -> Option<&'static str> {
    let t = &probe.t;
    if probe.src == probe.dst {
        Some("source and destination are the same node")
    } else if probe.src.0.max(probe.dst.0) >= MAX_NODES {
        Some(NODE_TOO_LARGE)
    } else if !t.iter().all(|stamp| TIMES_NS.contains(stamp)) {
        Some(TIME_TOO_FAR)
    } else if t[2] < t[0] || t[6] < t[4] {
        Some("the second packet of a pair was sent before the first")
    } else {
        None
    }
}

pub(super) fn implausible_close(close: &ProbeWindowLine) -> Option<&'static str> {
    let peers = close.lost.iter().map(|(dst, _)| *dst).chain(close.packets.iter().map(|packets| packets.peer));
    let peers = peers.chain(close.stamp_errors_ns.iter().map(|(dst, _)| *dst));
    let largest = peers.map(|peer| peer.0).fold(close.src.0, u32::max);
    if largest >= MAX_NODES {
        Some(NODE_TOO_LARGE)
    } else if close.stamp_errors_ns.iter().any(|(_, errors)| !possible_errors(errors)) {
        Some(NO_STAMP_ERROR)
    } else {
        implausible_span(close.window_start, close.window_end)
    }
}

pub(super) fn implausible_window(window: &NodeWindow) -> Option<&'static str> {
    let probed = window.edges.iter().map(|edge| edge.dst_node_id).chain(window.unfitted.iter().map(|(dst, _)| *dst));
    let peers = probed.chain(window.packets.iter().map(|packets| packets.peer));
    let largest = peers.map(|peer| peer.0).fold(window.node_id.0, u32::max);
    if largest >= MAX_NODES {
        Some(NODE_TOO_LARGE)
    } else if window.edges.iter().any(|edge| edge.src_node_id != window.node_id) {
        Some("an edge of another node")
    } else if window.edges.iter().any(|edge| edge.src_node_id == edge.dst_node_id) {
        Some("source and destination are the same node")
    } else if window.edges.iter().any(|edge| !TIMES_NS.contains(&edge.midpoint.as_ns())) {
        Some(TIME_TOO_FAR)
    } else if window.edges.iter().any(|edge| !possible_errors(&edge.stamp_errors_ns)) {
        Some(NO_STAMP_ERROR)
    } else {
        implausible_span(window.window_start, window.window_end)
    }
}

/// Returns true if these bounds of stamp errors are possible.
fn possible_errors(stamp_errors_ns: &[f64; 2]) -> bool {
    stamp_errors_ns.iter().all(|error| (0.0..=1e9).contains(error))
}

/// Returns why a window's span is implausible, if so. A clock that is set back ends its window
/// before it started, which is not a mistake.
pub(super) fn implausible_span(start: Timestamp<System>, end: Timestamp<System>) -> Option<&'static str> {
    let near = TIMES_NS.contains(&start.as_ns()) && TIMES_NS.contains(&end.as_ns());
    (!near).then_some(TIME_TOO_FAR)
}

pub(super) const MAX_NODES: u32 = 1 << 16;
const NO_STAMP_ERROR: &str = "a timestamp error that is negative or more than a second";
pub(super) const NODE_TOO_LARGE: &str = "a node number above 65535";

/// Range of times whose differences fit an i64.
pub(super) const TIMES_NS: std::ops::RangeInclusive<i64> = -(1 << 62)..=(1 << 62);
pub(super) const TIME_TOO_FAR: &str = "a time more than 146 years from 1970";
