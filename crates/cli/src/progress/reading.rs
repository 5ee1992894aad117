//! Progress of commands that read traces: how much they have read so far.
//!
//! How often a file is read depends on its format and on what is asked for, so the share of the work
//! that is done is not known. The size of the traces next to what was read gives the scale.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::work::Work;

/// Shows reading progress until it is dropped.
pub struct Reading {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reading {
    /// Begins for `what`, which is going to read these traces.
    pub fn begin(what: &'static str, traces: &[PathBuf]) -> Self {
        let begun = read_by_process();
        let size =
            traces.iter().filter_map(|trace| std::fs::metadata(trace).ok()).map(|facts| facts.len()).sum::<u64>();
        let size = Some(size).filter(|size| *size > 0);
        let (end, ended) = channel();
        let watch = move || {
            let work = Work::begin(what);
            while ended.recv_timeout(AGAIN) == Err(RecvTimeoutError::Timeout) {
                work.read(read_by_process().saturating_sub(begun), size);
            }
        };
        // Without a thread to watch nothing is shown, and the work goes on.
        let thread = std::thread::Builder::new().name("progress".into()).spawn(watch).ok();
        Self { end: Some(end), thread }
    }
}

/// Bytes that this process has read from anything (proc_pid_io(5), `rchar`); 0 if the system does
/// not tell.
fn read_by_process() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("rchar: ")?.trim().parse().ok());
    count.unwrap_or(0)
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
