//! The parts of the traces that are missing from every result: unreadable files, and events with
//! implausible times.
//!
//! Every command's JSON document contains them.

use std::path::PathBuf;

use serde::Serialize;

/// What of the traces is in no result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Omitted {
    /// Traces that cannot be read, where the request allows to leave them out; else one refuses
    /// all.
    pub traces: Vec<OmittedTrace>,
    /// Events of the others.
    pub events: Vec<OmittedEvents>,
}

/// A trace that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OmittedTrace {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// Events whose times cannot be believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OmittedEvents {
    /// The file.
    pub path: PathBuf,
    /// The rank that wrote it, where known.
    pub rank: Option<u32>,
    /// What is wrong with their times, as in `with a negative length`.
    pub reason: &'static str,
    /// How many there are.
    pub events: u64,
}
