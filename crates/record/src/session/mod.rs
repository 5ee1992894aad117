//! Sessions: what is recorded, from when to when, and where.
//!
//! Place in the flow: a program's [`Builder`] makes a [`Session`]; threads find it through `active`. A thread of the session's own takes clock pairs and, under the
//! policy "stream", moves chunks into blocks ([`helper`]).

mod builder;
mod facts;
mod handle;
mod helper;
mod keys;
mod settings;
mod stream;

pub use builder::{Builder, Recorder};
pub use facts::Facts;
pub(crate) use handle::Exclusive;
pub use handle::{Adopted, Adopter, Counts, Session};
pub use settings::Policy;
