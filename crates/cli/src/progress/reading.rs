//! How far a command is that reads traces, by the bytes that it has read of them.
//!
//! What it does not do: tell of databases, of which nothing is counted; nothing is shown then.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use probe_sync_trace::bytes_read;

use super::work::Work;

/// Watches until it goes.
pub struct Reading {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reading {
    /// `what` is going to read these files so many times.
    pub fn begin(what: &'static str, files: &[PathBuf], passes: u64) -> Self {
        let total = files.iter().map(|path| bytes(path)).sum::<u64>() * passes;
        let (end, ended) = channel();
        let begun = bytes_read();
        let watch = move || {
            let work = Work::begin(what);
            while ended.recv_timeout(AGAIN) == Err(RecvTimeoutError::Timeout) {
                let read = bytes_read() - begun;
                if read > 0 {
                    // What is read is not yet written.
                    work.at((read as f64 / total.max(1) as f64).min(NEARLY), "");
                }
            }
        };
        // Without a thread to watch nothing is shown, and the work goes on.
        let thread = std::thread::Builder::new().name("progress".into()).spawn(watch).ok();
        Self { end: Some(end), thread }
    }
}

/// Of a file, or of those in a folder that is given in place of its traces.
fn bytes(path: &Path) -> u64 {
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum(),
        Err(_) => path.metadata().map_or(0, |metadata| metadata.len()),
    }
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
