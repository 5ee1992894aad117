//! The objects that a run and its caller share.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration as StdDuration;

use probe_sync_estimate::round::GlobalWindowData;
use probe_sync_sys::{SystemClock, TracerClock};
use probe_sync_time::{Clock as _, NodeId, StampSource, System, Timestamp};

use crate::Config;
use crate::clock::{GlobalClock, Timeline};
use crate::join::PartOfJob;
use crate::late::{Arrivals, LateView};
use crate::round::notes::Notes;
use crate::round::request::Requests;

/// What a run needs from its caller besides configuration and peers.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// Raise it to end the run: the window under way is cut, everything is flushed. Nothing here
    /// raises it or takes it back.
    pub stop: Arc<AtomicBool>,
    /// The local address that leads to rank 0, if known.
    pub towards_root: Option<IpAddr>,
    /// A profiler's own clock ([`TracerClock::of_callback`], [`TracerClock::of_c_function`]), to
    /// take snapshot pairs of on this rank in place of the configured one. With
    /// `tracer_clock = none` no pairs are taken all the same.
    pub tracer_clock: Option<TracerClock>,
    /// While it is raised this rank starts no exchanges. It answers the others, and rounds go on.
    pub pause: Arc<AtomicBool>,
    /// What is asked of the run, on any rank and by any thread.
    pub requests: Requests,
    /// A clock that this session keeps right. Beside it stands what `clock_page` names.
    pub clock: Option<GlobalClock>,
    /// The first rank that is lost ends the run, as where nobody can start it again. Otherwise the
    /// others go on over TCP, and it may come back.
    pub ends_with_lost_rank: bool,
    /// Where the run is one of several of a job.
    pub part: Option<PartOfJob>,
    /// What the callers of the run's ranks say to each other.
    pub notes: Notes,
    /// At a region's master: what the run among the masters says of its clock.
    pub timeline: Timeline,
    /// Where this rank's training loop says at which operations it arrives.
    pub arrivals: Arrivals,
    /// Where this rank is shown which ranks are late.
    pub late: LateView,
}

impl Context {
    /// When virtual clocks begin: now, or where the run is one of several when those of all did.
    pub(super) fn start(&self) -> Timestamp<System> {
        self.part.as_ref().map_or_else(|| SystemClock.now(), |part| part.start)
    }
}

/// Told what happens, at rank 0 only.
pub trait Observer {
    /// The hand-shake is done, at this rank as at all others.
    fn joined(&mut self) {}
    /// The hand-shake is done, at rank 0.
    fn started(&mut self, started: &Started<'_>);
    /// A round was solved, `latency` after its window's end.
    fn round(&mut self, round: &GlobalWindowData, latency: StdDuration);
}

/// What is known once the hand-shake is done.
#[derive(Debug)]
pub struct Started<'a> {
    /// The settings.
    pub config: &'a Config,
    /// How the ranks talk.
    pub backend: &'static str,
    /// Number of ranks.
    pub ranks: usize,
    /// Number of nodes.
    pub nodes: usize,
    /// Their hosts' names, in the order of the nodes' numbers.
    pub hosts: Vec<&'a str>,
    /// Number of distinct system clocks.
    pub clocks: u32,
    /// Number of edges.
    pub edges: usize,
    /// The node whose offset is zero.
    pub reference: NodeId,
    /// The nodes' timestamps, in the order of their numbers.
    pub stamps: Vec<StampSource>,
}
