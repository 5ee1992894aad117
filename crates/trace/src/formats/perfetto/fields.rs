//! The part of Perfetto's schema that is written or read: numbers of fields and values, by message.
//!
//! The names are ours; the comment over each block names the message of `perfetto.protos`.

// Trace
pub(crate) const TRACE_PACKET: u32 = 1;

// TracePacket
pub(crate) const PACKET_KERNEL_EVENTS: u32 = 1;
pub(crate) const PACKET_USER: u32 = 3;
pub(crate) const PACKET_CLOCK_SNAPSHOT: u32 = 6;
pub(crate) const PACKET_TIME: u32 = 8;
pub(crate) const PACKET_SEQUENCE: u32 = 10;
pub(crate) const PACKET_EVENT: u32 = 11;
pub(crate) const PACKET_INTERNED: u32 = 12;
pub(crate) const PACKET_FLAGS: u32 = 13;
pub(crate) const PACKET_DEFLATED: u32 = 50;
/// Also in TracePacketDefaults.
pub(crate) const PACKET_CLOCK: u32 = 58;
pub(crate) const PACKET_DEFAULTS: u32 = 59;
pub(crate) const PACKET_DESCRIPTOR: u32 = 60;
pub(crate) const PACKET_IS_FIRST: u32 = 87;
pub(crate) const PACKET_MACHINE: u32 = 98;
pub(crate) const PACKET_CLOCK_SYNC: u32 = 107;
pub(crate) const PACKET_ATTRIBUTES: u32 = 126;
pub(crate) const PACKET_ZSTD: u32 = 133;

// TraceAttributes, TraceAttributes.Attribute
pub(crate) const ATTRIBUTES_ENTRY: u32 = 1;
pub(crate) const ATTRIBUTE_KEY: u32 = 1;
pub(crate) const ATTRIBUTE_TEXT: u32 = 3;

// RemoteClockSync, RemoteClockSync.SyncedClocks
pub(crate) const SYNC_PAIR: u32 = 1;
pub(crate) const SYNCED_CLIENT: u32 = 2;
pub(crate) const SYNCED_HOST: u32 = 3;

// TracePacket.SequenceFlags
pub(crate) const STATE_CLEARED: u64 = 1;
pub(crate) const NEEDS_STATE: u64 = 2;

// ClockSnapshot, ClockSnapshot.Clock
pub(crate) const SNAPSHOT_CLOCKS: u32 = 1;
pub(crate) const SNAPSHOT_TRACE_CLOCK: u32 = 2;
pub(crate) const CLOCK_ID: u32 = 1;
pub(crate) const CLOCK_TIME: u32 = 2;
pub(crate) const CLOCK_IS_INCREMENTAL: u32 = 3;
pub(crate) const CLOCK_UNIT_NS: u32 = 4;

// BuiltinClock: BOOTTIME is what a trace's times are on unless it says otherwise. From 64 on clocks
// belong to a sequence.
pub(crate) const TRACE_CLOCK: u64 = 6;
pub(crate) const INCREMENTAL_CLOCK: u64 = 64;

// TrackDescriptor
pub(crate) const DESCRIPTOR_UUID: u32 = 1;
pub(crate) const DESCRIPTOR_NAME: u32 = 2;
pub(crate) const DESCRIPTOR_PROCESS: u32 = 3;
pub(crate) const DESCRIPTOR_THREAD: u32 = 4;
pub(crate) const DESCRIPTOR_PARENT: u32 = 5;
pub(crate) const DESCRIPTOR_COUNTER: u32 = 8;
pub(crate) const DESCRIPTOR_CHILD_ORDER: u32 = 11;
pub(crate) const DESCRIPTOR_RANK: u32 = 12;
/// Of the track above all, number 0.
pub(crate) const DESCRIPTOR_PROCESS_ORDER: u32 = 19;
pub(crate) const DESCRIPTOR_MERGE: u32 = 15;

// TrackDescriptor.ChildTracksOrdering, TrackDescriptor.SiblingMergeBehavior
pub(crate) const BY_RANK: u64 = 3;
pub(crate) const PROCESSES_BY_RANK: u64 = 1;
pub(crate) const NEVER_MERGE: u64 = 2;

// ProcessDescriptor
pub(crate) const PROCESS_PID: u32 = 1;
pub(crate) const PROCESS_NAME: u32 = 6;

// ThreadDescriptor
pub(crate) const THREAD_PID: u32 = 1;
pub(crate) const THREAD_TID: u32 = 2;
pub(crate) const THREAD_NAME: u32 = 5;

// CounterDescriptor
pub(crate) const COUNTER_UNIT_NAME: u32 = 6;

// TrackEvent
pub(crate) const EVENT_CATEGORY_ID: u32 = 3;
pub(crate) const EVENT_ARGUMENT: u32 = 4;
pub(crate) const EVENT_TYPE: u32 = 9;
pub(crate) const EVENT_NAME_ID: u32 = 10;
pub(crate) const EVENT_TRACK: u32 = 11;
pub(crate) const EVENT_NAME: u32 = 23;
pub(crate) const EVENT_FLOAT_VALUE: u32 = 44;
pub(crate) const EVENT_FLOW: u32 = 47;

// TrackEvent.Type
pub(crate) const SLICE_BEGIN: u64 = 1;
pub(crate) const SLICE_END: u64 = 2;
pub(crate) const INSTANT: u64 = 3;
pub(crate) const COUNTER: u64 = 4;

// DebugAnnotation
pub(crate) const ARGUMENT_KEY_ID: u32 = 1;
pub(crate) const ARGUMENT_BOOLEAN: u32 = 2;
pub(crate) const ARGUMENT_UNSIGNED: u32 = 3;
pub(crate) const ARGUMENT_INTEGER: u32 = 4;
pub(crate) const ARGUMENT_FLOAT: u32 = 5;
pub(crate) const ARGUMENT_TEXT: u32 = 6;

// InternedData, and the entries that it holds
pub(crate) const INTERNED_CATEGORY: u32 = 1;
pub(crate) const INTERNED_NAME: u32 = 2;
pub(crate) const INTERNED_KEY: u32 = 3;
pub(crate) const INTERNED_ID: u32 = 1;
pub(crate) const INTERNED_TEXT: u32 = 2;
