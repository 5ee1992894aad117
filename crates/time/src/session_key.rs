//! [`SessionKey`]: what proves that a packet is of this run.
//!
//! Rank 0 draws it in the handshake, every rank learns it with the plan, and crate `probe`
//! authenticates packets with it. It is never written to a file or shown in a message. Drawing and
//! using it are left to other crates.

use std::fmt;

use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};

/// The secret that all ranks of one run share. It is drawn for the run and discarded with it.
#[derive(Copy, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SessionKey(pub [u8; 32]);

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(..)")
    }
}

impl Serialize for SessionKey {
    /// Serialises for messages between ranks. Files contain text, and text forms are refused.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return Err(S::Error::custom("a session key is written to no file"));
        }
        self.0.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_neither_printed_nor_written_as_text() {
        let key = SessionKey([0xa7; 32]);
        let shown = format!("{key:?} {:#?}", Some(key));
        assert!(!shown.contains("a7") && !shown.contains("167"), "{shown}");
        let refused = serde_json::to_string(&key).expect_err("JSON is text");
        assert!(refused.to_string().contains("no file"), "{refused}");
    }
}
