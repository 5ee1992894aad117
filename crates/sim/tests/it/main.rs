//! The simulator against itself and against the endpoints' books.
mod accounting;
mod estimate;
mod running;
mod truth;
