//! Events with standardized arguments: collective operations, memory, backward passes and debug
//! handles.
//!
//! Each has a macro, and plain functions below it for programs not written in Rust. Exporters look
//! for these argument names and translate them into the names that readers of each format know
//! ([`keys`]).

mod backward;
mod collective;
mod memory;

#[cfg(test)]
mod tests;

pub use backward::{backward, forward, thread_number};
pub use collective::{Collective, Part, enter as enter_collective, site_of as site_of_collective};
pub use memory::{MemoryCounts, MemoryEvent, memory, site_of as site_of_memory};

/// Keys of these events' arguments.
pub mod keys {
    /// Operation of a collective, as returned by [`Collective::as_str`](super::Collective::as_str).
    pub const COLLECTIVE: &str = "collective";
    /// Name of the group.
    pub const GROUP: &str = "group";
    /// Ranks of the group, in order, as JSON.
    pub const RANKS: &str = "ranks";
    /// Number of ranks in the group.
    pub const GROUP_SIZE: &str = "group_size";
    /// Number of the operation in its group.
    pub const SEQUENCE: &str = "sequence";
    /// Type of the elements.
    pub const DTYPE: &str = "dtype";
    /// Number of elements that this rank sends.
    pub const SENT: &str = "sent";
    /// Number of elements that this rank receives.
    pub const RECEIVED: &str = "received";
    /// Root of a rooted operation.
    pub const ROOT: &str = "root";
    /// Rank that sends a message.
    pub const SOURCE: &str = "source";
    /// Rank that receives a message.
    pub const DESTINATION: &str = "destination";
    /// Address of memory.
    pub const ADDRESS: &str = "address";
    /// Size of memory.
    pub const BYTES: &str = "bytes";
    /// Device of memory.
    pub const DEVICE: &str = "device";
    /// Memory allocated on the device afterwards.
    pub const ALLOCATED: &str = "total_allocated";
    /// Memory reserved from the device by the allocator afterwards.
    pub const RESERVED: &str = "total_reserved";
    /// Number by which a backward call and its forward call are matched.
    pub const SEQUENCE_NUMBER: &str = "sequence_number";
    /// Thread id of the forward call.
    pub const FORWARD_THREAD: &str = "forward_thread";
    /// Dimensions of the tensors of an operator, as JSON.
    pub const SHAPES: &str = "shapes";
    /// Call stack, as returned by [`stack`](crate::hook::stack).
    pub const STACK: &str = "stack";
    /// Name by which a scope declares itself a module of the model.
    pub const MODULE: &str = "module";
    /// Handle by which a compiled program identifies the origin of an operator.
    pub const DEBUG_HANDLE: &str = "debug_handle";
}
