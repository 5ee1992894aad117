//! Gather and broadcast between the ranks of a run, behind one trait.
//!
//! The round loop of `probe-sync` talks to its peers only through [`Collective`];
//! `probe_sync::wire` defines the meaning of the bytes. The backends are in-process (tests), TCP
//! and a launcher's own messages (here) and MPI (crate `mpi`). Over TCP, ranks can also send files
//! to the root ([`FileSender`]). It does not measure time offsets, serialise values or retry
//! operations.
#![forbid(unsafe_code)]

mod error;
mod frames;
mod in_process;
mod labels;
mod led;
mod messages;
#[cfg(feature = "suite")]
pub mod proxy;
mod random;
mod stores;
#[cfg(any(test, feature = "suite"))]
pub mod suite;
mod tcp;
mod wait;

pub use error::Error;
pub use frames::Frames;
pub use in_process::InProcess;
pub use led::Led;
pub use messages::{ByMessages, Carrier, Messages, Threads, by_messages};
pub use random::random_bytes;
pub use stores::{FileStore, Store, TorchStore, join_by, publish, store};
#[cfg(feature = "suite")]
#[doc(hidden)]
pub use tcp::parse_peer_bytes;
pub use tcp::{EarlierRun, FanOut, FileSender, JobKey, Meeting, Tcp, TcpOptions, UniqueId, bind, bind_everywhere};
pub use wait::Wait;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use probe_sync_files::OwnFolder;

/// A rank of the run, `0..size`.
pub type Rank = usize;

/// Most ranks; a wrong number must not cause a large allocation.
pub const MAX_RANKS: usize = 1 << 16;

/// The time at which a wait fails, and what can end it sooner.
#[derive(Clone, Debug)]
pub struct Deadline {
    /// Instant at which the wait fails.
    pub(crate) at: Instant,
    /// If set (a signal arrived), the wait fails after `grace` instead.
    pub(crate) interrupt: Option<Arc<AtomicBool>>,
    /// How long an interrupted wait continues.
    pub grace: Duration,
}

impl Deadline {
    /// Creates a deadline at most `limit` from now.
    pub fn new(limit: Duration, interrupt: Option<Arc<AtomicBool>>) -> Self {
        Self { at: Instant::now() + limit, interrupt, grace: GRACE }
    }

    /// Returns a deadline that is later than this one by `more`, also when interrupted. A rank that
    /// waits for the root waits longer than the root waits for the others: the root knows which
    /// rank is missing, so its error must come first.
    #[must_use]
    pub fn extended(&self, more: Duration) -> Self {
        Self { at: self.at + more, grace: self.grace + more, interrupt: self.interrupt.clone() }
    }

    /// Returns a deadline at most `limit` from now, and no later than this one.
    #[must_use]
    pub(crate) fn within(&self, limit: Duration) -> Self {
        Self { at: self.at.min(Instant::now() + limit), ..self.clone() }
    }

    /// Returns a deadline after half the remaining time.
    #[must_use]
    pub fn halved(&self) -> Self {
        let left = self.at.saturating_duration_since(Instant::now());
        Self { at: Instant::now() + left / 2, ..self.clone() }
    }

    /// Returns true once the interrupt was raised.
    pub(crate) fn interrupted(&self) -> bool {
        self.interrupt.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

/// Ranks that have left a group that continues without them, and ranks that ask to return; at the
/// root.
#[derive(Debug, Default)]
pub struct Attendance {
    /// Ranks that have left since the last query, with the error that showed it.
    pub left: Vec<(Rank, Error)>,
    /// Ranks that ask to return, each with its statement. Each waits for [`Collective::admit`].
    pub back: Vec<(Rank, Vec<u8>)>,
}

/// Traffic of a backend since it was created, with its number of retries.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages sent by this rank.
    pub messages_sent: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Bytes sent by this rank, including the backend's own headers.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Retried connections and messages.
    pub retries: u64,
}

impl Traffic {
    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            messages_sent: self.messages_sent + other.messages_sent,
            messages_received: self.messages_received + other.messages_received,
            bytes_sent: self.bytes_sent + other.bytes_sent,
            bytes_received: self.bytes_received + other.bytes_received,
            retries: self.retries + other.retries,
        }
    }
}

