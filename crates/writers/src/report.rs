//! The writer's settings before the first chunk, and its report after the last.

use serde::Serialize;

/// Facts passed to a writer before the first chunk.
#[derive(Clone, Debug, Default)]
pub struct Meta {
    /// Base of the times in formats that count from one, ns on the chunks' clock.
    pub base_ns: i64,
    /// Facts about the whole trace, as names and texts, for formats that can store them.
    pub metadata: Vec<(String, String)>,
    /// Number of ranks in the job, if known, for formats that can store it.
    pub world_size: Option<u32>,
    /// Backend of the job's collectives (`nccl`, `gloo`), if known, for formats that can store it.
    pub backend: Option<String>,
}

/// Counts of what was written.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WriteReport {
    /// Tracks declared.
    pub tracks: u64,
    /// Slices; the output has each of them in full length.
    pub slices: u64,
    /// Instants.
    pub instants: u64,
    /// Counter values.
    pub counters: u64,
    /// Flow ends.
    pub flow_ends: u64,
    /// Flow ends without a slice on their track that begins at their time; they are not in the
    /// output.
    pub unbound_flow_ends: u64,
    /// Tracks added because slices of a row overlap without nesting.
    pub lanes: u64,
    /// Clock snapshots written for machines on clocks of their own.
    pub clock_pairs: u64,
    /// Largest distance between a time of an event through these snapshots and through the
    /// machine's map, ns.
    pub clock_off_ns: u64,
    /// Parts of collective operations written as such, in formats that have events for them.
    pub collectives: u64,
    /// Communicators of these operations.
    pub communicators: u64,
    /// Bytes passed to the output.
    pub bytes: u64,
}
