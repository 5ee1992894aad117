//! The errors that can end a run: one error type for the whole crate.

use std::path::{Path, PathBuf};

use probe_sync_collective::Rank;
use probe_sync_time::{NodeId, RoundId};

/// Errors that can end a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A configuration value is unusable.
    #[error("{origin}: {key}: {reason}")]
    Configuration {
        /// Source of the value.
        origin: String,
        /// The key.
        key: String,
        /// What is wrong, and what would be valid.
        reason: String,
    },
    /// A configuration file is unreadable.
    #[error("configuration file {}: {reason}", path.display())]
    ConfigurationFile {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column if known.
        reason: String,
    },
    /// A file could not be used.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Attempted action.
        action: &'static str,
        /// Error of the system.
        source: std::io::Error,
    },
    /// This rank's own recording cannot be created.
    #[error("--record: {0}")]
    Recording(#[from] probe_sync_record::Error),
    /// Scopes of the recorder cannot be observed.
    #[error("cannot observe collectives: {0}")]
    Observer(#[source] probe_sync_record::Error),
    /// The run's directory cannot be used.
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
    /// A thousand older runs exist next to this one.
    #[error("{}: there are already a thousand older runs next to it; remove some or choose another --out", path.display())]
    TooManyOldRuns {
        /// The run's directory.
        path: PathBuf,
    },
    /// The root refused the run; every rank ends with the same reason.
    #[error("refused: {reason}")]
    Refused {
        /// Reason, with rank and key.
        reason: String,
    },
    /// The address for metrics cannot be used.
    #[error("cannot listen for metrics at {address}: {reason}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Error of the system, and what to do.
        reason: String,
    },
    /// A rank sent bytes that are not a valid message.
    #[error("message from rank {rank}: {reason}")]
    Wire {
        /// The sender.
        rank: Rank,
        /// What is wrong.
        reason: String,
    },
    /// Communication between the ranks failed.
    #[error(transparent)]
    Collective(#[from] probe_sync_collective::Error),
    /// The operating system refused a socket, a clock or a timer.
    #[error(transparent)]
    System(#[from] probe_sync_sys::Error),
    /// The probe thread ended before the run did.
    #[error("probe thread: {reason}")]
    ProbeThread {
        /// Reason.
        reason: String,
    },
    /// The thread that takes snapshot pairs ended before the run did.
    #[error("snapshot thread: {reason}")]
    SnapshotThread {
        /// Reason.
        reason: String,
    },
    /// A session on a thread of its own has failed, or a wait timed out.
    #[error("session: {reason}")]
    SessionThread {
        /// Reason.
        reason: String,
    },
    /// No amount of probing can reach the requested bound.
    #[error(
        "a bound of ±{half_width_ns} ns cannot be reached: path and host asymmetry limits these links to ±{reachable_ns} ns, however \
        long they are probed; ask for a wider bound, probe more pairs of hosts, or use hardware timestamps"
    )]
    BoundUnreachable {
        /// Requested half-width, ns.
        half_width_ns: u32,
        /// Smallest half-width of the 95 % interval that these links allow, ns.
        reachable_ns: f64,
    },
    /// A request to a running run was not carried out.
    #[error("{reason}")]
    Request {
        /// Reason.
        reason: String,
    },
    /// This session has no connection over which a file could be sent to rank 0.
    #[error(
        "cannot send {name} to rank 0: this is rank 0, or the ranks are not connected over TCP; give all ranks a directory shared \
        with rank 0, or copy the file there"
    )]
    NoWayForFiles {
        /// The file.
        name: String,
    },
    /// A file is not a clock page of this host.
    #[error("{}: {reason}", path.display())]
    ClockPage {
        /// The file.
        path: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
    /// The global clock cannot do what was requested.
    #[error("clock: {reason}")]
    Clock {
        /// Reason.
        reason: String,
    },
    /// The edges of a round could not be solved.
    #[error("round {round_id}: {source}")]
    Graph {
        /// The round.
        round_id: RoundId,
        /// Error of the solver.
        source: probe_sync_estimate::Error,
    },
    /// A round has no contribution from the reference node or from any node with a known offset.
    #[error(
        "round {round_id}: there is no window of the reference, node {reference}, or of any node whose offset from it is known"
    )]
    ReferenceMissing {
        /// The round.
        round_id: RoundId,
        /// The reference node.
        reference: NodeId,
    },
    /// The lost ranks have formed a group without this one.
    #[error(
        "{here} of {before} ranks remained on this side, and the others continue with rank {rank} as their master; this side ends, \
        and what it recorded since is not part of the run"
    )]
    Superseded {
        /// Their master.
        rank: Rank,
        /// Ranks on this side.
        here: u32,
        /// Ranks before the split.
        before: u32,
    },
    /// A rank should become master but was never sent the required state.
    #[error(
        "rank {rank} cannot take over from rank {lost}, which was lost before it shared the state of the run: start the run again"
    )]
    NoStandby {
        /// The rank.
        rank: Rank,
        /// The previous master.
        lost: Rank,
    },
    /// The broadcasts of the root are not consecutive.
    #[error("expected broadcast {expected} from the root, got {got}: a round was missed")]
    Sequence {
        /// Expected sequence number.
        expected: RoundId,
        /// Received sequence number.
        got: RoundId,
    },
    /// A table's header does not name the required columns.
    #[error("{}: {reason}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// Missing column.
        reason: String,
    },
    /// Runs of regions cannot be put on one timeline.
    #[error("{}: {reason}", path.display())]
    Regions {
        /// File of one of the regions.
        path: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
    /// No input line could be used.
    #[error("no usable exchange in {files}")]
    NothingToSolve {
        /// Names of the files.
        files: String,
    },
}

impl Error {
    /// For `map_err`: adds the file and the attempted action.
    pub(crate) fn file(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { path, action, source }
    }
}
