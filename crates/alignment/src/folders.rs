//! Finds the traces in the files and directories that a caller names.
//!
//! In a directory, a trace is a file named the way a profiler names one, unless its format does not
//! accept it, or a file of JSON that begins like one. Files that this program wrote are
//! skipped; their statistics lie next to them. A directory without traces stands for the Flight Recorder dumps in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::Error;
use probe_sync_formats::{FORMATS, FlightRecorder, TraceFormat, begins_as_trace, detect};

use crate::copies;
use crate::outputs;
use crate::request::{ClockSource, Request};

/// Which files of a folder are meant.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Traces of all formats.
    Traces,
    /// Flight Recorder dumps, under any name.
    Dumps,
    /// Databases, under any name.
    #[cfg(feature = "rocpd")]
    Databases,
}

/// What was found.
pub struct Found {
    /// In the order of the request; those of a folder by name.
    pub paths: Vec<PathBuf>,
    /// One line for each folder.
    pub notes: Vec<String>,
}

/// The traces of a request: those it names, otherwise those of its run.
///
/// # Errors
/// There are none, or those of [`search`].
pub fn of_request(request: &Request) -> Result<Found, Error> {
    match &request.clocks {
        _ if !request.traces.is_empty() => search(request, Wanted::Traces),
        ClockSource::Run(run) => {
            let mut paths = of_run(run, &request.outputs)?;
            let notes = copies::take_off(&mut paths).into_iter().collect();
            Ok(Found { paths, notes })
        }
        _ => {
            let problem = "no traces: give --traces, or a --run-dir that contains traces".to_owned();
            Err(Error::Request { problem })
        }
    }
}

/// Files as they are, and for each folder the wanted files in and below it; copies of a trace are
/// left out unless the order of traces decides.
///
/// # Errors
/// A folder that cannot be listed, holds nothing that is wanted, too much, or folders too deep; a
/// folder where the order of traces decides.
pub fn search(request: &Request, wanted: Wanted) -> Result<Found, Error> {
    let (mut paths, mut folders) = (Vec::new(), Vec::new());
    for path in &request.traces {
        if !path.is_dir() {
            paths.push(path.clone());
            continue;
        }
        if let Some(ordered) = ordered(request) {
            let problem = format!(
                "{}: {ordered} depends on the order of the traces, but the files of a folder have no reliable order (node10 sorts \
                before node2); name the files individually",
                path.display()
            );
            return Err(Error::Request { problem });
        }
        let before = paths.len();
        list(path, DEPTH, wanted, &request.outputs, &mut paths)?;
        if paths.len() == before && wanted == Wanted::Traces {
            list(path, DEPTH, Wanted::Dumps, &request.outputs, &mut paths)?;
        }
        let some = &mut paths[before..];
        if some.is_empty() {
            let problem = format!("{}: there is no {} in this folder", path.display(), wanted.names());
            return Err(Error::Request { problem });
        }
        some.sort();
        folders.push((path, paths[before..].to_vec()));
    }
    let copies = if ordered(request).is_none() { copies::take_off(&mut paths) } else { None };
    let left: BTreeSet<&PathBuf> = paths.iter().collect();
    let of_folder = |(folder, found): &(&PathBuf, Vec<PathBuf>)| {
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let some: Vec<&PathBuf> = found.iter().filter(|path| left.contains(path)).collect();
        let which = match some[..] {
            [one] => name(one),
            [first, .., last] => format!("{} to {}", name(first), name(last)),
            [] => "all of which are copies".to_owned(),
        };
        let traces = if some.len() == 1 { "trace" } else { "traces" };
        format!("{}: {} {traces}, {which}", folder.display(), some.len())
    };
    let notes = folders.iter().map(of_folder).chain(copies).collect();
    Ok(Found { paths, notes })
}

/// Options given in the order of the traces.
fn ordered(request: &Request) -> Option<&'static str> {
    let given = [
        (request.assume_order, "--assume-order"),
        (!request.nodes.is_empty(), "--nodes"),
        (!request.snapshots.is_empty(), "--snapshots"),
    ];
    given.into_iter().find(|(given, _)| *given).map(|(_, flag)| flag)
}

/// Traces in the directory of a run or in its `traces` folder.
///
/// # Errors
/// Returns an error if there are none.
fn of_run(directory: &Path, outputs: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    for folder in [directory.to_owned(), directory.join("traces")] {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        let paths = entries.flatten().map(|entry| entry.path());
        found.extend(paths.filter(|path| named_by_profiler(path) && !is_ours(path, outputs)));
    }
    found.sort();
    if found.is_empty() {
        let problem =
            format!("no {} in {} or its traces folder; give --traces", Wanted::Traces.names(), directory.display());
        return Err(Error::Request { problem });
    }
    Ok(found)
}

