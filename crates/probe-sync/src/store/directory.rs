//! The directory of one run: how it is claimed and joined, and the names in it.
//!
//! This happens before the first round, when every rank is ready. The root claims the directory: an
//! earlier run's directory moves to `NAME.1`, `NAME.2`, …; one that holds anything else, or that a
//! running root has locked, is refused. If the run does not start after all, the claim is undone
//! and the earlier run returns to its place. The other ranks only add their own files, and never
//! move existing ones: on a shared file system their view may be stale. Every rank opens the
//! directory once, as its user's own ([`OwnFolder`]): another user's directory is refused, and
//! another user's files in it are neither followed nor truncated.

use std::fs::{self, File};
use std::io::{Error as IoError, Read as _, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use probe_sync_files::{AtomicFile, NewFolders, OwnFolder, closed_segments, follow_own_links, open_regular, segment};
use probe_sync_lines::{MARKS_FOLDER, token_of_file};
use serde::Serialize;
use serde_json::Value;

use super::received::RECEIVED_FOLDER;
use super::stream::{Limits, Stream};
use super::successors::SUCCESSORS_FOLDER;
use crate::Error;

/// The directory of one run.
#[derive(Debug)]
pub struct RunDirectory {
    folder: OwnFolder,
    /// Held by the root until it is dropped.
    lock: Option<Lock>,
    /// The claim that is undone if this is dropped before the run has started.
    claim: Option<Claim>,
}

/// Locks that exclude others from a directory.
#[derive(Debug)]
struct Lock {
    /// The directory itself, which is never mistaken for a file that may be removed.
    directory: File,
    /// A file in it, because network file systems do not lock directories.
    _file: File,
}

/// Changes made by claiming a directory.
#[derive(Debug)]
struct Claim {
    /// Present location of the earlier run.
    aside: Option<PathBuf>,
    folders: NewFolders,
}

/// Content of a directory that a run is to use.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Content {
    /// Nothing, or the empty folders of an aborted start.
    Nothing,
    /// A run, or the remains of one that was aborted before it had written its description.
    Run,
    /// Anything else.
    Foreign,
}

impl RunDirectory {
    /// Claims the directory for a run, at the root. The remains of an earlier run are first moved
    /// aside. If this is dropped before [`Self::started`], the claim is undone. A link to a
    /// directory is kept.
    ///
    /// # Errors
    /// [`Error::Occupied`] if it contains something other than a finished run; [`Error::File`]
    /// names the path.
    pub fn claim(path: &Path) -> Result<Self, Error> {
        Self::claim_with(path, &PARTS)
    }

    /// Claims like [`Self::claim`] a directory that has only these folders.
    ///
    /// # Errors
    /// Errors of [`Self::claim`].
    pub fn claim_with(path: &Path, parts: &[&str]) -> Result<Self, Error> {
        let occupied = |reason| Error::Occupied { path: path.into(), reason };
        if path.as_os_str().is_empty() {
            return Err(occupied("is not a name; give --out a directory"));
        }
        let path = &absolute(&follow_own_links(path).map_err(Error::file(path, "use"))?);
        let mut claim = Claim { aside: None, folders: NewFolders::default() };
        match content(path) {
            Content::Nothing => {}
            Content::Run => {
                // Held for an instant only, to learn whether somebody else holds it.
                Self::lock(&own(path)?)?;
                let aside = free_name(path)?;
                fs::rename(path, &aside).map_err(Error::file(path, "move aside"))?;
                claim.aside = Some(aside);
            }
            Content::Foreign => {
                return Err(occupied(
                    "is not empty and does not contain a probe_sync run; give --out another directory",
                ));
            }
        }
        let made = claim.folders.add(path).map_err(Error::file(path, "create")).and_then(|()| own(path));
        let folder = match made {
            Ok(folder) => folder,
            Err(error) => {
                claim.take_back(path);
                return Err(error);
            }
        };
        // Whatever fails from here on takes the claim back.
        let mut directory = Self { folder, lock: None, claim: Some(claim) };
        directory.lock = Some(Self::lock(&directory.folder)?);
        for part in parts {
            if let Some(claim) = &mut directory.claim {
                let part = path.join(part);
                claim.folders.add(&part).map_err(Error::file(&part, "create"))?;
            }
            directory.make_folder(part)?;
        }
        Ok(directory)
    }

    /// Confirms that the run has started, so that the claim is kept.
    pub fn started(&mut self) {
        if let Some(claim) = self.claim.take() {
            claim.folders.keep();
        }
    }

