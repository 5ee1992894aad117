//! Probe packets and the six-packet exchange as state machines, which turn bytes and time into
//! actions.
//!
//! A driver owns the socket and the clock and feeds an [`Endpoint`]; finished [`Exchange`]s come
//! out with eight timestamps each, and [`Counters`] state exactly how many packets were lost on the
//! way.
//!
//! ```text
//! prober i                         responder j
//!   Pt1 ───────────────────────────▶ rx
//!   Pt2 (one spacing later) ───────▶ rx
//!   Pt3 (tx stamps of 1 and 2) ────▶
//!    rx ◀─────────────────────────── Pr1 (rx stamps)
//!    rx ◀────── (one spacing later)  Pr2
//!       ◀─────────────────────────── Pr3 (rx and tx stamps)
//! ```
//!
//! It does not open sockets, read clocks, spawn threads or log, and it does not cut windows or fit
//! lines.
//!
//! [`Exchange`]: probe_sync_time::Exchange
#![forbid(unsafe_code)]

mod counters;
mod endpoint;
mod outbox;
mod packet;
mod prober;
mod responder;
mod schedule;
mod seen;
mod tally;
pub mod topology;

pub use counters::{AnswerCounters, Counters, EdgeWindowCounts, ExchangeCounters, ForeignCounters, PeerCounters};
pub use endpoint::{Endpoint, EndpointConfig, Error};
pub use outbox::{Transmit, TxContext};
pub use packet::{Kind, PACKET_BYTES, Packet, Reject};
pub use schedule::Schedule;
pub use tally::Tally;
