//! A summary of the contents of one output of a conversion.

use std::path::PathBuf;

use crate::Error;
use probe_sync_files::AtomicFile;
use probe_sync_formats::model::{PS_PER_NS, Picoseconds};
use probe_sync_writers::{TraceFile, WriteReport};
use serde::Serialize;

use crate::calibrated::Calibrated;
use crate::window;

/// One output written.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Written {
    /// The file or folder.
    pub path: PathBuf,
    /// Contents of the output.
    pub report: WriteReport,
}

impl Written {
    /// Returns notes for the user.
    pub fn notes(&self) -> Vec<String> {
        let WriteReport { lanes, unbound_flow_ends, clock_pairs, clock_off_ns, .. } = self.report;
        let lanes = (lanes > 0).then(|| format!("{lanes} more tracks for slices that overlap without nesting"));
        let unbound = (unbound_flow_ends > 0)
            .then(|| format!("{unbound_flow_ends} flow ends start at no slice and were dropped"));
        let clocks = (clock_pairs > 0).then(|| {
            format!("times are on their hosts' clocks; {clock_pairs} pairs of instants describe the differences, with an error of at \
                most {clock_off_ns} ns")
        });
        lanes.into_iter().chain(unbound).chain(clocks).collect()
    }
}

/// Finishes a file that has no name yet.
pub(super) fn finished(file: TraceFile) -> Result<(AtomicFile, Written), Error> {
    let path = file.path().to_owned();
    let (file, report) = file.finish()?;
    Ok((file, Written { path, report }))
}

/// Returns the base for formats that count from one: a whole second before the first event, so that
/// no time is negative.
pub(crate) fn base_ns(calibrated: &Calibrated) -> i64 {
    let starts = calibrated.traces.iter().filter_map(window::mapped_span).map(|(first, _)| first);
    let first = starts.min().unwrap_or(0) / PS_PER_NS;
    let whole = (first - NS_PER_S).div_euclid(NS_PER_S) * NS_PER_S;
    i64::try_from(whole.max(0)).unwrap_or(0)
}

const NS_PER_S: Picoseconds = 1_000_000_000;
