//! What tells the ranks of one run from those of another that use the same port.
//!
//! Place in the flow: the launcher gives every rank the same key; `rendezvous` refuses connections with another.
//! What it does not do: keep a secret. A key is sent as it is.

/// Distinguishes the runs that might meet on one port; equal on all ranks of a run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct JobKey(pub u64);