    /// Opens the directory for one node's own files.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn join(path: &Path) -> Result<Self, Error> {
        let path = &absolute(path);
        let folder = OwnFolder::create(path).map_err(Error::file(path, "use"))?;
        let directory = Self { folder, lock: None, claim: None };
        PARTS.iter().try_for_each(|part| directory.make_folder(part))?;
        Ok(directory)
    }

    fn make_folder(&self, name: &str) -> Result<(), Error> {
        self.folder.make_folder(name).map(drop).map_err(Error::file(&self.folder.path_of(name), "use"))
    }

    fn lock(folder: &OwnFolder) -> Result<Lock, Error> {
        let locked = |file: File| match file.try_lock() {
            Err(fs::TryLockError::WouldBlock) => Err(Error::Occupied {
                path: folder.path().into(),
                reason: "is in use by another run; give --out another directory",
            }),
            // A file system without locks: better no protection than no run.
            Err(fs::TryLockError::Error(_)) | Ok(()) => Ok(file),
        };
        let path = folder.path();
        let directory = locked(folder.reopen().map_err(Error::file(path, "open"))?)?;
        let file = locked(folder.open_or_create(LOCK).map_err(Error::file(&folder.path_of(LOCK), "lock"))?)?;
        Ok(Lock { directory, _file: file })
    }

    /// Checks that this run's directory still exists and was not replaced by another, whose content
    /// must not be overwritten.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn expect_own(&self) -> Result<(), Error> {
        let Some(lock) = &self.lock else { return Ok(()) };
        let failed = Error::file(self.path(), "write into");
        let (claimed, now) = match (lock.directory.metadata(), fs::metadata(self.path())) {
            (Ok(claimed), Ok(now)) => (claimed, now),
            (Err(error), _) | (_, Err(error)) => return Err(failed(error)),
        };
        if (claimed.dev(), claimed.ino()) == (now.dev(), now.ino()) {
            return Ok(());
        }
        let moved = fs::read_link(format!("/proc/self/fd/{}", lock.directory.as_raw_fd()));
        let moved = moved.map_or_else(|_| "elsewhere".to_owned(), |path| path.display().to_string());
        Err(failed(IoError::other(format!(
            "it was replaced by another directory; this run's directory is now {moved} and contains its recorded files"
        ))))
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the directory, held open.
    pub fn folder(&self) -> &OwnFolder {
        &self.folder
    }

    /// Writes a whole document to a temporary file, then renames it.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn write_document(&self, name: &str, content: &str) -> Result<(), Error> {
        self.write_whole(name, content.as_bytes())
    }

    /// Writes any bytes like [`Self::write_document`].
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn write_whole(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        self.expect_own()?;
        self.folder.write_whole(name, content).map_err(Error::file(&self.folder.path_of(name), "write"))
    }

    /// Writes like [`Self::write_document`], without waiting for the disk: for documents rewritten
    /// every round.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn refresh_document(&self, name: &str, content: &str) -> Result<(), Error> {
        self.expect_own()?;
        let refresh = || {
            let mut file = self.folder.atomic(name)?;
            file.write_all(content.as_bytes())?;
            file.commit_without_sync()
        };
        refresh().map_err(Error::file(&self.folder.path_of(name), "write"))
    }

    /// Creates a file in the directory that appears under this name when it is complete.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn atomic(&self, name: &str) -> std::io::Result<AtomicFile> {
        self.folder.atomic(name)
    }

    /// Starts a recording, whose files begin with `header` if given.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn stream(&self, name: &str, limits: Limits, header: Option<&impl Serialize>) -> Result<Stream, Error> {
        self.vacate(name)?;
        // As an earlier run's file did: nobody is to take its segments for this run's.
        for (number, _) in closed_segments(&self.folder.path_of(name)) {
            self.move_aside(&segment(Path::new(name), number))?;
        }
        Stream::create(&self.folder, name, limits, header)
    }

    /// Continues a recording that an earlier process of this rank began in this run.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn go_on_with(&self, name: &str, limits: Limits) -> Result<Stream, Error> {
        Stream::go_on(&self.folder, name, limits)
    }

    /// Makes room for a file of this name: one left by an earlier run, on a disk that the root does
    /// not see, is moved aside.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn vacate(&self, name: &str) -> Result<(), Error> {
        if self.folder.contains(name) { self.move_aside(Path::new(name)) } else { Ok(()) }
    }

    fn move_aside(&self, name: &Path) -> Result<(), Error> {
        let path = self.folder.path_of(name);
        let aside = numbered(name).find(|candidate| !self.folder.contains(candidate));
        let aside = aside.ok_or_else(|| Error::TooManyOldRuns { path: path.clone() })?;
        self.folder.rename(name, &aside).map_err(Error::file(&path, "move aside"))
    }
}

