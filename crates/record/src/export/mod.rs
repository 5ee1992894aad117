//! Recordings as traces, on the system clock or on a run's reference clock. With the feature
//! `export`.
//!
//! ```
//! use probe_sync_record::export::Format;
//! use probe_sync_record::{Policy, Reach, Recorder, scope};
//!
//! let session = Recorder::builder().reach(Reach::Thread).policy(Policy::Flight { bytes: 1 << 20 }).start()?;
//! {
//!     let _step = scope!("step", step = 17);
//! }
//! let folder = tempfile::tempdir()?;
//! let exported = session.finish()?.on_system()?.write(Format::Perfetto, &folder.path().join("node0.pftrace"))?;
//! assert_eq!((exported.scopes, exported.lost), (1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Recording`](crate::Recording) becomes [`SystemClock`] and the tree of each thread, then
//! chunks in chronological order (`fill`) for a writer of the crate `writers`, or rows for one of
//! the crate `rocpd` (`database`). Memory use does not grow with the recording.

mod clock;
#[cfg(feature = "rocpd")]
mod database;
mod error;
mod fill;
mod format;
mod names;
mod pipe;
mod reference;
mod report;
mod spans;
mod system;
mod with;

#[cfg(test)]
mod tests;

pub use clock::{Doubt, SystemClock};
pub use error::ExportError;
pub use format::Format;
pub use reference::{OnReference, Reference, write_each};
pub use report::Exported;
pub use system::OnSystem;
pub use with::WithTrace;
