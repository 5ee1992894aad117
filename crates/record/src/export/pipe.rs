//! Two concurrent stages of an export, each on a thread: full chunks travel in one direction and
//! empty ones come back, so that memory is that of a few chunks.
//!
//! Filling chunks overlaps with sorting, and reading the sorted chunks overlaps with writing the
//! file.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use probe_sync_formats::chunk::Chunk;

use super::error::ExportError;

/// The end at which chunks go in.
#[derive(Debug)]
pub(super) struct Inlet {
    full: SyncSender<Chunk>,
    empty: Receiver<Chunk>,
}

/// The receiving end.
#[derive(Debug)]
pub(super) struct Outlet {
    full: Receiver<Chunk>,
    empty: Sender<Chunk>,
}

/// Creates both ends.
pub(super) fn pipe() -> (Inlet, Outlet) {
    let ((full, taken), (emptied, empty)) = (sync_channel(CHUNKS), channel());
    (Inlet { full, empty }, Outlet { full: taken, empty: emptied })
}

impl Inlet {
    /// Passes a chunk on and leaves an empty one in its place; returns false if the receiver is
    /// gone, which then reports why.
    pub fn hand_on(&self, chunk: &mut Chunk) -> bool {
        let full = std::mem::replace(chunk, self.empty.try_recv().unwrap_or_default());
        self.full.send(full).is_ok()
    }
}

impl Outlet {
    /// Processes each chunk until there are no more.
    pub fn each<E>(self, mut take: impl FnMut(&Chunk) -> Result<(), E>) -> Result<(), E> {
        for mut chunk in self.full {
            take(&chunk)?;
            chunk.clear();
            // At the end nobody wants it back.
            let _ = self.empty.send(chunk);
        }
        Ok(())
    }
}

/// Starts a stage in parallel with the caller.
pub(super) fn beside<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    stage: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, ExportError> {
    let spawned = std::thread::Builder::new().name("export".into()).spawn_scoped(scope, stage);
    spawned.map_err(|error| crate::Error::Thread { reason: error.to_string() }.into())
}

/// Waits for it; a panic is propagated.
pub(super) fn end<T>(stage: ScopedJoinHandle<'_, T>) -> T {
    stage.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Chunks between two stages.
const CHUNKS: usize = 2;
