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

/// What arguments of these events are called.
pub mod keys {
    /// Of a collective: its operation, as [`Collective::as_str`](super::Collective::as_str).
    pub const COLLECTIVE: &str = "collective";
    /// Name of the group.
    pub const GROUP: &str = "group";
    /// Its ranks, in order, as JSON.
    pub const RANKS: &str = "ranks";
    /// How many they are.
    pub const GROUP_SIZE: &str = "group_size";
    /// The operation's number in its group.
    pub const SEQUENCE: &str = "sequence";
    /// The type of elements.
    pub const DTYPE: &str = "dtype";
    /// Elements that go in on this rank.
    pub const SENT: &str = "sent";
    /// Elements that come out on this rank.
    pub const RECEIVED: &str = "received";
    /// The rank that a rooted operation goes out from or comes in to.
    pub const ROOT: &str = "root";
    /// The rank that a message comes from.
    pub const SOURCE: &str = "source";
    /// The rank that it goes to.
    pub const DESTINATION: &str = "destination";
    /// Of memory: where.
    pub const ADDRESS: &str = "address";
    /// How much.
    pub const BYTES: &str = "bytes";
    /// On which device.
    pub const DEVICE: &str = "device";
    /// What is allocated there then.
    pub const ALLOCATED: &str = "total_allocated";
    /// What the allocator holds there then.
    pub const RESERVED: &str = "total_reserved";
    /// By which a backward call and its forward call know each other.
    pub const SEQUENCE_NUMBER: &str = "sequence_number";
    /// The system's number of the thread of the forward call.
    pub const FORWARD_THREAD: &str = "forward_thread";
    /// By which a compiled program knows where an operator comes from.
    pub const DEBUG_HANDLE: &str = "debug_handle";
}
