//! Collective operations: which parts belong together, whether causality holds, and what they
//! reveal about the clocks.
//!
//! Formats deliver [`CollectiveParts`] per node; `matching` groups the parts of one operation
//! across the nodes; `check` evaluates happens-before under any time map; `from_collectives`
//! derives bounds on the clocks from the same groups when no probes were sent.
//!
//! The rule. An all-to-all operation over group G cannot end anywhere before it has begun
//! everywhere: on every rank of G the end is no earlier than the latest start on any rank of G.
//! Rooted and point-to-point operations order only what they carry: a receiver's end is no earlier
//! than its sender's start.
//!
//! How edges are counted. An EDGE is one part's end against the latest start that it must follow.
//! An all-to-all operation with parts on n ranks has n edges, a broadcast or scatter n − 1 (every
//! end but the root's), a reduce or gather 1 (the root's end), a send with its receive 1. Counting
//! ordered pairs of ranks instead, n·(n − 1), was rejected: one late start would count n − 1 times.

mod assignment;
mod check;
mod communicators;
mod groups;
mod matching;
mod offsets;
mod report;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use self::check::instance_text;
pub(crate) use self::check::{CheckOptions, check};
pub use self::check::{CheckReport, Outcome};
pub(crate) use self::communicators::{Process, Shared, join};
pub use self::matching::Evidence;
pub use self::matching::{MatchOptions, Matching, Operation, Order, Pairing, match_operations};
pub use self::offsets::{CollectiveOffsets, MAX_RATE_CHANGE_PPM};
pub(crate) use self::offsets::{Half, OffsetOptions, from_collectives};
pub(crate) use self::report::{brief, details, table};
pub use self::report::{lay_out, span};

use probe_sync_formats::model::parts::CollectiveParts;
use probe_sync_formats::model::{GroupKey, MappedTime, Picoseconds, Steps};

/// A time map: a time on the trace's timeline R to one on the common clock.
pub type MapTime<'a> = dyn Fn(Picoseconds) -> MappedTime + 'a;

/// Input from one node: its collectives, and the map to view them with.
#[derive(Copy, Clone)]
pub struct NodeCollectives<'a> {
    /// What distinguishes it from the others: its rank or number.
    pub node: u32,
    /// The node whose clock it is on; ranks of one host share it.
    pub clock: u32,
    /// Host name, for display.
    pub name: &'a str,
    /// The rank in the job; the node's number if the trace does not state it.
    pub rank: Option<u32>,
    /// Ranks in the job, if the trace states them.
    pub world_size: Option<u32>,
    /// Every process group that the trace lists
    /// ([`probe_sync_formats::model::TraceFacts::groups`]).
    pub groups: &'a [GroupKey],
    /// The parts.
    pub parts: &'a CollectiveParts,
    /// The numbered steps that the trace states.
    pub steps: &'a Steps,
    /// For `check`: R → the common clock (raw: identity with standard deviation 0). For
    /// `from_collectives`: R → the node's own clock.
    pub map: &'a MapTime<'a>,
}

impl NodeCollectives<'_> {
    /// The rank in the job.
    pub fn rank(&self) -> u32 {
        self.rank.unwrap_or(self.node)
    }
}

impl std::fmt::Debug for NodeCollectives<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { node, clock, name, rank, world_size, groups, parts, steps: _, map: _ } = self;
        let mut fields = formatter.debug_struct("NodeCollectives");
        fields
            .field("node", node)
            .field("clock", clock)
            .field("name", name)
            .field("rank", rank)
            .field("world_size", world_size)
            .field("groups", groups);
        fields.field("parts", &parts.len()).finish_non_exhaustive()
    }
}
