//! Where outputs and their statistics go, and what must not be overwritten.
//!
//! Place in the flow: between the maps and the writing of `align`, `merge` and `check`. Beside an output is
//! `NAME.alignment_stats.json`; those of several aligned traces are in a folder of their own. What it does not do: write traces.

use std::path::{Path, PathBuf};

use probe_sync_files::NewFolders;
use serde::Serialize;

use crate::Error;
use crate::calibrate::{Calibrated, CalibratedTrace};

impl Calibrated {
    /// Refuses outputs that are an input under any name, or whose statistics would be: writing would destroy it.
    ///
    /// # Errors
    /// [`Error::Request`] names both.
    pub fn refuse_overwriting(&self, outputs: &[PathBuf]) -> Result<(), Error> {
        let traces = self.traces.iter().map(|calibrated| calibrated.trace.path.as_path());
        let inputs: Vec<&Path> = self.inputs.iter().map(PathBuf::as_path).chain(traces).collect();
        for output in outputs {
            let statistics = statistics_beside(output);
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

/// One output per trace: `output` itself for a single trace, else a directory, which is made, and vanishes if nothing comes into it.
pub(crate) fn for_each(traces: &[CalibratedTrace], output: &Path) -> Result<(Vec<PathBuf>, NewFolders), Error> {
    if traces.len() == 1 && !output.is_dir() {
        return Ok((vec![output.to_owned()], NewFolders::default()));
    }
    let folders = NewFolders::create(output).map_err(Error::io(output, "create"))?;
    let mut all: Vec<PathBuf> = Vec::new();
    for calibrated in traces {
        let path = output.join(calibrated.trace.path.file_name().unwrap_or_default());
        if all.contains(&path) {
            let problem = format!("two outputs would be {}; align them one by one", path.display());
            return Err(Error::Request { problem });
        }
        all.push(path);
    }
    Ok((all, folders))
}

/// One file under two names; a file that does not exist is nobody's.
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

/// The statistics of one of several outputs: in a folder of their own, because HTA takes every JSON file beside the traces for
/// another trace. The folder is made.
fn statistics_in_folder(output: &Path) -> Result<PathBuf, Error> {
    let folder = output.with_file_name(STATISTICS_FOLDER);
    std::fs::create_dir_all(&folder).map_err(Error::io(&folder, "create"))?;
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(".json");
    Ok(folder.join(name))
}

/// Writes the statistics of an output: beside it, or in the folder of those of several. Beside a pipe or a device nothing belongs.
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

/// What is beside every file that this program wrote.
const STATISTICS: &str = "alignment_stats.json";
const STATISTICS_FOLDER: &str = "alignment_stats";
