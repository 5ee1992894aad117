//! Measures how the clocks of a cluster's nodes differ while a job runs.
//!
//! Flow of a run, and the rooms of this crate; a room imports only earlier ones:
//! 1. `config` — the settings, from one table of keys;
//! 2. `store` — the run's directory, its JSON lines, the protobuf export;
//! 3. `join` — the hand-shake: who takes part, who is a node, where it is reached, who is the
//!    reference;
//! 4. `measure` — the probe thread, snapshot pairs, virtual clocks, counters;
//! 5. `pace` — how fast the next window probes, fixed or adaptive;
//! 6. `late` — arrivals of the training loop, and which rank is late;
//! 7. `report` — what the root keeps of a run: shared files, the judge of known truth, metrics, the
//!    final report;
//! 8. `clock` — the global clock and what keeps it right;
//! 9. `round` — the node's part, the exchange between ranks, the master's part, and the loop that
//!    joins them;
//! 10. `session` — a run on a thread of its own ([`Session`]), step by step ([`Driver`]) and as a
//!     function ([`run()`]). Beside it
//!     `solve`: a run once more, from its files;
//! 11. `regions` — several runs in one job, and one among their masters, put on one timeline by
//!     `solve`.
//!
//! `error`, `infinity` and `wire` (the bytes between ranks) stand below all rooms. A caller brings
//! a `Collective`.
#![forbid(unsafe_code)]

pub mod clock;
pub mod config;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod infinity;
mod join;
pub mod late;
mod measure;
mod pace;
mod regions;
pub mod report;
mod round;
mod session;
pub mod solve;
mod store;
mod wire;

pub use clock::GlobalClock;
pub use config::Config;
pub use error::Error;
pub use join::{KeyFile, PartOfJob};
pub use late::{Arrivals, HangRequests, LateStanding, LateView};
pub use measure::counters::Counter;
pub use measure::snapshots;
pub use measure::virtual_clocks::Truth;
pub use pace::adaptive::PacingReport;
pub use probe_sync_collective as collective;
#[cfg(feature = "mpi")]
pub use probe_sync_mpi as mpi;
pub use probe_sync_sys::{ReadTracerClock, TracerClock};
pub use regions::{Regions, RegionsReport};
pub use report::RunReport;
pub use round::notes::Notes;
pub use round::request::{PHASE_MAX, Request, Requests, Since, Ticket};
pub use session::{
    Context, Driver, FilesToRoot, HangEvidence, Observer, Progress, Session, SessionBuilder, Started, State, ask,
    collect_hang_evidence, run,
};
pub use store::{MarkWriter, MarkedProcess, export, kept_successors, received, standing};
