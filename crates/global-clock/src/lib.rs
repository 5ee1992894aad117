//! The reference clock as every process of a host reads it: a map from a host counter, with its
//! bounds, in a page of shared memory.
//!
//! `probe-sync` makes an [`Estimate`] of every solved round and publishes it ([`Page::publish`]);
//! readers in any process query the page ([`Page::now`]). The counter is `CLOCK_MONOTONIC_RAW` or
//! the processor's time-stamp counter, which are never stepped or slewed, so changes to the system
//! clock after a round have no effect.
//!
//! | module | holds |
//! |---|---|
//! | `line` | a time and a rate in whole numbers |
//! | `source` | which counter, and how its ticks become ns |
//! | [`map`] | what is shown: knots that never go back, the estimate behind them, its bounds |
//! | [`latch`] | two copies and a version: readers never wait for a writer |
//! | [`page`] | where each word lies, and who may read it |
//!
//! Two nodes by hand. Node 1's counter shows 5 000 when the reference shows 9 000, and the
//! reference gains 10 ppm on it. At 1 005 000, a millisecond later, the reference shows 9 000 + 1
//! 000 000 + 10 = 1 009 010.
//!
//! It does not read a counter (the caller passes readings in), map memory (`sys`) or estimate
//! (`estimate`).
#![forbid(unsafe_code)]

pub mod latch;
mod line;
pub mod map;
pub mod page;
mod source;

pub use line::{Line, Rate};
pub use map::{Adjust, Converter, Estimate, Interval, Map, Pairs, Reading, Status};
pub use page::{Identity, Page, Unusable, WORDS};
pub use source::{Scale, Source};
