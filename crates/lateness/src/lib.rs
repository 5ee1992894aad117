//! Who was last at an operation that several ranks wait in, by how much, and how sure that is.
//!
//! Pure: times on the reference clock and their uncertainty come in as arguments. `analysis` feeds
//! it the operations of recorded traces, `probe-sync` the arrivals of a job that runs; the lead,
//! ties and uncertainty are the same in both.
//!
//! Rank i arrives at aᵢ. last = argmax aᵢ, lead = a_last − a_second. The lead is wrong by the
//! clocks of two ranks, σ² = σᵢ² + σⱼ². The last rank is named where a_last − aⱼ > 3σ against every
//! other rank j; otherwise those within 3σ are tied, and no rank is named.
//!
//! | module | holds |
//! |---|---|
//! | `operation` | one operation, judged |
//! | `host` | a host whose ranks all came last |
//! | `live` | arrivals of a job that runs → who is late, and who is waited for |
//!
//! The derivation is on the page of `probe_sync_alignment`'s lateness.
#![forbid(unsafe_code)]

pub mod host;
pub mod live;
pub mod operation;
