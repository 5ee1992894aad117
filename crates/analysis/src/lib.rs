//! Answers questions about the traces of a job once their clocks are known.
//!
//! [`lateness()`] finds who was late to the collective operations, by how much, and how certain
//! that is. `query` (feature `rocpd`) asks the databases of all processes with SQL, through the
//! same maps as an alignment. Both start from `calibrate`; neither learns clocks or rewrites
//! traces.
//!
//! It uses `alignment` (maps, nodes, pairing), `formats`, `lateness` (the judgement of one
//! operation), `estimate` (maps), and for queries `rocpd`, `sys` (virtual tables) and `files`.
#![forbid(unsafe_code)]

mod error;
mod lateness;
#[cfg(feature = "rocpd")]
pub mod query;

pub use error::{Error, ErrorKind};
pub use lateness::{
    ArrivalLine, AsRecorded, Class, CriticalPath, HostLine, LateIn, LateInstance, LateTrack, Lateness, OperationLine,
    PathShare, RankLine, StepLine, Straggler, Unpaired, lateness, lost_ns,
};
