//! The secret shared by the ranks of one run.
//!
//! The launcher gives every rank the same key, and in the rendezvous both sides prove that they
//! have it (`greeting`). A key derived from guessable data only tells runs apart.
//!
//! The key is never transmitted. Each side receives only a keyed hash of the random bytes of both,
//! from which the key cannot be derived.

use std::fmt;

/// What the ranks of a run prove to each other; equal on all of them.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct JobKey([u8; 32]);

impl JobKey {
    /// The key that is made of this: a secret, or a name of the job.
    pub fn of(material: &[u8]) -> Self {
        Self(blake3::derive_key(PURPOSE, material))
    }

    /// The keyed hash of what was said. Comparing two takes the same time wherever they differ.
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

/// Keeps keys made of one secret for several purposes apart.
const PURPOSE: &str = "probe_sync 2026-11-22 rendezvous";