impl Claim {
    /// Undoes the changes made by claiming the directory at `path`.
    fn take_back(self, path: &Path) {
        drop(self.folders);
        if let Some(aside) = self.aside.filter(|_| !path.exists()) {
            let _ = fs::rename(aside, path);
        }
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        let Some(claim) = self.claim.take() else { return };
        // What cannot be taken back stays; the reason why the run did not start is what is told.
        if self.lock.take().is_some() {
            let _ = self.folder.remove(LOCK);
        }
        claim.take_back(self.folder.path());
    }
}

/// Writes a file under a temporary name, then renames it, so that no half-written file looks
/// complete.
///
/// # Errors
/// [`Error::File`] names the path.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> Result<(), Error> {
    probe_sync_files::write_whole(path, content).map_err(Error::file(path, "write"))
}

/// Opens a directory as this user's own.
fn own(path: &Path) -> Result<OwnFolder, Error> {
    OwnFolder::take(path).map_err(Error::file(path, "use"))
}

/// Returns an absolute path, which stays valid if the program changes its working directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn content(directory: &Path) -> Content {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    if run_in(directory).is_some() {
        return Content::Run;
    }
    let named =
        |path: &Path, test: &dyn Fn(&str) -> bool| path.file_name().and_then(|name| name.to_str()).is_some_and(test);
    let (mut files, mut foreign) = (false, false);
    for entry in entries(directory) {
        let ours = entry.file_name().and_then(|name| name.to_str()).and_then(own_names).filter(|_| entry.is_dir());
        if let Some(ours) = ours {
            let inside = entries(&entry);
            files |= !inside.is_empty();
            foreign |= !inside.iter().all(|file| named(file, &ours));
        } else if named(&entry, &|name| name.starts_with("run.json.") && name.ends_with(".partial")) {
            files = true;
        } else {
            foreign |= !named(&entry, &|name| name == LOCK);
        }
    }
    match (foreign, files) {
        (true, _) => Content::Foreign,
        (false, true) => Content::Run,
        (false, false) => Content::Nothing,
    }
}

/// Returns the pattern of file names in a folder that ranks and their processes create in a run's
/// directory, whether or not it is rank 0's.
fn own_names(folder: &str) -> Option<fn(&str) -> bool> {
    match folder {
        MARKS_FOLDER => Some(|name| token_of_file(name).is_some()),
        RECEIVED_FOLDER | SUCCESSORS_FOLDER => Some(|name| name.starts_with("rank")),
        // Of probe_sync.jax; one that is not whole begins with a dot.
        "written" => Some(|name| name.starts_with("probe_sync_") || name.starts_with('.')),
        part => PARTS.contains(&part).then_some(|name| name.starts_with("node")),
    }
}

/// Returns the run whose directory this is, if any.
pub(crate) fn run_in(directory: &Path) -> Option<String> {
    let text = std::io::read_to_string(open_regular(&directory.join("run.json")).ok()?.take(DOCUMENT_MAX)).ok()?;
    serde_json::from_str::<Value>(&text).ok()?.get("run_id")?.as_str().map(str::to_owned)
}

fn free_name(path: &Path) -> Result<PathBuf, Error> {
    numbered(path)
        .find(|candidate| fs::symlink_metadata(candidate).is_err())
        .ok_or_else(|| Error::TooManyOldRuns { path: path.into() })
}

/// Returns the possible names for something moved aside.
fn numbered(path: &Path) -> impl Iterator<Item = PathBuf> {
    (1..MAX_OLD_RUNS).map(|number| {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{number}"));
        path.with_file_name(name)
    })
}

