//! Writes a database as rocprofv3 does, but while the process runs: one database per process,
//! readable while it grows.
//!
//! [`Writer::open`] creates the file; a [`ThreadRecorder`] per thread accepts events and returns at
//! once; the writer's own thread moves them into the database, one transaction per interval or
//! number of rows ([`Settings`]); [`Writer::flush`] commits at once, and [`Writer::finish`] ends it
//! and returns a [`Report`]. [`NamedWriter`] takes names where these take ids.
//!
//! A call never waits for the file system: an event goes into a buffer of its thread, and where
//! that is full because the disk is full or does not answer, the event is dropped and counted, in
//! the report and in the file (tag [`DROPPED_TAG`]). What has been committed survives the end of
//! the process at any moment. In a forked child a writer takes events and writes none: its file is
//! its parent's.
//!
//! It does not read a clock for events: the caller passes times on CLOCK_BOOTTIME, as rocprofv3
//! uses. It does not replace an existing file.
//!
//! ```
//! use probe_sync_rocpd::writer::{Process, Region, Settings, Writer};
//!
//! let folder = tempfile::tempdir()?;
//! let settings = Settings { output: folder.path().join("%hostname%/%pid%_results.db"), ..Settings::default() };
//! let writer = Writer::open(settings, Process::current())?;
//! let (name, category) = (writer.intern("step"), writer.intern("MARKER_RANGE"));
//! let thread = writer.thread(1, Some("main"));
//! thread.region(Region { name, category, start_ns: 1_000, end_ns: 3_500, ..Region::default() });
//! let report = writer.finish()?;
//! assert_eq!((report.events, report.dropped), (1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod agent;
mod buffer;
mod definitions;
mod error;
mod event;
mod file;
mod file_system;
mod flusher;
mod handle;
mod insert;
mod named;
mod pattern;
mod process;
mod settings;

pub use agent::{Agent, AgentKind, Hardware};
pub use definitions::{CodeObject, CounterDefinition, KernelSymbol};
pub use error::Error;
pub use event::{
    AgentId, Argument, CodeObjectId, CounterId, CounterValue, End, Kernel, KernelId, Links, MemoryAllocation,
    MemoryCopy, MemoryOperation, QueueId, Region, Sample, Source, StreamId, StringId, TrackId, message,
};
pub use file::DROPPED_TAG;
pub use file_system::Journal;
pub use flusher::Report;
pub use handle::{ThreadRecorder, Writer};
pub use named::{NamedEvent, NamedKind, NamedWriter};
pub use process::Process;
pub use settings::Settings;
