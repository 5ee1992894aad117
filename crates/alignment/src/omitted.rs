//! The parts of the traces that are missing from every result: unreadable files, and events with
//! implausible times.
//!
//! Every command's JSON document contains them.

use std::path::PathBuf;

use serde::Serialize;

/// Traces and events that are missing from every result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Omitted {
    /// Traces that cannot be read, if the request allows omitting them; otherwise one such trace is
    /// an error.
    pub traces: Vec<OmittedTrace>,
    /// Omitted events of the other traces.
    pub events: Vec<OmittedEvents>,
}

/// A trace that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OmittedTrace {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with the trace.
    pub reason: String,
}

/// Events with implausible times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OmittedEvents {
    /// The file.
    pub path: PathBuf,
    /// Rank that wrote the file, if known.
    pub rank: Option<u32>,
    /// What is wrong with the times, such as `with a negative length`.
    pub reason: &'static str,
    /// Number of events.
    pub events: u64,
}
