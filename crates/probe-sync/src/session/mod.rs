//! A run as an object: start, the next round, its state, stop.
//!
//! Every rank has its [`Driver`], which proceeds from round to round as its caller asks; a
//! [`Session`] has one on a thread of its own, and [`run()`](crate::run) is a thin wrapper around
//! one. Rank 0 is the root, which writes the shared files and gets the report.
//!
//! It does not choose the backend, handle signals, print or end the job: it returns errors, and the
//! caller decides how to handle the other ranks.

mod beside;
mod builder;
mod by_launcher;
mod context;
mod ctl;
mod driver;
mod evidence;
mod files;
mod hang;
mod reach;
mod reconnect;
mod recording;
mod run;
mod start;
#[cfg(test)]
mod tests;

pub use self::beside::{Progress, Session};
pub use self::builder::SessionBuilder;
pub use self::context::{Context, Observer, Started};
pub use self::ctl::ask;
pub(crate) use self::ctl::{ControlSocket, Served};
pub use self::driver::{Driver, State};
pub use self::evidence::{HangEvidence, collect_hang_evidence};
pub use self::files::FilesToRoot;
pub use self::run::run;
