//! The traces of a request, and the snapshot pairs that belong to them.
//!
//! Place in the flow: second step of `calibrate`, after the source is open, because a run knows its hosts. What it does not
//! do: read a trace itself; its format does.

use std::path::{Path, PathBuf};

use super::Request;
use super::source::Source;
use crate::Error;
use crate::clocks::{Snapshots, read_snapshots};
use crate::formats::{FORMATS, FactOptions};
use crate::nodes::{self, NodeTrace};
use crate::outputs;

/// The traces of a request.
pub(super) struct Traces {
    /// In the caller's order.
    pub(super) paths: Vec<PathBuf>,
    /// In order of nodes.
    pub(super) read: Vec<NodeTrace>,
    /// Why others were left out, where that is allowed.
    pub(super) left_out: Vec<Error>,
}

/// Reads what all traces say and settles whose they are.
pub(super) fn read(request: &Request, source: &Source) -> Result<Traces, Error> {
    let markers = request.markers.clone();
    if markers.as_ref().is_some_and(|regex| !regex.capture_names().flatten().any(|name| name == "system_ns")) {
        let problem =
            "--snapshot-markers: the pattern needs a group named system_ns, as in clk#(?<system_ns>\\d+)".to_owned();
        return Err(Error::Request { problem });
    }
    if request.assume_order && (request.traces.is_empty() || !request.nodes.is_empty()) {
        let problem =
            "--assume-order goes with a list of --traces and without --nodes: it is their order that counts".to_owned();
        return Err(Error::Request { problem });
    }
    let paths = match source {
        _ if !request.traces.is_empty() => request.traces.clone(),
        Source::Run(run) => traces_in(run.path(), &request.outputs)?,
        _ => {
            let problem = "no traces: give --traces, or --run-dir with traces in it".to_owned();
            return Err(Error::Request { problem });
        }
    };
    let said = nodes::Said { nodes: &request.nodes, in_order: request.assume_order, skip_bad: request.skip_bad };
    let cpu_clock = request.cpu_clock.clone();
    let options = FactOptions { markers, thorough: request.skip_bad, cpu_clock, ..FactOptions::default() };
    let (read, mut left_out) = nodes::read(&paths, &said, &source.known(), &source.marks()?, &options)?;
    if read.is_empty() && !left_out.is_empty() {
        return Err(left_out.swap_remove(0));
    }
    let of_no_such_rows = read.iter().find(|trace| trace.facts.cpu_behind_ns.is_none());
    if let Some(trace) = of_no_such_rows.filter(|_| request.cpu_clock.is_some()) {
        let (path, format) = (trace.path.display(), trace.format.name());
        let problem =
            format!("{path}: --cpu-clock is of databases of rocprof-sys, and this is a trace of the format {format}");
        return Err(Error::Request { problem });
    }
    Ok(Traces { paths, read, left_out })
}

/// The snapshot pairs of each trace, in the traces' sorted order: from the files given, else from the run. What is worth telling of
/// them goes to the traces' notes.
pub(super) fn snapshots(
    request: &Request,
    source: &Source,
    paths: &[PathBuf],
    traces: &mut [NodeTrace],
) -> Result<Vec<Option<Snapshots>>, Error> {
    let files = &request.snapshots;
    if !(files.is_empty() || files.len() == paths.len()) {
        let problem = format!("{} traces, but {} snapshot files", paths.len(), files.len());
        return Err(Error::Request { problem });
    }
    let of = |trace: &mut NodeTrace| {
        let near = trace.facts.span;
        let given = paths.iter().position(|path| *path == trace.path).and_then(|at| files.get(at));
        match (given, source) {
            (Some(file), _) => Ok(Some(read_snapshots(file, near)?)),
            (None, Source::Run(run)) if !request.realtime_only => {
                let found = run.snapshots(trace.node, near)?;
                trace.facts.notes.extend(found.iter().flat_map(|found| found.notes.iter().cloned()));
                Ok(found)
            }
            (None, _) => Ok(None),
        }
    };
    traces.iter_mut().map(of).collect()
}

/// Traces in a run's directory or in its `traces` folder; not what this program wrote, which has its statistics
/// beside it.
fn traces_in(directory: &Path, outputs: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let endings: Vec<&str> = FORMATS.iter().flat_map(|format| format.profiler_endings()).copied().collect();
    let mut found = Vec::new();
    for folder in [directory.to_owned(), directory.join("traces")] {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        found.extend(entries.flatten().map(|entry| entry.path()).filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let trace = endings.iter().any(|ending| name.ends_with(ending));
            let ours = outputs::statistics_beside(path).exists()
                || outputs.iter().any(|output| outputs::same_file(output, path));
            trace && !ours
        }));
    }
    found.sort();
    if found.is_empty() {
        let names: Vec<String> = endings.iter().map(|ending| format!("*{ending}")).collect();
        let (names, directory) = (names.join(" or "), directory.display());
        let problem = format!("no {names} in {directory} or its traces folder; give --traces");
        return Err(Error::Request { problem });
    }
    Ok(found)
}
