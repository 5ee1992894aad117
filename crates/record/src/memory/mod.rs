//! The memory of recordings: mapped stretches of it, who may use which chunk, and the page that a forked child finds empty.
//!
//! Place in the flow: under `active` and `thread`. Uses [`crate::layout`] alone.

pub(crate) mod barrier;
pub(crate) mod chunk;
pub(crate) mod gate;
pub(crate) mod lock;
pub(crate) mod order;
pub(crate) mod pool;
pub(crate) mod region;
pub(crate) mod stream;

#[cfg(test)]
mod tests;
