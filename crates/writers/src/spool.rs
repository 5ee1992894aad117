//! Many parallel streams of bytes in bounded memory, with the excess in a file.
//!
//! It serves formats in which the parts of a row must be contiguous although they arrive
//! interleaved with those of other rows. The contents of memory are written in blocks to one
//! unnamed file in the directory for temporary files (`TMPDIR`). A block begins with the position
//! of the previous block of the same stream, so nothing is stored per block until a stream is
//! copied.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use probe_sync_formats::Error;
use probe_sync_formats::model::parts::nameless;

use super::sink::Sink;

/// Streams by number, from 0 on.
#[derive(Debug)]
pub(super) struct Spool {
    streams: Vec<Stream>,
    /// Bytes of all streams in memory.
    buffered: usize,
    buffered_max: usize,
    file: Option<File>,
    /// End of the file.
    end: u64,
}

#[derive(Debug)]
struct Stream {
    buffer: Vec<u8>,
    /// Its bytes in the file.
    spilled: u64,
    /// Position of its last block in the file.
    last: u64,
}

impl Default for Spool {
    fn default() -> Self {
        Self::with_memory(BUFFERED_MAX)
    }
}

impl Spool {
    fn with_memory(buffered_max: usize) -> Self {
        Self { streams: Vec::new(), buffered: 0, buffered_max, file: None, end: 0 }
    }

    /// Adds a stream.
    pub(super) fn add(&mut self) -> usize {
        self.streams.push(Stream { buffer: Vec::new(), spilled: 0, last: NO_BLOCK });
        self.streams.len() - 1
    }

    /// Appends to a stream.
    ///
    /// # Errors
    /// The folder for temporary files takes no more.
    #[inline]
    pub(super) fn append(&mut self, stream: usize, put: impl FnOnce(&mut Vec<u8>)) -> Result<(), Error> {
        let buffer = &mut self.streams[stream].buffer;
        let before = buffer.len();
        put(buffer);
        self.buffered += buffer.len() - before;
        if self.buffered < self.buffered_max { Ok(()) } else { self.spill() }
    }

    /// Length of a stream.
    pub(super) fn bytes(&self, stream: usize) -> u64 {
        let Stream { buffer, spilled, .. } = &self.streams[stream];
        spilled + buffer.len() as u64
    }

    /// Copies a stream to an output.
    ///
    /// # Errors
    /// The temporary file cannot be read, or the output takes no more.
    pub(super) fn copy<W: Write>(&self, stream: usize, out: &mut Sink<W>) -> Result<(), Error> {
        let Stream { buffer, last, .. } = &self.streams[stream];
        let mut blocks = Vec::new();
        let mut at = *last;
        while let Some(file) = self.file.as_ref().filter(|_| at != NO_BLOCK) {
            let mut head = [0; HEAD_BYTES];
            file.read_exact_at(&mut head, at).map_err(temporary("read"))?;
            let (before, length) = head.split_at(8);
            let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("it was split after eight bytes"));
            blocks.push((at + HEAD_BYTES as u64, number(length)));
            at = number(before);
        }
        let mut piece = Vec::new();
        for (at, length) in blocks.into_iter().rev() {
            let file = self.file.as_ref().expect("a block was found in it");
            for from in (0..length).step_by(PIECE_BYTES) {
                piece.resize((length - from).min(PIECE_BYTES as u64) as usize, 0);
                file.read_exact_at(&mut piece, at + from).map_err(temporary("read"))?;
                out.buffer().extend_from_slice(&piece);
                out.settle()?;
            }
        }
        out.buffer().extend_from_slice(buffer);
        out.settle()
    }

    /// Moves what is in memory to the file.
    #[cold]
    fn spill(&mut self) -> Result<(), Error> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(nameless().map_err(temporary("create a file in"))?),
        };
        // Each may keep its share of the memory, so that many streams keep no more than few.
        let kept = self.buffered_max / self.streams.len().max(1);
        let mut blocks = Vec::with_capacity(self.buffered + HEAD_BYTES * self.streams.len());
        for stream in self.streams.iter_mut().filter(|stream| !stream.buffer.is_empty()) {
            let at = self.end + blocks.len() as u64;
            blocks.extend_from_slice(&stream.last.to_le_bytes());
            blocks.extend_from_slice(&(stream.buffer.len() as u64).to_le_bytes());
            blocks.extend_from_slice(&stream.buffer);
            stream.spilled += stream.buffer.len() as u64;
            stream.last = at;
            stream.buffer.clear();
            stream.buffer.shrink_to(kept);
        }
        file.write_all_at(&blocks, self.end).map_err(temporary("write"))?;
        self.end += blocks.len() as u64;
        self.buffered = 0;
        Ok(())
    }
}

fn temporary(action: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::io(&std::env::temp_dir(), action)(source)
}

/// Bytes in memory at most.
const BUFFERED_MAX: usize = 16 << 20;
/// Size of the start of a block: the position of the previous one, and its length.
const HEAD_BYTES: usize = 16;
/// Bytes that are copied at a time.
const PIECE_BYTES: usize = 128 << 10;
/// Before the first block of a stream.
const NO_BLOCK: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn streams_come_back_whole(pieces in proptest::collection::vec((0_usize..5, 0_usize..300), 0..80), memory in 1_usize..2000) {
            let mut spool = Spool::with_memory(memory);
            let mut expected = vec![Vec::new(); 5];
            (0..5).for_each(|stream| assert_eq!(spool.add(), stream));
            for (number, (stream, length)) in pieces.into_iter().enumerate() {
                let piece = vec![number as u8; length];
                expected[stream].extend_from_slice(&piece);
                spool.append(stream, |out| out.extend_from_slice(&piece)).expect("room for temporary files");
            }
            for (stream, expected) in expected.iter().enumerate() {
                let mut sink = Sink::new(Vec::new());
                spool.copy(stream, &mut sink).expect("what was written");
                let (found, _) = sink.finish().expect("memory takes everything");
                prop_assert_eq!(spool.bytes(stream), expected.len() as u64);
                prop_assert_eq!(&found, expected);
            }
        }
    }
}
