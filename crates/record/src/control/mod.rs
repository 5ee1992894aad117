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

/// A request to a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Starts recording.
    Start {
        /// Start and end on the reference clock, ns since the Unix epoch; `None`: from now until
        /// stopped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window_ns: Option<[i64; 2]>,
    },
    /// Stops recording, and cancels a scheduled recording.
    Stop,
    /// Writes a copy of the recording to a file; recording continues.
    Snapshot {
        /// Folder for the copy; `None`: that of the socket.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folder: Option<PathBuf>,
    },
    /// Asks for the state of the session.
    Status,
}

/// Answer of a session after it has carried out a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Answer {
    /// Configuration, state and counts.
    pub standing: Standing,
    /// Scheduled span on the reference clock that has not ended yet, ns.
    pub window_ns: Option<[i64; 2]>,
    /// Current reference time, ns, if the session has a reference clock and the time is known.
    pub reference_ns: Option<i64>,
    /// File of the copy.
    pub saved: Option<PathBuf>,
}

/// One line of a session's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Told {
    Answer(Box<Answer>),
    Error(String),
}

/// Prefix of socket names.
pub(crate) const PREFIX: &str = "record.";
pub(crate) const SUFFIX: &str = ".sock";
