//! The paths of outputs and their statistics, and the files that must not be overwritten.
//!
//! Next to an output lies `NAME.alignment_stats.json`; the statistics of several aligned traces are
//! in a separate directory.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::Error;
use probe_sync_files::{NewFolders, follow_own_links, no_more_open_than};
use serde::Serialize;

use crate::calibrated::{Calibrated, CalibratedTrace};

impl Calibrated {
    /// Refuses outputs that are an input under any name, or whose statistics file would be: writing
    /// would destroy it. New outputs and their statistics get no wider permissions than the inputs.
    ///
    /// # Errors
    /// [`Error::Request`] naming both.
    pub fn refuse_overwriting(&self, outputs: &[PathBuf]) -> Result<(), Error> {
        let traces = self.traces.iter().map(|calibrated| calibrated.trace.path.as_path());
        let inputs: Vec<&Path> = self.inputs.iter().map(PathBuf::as_path).chain(traces).collect();
        for output in outputs {
            let statistics = statistics_beside(output);
            no_more_open_than(&inputs, &[output, &statistics, &in_statistics_folder(output)]);
            if let Some(input) = inputs.iter().find(|input| same_file(input, output) || same_file(input, &statistics)) {
                let (output, input) = (output.display(), input.display());
                return Err(Error::Request {
                    problem: format!("the output {output} would overwrite the input {input}"),
                });
            }
        }
        Ok(())
    }
}

/// One output per trace: `output` itself for a single trace, otherwise a directory, which is
/// created, and removed if nothing is written into it.
pub(crate) fn for_each(traces: &[CalibratedTrace], output: &Path) -> Result<(Vec<PathBuf>, NewFolders), Error> {
    if traces.len() == 1 && !output.is_dir() {
        return Ok((vec![output.to_owned()], NewFolders::default()));
    }
    let folders = NewFolders::create(output).map_err(Error::io(output, "create"))?;
    let mut all: Vec<PathBuf> = Vec::new();
    let names = names(&traces.iter().map(|calibrated| calibrated.trace.path.as_path()).collect::<Vec<_>>());
    for name in names {
        let path = output.join(name);
        if all.contains(&path) {
            let problem = format!("two outputs would both be {}; align them one by one", path.display());
            return Err(Error::Request { problem });
        }
        all.push(path);
    }
    Ok((all, folders))
}

/// Names for the outputs of these inputs: their own, and if two are equal, prefixed by the folders
/// that differ, as in `hostA.1_results.db`.
pub(crate) fn names(inputs: &[&Path]) -> Vec<OsString> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_owned();
    let distinct: BTreeSet<OsString> = inputs.iter().map(|path| name(path)).collect();
    if distinct.len() == inputs.len() {
        return inputs.iter().map(|path| name(path)).collect();
    }
    let absolute: Vec<PathBuf> =
        inputs.iter().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())).collect();
    let shared = |depth: usize| {
        absolute.windows(2).all(|pair| pair[0].components().nth(depth) == pair[1].components().nth(depth))
    };
    let above = (0..)
        .take_while(|depth| shared(*depth) && absolute.iter().all(|path| path.components().count() > depth + 1))
        .count();
    let named = |path: &PathBuf| {
        let parts: Vec<OsString> = path.components().skip(above).map(|part| part.as_os_str().to_owned()).collect();
        parts.join(OsStr::new("."))
    };
    absolute.iter().map(named).collect()
}

/// Whether two names are the same file; a file that does not exist equals no other.
pub(crate) fn same_file(one: &Path, other: &Path) -> bool {
    matches!((std::fs::canonicalize(one), std::fs::canonicalize(other)), (Ok(one), Ok(other)) if one == other)
}

/// The statistics of the only output.
pub(crate) fn statistics_beside(output: &Path) -> PathBuf {
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(STATISTICS);
    output.with_file_name(name)
}

/// Whether a file is called as statistics are.
pub(crate) fn is_statistics(path: &Path) -> bool {
    let in_folder = path.parent().and_then(Path::file_name).is_some_and(|folder| folder == STATISTICS_FOLDER);
    in_folder || path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(STATISTICS))
}

/// The statistics of one of several outputs: in a separate folder, because HTA takes every JSON
/// file beside the traces for another trace. The folder is created.
fn statistics_in_folder(output: &Path) -> Result<PathBuf, Error> {
    let folder = output.with_file_name(STATISTICS_FOLDER);
    let made = follow_own_links(&folder).and_then(|folder| NewFolders::create(&folder));
    made.map_err(Error::io(&folder, "create"))?.keep();
    Ok(in_statistics_folder(output))
}

fn in_statistics_folder(output: &Path) -> PathBuf {
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(".json");
    output.with_file_name(STATISTICS_FOLDER).join(name)
}

/// Writes the statistics of an output: beside it, or in the folder of those of several. Nothing is
/// written beside a pipe or a device.
pub(crate) fn write_statistics(output: &Path, several: bool, statistics: &impl Serialize) -> Result<(), Error> {
    if probe_sync_files::is_stream(output) {
        return Ok(());
    }
    let place = if several { statistics_in_folder(output)? } else { statistics_beside(output) };
    write_json(&place, statistics)
}

/// Writes a document as JSON for people.
pub(crate) fn write_json(path: &Path, document: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(document).map_err(|error| Error::io(path, "write")(error.into()))?;
    probe_sync_files::write_whole(path, format!("{text}\n").as_bytes()).map_err(Error::io(path, "write"))
}

/// Name of the file beside every output of this program.
const STATISTICS: &str = "alignment_stats.json";
const STATISTICS_FOLDER: &str = "alignment_stats";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_of_one_name_are_told_apart_by_their_folders() {
        let check = |inputs: &[&str], expected: &[&str]| {
            let inputs: Vec<&Path> = inputs.iter().map(Path::new).collect();
            assert_eq!(names(&inputs), expected);
        };
        check(&["a/1.db", "a/2.db"], &["1.db", "2.db"]);
        check(&["/t/hostA/1.db", "/t/hostB/1.db"], &["hostA.1.db", "hostB.1.db"]);
        check(&["/t/hostA/x/1.db", "/t/hostB/1.db", "/t/hostB/2.db"], &["hostA.x.1.db", "hostB.1.db", "hostB.2.db"]);
        // One file twice stays one name, and is refused.
        check(&["/t/1.db", "/t/1.db"], &["1.db", "1.db"]);
    }
}
