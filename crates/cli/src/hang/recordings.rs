//! Recordings of the event recorder as dumps: the collective scopes that ended, and those that have
//! not, and the open scopes as a stack.

use std::path::Path;

use probe_sync_hang::{Dump, Recorded, Stack};
use probe_sync_record::Recording;
use probe_sync_record::read::CollectiveScope;

/// What the recording of a rank says.
pub struct OfRecording {
    /// The rank, if the recording knows it.
    pub rank: Option<u32>,
    pub dump: Dump,
    /// The open scopes of the thread with the deepest ones.
    pub stack: Option<Stack>,
}

/// Reads a recording.
///
/// # Errors
/// Names the file and what is wrong with it.
pub fn read(path: &Path) -> anyhow::Result<OfRecording> {
    let recording = Recording::open(path)?;
    let system = recording.on_system().ok();
    let at_ns = |ticks: u64| system.as_ref().map(|system| system.clock().at(ticks).0);
    let recorded = |part: CollectiveScope| {
        let members = part.ranks.as_deref().and_then(|list| serde_json::from_str(list).ok());
        Some(Recorded {
            operation: part.operation,
            group: part.group?,
            members: members.unwrap_or_default(),
            sequence: part.sequence?,
            elements: part.sent,
            element_type: part.dtype,
            at_ns: at_ns(part.start),
            is_finished: part.end.is_some(),
        })
    };
    // A message is matched by its two ranks, which the recorder numbers as its caller likes.
    let is_of_all = |part: &CollectiveScope| part.operation != "send" && part.operation != "recv";
    let parts = recording.collectives(OPERATIONS)?;
    let operations: Vec<Recorded> = parts.into_iter().filter(is_of_all).filter_map(recorded).collect();
    let deepest = recording.threads().iter().max_by_key(|thread| thread.open.len());
    let frames: Vec<String> =
        deepest.into_iter().flat_map(|thread| thread.open.iter().rev()).map(|scope| scope.name.clone()).collect();
    let facts = recording.facts();
    Ok(OfRecording {
        rank: facts.rank,
        dump: Dump::of_recorded(Some(facts.host.clone()), operations),
        stack: (!frames.is_empty()).then_some(Stack { frames }),
    })
}

/// Operations of a thread that are read, as many as torch's recorder keeps.
const OPERATIONS: usize = 2000;
