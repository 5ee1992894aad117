//! The part of Perfetto's schema that is written or read: numbers of fields and values, by message.
//!
//! The names are ours; the comment over each block names the message of `perfetto.protos`.
#![expect(missing_docs, reason = "the names say which field of the schema each number is")]

// Trace
pub const TRACE_PACKET: u32 = 1;

// TracePacket
pub const PACKET_KERNEL_EVENTS: u32 = 1;
pub const PACKET_PROCESS_TREE: u32 = 2;
pub const PACKET_USER: u32 = 3;
pub const PACKET_CLOCK_SNAPSHOT: u32 = 6;
pub const PACKET_SYSTEM_STATS: u32 = 7;
pub const PACKET_TIME: u32 = 8;
pub const PACKET_PROCESS_STATS: u32 = 9;
pub const PACKET_SEQUENCE: u32 = 10;
pub const PACKET_EVENT: u32 = 11;
pub const PACKET_INTERNED: u32 = 12;
pub const PACKET_FLAGS: u32 = 13;
pub const PACKET_ANDROID_LOG: u32 = 39;
pub const PACKET_THREAD: u32 = 44;
pub const PACKET_DEFLATED: u32 = 50;
pub const PACKET_GPU_COUNTERS: u32 = 52;
pub const PACKET_GPU_STAGE: u32 = 53;
/// Also in TracePacketDefaults.
pub const PACKET_CLOCK: u32 = 58;
pub const PACKET_DEFAULTS: u32 = 59;
pub const PACKET_DESCRIPTOR: u32 = 60;
/// As the flag STATE_CLEARED, of old writers.
pub const PACKET_CLEARED: u32 = 41;
pub const PACKET_AFTER_LOSS: u32 = 42;
pub const PACKET_IS_FIRST: u32 = 87;
pub const PACKET_MACHINE: u32 = 98;
pub const PACKET_CLOCK_SYNC: u32 = 107;
pub const PACKET_ATTRIBUTES: u32 = 126;
pub const PACKET_ZSTD: u32 = 133;

// FtraceEventBundle
pub const BUNDLE_EVENT: u32 = 2;
pub const BUNDLE_SWITCHES: u32 = 4;
pub const BUNDLE_CLOCK: u32 = 5;
pub const BUNDLE_GLOBAL_TIME: u32 = 6;
pub const BUNDLE_BOOT_TIME: u32 = 7;
pub const BUNDLE_ERROR: u32 = 8;
pub const BUNDLE_LAST_READ: u32 = 9;
pub const BUNDLE_PREVIOUS_END: u32 = 10;

// FtraceEvent, FtraceEventBundle.FtraceError; FtraceEventBundle.CompactSched
pub const KERNEL_EVENT_TIME: u32 = 1;
pub const SWITCH_TIMES: u32 = 1;
pub const WAKING_TIMES: u32 = 7;

// ProcessTree, ProcessStats, SysStats
pub const PROCESS_TREE_END: u32 = 3;
pub const PROCESS_STATS_END: u32 = 2;
pub const SYSTEM_STATS_END: u32 = 9;

// AndroidLogPacket, AndroidLogPacket.LogEvent
pub const LOG_EVENT: u32 = 1;
pub const LOG_EVENT_TIME: u32 = 5;

// GpuRenderStageEvent
pub const STAGE_EVENT_ID: u32 = 1;
pub const STAGE_DURATION: u32 = 2;
pub const STAGE_QUEUE_NUMBER: u32 = 3;
pub const STAGE_NUMBER: u32 = 4;
pub const STAGE_EXTRA: u32 = 6;
pub const STAGE_GPU: u32 = 11;
pub const STAGE_QUEUE_ID: u32 = 13;
pub const STAGE_ID: u32 = 14;
pub const STAGE_NAME: u32 = 17;
pub const STAGE_KERNEL_ID: u32 = 19;
pub const STAGE_NAME_ID: u32 = 20;
pub const EXTRA_KEY: u32 = 1;
pub const EXTRA_VALUE: u32 = 2;