impl Wanted {
    /// Names of the kind of files.
    fn names(self) -> String {
        match self {
            Self::Traces => {
                let endings = FORMATS.iter().flat_map(|format| format.profiler_endings());
                format!("trace ({})", endings.map(|ending| format!("*{ending}")).collect::<Vec<_>>().join(", "))
            }
            Self::Dumps => "Flight Recorder dump".to_owned(),
            #[cfg(feature = "rocpd")]
            Self::Databases => "database (*.db)".to_owned(),
        }
    }

    fn is(self, path: &Path, outputs: &[PathBuf]) -> bool {
        match self {
            Self::Traces => (named_by_profiler(path) || begins_as_trace(path)) && !is_ours(path, outputs),
            Self::Dumps => {
                let recorder: &dyn TraceFormat = &FlightRecorder;
                detect(path).is_ok_and(|format| format == recorder)
            }
            #[cfg(feature = "rocpd")]
            Self::Databases => path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("db")),
        }
    }
}

/// Returns true if a profiler names its files so, and the file may be one of them.
fn named_by_profiler(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_named = |format: &dyn TraceFormat| format.profiler_endings().iter().any(|ending| name.ends_with(ending));
    path.is_file() && FORMATS.into_iter().any(|format| is_named(format) && format.accepts(path))
}

/// Whether this program wrote it, or is going to.
fn is_ours(path: &Path, outputs: &[PathBuf]) -> bool {
    outputs::statistics_beside(path).exists()
        || outputs::is_statistics(path)
        || outputs.iter().any(|output| outputs::same_file(output, path))
}

fn list(
    folder: &Path,
    depth: usize,
    wanted: Wanted,
    outputs: &[PathBuf],
    found: &mut Vec<PathBuf>,
) -> Result<(), Error> {
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder, "list"))? {
        let path = entry.map_err(Error::io(folder, "list"))?.path();
        if path.is_dir() {
            // A link that leads back up ends here too.
            if depth == 0 {
                let problem = format!(
                    "{}: folders are nested more than {DEPTH} deep, or a link forms a loop; name the folders that contain traces",
                    path.display()
                );
                return Err(Error::Request { problem });
            }
            list(&path, depth - 1, wanted, outputs, found)?;
        } else if path.is_file() && wanted.is(&path, outputs) {
            found.push(path);
        }
        if found.len() > FILES_MAX {
            let problem = format!("{}: there are more than {FILES_MAX} traces in this folder", folder.display());
            return Err(Error::Request { problem });
        }
    }
    Ok(())
}

/// How many levels below the named folder are searched.
const DEPTH: usize = 8;
const FILES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_stands_for_the_traces_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("b/c")).expect("folders");
        for (name, content) in [
            ("b/c/rank1.pt.trace.json", "{"),
            ("b/rank0.json", r#" {"schemaVersion": 1, "traceEvents": []}"#),
            ("b/report.json", r#"{"rounds": 1}"#),
            ("node.xplane.pb", ""),
            ("notes.sqlite", "no database"),
            ("all.xplane.pb", ""),
            ("all.xplane.pb.alignment_stats.json", r#"{"traceEvents": 1}"#),
        ] {
            std::fs::write(at(name), content).expect("a file");
        }
        let other = rusqlite::Connection::open(at("optuna.sqlite")).expect("a database");
        other.execute_batch("CREATE TABLE trials (id INTEGER)").expect("a table");
        let request = |traces: Vec<PathBuf>| Request { traces, ..Request::default() };
        let found = search(&request(vec![folder.path().to_owned(), at("x")]), Wanted::Traces).expect("found");
        assert_eq!(found.paths, [at("b/c/rank1.pt.trace.json"), at("b/rank0.json"), at("node.xplane.pb"), at("x")]);
        let of_folder = format!("{}: 3 traces, rank1.pt.trace.json to node.xplane.pb", folder.path().display());
        assert_eq!(found.notes, [of_folder]);
        let refused = |request: &Request, part: &str| {
            let said = search(request, Wanted::Traces).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(said.contains(part), "{said}");
        };
        std::fs::create_dir(at("empty")).expect("a folder");
        refused(&request(vec![at("empty")]), "there is no trace (*.pfw, *.pfw.gz, *.pt.trace.json");
        for (name, content) in
            [("_dump_0", r#"{"entries": [], "pg_config": {}"#), ("0.stack", "main"), ("a.json", "{}")]
        {
            std::fs::write(at("empty").join(name), content).expect("a file");
        }
        let found = search(&request(vec![at("empty")]), Wanted::Traces).expect("a dump");
        assert_eq!(found.paths, [at("empty/_dump_0")]);
        refused(&Request { nodes: vec![0], ..request(vec![at("b")]) }, "--nodes depends on the order");
    }
}
