//! The document `perfetto_manifest`, version 1, as it is written.
//!
//! Reference: Perfetto's `docs/reference/perfetto-manifest.md`; names are those of that page. Trace
//! processor recognises the document by its first bytes, so its only key comes first.

use std::collections::BTreeMap;

use serde::Serialize;

/// The document.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Manifest {
    perfetto_manifest: Content,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Content {
    version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_time: Option<TraceTime>,
    files: Vec<Entry>,
    attributes: BTreeMap<String, String>,
}

/// The clock that all events are shown on.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TraceTime {
    pub(super) clock: &'static str,
    pub(super) file: String,
}

/// Description of a file.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Entry {
    path: String,
    machine: MachineName,
    #[serde(skip_serializing_if = "Option::is_none")]
    clocks: Option<Clocks>,
}

#[derive(Clone, Debug, Serialize)]
struct MachineName {
    name: String,
}

/// Relation of a file's clock to that of another file.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Clocks {
    /// Left out of a file that states no clock: its own timeline is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) clock: Option<&'static str>,
    pub(super) sync_to: Reference,
    /// When the file's clock shows T, the other shows T plus this.
    pub(super) offset_ns: i64,
}

/// The other clock.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Reference {
    pub(super) file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) clock: Option<&'static str>,
}

impl Manifest {
    pub(super) fn new(trace_time: Option<TraceTime>, files: Vec<Entry>, attributes: BTreeMap<String, String>) -> Self {
        Self { perfetto_manifest: Content { version: VERSION, trace_time, files, attributes } }
    }
}

impl Entry {
    pub(super) fn new(path: String, machine: String, clocks: Option<Clocks>) -> Self {
        Self { path, machine: MachineName { name: machine }, clocks }
    }
}

const VERSION: u32 = 1;
