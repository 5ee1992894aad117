//! `probe_sync doctor --peers`, which reports the capabilities of a job's hosts and whether probe
//! packets get through between every pair.
//!
//! Every rank describes its own host (`sys::doctor`). All ranks then measure for some seconds, as a
//! run does, into a folder that is removed afterwards, and every rank reports on its edges. Rank 0
//! combines the results (`survey`) and prints them. The exit status is 1 when something prevents a
//! measurement.
//!
//! It has no packets of its own, so packets that arrive here also arrive in a run.

mod gate;
mod survey;
mod text;

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;
use probe_sync::collective::{Collective, Deadline, Frames, random_bytes};
use probe_sync::{Observer, RunReport, Started};
use probe_sync_lines::{NodeWindow, Round};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::args::DoctorArgs;
use crate::launch::Ranks;
use crate::status::Unfit;
use crate::{local, output, signals};
pub use gate::{Gate, Limits};
pub use survey::Survey;
use survey::{EdgeSeen, HostState};

/// Measures and prints.
///
/// # Errors
/// Returns an error if the ranks cannot communicate or the run is refused, or, after everything was
/// printed, if something prevents a measurement.
pub fn run(arguments: &DoctorArgs, mpi: Option<Ranks>) -> anyhow::Result<()> {
    let folder = Folder::new()?;
    let config = arguments.run.configuration_after(&settings(&folder.path.join("out")));
    // All ranks are looked at together, whatever a job's environment says of their regions.
    let config = config.map(|config| probe_sync::Config { region: None, region_file: None, ..config });
    let stop = signals::stop_on_signals()?;
    let local::Connected { mut ranks, children, config } = local::connect(arguments.run.local, config, mpi, &stop)?;
    let context = probe_sync::Context {
        stop: Arc::clone(&stop),
        towards_root: ranks.towards_root(),
        ends_with_lost_rank: true,
        ..Default::default()
    };
    let surveyed = survey_of(ranks.collective(), config, &context, &folder.path, &stop);
    if let Err(error) = &surveyed
        && !matches!(error.downcast_ref(), Some(probe_sync::Error::Refused { .. }))
    {
        ranks.collective().abort(&error.to_string());
    }
    let shown = match surveyed? {
        Some(found) if arguments.strict => found.judge(arguments),
        Some(found) => show(&found.survey(), arguments.run.json),
        None => Ok(()),
    };
    drop(ranks);
    if let Some(children) = children {
        children.finish();
    }
    shown
}

