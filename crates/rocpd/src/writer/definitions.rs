//! The objects that events refer to: strings, threads, agents, queues, streams, kernels, counters
//! and tracks.
//!
//! The program defines them through `Writer` and receives ids; the flusher inserts them before the
//! first events that may refer to them. They are never dropped, because rows would then refer to
//! nothing, so they do not pass through the bounded buffers. Their number is still bounded: beyond
//! [`STRINGS_MAX`] strings or [`TEXT_BYTES_MAX`] bytes, a name is replaced by [`REPLACEMENT`] and
//! counted. It does not detect duplicate agents or queues.

use std::collections::{HashMap, HashSet};

use super::event::{AgentId, CodeObjectId, CounterId, KernelId, QueueId, StreamId, StringId, TrackId};

/// What kind of device an agent is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AgentKind {
    /// A processor.
    Cpu,
    /// A graphics processor.
    #[default]
    Gpu,
}

impl AgentKind {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Gpu => "GPU",
        }
    }
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agent {
    /// What kind.
    pub kind: AgentKind,
    /// Its number among all devices of the node.
    pub absolute_index: i64,
    /// Its number among those that the process sees.
    pub logical_index: i64,
    /// Its number among those of its kind.
    pub type_index: i64,
    /// Its name, as `gfx942`.
    pub name: String,
    /// What it is sold as.
    pub product_name: String,
    /// Who made it.
    pub vendor_name: String,
}

/// Something that kernels are loaded from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeObject {
    /// Where it was loaded to.
    pub agent: AgentId,
    /// What it was loaded from.
    pub uri: String,
}

/// A kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSymbol {
    /// What it was loaded from.
    pub code_object: CodeObjectId,
    /// The symbol.
    pub kernel_name: String,
    /// The name to show.
    pub display_name: String,
}

/// A counter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CounterDefinition {
    /// The device that it counts on.
    pub agent: Option<AgentId>,
    /// Its name.
    pub name: String,
    /// Its short name.
    pub symbol: String,
    /// What it counts.
    pub description: String,
    /// In what.
    pub units: String,
}

/// One of them with its id.
#[derive(Debug)]
pub(super) enum Definition {
    String(StringId, String),
    Thread { id: i64, tid: i64, name: Option<String> },
    Agent(AgentId, Agent),
    Queue(QueueId, String),
    Stream(StreamId, String),
    CodeObject(CodeObjectId, CodeObject),
    Kernel(KernelId, KernelSymbol),
    Counter(CounterId, CounterDefinition),
    Track { id: TrackId, name: StringId, thread: i64 },
}

/// All that have been made, and those that are not in the database yet.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    strings: HashMap<String, StringId>,
    text_bytes: usize,
    /// Strings that were asked for and not kept.
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

    /// The row of a thread: its number as rocprofv3 has it, or one beyond all numbers when an
    /// earlier thread had the same.
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

    /// A number that nothing else but strings and threads has.
    pub fn next(&mut self) -> u32 {
        self.last += 1;
        self.last
    }
}

/// Threads of Linux have numbers below 2^22.
const FIRST_REPEATED: i64 = 1 << 32;

/// Different names of a process; rocprofv3's own runs have some thousands.
const STRINGS_MAX: usize = 1 << 20;

/// Of all names together.
const TEXT_BYTES_MAX: usize = 256 << 20;

/// The name of what has one too many.
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
