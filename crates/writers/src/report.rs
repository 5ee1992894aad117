//! The writer's settings before the first chunk, and its report after the last.

use serde::Serialize;

/// What a writer is told before the first chunk.
#[derive(Clone, Debug, Default)]
pub struct Meta {
    /// Where times that a format counts from a base begin, ns on the chunks' clock.
    pub base_ns: i64,
    /// What is known of the whole trace, as names and texts, for formats that have a place for it.
    pub metadata: Vec<(String, String)>,
    /// Ranks in the job, where known, for formats that have a place for it.
    pub world_size: Option<u32>,
    /// What the job's collectives run on (`nccl`, `gloo`), where known, for formats that have a
    /// place for it.
    pub backend: Option<String>,
}

/// What was written.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WriteReport {
    /// Tracks that were declared.
    pub tracks: u64,
    /// Slices; each is in the output with its whole length.
    pub slices: u64,
    /// Moments.
    pub instants: u64,
    /// Values of counters.
    pub counters: u64,
    /// Ends of flows.
    pub flow_ends: u64,
    /// Those of them at whose time no slice began on their track; they are not in the output.
    pub unbound_flow_ends: u64,
    /// Tracks that were added because slices of a row overlap without nesting.
    pub lanes: u64,
    /// Instants that were stated on two clocks, for machines on clocks of their own.
    pub clock_pairs: u64,
    /// How far those leave a time of an event from where the machine's map has it, ns at most.
    pub clock_off_ns: u64,
    /// Parts of collective operations that are written as such, in formats that have events for
    /// them.
    pub collectives: u64,
    /// Communicators of these operations.
    pub communicators: u64,
    /// Bytes that the output was given.
    pub bytes: u64,
}
