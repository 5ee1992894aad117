//! The run among the masters, on its own thread in each master's process.
//!
//! It begins before the master's region does and ends after it (`ends`), so that it covers the
//! masters at every time of the regions. Every master is a node of it, even on a shared host, in
//! the order of the regions; its reference is the first region's master.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use probe_sync_collective::{Collective, Tcp};
use probe_sync_sys::process;
use probe_sync_time::Duration;

use super::ends::Standing;
use super::groups::MASTERS;
use crate::clock::Timeline;
use crate::config::TracerClockChoice;
use crate::report::RunReport;
use crate::session::{Context, Driver};
use crate::{Config, Error};

/// The masters' run in progress.
pub(super) struct MastersRun {
    thread: JoinHandle<Result<Option<RunReport>, Error>>,
    begun: Receiver<()>,
}

impl MastersRun {
    /// Starts the run. `config` is the job's; `timeline` receives the state of this master's clock.
    ///
    /// # Errors
    /// Returns an error if the system cannot create a thread.
    pub fn start(
        config: &Config,
        group: Tcp,
        context: Context,
        (standing, timeline): (&Arc<Standing>, Timeline),
    ) -> Result<Self, Error> {
        let (config, standing) = (of_masters(config), Arc::clone(standing));
        let (tell, begun) = channel();
        let body = move || {
            let result = measure(config, group, &context, &tell, (&standing, &timeline));
            standing.masters_ended(result.is_ok());
            result
        };
        let cannot =
            |error| Error::SessionThread { reason: format!("the run between the masters cannot start: {error}") };
        let thread = std::thread::Builder::new().name("masters".into()).spawn(body).map_err(cannot)?;
        Ok(Self { thread, begun })
    }

    /// Waits until it measures; returns false if it failed before.
    pub fn has_begun(&self) -> bool {
        self.begun.recv().is_ok()
    }

    /// Waits for its end; returns the report at its master.
    ///
    /// # Errors
    /// Returns the error of the run.
    pub fn join(self) -> Result<Option<RunReport>, Error> {
        let panicked = |_| Error::SessionThread { reason: "the thread of the run between the masters panicked".into() };
        self.thread.join().map_err(panicked)?
    }
}

/// Runs from the handshake to the report.
fn measure(
    config: Config,
    mut group: Tcp,
    context: &Context,
    begun: &Sender<()>,
    (standing, timeline): (&Standing, &Timeline),
) -> Result<Option<RunReport>, Error> {
    process::block_signals()?;
    // Its messages count the masters from 0.
    let _span = tracing::info_span!("masters").entered();
    let result = rounds(config, &mut group, context, begun, (standing, timeline));
    timeline.end();
    if let Err(error) = &result {
        tracing::error!(
            "the run between the masters ended here: {error}; the clocks of this region continue with growing bounds"
        );
    }
    if let Err(error) = &result
        && !matches!(error, Error::Refused { .. })
    {
        group.abort(&error.to_string());
    }
    result
}

fn rounds(
    config: Config,
    group: &mut Tcp,
    context: &Context,
    begun: &Sender<()>,
    (standing, timeline): (&Standing, &Timeline),
) -> Result<Option<RunReport>, Error> {
    let mut session = Driver::start(config, group, context)?;
    // The region's thread waits for it.
    let _ = begun.send(());
    let own = session.state().node;
    while session.next_round()?.is_some() {
        standing.away(session.state().away);
        if let Some(round) = session.round() {
            timeline.follow(round, own);
        }
    }
    session.stop()
}

/// Returns the job's settings for the run among the masters. It lasts until it is stopped, and does
/// nothing that the regions' runs do for every rank.
fn of_masters(config: &Config) -> Config {
    Config {
        out: directory(&config.out),
        region: None,
        region_file: None,
        per_rank: true,
        duration: None,
        // The regions have measured until the moment at which it is ended.
        last_window: config.last_window.or(Some(LAST_WINDOW)),
        tracer_clock: TracerClockChoice::None,
        metrics_listen: None,
        // The region's run shows the clock.
        clock_page: None,
        // The region's run has the port that was asked for.
        port: if config.port == 0 { 0 } else { config.port.saturating_add(1) },
        ..config.clone()
    }
}

/// Returns the directory of its files, in the job's directory.
pub(super) fn directory(out: &Path) -> PathBuf {
    out.join(MASTERS)
}

/// Length of the window after the regions have ended.
const LAST_WINDOW: Duration = Duration::from_ms(100);
