//! The fields of a plain or gzip-compressed file, read forward only through one small buffer.
//!
//! A message is walked by its headers; unwanted fields are skipped (by seeking in plain files), so
//! a plane of many gigabytes costs no memory. It does not go back; two passes need two sources.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::{Fault, VARINT_MAX};
use crate::Error;
use crate::gzip;

/// A file being read.
pub struct Source {
    path: PathBuf,
    input: Input,
    buffer: Vec<u8>,
    /// Start of the filled, not yet consumed part of the buffer.
    start: usize,
    end: usize,
    /// Position of `buffer[start]` in the (decompressed) file.
    position: u64,
    /// Length of the file, if known before its end.
    length: Option<u64>,
}

/// Source of the bytes.
enum Input {
    Plain(File),
    Gzip(Box<MultiGzDecoder<BufReader<File>>>),
}

/// Tag and length of a field of bytes, as in the file.
#[derive(Copy, Clone, Debug)]
pub struct RawHeader<'a> {
    /// The tag.
    pub tag: &'a [u8],
    /// The length.
    pub length: &'a [u8],
    /// The length's value.
    pub value: u64,
}

/// A field's tag and number or length; the bytes of its value, if any, come next.
#[derive(Copy, Clone, Debug)]
pub struct Header {
    /// Field number.
    pub number: u32,
    /// Wire type: 0, 1, 2 or 5.
    pub wire: u8,
    /// Position of the tag in the file.
    pub at: u64,
    /// The number, or the length in bytes.
    pub value: u64,
    raw: [u8; 2 * VARINT_MAX],
    tag_width: u8,
    raw_width: u8,
}

impl Header {
    /// Tag and number or length as in the file.
    pub fn raw(&self) -> &[u8] {
        &self.raw[..usize::from(self.raw_width)]
    }

    /// The header of a field of bytes.
    pub fn as_raw(&self) -> RawHeader<'_> {
        RawHeader { tag: self.tag(), length: self.value_raw(), value: self.value }
    }

    /// The tag as in the file.
    pub fn tag(&self) -> &[u8] {
        &self.raw[..usize::from(self.tag_width)]
    }

    /// The number or length as in the file.
    pub fn value_raw(&self) -> &[u8] {
        &self.raw[usize::from(self.tag_width)..usize::from(self.raw_width)]
    }

    /// Bytes of the value that follow the header.
    pub fn body(&self) -> u64 {
        match self.wire {
            0 => 0,
            1 => 8,
            2 => self.value,
            _ => 4,
        }
    }

    /// Position of the value's bytes.
    pub fn body_at(&self) -> u64 {
        self.at + u64::from(self.raw_width)
    }

    /// Position of the next field.
    pub fn end(&self) -> u64 {
        self.body_at() + self.body()
    }
}

