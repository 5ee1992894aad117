//! A whole run in one call.
//!
//! Place in the flow: what the command line calls; a few lines on top of [`Session`]. What it does not do: handle signals, print.

use std::time::Duration as StdDuration;

use probe_sync_collective::Collective;
use probe_sync_estimate::round::GlobalWindowData;
use probe_sync_time::{NodeId, StampSource};

use super::{Context, Session};
use crate::report::RunReport;
use crate::{Config, Error};

/// Told what happens, at rank 0 only.
pub trait Observer {
    /// The hand-shake is done.
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
    /// Number of distinct system clocks.
    pub clocks: u32,
    /// Number of edges.
    pub edges: usize,
    /// The node whose offset is zero.
    pub reference: NodeId,
    /// The poorest timestamps of any node.
    pub stamp: StampSource,
}

/// Runs to the configured duration or until stopped, at the configured pace or adaptively. The report comes back at rank 0.
///
/// A rank whose configuration is unusable still takes part in the hand-shake, so that all ranks end with its error.
///
/// # Errors
/// The first error; [`Error::Refused`] on every rank alike. Rounds finished before are on disk.
pub fn run(
    config: Result<Config, Error>,
    collective: &mut dyn Collective,
    context: &Context,
    observer: &mut dyn Observer,
) -> Result<Option<RunReport>, Error> {
    let mut session = Session::start(config, collective, context)?;
    // Only the root has a latency.
    if session.latency().is_some() {
        observer.started(&session.started());
    }
    while session.next_round()?.is_some() {
        if let Some((round, latency)) = session.round().zip(session.latency()) {
            observer.round(round, latency);
        }
    }
    session.stop()
}
