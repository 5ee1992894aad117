//! The output file, whose messages are opened and closed and whose lengths are filled in once they
//! are known.
//!
//! An open message's length is a placeholder as wide as the input's length. Most messages close
//! while they are still in the buffer, where the placeholder is resized to fit. A plane larger than
//! the buffer is patched in the file: it is padded if the length became shorter, and moved by a
//! byte or two if the length outgrew its width, which happens at most once per factor of 128. Each
//! event is therefore mapped once, memory is bounded, and an unchanged length is written as it was.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use probe_sync_files::AtomicFile;

use crate::Error;
use crate::protobuf::{self, put_varint};

/// A file that appears under its name when it is complete.
pub(super) struct Sink {
    path: PathBuf,
    /// Written in blocks at given positions, bypassing its own buffer.
    file: AtomicFile,
    /// Bytes already in the file.
    flushed: u64,
    buffer: Vec<u8>,
    holes: Vec<Hole>,
    /// How much is held before it is written to the file.
    limit: usize,
}

/// Position of an open message's length.
struct Hole {
    at: u64,
    /// The length as in the input.
    raw: Vec<u8>,
    input_length: u64,
}

impl Sink {
    /// Begins a file beside `path`.
    pub(super) fn create(path: &Path) -> Result<Sink, Error> {
        Sink::with_limit(path, BUFFER_BYTES)
    }

    /// Like [`Self::create`], with another size of the buffer.
    fn with_limit(path: &Path, limit: usize) -> Result<Sink, Error> {
        let file = AtomicFile::create_seekable(path).map_err(Error::io(path, "create"))?;
        let buffer = Vec::with_capacity(limit + (limit >> 2));
        let path = path.to_path_buf();
        Ok(Sink { path, file, flushed: 0, buffer, holes: Vec::new(), limit })
    }

    /// The buffer, to append to.
    #[inline]
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Writes the buffer out when it is full; to be called between fields.
    #[inline]
    pub(super) fn relieve(&mut self) -> Result<(), Error> {
        if self.buffer.len() < self.limit { Ok(()) } else { self.flush() }
    }

