//! Progress of commands that read traces, measured in bytes read.
//!
//! Of databases SQLite reads the pages: what the system counts of this process beyond the other
//! traces is taken for theirs.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use probe_sync_alignment::{Request, TraceUse, bytes_expected};
use probe_sync_formats::bytes_read;

use super::work::Work;

/// Shows reading progress until it is dropped.
pub struct Reading {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reading {
    /// Begins for `what`, which is going to read the requested traces.
    pub fn begin(what: &'static str, request: &Request, used: TraceUse) -> Self {
        let (request, begun) = (request.clone(), Read::so_far());
        let (end, ended) = channel();
        let watch = move || {
            let work = Work::begin(what);
            // Here, so that the work does not wait until all folders are searched.
            let expected = bytes_expected(&request, &used);
            let read = || Read::so_far().since(&begun, expected.has_databases);
            // What is read is not yet written.
            while ended.recv_timeout(AGAIN) == Err(RecvTimeoutError::Timeout) {
                let share = expected.share(read());
                if share > 0.0 {
                    work.at(share.min(NEARLY), "");
                }
            }
            if expected.bytes() > 0.0 {
                tracing::debug!("{what}: {:.2} of the expected data has been read", read() / expected.bytes());
            }
        };
        // Without a thread to watch nothing is shown, and the work goes on.
        let thread = std::thread::Builder::new().name("progress".into()).spawn(watch).ok();
        Self { end: Some(end), thread }
    }
}

/// Amounts read.
#[derive(Copy, Clone)]
struct Read {
    counted: u64,
    /// All bytes that this process has read; 0 if the system does not tell.
    in_all: u64,
}

impl Read {
    fn so_far() -> Self {
        Self { counted: bytes_read(), in_all: read_by_process().unwrap_or(0) }
    }

    /// Bytes of traces, including those read by SQLite.
    fn since(self, begun: &Self, by_sqlite: bool) -> f64 {
        let (counted, in_all) = (self.counted - begun.counted, self.in_all.saturating_sub(begun.in_all));
        if by_sqlite { counted.max(in_all) as f64 } else { counted as f64 }
    }
}

/// Bytes that this process has read from anything (proc_pid_io(5), `rchar`).
fn read_by_process() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("rchar: "))?.trim().parse().ok()
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed; the work is done all the same.
            let _ = thread.join();
        }
    }
}

const AGAIN: Duration = Duration::from_millis(250);
const NEARLY: f64 = 0.99;
