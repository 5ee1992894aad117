//! A page of memory shared by several processes, either of a file or anonymous and inherited by
//! forked children.
//!
//! It holds the global clock (`probe-sync::clock`). A mapping stays valid when its file is renamed
//! or removed and when its descriptor is closed.
//!
//! It does not prevent another process from writing.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::Error;
use crate::process::without_size_signal;

/// A shared page.
#[derive(Debug)]
pub struct SharedPage {
    words: NonNull<[AtomicU64; PAGE_WORDS]>,
    writable: bool,
}

// SAFETY: it is memory of atomic words, which any thread may use; the mapping has no tie to a
// thread.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    /// Creates a page of zeros that this process and its future children share.
    ///
    /// # Errors
    /// Returns an error if the system has no memory for it.
    pub fn anonymous() -> Result<Self, Error> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file =
            rustix::fs::memfd_create("probe_sync_clock", flags).map_err(Error::system("create a shared page"))?;
        rustix::fs::ftruncate(&file, PAGE_BYTES as u64).map_err(Error::system("create a shared page"))?;
        Self::mapped(file, true)
    }

    /// Maps the first page of an empty file that is open for reading and writing, and extends it to
    /// that size.
    ///
    /// # Errors
    /// Returns an error if the file cannot be extended or mapped, as on a full disk.
    pub fn of_new_file(file: &File) -> Result<Self, Error> {
        reserve(file, PAGE_BYTES).map_err(Error::system("allocate a shared page"))?;
        Self::mapped(file, true)
    }

    /// Maps the first page of a file, for reading.
    ///
    /// # Errors
    /// Returns an error if the file is shorter, or cannot be mapped.
    pub fn of_file(file: &File) -> Result<Self, Error> {
        let length = file.metadata().map_err(Error::system("inspect a shared page"))?.len();
        if length < PAGE_BYTES as u64 {
            let short = std::io::Error::other(format!("{length} bytes are not a page"));
            return Err(Error::system("map a shared page")(short));
        }
        Self::mapped(file, false)
    }

    /// Its words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64; PAGE_WORDS] {
        // SAFETY: the mapping is so long, aligned to a page, and lives as long as `self`. Other
        // processes change it by whole words only. Whoever stores into a page that was opened for
        // reading is ended by the system; no memory is harmed.
        unsafe { self.words.as_ref() }
    }

    /// Whether this process may write.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    fn mapped(file: impl AsFd, writable: bool) -> Result<Self, Error> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the system chooses an address where nothing is.
        let start = unsafe { mmap(std::ptr::null_mut(), PAGE_BYTES, protection, MapFlags::SHARED, file, 0) };
        let start = start.map_err(Error::system("map a shared page"))?;
        let words = NonNull::new(start.cast()).ok_or_else(|| {
            Error::system("map a shared page")(std::io::Error::other("the system mapped it at address 0"))
        })?;
        Ok(Self { words, writable })
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: mapped by `mapped`, so long, and nobody has a reference to it any more. An error
        // would leave it mapped.
        let _ = unsafe { munmap(self.words.as_ptr().cast(), PAGE_BYTES) };
    }
}

/// Allocates all blocks of an empty file, so that no store into a mapping of it ever hits a full
/// disk, which ends the process by SIGBUS. On a file system without fallocate(2) zeros are written,
/// which has the same effect.
///
/// # Errors
/// Returns an error if there is no room.
pub fn reserve(file: &File, bytes: usize) -> std::io::Result<()> {
    match without_size_signal(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes as u64)) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => without_size_signal(|| {
            let zeros = vec![0; 16 * PAGE_BYTES];
            let mut file = file;
            for start in (0..bytes).step_by(zeros.len()) {
                file.write_all(&zeros[..zeros.len().min(bytes - start)])?;
            }
            file.sync_data()
        }),
        Err(error) => Err(error.into()),
    }
}

/// Words of a page.
pub const PAGE_WORDS: usize = 512;
const PAGE_BYTES: usize = PAGE_WORDS * size_of::<AtomicU64>();

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn what_one_mapping_stores_another_loads() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("page");
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a new file");
        assert!(SharedPage::of_file(&file).is_err(), "too short");
        let writer = SharedPage::of_new_file(&file).expect("a page");
        let reader = SharedPage::of_file(&File::open(&path).expect("it is there")).expect("a page");
        drop(file);
        std::fs::remove_file(&path).expect("it is there");
        writer.words()[PAGE_WORDS - 1].store(7, Ordering::Relaxed);
        assert_eq!(reader.words()[PAGE_WORDS - 1].load(Ordering::Relaxed), 7);
        assert!(writer.is_writable() && !reader.is_writable());
        let read_only = File::open("/proc/self/exe").expect("this program");
        assert!(SharedPage::of_new_file(&read_only).is_err(), "nothing can be reserved in it");
        let own = SharedPage::anonymous().expect("a page");
        assert!(own.is_writable() && own.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }
}