// GpuCounterEvent, GpuCounterEvent.GpuCounter; GpuCounterDescriptor, GpuCounterDescriptor.GpuCounterSpec
pub const GPU_COUNTERS_DESCRIPTOR: u32 = 1;
pub const GPU_COUNTERS_VALUE: u32 = 2;
pub const GPU_COUNTERS_GPU: u32 = 3;
pub const GPU_COUNTERS_DESCRIPTOR_ID: u32 = 4;
pub const GPU_COUNTER_ID: u32 = 1;
pub const GPU_COUNTER_INTEGER: u32 = 2;
pub const GPU_COUNTER_FLOAT: u32 = 3;
pub const GPU_COUNTER_SPEC: u32 = 1;
pub const GPU_COUNTER_NAME: u32 = 2;
pub const GPU_COUNTER_DIRECTION: u32 = 11;
pub const GPU_COUNTER_FORWARD: u64 = 2;

// TraceAttributes, TraceAttributes.Attribute
pub const ATTRIBUTES_ENTRY: u32 = 1;
pub const ATTRIBUTE_KEY: u32 = 1;
pub const ATTRIBUTE_TEXT: u32 = 3;

// RemoteClockSync, RemoteClockSync.SyncedClocks
pub const SYNC_PAIR: u32 = 1;
pub const SYNCED_CLIENT: u32 = 2;
pub const SYNCED_HOST: u32 = 3;

// TracePacket.SequenceFlags
pub const STATE_CLEARED: u64 = 1;
pub const NEEDS_STATE: u64 = 2;

// ClockSnapshot, ClockSnapshot.Clock
pub const SNAPSHOT_CLOCKS: u32 = 1;
pub const SNAPSHOT_TRACE_CLOCK: u32 = 2;
pub const CLOCK_ID: u32 = 1;
pub const CLOCK_TIME: u32 = 2;
pub const CLOCK_IS_INCREMENTAL: u32 = 3;
pub const CLOCK_UNIT_NS: u32 = 4;

// BuiltinClock: BOOTTIME is what a trace's times are on unless it says otherwise. From 64 on clocks
// belong to a sequence.
pub const TRACE_CLOCK: u64 = 6;
pub const INCREMENTAL_CLOCK: u64 = 64;

// TrackDescriptor
pub const DESCRIPTOR_UUID: u32 = 1;
pub const DESCRIPTOR_NAME: u32 = 2;
pub const DESCRIPTOR_PROCESS: u32 = 3;
pub const DESCRIPTOR_THREAD: u32 = 4;
pub const DESCRIPTOR_PARENT: u32 = 5;
pub const DESCRIPTOR_COUNTER: u32 = 8;
pub const DESCRIPTOR_STATIC_NAME: u32 = 10;
pub const DESCRIPTOR_ATRACE_NAME: u32 = 13;
pub const DESCRIPTOR_CHILD_ORDER: u32 = 11;
pub const DESCRIPTOR_RANK: u32 = 12;
/// For the root track, number 0.
pub const DESCRIPTOR_PROCESS_ORDER: u32 = 19;
pub const DESCRIPTOR_MERGE: u32 = 15;

// TrackDescriptor.ChildTracksOrdering, TrackDescriptor.SiblingMergeBehavior
pub const BY_RANK: u64 = 3;
pub const PROCESSES_BY_RANK: u64 = 1;
pub const NEVER_MERGE: u64 = 2;

// ProcessDescriptor
pub const PROCESS_PID: u32 = 1;
pub const PROCESS_COMMAND: u32 = 2;
pub const PROCESS_NAME: u32 = 6;

// ThreadDescriptor
pub const THREAD_PID: u32 = 1;
pub const THREAD_TID: u32 = 2;
pub const THREAD_NAME: u32 = 5;

// CounterDescriptor
pub const COUNTER_UNIT: u32 = 3;
pub const COUNTER_MULTIPLIER: u32 = 4;
pub const COUNTER_IS_INCREMENTAL: u32 = 5;
pub const COUNTER_UNIT_NAME: u32 = 6;