/// Settings of the measurement unless flags override them: all pairs of up to 33 nodes, for some
/// seconds, at a constant pace: fewer packets would not reveal a loss of one in a hundred.
fn settings(out: &Path) -> Vec<(String, String)> {
    let out = out.display().to_string();
    let settings = [
        ("duration", "4s"),
        ("window", "1s"),
        ("cadence", "800us"),
        ("neighbors", "32"),
        ("out_neighbors", "auto"),
        ("in_neighbors", "auto"),
        ("tracer_clock", "none"),
        ("out", out.as_str()),
    ];
    settings.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// Returns the survey on rank 0.
fn survey_of(
    collective: &mut dyn Collective,
    config: Result<probe_sync::Config, probe_sync::Error>,
    context: &probe_sync::Context,
    folder: &Path,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Option<Found>> {
    // First, so that a rank that cannot take part is known, too.
    let states: Vec<HostState> = gather(collective, &HostState::own(), stop)?;
    let out = config.as_ref().map_or_else(|_| folder.join("out"), |config| config.out.clone());
    let report: Option<RunReport> = match config {
        Ok(config) => probe_sync::run(config, collective, context, &mut Silent)?,
        Err(error) => return Err(probe_sync::Driver::refuse(error, collective, context).into()),
    };
    let edges: Vec<Vec<EdgeSeen>> = gather(collective, &last_fits(&out.join("windows"))?, stop)?;
    Ok(report.map(|report| Found { states, report, edges: edges.concat() }))
}

/// What rank 0 knows about all hosts.
struct Found {
    /// By rank.
    states: Vec<HostState>,
    report: RunReport,
    edges: Vec<EdgeSeen>,
}

impl Found {
    fn survey(&self) -> Survey {
        Survey::new(&self.states, &self.report, &self.edges)
    }

    /// Prints one line per host.
    ///
    /// # Errors
    /// [`Unfit`] if a host would degrade the job.
    fn judge(&self, arguments: &DoctorArgs) -> anyhow::Result<()> {
        let limits = Limits { offset: arguments.max_offset, rate_ppm: arguments.max_rate };
        let gate = Gate::new(&self.survey(), &self.report, &self.states, limits);
        match arguments.run.json {
            true => output::json(&gate)?,
            false => output::tell(&gate.text())?,
        }
        match gate.unfit() {
            0 => Ok(()),
            hosts => Err(Unfit(hosts).into()),
        }
    }
}

fn show(survey: &Survey, json: bool) -> anyhow::Result<()> {
    match json {
        true => output::json(survey)?,
        false => output::tell(&text::readable(survey))?,
    }
    match survey.failures() {
        0 => Ok(()),
        failures => anyhow::bail!("{failures} of the findings above prevent a measurement"),
    }
}

/// Collects the statements of all ranks on rank 0; elsewhere returns nothing.
fn gather<T: Serialize + DeserializeOwned>(
    collective: &mut dyn Collective,
    own: &T,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Vec<T>> {
    let deadline = Deadline::new(STATEMENT_LIMIT, Some(Arc::clone(stop)));
    let mut frames = Frames::default();
    collective.gather(&vec![true; collective.size()], &serde_json::to_vec(own)?, &mut frames, &deadline)?;
    let statement = |(rank, frame): (usize, &[u8])| {
        serde_json::from_slice(frame).with_context(|| format!("rank {rank}'s survey of its host"))
    };
    frames.iter().enumerate().map(statement).collect()
}

/// The last fit of each of this rank's edges.
fn last_fits(windows: &Path) -> anyhow::Result<Vec<EdgeSeen>> {
    let mut seen: Vec<EdgeSeen> = Vec::new();
    // A rank that is no node has no windows.
    for entry in fs::read_dir(windows).into_iter().flatten().flatten() {
        let text = fs::read_to_string(entry.path()).with_context(|| format!("reading {}", entry.path().display()))?;
        for line in text.lines() {
            let window: NodeWindow =
                serde_json::from_str(line).with_context(|| format!("reading {}", entry.path().display()))?;
            for edge in &window.edges {
                let fit = EdgeSeen::of(edge);
                match seen.iter_mut().find(|known| (known.src, known.dst) == (fit.src, fit.dst)) {
                    Some(known) => *known = fit,
                    None => seen.push(fit),
                }
            }
        }
    }
    Ok(seen)
}

/// A folder that only its owner can enter, removed with its contents.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new() -> anyhow::Result<Self> {
        let name: String = random_bytes::<8>()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = std::env::temp_dir().join(format!("probe_sync_doctor.{name}"));
        // Fails where something of that name exists.
        fs::DirBuilder::new().mode(0o700).create(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is in a folder for what is temporary.
        let _ = fs::remove_dir_all(&self.path);
    }
}

struct Silent;

impl Observer for Silent {
    fn started(&mut self, _: &Started<'_>) {}
    fn round(&mut self, _: &Round, _: Duration) {}
}

/// How long rank 0 waits for the statements of the others; examining a host takes a second.
const STATEMENT_LIMIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_private_and_goes_with_its_content() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = Folder::new().expect("a folder");
        let path = folder.path.clone();
        assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o700);
        fs::create_dir_all(path.join("out/windows")).expect("writable");
        assert_eq!(last_fits(&path.join("out/windows")).expect("empty").len(), 0);
        fs::write(path.join("out/windows/node0.jsonl"), "no window\n").expect("writable");
        let error = last_fits(&path.join("out/windows")).expect_err("no window");
        assert!(error.to_string().contains("node0.jsonl"), "{error}");
        drop(folder);
        assert!(!path.exists());
    }
}
