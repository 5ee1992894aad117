//! The state a rank keeps between rounds when each connection lasts for one round.

use super::connection::Connection;
use super::joining::Way;

/// What a rank keeps between rounds.
#[derive(Debug, Default)]
pub(super) struct PerRound {
    /// How it reaches the root; None at the root.
    pub way: Option<Way>,
    /// Words that go before the next frame.
    pub unsaid: Vec<Vec<u8>>,
    /// At the root: words of ranks that have hung up.
    pub heard: Vec<(usize, Vec<u8>)>,
    /// At the root: connections of those who have not hung up yet.
    pub parting: Vec<Connection>,
    /// At the root: ranks may come for a round.
    pub open: bool,
}
