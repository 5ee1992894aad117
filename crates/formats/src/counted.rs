//! The number of trace bytes that this process has read, for progress displays.
//!
//! Every pass over Kineto JSON and protobuf files, packed or not, is counted. The count is global
//! to the process, like the system's own I/O counters; no result depends on it. It does not count
//! databases, whose pages SQLite reads.

use std::io::{Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns the bytes of trace files, as stored on disk, that this process has read or skipped so
/// far.
pub fn bytes_read() -> u64 {
    BYTES.load(Ordering::Relaxed)
}

static BYTES: AtomicU64 = AtomicU64::new(0);

/// A file whose reads count.
#[derive(Debug)]
pub struct Counted<R> {
    inner: R,
    at: u64,
}

impl<R> Counted<R> {
    /// Starts at the beginning of the file.
    pub fn new(inner: R) -> Self {
        Self { inner, at: 0 }
    }

    fn reached(&mut self, at: u64) {
        BYTES.fetch_add(at.saturating_sub(self.at), Ordering::Relaxed);
        self.at = at;
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.reached(self.at + count as u64);
        Ok(count)
    }
}

impl<R: Seek> Seek for Counted<R> {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        let at = self.inner.seek(to)?;
        self.reached(at);
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_over_counts_once() {
        let before = bytes_read();
        let mut file = Counted::new(std::io::Cursor::new(vec![0; 100]));
        file.read_exact(&mut [0; 10]).expect("there are as many");
        file.seek(SeekFrom::Start(60)).expect("within it");
        file.seek(SeekFrom::Start(60)).expect("within it");
        file.read_to_end(&mut Vec::new()).expect("the rest");
        // Other tests read at the same time.
        assert!(bytes_read() - before >= 100);
        assert_eq!(file.at, 100);
    }
}
