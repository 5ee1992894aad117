//! The destinations of files from ranks that do not see the run's directory.
//!
//! It runs at the root during the run; the ranks' side is `session::files`. Files of a rank that
//! alignment needs, its marks and its node's snapshot pairs, go where the rank would have written
//! them. All others go into the rank's own folder, so that no rank replaces a file of the run or of
//! another rank.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use probe_sync_collective::{FilePlaces, Rank};
use probe_sync_files::OwnFolder;
use probe_sync_lines::{MARKS_FOLDER, token_of_file};
use probe_sync_time::NodeId;

/// The files that ranks may send.
#[derive(Debug)]
pub(crate) struct ReceivedFiles {
    out: OwnFolder,
    /// For each rank, the node for which it takes snapshot pairs.
    nodes: Vec<Option<NodeId>>,
    /// Records that ranks have begun to send.
    brought: Mutex<HashSet<String>>,
}

impl ReceivedFiles {
    /// Creates the receiver of a run in `out`.
    pub fn new(out: OwnFolder, nodes: Vec<Option<NodeId>>) -> Self {
        Self { out, nodes, brought: Mutex::default() }
    }

    /// Returns where a record is stored; `None` if its rank writes it here itself, because it sees
    /// this directory after all. Such a file grows, and a sent one would be a copy.
    fn record(&self, name: &str) -> Option<(OwnFolder, String)> {
        let mut brought = self.brought.lock().unwrap_or_else(PoisonError::into_inner);
        if !brought.contains(name) && self.out.contains(name) {
            return None;
        }
        brought.insert(name.to_owned());
        Some((self.out.clone(), name.to_owned()))
    }
}

impl FilePlaces for ReceivedFiles {
    fn place(&self, rank: Rank, name: &str) -> Result<Option<(OwnFolder, String)>, String> {
        let own = |file: &str| file.starts_with(&format!("rank{rank}-")) && token_of_file(file).is_some();
        let pairs = self.nodes.get(rank).copied().flatten().map(pairs_file);
        match name.split_once('/') {
            Some((FILES, name)) => Ok(Some((self.out.clone(), received_name(rank, name)))),
            Some((MARKS_FOLDER, file)) if own(file) => Ok(self.record(name)),
            _ if pairs.as_deref() == Some(name) => Ok(self.record(name)),
            _ => Err(format!("rank {rank} has no record {name:?} in this run")),
        }
    }
}

/// Returns where rank 0 stores a file that `rank` sent under `name`, in the directory `out` of a
/// run.
pub fn received(out: &Path, rank: Rank, name: &str) -> PathBuf {
    out.join(received_name(rank, name))
}

fn received_name(rank: Rank, name: &str) -> String {
    format!("{RECEIVED_FOLDER}/rank{rank}/{name}")
}

/// Returns the transfer name of a rank's own file.
pub(crate) fn own_file(name: &str) -> String {
    format!("{FILES}/{name}")
}

/// Returns the file name of a node's snapshot pairs, as lines.
pub(crate) fn pairs_file(node: NodeId) -> String {
    format!("snapshots/node{node}.snapshot_pairs.jsonl")
}

/// Folder of files that ranks have sent.
pub(super) const RECEIVED_FOLDER: &str = "received";

const FILES: &str = "files";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_brings_its_own_records_and_files_and_no_others() {
        let out = tempfile::tempdir().expect("a temporary directory");
        let own = OwnFolder::open(out.path()).expect("ours");
        let places = ReceivedFiles::new(own, vec![Some(NodeId(0)), None, Some(NodeId(1))]);
        let check = |rank: Rank, name: &str, expected: Option<&str>| {
            let found = places.place(rank, name).map(|place| place.map(|(_, name)| name));
            assert_eq!(found.clone().ok().flatten().as_deref(), expected, "{rank} {name}: {found:?}");
            assert_eq!(found.is_err(), expected.is_none(), "{rank} {name}: {found:?}");
        };
        let marks = "marks/rank1-0123456789abcdef.jsonl";
        check(1, marks, Some("marks/rank1-0123456789abcdef.jsonl"));
        check(2, marks, None);
        check(1, "marks/rank1-x.jsonl", None);
        check(1, "marks/a/rank1-0123456789abcdef.jsonl", None);
        let pairs = "snapshots/node1.snapshot_pairs.jsonl";
        check(2, pairs, Some("snapshots/node1.snapshot_pairs.jsonl"));
        check(1, pairs, None);
        check(0, pairs, None);
        check(9, pairs, None);
        check(1, &own_file("traces/a.json"), Some("received/rank1/traces/a.json"));
        check(1, &own_file("run.json"), Some("received/rank1/run.json"));
        for other in ["run.json", "offsets.jsonl", "windows/node1.jsonl", "files", ""] {
            check(2, other, None);
        }
    }

    #[test]
    fn a_record_that_a_rank_writes_here_itself_is_not_replaced() {
        let out = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(out.path().join("marks")).expect("writable");
        let places = ReceivedFiles::new(OwnFolder::open(out.path()).expect("ours"), vec![None; 2]);
        let name = |name: &str| places.place(1, name).expect("its own").map(|(_, name)| name);
        let [here, brought] =
            ["0123456789abcdef", "0123456789abcde0"].map(|token| format!("marks/rank1-{token}.jsonl"));
        std::fs::write(out.path().join(&here), "live").expect("writable");
        assert_eq!(name(&here), None);
        for _ in 0..2 {
            assert_eq!(name(&brought).as_ref(), Some(&brought));
            // A later delivery replaces an earlier one.
            std::fs::write(out.path().join(&brought), "brought").expect("writable");
        }
    }
}
