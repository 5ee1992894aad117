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

/// Who records.
pub(super) struct Recorded {
    /// The rank in the job, and how many there are where that is known.
    pub rank: u32,
    pub ranks: Option<u32>,
    /// The node, where the rank is one and its number is the job's.
    pub node: Option<NodeId>,
    /// What the node shows: laid over the system clock.
    pub clock: SkewedClock,
}

/// Begins, if that was asked for.
///
/// # Errors
/// When the file cannot be made, as when an earlier run's is there.
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

/// What goes between the threads and the file: a rank has some ten events a round.
const BYTES: usize = 1 << 20;
const PERIOD: Duration = Duration::from_millis(200);
/// Threads at once with their open scopes.
const THREADS: usize = 12;
