//! The events that can be recorded: regions, kernels, copies, allocations, counters and samples, as
//! plain values.
//!
//! Names are ids of strings that the writer holds, so an event without arguments needs no
//! allocation. Times are in ns of CLOCK_BOOTTIME.

use serde_json::json;

/// A string of the database; the default is the empty string.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StringId(pub(super) u32);

/// A GPU or CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentId(pub(super) u32);

/// A hardware queue; the default is rocprofv3's "Default Queue".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueId(pub(super) u32);

/// A stream of the program; the default is rocprofv3's "Default Stream".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamId(pub(super) u32);

/// A code object, which kernels are loaded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeObjectId(pub(super) u32);

/// Symbol of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelId(pub(super) u32);

/// The definition of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterId(pub(super) u32);

/// A row for samples and counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackId(pub(super) u32);

/// Relation of an event to others: a kernel has the `stack_id` of the call that launched it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Links {
    /// Number of the call within the process.
    pub stack_id: i64,
    /// Number of the enclosing call.
    pub parent_stack_id: i64,
    /// A number assigned by the program.
    pub correlation_id: i64,
}

/// An argument of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Its type in the program.
    pub kind: StringOrText,
    /// Name.
    pub name: StringOrText,
    /// Value as text.
    pub value: String,
}

/// A text that is either the same for all calls or not.
pub type StringOrText = std::borrow::Cow<'static, str>;

/// Something that a CPU thread did over a span of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Region {
    /// Start.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
    /// What was done.
    pub name: StringId,
    /// Category, for example `HIP_RUNTIME_API` or `MARKER_RANGE`.
    pub category: StringId,
    /// Related events.
    pub links: Links,
    /// Arguments, in their order.
    pub arguments: Box<[Argument]>,
    /// JSON; a marker has its text in it ([`message`]).
    pub extdata: Option<Box<str>>,
    /// Where it was recorded.
    pub source: Option<Box<Source>>,
}

/// Place in a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// Functions that were being called, innermost first.
    pub call_stack: Vec<String>,
    /// Source file; empty: unknown.
    pub file: String,
    /// Line in the source file.
    pub line: u32,
}

impl Source {
    /// Returns the JSON for the columns `call_stack` and `line_info`.
    pub(super) fn columns(&self) -> [String; 2] {
        let stack = if self.call_stack.is_empty() { NOTHING.into() } else { json!(self.call_stack).to_string() };
        let line = if self.file.is_empty() {
            NOTHING.into()
        } else {
            json!({ "file": self.file, "line": self.line }).to_string()
        };
        [stack, line]
    }
}

/// JSON of a column without content, as rocprofv3 writes it.
pub(super) const NOTHING: &str = "{}";

/// A kernel that ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Start.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
    /// The kernel.
    pub kernel: KernelId,
    /// Category, for example `KERNEL_DISPATCH`.
    pub category: StringId,
    /// The region it was launched in.
    pub region: StringId,
    /// The agent it ran on.
    pub agent: AgentId,
    /// The queue it came from.
    pub queue: QueueId,
    /// The stream it belongs to.
    pub stream: StreamId,
    /// Number within the process.
    pub dispatch_id: i64,
    /// Related events.
    pub links: Links,
    /// Bytes of scratch memory per work-item and of local memory per workgroup.
    pub segment_sizes: [u32; 2],
    /// Work-items of a workgroup in x, y and z.
    pub workgroup: [u32; 3],
    /// Total work-items in x, y and z.
    pub grid: [u32; 3],
}

impl Kernel {
    /// Creates a kernel on a device; all other fields are zero or the default.
    pub fn new(kernel: KernelId, agent: AgentId) -> Self {
        Self {
            start_ns: 0,
            end_ns: 0,
            kernel,
            category: StringId::default(),
            region: StringId::default(),
            agent,
            queue: QueueId::default(),
            stream: StreamId::default(),
            dispatch_id: 0,
            links: Links::default(),
            segment_sizes: [0; 2],
            workgroup: [0; 3],
            grid: [0; 3],
        }
    }
}

/// One side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The agent that owns the memory.
    pub agent: AgentId,
    /// Address.
    pub address: i64,
}

