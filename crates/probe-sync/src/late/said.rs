//! What ranks tell each other outside of rounds.

use serde::{Deserialize, Serialize};

/// Messages between ranks outside of rounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// To the root: arrivals of the sender.
    Arrivals(Vec<u8>),
    /// From the root: the late ranks.
    Standing(Vec<u8>),
    /// From the root: evidence of a hang is wanted; the number of the request.
    HangRequest(u64),
    /// To the root: what the sender has answered to a request.
    HangAnswer(u64, Answer),
}

/// What a rank has answered.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// Nothing.
    #[default]
    None,
    /// Its session has answered, its program not yet.
    SessionOnly,
    /// It has written what it has.
    Complete,
}
