//! The optional part of a group that survives the loss of its root.

use std::net::SocketAddr;
use std::time::Duration;

use crate::{Deadline, Error, Rank};

/// A group in which another rank can take over as root. Without this part, the group ends with its
/// root.
pub trait Succession {
    /// Before the group continues without lost ranks ([`FaultTolerance`](crate::FaultTolerance)):
    /// returns the addresses at which the others reach this rank if it takes over as root. None on
    /// the root itself, which never does, and on any rank if the backend needs none.
    ///
    /// # Errors
    /// Returns an error if the system refuses the necessary resources.
    fn stand_by(&mut self) -> Result<Vec<SocketAddr>, Error>;

    /// After that, equally on all ranks: sets the ranks that take over as root, in this order, with
    /// their addresses.
    fn set_successors(&mut self, successors: &[(Rank, Vec<SocketAddr>)]);

    /// Returns true if the root has disconnected, as far as can be seen without waiting. A root
    /// that only hangs is noticed by the next operation.
    fn root_has_disconnected(&mut self) -> bool;

    /// After the root was lost and an operation failed for that reason: agrees with the remaining
    /// ranks on the new root. More than half of those that took part last (`there`, for each rank,
    /// including the lost root) must find each other, and no others count: two groups cannot both
    /// be more than half of the same ranks. Once more than half are found, it waits at most
    /// `late_by` for the rest. Afterwards the ranks start over: the failed operation is repeated
    /// with the new root.
    ///
    /// # Errors
    /// [`Error::Minority`] if too few find each other.
    fn succeed(&mut self, there: &[bool], late_by: Duration, deadline: &Deadline) -> Result<Rank, Error>;
}
