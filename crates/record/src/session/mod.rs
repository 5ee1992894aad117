//! Sessions, which define what is recorded, when and where.
//!
//! A program's [`Builder`] creates a [`Session`]; threads find it through `active`. The session's
//! own thread takes clock pairs and, under the policy "stream", moves chunks into blocks
//! ([`helper`]).
//!
//! | file | holds |
//! |---|---|
//! | `builder`, `settings`, `keys` | how a session is asked for |
//! | `prepare` | everything that may be refused; what a start needs |
//! | `handle` | the caller's end |
//! | `live` over `windows`, `schedule`, `appointment`, `reference` | what records now |
//! | `helper`, `pairs` over `worker` | the session's own thread |
//! | `control` | the socket at which others ask |
//! | `standing` | who records, and how |

mod appointment;
mod builder;
mod control;
mod facts;
mod handle;
mod helper;
mod keys;
mod live;
pub(crate) mod modules;
mod pairs;
mod prepare;
mod reference;
mod schedule;
mod settings;
mod standing;
mod windows;
mod worker;

pub use builder::Builder;
pub use facts::Facts;
pub use handle::{Adopted, Adopter, Session};
pub use prepare::Prepared;
pub use schedule::{Phase, Schedule, Step};
pub use settings::Policy;
pub use standing::{Counts, Recorder, Standing};
