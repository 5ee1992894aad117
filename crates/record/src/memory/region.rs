//! A region of memory as words, either private to the process or backed by a file that survives a
//! kill.
//!
//! A file is allocated in full at the start (`fallocate`), so that no store ever hits a full disk.
//! All pages are touched at the start.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use probe_sync_files::NewFolders;
use probe_sync_sys::reserve;
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::Error;
use crate::layout::WORD;

/// A stretch of memory.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<AtomicU64>,
    bytes: usize,
    file: Option<(File, PathBuf)>,
}

// SAFETY: it is memory of atomic words, which any thread may use; the mapping has no tie to a
// thread.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Allocates memory of this process.
    pub fn anonymous(bytes: usize) -> Result<Self, Error> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // Shared memory would stay the parent's in a child; this is copied when somebody writes it,
        // which nobody does.
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: the system chooses an address where nothing is.
        let mapped = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, protection, flags) };
        let base = mapped.map_err(|error| Error::Memory { bytes, reason: format!("{error}; request fewer bytes") })?;
        Self::of(base.cast(), bytes, None)
    }

    /// A new file of this length, all its blocks reserved.
    pub fn of_new_file(path: &Path, bytes: usize) -> Result<Self, Error> {
        let refuse = |reason: String| Error::Spill { path: path.to_path_buf(), reason };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let made =
                NewFolders::create(folder).map_err(|error| refuse(format!("cannot create its folder: {error}")))?;
            made.keep();
        }
        let opened = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(path);
        let file = opened.map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                refuse("the file already exists, and recordings are never overwritten; choose another name".into())
            }
            _ => refuse(error.to_string()),
        })?;
        let made = reserve(&file, bytes).and_then(|()| map_file(&file, bytes));
        match made {
            Ok(base) => Self::of(base, bytes, Some((file, path.to_path_buf()))),
            Err(error) => {
                // What was made of it is of no use to anybody.
                let _ = std::fs::remove_file(path);
                Err(refuse(format!("{error}; it needs {bytes} bytes: free some space, or record less")))
            }
        }
    }

    fn of(base: *mut AtomicU64, bytes: usize, file: Option<(File, PathBuf)>) -> Result<Self, Error> {
        let missing = || Error::Memory { bytes, reason: "the system returned none".into() };
        Ok(Self { base: NonNull::new(base).ok_or_else(missing)?, bytes, file })
    }

    /// The word at a place, in bytes from the beginning.
    #[inline]
    pub fn word(&self, byte: usize) -> &AtomicU64 {
        assert!(
            byte.is_multiple_of(WORD) && byte < self.bytes,
            "layouts lie within the memory that was mapped for them"
        );
        // SAFETY: within the mapping and aligned, as was just asked; the mapping lives as long as
        // `self`.
        unsafe { &*self.base.as_ptr().add(byte / WORD) }
    }

    /// The words from a position on, which must be within.
    #[inline]
    pub fn words(&self, byte: usize) -> *const AtomicU64 {
        ptr::from_ref(self.word(byte))
    }

    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The file behind it.
    pub fn file(&self) -> Option<(&File, &Path)> {
        self.file.as_ref().map(|(file, path)| (file, path.as_path()))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `anonymous` or `of_new_file` with this length; a session is dropped
        // when no thread writes any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

fn map_file(file: &File, bytes: usize) -> std::io::Result<*mut AtomicU64> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::POPULATE;
    // SAFETY: the system chooses an address where nothing is.
    let mapped = unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, protection, flags, file, 0) };
    let base: *mut AtomicU64 = mapped?.cast();
    for page in (0..bytes).step_by(PAGE_BYTES) {
        // SAFETY: within the mapping and aligned. Populating only reads a shared file's pages; the
        // first store into each would be a fault.
        unsafe { (*base.add(page / WORD)).store(0, std::sync::atomic::Ordering::Relaxed) };
    }
    Ok(base)
}

/// Names, arguments and hosts are the owner's business.
const FILE_MODE: u32 = 0o600;
const PAGE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_file_has_all_its_room_and_is_never_replaced() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("a/b.rec");
        let region = Region::of_new_file(&path, 1 << 16).expect("room");
        region.word(8).store(7, Ordering::Relaxed);
        assert_eq!(std::fs::read(&path).expect("there")[8], 7);
        let said = Region::of_new_file(&path, 1 << 16).expect_err("there is one").to_string();
        assert!(said.contains("never overwritten"), "{said}");
        // No disk has so much.
        let other = folder.path().join("c.rec");
        let said = Region::of_new_file(&other, 1 << 60).expect_err("too large").to_string();
        assert!(said.contains("free some") && !other.exists(), "{said}");
    }
}
