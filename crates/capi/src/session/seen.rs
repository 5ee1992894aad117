//! The observable state of a session, its rounds, and functions that wait for them.
//!
//! These calls can be made from any thread while the session runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use probe_sync::{Error, Progress, Session};
use probe_sync_estimate::statistics::SIGMAS_95;
use probe_sync_lines::{NodeEstimate, Round};

use super::{Stage, ps_session};
use crate::clock::milliseconds;
use crate::pointers::{Out, borrowed, fill};
use crate::status::{Failure, guard, ps_status};
use ps_phase::*;
use ps_status::*;

/// Phase of a session.
#[repr(C)]
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ps_phase {
    /// Waiting for all ranks to join.
    PS_PHASE_MEETING = 0,
    /// Measuring.
    PS_PHASE_MEASURING = 1,
    /// Ended normally.
    PS_PHASE_ENDED = 2,
    /// Failed; ps_last_error() gives the reason after the call to ps_session_state() that reported
    /// this phase.
    PS_PHASE_FAILED = 3,
}

/// State of a session. Ranks that share a clock are one node.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct ps_state {
    /// Rounds solved so far.
    pub rounds: u64,
    /// Phase of the session.
    pub phase: ps_phase,
    /// This rank.
    pub rank: u32,
    /// The node of this rank; UINT32_MAX until it is known.
    pub node: u32,
    /// The node whose clock is the reference; UINT32_MAX until it is known.
    pub reference: u32,
    /// Number of nodes; 0 until the first round.
    pub nodes: u32,
}

/// One solved round.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct ps_round {
    /// Number of the round, from 0.
    pub round_id: u64,
    /// The window's start, reference time in ns since the Unix epoch.
    pub window_start_ns: i64,
    /// The window's end. Offsets apply to its midpoint.
    pub window_end_ns: i64,
    /// The node whose clock is the reference.
    pub reference: u32,
    /// Number of nodes.
    pub nodes: u32,
}

/// A node's clock in one round.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct ps_node_estimate {
    /// This node's clock minus the reference clock, ns. Subtract it from a time on this node to get
    /// reference time.
    pub offset_ns: f64,
    /// Half-width of the 95 % interval around offset_ns; infinite if nothing is known.
    pub bound95_ns: f64,
    /// Lower hard bound: no smaller offset can have produced the observed packets. May be infinite.
    pub hard_low_ns: f64,
    /// Upper hard bound: no larger offset can have produced the observed packets. May be infinite.
    pub hard_high_ns: f64,
    /// Rate of this clock relative to the reference, ppm.
    pub drift_ppm: f64,
    /// Standard deviation of drift_ppm.
    pub drift_sigma_ppm: f64,
    /// The node's number.
    pub node: u32,
    /// Number of this node's edges used in the round.
    pub edges: u32,
    /// True if a chain of edges connects the node to the reference; otherwise the other fields are
    /// meaningless.
    pub reachable: bool,
    /// The clock of this node or of the reference was disturbed during the window: do not trust
    /// this estimate.
    pub disturbed: bool,
}

/// Gets the state of the session, also after ps_session_stop(). If the session failed, the call
/// still returns PS_OK, and ps_last_error() gives the reason.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_session_state(session: *const ps_session, state: *mut ps_state) -> ps_status {
    let mut reason = None;
    let status = guard(|| {
        // SAFETY: the rule of the crate.
        let (session, state) = unsafe { (borrowed(session, "session")?, Out::new(state, "state")?) };
        let (found, failed) = session.look()?;
        state.set(found);
        reason = failed;
        Ok(())
    });
    if let Some(reason) = reason {
        // Only for its text.
        guard(|| Err(Failure::new(PS_ERROR_FAILED, reason)));
    }
    status
}

/// Gets the last solved round and its first `capacity` nodes, in numerical order; round and nodes
/// may be NULL. Returns PS_ERROR_UNKNOWN until there is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_session_round(
    session: *const ps_session,
    nodes: *mut ps_node_estimate,
    capacity: usize,
    round: *mut ps_round,
) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let session = unsafe { borrowed(session, "session") }?;
        let latest = session.running(|handle| handle.round().ok_or_else(|| not_yet(handle)))?;
        // SAFETY: the rule of the crate.
        if let Ok(round) = unsafe { Out::new(round, "round") } {
            round.set(ps_round::from(&*latest));
        }
        let estimates = latest.all_nodes.iter().map(|node| estimate(node, latest.clock_disturbed(node.node_id)));
        // SAFETY: the rule of the crate.
        unsafe { fill(nodes, capacity, estimates) };
        Ok(())
    })
}

/// Waits until the half-width of the 95 % interval of this node's offset is at most half_width_ns.
/// Returns PS_ERROR_UNREACHABLE after a few rounds if path and host asymmetry alone exceed it;
/// otherwise PS_ERROR_TIMEOUT, PS_ERROR_FAILED or PS_ERROR_ENDED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_session_wait_until_bound(
    session: *const ps_session,
    half_width_ns: u32,
    timeout_ms: u32,
) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let session = unsafe { borrowed(session, "session") }?;
        let what = format!("a bound of +-{half_width_ns} ns");
        session.wait(&what, timeout_ms, |handle, slice| handle.wait_until_bound(half_width_ns, slice).map(Some))
    })
}

