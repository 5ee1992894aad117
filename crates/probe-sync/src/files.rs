//! The files of a run, written so that a killed run leaves every finished round readable.
//!
//! Place in the flow: last stage of a round. Streams are JSON lines, appended one whole line at a time; a reader copes
//! with a last line cut short. Whole documents (`run.json`, `truth.json`, `metrics.prom`) are written beside and
//! renamed. A directory of an earlier run is never overwritten: it moves aside to `NAME.1`, `NAME.2`, …
//!
//! What it does not do: read (see `solve` and the readers of other crates).

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use probe_sync_estimate::window::{GlobalWindowData, NodeEstimate};
use probe_sync_time::{Exchange, NodeId, RunId, StampSource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Error;

/// The directory of one run.
#[derive(Clone, Debug)]
pub struct RunDirectory {
    path: PathBuf,
}

impl RunDirectory {
    /// Opens the directory for a run. What an earlier run left there moves aside first. Ranks that share the directory
    /// with the root find `run.json` of their own run and leave it in place.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn open(path: &Path, run: RunId) -> Result<Self, Error> {
        let occupied = fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
        if occupied && run_in(path) != Some(run.to_string()) {
            let aside = free_name(path)?;
            fs::rename(path, &aside).map_err(Error::file(path, "move aside"))?;
        }
        for part in ["windows", "probes"] {
            fs::create_dir_all(path.join(part)).map_err(Error::file(&path.join(part), "create"))?;
        }
        Ok(Self { path: path.into() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a whole document beside its place, then renames it there.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn write_document(&self, name: &str, content: &str) -> Result<(), Error> {
        write_whole(&self.path.join(name), content.as_bytes())
    }

    /// Starts a JSON-lines stream.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn stream(&self, name: &str) -> Result<JsonLines, Error> {
        JsonLines::create(&self.path.join(name))
    }
}

/// Writes a file beside its place, then renames it there, so that no half-written file looks whole.
///
/// # Errors
/// [`Error::File`] names the path.
pub fn write_whole(path: &Path, content: &[u8]) -> Result<(), Error> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let beside = path.with_file_name(name);
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&beside)?;
        file.write_all(content)?;
        file.sync_data()?;
        fs::rename(&beside, path)
    };
    write().map_err(Error::file(path, "write"))
}

/// An append-only stream of JSON objects, one a line.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    writer: BufWriter<File>,
    line: Vec<u8>,
}

impl JsonLines {
    /// Creates the file.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let file = File::create(path).map_err(Error::file(path, "create"))?;
        Ok(Self { path: path.into(), writer: BufWriter::new(file), line: Vec::new() })
    }

    /// Appends one object.
    ///
    /// # Errors
    /// [`Error::File`] names the path, as when the disk is full.
    pub fn append<T: Serialize>(&mut self, value: &T) -> Result<(), Error> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, value).expect("our types serialise to JSON and a Vec takes any bytes");
        self.line.push(b'\n');
        self.writer.write_all(&self.line).map_err(Error::file(&self.path, "append to"))
    }

    /// Hands everything to the operating system: a killed process loses nothing before this point.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.writer.flush().map_err(Error::file(&self.path, "append to"))
    }
}

/// A line of `offsets.jsonl`. The first ten keys are what existing combiners read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OffsetLine {
    /// The round.
    pub round_id: u64,
    /// The window.
    pub window_id: u64,
    /// The window's start on the reference clock.
    pub window_start_ns: i64,
    /// The window's end on the reference clock; the offset holds at the middle.
    pub window_end_ns: i64,
    /// The estimate.
    #[serde(flatten)]
    pub estimate: NodeEstimate,
}

/// The first line of `offsets.jsonl`.
pub fn offsets_meta(nodes: &[(String, i64, i64)]) -> Value {
    let nodes: Vec<Value> = nodes
        .iter()
        .enumerate()
        .map(|(node, (hostname, walltime, tracer))| {
            json!({"node_id": node, "hostname": hostname, "start_walltime_ns": walltime, "start_gpu_ns": tracer})
        })
        .collect();
    json!({"meta": true, "nodes": nodes})
}

