//! `hang`: which ranks stopped a job, from the Flight Recorder dumps that it left.

mod files;
mod recordings;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use probe_sync::HangEvidence;
use probe_sync_alignment::clocks::{RunDirectory, Survey};
use probe_sync_files::continuations;
use probe_sync_hang::{Clocks, Job, Verdict};
use probe_sync_page::Hang;

use self::files::{Evidence, Files};
use crate::output;
use crate::status::Unjudged;

/// Flags of `hang`.
#[derive(Args, Debug)]
pub struct HangArgs {
    /// Dumps, one per rank, or folders of dumps; each file's name ends with its rank, such as
    /// trace_12 or rank12.json. Stacks of the ranks in a folder (rank_12.stack, rank12.txt) are
    /// shown with the verdict. Recordings of the event recorder (rank12.rec) serve for ranks without
    /// a dump. The JSON of NCCL RAS (ncclras -f json), in a file such as ras.json,
    /// serves where there are no dumps
    #[arg(required_unless_present = "live", value_name = "DUMP")]
    dumps: Vec<PathBuf>,
    /// Directory of a run in progress, on rank 0's host: ask all ranks where they are, which takes
    /// at most 5 s, and judge what they answer
    #[arg(long, value_name = "RUN", conflicts_with_all = ["dumps", "run_dir", "offsets", "clock_error"])]
    live: Option<PathBuf>,
    /// Directory of the run that measured the job's clocks, used to compare times of ranks on
    /// different hosts
    #[arg(long, value_name = "DIR", conflicts_with = "clock_error")]
    run_dir: Option<PathBuf>,
    /// File of offsets, used to compare times of ranks on different hosts
    #[arg(long, value_name = "FILE", conflicts_with_all = ["run_dir", "clock_error"])]
    offsets: Option<PathBuf>,
    /// Largest difference between the hosts' clocks, if no run measured it; trusted as given
    #[arg(long, value_name = "TIME", value_parser = probe_sync::config::duration)]
    clock_error: Option<probe_sync_time::Duration>,
    /// Print the verdict as one JSON document
    #[arg(long)]
    json: bool,
}

/// Reads the dumps and prints the verdict.
///
/// # Errors
/// Names a file that cannot be read; [`Unjudged`] if no cause can be named.
pub fn run(arguments: &HangArgs) -> anyhow::Result<()> {
    let evidence = arguments.live.as_deref().map(probe_sync::collect_hang_evidence).transpose()?;
    let files = Files::list(evidence.as_ref().map_or(&arguments.dumps, |evidence| &evidence.files))?;
    let run_dir = arguments.live.as_deref().or(arguments.run_dir.as_deref());
    let Evidence { job, stacks, mut notes } = files.read()?;
    let mut clocks = match clocks(run_dir, arguments.offsets.as_deref(), &job) {
        // A run that has just begun knows no clocks yet.
        Err(error) if evidence.is_some() => {
            notes.push(format!("times of different hosts are not compared: {error:#}"));
            Clocks::default()
        }
        clocks => clocks?,
    };
    if let Some(error) = arguments.clock_error {
        clocks.assume(error.as_ns());
    }
    let verdict = job.judge(&clocks).with_stacks(&stacks);
    if let Some(HangEvidence { folder, .. }) = &evidence {
        let document = serde_json::to_vec_pretty(&verdict)?;
        output::write_whole(&folder.join(VERDICT), &document)?;
    }
    match arguments.json {
        true => output::json(&verdict)?,
        false => tell(&verdict, &notes)?,
    }
    if let Some(HangEvidence { folder, .. }) = evidence.filter(|_| !arguments.json) {
        output::tell(&format!("evidence     {}\n", folder.display()))?;
    }
    match verdict.is_decided() {
        true => Ok(()),
        false => Err(Unjudged("nothing shows which rank stopped the job".to_owned()).into()),
    }
}

