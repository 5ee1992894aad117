//! The directory of one run: claimed, joined, and the names in it.
//!
//! Place in the flow: before the first round, when every rank is ready. The root claims the directory: an earlier run's moves aside to
//! `NAME.1`, `NAME.2`, …; one that holds anything else, or that a running root has locked, is refused. A run that does not start after
//! all takes its claim back: the earlier run returns to its place. The other ranks only add their own files, and never move what they
//! find: on a shared file system their view of it may be stale.
//!
//! What it does not do: read a run (crates `trace` and `cli`, module `solve`).

use std::fs::{self, File};
use std::io::{Error as IoError, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use probe_sync_estimate::record::{MARKS_FOLDER, token_of_file};
use probe_sync_files::{AtomicFile, NewFolders, closed_segments};
use serde::Serialize;
use serde_json::Value;

use super::received::RECEIVED_FOLDER;
use super::stream::{Limits, Stream};
use super::successors::SUCCESSORS_FOLDER;
use crate::Error;

/// The directory of one run.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    /// Held by the root until it is dropped.
    lock: Option<Lock>,
    /// What is taken back when this is dropped before the run has started.
    claim: Option<Claim>,
}

/// What keeps others from a directory.
#[derive(Debug)]
struct Lock {
    /// The directory itself, which nobody takes for a file that may go.
    directory: File,
    /// A file in it: file systems over the network lock no directories.
    _file: File,
}

/// What claiming a directory changed.
#[derive(Debug)]
struct Claim {
    /// Where the earlier run is now.
    aside: Option<PathBuf>,
    folders: NewFolders,
}

/// What is in a directory that a run is to have.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Content {
    /// Nothing, or the empty folders of a start that was broken off.
    Nothing,
    /// A run, or what one left that was broken off before it had written what it is.
    Run,
    /// Anything else.
    Foreign,
}

impl RunDirectory {
    /// Claims the directory for a run, at the root. What an earlier run left there moves aside first. Dropped before
    /// [`Self::started`], it is as if nothing had been claimed. A link to a directory stays one.
    ///
    /// # Errors
    /// [`Error::Occupied`] when it holds something else than a finished run; [`Error::File`] names the path.
    pub fn claim(path: &Path) -> Result<Self, Error> {
        Self::claim_with(path, &PARTS)
    }

    /// As [`Self::claim`], of a directory that has these folders alone.
    ///
    /// # Errors
    /// As [`Self::claim`].
    pub fn claim_with(path: &Path, parts: &[&str]) -> Result<Self, Error> {
        let occupied = |reason| Error::Occupied { path: path.into(), reason };
        if path.as_os_str().is_empty() {
            return Err(occupied("is no name; give --out a directory"));
        }
        let path = &fs::canonicalize(path).unwrap_or_else(|_| absolute(path));
        let mut claim = Claim { aside: None, folders: NewFolders::default() };
        match content(path) {
            Content::Nothing => {}
            Content::Run => {
                // Held for an instant only, to learn whether somebody else holds it.
                Self::lock(path)?;
                let aside = free_name(path)?;
                fs::rename(path, &aside).map_err(Error::file(path, "move aside"))?;
                claim.aside = Some(aside);
            }
            Content::Foreign => {
                return Err(occupied("is not empty and holds no run of probe_sync; give --out another directory"));
            }
        }
        let made = parts.iter().try_for_each(|part| {
            let part = path.join(part);
            claim.folders.add(&part).map_err(Error::file(&part, "create"))
        });
        // Whatever fails from here on takes the claim back.
        let mut directory = Self { path: path.clone(), lock: None, claim: Some(claim) };
        made?;
        directory.lock = Some(Self::lock(path)?);
        Ok(directory)
    }

