//! How the recorder behaves: a named test per behaviour, with real threads, signals, forks and
//! kills.
//!
//! Tests share the process's one session, so each takes [`support::alone`]. Where a process must
//! die or have signal handlers of its own, this program is started again ([`child`]).

mod behaviour;
#[cfg(feature = "recording")]
mod child;
#[cfg(feature = "recording")]
mod clocks;
#[cfg(feature = "recording")]
mod disk;
#[cfg(feature = "recording")]
mod edges;
#[cfg(feature = "recording")]
mod filters;
#[cfg(feature = "recording")]
mod forks;
#[cfg(feature = "recording")]
mod hostile;
#[cfg(feature = "recording")]
mod kills;
#[cfg(feature = "recording")]
mod memory;
#[cfg(not(feature = "recording"))]
mod off;
#[cfg(feature = "recording")]
mod signals;
#[cfg(all(feature = "recording", target_arch = "x86_64"))]
mod stepped;
#[cfg(feature = "recording")]
mod stops;
mod support;
#[cfg(feature = "recording")]
mod table;

#[global_allocator]
static ALLOCATOR: support::Counting = support::Counting;
