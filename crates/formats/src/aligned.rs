//! The names under which an aligned trace states its clock.
//!
//! Writers and rewriters put them into their outputs; readers find them there, so that nothing is
//! aligned twice.

/// Metadata key of the clock that a trace's times are on; readers recognise an aligned trace by it.
pub const ALIGNED_TO: &str = "probe_sync_timeline";
/// Metadata key of the uncertainty of the times on that clock, ns.
pub const ALIGNED_SIGMA: &str = "probe_sync_sigma_ns";
/// Prefix of the name of an aligned trace's plane; the clock follows.
pub const ALIGNED_PLANE: &str = "probe_sync aligned to ";
