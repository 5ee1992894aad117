//! `hang`: which ranks stopped a job, from the Flight Recorder dumps that it left.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use clap::Args;
use probe_sync_alignment::clocks::RunDirectory;
use probe_sync_files::open_regular;
use probe_sync_hang::{Clocks, Dump, DumpError, Job, Stack, Verdict, rank_in_name};

use crate::output::{self, Usage};
use crate::status::Unjudged;

/// Flags of `hang`.
#[derive(Args, Debug)]
pub struct HangArgs {
    /// Dumps, one per rank, or folders of dumps; each file's name ends with its rank, such as
    /// trace_12 or rank12.json. Stacks of the ranks in a folder (rank_12.stack, rank12.txt) are
    /// shown with the verdict
    #[arg(required = true, value_name = "DUMP")]
    dumps: Vec<PathBuf>,
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
    let files = Files::list(&arguments.dumps)?;
    let (job, mut notes) = read(&files.dumps)?;
    let stacks = files.read_stacks(&mut notes);
    let verdict = job.judge(&clocks(arguments, &job)?).with_stacks(&stacks);
    match arguments.json {
        true => output::json(&verdict)?,
        false => tell(&verdict, &notes)?,
    }
    match verdict.is_decided() {
        true => Ok(()),
        false => Err(Unjudged("the dumps do not show which rank stopped the job".to_owned()).into()),
    }
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

/// The files that were given, each with its rank.
#[derive(Default)]
struct Files {
    dumps: BTreeMap<u32, PathBuf>,
    stacks: BTreeMap<u32, PathBuf>,
}

impl Files {
    /// Lists the files, and those of folders whose names end with a rank.
    fn list(given: &[PathBuf]) -> anyhow::Result<Self> {
        let mut files = Self::default();
        for path in given {
            if !path.is_dir() {
                if !files.add(path)? {
                    let problem = "the file name does not end with a rank, as in trace_12";
                    return Err(anyhow::anyhow!("{}: {problem}", path.display()).context(Usage));
                }
                continue;
            }
            let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
            for entry in entries {
                let entry = entry.with_context(|| format!("cannot read {}", path.display()))?;
                if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                    files.add(&entry.path())?;
                }
            }
        }
        anyhow::ensure!(!files.dumps.is_empty(), "no file name ends with a rank, as in trace_12");
        Ok(files)
    }

    /// Adds a file; returns false if its name does not end with a rank.
    fn add(&mut self, path: &Path) -> anyhow::Result<bool> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let stack = STACKS.iter().find_map(|ending| name.strip_suffix(ending));
        let Some(rank) = rank_in_name(stack.unwrap_or(name)) else { return Ok(false) };
        let files = if stack.is_some() { &mut self.stacks } else { &mut self.dumps };
        match files.insert(rank, path.to_owned()) {
            None => Ok(true),
            Some(other) => Err(anyhow::anyhow!(
                "the names {} and {} are both for rank {rank}; give one of them",
                other.display(),
                path.display()
            )
            .context(Usage)),
        }
    }

    /// Reads the stacks. A file without a stack is left out with a note.
    fn read_stacks(&self, notes: &mut Vec<String>) -> BTreeMap<u32, Stack> {
        let mut stacks = BTreeMap::new();
        for (rank, path) in &self.stacks {
            let mut bytes = Vec::new();
            let read = open_regular(path).and_then(|file| file.take(STACK_BYTES_MAX).read_to_end(&mut bytes));
            match (read, Stack::read(&String::from_utf8_lossy(&bytes))) {
                (Ok(_), Some(stack)) => drop(stacks.insert(*rank, stack)),
                (Ok(_), None) => notes.push(format!("{}: contains no stack", path.display())),
                (Err(error), _) => notes.push(format!("{}: {error}", path.display())),
            }
        }
        stacks
    }
}

/// Reads all dumps, on all processors.
///
/// A file that is not a dump is skipped: its rank counts as one without a dump.
fn read(files: &BTreeMap<u32, PathBuf>) -> anyhow::Result<(Job, Vec<String>)> {
    let list: Vec<(&u32, &PathBuf)> = files.iter().collect();
    let (next, state) = (AtomicUsize::new(0), Mutex::new((Job::new(), BTreeMap::new())));
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(list.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((rank, path)) = list.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let dump = read_one(path);
                    let mut state = state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    let added = dump.and_then(|dump| state.0.add(**rank, &dump).map_err(|error| error.to_string()));
                    if let Err(reason) = added {
                        state.0.add_unusable(**rank, reason.clone());
                        state.1.insert(**rank, format!("{}: {reason}", path.display()));
                    }
                }
            });
        }
    });
    let (job, problems) = state.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if problems.len() == list.len() {
        let first = problems.values().next().map_or("", String::as_str);
        anyhow::bail!("none of the files is a usable dump; {first}");
    }
    Ok((job, problems.into_values().collect()))
}

fn read_one(path: &Path) -> Result<Dump, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    Dump::read(&bytes).map_err(|error| match error {
        DumpError::Empty => "the file is empty".to_owned(),
        other => other.to_string(),
    })
}

/// Takes the uncertainty of the ranks' clocks from a run or from the user.
fn clocks(arguments: &HangArgs, job: &Job) -> anyhow::Result<Clocks> {
    let mut clocks = Clocks::default();
    if let Some(error) = arguments.clock_error {
        clocks.assume(error.as_ns());
    }
    let Some(folder) = &arguments.run_dir else { return Ok(clocks) };
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
/// Endings of files that contain stacks.
const STACKS: [&str; 2] = [".stack", ".txt"];
/// Longest text of a stack that is read.
const STACK_BYTES_MAX: u64 = 4 << 20;
