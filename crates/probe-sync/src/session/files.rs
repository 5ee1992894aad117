//! Transfer of a rank's files to rank 0 if the two share no directory.
//!
//! It runs in parallel with a session over TCP, in the launcher's threads. A rank's trace and its
//! records travel to the address at which the ranks have met, in pieces of 1 MiB (`collective`); at
//! the root `store::received` determines their destination. Whether a transfer is needed is
//! checked, not guessed: the root's `run.json` is either visible in this rank's directory or not.
//!
//! It does not take part in rounds or wait for other ranks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration as StdDuration;

use probe_sync_collective::{Deadline, Error as Failure, FileSender};
use probe_sync_time::RunId;

use crate::Error;
use crate::store::{own_file, run_in};

/// Sends this rank's files to rank 0. It may outlive the session's handle; rank 0 accepts files
/// until the run ends.
#[derive(Clone, Debug)]
pub struct FilesToRoot {
    pub(super) sender: Option<FileSender>,
    pub(super) out: PathBuf,
    pub(super) run: RunId,
    /// Names in the run's directory.
    pub(super) records: Vec<String>,
    pub(super) stop: Arc<AtomicBool>,
}

impl FilesToRoot {
    /// Creates the handle of a rank whose `sender` leads to the directory `out` of `run`.
    pub(crate) fn new(sender: FileSender, out: PathBuf, run: RunId, stop: Arc<AtomicBool>) -> Self {
        Self { sender: Some(sender), out, run, records: Vec::new(), stop }
    }

    /// Returns the run id, drawn by rank 0; it is equal on all ranks.
    pub fn run_id(&self) -> RunId {
        self.run
    }

    /// Returns true if this rank sees rank 0's directory under its own name for it, from the first
    /// round on: its `run.json` is of this run, and what this rank has written is there. On a file
    /// system with delays, files may be sent unnecessarily.
    pub fn sees_root(&self) -> bool {
        run_in(&self.out).is_some_and(|run| run == self.run.to_string())
            // Another directory may have the name by now, as where this process has changed its
            // working directory.
            && self.records.iter().all(|name| self.out.join(name).exists())
    }

    /// Sends the file at `path` to rank 0, where it appears as `received/rankR/NAME` in the run's
    /// directory once it is complete ([`received`](crate::received)). `name` is a relative path
    /// with `/` as separator. Each rank sends one file at a time.
    ///
    /// # Errors
    /// [`Error::Collective`] names the rank and the file, and states why rank 0 does not have it.
    pub fn send(&self, path: &Path, name: &str, limit: StdDuration) -> Result<(), Error> {
        self.bring(path, name, &own_file(name), limit)
    }

    /// Sends this rank's files that alignment reads to rank 0's directory, in their current state:
    /// its marks, and the snapshot pairs taken so far. Nothing is sent if this rank sees rank 0's
    /// directory, where they are already and keep growing.
    ///
    /// # Errors
    /// Errors of [`Self::send`].
    pub fn send_records(&self, limit: StdDuration) -> Result<(), Error> {
        if self.sees_root() {
            return Ok(());
        }
        self.records.iter().try_for_each(|name| self.bring(&self.out.join(name), name, name, limit))
    }

    fn bring(&self, path: &Path, name: &str, on_the_way: &str, limit: StdDuration) -> Result<(), Error> {
        let sender = self.sender.as_ref().ok_or_else(|| Error::NoWayForFiles { name: name.into() })?;
        let deadline = Deadline::new(limit.min(LONGEST), Some(Arc::clone(&self.stop)));
        sender.send(path, on_the_way, &deadline).map_err(|error| match error {
            // By the name that the caller knows.
            Failure::File { rank, reason, .. } => Error::Collective(Failure::File { rank, name: name.into(), reason }),
            other => other.into(),
        })
    }
}

/// Limits a wait so that its end can be represented as an instant.
const LONGEST: StdDuration = StdDuration::from_secs(365 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_sees_the_root_by_the_run_in_its_directory() {
        let out = tempfile::tempdir().expect("a temporary directory");
        let mut files = FilesToRoot {
            sender: None,
            out: out.path().to_owned(),
            run: RunId(7),
            records: Vec::new(),
            stop: Arc::default(),
        };
        assert!(!files.sees_root());
        for (run, seen) in [(8, false), (7, true)] {
            let document = serde_json::json!({"run_id": RunId(run).to_string()});
            std::fs::write(out.path().join("run.json"), document.to_string()).expect("writable");
            assert_eq!(files.sees_root(), seen);
        }
        let error = files.send(Path::new("/dev/null"), "a", StdDuration::ZERO).expect_err("no way").to_string();
        assert!(error.contains("cannot send a to rank 0"), "{error}");
        files.send_records(StdDuration::ZERO).expect("there are none");
        files.records.push("own.jsonl".into());
        assert!(!files.sees_root(), "what this rank has written is elsewhere");
        std::fs::write(out.path().join("own.jsonl"), "").expect("writable");
        assert!(files.sees_root());
    }
}