/// Returns the section of the report page on a hung job, from its dumps and the run that measured
/// its clocks.
///
/// # Errors
/// Those of [`run`], but for a cause that cannot be named.
pub fn section(dumps: &[PathBuf], run_dir: &Path) -> anyhow::Result<Hang> {
    let Evidence { job, stacks, notes } = Files::list(dumps)?.read()?;
    let clocks = clocks(Some(run_dir), None, &job).unwrap_or_default();
    let mut section = Hang::new(&job, &job.judge(&clocks).with_stacks(&stacks), &clocks);
    notes.into_iter().for_each(|note| section.note(note));
    Ok(section)
}

/// Returns the evidence in a run's directory that was judged last, if its verdict names a cause.
/// What ranks wrote later says nothing about the hang.
pub fn latest_evidence(run_dir: &Path) -> Option<Vec<PathBuf>> {
    let of_masters = continuations(&run_dir.join("run.json")).into_iter();
    let folders = of_masters.filter_map(|(_, file)| Some(file.parent()?.join("hang"))).chain([run_dir.join("hang")]);
    let collected = folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flat_map(Iterator::flatten);
    let numbered = collected.filter_map(|folder| Some((folder.file_name().to_str()?.parse().ok()?, folder.path())));
    let (_, path): (u64, PathBuf) = numbered.max()?;
    let verdict = path.join(VERDICT);
    let judged = verdict.metadata().and_then(|metadata| metadata.modified()).ok()?;
    let verdict: serde_json::Value = serde_json::from_slice(&std::fs::read(verdict).ok()?).ok()?;
    let files = std::fs::read_dir(&path).ok()?.flatten();
    let in_time = files.filter(|file| file.metadata().and_then(|of| of.modified()).is_ok_and(|at| at < judged));
    let names_a_cause = verdict["causes"].as_array().is_some_and(|causes| !causes.is_empty());
    names_a_cause.then(|| in_time.map(|file| file.path()).collect())
}

fn tell(verdict: &Verdict, notes: &[String]) -> anyhow::Result<()> {
    output::tell(&verdict.text())?;
    for note in notes.iter().take(NOTES_SHOWN) {
        output::tell(&format!("note         {note}\n"))?;
    }
    if notes.len() > NOTES_SHOWN {
        output::tell(&format!("note         and {} more\n", notes.len() - NOTES_SHOWN))?;
    }
    Ok(())
}

/// Takes the ranks' clocks from a run, or from a file of offsets.
fn clocks(run_dir: Option<&Path>, file: Option<&Path>, job: &Job) -> anyhow::Result<Clocks> {
    let mut clocks = Clocks::default();
    let (survey, offsets) = match (run_dir, file) {
        (Some(folder), _) => {
            let run = RunDirectory::open(folder)?;
            let offsets = run.offsets(run.survey.everything())?;
            (run.survey, offsets)
        }
        (None, Some(file)) => {
            let survey = Survey::read(file)?;
            let offsets = survey.offsets(survey.everything())?;
            (survey, offsets)
        }
        (None, None) => return Ok(clocks),
    };
    let nodes: BTreeMap<u32, u32> = match survey.ranks.is_empty() {
        true => survey.nodes().chain([survey.reference]).map(|node| (node, node)).collect(),
        false => survey.ranks.iter().map(|record| (record.rank, record.node_id.0)).collect(),
    };
    for record in &survey.ranks {
        clocks.set_host(record.rank, &record.hostname);
    }
    for (rank, at_ns) in job.last_enqueues() {
        let Some(node) = nodes.get(&rank) else { continue };
        // A node that was not measured costs only the comparison of its own times.
        let Ok(map) = offsets.map(*node) else { continue };
        let at_ps = i128::from(at_ns) * 1000;
        let (offset_ps, sigma_ns) = map.map_or((0, 0.0), |found| {
            let mapped = found.map.map(at_ps);
            (at_ps - mapped.time_ps, mapped.sigma_ns)
        });
        clocks.set(rank, (offset_ps / 1000) as i64, (SIGMAS * sigma_ns).ceil() as i64);
    }
    Ok(clocks)
}

/// A time difference of more than this many standard deviations is considered real.
const SIGMAS: f64 = 5.0;

const NOTES_SHOWN: usize = 3;
/// The verdict on collected evidence, in its folder.
const VERDICT: &str = "verdict.json";
