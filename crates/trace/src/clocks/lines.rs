//! Text files read line by line with bounds.
//!
//! Place in the flow: under the readers of offsets and snapshot pairs. A line longer than [`LONGEST_LINE`] is an error, so
//! a gigabyte of spaces costs no memory; a last line without its line feed may be one that a killed run cut short, which
//! the caller is told. What it does not do: parse.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::Error;

/// The lines of a file.
pub(super) struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    buffer: Vec<u8>,
    number: u64,
}

/// One line.
pub(super) struct Line<'a> {
    /// Counted from 1.
    pub(super) number: u64,
    /// Without the line feed and without spaces around it.
    pub(super) text: &'a [u8],
    /// It ends the file without a line feed.
    pub(super) may_be_cut: bool,
}

impl Lines {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(Error::io(path, "open"))?;
        Ok(Self { path: path.to_path_buf(), reader: BufReader::new(file), buffer: Vec::new(), number: 0 })
    }

    /// The next line that is not empty.
    pub(super) fn next(&mut self) -> Result<Option<Line<'_>>, Error> {
        loop {
            self.buffer.clear();
            let mut bounded = (&mut self.reader).take(LONGEST_LINE as u64 + 1);
            let read = bounded.read_until(b'\n', &mut self.buffer).map_err(Error::io(&self.path, "read"))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            if read > LONGEST_LINE {
                return Err(self.problem(self.number, format!("longer than {LONGEST_LINE} bytes")));
            }
            if !self.buffer.trim_ascii().is_empty() {
                break;
            }
        }
        let may_be_cut = self.buffer.last() != Some(&b'\n');
        Ok(Some(Line { number: self.number, text: self.buffer.trim_ascii(), may_be_cut }))
    }

    /// An error about a line of this file.
    pub(super) fn problem(&self, line: u64, problem: impl Into<String>) -> Error {
        Error::Line { path: self.path.clone(), line, problem: problem.into() }
    }
}

/// A round of tens of thousands of nodes fits.
pub(super) const LONGEST_LINE: usize = 16 << 20;
