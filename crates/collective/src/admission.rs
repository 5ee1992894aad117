//! The optional part of a group whose root accepts connections while the group runs: of ranks that
//! join late or return, and of ranks that send files.

use std::fmt;
use std::sync::Arc;

use probe_sync_files::OwnFolder;

use crate::{Deadline, Error, Rank};

/// A group that ranks may join or rejoin after it has begun. Without this part, the ranks that met
/// are all that ever take part, and a broken connection is a lost rank.
pub trait Admission {
    /// At the root, before the group continues without lost ranks
    /// ([`FaultTolerance`](crate::FaultTolerance)): returns the ranks without which the group has
    /// begun. Their frames are empty; they may join later, as returning ranks do
    /// ([`Attendance::back`](crate::Attendance::back)).
    fn missing(&mut self) -> Vec<Rank>;

    /// At the root, before the group continues without lost ranks: from then on until
    /// [`Self::end_admission`] ranks may send files ([`FileSender`](crate::FileSender)),
    /// independently of all operations.
    fn receive_files(&mut self, places: Arc<dyn FilePlaces>);

    /// At the root: lets a rank that asks to return
    /// ([`Attendance::back`](crate::Attendance::back)) take part from the next operation on, or
    /// states why not. Returns true if it takes part.
    fn admit(&mut self, rank: Rank, verdict: Result<(), String>) -> bool;

    /// At the root: from now on no rank may return; the group still continues without lost ranks.
    /// The address for returning ranks is free afterwards.
    fn end_admission(&mut self);

    /// At the root, after many ranks were lost at once: checks whether they have formed a group
    /// around another root, and returns that.
    fn superseding_root(&mut self) -> Option<Rank>;

    /// If this rank was started in the place of one that had left: returns the root's notice, once.
    /// The rank takes part in no operation before [`Self::rejoin`].
    fn notice(&mut self) -> Option<Vec<u8>>;

    /// Sends this rank's statement to the root, and returns when this rank takes part again: from
    /// the next broadcast on.
    ///
    /// # Errors
    /// [`Error::Dismissed`] if the root refuses it, [`Error::Late`] if the root does not answer.
    fn rejoin(&mut self, statement: &[u8], deadline: &Deadline) -> Result<(), Error>;

    /// On another rank than the root, after its connection broke: returns true if the root is still
    /// alive. Takes two seconds at most.
    fn root_is_alive(&mut self) -> bool;

    /// On another rank than the root, after an operation has failed: closes its connection and
    /// connects again to the current root, with growing pauses. This rank is then a returning one
    /// ([`Self::notice`]).
    ///
    /// # Errors
    /// [`Error::Lost`] if no rank of the group is left, or the deadline is over; the text lists the
    /// answers.
    fn reconnect(&mut self, deadline: &Deadline) -> Result<(), Error>;
}

/// Chooses where the root stores files sent by ranks.
pub trait FilePlaces: fmt::Debug + Send + Sync {
    /// Returns the folder, and the name in it, for a rank's file of this name, which is relative
    /// and stays within. Missing folders are created. `None` if the root has the file already; it
    /// is then received and dropped.
    ///
    /// # Errors
    /// States why the file is not accepted; the rank receives the reason.
    fn place(&self, rank: Rank, name: &str) -> Result<Option<(OwnFolder, String)>, String>;
}