impl Source {
    /// Opens a file; gzip is recognised by its first two bytes.
    pub fn open(path: &Path) -> Result<Source, Error> {
        let mut file = File::open(path).map_err(Error::io(path, "open"))?;
        let length = file.metadata().map_err(Error::io(path, "read"))?.len();
        let head = gzip::head(&mut file, HEAD_BYTES).map_err(Error::io(path, "read"))?;
        if head.is_empty() {
            return Err(Error::malformed(path, 0, "the file is empty"));
        }
        let (input, length) = if gzip::is_packed(&head) {
            (Input::Gzip(Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER_BYTES, file)))), None)
        } else {
            (Input::Plain(file), Some(length))
        };
        let buffer = vec![0; BUFFER_BYTES];
        Ok(Source { path: path.to_path_buf(), input, buffer, start: 0, end: 0, position: 0, length })
    }

    /// The end of the file as the end of the outermost message; nothing limits it in a packed file.
    pub fn limit(&self) -> u64 {
        self.length.unwrap_or(u64::MAX)
    }

    /// Position of the next byte.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// An error at a position.
    pub fn malformed(&self, at: u64, problem: impl Into<String>) -> Error {
        Error::malformed(&self.path, at, problem)
    }

    /// A fault of a message in memory, as an error of this file; `start` is where the message
    /// begins.
    pub fn fault(&self, start: u64, fault: Fault) -> Error {
        self.malformed(start + fault.at as u64, fault.problem)
    }

    /// The next field of a message that ends at `end`, or `None` when the message is over.
    #[inline]
    pub fn next_header(&mut self, end: u64) -> Result<Option<Header>, Error> {
        if self.position >= end {
            return Ok(None);
        }
        if self.end - self.start < 2 * VARINT_MAX {
            self.fill(2 * VARINT_MAX)?;
            if self.start == self.end {
                if end == u64::MAX {
                    return Ok(None);
                }
                return Err(self.malformed(self.position, "the file ends inside a message"));
            }
        }
        let header = self.parse_header()?;
        let overrun = header.end_checked().is_none_or(|header_end| header_end > end);
        if overrun {
            let (number, body) = (header.number, header.body());
            let problem = format!(
                "field {number} of {body} bytes extends past the end of its message: the file is truncated or has another format"
            );
            return Err(self.malformed(header.at, problem));
        }
        self.consume(usize::from(header.raw_width));
        Ok(Some(header))
    }

    /// The next `length` bytes in one piece; they stay in place until [`Self::consume`].
    #[inline]
    pub fn piece(&mut self, length: u64) -> Result<&[u8], Error> {
        self.ensure(length)?;
        Ok(self.shown(length))
    }

    /// The bytes that [`Self::ensure`] has put into the buffer.
    #[inline]
    pub fn shown(&self, length: u64) -> &[u8] {
        &self.buffer[self.start..self.start + length as usize]
    }

    /// Makes the next `length` bytes contiguous.
    #[inline]
    pub fn ensure(&mut self, length: u64) -> Result<(), Error> {
        if length > PIECE_BYTES_MAX {
            let problem = format!("a message of {length} bytes exceeds the limit of {PIECE_BYTES_MAX}");
            return Err(self.malformed(self.position, problem));
        }
        let length = length as usize;
        if self.end - self.start < length {
            self.fill(length)?;
            if self.end - self.start < length {
                return Err(
                    self.malformed(self.position + (self.end - self.start) as u64, "the file ends inside a message")
                );
            }
        }
        Ok(())
    }

    /// Skips bytes returned by [`Self::piece`].
    #[inline]
    pub fn consume(&mut self, length: usize) {
        debug_assert!(length <= self.end - self.start, "only shown bytes are consumed");
        self.start += length;
        self.position += length as u64;
    }

    /// Skips the next `length` bytes.
    pub fn skip(&mut self, length: u64) -> Result<(), Error> {
        let buffered = ((self.end - self.start) as u64).min(length);
        self.consume(buffered as usize);
        let rest = length - buffered;
        if rest == 0 {
            return Ok(());
        }
        if let (Input::Plain(file), Some(file_length)) = (&mut self.input, self.length) {
            if rest > file_length.saturating_sub(self.position) {
                return Err(self.malformed(file_length, "the file ends inside a message"));
            }
            file.seek(SeekFrom::Start(self.position + rest)).map_err(Error::io(&self.path, "seek in"))?;
            self.position += rest;
            return Ok(());
        }
        self.for_each_chunk(rest, |_| Ok(()))
    }

    /// Passes on the next `length` bytes in chunks, however many there are.
    pub fn for_each_chunk(
        &mut self,
        length: u64,
        mut take: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut left = length;
        while left > 0 {
            if self.start == self.end {
                self.fill(1)?;
            }
            let count = ((self.end - self.start) as u64).min(left) as usize;
            if count == 0 {
                return Err(self.malformed(self.position, "the file ends inside a message"));
            }
            take(&self.buffer[self.start..self.start + count])?;
            self.consume(count);
            left -= count as u64;
        }
        Ok(())
    }

    /// Reads the header at the cursor without passing over it.
    #[inline(always)]
    fn parse_header(&self) -> Result<Header, Error> {
        let shown = &self.buffer[self.start..self.end];
        let shown = &shown[..shown.len().min(2 * VARINT_MAX)];
        let Some((tag, tag_width)) = super::varint(shown) else {
            return Err(self.malformed(self.position, "a field's tag is truncated or too long"));
        };
        let Some(number) = super::field_number(tag) else {
            return Err(self.malformed(self.position, super::bad_tag(tag)));
        };
        let wire_type = (tag & 7) as u8;
        let (value, value_width) = match wire_type {
            0 | 2 => super::varint(&shown[tag_width..]).ok_or_else(|| {
                self.malformed(self.position, "a number or length is truncated or longer than 64 bits")
            })?,
            _ => (0, 0),
        };
        let mut raw = [0; 2 * VARINT_MAX];
        let raw_width = tag_width + value_width;
        // Of fixed size wherever possible: that is two moves instead of a call, and this runs once
        // per event.
        match shown.first_chunk::<{ 2 * VARINT_MAX }>() {
            Some(whole) => raw = *whole,
            None => raw[..raw_width].copy_from_slice(&shown[..raw_width]),
        }
        let (tag_width, raw_width) = (tag_width as u8, raw_width as u8);
        Ok(Header { number, wire: wire_type, at: self.position, value, raw, tag_width, raw_width })
    }

    /// Reads until `want` bytes are in the buffer or the file is over.
    fn fill(&mut self, want: usize) -> Result<(), Error> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buffer.len() < want {
            self.buffer.resize(want.next_power_of_two(), 0);
        }
        // A buffer that a long piece enlarged is not filled for the next short one.
        let full = want.max(BUFFER_BYTES);
        while self.end < want {
            let free = &mut self.buffer[self.end..full];
            let count = match &mut self.input {
                Input::Plain(file) => file.read(free),
                Input::Gzip(decoder) => decoder.read(free),
            };
            match count {
                Ok(0) => break,
                Ok(count) => self.end += count,
                Err(source) if source.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) if matches!(self.input, Input::Gzip(_)) => {
                    let at = self.position + self.end as u64;
                    return Err(self.malformed(at, format!("the gzip data is damaged or truncated: {source}")));
                }
                Err(source) => return Err(Error::io(&self.path, "read")(source)),
            }
        }
        Ok(())
    }
}