/// Largest run.json that is read, bytes.
const DOCUMENT_MAX: u64 = 256 << 20;
const MAX_OLD_RUNS: u32 = 1000;
/// Folders of nodes' files, `nodeN…`.
const PARTS: [&str; 3] = ["windows", "probes", "snapshots"];
const LOCK: &str = ".lock";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_directory_is_its_runs_without_the_lock_file_and_nobody_elses_is_written_into() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let (path, aside) = (parent.path().join("out"), parent.path().join("elsewhere"));
        let mut first = RunDirectory::claim(&path).expect("a writable directory");
        first.write_document("run.json", &json!({"run_id": "1"}).to_string()).expect("writable");
        first.started();
        // Whatever cleans /tmp.
        fs::remove_file(path.join(LOCK)).expect("it is there");
        let error = RunDirectory::claim(&path).expect_err("the directory itself is locked");
        assert!(error.to_string().contains("in use"), "{error}");
        // On a file system without locks another run takes its place.
        fs::rename(&path, &aside).expect("writable");
        let mut second = RunDirectory::claim(&path).expect("free");
        second.write_document("run.json", &json!({"run_id": "2"}).to_string()).expect("writable");
        second.started();
        for error in [first.write_document("run.json", "{}"), first.refresh_document("run.json", "{}")] {
            let error = error.expect_err("another's").to_string();
            assert!(error.contains("replaced by another directory") && error.contains("elsewhere"), "{error}");
        }
        assert_eq!(run_in(&path), Some("2".into()));
        second.write_document("report.json", "{}").expect("its own");
    }

    #[test]
    fn an_earlier_run_moves_aside_and_nothing_else_does() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let path = parent.path().join("out");
        for run in 1..=3 {
            let mut directory = RunDirectory::claim(&path).expect("a writable directory");
            directory.write_document("run.json", &json!({"run_id": run.to_string()}).to_string()).expect("writable");
            directory.started();
            RunDirectory::join(&path).expect("a rank that shares the directory");
            let error = RunDirectory::claim(&path).expect_err("locked");
            assert!(error.to_string().contains("in use"), "{error}");
            assert_eq!(run_in(&path), Some(run.to_string()));
        }
        assert_eq!(run_in(&parent.path().join("out.1")), Some("1".into()));
        assert_eq!(run_in(&parent.path().join("out.2")), Some("2".into()));
        assert!(!parent.path().join("out.3").exists());

        let precious = parent.path().join("precious");
        fs::create_dir(&precious).expect("writable");
        fs::write(precious.join("thesis.txt"), "x").expect("writable");
        let error = RunDirectory::claim(&precious).expect_err("somebody's work");
        assert!(error.to_string().contains("precious") && precious.join("thesis.txt").exists(), "{error}");
        assert!(RunDirectory::claim(Path::new("")).is_err());
    }

    #[test]
    fn a_claim_is_taken_back_unless_the_run_starts() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let path = parent.path().join("new/out");
        drop(RunDirectory::claim(&path).expect("writable"));
        assert!(!parent.path().join("new").exists(), "nothing is left of a start that was refused");

        let out = parent.path().join("out");
        fs::create_dir(&out).expect("writable");
        fs::write(out.join("run.json"), json!({"run_id": "1"}).to_string()).expect("writable");
        let claimed = RunDirectory::claim(&out).expect("an earlier run");
        assert_eq!((run_in(&out), run_in(&parent.path().join("out.1"))), (None, Some("1".into())));
        drop(claimed);
        assert_eq!(run_in(&out), Some("1".into()), "the earlier run is where it was");
        assert!(!parent.path().join("out.1").exists());
    }

    #[test]
    fn what_a_broken_off_start_left_blocks_no_run() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let path = parent.path().join("out");
        // The folders alone are used again, with or without the lock of a process that is gone.
        RunDirectory::join(&path).expect("writable");
        fs::write(path.join(LOCK), "").expect("writable");
        assert_eq!(content(&path), Content::Nothing);
        RunDirectory::claim(&path).expect("a broken-off start").started();
        assert!(path.join("probes").is_dir() && !parent.path().join("out.1").exists());
        // Files of nodes, or a document that was not finished, move aside as a run does.
        fs::write(path.join("windows/node0.jsonl"), "x").expect("writable");
        fs::write(path.join("run.json.77.partial"), "{").expect("writable");
        RunDirectory::claim(&path).expect("a broken-off run").started();
        assert!(parent.path().join("out.1/windows/node0.jsonl").exists());
        // A traced process may have begun before.
        fs::create_dir(path.join(MARKS_FOLDER)).expect("writable");
        assert_eq!(content(&path), Content::Nothing);
        fs::write(path.join(MARKS_FOLDER).join("rank0-0123456789abcdef.jsonl"), "x").expect("writable");
        assert_eq!(content(&path), Content::Run);
        // As a rank other than 0 leaves its own directory, with probe_sync.jax; this host may be
        // rank 0 of the next run.
        for name in ["written/probe_sync_77.1", "received/rank2/trace.json"] {
            let file = path.join(name);
            fs::create_dir_all(file.parent().expect("a folder")).expect("writable");
            fs::write(&file, "x").expect("writable");
            RunDirectory::claim(&path).expect("what a rank left").started();
            assert!(!file.exists(), "{name} has moved aside");
        }
        for thesis in ["windows/thesis.txt", "marks/thesis.txt", "written/thesis.txt", "received/thesis.txt"] {
            fs::create_dir_all(path.join(thesis).parent().expect("a folder")).expect("writable");
            fs::write(path.join(thesis), "x").expect("writable");
            assert_eq!(content(&path), Content::Foreign);
            fs::remove_file(path.join(thesis)).expect("it was there");
        }
    }

    #[test]
    fn what_another_user_left_is_neither_followed_nor_emptied_nor_waited_for() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let (path, victim) = (parent.path().join("out"), parent.path().join("victim"));
        fs::create_dir(&path).expect("writable");
        fs::write(&victim, "precious").expect("writable");
        std::os::unix::fs::symlink(&victim, path.join(LOCK)).expect("a link");
        let error = RunDirectory::claim(&path).expect_err("a lock that leads elsewhere").to_string();
        assert!(error.contains(".lock") && error.contains("link"), "{error}");
        // With a forged run it would move aside first.
        fs::write(path.join("run.json"), json!({"run_id": "1"}).to_string()).expect("writable");
        assert!(RunDirectory::claim(&path).is_err());
        fs::remove_file(path.join(LOCK)).expect("the link");
        for name in [LOCK, "run.json"] {
            let _ = fs::remove_file(path.join(name));
            let made = std::process::Command::new("mkfifo").arg(path.join(name)).status();
            assert!(made.expect("coreutils").success());
            assert!(RunDirectory::claim(&path).is_err(), "{name} is a pipe, which is not waited for");
        }
        let node = RunDirectory::join(&path).expect("every rank");
        std::os::unix::fs::symlink(parent.path().join("new"), path.join("windows/node1.jsonl")).expect("a link");
        node.stream("windows/node1.jsonl", Limits::default(), None::<&u8>).expect("the link moves aside");
        assert!(!parent.path().join("new").exists() && path.join("windows/node1.jsonl").is_file());
        std::os::unix::fs::symlink(&victim, path.join("metrics.prom")).expect("a link");
        node.refresh_document("metrics.prom", "1").expect("the link is replaced");
        std::os::unix::fs::symlink(&victim, path.join("windows/node2.jsonl")).expect("a link");
        assert!(node.go_on_with("windows/node2.jsonl", Limits::default()).is_err());
        assert_eq!(fs::read_to_string(&victim).expect("untouched"), "precious");
    }

    #[test]
    fn another_users_directory_is_refused_on_every_rank() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can give a directory to another user");
            return;
        }
        let parent = tempfile::tempdir().expect("a temporary directory");
        let path = parent.path().join("out");
        fs::create_dir(&path).expect("writable");
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("ours");
        std::os::unix::fs::chown(&path, Some(54_321), None).expect("root may");
        for run in [false, true] {
            if run {
                fs::write(path.join("run.json"), json!({"run_id": "1"}).to_string()).expect("writable");
            }
            for refused in [RunDirectory::claim(&path), RunDirectory::join(&path)] {
                let error = refused.expect_err("another user's").to_string();
                let parts = ["out belongs to user 54321", "mode 0777", "choose a folder of your own"];
                assert!(parts.iter().all(|part| error.contains(part)), "{error}");
            }
            assert!(!parent.path().join("out.1").exists(), "and is not moved aside");
        }
    }

    #[test]
    fn a_link_to_a_directory_stays_one() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let (disk, link) = (parent.path().join("disk"), parent.path().join("out"));
        fs::create_dir(&disk).expect("writable");
        fs::write(disk.join("run.json"), json!({"run_id": "1"}).to_string()).expect("writable");
        std::os::unix::fs::symlink(&disk, &link).expect("a link");
        RunDirectory::claim(&link).expect("an earlier run").started();
        assert!(fs::symlink_metadata(&link).expect("the link").is_symlink() && disk.join("windows").is_dir());
        assert_eq!(run_in(&parent.path().join("disk.1")), Some("1".into()));
    }

    #[test]
    fn a_node_moves_only_its_own_old_file() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let directory = RunDirectory::join(parent.path()).expect("writable");
        for round in 0..2 {
            let limits = Limits { rotate_at: Some(1), keep_bytes: None };
            let mut stream = directory.stream("windows/node1.jsonl", limits, None::<&u8>).expect("writable");
            stream.append(&round);
            stream.end_round();
        }
        let read = |name: &str| fs::read_to_string(parent.path().join("windows").join(name)).expect("kept");
        assert_eq!((read("node1.000001.jsonl"), read("node1.000001.jsonl.1")), ("1\n".into(), "0\n".into()));
    }

    #[test]
    fn errors_name_the_path() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let file = parent.path().join("plain");
        fs::write(&file, "x").expect("writable");
        let error = RunDirectory::claim(&file.join("out")).expect_err("a file is no directory");
        assert!(error.to_string().contains("plain"), "{error}");
    }
}
