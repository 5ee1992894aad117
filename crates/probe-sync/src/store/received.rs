//! Where files of ranks go that do not see the run's directory.
//!
//! Place in the flow: at the root, while the run is under way; the ranks' side is `session::files`. What alignment reads of a rank, its marks and
//! its node's snapshot pairs, goes where the rank would have written it. Everything else goes into a folder of the rank's own, so that no rank
//! replaces a file of the run or of another rank.
//!
//! What it does not do: move bytes (`collective`).

use std::path::{Path, PathBuf};

use probe_sync_collective::{FilePlaces, Rank};
use probe_sync_estimate::record::{MARKS_FOLDER, token_of_file};
use probe_sync_time::NodeId;

/// What ranks may bring.
#[derive(Debug)]
pub(crate) struct ReceivedFiles {
    out: PathBuf,
    /// For each rank, the node for which it takes snapshot pairs.
    nodes: Vec<Option<NodeId>>,
}

impl ReceivedFiles {
    /// For a run in `out`.
    pub fn new(out: &Path, nodes: Vec<Option<NodeId>>) -> Self {
        // This process may change its working directory.
        Self { out: std::path::absolute(out).unwrap_or_else(|_| out.to_owned()), nodes }
    }
}

impl FilePlaces for ReceivedFiles {
    fn path(&self, rank: Rank, name: &str) -> Result<PathBuf, String> {
        let own = |file: &str| file.starts_with(&format!("rank{rank}-")) && token_of_file(file).is_some();
        let pairs = self.nodes.get(rank).copied().flatten().map(pairs_file);
        match name.split_once('/') {
            Some((FILES, name)) => Ok(received(&self.out, rank, name)),
            Some((MARKS_FOLDER, file)) if own(file) => Ok(self.out.join(name)),
            _ if pairs.as_deref() == Some(name) => Ok(self.out.join(name)),
            _ => Err(format!("rank {rank} has no record {name:?} in this run")),
        }
    }
}

/// Where rank 0 has a file that `rank` has brought under `name`, in the directory `out` of a run.
pub fn received(out: &Path, rank: Rank, name: &str) -> PathBuf {
    out.join(format!("{RECEIVED_FOLDER}/rank{rank}/{name}"))
}

/// What a rank's own file is called on the way.
pub(crate) fn own_file(name: &str) -> String {
    format!("{FILES}/{name}")
}

/// A node's snapshot pairs, as lines.
pub(crate) fn pairs_file(node: NodeId) -> String {
    format!("snapshots/node{node}.snapshot_pairs.jsonl")
}

/// The folder of files that ranks have brought.
pub(super) const RECEIVED_FOLDER: &str = "received";

const FILES: &str = "files";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_brings_its_own_records_and_files_and_no_others() {
        let places = ReceivedFiles::new(Path::new("/out"), vec![Some(NodeId(0)), None, Some(NodeId(1))]);
        let check = |rank: Rank, name: &str, expected: Option<&str>| {
            let found = places.path(rank, name);
            assert_eq!(found.as_deref().ok(), expected.map(Path::new), "{rank} {name}: {found:?}");
        };
        let marks = "marks/rank1-0123456789abcdef.jsonl";
        check(1, marks, Some("/out/marks/rank1-0123456789abcdef.jsonl"));
        check(2, marks, None);
        check(1, "marks/rank1-x.jsonl", None);
        check(1, "marks/a/rank1-0123456789abcdef.jsonl", None);
        let pairs = "snapshots/node1.snapshot_pairs.jsonl";
        check(2, pairs, Some("/out/snapshots/node1.snapshot_pairs.jsonl"));
        check(1, pairs, None);
        check(0, pairs, None);
        check(9, pairs, None);
        check(1, &own_file("traces/a.json"), Some("/out/received/rank1/traces/a.json"));
        check(1, &own_file("run.json"), Some("/out/received/rank1/run.json"));
        for other in ["run.json", "offsets.jsonl", "windows/node1.jsonl", "files", ""] {
            check(2, other, None);
        }
    }
}
