//! One output per trace, for formats that describe a single process.
//!
//! A file is created when its trace is read and finished right after, so only one is open at a
//! time; all of them appear together with the other outputs. All count from one base, because xprof
//! draws each file from its own start.

use std::path::{Path, PathBuf};

use crate::Error;
use probe_sync_files::AtomicFile;
use probe_sync_formats::chunk::Chunk;
use probe_sync_writers::{Meta, OutputFormat, TraceFile};

use super::file::{Written, base_ns, finished};
use crate::calibrated::Calibrated;
use crate::outputs;
use crate::provenance;

/// The files of all traces.
pub(super) struct Each {
    format: OutputFormat,
    files: Vec<(PathBuf, Meta)>,
    /// The file of the trace that is currently read.
    open: Option<TraceFile>,
    done: Vec<(AtomicFile, Written)>,
}

/// The names of the files: prefix, the trace's own name, and ending.
pub(super) fn paths(beginning: &Path, ending: &str, calibrated: &Calibrated) -> Vec<PathBuf> {
    let traces: Vec<&Path> = calibrated.traces.iter().map(|calibrated| calibrated.trace.path.as_path()).collect();
    let named = |trace: std::ffi::OsString| {
        let trace = trace.to_string_lossy().into_owned();
        let mut name = beginning.file_name().unwrap_or_default().to_owned();
        name.push(format!("_{}{ending}", without_ending(&trace)));
        beginning.with_file_name(name)
    };
    outputs::names(&traces).into_iter().map(named).collect()
}

impl Each {
    pub(super) fn new(
        beginning: &Path,
        format: OutputFormat,
        ending: &str,
        calibrated: &Calibrated,
    ) -> Result<Self, Error> {
        let paths = paths(beginning, ending, calibrated);
        if let Some(twice) = (1..paths.len()).find(|index| paths[..*index].contains(&paths[*index])) {
            let problem = format!("two outputs would both be {}; convert them one by one", paths[twice].display());
            return Err(Error::Request { problem });
        }
        let meta = |part: usize| {
            let trace = &calibrated.traces[part];
            let metadata = provenance::of_trace(calibrated, trace);
            let world_size = trace.trace.facts.identity.world_size;
            Meta { base_ns: base_ns(calibrated), metadata, world_size, ..Meta::default() }
        };
        let files = paths.into_iter().enumerate().map(|(part, path)| (path, meta(part))).collect();
        Ok(Self { format, files, open: None, done: Vec::new() })
    }

    /// Writes a chunk of a trace, whose tracks are numbered from 0 on.
    pub(super) fn write(&mut self, trace: usize, chunk: &Chunk) -> Result<(), Error> {
        Ok(self.file(trace)?.write(chunk)?)
    }

    /// Ends the file of a trace; a trace without events also has a file.
    pub(super) fn end(&mut self, trace: usize) -> Result<(), Error> {
        self.file(trace)?;
        if let Some(file) = self.open.take() {
            self.done.push(finished(file)?);
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Vec<(AtomicFile, Written)> {
        self.done
    }

    fn file(&mut self, trace: usize) -> Result<&mut TraceFile, Error> {
        let (path, meta) = &self.files[trace];
        match &mut self.open {
            Some(file) => Ok(file),
            none => Ok(none.insert(TraceFile::create(path, self.format, meta)?)),
        }
    }
}

/// A trace's name without the endings of its format.
fn without_ending(name: &str) -> &str {
    let plain = name.strip_suffix(".gz").unwrap_or(name);
    ENDINGS.iter().find_map(|ending| plain.strip_suffix(ending)).unwrap_or(plain)
}

/// Endings of traces, longer ones first.
const ENDINGS: [&str; 9] =
    [".pt.trace.json", ".xplane.pb", ".pftrace", ".perfetto-trace", ".json", ".pb", ".db", ".sqlite", ".rpd"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_what_says_of_which_format_they_are() {
        let check = |name: &str, expected: &str| assert_eq!(without_ending(name), expected);
        check("rank3.17951871.pt.trace.json.gz", "rank3.17951871");
        check("host7.xplane.pb", "host7");
        check("2710_results.db", "2710_results");
        check("trace", "trace");
    }
}
