//! Which events of the traces go into a merged file: of which ranks, from when until when, of what kind, and how many bytes of them.
//!
//! Place in the flow: between the maps and the formats that merge. `wanted` is what the caller says, `steps` finds when steps of the program were, `judge` says of each
//! event whether it stays, `budget` which lengths have to go where the output may only be so large, `chunks` does all this to chunks, `report` tells what was left out.
//! Times are judged on the reference clock, so that the same moment is kept of all ranks; an event that reaches into the span stays whole. All traces take part in
//! the calibration, whatever is written of them. What it does not do: cut events, or look for who was late ([`lateness()`](crate::lateness())).

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
