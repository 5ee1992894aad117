//! Requests to a session from another process: start, stop, save a copy, report the status.
//!
//! A session with [`Builder::on_demand`](crate::Builder::on_demand) or
//! [`Builder::control`](crate::Builder::control) listens at a Unix-domain socket in a folder, named
//! `record.rank3.4711.sock` after rank and process, which only its user may open.
//! `probe_sync record` and other tools [`ask`] there. The protocol is one line of JSON in each
//! direction:
//!
//! | asked | answered |
//! |---|---|
//! | `{"verb":"start"}`, `{"verb":"start","window_ns":[FROM,TO]}` | `{"answer":{…}}`: [`Answer`] |
//! | `{"verb":"stop"}` | the same |
//! | `{"verb":"snapshot"}`, `{"verb":"snapshot","folder":"/…"}` | the same, with the copy's file in `saved` |
//! | `{"verb":"status"}` | the same |
//! | anything else, or what cannot be now | `{"error":"why, and what to do"}` |
//!
//! A line has at most [`LINE_MAX`] bytes, and an end in time: who is silent is let go.
//!
//! It does not reach other hosts: the folder may be shared, but a socket belongs to its host.

mod client;
pub(crate) mod line;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::session::Standing;

pub use client::{ask, sockets};
pub use line::LINE_MAX;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Begin to record.
    Start {
        /// From when to when on the reference clock, ns since the Unix epoch; None: from now until
        /// it is stopped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window_ns: Option<[i64; 2]>,
    },
    /// Stop, also what was agreed on and has not begun.
    Stop,
    /// Write what there is now into a file; recording goes on.
    Snapshot {
        /// The folder that it shall lie in; None: the socket's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folder: Option<PathBuf>,
    },
    /// Say how the session stands.
    Status,
}

/// What a session says, when it has done what it was asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Answer {
    /// Configuration, whether it records now, counts.
    pub standing: Standing,
    /// The span of the reference clock that is agreed on and not over.
    pub window_ns: Option<[i64; 2]>,
    /// What its reference clock shows, if it has one and that is known.
    pub reference_ns: Option<i64>,
    /// The file of a copy.
    pub saved: Option<PathBuf>,
}

/// A line of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Told {
    Answer(Box<Answer>),
    Error(String),
}

/// Names of sockets.
pub(crate) const PREFIX: &str = "record.";
pub(crate) const SUFFIX: &str = ".sock";
