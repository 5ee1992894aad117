//! The round loop's part in finding who is late: between operations it tells and hears, and after a
//! round the root's metrics tell.
//!
//! While an operation waits the backend does the same (`side`).

use std::sync::Arc;

use probe_sync_collective::SideWork;
use probe_sync_lines::Round;

use super::Rounds;
use super::messages::Word;
use crate::Error;

impl Rounds<'_> {
    /// Reports this rank's arrivals to the root, or, at the root, detects late ranks.
    pub(super) fn look_for_late(&mut self) -> Result<(), Error> {
        let reports = self.side.late().take(self.control.late());
        reports.into_iter().try_for_each(|report| self.exchange.say(&Word::from(report)))
    }

    /// Makes the backend do the same while an operation waits.
    pub(super) fn look_for_late_while_waiting(&mut self) {
        let side: Arc<dyn SideWork> = self.side.clone();
        self.exchange.work_while_waiting(side);
    }

    /// At the root: updates the ranks' clocks from a round, and the metrics of late ranks.
    pub(super) fn follow_late(&mut self, round: &Round) {
        let Some(keeper) = &mut self.keeper else { return };
        let mut late = self.side.late();
        late.follow(round);
        if let Some(totals) = late.totals() {
            keeper.late(&totals);
        }
    }
}