    /// The run has started: what was claimed stays.
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
        for part in PARTS {
            fs::create_dir_all(path.join(part)).map_err(Error::file(&path.join(part), "create"))?;
        }
        Ok(Self { path: path.into(), lock: None, claim: None })
    }

    fn lock(path: &Path) -> Result<Lock, Error> {
        let locked = |file: File| match file.try_lock() {
            Err(fs::TryLockError::WouldBlock) => Err(Error::Occupied {
                path: path.into(),
                reason: "is in use by a run under way; give --out another directory",
            }),
            // A file system without locks: better no protection than no run.
            Err(fs::TryLockError::Error(_)) | Ok(()) => Ok(file),
        };
        let directory = locked(File::open(path).map_err(Error::file(path, "open"))?)?;
        let name = path.join(LOCK);
        let file = locked(File::create(&name).map_err(Error::file(&name, "create"))?)?;
        Ok(Lock { directory, _file: file })
    }

    /// Refuses where this run's directory has gone, or another is in its place: what is there is not this run's to replace.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn expect_own(&self) -> Result<(), Error> {
        let Some(lock) = &self.lock else { return Ok(()) };
        let failed = Error::file(&self.path, "write into");
        let (claimed, now) = match (lock.directory.metadata(), fs::metadata(&self.path)) {
            (Ok(claimed), Ok(now)) => (claimed, now),
            (Err(error), _) | (_, Err(error)) => return Err(failed(error)),
        };
        if (claimed.dev(), claimed.ino()) == (now.dev(), now.ino()) {
            return Ok(());
        }
        let moved = fs::read_link(format!("/proc/self/fd/{}", lock.directory.as_raw_fd()));
        let moved = moved.map_or_else(|_| "elsewhere".to_owned(), |path| path.display().to_string());
        Err(failed(IoError::other(format!(
            "another directory is in its place, and this run's own is {moved} now: what the run has recorded is there"
        ))))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a whole document beside its place, then renames it there.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn write_document(&self, name: &str, content: &str) -> Result<(), Error> {
        self.expect_own()?;
        write_whole(&self.path.join(name), content.as_bytes())
    }

    /// As [`Self::write_document`], without waiting until the disk has it: for what is written anew every round.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn refresh_document(&self, name: &str, content: &str) -> Result<(), Error> {
        self.expect_own()?;
        let path = self.path.join(name);
        let refresh = || {
            let mut file = AtomicFile::create(&path)?;
            file.write_all(content.as_bytes())?;
            file.commit_without_sync()
        };
        refresh().map_err(Error::file(&path, "write"))
    }

    /// Starts a recording, whose files begin with `header` where there is one.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn stream(&self, name: &str, limits: Limits, header: Option<&impl Serialize>) -> Result<Stream, Error> {
        let path = self.vacant(name)?;
        // As an earlier run's file did: nobody is to take its segments for this run's.
        for (_, segment) in closed_segments(&path) {
            fs::rename(&segment, free_name(&segment)?).map_err(Error::file(&segment, "move aside"))?;
        }
        Stream::create(&path, name, limits, header)
    }

    /// Goes on with a recording that an earlier process of this rank has begun in this run.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn go_on_with(&self, name: &str, limits: Limits) -> Result<Stream, Error> {
        Stream::go_on(&self.path.join(name), name, limits)
    }

    /// Where a file of this name goes; one that an earlier run left, on a disk that the root does not see, moves aside.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn vacant(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.path.join(name);
        if path.exists() {
            fs::rename(&path, free_name(&path)?).map_err(Error::file(&path, "move aside"))?;
        }
        Ok(path)
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        let Some(Claim { aside, folders }) = self.claim.take() else { return };
        // What cannot be taken back stays; the reason why the run did not start is what is told.
        if self.lock.take().is_some() {
            let _ = fs::remove_file(self.path.join(LOCK));
        }
        drop(folders);
        if let Some(aside) = aside.filter(|_| !self.path.exists()) {
            let _ = fs::rename(aside, &self.path);
        }
    }
}

/// Writes a file beside its place, then renames it there, so that no half-written file looks whole.
///
/// # Errors
/// [`Error::File`] names the path.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> Result<(), Error> {
    probe_sync_files::write_whole(path, content).map_err(Error::file(path, "write"))
}

/// From here on, whatever folder the program goes to.
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

/// What the files of a folder are called that ranks and their processes make in a run's directory, whether or not it is rank 0's.
fn own_names(folder: &str) -> Option<fn(&str) -> bool> {
    match folder {
        MARKS_FOLDER => Some(|name| token_of_file(name).is_some()),
        RECEIVED_FOLDER | SUCCESSORS_FOLDER => Some(|name| name.starts_with("rank")),
        // Of probe_sync.jax; one that is not whole begins with a dot.
        "written" => Some(|name| name.starts_with("probe_sync_") || name.starts_with('.')),
        part => PARTS.contains(&part).then_some(|name| name.starts_with("node")),
    }
}

/// The run whose directory this is, if it is one.
pub(crate) fn run_in(directory: &Path) -> Option<String> {
    let text = fs::read_to_string(directory.join("run.json")).ok()?;
    serde_json::from_str::<Value>(&text).ok()?.get("run_id")?.as_str().map(str::to_owned)
}

fn free_name(path: &Path) -> Result<PathBuf, Error> {
    (1..MAX_OLD_RUNS)
        .map(|number| {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(format!(".{number}"));
            path.with_file_name(name)
        })
        .find(|candidate| !candidate.exists())
        .ok_or_else(|| Error::TooManyOldRuns { path: path.into() })
}

const MAX_OLD_RUNS: u32 = 1000;
/// The folders of nodes' files, `nodeN…`.
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
            assert!(error.contains("another directory is in its place") && error.contains("elsewhere"), "{error}");
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
        // As a rank other than 0 leaves its own directory, with probe_sync.jax; this host may be rank 0 of the next run.
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
