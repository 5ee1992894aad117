//! Losses and returns of ranks, and the succession of the master.
//!
//! A backend may lack the parts for these; each method here decides what that means for the run.

use std::sync::Arc;
use std::time::Duration as StdDuration;

use probe_sync_collective::{self as collective, Attendance, Deadline, Rank};
use probe_sync_time::Duration;

use super::Exchange;
use crate::join::Notice;
use crate::{Error, wire};

impl Exchange<'_> {
    /// At the root: makes the run continue without lost ranks from now on; returning ranks receive
    /// this notice. Without fault tolerance in the backend, the first lost rank still ends the run.
    ///
    /// # Errors
    /// Returns an error if the system refuses the necessary resources.
    pub fn continue_without_lost(&mut self, notice: &Notice) -> Result<(), Error> {
        let Some(fault_tolerance) = self.collective.fault_tolerance() else { return Ok(()) };
        Ok(fault_tolerance.continue_without_lost(wire::encode(notice))?)
    }

    /// At the root: returns which ranks have left, and which ask to return; none without fault
    /// tolerance.
    pub fn attendance(&mut self) -> Attendance {
        self.collective.fault_tolerance().map(|fault_tolerance| fault_tolerance.attendance()).unwrap_or_default()
    }

    /// At the root: admits a rank again, or states why not. Returns true if it is admitted. Without
    /// admission no rank asks.
    pub fn admit(&mut self, rank: Rank, verdict: Result<(), String>) -> bool {
        self.collective.admission().is_some_and(|admission| admission.admit(rank, verdict))
    }

    /// At the root: admits no rank from now on. No effect without admission.
    pub fn end_admission(&mut self) {
        if let Some(admission) = self.collective.admission() {
            admission.end_admission();
        }
    }

    /// At the root, which has `here` of `before` ranks left: if these are fewer than half, checks
    /// whether the others have formed a group without it, which takes admission.
    ///
    /// # Errors
    /// [`Error::Superseded`] if they have.
    pub fn check_not_superseded(&mut self, before: u32, here: u32) -> Result<(), Error> {
        let admission = self.collective.admission().filter(|_| 2 * here < before);
        let other = admission.and_then(|admission| admission.superseding_root());
        other.map_or(Ok(()), |rank| Err(Error::Superseded { rank, here, before }))
    }

    /// After this error: returns true if the master is alive and only this rank's connection broke.
    /// Returns false for a silent master, or without admission.
    pub fn master_is_there(&mut self, error: &Error) -> bool {
        matches!(error, Error::Collective(collective::Error::Lost { .. }))
            && self.collective.admission().is_some_and(|admission| admission.root_is_alive())
    }

    /// On a rank whose connection to the master broke: reconnects to the current master, as a
    /// returning rank. Returns false if the backend does not let ranks return.
    ///
    /// # Errors
    /// Returns an error if it is not admitted.
    pub fn reconnect(&mut self, deadline: &Deadline) -> Result<bool, Error> {
        let Some(admission) = self.collective.admission() else { return Ok(false) };
        admission.reconnect(deadline)?;
        Ok(true)
    }

    /// Returns true if the master has disconnected, so that this rank need not wait for the end of
    /// its window to notice. Without succession the next operation notices.
    pub fn master_has_gone(&mut self) -> bool {
        !self.successors.is_empty()
            && !self.at_root()
            && self.collective.succession().is_some_and(|succession| succession.root_has_disconnected())
    }

    /// Agrees with the ranks that took part last (`there`, for each rank) on the new master after
    /// one was lost.
    ///
    /// # Errors
    /// Returns an error if too few ranks find each other, or without succession.
    pub fn succeed(&mut self, there: &[bool], window: Duration) -> Result<Rank, Error> {
        // Ranks that the master told of the round still notice its loss a window after those that
        // it did not.
        let late_by = 2 * window.to_std() + NOTICED_APART;
        let deadline = Deadline::new(4 * late_by, Some(Arc::clone(&self.stop)));
        if let Some(succession) = self.collective.succession() {
            return Ok(succession.succeed(there, late_by, &deadline)?);
        }
        let reason = format!("{} groups support only one root", self.collective.backend());
        Err(collective::Error::Backend { operation: "succession", reason }.into())
    }
}

/// Largest difference between the times at which ranks notice the loss of the master, apart from
/// their windows.
const NOTICED_APART: StdDuration = StdDuration::from_secs(5);
