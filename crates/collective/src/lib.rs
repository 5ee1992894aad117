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

/// More ranks than anybody has; a wrong number must not make a front end allocate for it.
pub const MAX_RANKS: usize = 1 << 16;

/// When a wait ends without its data, and what can end it sooner.
#[derive(Clone, Debug)]
pub struct Deadline {
    /// The wait fails at this instant.
    pub(crate) at: Instant,
    /// Once set (a signal arrived), the wait fails after `grace` instead.
    pub(crate) interrupt: Option<Arc<AtomicBool>>,
    /// How long an interrupted wait goes on.
    pub grace: Duration,
}

impl Deadline {
    /// The end of a wait of at most `limit` from now.
    pub fn new(limit: Duration, interrupt: Option<Arc<AtomicBool>>) -> Self {
        Self { at: Instant::now() + limit, interrupt, grace: GRACE }
    }

    /// A deadline that is later than this one by `more`, interrupted or not. A rank that waits for
    /// the root waits longer than the root waits for the others: the root knows who is missing, so
    /// its error must come first.
    #[must_use]
    pub fn extended(&self, more: Duration) -> Self {
        Self { at: self.at + more, grace: self.grace + more, interrupt: self.interrupt.clone() }
    }

    /// One that is at most `limit` from now, and no later than this one.
    #[must_use]
    pub(crate) fn within(&self, limit: Duration) -> Self {
        Self { at: self.at.min(Instant::now() + limit), ..self.clone() }
    }

    /// Half as long from now.
    #[must_use]
    pub fn halved(&self) -> Self {
        let left = self.at.saturating_duration_since(Instant::now());
        Self { at: Instant::now() + left / 2, ..self.clone() }
    }

    /// True once the interrupt was raised.
    pub(crate) fn interrupted(&self) -> bool {
        self.interrupt.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

/// Who has left a group that goes on without them, and who asks to come back; at the root.
#[derive(Debug, Default)]
pub struct Attendance {
    /// Ranks that have left since it was last asked, and what showed it.
    pub left: Vec<(Rank, Error)>,
    /// Ranks that ask to come back, with what each states. Each waits for [`Collective::admit`].
    pub back: Vec<(Rank, Vec<u8>)>,
}

/// What a backend has carried since it was made, and how often it had to try again.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages that this rank has sent.
    pub messages_sent: u64,
    /// Messages that have come here.
    pub messages_received: u64,
    /// Bytes that this rank has sent, headers of the backend's own included.
    pub bytes_sent: u64,
    /// Bytes that have come here.
    pub bytes_received: u64,
    /// Connections and messages that were tried again.
    pub retries: u64,
}

impl Traffic {
    /// What both have carried.
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

/// A word that came beside the operations: who said it, and what ([`Collective::call`]).
pub type Call = (Rank, Vec<u8>);

/// What a rank does while an operation waits for others.
pub trait SideWork: fmt::Debug + Send + Sync {
    /// Takes the words that have come ([`Collective::call`]) and returns those to say. It does not
    /// wait.
    fn turn(&self, heard: Vec<Call>) -> Vec<Vec<u8>>;
}

/// Where the root puts files that ranks bring.
pub trait FilePlaces: fmt::Debug + Send + Sync {
    /// The folder, and the name in it, of a rank's file of this name, which is relative and leads
    /// nowhere else. Folders that are missing are made. None where the root has the file already:
    /// then it is heard and dropped.
    ///
    /// # Errors
    /// Why it is not taken; the rank is told so.
    fn place(&self, rank: Rank, name: &str) -> Result<Option<(OwnFolder, String)>, String>;
}

/// Gather and broadcast between the ranks of a run. Every rank calls the same operations in the
/// same order.
///
/// A waiting rank sleeps; it never spins a core that training needs for longer than 50 µs.
pub trait Collective {
    /// This process's rank.
    fn rank(&self) -> Rank;

    /// How many ranks there are.
    fn size(&self) -> usize;

    /// The rank that gathers and decides: [`ROOT`] at first, or another that was asked for
    /// ([`Led`]), later whoever took its place ([`Self::succeed`]).
    fn root(&self) -> Rank {
        ROOT
    }

    /// The backend's name for people: `"mpi"`, `"tcp"`, `"in-process"`.
    fn backend(&self) -> &'static str;

    /// Whether a launcher signals all ranks when it signals one: mpirun does, on Ctrl-C as when a
    /// rank has died, and kills a second later. Then an interrupted wait must be short; otherwise
    /// it must outlast the others' windows.
    fn signals_reach_all(&self) -> bool {
        false
    }