/// The lines of `offsets.jsonl` for one solved round.
pub fn offset_lines(round: &GlobalWindowData) -> impl Iterator<Item = OffsetLine> + '_ {
    round.all_nodes.iter().map(|estimate| OffsetLine {
        round_id: round.round_id,
        window_id: round.window_id,
        window_start_ns: round.window_start_ns,
        window_end_ns: round.window_end_ns,
        estimate: estimate.clone(),
    })
}

/// A raw exchange: a line of `probes/nodeN.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeLine {
    /// The round whose window the exchange finished in.
    pub round_id: u64,
    /// The node that probed.
    pub src: NodeId,
    /// The node that answered.
    pub dst: NodeId,
    /// Counts the exchanges of the edge.
    pub seq: u32,
    /// Where the stamps were taken.
    pub stamp: StampSource,
    /// `[pt1_tx, pt1_rx, pt2_tx, pt2_rx, pr1_tx, pr1_rx, pr2_tx, pr2_rx]`, ns.
    pub t: [i64; 8],
}

impl ProbeLine {
    /// The line for an exchange.
    pub fn new(round_id: u64, exchange: &Exchange) -> Self {
        Self {
            round_id,
            src: exchange.edge.src,
            dst: exchange.edge.dst,
            seq: exchange.seq,
            stamp: exchange.stamp,
            t: exchange.t.map(|stamp| stamp.as_ns()),
        }
    }
}

/// Closes a window in `probes/nodeN.jsonl`: where it began and ended and what was lost in it, so that `solve` cuts the
/// same windows. Readers that know only exchanges skip lines with `meta`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeWindowLine {
    /// Always true.
    pub meta: bool,
    /// The round.
    pub round_id: u64,
    /// The node that probed.
    pub src: NodeId,
    /// The window's start on that node's clock.
    pub window_start_ns: i64,
    /// The window's end on that node's clock.
    pub window_end_ns: i64,
    /// Lost exchanges by destination.
    pub lost: Vec<(NodeId, u32)>,
}

fn run_in(directory: &Path) -> Option<String> {
    let text = fs::read_to_string(directory.join("run.json")).ok()?;
    serde_json::from_str::<Value>(&text).ok()?.get("run_id")?.as_str().map(str::to_owned)
}

fn free_name(path: &Path) -> Result<PathBuf, Error> {
    (1..MAX_OLD_RUNS)
        .map(|number| {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(format!(".{number}"));
            path.with_file_name(name)
        })
        .find(|candidate| !candidate.exists())
        .ok_or_else(|| Error::TooManyOldRuns { path: path.into() })
}

const MAX_OLD_RUNS: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_run_moves_aside_and_our_own_stays() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let path = parent.path().join("out");
        for run in [RunId(1), RunId(2), RunId(3)] {
            let directory = RunDirectory::open(&path, run).expect("a writable directory");
            directory.write_document("run.json", &json!({"run_id": run.to_string()}).to_string()).expect("writable");
            RunDirectory::open(&path, run).expect("a rank that shares the directory");
            assert_eq!(run_in(&path), Some(run.to_string()));
        }
        assert_eq!(run_in(&parent.path().join("out.1")), Some(RunId(1).to_string()));
        assert_eq!(run_in(&parent.path().join("out.2")), Some(RunId(2).to_string()));
        assert!(!parent.path().join("out.3").exists());
    }

    #[test]
    fn errors_name_the_path() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let file = parent.path().join("plain");
        fs::write(&file, "x").expect("writable");
        let error = RunDirectory::open(&file.join("out"), RunId(1)).expect_err("a file is no directory");
        assert!(error.to_string().contains("plain"), "{error}");
    }
}
