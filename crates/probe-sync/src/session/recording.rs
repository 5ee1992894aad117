//! This rank's recording of itself (`--record DIR`): `DIR/nodeN.rec`, or `rankR.rec` if it follows
//! another rank of its host or if the run is one of several in a job, whose nodes have their own
//! numbers.
//!
//! It begins when the handshake is done and ends with the session. A writer thread writes the
//! events to the file; events it has not yet written when the process is killed are in the file all
//! the same. `probe_sync record snapshot DIR` requests copies through the socket next to it.
//!
//! Under `--inject-skew` a recording is tied to its node's virtual clock, as everything that the
//! node measures is.
//!
//! It does not prevent a program from recording itself; such a recording then contains this rank's
//! rounds.

use std::time::Duration;

use probe_sync_record::{Error as Refusal, Policy, Recorder, Session};
use probe_sync_time::{NodeId, SkewedClock};

use crate::{Config, Error};

/// Identity of a recording.
pub(super) struct Recorded {
    /// Rank in the job, and the number of ranks, if known.
    pub rank: u32,
    pub ranks: Option<u32>,
    /// The node, if the rank is one and its number is that of the job.
    pub node: Option<NodeId>,
    /// Virtual clock of the node, laid over the system clock.
    pub clock: SkewedClock,
}

/// Starts recording, if requested.
///
/// # Errors
/// Returns an error if the file cannot be created, for example because one of an earlier run
/// exists.
pub(super) fn start(config: &Config, recorded: Recorded) -> Result<Option<Session>, Error> {
    let Some(folder) = &config.record else { return Ok(None) };
    let Recorded { rank, ranks, node, clock } = recorded;
    let name = node.map_or_else(|| format!("rank{rank}.rec"), |node| format!("node{node}.rec"));
    let builder = Recorder::builder().policy(Policy::Stream { bytes: BYTES, every: PERIOD }).threads(THREADS);
    let builder = builder.spill(folder.join(name)).control(folder).rank(rank).virtual_clock(clock);
    let builder = match ranks {
        Some(ranks) => builder.ranks(ranks),
        None => builder,
    };
    match builder.start() {
        Ok(session) => Ok(Some(session)),
        Err(error @ Refusal::AlreadyRecording { .. }) => {
            tracing::info!("--record: {error}; this rank's activity is recorded there");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Buffer between the threads and the file; a rank has some ten events per round.
const BYTES: usize = 1 << 20;
const PERIOD: Duration = Duration::from_millis(200);
/// Most concurrent threads with their open scopes.
const THREADS: usize = 12;
