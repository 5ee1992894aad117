//! The output file, plain or gzip, which appears under its name only when it is complete.
//!
//! Rewriters append to [`Sink::out`]. Full buffers are written by another thread if
//! there are several processors. Gzip (chosen by the name's ending) uses several
//! threads: blocks go round-robin to workers, each of which deflates its block independently and
//! ends it with a sync flush, and a writer collects them in the same order. Such blocks refer to
//! nothing before them and end on a byte boundary, so they can be concatenated. The file is
//! therefore ONE gzip member, which matters because some readers stop after the first member. The
//! blocks' checksums are combined.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use flate2::{Compress, Compression, Crc, FlushCompress};
use probe_sync_files::AtomicFile;

use crate::Error;
use crate::workers::workers;

/// A file being written.
pub(crate) struct Sink {
    path: PathBuf,
    buffer: Vec<u8>,
    bytes: u64,
    to: To,
}

enum To {
    Plain(AtomicFile),
    Writer(Writer),
    Gzip(Deflater),
    /// Finished, or failed permanently.
    Nobody,
}

impl Sink {
    /// Begins a file beside `path`.
    pub(crate) fn create(path: &Path) -> Result<Sink, Error> {
        let file = AtomicFile::create(path).map_err(Error::io(path, "create"))?;
        let gzip = path.extension().is_some_and(|extension| extension == "gz");
        let start = Error::io(path, "start threads for");
        let to = match gzip {
            true => To::Gzip(Deflater::start(file).map_err(start)?),
            false if workers() > 1 => To::Writer(Writer::start(file).map_err(start)?),
            false => To::Plain(file),
        };
        let buffer = Vec::with_capacity(BLOCK_BYTES + BLOCK_SLACK);
        Ok(Sink { path: path.to_path_buf(), buffer, bytes: 0, to })
    }

    /// Buffer to append to; [`Sink::relieve`] must follow.
    #[inline]
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Passes the buffer on when it is full.
    #[inline]
    pub(crate) fn relieve(&mut self) -> Result<(), Error> {
        if self.buffer.len() < BLOCK_BYTES { Ok(()) } else { self.flush() }
    }

    /// Appends.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.buffer.extend_from_slice(bytes);
        self.relieve()
    }

    /// Bytes so far, before compression.
    pub(crate) fn written(&self) -> u64 {
        self.bytes + self.buffer.len() as u64
    }

    /// Makes the file appear under its name; its length before compression.
    pub(crate) fn finish(mut self) -> Result<u64, Error> {
        self.flush()?;
        let file = std::mem::replace(&mut self.to, To::Nobody).finish().map_err(Error::io(&self.path, "write"))?;
        // A trace can be written again from its input: no reason to wait for the disk.
        file.commit_without_sync().map_err(Error::io(&self.path, "rename"))?;
        Ok(self.bytes)
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.bytes += self.buffer.len() as u64;
        if let To::Plain(file) = &mut self.to {
            file.write_all(&self.buffer).map_err(Error::io(&self.path, "write"))?;
            self.buffer.clear();
            return Ok(());
        }
        let next = Vec::with_capacity(BLOCK_BYTES + BLOCK_SLACK);
        let block = std::mem::replace(&mut self.buffer, next);
        if self.to.give(block) {
            return Ok(());
        }
        // The thread that writes has stopped: it knows why.
        let reason = std::mem::replace(&mut self.to, To::Nobody).finish().err();
        Err(Error::io(&self.path, "write")(reason.unwrap_or_else(stopped)))
    }
}

impl To {
    /// Passes a block on to another thread; returns `false` if that has stopped.
    fn give(&mut self, block: Vec<u8>) -> bool {
        match self {
            To::Writer(writer) => writer.blocks.as_ref().is_some_and(|blocks| blocks.send(block).is_ok()),
            To::Gzip(deflater) => deflater.send(block),
            To::Plain(_) | To::Nobody => false,
        }
    }

