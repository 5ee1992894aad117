//! The objects that a run and its caller share.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration as StdDuration;

use probe_sync_lines::Round;
use probe_sync_sys::{SystemClock, TracerClock};
use probe_sync_time::{Clock as _, NodeId, StampSource, System, Timestamp};

use crate::Config;
use crate::clock::{GlobalClock, Timeline};
use crate::join::PartOfJob;
use crate::late::{Arrivals, HangRequests, LateView};
use crate::round::notes::Notes;
use crate::round::request::Requests;

/// What a run needs from its caller in addition to configuration and peers.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// Raise it to end the run: the current window is cut, and everything is flushed. The run
    /// itself never raises or clears it.
    pub stop: Arc<AtomicBool>,
    /// Local address of the route to rank 0, if known.
    pub towards_root: Option<IpAddr>,
    /// A profiler's own clock ([`TracerClock::of_callback`], [`TracerClock::of_c_function`]), of
    /// which snapshot pairs are taken on this rank instead of the configured one. With
    /// `tracer_clock = none` still no pairs are taken.
    pub tracer_clock: Option<TracerClock>,
    /// While it is raised, this rank starts no exchanges. It still answers the others, and rounds
    /// continue.
    pub pause: Arc<AtomicBool>,
    /// Requests to the run, on any rank and from any thread.
    pub requests: Requests,
    /// A clock that this session keeps up to date, in addition to the one of `clock_page`.
    pub clock: Option<GlobalClock>,
    /// End the run when the first rank is lost, as is right if it cannot be restarted. Otherwise
    /// the others continue over TCP, and it may return.
    pub ends_with_lost_rank: bool,
    /// The place in a job, if the run is one of several.
    pub part: Option<PartOfJob>,
    /// Notes between the callers of the run's ranks.
    pub notes: Notes,
    /// At a region's master: the state of its clock in the run among the masters.
    pub timeline: Timeline,
    /// Records the arrivals of this rank's training loop.
    pub arrivals: Arrivals,
    /// Shows the late ranks on this rank.
    pub late: LateView,
    /// Requests for evidence of a hang to this rank's program.
    pub hang: HangRequests,
}

impl Context {
    /// Returns the start of virtual clocks: now, or that of the job if the run is one of several.
    pub(super) fn start(&self) -> Timestamp<System> {
        self.part.as_ref().map_or_else(|| SystemClock.now(), |part| part.start)
    }
}

/// Receives notifications, at rank 0 only.
pub trait Observer {
    /// Called when the handshake is complete, on every rank.
    fn joined(&mut self) {}
    /// Called when the handshake is complete, at rank 0.
    fn started(&mut self, started: &Started<'_>);
    /// Called when a round was solved, `latency` after its window's end.
    fn round(&mut self, round: &Round, latency: StdDuration);
}

/// What is known once the handshake is complete.
#[derive(Debug)]
pub struct Started<'a> {
    /// The settings.
    pub config: &'a Config,
    /// Name of the backend.
    pub backend: &'static str,
    /// Number of ranks.
    pub ranks: usize,
    /// Number of nodes.
    pub nodes: usize,
    /// Host names, in the order of the nodes' numbers.
    pub hosts: Vec<&'a str>,
    /// Number of distinct system clocks.
    pub clocks: u32,
    /// Number of edges.
    pub edges: usize,
    /// Reference node, whose offset is zero.
    pub reference: NodeId,
    /// Stamp sources of the nodes, in the order of their numbers.
    pub stamps: Vec<StampSource>,
}
