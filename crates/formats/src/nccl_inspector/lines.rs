//! Reads a log line by line, plain or gzip, with bounded memory.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Result};

use flate2::read::MultiGzDecoder;

use crate::{BYTE_ORDER_MARK, gzip};

/// The lines of a file.
pub(super) struct Lines {
    input: Box<dyn BufRead>,
    held: Vec<u8>,
    number: u64,
    offset: u64,
}

/// A line, without its line feed.
pub(super) struct Line<'a> {
    pub(super) text: &'a [u8],
    /// Number of the line, from 1.
    pub(super) number: u64,
    /// Its place in the decompressed file, bytes.
    pub(super) offset: u64,
    /// It has more than [`LINE_MAX`] bytes, and `text` is empty.
    pub(super) is_too_long: bool,
    /// It is the last one and lacks the line feed with which the plugin ends each line.
    pub(super) is_open: bool,
}

impl Lines {
    /// Opens the lines of a file.
    pub(super) fn open(mut file: File) -> Result<Self> {
        let is_packed = gzip::is_packed(&gzip::head(&mut file, 2)?);
        let input: Box<dyn BufRead> = if is_packed {
            Box::new(BufReader::new(MultiGzDecoder::new(file)))
        } else {
            Box::new(BufReader::new(file))
        };
        Ok(Self { input, held: Vec::new(), number: 0, offset: 0 })
    }

    /// Reads the next line that is not blank.
    pub(super) fn next(&mut self) -> Result<Option<Line<'_>>> {
        loop {
            self.held.clear();
            let offset = self.offset;
            let most = LINE_MAX as u64 + 1;
            let read = self.input.by_ref().take(most).read_until(b'\n', &mut self.held)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.offset += read as u64;
            let is_ended = self.held.last() == Some(&b'\n');
            let is_too_long = !is_ended && read > LINE_MAX;
            if is_too_long {
                self.held = Vec::new();
                self.offset += self.skip()?;
            }
            let blank = self.held.trim_ascii().is_empty();
            if is_too_long || !blank {
                let text = self.held.trim_ascii();
                let text = text.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(text);
                return Ok(Some(Line { text, number: self.number, offset, is_too_long, is_open: !is_ended }));
            }
        }
    }

    /// Reads to the end of the line; returns its length, bytes.
    fn skip(&mut self) -> Result<u64> {
        let mut skipped = 0;
        loop {
            let held = self.input.fill_buf()?;
            let (count, is_end) = match memchr::memchr(b'\n', held) {
                Some(at) => (at + 1, true),
                None => (held.len(), held.is_empty()),
            };
            self.input.consume(count);
            skipped += count as u64;
            if is_end {
                return Ok(skipped);
            }
        }
    }
}

/// Longest line, bytes. With the 64 channels that the plugin can hold a line has about 15 KB.
pub(super) const LINE_MAX: usize = 1 << 20;
