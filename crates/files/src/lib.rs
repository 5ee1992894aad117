//! Files that appear under their names only when they are whole.
//!
//! Place in the flow: under every writer of whole files (rewritten traces, solved offsets, reports). [`AtomicFile`] writes to
//! `NAME.PID.partial` beside the wanted file and renames it at the end, so that a reader never meets half a file and a failed
//! writer leaves an earlier file as it was. The standard library is its only dependency.
//!
//! What it does not do: appended streams, locks, several writers of one name within one process, or the directory's own sync
//! (after a power cut an earlier file may still bear the name; it is whole, too).
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file in the making; removed when it is dropped without a commit.
///
/// ```
/// use std::io::Write;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("offsets.jsonl");
/// let mut file = probe_sync_files::AtomicFile::create(&path)?;
/// file.write_all(b"{}\n")?;
/// assert!(!path.exists(), "not before it is whole");
/// file.commit()?;
/// assert_eq!(std::fs::read(&path)?, b"{}\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    partial: PathBuf,
    /// `None` only while it is dropped.
    writer: Option<BufWriter<File>>,
    committed: bool,
}

impl AtomicFile {
    /// Begins a file that will be called `path`.
    ///
    /// # Errors
    /// The path has no file name, or the file beside it cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        let Some(name) = path.file_name() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"));
        };
        let mut name = name.to_owned();
        // Two processes that write the same file each have their own; the later rename wins, with a whole file.
        name.push(format!(".{}{PARTIAL_SUFFIX}", std::process::id()));
        let partial = path.with_file_name(name);
        // Readable, for writers that move what they have written.
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&partial)?;
        Ok(Self { path: path.to_owned(), partial, writer: Some(BufWriter::new(file)), committed: false })
    }

    /// The name that the file will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file itself, for writers that go back in it; what was buffered is in it first.
    ///
    /// # Errors
    /// The buffer cannot be written.
    pub fn file(&mut self) -> io::Result<&mut File> {
        let writer = self.writer();
        writer.flush()?;
        Ok(writer.get_mut())
    }

    /// Waits until the disk has the content, then gives the file its name.
    ///
    /// # Errors
    /// The content cannot be written or the file cannot be renamed; it is removed then.
    pub fn commit(mut self) -> io::Result<()> {
        self.file()?.sync_data()?;
        self.rename()
    }

    /// As [`Self::commit`] without waiting for the disk: for files that can be made again, or are made again every round.
    ///
    /// # Errors
    /// Those of [`Self::commit`].
    pub fn commit_without_sync(mut self) -> io::Result<()> {
        self.file()?;
        self.rename()
    }

    fn rename(&mut self) -> io::Result<()> {
        std::fs::rename(&self.partial, &self.path)?;
        self.committed = true;
        Ok(())
    }

    fn writer(&mut self) -> &mut BufWriter<File> {
        self.writer.as_mut().expect("only drop takes the writer away")
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        // Without the buffer: what is going to be removed need not be written.
        drop(self.writer.take().map(BufWriter::into_parts));
        // Another error is on its way already; that the file cannot be removed either is no news.
        let _ = std::fs::remove_file(&self.partial);
    }
}

/// Writes a whole file: beside its place, synced, then renamed.
///
/// # Errors
/// Those of [`AtomicFile`].
pub fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(content)?;
    file.commit()
}

/// What follows the name while the file is not whole.
const PARTIAL_SUFFIX: &str = ".partial";

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("a folder");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_whole_and_replaces_the_earlier_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out");
        std::fs::write(&path, "earlier").expect("writable");
        let mut file = AtomicFile::create(&path).expect("created");
        file.write_all(b"later").expect("written");
        assert_eq!(names(folder.path()), ["out".to_owned(), format!("out.{}.partial", std::process::id())]);
        assert_eq!(std::fs::read(&path).expect("the file"), b"earlier");
        file.commit_without_sync().expect("renamed");
        assert_eq!(names(folder.path()), ["out"]);
        assert_eq!(std::fs::read(&path).expect("the file"), b"later");
        write_whole(&path, b"last").expect("written");
        assert_eq!(std::fs::read(&path).expect("the file"), b"last");
    }

    #[test]
    fn a_dropped_file_leaves_the_earlier_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out");
        std::fs::write(&path, "earlier").expect("writable");
        let mut file = AtomicFile::create(&path).expect("created");
        file.write_all(b"later").expect("written");
        drop(file);
        assert_eq!(names(folder.path()), ["out"]);
        assert_eq!(std::fs::read(&path).expect("the file"), b"earlier");
    }

    #[test]
    fn a_file_that_cannot_be_renamed_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out");
        std::fs::create_dir_all(path.join("not empty")).expect("a folder in the way");
        assert!(write_whole(&path, b"content").is_err());
        assert_eq!(names(folder.path()), ["out"]);
        assert!(AtomicFile::create(Path::new("/")).is_err(), "no name, no file");
    }

    #[test]
    fn what_was_written_can_be_changed_in_place() {
        use std::os::unix::fs::FileExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out");
        let mut file = AtomicFile::create(&path).expect("created");
        file.write_all(b"0123").expect("written");
        file.file().expect("flushed").write_all_at(b"x", 1).expect("changed");
        file.write_all(b"4").expect("written");
        file.commit().expect("renamed");
        assert_eq!(std::fs::read(&path).expect("the file"), b"0x234");
    }
}
