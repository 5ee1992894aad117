//! PyTorch Kineto's Chrome JSON (`*.pt.trace.json`, plain or gzip): facts, rewriting and merging, as a stream.
//!
//! Place in the flow: [`read_facts`] fills `model::TraceFacts`; [`rewrite`] puts every time through a map; [`merge`] puts
//! several nodes into one file. Three dialects exist, told apart by what they say of time:
//!
//! | dialect | `ts`, µs | absolute picoseconds |
//! |---|---|---|
//! | [`Dialect::Microseconds`] (2022–23) | absolute, whole | `ts · 10^6` |
//! | [`Dialect::Nanoseconds`] | absolute, with ns digits | `ts · 10^6` |
//! | [`Dialect::Based`] | since `baseTimeNanoseconds` | `base · 10^3 + ts · 10^6` |
//!
//! The base may stand before the events or after them. What is changed is written in the third dialect; what is not changed
//! keeps its very digits, and what is not a time passes byte for byte, be it valid UTF-8 or not. What it does not do: decide
//! what the map is.

mod base;
mod collectives;
mod decimal;
mod document;
mod edits;
mod facts;
mod merge;
mod rewrite;
mod scan;
mod sink;
mod source;
mod tracks;

pub use base::{Dialect, InputBase};
pub use facts::{KinetoFacts, read_facts, read_kineto};
pub use merge::{MergeInput, MergeOptions, MergeStats, merge};
pub use rewrite::{RewriteOptions, RewriteStats, rewrite};

#[cfg(test)]
mod tests;
