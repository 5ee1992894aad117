//! Which rank is late while the job runs.
//!
//! Data flows one way: [`Arrivals`] (a rank's ring, filled by the training loop, or by `collectives`
//! from the recorder's scopes) → `sender` (once a second, as words beside the rounds) → `root` (all
//! ranks' arrivals on the reference clock, judged by `probe_sync_lateness::live`) → `document`
//! ([`LateStanding`], the lines of `late.jsonl`) → every rank's caller. `turn` joins them for one
//! rank; the round loop calls it several times a second.
//!
//! `hang` asks all ranks for evidence while the job hangs.
//!
//! A job that reports no arrivals costs nothing and sends nothing. Nothing here waits, and what is
//! too much is dropped and counted.

mod arrivals;
mod collectives;
mod document;
mod hang;
mod root;
mod said;
mod sender;
mod turn;

pub use arrivals::Arrivals;
pub(crate) use document::LATE_FILE;
pub use document::{Late, LateEvent, LateLine, LateRecord, LateStanding, LateWindow, MissingRank, WaitLine};
pub use hang::HangRequests;
pub(crate) use root::Totals;
pub(crate) use said::{Answer, Said};
pub use turn::LateView;
pub(crate) use turn::Turn;