    /// Waits until everything is written.
    fn finish(self) -> std::io::Result<AtomicFile> {
        match self {
            To::Plain(file) => Ok(file),
            To::Writer(writer) => writer.finish(),
            To::Gzip(deflater) => deflater.finish(),
            To::Nobody => Err(stopped()),
        }
    }
}

fn stopped() -> std::io::Error {
    std::io::Error::other("the writing thread stopped")
}

/// The thread that writes.
struct Writer {
    blocks: Option<SyncSender<Vec<u8>>>,
    thread: Option<JoinHandle<std::io::Result<AtomicFile>>>,
}

impl Writer {
    fn start(mut file: AtomicFile) -> std::io::Result<Writer> {
        let (blocks, to_write) = sync_channel::<Vec<u8>>(BLOCKS_AHEAD);
        let work = move || to_write.into_iter().try_for_each(|block| file.write_all(&block)).map(|()| file);
        let thread = std::thread::Builder::new().name("write".into()).spawn(work)?;
        Ok(Writer { blocks: Some(blocks), thread: Some(thread) })
    }

    /// Waits until everything is written.
    fn finish(mut self) -> std::io::Result<AtomicFile> {
        self.blocks = None;
        let thread = self.thread.take().ok_or_else(stopped)?;
        thread.join().unwrap_or_else(|_| Err(stopped()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.blocks = None;
        if let Some(thread) = self.thread.take() {
            // Whoever drops it unfinished has an error of its own to report.
            let _ = thread.join();
        }
    }
}

/// The threads that compress and the one that writes.
struct Deflater {
    blocks: Vec<SyncSender<Vec<u8>>>,
    next: usize,
    /// Returns the file, and the number of blocks written.
    writer: Option<JoinHandle<std::io::Result<(AtomicFile, usize)>>>,
}

/// A compressed block.
struct Deflated {
    bytes: std::io::Result<Vec<u8>>,
    checksum: Crc,
}

impl Deflater {
    fn start(file: AtomicFile) -> std::io::Result<Deflater> {
        let workers = workers().min(WORKERS_MAX);
        let mut blocks = Vec::with_capacity(workers);
        let mut results = Vec::with_capacity(workers);
        for _ in 0..workers {
            let (block_sender, block_receiver) = sync_channel(BLOCKS_AHEAD);
            let (result_sender, result_receiver) = sync_channel(BLOCKS_AHEAD);
            // The worker ends when its blocks do; the writer, which waits for all results, is what
            // is joined.
            std::thread::Builder::new()
                .name("deflate".into())
                .spawn(move || deflate_blocks(&block_receiver, &result_sender))?;
            blocks.push(block_sender);
            results.push(result_receiver);
        }
        let writer =
            std::thread::Builder::new().name("gzip writer".into()).spawn(move || write_blocks(file, &results))?;
        Ok(Deflater { blocks, next: 0, writer: Some(writer) })
    }

    /// Passes a block to the next worker; returns `false` if no worker is left.
    fn send(&mut self, block: Vec<u8>) -> bool {
        let worker = self.next % self.blocks.len();
        self.next += 1;
        self.blocks[worker].send(block).is_ok()
    }

    /// Waits until everything is written.
    fn finish(mut self) -> std::io::Result<AtomicFile> {
        self.blocks.clear();
        let lost = || std::io::Error::other("a compressing thread ended early");
        let Some(writer) = self.writer.take() else { return Err(lost()) };
        let (file, written) = writer.join().unwrap_or_else(|_| Err(lost()))?;
        // A worker that died looks like the end to the writer: only the count tells.
        if written == self.next { Ok(file) } else { Err(lost()) }
    }
}

impl Drop for Deflater {
    fn drop(&mut self) {
        self.blocks.clear();
        if let Some(writer) = self.writer.take() {
            // Whoever drops it unfinished has an error of its own to report. The file goes with the
            // thread's result.
            let _ = writer.join();
        }
    }
}

/// A worker's life.
fn deflate_blocks(blocks: &Receiver<Vec<u8>>, results: &SyncSender<Deflated>) {
    let mut compress = Compress::new(Compression::new(LEVEL), false);
    while let Ok(block) = blocks.recv() {
        let mut checksum = Crc::new();
        checksum.update(&block);
        let bytes = deflate(&mut compress, &block);
        if results.send(Deflated { bytes, checksum }).is_err() {
            return;
        }
    }
}

/// Compresses one block on its own, ended by a sync flush.
fn deflate(compress: &mut Compress, block: &[u8]) -> std::io::Result<Vec<u8>> {
    compress.reset();
    let mut out = Vec::with_capacity(block.len() / 4 + 1024);
    loop {
        let consumed = compress.total_in() as usize;
        compress.compress_vec(&block[consumed..], &mut out, FlushCompress::Sync).map_err(std::io::Error::other)?;
        // Room left over means that nothing was held back.
        if compress.total_in() as usize == block.len() && out.len() < out.capacity() {
            return Ok(out);
        }
        out.reserve(out.capacity().max(1024));
    }
}

/// Main function of the writer: writes results in the order in which the blocks were given out;
/// returns the file, and the number of blocks.
fn write_blocks(mut file: AtomicFile, results: &[Receiver<Deflated>]) -> std::io::Result<(AtomicFile, usize)> {
    file.write_all(&HEADER)?;
    let (mut checksum, mut written) = (Crc::new(), 0);
    for worker in (0..results.len()).cycle() {
        let Ok(block) = results[worker].recv() else { break };
        file.write_all(&block.bytes?)?;
        checksum.combine(&block.checksum);
        written += 1;
    }
    file.write_all(&LAST_BLOCK)?;
    file.write_all(&checksum.sum().to_le_bytes())?;
    file.write_all(&checksum.amount().to_le_bytes())?;
    Ok((file, written))
}

/// Bytes per block: with more a file loses less to forgotten history, with fewer threads start
/// sooner.
const BLOCK_BYTES: usize = 512 << 10;
/// Room for data that is added to a block after it is full.
const BLOCK_SLACK: usize = 64 << 10;
/// Blocks that may wait for each worker, and results that may wait for the writer.
const BLOCKS_AHEAD: usize = 2;
/// Threads that deflate, at most.
const WORKERS_MAX: usize = 8;
/// Kineto traces shrink to a tenth at any level; beyond this one more seconds than bytes are spent.
const LEVEL: u32 = 3;
/// Gzip: deflate, no flags, no time, no system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// An empty last block of deflate.
const LAST_BLOCK: [u8; 2] = [3, 0];

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    fn check(blocks: &[Vec<u8>]) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.gz");
        let mut sink = Sink::create(&path).unwrap();
        for block in blocks {
            sink.put(block).unwrap();
        }
        sink.finish().unwrap();
        let mut read = Vec::new();
        // The decoder for a single member: it would stop early at a second one.
        flate2::read::GzDecoder::new(File::open(&path).unwrap()).read_to_end(&mut read).unwrap();
        assert!(read == blocks.concat(), "contents differ");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left behind");
    }

    #[test]
    fn gzip_is_one_member_and_reads_back() {
        check(&[]);
        check(&[b"short".to_vec()]);
        let noise = |seed: u32| -> Vec<u8> {
            let step = |x: &u32| Some(x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
            std::iter::successors(Some(seed), step).take(3_000_000).map(|x| (x >> 24) as u8).collect()
        };
        check(&[noise(1), vec![b' '; 5_000_000], noise(2), b"end".to_vec()]);
    }

    #[test]
    fn an_unfinished_file_is_never_seen() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.json", "a.json.gz"] {
            let mut sink = Sink::create(&folder.path().join(name)).unwrap();
            sink.put(&vec![b'x'; 3_000_000]).unwrap();
            drop(sink);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
