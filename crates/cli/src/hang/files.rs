//! The files that show where the ranks of a job are, by rank, and what is in them.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use probe_sync_files::open_regular;
use probe_sync_hang::{Counts, Dump, DumpError, Job, Stack, rank_in_name};

use super::recordings;
use crate::output::Usage;

/// What the files say.
pub struct Evidence {
    pub job: Job,
    pub stacks: BTreeMap<u32, Stack>,
    /// Files that were left out, and why.
    pub notes: Vec<String>,
}

/// The files that were given, each with its rank.
#[derive(Default)]
pub struct Files {
    dumps: BTreeMap<u32, PathBuf>,
    stacks: BTreeMap<u32, PathBuf>,
    /// Files with counts of all ranks.
    counts: Vec<PathBuf>,
    /// Recordings of the event recorder.
    recordings: Vec<PathBuf>,
}

impl Files {
    /// Lists the files, and those of folders whose names end with a rank.
    ///
    /// # Errors
    /// Names a file that cannot belong to a rank, and two that belong to one.
    pub fn list(given: &[PathBuf]) -> anyhow::Result<Self> {
        let mut files = Self::default();
        for path in given {
            if !path.is_dir() {
                if !files.add(path)? {
                    if path.extension().is_none_or(|extension| extension != "json") {
                        let problem = "the file name does not end with a rank, as in trace_12";
                        return Err(anyhow::anyhow!("{}: {problem}", path.display()).context(Usage));
                    }
                    files.counts.push(path.clone());
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
        let has_any = !files.dumps.is_empty() || !files.counts.is_empty() || !files.recordings.is_empty();
        anyhow::ensure!(has_any, "no file name ends with a rank, as in trace_12");
        Ok(files)
    }

    /// Adds a file; returns false if its name does not end with a rank.
    fn add(&mut self, path: &Path) -> anyhow::Result<bool> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let stack = STACKS.iter().find_map(|ending| name.strip_suffix(ending));
        let is_ras =
            name.strip_suffix("ras.json").is_some_and(|rest| rest.is_empty() || rest.ends_with(['_', '-', '.']));
        if name == "arrivals.json" || is_ras {
            self.counts.push(path.to_owned());
            return Ok(true);
        }
        if name.ends_with(".rec") {
            self.recordings.push(path.to_owned());
            return Ok(true);
        }
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

    /// Reads the dumps on all processors, the recordings of ranks without a dump, the stacks and
    /// the counts.
    ///
    /// A file that is not a dump is skipped: its rank counts as one without a dump.
    ///
    /// # Errors
    /// Names a file that cannot be read, and an unusable one if all are unusable.
    pub fn read(&self) -> anyhow::Result<Evidence> {
        let (mut job, mut notes) = read(&self.dumps);
        let mut usable = self.dumps.len() - notes.len();
        let mut stacks = self.read_stacks(&mut notes);
        // Groups and numbers of dumps and of recordings are not the same.
        let (has_dumps, recordings) = (usable > 0, recordings::latest(&self.recordings, &mut notes));
        for (rank, found) in recordings {
            if let Some(stack) = found.stack {
                stacks.entry(rank).or_insert(stack);
            }
            match found.dump {
                _ if has_dumps => {}
                Ok(dump) => {
                    job.add(rank, &dump)?;
                    usable += 1;
                }
                Err(reason) => job.add_unusable(rank, reason.to_owned()),
            }
        }
        for path in &self.counts {
            let file = open_regular(path).with_context(|| format!("cannot read {}", path.display()))?;
            let mut bytes = Vec::new();
            file.take(Counts::MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
            match Counts::read(&bytes) {
                Ok(counts) => {
                    job.add_counts(&counts);
                    usable += 1;
                }
                Err(error) => notes.push(format!("{}: {error}", path.display())),
            }
        }
        anyhow::ensure!(usable > 0, "none of the files is a usable dump; {}", notes.first().map_or("", String::as_str));
        Ok(Evidence { job, stacks, notes })
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

fn read(files: &BTreeMap<u32, PathBuf>) -> (Job, Vec<String>) {
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
    (job, problems.into_values().collect())
}

fn read_one(path: &Path) -> Result<Dump, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    Dump::read(&bytes).map_err(|error| match error {
        DumpError::Empty => "the file is empty".to_owned(),
        other => other.to_string(),
    })
}

/// Endings of files that contain stacks.
const STACKS: [&str; 2] = [".stack", ".txt"];
/// Longest text of a stack that is read.
const STACK_BYTES_MAX: u64 = 4 << 20;