// TrackEvent
pub const EVENT_CATEGORY_ID: u32 = 3;
pub const EVENT_ARGUMENT: u32 = 4;
pub const EVENT_OF_CHROME: u32 = 6;
pub const EVENT_TYPE: u32 = 9;
pub const EVENT_NAME_ID: u32 = 10;
pub const EVENT_TRACK: u32 = 11;
pub const EVENT_EXTRA_VALUES: u32 = 12;
pub const EVENT_CATEGORY: u32 = 22;
pub const EVENT_NAME: u32 = 23;
pub const EVENT_VALUE: u32 = 30;
pub const EVENT_EXTRA_TRACKS: u32 = 31;
pub const EVENT_OLD_FLOW: u32 = 36;
pub const EVENT_OLD_LAST_FLOW: u32 = 42;
pub const EVENT_FLOAT_VALUE: u32 = 44;
pub const EVENT_EXTRA_FLOAT_TRACKS: u32 = 45;
pub const EVENT_EXTRA_FLOAT_VALUES: u32 = 46;
pub const EVENT_FLOW: u32 = 47;
pub const EVENT_LAST_FLOW: u32 = 48;

// An extension of TrackEvent, GpuCorrelation
pub const EVENT_OF_GPU: u32 = 3000;
pub const GPU_LAUNCHED: u32 = 1;

// TrackEvent.LegacyEvent
pub const CHROME_NAME_ID: u32 = 1;
pub const CHROME_PHASE: u32 = 2;
pub const CHROME_DURATION_US: u32 = 3;
pub const CHROME_PID: u32 = 18;
pub const CHROME_TID: u32 = 19;

// TracePacketDefaults
pub const DEFAULTS_EVENT: u32 = 11;

// TrackEvent.Type
pub const SLICE_BEGIN: u64 = 1;
pub const SLICE_END: u64 = 2;
pub const INSTANT: u64 = 3;
pub const COUNTER: u64 = 4;

// DebugAnnotation
pub const ARGUMENT_KEY_ID: u32 = 1;
pub const ARGUMENT_BOOLEAN: u32 = 2;
pub const ARGUMENT_UNSIGNED: u32 = 3;
pub const ARGUMENT_INTEGER: u32 = 4;
pub const ARGUMENT_FLOAT: u32 = 5;
pub const ARGUMENT_TEXT: u32 = 6;
pub const ARGUMENT_POINTER: u32 = 7;
pub const ARGUMENT_NESTED: u32 = 8;
pub const ARGUMENT_JSON: u32 = 9;
pub const ARGUMENT_KEY: u32 = 10;
pub const ARGUMENT_ENTRY: u32 = 11;
pub const ARGUMENT_ELEMENT: u32 = 12;
pub const ARGUMENT_TEXT_ID: u32 = 17;

// DebugAnnotation.NestedValue
pub const NESTED_KEY: u32 = 2;
pub const NESTED_VALUE: u32 = 3;
pub const NESTED_ELEMENT: u32 = 4;
pub const NESTED_INTEGER: u32 = 5;
pub const NESTED_FLOAT: u32 = 6;
pub const NESTED_BOOLEAN: u32 = 7;
pub const NESTED_TEXT: u32 = 8;

// InternedData, and the entries that it holds
pub const INTERNED_CATEGORY: u32 = 1;
pub const INTERNED_NAME: u32 = 2;
pub const INTERNED_KEY: u32 = 3;
pub const INTERNED_STAGE: u32 = 24;
pub const INTERNED_VALUE: u32 = 29;
pub const INTERNED_GPU_COUNTERS: u32 = 47;
pub const INTERNED_KERNEL: u32 = 1000;
pub const INTERNED_ID: u32 = 1;
pub const INTERNED_TEXT: u32 = 2;
pub const INTERNED_DEMANGLED: u32 = 3;
pub const INTERNED_COUNTERS: u32 = 2;
pub const INTERNED_COUNTERS_GPU: u32 = 3;
