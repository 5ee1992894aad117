//! Typed time for every other crate. The type of a reading states its clock, so that times of
//! different clocks cannot be subtracted by accident.
//!
//! It imports no other crate of this project. Absolute times are `i64` nanoseconds, because at
//! Unix-epoch scale one step of `f64` is 256 ns. Only differences are ever converted to `f64`.
//!
//! Signs, with two nodes: node 1 is 1000 ns ahead of node 0, so `offset_1 = S_1 − S_0 = +1000 ns`.
//! An event that node 1 stamps 5000 happened at 5000 − 1000 = 4000 on node 0's clock: a time
//! becomes a reference time by subtracting the offset.
//!
//! It does not handle leap seconds.
#![forbid(unsafe_code)]

mod clock;
mod exchange;
mod instant;
mod namespace;
mod round;
mod session_key;
mod unit;

pub use clock::{Clock, SkewedClock, Step, Wave};
pub use exchange::{Edge, Exchange, NodeId, RunId, Stamp, StampSource};
pub use instant::{Boot, Counter, Domain, Duration, Monotonic, Raw, Reference, Skew, System, Timestamp, Tracer};
pub use namespace::TimeNamespace;
pub use round::RoundId;
pub use session_key::SessionKey;
pub use unit::with_unit;
