//! Selects the events of the traces that go into a merged file, by rank, time span, kind and output
//! size.
//!
//! `wanted` holds the caller's selection, `steps` finds the times of the program's steps, `judge`
//! decides for each event whether it stays, `budget` finds the minimum length under a size limit,
//! `chunks` applies all this to chunks, and `report` states what was left out. Times are compared
//! on the reference clock, so that the same moments of all ranks are kept; an event that reaches
//! into the span is kept whole. All traces take part in the calibration, even those that are not
//! written. It does not cut events.

mod budget;
mod chunks;
mod clock;
mod judge;
mod report;
mod steps;
#[cfg(test)]
mod tests;
mod wanted;

pub(crate) use chunks::ChunkFilter;
pub(crate) use judge::JobFilter;
pub use report::FilterReport;
pub use wanted::{FilterSettings, Kinds, Ranks, Steps};
