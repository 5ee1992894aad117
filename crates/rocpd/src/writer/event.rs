//! The events that can be recorded: regions, kernels, copies, counters and samples, as plain
//! values.
//!
//! Names are ids of strings that the writer holds, so an event without arguments needs no
//! allocation. Times are in ns of CLOCK_BOOTTIME.

/// A string of the database; the default is the empty one.
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

/// A kernel's symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelId(pub(super) u32);

/// The definition of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterId(pub(super) u32);

/// A row that samples and counters are drawn on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackId(pub(super) u32);

/// How an event belongs to others: a kernel has the `stack_id` of the call that launched it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Links {
    /// The call's number within the process.
    pub stack_id: i64,
    /// That of the call around it.
    pub parent_stack_id: i64,
    /// A number of the program's own.
    pub correlation_id: i64,
}

/// An argument of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Its type in the program.
    pub kind: StringOrText,
    /// Its name.
    pub name: StringOrText,
    /// Its value as text.
    pub value: String,
}

/// A text that is the same for all calls, or not.
pub type StringOrText = std::borrow::Cow<'static, str>;

/// Something that a thread of the CPU did from one time to another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Region {
    /// When it began.
    pub start_ns: i64,
    /// When it ended.
    pub end_ns: i64,
    /// What was done.
    pub name: StringId,
    /// Its kind, as `HIP_RUNTIME_API` or `MARKER_RANGE`.
    pub category: StringId,
    /// Which events belong to it.
    pub links: Links,
    /// Its arguments, in their order.
    pub arguments: Box<[Argument]>,
    /// JSON; a marker has its text in it ([`message`]).
    pub extdata: Option<Box<str>>,
}

/// A kernel that ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// When it began.
    pub start_ns: i64,
    /// When it ended.
    pub end_ns: i64,
    /// Which kernel.
    pub kernel: KernelId,
    /// Its kind, as `KERNEL_DISPATCH`.
    pub category: StringId,
    /// The region that it was launched in.
    pub region: StringId,
    /// Where it ran.
    pub agent: AgentId,
    /// The queue that it came from.
    pub queue: QueueId,
    /// The stream that it belongs to.
    pub stream: StreamId,
    /// Its number within the process.
    pub dispatch_id: i64,
    /// Which events belong to it.
    pub links: Links,
    /// Bytes of scratch memory per work-item and of local memory per workgroup.
    pub segment_sizes: [u32; 2],
    /// Work-items of a workgroup in x, y and z.
    pub workgroup: [u32; 3],
    /// Work-items in all, in x, y and z.
    pub grid: [u32; 3],
}

impl Kernel {
    /// A kernel on a device, all else zero or the default.
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
    /// Whose memory.
    pub agent: AgentId,
    /// Where in it.
    pub address: i64,
}

/// A copy of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryCopy {
    /// When it began.
    pub start_ns: i64,
    /// When it ended.
    pub end_ns: i64,
    /// Its direction, as `MEMORY_COPY_HOST_TO_DEVICE`.
    pub name: StringId,
    /// Its kind, as `MEMORY_COPY`.
    pub category: StringId,
    /// Where from.
    pub source: End,
    /// Where to.
    pub destination: End,
    /// How many bytes.
    pub size: i64,
    /// The stream that it belongs to.
    pub stream: Option<StreamId>,
    /// Which events belong to it.
    pub links: Links,
}

impl MemoryCopy {
    /// A copy from one place to another, all else zero or the default.
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

/// The value of a counter at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CounterValue {
    /// When it was read.
    pub at_ns: i64,
    /// The row that it is drawn on.
    pub track: TrackId,
    /// Which counter.
    pub counter: CounterId,
    /// Its kind, as `process_rss`.
    pub category: StringId,
    /// Its value.
    pub value: f64,
}

/// Something that happened at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at_ns: i64,
    /// The row that it is drawn on; its name is what happened.
    pub track: TrackId,
    /// Its kind.
    pub category: StringId,
    /// Which events belong to it.
    pub links: Links,
    /// JSON.
    pub extdata: Option<Box<str>>,
}

impl Sample {
    /// Something on a row at a time, all else zero or the default.
    pub fn new(track: TrackId, at_ns: i64) -> Self {
        Self { at_ns, track, category: StringId::default(), links: Links::default(), extdata: None }
    }
}

/// The JSON by which rocprofv3's readers know a marker's text.
pub fn message(text: &str) -> Option<Box<str>> {
    Some(serde_json::json!({ "message": text }).to_string().into())
}

/// Any of them, in a buffer.
#[derive(Debug)]
pub(super) enum Event {
    Region(Region),
    Kernel(Kernel),
    MemoryCopy(MemoryCopy),
    Counter(CounterValue),
    Sample(Sample),
}

impl Event {
    /// How many rows it will be.
    pub fn rows(&self) -> usize {
        match self {
            Self::Region(region) => 2 + region.arguments.len(),
            Self::Kernel(_) | Self::MemoryCopy(_) | Self::Sample(_) => 2,
            Self::Counter(_) => 3,
        }
    }

    /// The JSON that it brings.
    pub fn extdata(&self) -> Option<&str> {
        match self {
            Self::Region(Region { extdata, .. }) | Self::Sample(Sample { extdata, .. }) => extdata.as_deref(),
            Self::Kernel(_) | Self::MemoryCopy(_) | Self::Counter(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Event;

    /// What `Settings::buffer_events` says of memory.
    #[test]
    fn an_event_is_no_larger_than_said() {
        assert!(size_of::<Event>() <= 120, "{}", size_of::<Event>());
    }
}