/// A message outside of the operations: the sender, and the content ([`Collective::call`]).
pub type Call = (Rank, Vec<u8>);

/// Work that a rank does while an operation waits for others.
pub trait SideWork: fmt::Debug + Send + Sync {
    /// Processes received messages ([`Collective::call`]) and returns those to send, without
    /// waiting.
    fn turn(&self, heard: Vec<Call>) -> Vec<Vec<u8>>;
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

/// Gather and broadcast between the ranks of a run. Every rank calls the same operations in the
/// same order.
///
/// A waiting rank sleeps; it never spins on a core that training needs for longer than 50 µs.
pub trait Collective {
    /// Returns this process's rank.
    fn rank(&self) -> Rank;

    /// Returns the number of ranks.
    fn size(&self) -> usize;

    /// Returns the rank that gathers and decides: [`ROOT`] at first, or another one that was
    /// requested ([`Led`]), and later the rank that took over from it ([`Self::succeed`]).
    fn root(&self) -> Rank {
        ROOT
    }

    /// Returns the backend's display name: `"mpi"`, `"tcp"`, `"in-process"`.
    fn backend(&self) -> &'static str;

    /// Returns true if the launcher signals all ranks when it signals one. mpirun does, on Ctrl-C
    /// or when a rank has died, and kills a second later; an interrupted wait must then be short.
    /// Otherwise it must outlast the others' windows.
    fn signals_reach_all(&self) -> bool {
        false
    }

    /// Gathers every participant's `payload` at the root. `participants` is indexed by rank, equal
    /// on all ranks, and includes the root; the others contribute nothing and return at once. At
    /// the root `frames` has one frame per rank afterwards; elsewhere it is empty.
    ///
    /// # Errors
    /// [`Error::Late`] names every rank whose data did not arrive in time.
    fn gather(
        &mut self,
        participants: &[bool],
        payload: &[u8],
        frames: &mut Frames,
        deadline: &Deadline,
    ) -> Result<(), Error>;

