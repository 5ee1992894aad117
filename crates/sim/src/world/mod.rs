//! The simulated world: clocks, network, stamps, and the event loop that drives the real endpoints
//! through them.
//!
//! `events` is the loop; it reads `clock`s that `oscillator` drew, sends packets over `network`
//! (with `queue`), keeps them `in_flight`, and counts in `ground_truth` what happened to them. All
//! randomness comes from `random`.

pub(crate) mod clock;
pub(crate) mod events;
pub(crate) mod ground_truth;
mod in_flight;
pub(crate) mod network;
pub(crate) mod oscillator;
mod pairs;
mod queue;
pub(crate) mod random;
mod stamp_errors;
mod stamps;
