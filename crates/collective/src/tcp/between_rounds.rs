//! The state a rank keeps between rounds when each connection lasts for one round.

use super::connection::Connection;
use super::joining::Way;

/// State of a rank between rounds.
#[derive(Debug, Default)]
pub(super) struct PerRound {
    /// How it reaches the root; `None` at the root.
    pub way: Option<Way>,
    /// Messages to send before the next frame.
    pub unsaid: Vec<Vec<u8>>,
    /// At the root: messages of ranks that have disconnected.
    pub heard: Vec<(usize, Vec<u8>)>,
    /// At the root: connections of ranks that have not disconnected yet.
    pub parting: Vec<Connection>,
    /// At the root: true if ranks may connect for a round.
    pub open: bool,
}
