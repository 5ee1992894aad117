//! Progress of commands that read traces: how much they have read so far.
//!
//! How often a file is read depends on its format and on what is asked for, so the share of the work
//! that is done is not known. The size of the traces next to what was read gives the scale.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use probe_sync_alignment::{Request, folders};

use super::work::Work;

/// Shows reading progress until it is dropped.
pub struct Reading {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reading {
    /// Begins for `what`, which is going to read the traces of this request.
    pub fn begin(what: &'static str, request: &Request) -> Self {
        let (begun, request) = (read_by_process(), request.clone());
        let (end, ended) = channel();
        let watch = move || {
            let work = Work::begin(what);
            let size = size_of(&request);
            while ended.recv_timeout(AGAIN) == Err(RecvTimeoutError::Timeout) {
                work.read(read_by_process().saturating_sub(begun), size);
            }
        };
        // Without a thread to watch nothing is shown, and the work goes on.
        let thread = std::thread::Builder::new().name("progress".into()).spawn(watch).ok();
        Self { end: Some(end), thread }
    }
}

/// Returns the size in bytes of all traces of a request, including those in its folders; `None` if
/// there are none.
fn size_of(request: &Request) -> Option<u64> {
    let paths = folders::of_request(request).ok()?.paths;
    let size = paths.iter().filter_map(|path| std::fs::metadata(path).ok()).map(|facts| facts.len()).sum();
    Some(size).filter(|size| *size > 0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_folder_is_that_of_its_traces() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let trace = folder.path().join("rank0.json");
        std::fs::write(&trace, r#"{"schemaVersion": 1, "traceEvents": []}"#).expect("writable");
        let of = |path: &std::path::Path| size_of(&Request { traces: vec![path.to_owned()], ..Request::default() });
        assert_eq!(of(folder.path()), Some(39));
        assert_eq!(of(&trace), Some(39));
        assert_eq!(of(&folder.path().join("nothing")), None);
    }
}
