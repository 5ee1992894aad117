//! A whole run in one call.

use probe_sync_collective::Collective;

use super::context::{Context, Observer};
use super::driver::Driver;
use crate::report::RunReport;
use crate::{Config, Error};

/// Runs for the configured duration or until stopped, at the configured pace or adaptively. Returns
/// the report at rank 0.
///
/// A rank whose configuration is unusable still takes part in the handshake, so that all ranks end
/// with its error.
///
/// A single rank, for 200 ms:
///
/// ```
/// use std::time::Duration;
///
/// use probe_sync::collective::InProcess;
/// use probe_sync::{Config, Context, Observer, Started, run};
/// use probe_sync_lines::Round;
///
/// struct Quiet;
/// impl Observer for Quiet {
///     fn started(&mut self, started: &Started<'_>) {
///         assert_eq!(started.nodes, 1);
///     }
///     fn round(&mut self, round: &Round, _latency: Duration) {
///         assert_eq!(round.all_nodes[0].offset_ns, 0.0, "it is its own reference");
///     }
/// }
///
/// let directory = tempfile::tempdir()?;
/// let mut config = Config { out: directory.path().join("out"), ..Config::default() };
/// config.set("duration", "200ms", "example")?;
/// config.set("window", "100ms", "example")?;
/// let mut alone = InProcess::group(1).remove(0);
/// let report = run(config, &mut alone, &Context::default(), &mut Quiet)?;
/// assert_eq!(report.expect("rank 0 has the report").rounds, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The first error; [`Error::Refused`] on all ranks. The results of rounds finished before are on
/// disk.
pub fn run(
    config: Config,
    collective: &mut dyn Collective,
    context: &Context,
    observer: &mut dyn Observer,
) -> Result<Option<RunReport>, Error> {
    let mut session = Driver::start(config, collective, context)?;
    observer.joined();
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
