//! The memory of recordings: mapped regions, the assignment of chunks to threads, and the page that
//! is empty in a forked child.

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
