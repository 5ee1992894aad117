//! The status of recording in this process: who records, and with which configuration.
//!
//! It is meant for libraries that want to know before they start a session or compute expensive
//! arguments, and for control clients.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};

use super::facts::Facts;
use crate::active::core::Core;
use crate::active::registry::Registry;
use crate::layout::{WORD, chunk, header, slot};
use crate::thread::exclusive::Exclusive;
use crate::thread::sync;

/// Counts of a session.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counts {
    /// Events lost because buffers were full.
    pub lost: u64,
    /// Threads that take part now and have a slot.
    pub threads: u64,
    /// Bytes that records occupy now.
    pub bytes: u64,
}

/// State of a session of this process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Standing {
    /// Number of the session in the process.
    pub session: u64,
    /// Process and configuration; [`Facts::started_at`] is where the session was started.
    pub facts: Facts,
    /// File that the session records into.
    pub path: Option<PathBuf>,
    /// True if the session is recording, false if it is paused.
    pub recording: bool,
    /// Counts of the session.
    pub counts: Counts,
}

/// Entry point for starting sessions and for listing those of this process.
#[derive(Copy, Clone, Debug)]
pub struct Recorder;

impl Recorder {
    /// Returns true if a session of this process is recording, on any thread.
    pub fn is_recording() -> bool {
        cores(|cores| cores.iter().any(|core| core.wanted() != 0)).unwrap_or(false)
    }

    /// Returns true if a session is recording this thread.
    pub fn is_recording_this_thread() -> bool {
        let Some(block) = sync::attached() else { return false };
        let here = |core: &std::sync::Arc<Core>| core.wanted() != 0 && core.covers(block.serial.get());
        cores(|cores| cores.iter().any(here)).unwrap_or(false)
    }

    /// Returns the sessions of this process, in the order in which they were started.
    pub fn sessions() -> Vec<Standing> {
        let cores = cores(<[_]>::to_vec).unwrap_or_default();
        cores.iter().map(|core| Standing::of(core)).collect()
    }
}

impl Standing {
    pub(super) fn of(core: &Core) -> Self {
        Self {
            session: core.number,
            facts: facts(core),
            path: core.region.file().map(|(_, path)| path.to_path_buf()),
            recording: core.wanted() != 0,
            counts: Counts::of(core),
        }
    }
}

impl Counts {
    pub(super) fn of(core: &Core) -> Self {
        let load = |byte: usize| core.region.word(byte).load(Ordering::Relaxed);
        let [lost, told] = [header::LOST, header::LOST_TOLD].map(|place| core.header(place).load(Ordering::Relaxed));
        let mut counts = Self { lost: lost + told, ..Self::default() };
        for at in (0..core.layout.slots).map(|index| core.layout.slot_at(index)) {
            if load(at + slot::SERIAL * WORD) != 0 {
                counts.threads += 1;
                counts.lost += load(at + slot::LOST * WORD);
            }
        }
        for at in (0..core.layout.chunks).map(|index| core.layout.chunk_at(index)) {
            counts.bytes += load(at + chunk::COMMITTED * WORD).saturating_sub(load(at + chunk::DRAINED * WORD));
        }
        counts
    }
}

/// Reads the facts that `prepare` wrote into the header.
fn facts(core: &Core) -> Facts {
    let words = header::WORDS + 1..header::ALL_BYTES / WORD;
    let mut text: Vec<u8> = words.flat_map(|place| core.header(place).load(Ordering::Relaxed).to_le_bytes()).collect();
    text.truncate(core.header(header::WORDS).load(Ordering::Relaxed) as usize);
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Calls `look` with the list of sessions.
fn cores<R>(look: impl FnOnce(&[std::sync::Arc<Core>]) -> R) -> Option<R> {
    let registry = Registry::current()?;
    let _exclusive = Exclusive::of(registry);
    Some(look(&registry.sessions()))
}
