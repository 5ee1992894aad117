//! A folder for copies that live as long as they are read.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::partial::Partial;

/// A folder in the system's temporary folder, accessible to this user only; it is removed on drop,
/// and when a signal ends the process ([`remove_partials`](crate::remove_partials)).
#[derive(Debug)]
pub struct TemporaryFolder(Partial);

impl TemporaryFolder {
    /// Creates it, if its disk has room for this many bytes.
    ///
    /// # Errors
    /// Returns an error if there is no room, or if it cannot be created.
    pub fn create(bytes: u64) -> io::Result<Self> {
        let folder = std::env::temp_dir();
        let free = rustix::fs::statvfs(&folder).map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
        if free < bytes.saturating_add(RESERVE) {
            let reason = format!(
                "a copy of {bytes} bytes is needed there, but only {free} are free: free some space, or set TMPDIR to another folder"
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, reason));
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let named = || {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            folder.join(format!("probe_sync.{}.{number}", std::process::id()))
        };
        // A process of this number that was killed may have left some.
        let made = (0..TRIES).map(|_| Partial::private_folder(named()));
        let made =
            made.into_iter().find(|made| !matches!(made, Err(error) if error.kind() == io::ErrorKind::AlreadyExists));
        made.unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into())).map(Self)
    }

    /// Path.
    pub fn path(&self) -> &Path {
        self.0.place().name()
    }
}

/// Bytes left free for others.
const RESERVE: u64 = 64 << 20;

/// Number of names to try.
const TRIES: u32 = 1000;
