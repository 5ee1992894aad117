//! The optional part of a group that continues when ranks are lost.

use crate::{Error, Rank};

/// A group that can continue without lost ranks. Without this part, the first lost or late rank
/// ends the group.
pub trait FaultTolerance {
    /// At the root: from now on a lost or late rank does not end an operation. It has left
    /// ([`Self::attendance`]), its frames are empty, and the others continue. Where ranks may
    /// return ([`Admission`](crate::Admission)), a returning process first receives `notice`;
    /// calling this again changes the notice.
    ///
    /// # Errors
    /// Returns an error if the system refuses the necessary resources.
    fn continue_without_lost(&mut self, notice: Vec<u8>) -> Result<(), Error>;

    /// At the root: returns which ranks have left and which ask to return since the previous call.
    fn attendance(&mut self) -> Attendance;
}

/// Ranks that have left a group that continues without them, and ranks that ask to return; at the
/// root.
#[derive(Debug, Default)]
pub struct Attendance {
    /// Ranks that have left since the last query, with the error that showed it.
    pub left: Vec<(Rank, Error)>,
    /// Ranks that ask to return, each with its statement. Each waits for
    /// [`Admission::admit`](crate::Admission::admit); empty without that part.
    pub back: Vec<(Rank, Vec<u8>)>,
}
