//! The JSON documents that front ends give for results of `align`, `merge` and `convert`, with a
//! schema number. `check` has [`VerdictDocument`](crate::VerdictDocument).
//!
//! `docs/schemas` has the schemas. Removing a field or changing its meaning increments the number
//! of its document.

use std::path::PathBuf;

use serde::Serialize;

use crate::{Aligned, AlignmentStats, Calibrated, ConvertReport, MergeReport, Omitted, Outcome, Verdict};

/// Output of `probe_sync align --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Align"))]
pub struct AlignDocument {
    schema: u32,
    /// The traces written.
    traces: Vec<AlignedTrace>,
    /// Traces and events that are missing from every output.
    omitted: Omitted,
    /// Result of the check, with `--validate`.
    outcome: Option<Outcome>,
}

/// One trace and its alignment.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AlignedTrace {
    /// The input file.
    path: PathBuf,
    /// The file written.
    output: PathBuf,
    /// Statistics of the alignment.
    alignment: AlignmentStats,
}

impl AlignDocument {
    /// Describes the traces written, and the verdict if one was requested.
    pub fn new(traces: Vec<AlignedTrace>, calibrated: &Calibrated, verdict: Option<&Verdict<'_>>) -> Self {
        Self { schema: 2, traces, omitted: calibrated.omitted(), outcome: verdict.map(Verdict::outcome) }
    }
}

impl From<Aligned<'_>> for AlignedTrace {
    fn from(Aligned { calibrated, output, stats }: Aligned<'_>) -> Self {
        Self { path: calibrated.trace.path.clone(), output, alignment: stats }
    }
}

/// Output of `probe_sync merge --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Merge"))]
pub struct MergeDocument<'a> {
    schema: u32,
    /// The file written.
    output: PathBuf,
    /// The input files, in the order of `traces`.
    inputs: Vec<PathBuf>,
    /// Traces and events that are missing from the output.
    omitted: Omitted,
    #[serde(flatten)]
    report: &'a MergeReport,
    /// Result of the check, with `--validate`.
    outcome: Option<Outcome>,
}

impl<'a> MergeDocument<'a> {
    /// Describes the file written, and the verdict if one was requested.
    pub fn new(
        output: PathBuf,
        calibrated: &Calibrated,
        report: &'a MergeReport,
        verdict: Option<&Verdict<'_>>,
    ) -> Self {
        let inputs = report.written.iter().map(|place| calibrated.traces[*place].trace.path.clone()).collect();
        let omitted = calibrated.omitted();
        Self { schema: 2, output, inputs, omitted, report, outcome: verdict.map(Verdict::outcome) }
    }
}

/// Output of `probe_sync convert --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Convert"))]
pub struct ConvertDocument {
    schema: u32,
    /// Report on all outputs except CSV; null if only CSV was requested.
    report: Option<ConvertReport>,
    /// The CSV files written.
    csv: Vec<CsvFile>,
    /// Traces and events that are missing from every output except CSV.
    omitted: Omitted,
}

/// One CSV file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CsvFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Number of rows, without the header.
    pub rows: u64,
}

impl ConvertDocument {
    /// Describes the outputs written.
    pub fn new(report: Option<ConvertReport>, csv: Vec<CsvFile>, omitted: Omitted) -> Self {
        Self { schema: 2, report, csv, omitted }
    }
}