    /// Appends any number of bytes.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.buffer.extend_from_slice(bytes);
        self.relieve()
    }

    /// Appends fields that end at `ends`, and writes the buffer out behind the same ones as if they
    /// were appended one by one: whether a length is still in the buffer when its message is closed
    /// decides how it is written.
    pub(super) fn put_fields(&mut self, fields: &[u8], ends: &[u32]) -> Result<(), Error> {
        let (mut done, mut first) = (0, 0);
        while first < ends.len() {
            let filled = |end: &u32| self.buffer.len() + (*end as usize - done) >= self.limit;
            let last = (first + ends[first..].partition_point(|end| !filled(end))).min(ends.len() - 1);
            self.buffer.extend_from_slice(&fields[done..ends[last] as usize]);
            self.relieve()?;
            (done, first) = (ends[last] as usize, last + 1);
        }
        Ok(())
    }

    /// Opens a message: its tag, and its length in the input, as value and as it was written.
    pub(super) fn open(&mut self, tag: &[u8], input_length: u64, raw: &[u8]) {
        self.buffer.extend_from_slice(tag);
        self.holes.push(Hole { at: self.written(), raw: raw.to_vec(), input_length });
        self.buffer.extend_from_slice(raw);
    }

    /// Closes the innermost open message.
    pub(super) fn close(&mut self) -> Result<(), Error> {
        let hole = self.holes.pop().expect("every close belongs to an open of the same function");
        let width = hole.raw.len();
        let length = self.written() - hole.at - width as u64;
        if length == hole.input_length {
            return Ok(());
        }
        if hole.at >= self.flushed {
            let at = (hole.at - self.flushed) as usize;
            let mut prefix = Vec::with_capacity(protobuf::VARINT_MAX);
            put_varint(&mut prefix, length);
            self.buffer.splice(at..at + width, prefix);
            return self.relieve();
        }
        self.flush()?;
        let needed = protobuf::varint_width(length);
        if needed > width {
            self.make_room(hole.at + width as u64, (needed - width) as u64)?;
        }
        let prefix = protobuf::padded_varint(length, needed.max(width));
        let written = self.file.file().and_then(|file| file.write_all_at(&prefix, hole.at));
        written.map_err(Error::io(&self.path, "write"))
    }

    /// Makes the file appear under its name; the number of bytes written.
    pub(super) fn finish(mut self) -> Result<u64, Error> {
        debug_assert!(self.holes.is_empty(), "every message is closed");
        self.flush()?;
        // A trace can be written again from its input: no reason to wait for the disk.
        self.file.commit_without_sync().map_err(Error::io(&self.path, "rename"))?;
        Ok(self.flushed)
    }

    /// Bytes so far.
    pub(super) fn written(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    /// Writes the buffer to the file, holes and all.
    fn flush(&mut self) -> Result<(), Error> {
        self.file.file().and_then(|file| file.write_all(&self.buffer)).map_err(Error::io(&self.path, "write"))?;
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Moves everything from `from` on by `by` bytes; the buffer must be empty.
    fn make_room(&mut self, from: u64, by: u64) -> Result<(), Error> {
        let file = self.file.file().map_err(Error::io(&self.path, "write"))?;
        let mut chunk = vec![0; MOVE_BYTES as usize];
        let mut end = self.flushed;
        while end > from {
            let count = (end - from).min(MOVE_BYTES);
            let piece = &mut chunk[..count as usize];
            file.read_exact_at(piece, end - count).map_err(Error::io(&self.path, "read"))?;
            file.write_all_at(piece, end - count + by).map_err(Error::io(&self.path, "write"))?;
            end -= count;
        }
        // Inner messages are closed by now and outer holes are before `from`: nothing else has to
        // move.
        self.flushed += by;
        std::io::Seek::seek(file, std::io::SeekFrom::Start(self.flushed)).map_err(Error::io(&self.path, "write"))?;
        Ok(())
    }
}

/// Size of the buffer; the processor's cache should still contain it when the kernel copies it.
const BUFFER_BYTES: usize = 256 << 10;
/// Size of the pieces moved if a length outgrew its place.
const MOVE_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::{Fields, Value, put_bytes};

    /// Writes nested messages through a buffer of `limit` bytes, with lengths stated as
    /// `inner_length` in the input, and decodes the result.
    fn check(limit: usize, said_length: u64, pieces: usize) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out");
        let mut sink = Sink::with_limit(&path, limit).expect("a file");
        let mut said = Vec::new();
        put_varint(&mut said, said_length);
        sink.open(&[0x0a], said_length, &said);
        sink.open(&[0x12], said_length, &said);
        let mut inner = Vec::new();
        for index in 0..pieces {
            let mut piece = Vec::new();
            put_bytes(&mut piece, 3, &[index as u8; 7]);
            sink.put(&piece).expect("written");
            inner.extend_from_slice(&piece);
        }
        sink.close().expect("closed");
        sink.put(&[0x20, 1]).expect("written");
        sink.close().expect("closed");
        let written = sink.finish().expect("finished");

        let bytes = std::fs::read(&path).expect("the file");
        assert_eq!(bytes.len() as u64, written);
        let outer = only(&bytes, 1);
        let fields = Fields::of(outer).collect::<Result<Vec<_>, _>>().expect("two fields");
        assert_eq!(fields.len(), 2);
        assert_eq!(fields[0].value, Value::Bytes(&inner), "limit {limit}, said {said_length}");
        assert_eq!(fields[1].value, Value::Number(1));
    }

    fn only(bytes: &[u8], number: u32) -> &[u8] {
        let fields = Fields::of(bytes).collect::<Result<Vec<_>, _>>().expect("a message");
        assert_eq!((fields.len(), fields[0].number), (1, number));
        match fields[0].value {
            Value::Bytes(bytes) => bytes,
            _ => panic!("not bytes"),
        }
    }

    #[test]
    fn lengths_are_right_whether_they_grow_or_shrink_in_memory_or_in_the_file() {
        for limit in [8, 64, 1 << 20] {
            for said_length in [1, 100, 127, 128, 20_000, 3_000_000] {
                for pieces in [0, 1, 14, 100, 2000] {
                    check(limit, said_length, pieces);
                }
            }
        }
    }

    #[test]
    fn a_pipe_is_refused_before_it_is_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pipe.xplane.pb");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("coreutils").success());
        // Opened, it would wait for a reader for ever.
        let refusal = Sink::create(&path).err().expect("lengths are filled in at the end").to_string();
        assert!(refusal.contains("pipe.xplane.pb") && refusal.contains("pipe or a device"), "{refusal}");
    }

    #[test]
    fn an_unfinished_file_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let sink = Sink::create(&folder.path().join("out")).expect("a file");
        drop(sink);
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
    }
}
