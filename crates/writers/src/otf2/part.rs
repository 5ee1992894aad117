//! Parts of collective operations, as passed to the writer by the code that joined them.
//!
//! The caller determines the slice of each part.

use probe_sync_otf2::CollectiveOperation;

/// What a slice is in a collective operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CollectivePart<'a> {
    /// The operation, unique in the whole trace.
    pub operation: u64,
    /// Index of this member.
    pub member: u32,
    /// Number of members.
    pub members: u32,
    /// Kind of operation.
    pub kind: CollectiveOperation,
    /// Index of the root member, if there is one and it is known.
    pub root: Option<u32>,
    /// Name of its process group in the traces; may be empty.
    pub group: &'a str,
}
