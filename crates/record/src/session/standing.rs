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

/// Numbers of a session.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counts {
    /// Events that were lost for want of room.
    pub lost: u64,
    /// Threads that take part now and have a slot.
    pub threads: u64,
    /// Bytes that records take now.
    pub bytes: u64,
}

/// A session of this process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Standing {
    /// Its number in the process.
    pub session: u64,
    /// Its process and configuration; [`Facts::started_at`] is where it was started.
    pub facts: Facts,
    /// The file that it records into.
    pub path: Option<PathBuf>,
    /// Whether it records now, or is paused.
    pub recording: bool,
    /// How much.
    pub counts: Counts,
}

/// Where sessions come from, and what is known of them.
#[derive(Copy, Clone, Debug)]
pub struct Recorder;

impl Recorder {
    /// Whether a session of this process records now, on whichever threads.
    pub fn is_recording() -> bool {
        cores(|cores| cores.iter().any(|core| core.wanted() != 0)).unwrap_or(false)
    }

    /// Whether a session records this thread now.
    pub fn is_recording_this_thread() -> bool {
        let Some(block) = sync::attached() else { return false };
        let here = |core: &std::sync::Arc<Core>| core.wanted() != 0 && core.covers(block.serial.get());
        cores(|cores| cores.iter().any(here)).unwrap_or(false)
    }

    /// The sessions of this process, in the order of their starts.
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

/// As `prepare` wrote them into the header.
fn facts(core: &Core) -> Facts {
    let words = header::WORDS + 1..header::ALL_BYTES / WORD;
    let mut text: Vec<u8> = words.flat_map(|place| core.header(place).load(Ordering::Relaxed).to_le_bytes()).collect();
    text.truncate(core.header(header::WORDS).load(Ordering::Relaxed) as usize);
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Looks at the list.
fn cores<R>(look: impl FnOnce(&[std::sync::Arc<Core>]) -> R) -> Option<R> {
    let registry = Registry::current()?;
    let _exclusive = Exclusive::of(registry);
    Some(look(&registry.sessions()))
}
