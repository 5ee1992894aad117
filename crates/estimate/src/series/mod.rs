//! Corrections as functions of time, from knots to a map that converts one clock's times to
//! another's.
//!
//! `graph` gives an offset per node and round; [`TimeMap::from_offsets`] joins a node's rounds into
//! a map S_i → S_0, [`smooth`] makes knots out of noisy clock pairs, and the `alignment` crate
//! sends every event of a trace through [`MapChain`] (tracer clock R → system clock S_i → reference
//! S_0).
//!
//! A map is `t ↦ t − correction(t)`, correction piecewise linear between knots, in exact integer
//! picoseconds. Segments hold what is continuous; a step of a clock is the break between two
//! segments. What the map returns never goes back: it is the running maximum of the raw map, so
//! order and nesting of events survive whatever the order of the file.
//!
//! It does not decide how to treat times far outside the knots; it reports them in [`Place`].

mod compose;
mod curve;
mod doubts;
mod growth;
mod map;
mod offsets;
mod piece;
mod place;
pub mod smooth;

pub use compose::{Join, MapChain};
pub use curve::{CurvePoint, sample_curve};
pub(crate) use growth::BEND_NS_PER_S2;
pub use growth::Growth;
pub use map::{Break, Continuation, Cursor, Knot, Mapped, Segment, TimeMap};
pub use offsets::{Axis, Certainty, Interpolation, KnownBreaks, OffsetMap, OffsetSample, Step};
pub use place::Place;
