//! The destination of a writer's bytes: a buffer in front of any [`Write`], with a byte count.

use std::io::Write;

use probe_sync_formats::Error;

/// A buffered output that counts.
#[derive(Debug)]
pub(super) struct Sink<W> {
    inner: W,
    buffer: Vec<u8>,
    bytes: u64,
}

impl<W: Write> Sink<W> {
    pub(super) fn new(inner: W) -> Self {
        Self { inner, buffer: Vec::with_capacity(2 * BUFFER_BYTES), bytes: 0 }
    }

    /// Where to append; [`Self::settle`] must follow.
    #[inline]
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Passes on what was appended once it is large enough.
    #[inline]
    pub(super) fn settle(&mut self) -> Result<(), Error> {
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Passes on everything; returns the output and the number of bytes it was given.
    pub(super) fn finish(mut self) -> Result<(W, u64), Error> {
        self.flush()?;
        self.inner.flush().map_err(|source| Error::Sink { source })?;
        Ok((self.inner, self.bytes))
    }

    #[cold]
    fn flush(&mut self) -> Result<(), Error> {
        self.inner.write_all(&self.buffer).map_err(|source| Error::Sink { source })?;
        self.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Bytes that are handed on at a time.
const BUFFER_BYTES: usize = 128 << 10;