/// Waits until `rounds` rounds are solved. Fails like ps_session_wait_until_bound().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_session_wait_rounds(session: *const ps_session, rounds: u64, timeout_ms: u32) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let session = unsafe { borrowed(session, "session") }?;
        let enough = |round: &Arc<Round>| round.round_id.0 + 1 >= rounds;
        session.wait(&format!("round {rounds}"), timeout_ms, |handle, slice| {
            let seen = handle.round();
            match seen.filter(enough) {
                Some(round) => Ok(Some(round)),
                None => Ok(handle.next_round(handle.round().as_deref(), slice)?.filter(enough)),
            }
        })
    })
}

impl ps_session {
    /// Returns the state, and the reason of a failure.
    fn look(&self) -> Result<(ps_state, Option<String>), Failure> {
        let stage = self.stage()?;
        let (phase, failed, latest) = match &*stage {
            Stage::Stopped(failed) => (PS_PHASE_ENDED, failed.clone(), None),
            Stage::Running(handle) => match handle.progress() {
                Progress::Meeting => (PS_PHASE_MEETING, None, None),
                Progress::Measuring(_) => (PS_PHASE_MEASURING, None, handle.round()),
                Progress::Ended => (PS_PHASE_ENDED, None, handle.round()),
                Progress::Failed(reason) => (PS_PHASE_FAILED, Some(reason), handle.round()),
            },
        };
        let (node, reference) = self.clock.nodes().map_or((UNKNOWN, UNKNOWN), |(own, other)| (own.0, other.0));
        let state = ps_state {
            rounds: latest.as_ref().map_or(0, |round| round.round_id.0 + 1),
            phase: if failed.is_some() { PS_PHASE_FAILED } else { phase },
            rank: self.rank,
            node,
            reference,
            nodes: latest.as_ref().map_or(0, |round| round.all_nodes.len() as u32),
        };
        Ok((state, failed))
    }

    /// Waits until `attempt`, which lasts at most a slice, returns a value.
    fn wait<T>(
        &self,
        what: &str,
        timeout_ms: u32,
        attempt: impl Fn(&Session, Duration) -> Result<Option<T>, Error>,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + milliseconds(timeout_ms);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let found = self.running(|handle| match attempt(handle, left.min(SLICE)) {
                Ok(Some(_)) => Ok(true),
                Err(error @ Error::BoundUnreachable { .. }) => Err(error.into()),
                Ok(None) | Err(_) => going_on(handle).map(|()| false),
            })?;
            if found {
                return Ok(());
            }
            if left.is_zero() {
                let rounds = self.running(|handle| Ok(handle.round().map_or(0, |round| round.round_id.0 + 1)))?;
                let text = format!(
                    "timed out waiting for {what} after {timeout_ms} ms; {rounds} rounds were solved; wait longer, or request a wider \
                    bound or fewer rounds"
                );
                return Err(Failure::new(PS_ERROR_TIMEOUT, text));
            }
        }
    }
}

impl From<&Round> for ps_round {
    fn from(round: &Round) -> Self {
        Self {
            round_id: round.round_id.0,
            window_start_ns: round.window_start.as_ns(),
            window_end_ns: round.window_end.as_ns(),
            reference: round.reference.0,
            nodes: round.all_nodes.len() as u32,
        }
    }
}

fn estimate(node: &NodeEstimate, disturbed: bool) -> ps_node_estimate {
    ps_node_estimate {
        offset_ns: node.offset_ns,
        bound95_ns: node.sigma_ns * SIGMAS_95,
        hard_low_ns: node.bound_lo_ns,
        hard_high_ns: node.bound_hi_ns,
        drift_ppm: node.drift_ppm,
        drift_sigma_ppm: node.drift_sigma_ppm,
        node: node.node_id.0,
        edges: node.edges_used,
        reachable: node.reachable,
        disturbed,
    }
}

/// Returns the error for a session without a round.
fn not_yet(handle: &Session) -> Failure {
    let text = "no round has been solved yet; call ps_session_wait_rounds() first";
    going_on(handle).err().unwrap_or_else(|| Failure::new(PS_ERROR_UNKNOWN, text))
}

/// Checks that further rounds may follow.
fn going_on(handle: &Session) -> Result<(), Failure> {
    match handle.progress() {
        Progress::Failed(reason) => Err(Failure::new(PS_ERROR_FAILED, reason)),
        Progress::Ended => Err(Failure::new(PS_ERROR_ENDED, "the run ended on its own; see the key duration")),
        _ => Ok(()),
    }
}

/// Longest time for which a wait holds the session, which another thread may want to stop.
const SLICE: Duration = Duration::from_millis(50);

const UNKNOWN: u32 = u32::MAX;
