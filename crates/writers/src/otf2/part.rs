//! Parts of collective operations, as passed to the writer by the code that joined them.
//!
//! The caller determines the slice of each part.

use probe_sync_otf2::CollectiveOperation;

/// What a slice is of a collective operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CollectivePart<'a> {
    /// The operation, unique in the whole trace.
    pub operation: u64,
    /// Which of its members this is.
    pub member: u32,
    /// How many it has.
    pub members: u32,
    /// What it does.
    pub kind: CollectiveOperation,
    /// Which member is its root, where there is one and it is known.
    pub root: Option<u32>,
    /// What the traces call its process group; may be empty.
    pub group: &'a str,
}
