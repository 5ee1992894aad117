//! Exchanges as a run recorded them, by round and edge.
//!
//! Place in the flow: handed to [`super::Smoothed`] beside the solved rounds. What it does not do: own them.

use probe_sync_time::{Edge, Exchange, RoundId};

/// The exchanges of one edge in one round.
#[derive(Copy, Clone, Debug)]
pub struct Recorded<'a> {
    /// The round in whose window they finished.
    pub round_id: RoundId,
    /// The edge.
    pub edge: Edge,
    /// The exchanges.
    pub exchanges: &'a [Exchange],
}