impl Source {
    /// Contiguous fields of bytes, in a buffer of their own: those with the one-byte tag `tag` that
    /// follow each other from the cursor on, are complete in the buffer, and end before `end`.
    /// Skips them. `spare` is a buffer to continue with, from an earlier run. `None` if the next
    /// field is another, or none is complete: it is then read by its header, which also reports
    /// errors.
    pub fn take_run(&mut self, tag: u8, end: u64, mut spare: Vec<u8>) -> Result<Option<Run>, Error> {
        let left = end.saturating_sub(self.position);
        let want = left.min(BUFFER_BYTES as u64) as usize;
        if self.end - self.start < want {
            self.fill(want)?;
        }
        let shown = &self.buffer[self.start..self.end];
        let shown = &shown[..(shown.len() as u64).min(left) as usize];
        let mut length = 0;
        while let Some(field) = tagged(&shown[length..], tag) {
            length += field.end;
        }
        if length == 0 {
            return Ok(None);
        }
        let rest = self.start + length..self.end;
        spare.resize(rest.len().max(spare.len()).max(BUFFER_BYTES), 0);
        spare[..rest.len()].copy_from_slice(&self.buffer[rest.clone()]);
        let buffer = std::mem::replace(&mut self.buffer, spare);
        let run = Run { buffer, start: self.start, length, position: self.position };
        (self.start, self.end) = (0, rest.len());
        self.position += length as u64;
        Ok(Some(run))
    }
}

/// Complete fields of one tag that were taken out of a [`Source`].
pub struct Run {
    buffer: Vec<u8>,
    start: usize,
    length: usize,
    position: u64,
}

impl Run {
    /// The fields, one behind the other.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.start + self.length]
    }

    /// Position in the file.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The buffer, for the next run.
    pub fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }

    /// Positions in [`Self::bytes`] of the values of the fields, which all have the tag `tag`.
    pub fn values(&self, tag: u8) -> impl Iterator<Item = Range<usize>> {
        let (bytes, mut at) = (self.bytes(), 0);
        std::iter::from_fn(move || {
            let value = tagged(&bytes[at..], tag)?;
            let value = at + value.start..at + value.end;
            at = value.end;
            Some(value)
        })
    }
}

/// Position of the value of the field at the start of `bytes`, if it has this one-byte tag and is
/// complete.
#[inline(always)]
fn tagged(bytes: &[u8], tag: u8) -> Option<Range<usize>> {
    let [first, rest @ ..] = bytes else { return None };
    if *first != tag {
        return None;
    }
    let (length, width) = super::varint(rest)?;
    let start = 1 + width;
    let end = start.checked_add(usize::try_from(length).ok()?)?;
    (end <= bytes.len()).then_some(start..end)
}

impl Header {
    /// Like [`Self::end`], `None` beyond 64 bits.
    fn end_checked(&self) -> Option<u64> {
        self.body_at().checked_add(self.body())
    }
}

/// The buffer's ordinary size: small enough to stay in the processor's cache.
const BUFFER_BYTES: usize = 256 << 10;
/// The longest contiguous piece that is ever held: an event with its stats.
pub const PIECE_BYTES_MAX: u64 = 16 << 20;
/// Enough to tell gzip.
const HEAD_BYTES: usize = 2;
