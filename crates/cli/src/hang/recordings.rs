//! Recordings of the event recorder as dumps: the collective scopes that ended, and those that have
//! not, and the open scopes as a stack.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use probe_sync_hang::{Dump, Observed, Stack};
use probe_sync_record::Recording;
use probe_sync_record::read::CollectiveScope;

/// What the recording of a rank says.
pub struct OfRecording {
    /// The operations, or why nothing follows from them.
    pub dump: Result<Dump, &'static str>,
    /// The open scopes of the thread with the deepest ones.
    pub stack: Option<Stack>,
    /// Start, ns since 1970, if known.
    start_ns: Option<i64>,
}

/// Reads recordings; of several of one rank, the one that began last.
pub fn latest(paths: &[PathBuf], notes: &mut Vec<String>) -> BTreeMap<u32, OfRecording> {
    let mut of_rank: BTreeMap<u32, OfRecording> = BTreeMap::new();
    let mut sorted = paths.to_vec();
    sorted.sort();
    for path in sorted {
        match read(&path) {
            Ok((rank, found)) if of_rank.get(&rank).is_none_or(|known| known.start_ns <= found.start_ns) => {
                of_rank.insert(rank, found);
            }
            Ok(_) => {}
            Err(error) => notes.push(format!("{}: {error:#}", path.display())),
        }
    }
    of_rank
}

fn read(path: &Path) -> anyhow::Result<(u32, OfRecording)> {
    let recording = Recording::open(path)?;
    let facts = recording.facts();
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let rank = facts.rank.or_else(|| probe_sync_hang::rank_in_name(name));
    let rank = rank.context("it states no rank, and neither does its name")?;
    let system = recording.on_system().ok();
    let at_ns = |ticks: u64| system.as_ref().map(|system| system.clock().at(ticks).0);
    let deepest = recording.threads().iter().max_by_key(|thread| thread.open.len());
    let frames: Vec<String> =
        deepest.into_iter().flat_map(|thread| thread.open.iter().rev()).map(|scope| scope.name.clone()).collect();
    let stack = (!frames.is_empty()).then_some(Stack { frames });
    Ok((rank, OfRecording { dump: dump(&recording, at_ns)?, stack, start_ns: at_ns(recording.status().start) }))
}

fn dump(recording: &Recording, at_ns: impl Fn(u64) -> Option<i64>) -> anyhow::Result<Result<Dump, &'static str>> {
    let status = recording.status();
    let has_lost = recording.threads().iter().any(|thread| thread.lost.events > 0) || status.lost.events > 0;
    if has_lost || status.missing > 0 {
        return Ok(Err("its recording lost events"));
    }
    let recorded = |part: CollectiveScope| {
        let members = part.ranks.as_deref().and_then(|list| serde_json::from_str(list).ok());
        Some(Observed {
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
    let operations: Vec<Observed> = parts.into_iter().filter(is_of_all).filter_map(recorded).collect();
    Ok(match operations.is_empty() {
        true => Err("its recording has no collective operations with a group and a number"),
        false => Ok(Dump::of_observed(Some(recording.facts().host.clone()), operations)),
    })
}

/// Operations of a thread that are read, as many as torch's recorder keeps.
const OPERATIONS: usize = 2000;
