//! The settings of a database writer.

use std::path::PathBuf;
use std::time::Duration;

use super::file_system::Journal;

/// Location and timing of the output; the default is what users of rocprofv3 expect.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The file, with rocprofv3's keys: `%hostname%`, `%pid%`, `%ppid%`, `%pgid%`, `%rank%`,
    /// `%size%`, `%job%`, `%nid%`, `%env{NAME}%`, also as `{pid}`, and `%h %p %j %r %s`. Folders
    /// are created.
    pub output: PathBuf,
    /// Recorded events are committed at least this often. A killed process loses at most this much.
    pub flush_interval: Duration,
    /// Number of rows that triggers a commit before the interval has passed.
    pub flush_rows: usize,
    /// Events that the buffer of a thread holds while the file system is slower than the program;
    /// events that arrive when it is full are dropped and counted. A thread takes 120 bytes of
    /// memory per event of the highest fill level so far, plus the arguments.
    pub buffer_events: usize,
    /// How long `finish` retries if the disk is full or does not respond.
    pub finish_timeout: Duration,
    /// The journal, if not the default for the file system.
    pub journal: Option<Journal>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            output: PathBuf::from("%hostname%/%pid%_results.db"),
            flush_interval: Duration::from_secs(1),
            flush_rows: 10_000,
            buffer_events: 1 << 15,
            finish_timeout: Duration::from_secs(30),
            journal: None,
        }
    }
}
