//! The secret shared by the ranks of one run.
//!
//! The launcher gives every rank the same key, and in the rendezvous both sides prove that they
//! have it (`greeting`). A key derived from guessable data only tells runs apart.
//!
//! The key is never transmitted. Each side receives only a keyed hash of the random bytes of both,
//! from which the key cannot be derived.

use std::fmt;

/// Key by which the ranks of a run authenticate each other; equal on all of them.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct JobKey([u8; 32]);

impl JobKey {
    /// Derives the key from a secret or a name of the job.
    pub fn of(material: &[u8]) -> Self {
        Self(blake3::derive_key(PURPOSE, material))
    }

    /// Returns the keyed hash of messages. Comparing two takes constant time.
    pub(super) fn proof(&self, said: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        said.iter().for_each(|part| {
            hasher.update(part);
        });
        hasher.finalize()
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(..)")
    }
}

/// Separates the keys derived from one secret for several purposes.
const PURPOSE: &str = "probe_sync 2026-11-22 rendezvous";