    /// Broadcasts the root's `buffer` to every rank, replacing the content of theirs.
    ///
    /// # Errors
    /// [`Error::Late`] if the root's data did not arrive in time.
    fn broadcast(&mut self, buffer: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error>;

    /// Sends each rank its own frame of the root's `frames`, one per rank; it replaces the content
    /// of `own`. The other ranks' `frames` are ignored. By default this is a broadcast of all
    /// frames, of which each rank keeps its own.
    ///
    /// # Errors
    /// Errors of [`Collective::broadcast`].
    fn scatter(&mut self, frames: &Frames, own: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        check_frames((self.rank(), self.root()), self.size(), frames)?;
        let (mut encoded, mut all) = (Vec::new(), Frames::default());
        if self.rank() == self.root() {
            frames.encode(&mut encoded);
        }
        self.broadcast(&mut encoded, deadline)?;
        if !all.decode(&encoded) || all.len() != self.size() {
            let what = format!("{} bytes that are not {} frames", encoded.len(), self.size());
            return Err(Error::Protocol { operation: "scatter", rank: self.root(), what });
        }
        own.clear();
        own.extend_from_slice(all.frame(self.rank()));
        Ok(())
    }

    /// Sends `word`, a message of at most [`WORD_MAX`] bytes, outside of the operations: the root
    /// to all ranks, any other rank to the root. It never waits for the receivers, which get it
    /// from [`Self::calls`] in the order of sending. A rank lost meanwhile is noticed in the next
    /// operation.
    ///
    /// # Errors
    /// Returns an error if the backend has failed, or the message is too long.
    fn call(&mut self, word: &[u8]) -> Result<(), Error>;

    /// Removes and returns the messages received since the previous call. Never waits. It also
    /// drives the backend, so a rank that waits for something else calls it a few times per second.
    ///
    /// # Errors
    /// Returns an error if the backend has failed.
    fn calls(&mut self) -> Result<Vec<Call>, Error>;

    /// Makes an operation that waits for others do `work` about ten times per second, so that
    /// messages are sent and received even if a rank hangs. Backends without support ignore it;
    /// their messages arrive when the operation is over. It must be called again after another rank
    /// has taken over as root.
    fn work_while_waiting(&mut self, _work: Arc<dyn SideWork>) {}

    /// Returns the traffic so far.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    /// Gathers every rank's `payload` at every rank (time-based rounds, Variant A). By default this
    /// is a gather and a broadcast.
    ///
    /// # Errors
    /// Errors of [`Collective::gather`] and [`Collective::broadcast`].
    fn allgather(&mut self, payload: &[u8], frames: &mut Frames, deadline: &Deadline) -> Result<(), Error> {
        self.gather(&vec![true; self.size()], payload, frames, deadline)?;
        let mut encoded = Vec::new();
        if self.rank() == self.root() {
            frames.encode(&mut encoded);
        }
        self.broadcast(&mut encoded, deadline)?;
        if !frames.decode(&encoded) || frames.len() != self.size() {
            let what = format!("{} bytes that are not {} frames", encoded.len(), self.size());
            return Err(Error::Protocol { operation: "allgather", rank: self.root(), what });
        }
        Ok(())
    }

    /// At the root, before [`Self::go_on_without_lost`]: returns the ranks without which the group
    /// has begun. Their frames are empty; they may join later, as returning ranks do
    /// ([`Attendance::back`]).
    fn missing(&self) -> Vec<Rank> {
        Vec::new()
    }

    /// At the root, if the backend supports it: from now on a lost or late rank does not end an
    /// operation. It has left ([`Self::attendance`]), its frames are empty, and the others
    /// continue. A process started in its place may return, and first receives `notice`. Calling
    /// this again changes the notice.
    ///
    /// # Errors
    /// Returns an error if the system refuses the necessary resources.
    fn go_on_without_lost(&mut self, _notice: Vec<u8>) -> Result<(), Error> {
        Ok(())
    }

    /// At the root, if the backend supports it, before [`Self::go_on_without_lost`]: from then on
    /// until [`Self::let_nobody_back`] ranks may send files ([`FileSender`]), independently of all
    /// operations.
    fn receive_files(&mut self, _places: Arc<dyn FilePlaces>) {}

    /// At the root: from now on no rank may return; the group still continues without lost ranks.
    /// The address for returning ranks is free afterwards.
    fn let_nobody_back(&mut self) {}

    /// At the root: returns which ranks have left and which ask to return since the previous call.
    fn attendance(&mut self) -> Attendance {
        Attendance::default()
    }

    /// At the root: lets a rank of [`Attendance::back`] take part from the next operation on, or
    /// states why not. Returns true if it takes part.
    fn admit(&mut self, _rank: Rank, _verdict: Result<(), String>) -> bool {
        false
    }

    /// If this rank was started in the place of one that had left: returns the root's notice. The
    /// rank takes part in no operation before [`Self::come_back`].
    fn notice(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// Sends this rank's statement to the root, and returns when this rank takes part again: from
    /// the next broadcast on.
    ///
    /// # Errors
    /// [`Error::Dismissed`] if the root refuses it, [`Error::Late`] if the root does not answer.
    fn come_back(&mut self, _statement: &[u8], _deadline: &Deadline) -> Result<(), Error> {
        Ok(())
    }

    /// Before [`Self::go_on_without_lost`]: returns the addresses at which the others reach this
    /// rank if it takes over as root; none on the root itself, which never does. `None` if the
    /// backend does not support another root.
    ///
    /// # Errors
    /// Returns an error if the system refuses the necessary resources.
    fn stand_by(&mut self) -> Result<Option<Vec<SocketAddr>>, Error> {
        Ok(None)
    }

    /// After that, equally on all ranks: sets the ranks that take over as root, in this order, with
    /// their addresses.
    fn line_up(&mut self, _successors: &[(Rank, Vec<SocketAddr>)]) {}

    /// After the root was lost and an operation failed for that reason: agrees with the remaining
    /// ranks on the new root. More than half of those that took part last (`there`, for each rank,
    /// including the lost root) must find each other, and no others count: two groups cannot both
    /// be more than half of the same ranks. Once more than half are found, it waits at most
    /// `late_by` for the rest. Afterwards the ranks start over: the failed operation is repeated
    /// with the new root.
    ///
    /// # Errors
    /// [`Error::Minority`] if too few find each other, and if the backend does not support another
    /// root.
    fn succeed(&mut self, _there: &[bool], _late_by: Duration, _deadline: &Deadline) -> Result<Rank, Error> {
        Err(Error::Backend {
            operation: "succession",
            reason: format!("{} groups support only one root", self.backend()),
        })
    }

    /// Returns true if the root has disconnected, as far as can be seen without waiting. A root
    /// that only hangs is noticed by the next operation.
    fn root_has_gone(&mut self) -> bool {
        false
    }

    /// On another rank than the root, after its connection broke: returns true if the root is still
    /// alive. Takes two seconds at most.
    fn root_is_there(&mut self) -> bool {
        false
    }

    /// On another rank than the root, after an operation has failed: closes its connection and
    /// connects again to the current root, with growing pauses. This rank is then a returning one
    /// ([`Self::notice`]). Returns false if the backend does not support it.
    ///
    /// # Errors
    /// [`Error::Lost`] if no rank of the group is left, or the deadline is over; the text lists the
    /// answers.
    fn reconnect(&mut self, _deadline: &Deadline) -> Result<bool, Error> {
        Ok(false)
    }

    /// At the root, after many ranks were lost at once: checks whether they have formed a group
    /// around another root, and returns that.
    fn superseded_by(&mut self) -> Option<Rank> {
        None
    }

    /// Ends the whole job at once, on every rank, after an error that this rank cannot report to
    /// the others. Does not return if the backend can kill the job (`MPI_Abort`); otherwise closes
    /// the connections, so that the others fail promptly, and returns.
    fn abort(&mut self, reason: &str);
}

/// Checks the requirements of every backend's gather on its list of participants.
///
/// # Errors
/// [`Error::Protocol`] with `rank`, which passed the list.
pub fn check_participants((rank, root): (Rank, Rank), size: usize, participants: &[bool]) -> Result<(), Error> {
    let what = if participants.len() != size {
        format!("a list of {} participants in a group of {size}", participants.len())
    } else if !participants[root] {
        format!("a list of participants without the root, rank {root}")
    } else {
        return Ok(());
    };
    Err(Error::Protocol { operation: "gather", rank, what })
}

/// Checks the requirements of every backend's scatter on the root's frames.
///
/// # Errors
/// [`Error::Protocol`] with `rank`, which passed the frames.
pub fn check_frames((rank, root): (Rank, Rank), size: usize, frames: &Frames) -> Result<(), Error> {
    if rank != root || frames.len() == size {
        return Ok(());
    }
    let what = format!("{} frames to a group of {size}", frames.len());
    Err(Error::Protocol { operation: "scatter", rank, what })
}

/// Checks the length of a message outside of the operations.
///
/// # Errors
/// [`Error::Protocol`] with `rank`, the sender.
pub fn check_word(rank: Rank, word: &[u8]) -> Result<(), Error> {
    if word.len() <= WORD_MAX {
        return Ok(());
    }
    let what = format!("a word of {} bytes; at most {WORD_MAX} are allowed", word.len());
    Err(Error::Protocol { operation: "call", rank, what })
}

/// Longest message outside of the operations, bytes.
pub const WORD_MAX: usize = 4096;

/// The rank that gathers and decides, unless another was requested.
pub const ROOT: Rank = 0;

/// Default time for which an interrupted wait continues: peers that were interrupted too need a
/// moment to contribute, but mpirun kills a second after its request to end.
pub(crate) const GRACE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn participants_must_match_the_group() {
        assert!(check_participants((1, 0), 2, &[true, false]).is_ok());
        assert!(check_participants((1, 0), 2, &[true]).is_err());
        assert!(check_participants((1, 0), 2, &[false, true]).is_err());
        assert!(check_participants((0, 1), 2, &[false, true]).is_ok());
    }
}
