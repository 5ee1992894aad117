//! What a run leaves on disk, written so that a killed run leaves every finished round readable.
//!
//! Place in the flow: what is recorded round by round is JSON lines ([`Stream`]), in segments where it is long, and stops without ending the run where the disk
//! is full; whole documents (`run.json`, `truth.json`, `metrics.prom`) are
//! written beside their place and renamed; [`RunDirectory`] is where they lie; [`export`] makes one protobuf file of them. A traced
//! process of a run adds its marks ([`MarkWriter`]). Ranks that do not see the directory bring theirs to the root's ([`received()`]).
//! For its next process a rank keeps who may take the master's place ([`kept_successors`]).
//!
//! What it does not do: decide what is written when (`report`, `round`).

mod directory;
pub mod export;
mod lines;
mod marks;
mod offsets;
mod proto_generated;
mod received;
mod records;
pub mod standing;
mod stream;
mod successors;

pub(crate) use self::directory::{RunDirectory, run_in, write_whole};
pub use self::marks::{MarkWriter, MarkedProcess};
pub(crate) use self::offsets::{write_offsets, write_offsets_to};
pub use self::received::received;
pub(crate) use self::received::{ReceivedFiles, own_file, pairs_file};
pub(crate) use self::records::{ProbeLine, ProbeWindowLine, RecordedLine};
pub use self::stream::StreamState;
pub(crate) use self::stream::{Limits, Stream};
pub use self::successors::kept_successors;
pub(crate) use self::successors::{forget_successors, keep_successors};
