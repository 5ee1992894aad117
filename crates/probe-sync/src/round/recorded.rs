//! The round's data in a recording (`--record`).

use super::Rounds;
use crate::report::parts::Numbers;

impl Rounds<'_> {
    /// Returns the numbers of the round that begins.
    pub(super) fn numbers(&self) -> Numbers {
        let root = self.mode.has_master().then(|| self.exchange.root() as u64);
        Numbers { round: self.round_id.0, root, ranks: self.joined.ranks as u64 }
    }
}
