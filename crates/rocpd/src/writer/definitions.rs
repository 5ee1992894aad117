//! The objects that events refer to: strings, threads, agents, queues, streams, kernels, counters
//! and tracks.
//!
//! The program defines them through `Writer` and receives ids; the flusher inserts them before the
//! first events that may refer to them. They are never dropped, because rows would then refer to
//! nothing, so they do not pass through the bounded buffers. Their number is still bounded: beyond
//! [`STRINGS_MAX`] strings or [`TEXT_BYTES_MAX`] bytes, a name is replaced by [`REPLACEMENT`] and
//! counted. It does not detect duplicate agents or queues.

use std::collections::{HashMap, HashSet};

use super::agent::Agent;
use super::event::{AgentId, CodeObjectId, CounterId, KernelId, QueueId, StreamId, StringId, TrackId};

/// A code object, which kernels are loaded from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeObject {
    /// The agent it was loaded to.
    pub agent: AgentId,
    /// The URI it was loaded from.
    pub uri: String,
}

/// A kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSymbol {
    /// The code object it was loaded from.
    pub code_object: CodeObjectId,
    /// Symbol name.
    pub kernel_name: String,
    /// Name for display.
    pub display_name: String,
}

/// A counter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CounterDefinition {
    /// The device it counts on.
    pub agent: Option<AgentId>,
    /// Name.
    pub name: String,
    /// Short name.
    pub symbol: String,
    /// What it counts.
    pub description: String,
    /// Unit.
    pub units: String,
}

/// One of them with its id.
#[derive(Debug)]
pub(super) enum Definition {
    String(StringId, String),
    Thread { id: i64, tid: i64, name: Option<String> },
    ThreadSpan { id: i64, span: [i64; 2] },
    Agent(AgentId, Agent),
    Queue(QueueId, String),
    Stream(StreamId, String),
    CodeObject(CodeObjectId, CodeObject),
    Kernel(KernelId, KernelSymbol),
    Counter(CounterId, CounterDefinition),
    Track { id: TrackId, name: StringId, thread: i64 },
}

/// All definitions made so far, and those that are not in the database yet.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    strings: HashMap<String, StringId>,
    text_bytes: usize,
    /// Requested strings that were replaced because of the limit.
    pub replaced: u64,
    threads: HashSet<i64>,
    last: u32,
    pub new: Vec<Definition>,
}

impl Definitions {
    pub fn string(&mut self, text: &str) -> StringId {
        if text.is_empty() {
            return StringId::default();
        }
        if let Some(id) = self.strings.get(text) {
            return *id;
        }
        let full = self.strings.len() >= STRINGS_MAX || self.text_bytes.saturating_add(text.len()) > TEXT_BYTES_MAX;
        if full && text != REPLACEMENT {
            self.replaced += 1;
            return self.string(REPLACEMENT);
        }
        let id = StringId(self.strings.len() as u32 + 1);
        self.strings.insert(text.to_owned(), id);
        self.text_bytes += text.len();
        self.new.push(Definition::String(id, text.to_owned()));
        id
    }

    /// Returns the row of a thread: its thread ID, as in rocprofv3, or a number above all thread
    /// IDs if an earlier thread had the same.
    pub fn thread(&mut self, tid: i64, name: Option<&str>) -> i64 {
        let mut id = tid;
        while !self.threads.insert(id) {
            id = FIRST_REPEATED.max(id) + 1;
        }
        self.new.push(Definition::Thread { id, tid, name: name.map(str::to_owned) });
        id
    }

    pub fn track(&mut self, name: &str, thread: i64) -> u32 {
        let (id, name) = (self.next(), self.string(name));
        self.new.push(Definition::Track { id: TrackId(id), name, thread });
        id
    }

    /// Returns a number that is unique except among strings and threads.
    pub fn next(&mut self) -> u32 {
        self.last += 1;
        self.last
    }
}

/// Thread IDs on Linux are below 2^22.
const FIRST_REPEATED: i64 = 1 << 32;

/// Most distinct names of a process; rocprofv3's own runs have some thousands.
const STRINGS_MAX: usize = 1 << 20;

/// Largest total size of all names.
const TEXT_BYTES_MAX: usize = 256 << 20;

/// Replacement for names beyond the limit.
const REPLACEMENT: &str = "(too many distinct names)";

#[cfg(test)]
mod tests {
    use super::{Definitions, REPLACEMENT, STRINGS_MAX, StringId};

    #[test]
    fn strings_are_kept_once_and_bounded() {
        let mut definitions = Definitions::default();
        assert_eq!(definitions.string("a"), StringId(1));
        assert_eq!(definitions.string("a"), StringId(1));
        for at in 1..STRINGS_MAX {
            definitions.string(&at.to_string());
        }
        assert_eq!(definitions.replaced, 0);
        let replaced = definitions.string("one more");
        assert_eq!(replaced, definitions.string(REPLACEMENT));
        assert_eq!(definitions.string("another"), replaced);
        assert_eq!(definitions.replaced, 2);
        assert_eq!(definitions.string("a"), StringId(1));
    }

    #[test]
    fn a_number_that_comes_again_is_another_thread() {
        let mut definitions = Definitions::default();
        let ids: Vec<i64> = (0..3).map(|_| definitions.thread(7, None)).collect();
        assert_eq!(ids, [7, (1 << 32) + 1, (1 << 32) + 2]);
    }
}
