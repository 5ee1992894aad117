//! A run as an object: start, the next round, its state, stop.
//!
//! Place in the flow: on top of everything else in this crate. Every rank has its [`Session`]; rank 0 is the root, which writes
//! the shared files and gets the report. [`run()`](crate::run) is a few lines on top of it.
//!
//! What it does not do: choose the backend, handle signals, print, end the job: an error is returned, and what to do about the
//! other ranks is the caller's business.

mod beside;
mod builder;
mod by_launcher;
mod context;
mod ctl;
mod files;
mod live;
mod reach;
mod reconnect;
mod recording;
mod run;
mod start;
#[cfg(test)]
mod tests;

pub use self::beside::{Progress, SessionHandle};
pub use self::builder::SessionBuilder;
pub use self::context::{Context, Observer, Started};
pub(crate) use self::ctl::ControlSocket;
pub use self::ctl::ask;
pub use self::files::FilesToRoot;
pub use self::live::{Session, State};
pub use self::run::run;
