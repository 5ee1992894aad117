//! Puts raw profiler traces onto one clock, and proves that causality holds on it.
//!
//! Flow: [`calibrate()`] reads what the traces know of their clocks and collectives, settles which
//! node each belongs to ([`nodes`]), and makes a time map per trace out of offsets and snapshot
//! pairs ([`clocks`]) → [`align()`] rewrites every trace through its map, [`merge()`] puts all into
//! one file, [`convert()`] writes viewers' formats, and [`check()`] proves or disproves
//! happens-before from the operations that [`collectives`] pairs. The command line, launchers and
//! other languages call these functions.
//!
//! It uses `formats` (reading, rewriting), `writers`, `files`, `time`, `estimate` (offset series
//! and the lines of a run's files) and, for the members of operations, `otf2`. Who was late and
//! queries over databases are in `analysis`; measuring clocks is the task of crate `probe-sync`.
#![forbid(unsafe_code)]

mod added_track;
mod align;
mod calibrate;
mod calibrated;
mod check;
mod chunk_options;
pub mod clocks;
pub mod collectives;
mod convert;
mod copies;
mod counting;
mod documents;
pub mod early_devices;
mod error;
mod filter;
pub mod folders;
mod held_out;
mod merge;
pub mod nodes;
mod omitted;
pub mod one_clock;
mod outputs;
mod paired;
mod perfetto_tar;
mod provenance;
mod request;
#[cfg(test)]
mod same_events;
mod step_names;
pub mod window;

pub use added_track::AddedTrack;
pub use align::{AlignSettings, Aligned, Aligning, align};
pub use calibrate::calibrate;
pub use calibrated::{Calibrated, CalibratedTrace};
pub use check::{Verdict, VerdictDocument, check};
pub use collectives::{CheckReport, CollectiveOffsets, MAX_RATE_CHANGE_PPM, Outcome};
pub use convert::{CollectiveFlows, ConvertReport, ConvertSettings, Converted, Output, OutputKind, Written, convert};
pub use counting::AlignmentStats;
pub use documents::{AlignDocument, AlignedTrace, ConvertDocument, CsvFile, MergeDocument};
pub use error::Error;
pub use filter::{FilterReport, FilterSettings, Kinds, Ranks, Steps};
pub use merge::{MergeReport, MergeSettings, merge};
pub use nodes::{NodeTrace, SettledBy};
pub use omitted::{Omitted, OmittedEvents, OmittedTrace};
pub use paired::pairing;
pub use perfetto_tar::{TarMember, TarReport};
pub use request::{ClockSource, OutputClock, Request};
pub use step_names::{STEP_PATTERN, StepNames};
pub use window::{Bound, Window};
