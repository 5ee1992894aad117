//! The settings of a database writer.

use std::path::PathBuf;
use std::time::Duration;

use super::file_system::Journal;

/// Where and how often; the default is what rocprofv3's users know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The file, with rocprofv3's keys: `%hostname%`, `%pid%`, `%ppid%`, `%pgid%`, `%rank%`,
    /// `%size%`, `%job%`, `%nid%`, `%env{NAME}%`, also as `{pid}`, and `%h %p %j %r %s`. Folders
    /// are made.
    pub output: PathBuf,
    /// What has been recorded is committed at least this often. A killed process loses at most this
    /// much.
    pub flush_interval: Duration,
    /// Rows after which is committed before the interval has passed.
    pub flush_rows: usize,
    /// Events that a thread's buffer holds while the file system is slower than the program; what
    /// comes when it is full is dropped and counted. A thread takes 120 bytes of memory per event
    /// that has been in it at once, and its arguments.
    pub buffer_events: usize,
    /// How long `finish` goes on trying when the disk is full or does not answer.
    pub finish_timeout: Duration,
    /// The journal, where the file system's own is not wanted.
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
