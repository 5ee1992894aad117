//! `hang`: which ranks stopped a job, from the Flight Recorder dumps that it left.

mod files;
mod recordings;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use probe_sync_alignment::clocks::RunDirectory;
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
    #[arg(long, value_name = "RUN", conflicts_with_all = ["dumps", "run_dir", "clock_error"])]
    live: Option<PathBuf>,
    /// Directory of the run that measured the job's clocks, used to compare times of ranks on
    /// different hosts
    #[arg(long, value_name = "DIR", conflicts_with = "clock_error")]
    run_dir: Option<PathBuf>,
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
    let files = Files::list(evidence.as_ref().map_or(&arguments.dumps, std::slice::from_ref))?;
    let run_dir = arguments.live.as_ref().or(arguments.run_dir.as_ref());
    let Evidence { job, stacks, notes } = files.read()?;
    let mut clocks = clocks(run_dir, &job)?;
    if let Some(error) = arguments.clock_error {
        clocks.assume(error.as_ns());
    }
    let verdict = job.judge(&clocks).with_stacks(&stacks);
    if let Some(folder) = &evidence {
        let document = serde_json::to_vec_pretty(&verdict)?;
        output::write_whole(&folder.join(VERDICT), &document)?;
    }
    match arguments.json {
        true => output::json(&verdict)?,
        false => tell(&verdict, &notes)?,
    }
    if let Some(folder) = evidence.filter(|_| !arguments.json) {
        output::tell(&format!("evidence     {}\n", folder.display()))?;
    }
    match verdict.is_decided() {
        true => Ok(()),
        false => Err(Unjudged("the dumps do not show which rank stopped the job".to_owned()).into()),
    }
}

/// Returns the section of the report page on a hung job, from its dumps and the run that measured
/// its clocks.
///
/// # Errors
/// Those of [`run`], but for a cause that cannot be named.
pub fn section(dumps: &[PathBuf], run_dir: &PathBuf) -> anyhow::Result<Hang> {
    let Evidence { job, stacks, notes } = Files::list(dumps)?.read()?;
    let clocks = clocks(Some(run_dir), &job)?;
    let mut section = Hang::new(&job, &job.judge(&clocks).with_stacks(&stacks), &clocks);
    notes.into_iter().for_each(|note| section.note(note));
    Ok(section)
}

/// Returns the evidence that was collected last in a run's directory.
pub fn latest_evidence(run_dir: &Path) -> Option<PathBuf> {
    let folders = std::fs::read_dir(run_dir.join("hang")).ok()?.flatten();
    let numbered =
        folders.filter_map(|folder| Some((folder.file_name().to_str()?.parse::<u64>().ok()?, folder.path())));
    numbered.filter(|(_, path)| path.join("arrivals.json").exists()).max().map(|(_, path)| path)
}

fn tell(verdict: &Verdict, notes: &[String]) -> anyhow::Result<()> {
    output::tell(&verdict.text())?;
    for note in notes.iter().take(NOTES_SHOWN) {
        output::tell(&format!("note         {note}\n"))?;
    }
    if notes.len() > NOTES_SHOWN {
        output::tell(&format!("note         and {} more files left out\n", notes.len() - NOTES_SHOWN))?;
    }
    Ok(())
}

/// Takes the ranks' clocks from a run.
fn clocks(run_dir: Option<&PathBuf>, job: &Job) -> anyhow::Result<Clocks> {
    let mut clocks = Clocks::default();
    let Some(folder) = run_dir else { return Ok(clocks) };
    let run = RunDirectory::open(folder)?;
    let offsets = run.offsets(run.survey.everything())?;
    let nodes: BTreeMap<u32, u32> = match run.survey.ranks.is_empty() {
        true => run.survey.nodes().chain([run.survey.reference]).map(|node| (node, node)).collect(),
        false => run.survey.ranks.iter().map(|record| (record.rank, record.node_id.0)).collect(),
    };
    for record in &run.survey.ranks {
        clocks.set_host(record.rank, &record.hostname);
    }
    for (rank, at_ns) in job.last_enqueues() {
        let Some(node) = nodes.get(&rank) else { continue };
        let map = offsets.map(*node)?;
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
