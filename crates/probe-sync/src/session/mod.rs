//! A run as an object: start, the next round, its state, stop.
//!
//! Every rank has its [`Session`]; rank 0 is the root, which writes the shared files and gets the
//! report. [`run()`](crate::run) is a thin wrapper around it.
//!
//! It does not choose the backend, handle signals, print or end the job: it returns errors, and the
//! caller decides how to handle the other ranks.

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