/// A memory copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryCopy {
    /// Start.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
    /// Direction, for example `MEMORY_COPY_HOST_TO_DEVICE`.
    pub name: StringId,
    /// Category, for example `MEMORY_COPY`.
    pub category: StringId,
    /// Source.
    pub source: End,
    /// Destination.
    pub destination: End,
    /// Size, bytes.
    pub size: i64,
    /// The stream it belongs to.
    pub stream: Option<StreamId>,
    /// Related events.
    pub links: Links,
}

impl MemoryCopy {
    /// Creates a copy from one place to another; all other fields are zero or the default.
    pub fn new(source: End, destination: End) -> Self {
        Self {
            start_ns: 0,
            end_ns: 0,
            name: StringId::default(),
            category: StringId::default(),
            source,
            destination,
            size: 0,
            stream: None,
            links: Links::default(),
        }
    }
}

/// What happened to memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MemoryOperation {
    /// It was allocated.
    #[default]
    Allocate,
    /// It was freed.
    Free,
}

impl MemoryOperation {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Allocate => "ALLOC",
            Self::Free => "FREE",
        }
    }
}

/// An allocation of memory, or its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryAllocation {
    /// Start of the call.
    pub start_ns: i64,
    /// End of the call.
    pub end_ns: i64,
    /// What happened.
    pub operation: MemoryOperation,
    /// The agent that owns the memory.
    pub agent: Option<AgentId>,
    /// Category, for example `MEMORY_ALLOCATION`.
    pub category: StringId,
    /// Address.
    pub address: i64,
    /// Size, bytes.
    pub size: i64,
    /// Related events.
    pub links: Links,
    /// Where it was recorded.
    pub source: Option<Box<Source>>,
}

/// The value of a counter at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CounterValue {
    /// Time of the reading.
    pub at_ns: i64,
    /// The row it is drawn on.
    pub track: TrackId,
    /// The counter.
    pub counter: CounterId,
    /// Category, for example `process_rss`.
    pub category: StringId,
    /// Value.
    pub value: f64,
}

/// An instant event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Time.
    pub at_ns: i64,
    /// The row it is drawn on; the name of the row is what happened.
    pub track: TrackId,
    /// Category.
    pub category: StringId,
    /// Related events.
    pub links: Links,
    /// Arguments, in their order.
    pub arguments: Box<[Argument]>,
    /// JSON.
    pub extdata: Option<Box<str>>,
    /// Where it was recorded.
    pub source: Option<Box<Source>>,
}

impl Sample {
    /// Creates an instant event on a row; all other fields are zero or the default.
    pub fn new(track: TrackId, at_ns: i64) -> Self {
        let (category, links) = (StringId::default(), Links::default());
        Self { at_ns, track, category, links, arguments: Box::default(), extdata: None, source: None }
    }
}

/// Returns the JSON in which rocprofv3's readers expect the text of a marker.
pub fn message(text: &str) -> Option<Box<str>> {
    Some(json!({ "message": text }).to_string().into())
}

/// Any of these events, in a buffer.
#[derive(Debug)]
pub(super) enum Event {
    Region(Region),
    Kernel(Kernel),
    MemoryCopy(MemoryCopy),
    MemoryAllocation(MemoryAllocation),
    Counter(CounterValue),
    Sample(Sample),
}

impl Event {
    /// Number of rows it will become.
    pub fn rows(&self) -> usize {
        match self {
            Self::Region(region) => 2 + region.arguments.len(),
            Self::Sample(sample) => 2 + sample.arguments.len(),
            Self::Kernel(_) | Self::MemoryCopy(_) | Self::MemoryAllocation(_) => 2,
            Self::Counter(_) => 3,
        }
    }

    /// Returns true if its event has JSON of its own.
    pub fn has_json(&self) -> bool {
        match self {
            Self::Region(Region { extdata, source, .. }) | Self::Sample(Sample { extdata, source, .. }) => {
                extdata.is_some() || source.is_some()
            }
            Self::MemoryAllocation(allocation) => allocation.source.is_some(),
            Self::Kernel(_) | Self::MemoryCopy(_) | Self::Counter(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Event;

    /// Checks the memory stated for `Settings::buffer_events`.
    #[test]
    fn an_event_is_no_larger_than_said() {
        assert!(size_of::<Event>() <= 120, "{}", size_of::<Event>());
    }
}
