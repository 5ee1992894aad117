//! The estimators against measurements of other people's machines.
mod clock_resets;
mod hard_bounds;
mod real_packets;
mod support;
mod xdf;
