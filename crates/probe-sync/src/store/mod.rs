//! The files that a run leaves on disk, written so that every finished round of a killed run stays
//! readable.
//!
//! Data recorded round by round is JSON lines ([`Stream`]), in segments if it is long; on a full
//! disk the recording stops without ending the run. Whole documents (`run.json`, `truth.json`,
//! `metrics.prom`) are written next to their destination and renamed. [`RunDirectory`] contains
//! them all, and [`export`] makes one protobuf file of them. A traced process of a run adds its
//! marks ([`MarkWriter`]). Ranks that do not see the directory send their files to the root's
//! ([`received()`]), and their nodes' snapshot pairs at the end (`pairs`). A rank keeps the possible
//! successors of the master for its next process ([`kept_successors`]).

mod directory;
pub mod export;
mod lines;
mod marks;
mod offsets;
mod pairs;
mod proto_generated;
mod received;
mod records;
pub mod standing;
mod stream;
mod successors;

pub(crate) use self::directory::{RunDirectory, run_in, write_whole};
pub use self::marks::{MarkWriter, MarkedProcess};
pub(crate) use self::offsets::{write_offsets, write_offsets_to};
pub(crate) use self::pairs::{SentPairs, limit_per_node};
pub use self::proto_generated::{SnapshotPair, SnapshotPairs};
pub use self::received::received;
pub(crate) use self::received::{ReceivedFiles, own_file, pairs_file};
pub(crate) use self::records::{ProbeLine, ProbeWindowLine, RecordedLine};
pub use self::stream::StreamState;
pub(crate) use self::stream::{Limits, Stream};
pub use self::successors::kept_successors;
pub(crate) use self::successors::{forget_successors, keep_successors};