    /// Brings every participant's `payload` to the root. `participants` is indexed by rank, equal
    /// on all ranks, and includes the root; the others contribute nothing and return at once. At
    /// the root `frames` holds one frame per rank afterwards; elsewhere it is left empty.
    ///
    /// # Errors
    /// [`Error::Late`] names every rank whose data did not come in time.
    fn gather(
        &mut self,
        participants: &[bool],
        payload: &[u8],
        frames: &mut Frames,
        deadline: &Deadline,
    ) -> Result<(), Error>;

    /// Brings the root's `buffer` to every rank, replacing what the others hold in theirs.
    ///
    /// # Errors
    /// [`Error::Late`] when the root's data did not come in time.
    fn broadcast(&mut self, buffer: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error>;

    /// Brings each rank its own frame of `frames`, one per rank, which the root has; it replaces
    /// what `own` holds. The other ranks' `frames` are not looked at. By default a broadcast of
    /// them all, of which each rank keeps its own.
    ///
    /// # Errors
    /// As [`Collective::broadcast`].
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

    /// Says `word`, of at most [`WORD_MAX`] bytes, beside the operations: the root to all ranks,
    /// any other rank to the root. It never waits for those who hear it, who find it in
    /// [`Self::calls`] in the order in which it was said. A rank that is lost meanwhile shows in
    /// the next operation. False where the backend carries no words.
    ///
    /// # Errors
    /// When the backend has failed, or the word is too long.
    fn call(&mut self, _word: &[u8]) -> Result<bool, Error> {
        Ok(false)
    }

    /// What was said to this rank since this was last asked. Never waits; it also moves on what the
    /// backend has under way, so a rank that waits for something else asks a few times a second.
    ///
    /// # Errors
    /// When the backend has failed.
    fn calls(&mut self) -> Result<Vec<Call>, Error> {
        Ok(Vec::new())
    }

    /// From now on an operation that waits for others does `work` about ten times a second: words
    /// are said and heard although a rank hangs. Backends that cannot do nothing; their words come
    /// when the operation is over. After another rank has taken the root's place it must be asked
    /// for again.
    fn work_while_waiting(&mut self, _work: Arc<dyn SideWork>) {}

    /// What was carried so far.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    /// Brings every rank's `payload` to every rank (time-based rounds, Variant A). By default a
    /// gather and a broadcast.
    ///
    /// # Errors
    /// As [`Collective::gather`] and [`Collective::broadcast`].
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

    /// At the root, before [`Self::go_on_without_lost`]: the ranks without which the group has
    /// begun. Their frames are empty; they may come later, as ranks that come back do
    /// ([`Attendance::back`]).
    fn missing(&self) -> Vec<Rank> {
        Vec::new()
    }

    /// At the root, where the backend can: from now on a rank that is lost or late ends no
    /// operation. It has left ([`Self::attendance`]), its frames are empty, and the others go on. A
    /// process that is started in its place may come back: it is told `notice` first. Called again
    /// it changes the notice.
    ///
    /// # Errors
    /// When the system refuses what that needs.
    fn go_on_without_lost(&mut self, _notice: Vec<u8>) -> Result<(), Error> {
        Ok(())
    }

    /// At the root, where the backend can, before [`Self::go_on_without_lost`]: from then on until
    /// [`Self::let_nobody_back`] ranks may bring files ([`FileSender`]), beside all operations.
    fn receive_files(&mut self, _places: Arc<dyn FilePlaces>) {}

    /// At the root: from now on nobody comes back; the group still goes on without those who are
    /// lost. The address at which they asked is free afterwards.
    fn let_nobody_back(&mut self) {}

    /// At the root: who has left and who asks to come back since this was last asked.
    fn attendance(&mut self) -> Attendance {
        Attendance::default()
    }

    /// At the root: lets a rank of [`Attendance::back`] take part from the next operation on, or
    /// says why not. True when it takes part.
    fn admit(&mut self, _rank: Rank, _verdict: Result<(), String>) -> bool {
        false
    }

    /// Where this rank was started in the place of one that had left: what the root has told it. It
    /// takes part in no operation before [`Self::come_back`].
    fn notice(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// Tells the root what it must know of this rank, and returns when this rank takes part again:
    /// from the next broadcast on.
    ///
    /// # Errors
    /// [`Error::Dismissed`] when the root does not want it, [`Error::Late`] when it says nothing.
    fn come_back(&mut self, _statement: &[u8], _deadline: &Deadline) -> Result<(), Error> {
        Ok(())
    }

    /// Before [`Self::go_on_without_lost`]: where the others reach this rank if it is to take the
    /// root's place, which the root itself never does: nowhere. None where the backend has only one
    /// root.
    ///
    /// # Errors
    /// When the system refuses what that needs.
    fn stand_by(&mut self) -> Result<Option<Vec<SocketAddr>>, Error> {
        Ok(None)
    }

    /// After that, the same on all ranks: who takes the root's place, in this order, and where each
    /// is reached.
    fn line_up(&mut self, _successors: &[(Rank, Vec<SocketAddr>)]) {}

    /// The root is lost, and an operation has failed for that: settles with the ranks that are left
    /// who takes its place. More than half of those who took part last (`there`, for each rank
    /// whether it did, the lost root among them) must find each other, and nobody else counts: two
    /// groups are never more than half of the same ranks. Who finds more than half waits no longer
    /// than `late_by` for the rest. Afterwards they begin anew: what failed is repeated, with the
    /// new root.
    ///
    /// # Errors
    /// [`Error::Minority`] when too few find each other; also when the backend has only one root.
    fn succeed(&mut self, _there: &[bool], _late_by: Duration, _deadline: &Deadline) -> Result<Rank, Error> {
        Err(Error::Backend {
            operation: "succession",
            reason: format!("{} groups support only one root", self.backend()),
        })
    }

    /// Whether the root has hung up, as far as can be seen without waiting. Where it only hangs,
    /// the next operation shows it.
    fn root_has_gone(&mut self) -> bool {
        false
    }

    /// On another rank than the root, when its connection has broken: whether the root is there all
    /// the same. Takes two seconds at most.
    fn root_is_there(&mut self) -> bool {
        false
    }

    /// On another rank than the root, when an operation has failed: gives its connection up and
    /// connects anew, to whoever is the root by then, with pauses that grow. Then this rank is one
    /// that comes back ([`Self::notice`]). False where the backend cannot.
    ///
    /// # Errors
    /// [`Error::Lost`] when nobody of the group is left, or the deadline is over; the text says who
    /// answered what.
    fn reconnect(&mut self, _deadline: &Deadline) -> Result<bool, Error> {
        Ok(false)
    }

    /// At the root, when many ranks were lost at once: looks whether they have met anew around
    /// another root, who is that then.
    fn superseded_by(&mut self) -> Option<Rank> {
        None
    }

    /// On all ranks, before they say anything else: connections between ranks are to last for a
    /// round, from the first [`Self::round_is_over`] on. Until then they stand. A rank that is no
    /// participant of a gather waits in it for its connection, and what [`Self::call`] says there
    /// comes with the next gather, and is not taken (false) where too much waits; at the root it
    /// says nothing.
    ///
    /// # Errors
    /// [`Error::Setup`] where the backend cannot.
    fn connect_per_round(&mut self) -> Result<(), Error> {
        let reason =
            format!("the ranks of this run communicate over {}; omit it, or start them over TCP", self.backend());
        Err(Error::Setup { what: "per-round connections".to_owned(), reason })
    }

    /// The next operation is a gather, and only after a while: where connections last for a round
    /// they end.
    ///
    /// # Errors
    /// When the system refuses what the next round needs.
    fn round_is_over(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Ends the whole job at once, on every rank, after an error that this rank cannot carry to the
    /// others. Does not return where the backend can kill the job (`MPI_Abort`); otherwise breaks
    /// the connections, so that the others fail promptly, and returns.
    fn abort(&mut self, reason: &str);
}

/// Checks what every backend's gather requires of its list of participants.
///
/// # Errors
/// [`Error::Protocol`] naming `rank`, whose list it is.
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

/// Checks what every backend's scatter requires of the root's frames.
///
/// # Errors
/// [`Error::Protocol`] naming `rank`, whose frames they are.
pub fn check_frames((rank, root): (Rank, Rank), size: usize, frames: &Frames) -> Result<(), Error> {
    if rank != root || frames.len() == size {
        return Ok(());
    }
    let what = format!("{} frames to a group of {size}", frames.len());
    Err(Error::Protocol { operation: "scatter", rank, what })
}

/// Checks the length of a word that is to be said beside the operations.
///
/// # Errors
/// [`Error::Protocol`] naming `rank`, whose word it is.
pub fn check_word(rank: Rank, word: &[u8]) -> Result<(), Error> {
    if word.len() <= WORD_MAX {
        return Ok(());
    }
    let what = format!("a word of {} bytes; at most {WORD_MAX} are allowed", word.len());
    Err(Error::Protocol { operation: "call", rank, what })
}

/// The longest word beside the operations.
pub const WORD_MAX: usize = 4096;

/// The rank that gathers and decides, where no other was asked for.
pub const ROOT: Rank = 0;

/// How long an interrupted wait goes on unless said otherwise: peers that were interrupted too need
/// a moment to contribute, but mpirun kills a second after it has asked to end.
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
