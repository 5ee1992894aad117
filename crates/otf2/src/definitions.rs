//! The enumerations of OTF2's definitions, with the library's values.

use crate::bindings as raw;

/// Reference to no definition.
pub const UNDEFINED: u32 = u32::MAX;

/// Kind of a group of locations.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// An operating system process.
    Process,
    /// A device.
    Accelerator,
    /// Unknown.
    Unknown,
}

/// Kind of a location.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum LocationKind {
    /// A thread of a process.
    Thread,
    /// A stream or queue of a device.
    Stream,
    /// A location with values of metrics only.
    Metric,
}

/// A process or device with its locations.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LocationGroup {
    /// The string of its name.
    pub name: u32,
    /// Kind of the group.
    pub kind: GroupKind,
    /// The node of the system tree that it is on.
    pub node: u32,
    /// The group of the process that it belongs to, or [`UNDEFINED`].
    pub creator: u32,
}

/// Role of a region.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RegionRole {
    /// A span of time.
    Code,
    /// An instant.
    Moment,
}

/// What is entered and left.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The string of its name.
    pub name: u32,
    /// The string of its description.
    pub description: u32,
    /// Role of the region.
    pub role: RegionRole,
}

/// A collective operation of MPI, the only kind that OTF2 has events for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum CollectiveOperation {
    /// MPI_Barrier.
    Barrier,
    /// MPI_Bcast.
    Broadcast,
    /// MPI_Gather.
    Gather,
    /// MPI_Scatter.
    Scatter,
    /// MPI_Allgather.
    AllGather,
    /// MPI_Alltoall.
    AllToAll,
    /// MPI_Allreduce.
    AllReduce,
    /// MPI_Reduce.
    Reduce,
    /// MPI_Reduce_scatter.
    ReduceScatter,
}

impl GroupKind {
    pub(crate) fn value(self) -> raw::OTF2_LocationGroupType {
        (match self {
            Self::Process => raw::OTF2_LOCATION_GROUP_TYPE_PROCESS,
            Self::Accelerator => raw::OTF2_LOCATION_GROUP_TYPE_ACCELERATOR,
            Self::Unknown => raw::OTF2_LOCATION_GROUP_TYPE_UNKNOWN,
        }) as raw::OTF2_LocationGroupType
    }
}

impl LocationKind {
    pub(crate) fn value(self) -> raw::OTF2_LocationType {
        (match self {
            Self::Thread => raw::OTF2_LOCATION_TYPE_CPU_THREAD,
            Self::Stream => raw::OTF2_LOCATION_TYPE_ACCELERATOR_STREAM,
            Self::Metric => raw::OTF2_LOCATION_TYPE_METRIC,
        }) as raw::OTF2_LocationType
    }
}

impl RegionRole {
    pub(crate) fn value(self) -> raw::OTF2_RegionRole {
        (match self {
            Self::Code => raw::OTF2_REGION_ROLE_CODE,
            Self::Moment => raw::OTF2_REGION_ROLE_ARTIFICIAL,
        }) as raw::OTF2_RegionRole
    }
}

impl CollectiveOperation {
    pub(crate) fn value(self) -> raw::OTF2_CollectiveOp {
        (match self {
            Self::Barrier => raw::OTF2_COLLECTIVE_OP_BARRIER,
            Self::Broadcast => raw::OTF2_COLLECTIVE_OP_BCAST,
            Self::Gather => raw::OTF2_COLLECTIVE_OP_GATHER,
            Self::Scatter => raw::OTF2_COLLECTIVE_OP_SCATTER,
            Self::AllGather => raw::OTF2_COLLECTIVE_OP_ALLGATHER,
            Self::AllToAll => raw::OTF2_COLLECTIVE_OP_ALLTOALL,
            Self::AllReduce => raw::OTF2_COLLECTIVE_OP_ALLREDUCE,
            Self::Reduce => raw::OTF2_COLLECTIVE_OP_REDUCE,
            Self::ReduceScatter => raw::OTF2_COLLECTIVE_OP_REDUCE_SCATTER,
        }) as raw::OTF2_CollectiveOp
    }
}
