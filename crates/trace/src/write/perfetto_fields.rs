//! The part of Perfetto's schema that is written: numbers of fields and values, by message.
//!
//! Place in the flow: under `perfetto`. Names are ours; the comment over each block names the message of `perfetto.protos`.
//! What it does not do: encode.

// Trace
pub(super) const TRACE_PACKET: u32 = 1;

// TracePacket
pub(super) const PACKET_CLOCK_SNAPSHOT: u32 = 6;
pub(super) const PACKET_TIME: u32 = 8;
pub(super) const PACKET_SEQUENCE: u32 = 10;
pub(super) const PACKET_EVENT: u32 = 11;
pub(super) const PACKET_INTERNED: u32 = 12;
pub(super) const PACKET_FLAGS: u32 = 13;
pub(super) const PACKET_CLOCK: u32 = 58;
pub(super) const PACKET_DEFAULTS: u32 = 59;
pub(super) const PACKET_DESCRIPTOR: u32 = 60;
pub(super) const PACKET_IS_FIRST: u32 = 87;
pub(super) const PACKET_MACHINE: u32 = 98;
pub(super) const PACKET_CLOCK_SYNC: u32 = 107;

// RemoteClockSync, RemoteClockSync.SyncedClocks
pub(super) const SYNC_PAIR: u32 = 1;
pub(super) const SYNCED_CLIENT: u32 = 2;
pub(super) const SYNCED_HOST: u32 = 3;

// TracePacket.SequenceFlags
pub(super) const STATE_CLEARED: u64 = 1;
pub(super) const NEEDS_STATE: u64 = 2;

// ClockSnapshot, ClockSnapshot.Clock
pub(super) const SNAPSHOT_CLOCKS: u32 = 1;
pub(super) const CLOCK_ID: u32 = 1;
pub(super) const CLOCK_TIME: u32 = 2;
pub(super) const CLOCK_IS_INCREMENTAL: u32 = 3;

// BuiltinClock: BOOTTIME is what a trace's times are on unless it says otherwise. From 64 on clocks belong to a sequence.
pub(super) const TRACE_CLOCK: u64 = 6;
pub(super) const INCREMENTAL_CLOCK: u64 = 64;

// TrackDescriptor
pub(super) const DESCRIPTOR_UUID: u32 = 1;
pub(super) const DESCRIPTOR_NAME: u32 = 2;
pub(super) const DESCRIPTOR_PROCESS: u32 = 3;
pub(super) const DESCRIPTOR_THREAD: u32 = 4;
pub(super) const DESCRIPTOR_PARENT: u32 = 5;
pub(super) const DESCRIPTOR_COUNTER: u32 = 8;
pub(super) const DESCRIPTOR_CHILD_ORDER: u32 = 11;
pub(super) const DESCRIPTOR_RANK: u32 = 12;
pub(super) const DESCRIPTOR_MERGE: u32 = 15;

// TrackDescriptor.ChildTracksOrdering, TrackDescriptor.SiblingMergeBehavior
pub(super) const BY_RANK: u64 = 3;
pub(super) const NEVER_MERGE: u64 = 2;

// ProcessDescriptor
pub(super) const PROCESS_PID: u32 = 1;
pub(super) const PROCESS_NAME: u32 = 6;

// ThreadDescriptor
pub(super) const THREAD_PID: u32 = 1;
pub(super) const THREAD_TID: u32 = 2;
pub(super) const THREAD_NAME: u32 = 5;

// CounterDescriptor
pub(super) const COUNTER_UNIT_NAME: u32 = 6;

// TrackEvent
pub(super) const EVENT_CATEGORY_ID: u32 = 3;
pub(super) const EVENT_ARGUMENT: u32 = 4;
pub(super) const EVENT_TYPE: u32 = 9;
pub(super) const EVENT_NAME_ID: u32 = 10;
pub(super) const EVENT_TRACK: u32 = 11;
pub(super) const EVENT_FLOAT_VALUE: u32 = 44;
pub(super) const EVENT_FLOW: u32 = 47;

// TrackEvent.Type
pub(super) const SLICE_BEGIN: u64 = 1;
pub(super) const SLICE_END: u64 = 2;
pub(super) const INSTANT: u64 = 3;
pub(super) const COUNTER: u64 = 4;

// DebugAnnotation
pub(super) const ARGUMENT_KEY_ID: u32 = 1;
pub(super) const ARGUMENT_BOOLEAN: u32 = 2;
pub(super) const ARGUMENT_INTEGER: u32 = 4;
pub(super) const ARGUMENT_FLOAT: u32 = 5;
pub(super) const ARGUMENT_TEXT: u32 = 6;

// InternedData, and the entries that it holds
pub(super) const INTERNED_CATEGORY: u32 = 1;
pub(super) const INTERNED_NAME: u32 = 2;
pub(super) const INTERNED_KEY: u32 = 3;
pub(super) const INTERNED_ID: u32 = 1;
pub(super) const INTERNED_TEXT: u32 = 2;
