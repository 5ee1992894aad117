//! The errors that can end a run: one error type for the whole crate.

use std::path::{Path, PathBuf};

use probe_sync_collective::Rank;
use probe_sync_time::{NodeId, RoundId};

/// What can end a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A configuration value is unusable.
    #[error("{origin}: {key}: {reason}")]
    Configuration {
        /// Where the value came from.
        origin: String,
        /// The key.
        key: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A configuration file is unreadable.
    #[error("configuration file {}: {reason}", path.display())]
    ConfigurationFile {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column where known.
        reason: String,
    },
    /// A file could not be used.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// This rank's own recording cannot be made.
    #[error("--record: {0}")]
    Recording(#[from] probe_sync_record::Error),
    /// The run's directory cannot be taken.
    #[error("{} {reason}", path.display())]
    Occupied {
        /// The directory.
        path: PathBuf,
        /// Why not, and what to do.
        reason: &'static str,
    },
    /// The output would overwrite an input.
    #[error("{} is one of the inputs; write the output to another file", path.display())]
    OutputIsInput {
        /// The file.
        path: PathBuf,
    },
    /// There are a thousand older runs beside this one.
    #[error("{}: there are already a thousand older runs next to it; remove some or choose another --out", path.display())]
    TooManyOldRuns {
        /// The run's directory.
        path: PathBuf,
    },
    /// The root refused the run; every rank ends with the same reason.
    #[error("refused: {reason}")]
    Refused {
        /// Why, naming rank and key.
        reason: String,
    },
    /// The address for metrics cannot be had.
    #[error("cannot listen for metrics at {address}: {reason}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// What the system said, and what to do.
        reason: String,
    },
    /// A rank sent bytes that are no message of ours.
    #[error("message from rank {rank}: {reason}")]
    Wire {
        /// The sender.
        rank: Rank,
        /// What is wrong.
        reason: String,
    },
    /// The ranks could not talk.
    #[error(transparent)]
    Collective(#[from] probe_sync_collective::Error),
    /// The operating system refused a socket, a clock or a timer.
    #[error(transparent)]
    System(#[from] probe_sync_sys::Error),
    /// The probe thread ended before the run did.
    #[error("probe thread: {reason}")]
    ProbeThread {
        /// Why.
        reason: String,
    },
    /// The thread that takes snapshot pairs ended before the run did.
    #[error("snapshot thread: {reason}")]
    SnapshotThread {
        /// Why.
        reason: String,
    },
    /// A session on a thread of its own has failed, or what was waited for did not come.
    #[error("session: {reason}")]
    SessionThread {
        /// Why.
        reason: String,
    },
    /// No amount of probing makes a clock known to within the bound that was waited for.
    #[error(
        "a bound of ±{half_width_ns} ns cannot be reached: path and host asymmetry limits these links to ±{reachable_ns} ns, however \
        long they are probed; ask for a wider bound, probe more pairs of hosts, or use hardware timestamps"
    )]
    BoundUnreachable {
        /// Half-width that was asked for, ns.
        half_width_ns: u32,
        /// Least half-width of the 95 % interval that these links allow, ns.
        reachable_ns: f64,
    },
    /// What was asked of a run under way is not done.
    #[error("{reason}")]
    Request {
        /// Why not.
        reason: String,
    },
    /// This session has no connection on which a file could travel to rank 0.
    #[error(
        "cannot send {name} to rank 0: this is rank 0, or the ranks are not connected over TCP; give all ranks a directory shared \
        with rank 0, or copy the file there"
    )]
    NoWayForFiles {
        /// The file.
        name: String,
    },
    /// A file that is no clock page of this host.
    #[error("{}: {reason}", path.display())]
    ClockPage {
        /// The file.
        path: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
    /// The global clock cannot do what is asked of it.
    #[error("clock: {reason}")]
    Clock {
        /// Why not.
        reason: String,
    },
    /// The edges of a round could not be solved.
    #[error("round {round_id}: {source}")]
    Graph {
        /// The round.
        round_id: RoundId,
        /// What the solver said.
        source: probe_sync_estimate::Error,
    },
    /// The reference node contributed nothing to a round, and no other node knows its time.
    #[error(
        "round {round_id}: there is no window of the reference, node {reference}, or of any node whose offset from it is known"
    )]
    ReferenceMissing {
        /// The round.
        round_id: RoundId,
        /// The reference.
        reference: NodeId,
    },
    /// The ranks that were lost have met anew without this one.
    #[error(
        "{here} of {before} ranks remained on this side, and the others continue with rank {rank} as their master; this side ends, \
        and what it recorded since is not part of the run"
    )]
    Superseded {
        /// Their master.
        rank: Rank,
        /// Ranks here.
        here: u32,
        /// Ranks before.
        before: u32,
    },
    /// A rank was to be the master, and had never been told what it must know.
    #[error(
        "rank {rank} cannot take over from rank {lost}, which was lost before it shared the state of the run: start the run again"
    )]
    NoStandby {
        /// It.
        rank: Rank,
        /// The master before.
        lost: Rank,
    },
    /// The broadcasts of the root do not follow each other.
    #[error("expected broadcast {expected} from the root, got {got}: a round was missed")]
    Sequence {
        /// The sequence number that was due.
        expected: RoundId,
        /// The one that came.
        got: RoundId,
    },
    /// A table's first line does not name the columns that are needed.
    #[error("{}: {reason}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// Which column is missing.
        reason: String,
    },
    /// Runs of regions that cannot be put on one timeline.
    #[error("{}: {reason}", path.display())]
    Regions {
        /// The file of one of them.
        path: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
    /// No input line could be used.
    #[error("no usable exchange in {files}")]
    NothingToSolve {
        /// The files.
        files: String,
    },
}

impl Error {
    /// For `map_err`: names the file and what was tried.
    pub(crate) fn file(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { path, action, source }
    }
}
