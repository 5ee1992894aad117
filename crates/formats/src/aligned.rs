//! The names under which an aligned trace states its clock.
//!
//! Writers and rewriters put them into their outputs; readers find them there, so that nothing is
//! aligned twice.

/// Under this name a trace's metadata says which clock its times are on; whoever reads it as a
/// trace finds there that it is aligned.
pub const ALIGNED_TO: &str = "probe_sync_timeline";
/// The key under which it states how well its times are known on that clock, ns.
pub const ALIGNED_SIGMA: &str = "probe_sync_sigma_ns";
/// What the name of an aligned trace's plane begins with; the clock follows.
pub const ALIGNED_PLANE: &str = "probe_sync aligned to ";
