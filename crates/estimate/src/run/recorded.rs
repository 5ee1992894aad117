//! The exchanges of a recorded run, by round and edge.

use probe_sync_time::{Edge, Exchange, RoundId};

/// The exchanges of one edge in one round.
#[derive(Copy, Clone, Debug)]
pub struct Recorded<'a> {
    /// Round in whose window they finished.
    pub round_id: RoundId,
    /// The edge.
    pub edge: Edge,
    /// The exchanges.
    pub exchanges: &'a [Exchange],
}
