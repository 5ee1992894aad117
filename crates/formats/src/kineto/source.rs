//! A trace's bytes, from a plain file or from a gzip file that another thread inflates.
//!
//! Gzip is detected by its first two bytes, not by the file's name; files of several members are
//! read completely. At most [`PIECES_AHEAD`] pieces wait between the threads.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use flate2::bufread::MultiGzDecoder;

use crate::Error;
use crate::gzip;

/// Source of bytes.
pub(super) enum Source {
    /// An uncompressed file.
    Plain(File),
    /// A file that is decompressed.
    Gzip(Inflater),
}

impl Source {
    /// Opens a file.
    pub(super) fn open(path: &Path) -> Result<Source, Error> {
        let mut file = File::open(path).map_err(Error::io(path, "open"))?;
        let head = gzip::head(&mut file, HEAD_BYTES).map_err(Error::io(path, "read"))?;
        if !gzip::is_packed(&head) {
            return Ok(Source::Plain(file));
        }
        Ok(Source::Gzip(Inflater::start(file).map_err(Error::io(path, "start a thread for"))?))
    }

    /// Whether the file is compressed.
    pub(super) fn is_gzip(&self) -> bool {
        matches!(self, Source::Gzip(_))
    }

    /// Fills the front of `buffer`; returns 0 only at the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Source::Plain(file) => loop {
                match file.read(buffer) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    other => return other,
                }
            },
            Source::Gzip(inflater) => inflater.read(buffer),
        }
    }
}

/// The reading end of a thread that inflates.
pub(super) struct Inflater {
    pieces: Option<Receiver<std::io::Result<Vec<u8>>>>,
    piece: Vec<u8>,
    taken: usize,
    thread: Option<JoinHandle<()>>,
}

impl Inflater {
    fn start(file: File) -> std::io::Result<Inflater> {
        let (sender, pieces) = sync_channel(PIECES_AHEAD);
        let work = move || inflate(file, &sender);
        let thread = std::thread::Builder::new().name("inflate".into()).spawn(work)?;
        Ok(Inflater { pieces: Some(pieces), piece: Vec::new(), taken: 0, thread: Some(thread) })
    }

    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.taken == self.piece.len() {
            match self.pieces.as_ref().and_then(|pieces| pieces.recv().ok()) {
                Some(piece) => (self.piece, self.taken) = (piece?, 0),
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.piece.len() - self.taken);
        buffer[..count].copy_from_slice(&self.piece[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

impl Drop for Inflater {
    fn drop(&mut self) {
        // With nobody left to take pieces the thread ends at its next one.
        self.pieces = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed by the runtime; there is no one to tell here.
            let _ = thread.join();
        }
    }
}

/// Main function of the thread: sends complete pieces, then the end or an error.
fn inflate(file: File, pieces: &SyncSender<std::io::Result<Vec<u8>>>) {
    let mut decoder = MultiGzDecoder::new(BufReader::with_capacity(PIECE_BYTES, file));
    loop {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let outcome = Read::by_ref(&mut decoder).take(PIECE_BYTES as u64).read_to_end(&mut piece);
        let finished = piece.is_empty() || outcome.is_err();
        if !piece.is_empty() && pieces.send(Ok(piece)).is_err() {
            return;
        }
        if let Err(error) = outcome {
            // A reader that has gone does not miss the error.
            let _ = pieces.send(Err(error));
        }
        if finished {
            return;
        }
    }
}

/// Bytes that are inflated at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces that may wait to be read.
const PIECES_AHEAD: usize = 8;
/// Enough to tell gzip.
const HEAD_BYTES: usize = 2;
