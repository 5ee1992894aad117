//! Bounded line-by-line reading of text files.
//!
//! A line longer than [`LONGEST_LINE`] is an error, so a gigabyte of spaces costs no memory. A last
//! line without its line feed may have been cut short when a run was killed, which is reported to
//! the caller. A recording of days consists of several files ([`closed_segments`]), and ranks that
//! replaced a lost one wrote others ([`continuations`]); all are read as one.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::Error;
use probe_sync_files::{closed_segments, continuations, open_regular};
use probe_sync_formats::Error as TraceError;

/// The lines of a file, or of the files of a recording, oldest first.
pub(super) struct Lines {
    /// The file that was asked for: the last one of the recording.
    asked: PathBuf,
    /// The file that is read.
    path: PathBuf,
    reader: BufReader<File>,
    /// The segment that is read; `None` for the last file.
    segment: Option<u32>,
    /// The files that continued others and the rounds from which they did, latest first.
    continued: Vec<(u64, PathBuf)>,
    /// Number of lines in the files before this one.
    before: u64,
    buffer: Vec<u8>,
    number: u64,
}

/// One line.
pub(super) struct Line<'a> {
    /// Counted from 1, over all files.
    pub(super) number: u64,
    /// Without the line feed and without spaces around it.
    pub(super) text: &'a [u8],
    /// It ends a file without a line feed.
    pub(super) may_be_cut: bool,
}

impl Lines {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let (segment, first, reader) = match next_segment(path, 0)? {
            Some((number, first, reader)) => (Some(number), first, reader),
            None => (None, path.to_path_buf(), open(path)?),
        };
        let mut continued = continuations(path);
        continued.reverse();
        let asked = path.to_path_buf();
        Ok(Self { asked, path: first, reader, segment, continued, before: 0, buffer: Vec::new(), number: 0 })
    }

    /// Whether a round also occurs in a later file, which takes precedence: a rank that was lost
    /// may have written once more when it woke.
    pub(super) fn superseded(&self, round: u64) -> bool {
        self.continued.last().is_some_and(|(first, _)| round >= *first)
    }

    /// Continues with the next file; returns false if there is none.
    fn open_next(&mut self) -> Result<bool, Error> {
        let Some(number) = self.segment else { return self.open_continuation() };
        // Opened before it is looked whether there is another segment: a run that goes on may close
        // this file at any moment.
        let last = open(&self.asked);
        let (segment, path, reader) = match next_segment(&self.asked, number)? {
            Some((number, path, reader)) => (Some(number), path, reader),
            None if is_missing(&last) => return self.open_continuation(),
            None => (None, self.asked.clone(), last?),
        };
        (self.segment, self.path, self.reader, self.before) = (segment, path, reader, self.number);
        Ok(true)
    }

    fn open_continuation(&mut self) -> Result<bool, Error> {
        let Some((_, asked)) = self.continued.pop() else { return Ok(false) };
        let (segment, path, reader) = match next_segment(&asked, 0)? {
            Some((number, first, reader)) => (Some(number), first, reader),
            None => (None, asked.clone(), open(&asked)?),
        };
        (self.asked, self.segment, self.path, self.reader, self.before) = (asked, segment, path, reader, self.number);
        Ok(true)
    }

    /// The next line that is not empty.
    pub(super) fn next(&mut self) -> Result<Option<Line<'_>>, Error> {
        loop {
            self.buffer.clear();
            let mut bounded = (&mut self.reader).take(LONGEST_LINE as u64 + 1);
            let read = bounded.read_until(b'\n', &mut self.buffer).map_err(Error::io(&self.path, "read"))?;
            if read == 0 {
                if self.open_next()? {
                    continue;
                }
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
        Error::Line { path: self.path.clone(), line: line.saturating_sub(self.before), problem: problem.into() }
    }
}

/// The first existing segment after this one: a running run removes its oldest.
fn next_segment(path: &Path, after: u32) -> Result<Option<(u32, PathBuf, BufReader<File>)>, Error> {
    for (number, path) in closed_segments(path).into_iter().filter(|(number, _)| *number > after) {
        let opened = open(&path);
        if !is_missing(&opened) {
            return Ok(Some((number, path, opened?)));
        }
    }
    Ok(None)
}

fn is_missing<T>(opened: &Result<T, Error>) -> bool {
    matches!(opened, Err(Error::Trace(TraceError::Io { source, .. })) if source.kind() == ErrorKind::NotFound)
}

fn open(path: &Path) -> Result<BufReader<File>, Error> {
    open_regular(path).map(BufReader::new).map_err(Error::io(path, "open"))
}

/// A round of tens of thousands of nodes fits.
pub(super) const LONGEST_LINE: usize = 16 << 20;
