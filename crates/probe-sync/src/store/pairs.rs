//! Snapshot pairs of ranks that do not see the root's directory, sent to the root at the end of the
//! run with their accounts, over any backend.
//!
//! A rank sends the lines of its node's file. If they are longer than its share of
//! [`ALL_NODES_MAX`], they are thinned evenly; the first and the last line always remain, so that
//! no event of the run lies beyond the pairs. Sending the pairs when they are taken was rejected,
//! because then they would cost messages during the run.

use std::io::{self, BufRead as _, BufReader, Write as _};

use probe_sync_files::OwnFolder;
use serde::{Deserialize, Serialize};

/// Snapshot pairs of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SentPairs {
    /// Lines of the node's file, in order.
    lines: Vec<u8>,
    /// Lines of the file that are not among them.
    pub left_out: u64,
}

impl SentPairs {
    /// Reads the file `name` of a node, at most `limit` bytes of it.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn read(folder: &OwnFolder, name: &str, limit: u64) -> io::Result<Self> {
        // The first line is longer than the others, and always remains.
        let (mut count, mut first, mut longest) = (0_u64, 0_u64, 1_u64);
        whole_lines(folder, name, |line| {
            let length = line.len() as u64;
            if count == 0 {
                first = length;
            } else {
                longest = longest.max(length);
            }
            count += 1;
        })?;
        let room = limit.saturating_sub(first) / longest;
        let step = u64::div_ceil(count.saturating_sub(1), room.max(1)).max(1);
        let (mut lines, mut number, mut kept) = (Vec::new(), 0_u64, 0);
        whole_lines(folder, name, |line| {
            number += 1;
            // Nothing writes the file any more, but a file system may have failed since.
            let chosen = number <= count && (number == 1 || (count - number).is_multiple_of(step));
            if chosen && lines.len() + line.len() <= limit as usize {
                lines.extend_from_slice(line);
                kept += 1;
            }
        })?;
        Ok(Self { lines, left_out: count - kept })
    }

    /// Writes the pairs as the file `name` of the run's directory, unless a file with as much is
    /// there already: the rank sees the directory after all, or has sent its whole file.
    ///
    /// # Errors
    /// Returns the system's error; refuses more than `limit` bytes, which no rank of ours sends.
    pub fn write(&self, folder: &OwnFolder, name: &str, limit: u64) -> io::Result<()> {
        if self.lines.len() as u64 > limit {
            return Err(io::Error::other(format!("{} bytes were sent, and {limit} are the limit", self.lines.len())));
        }
        let present = folder.read(name).and_then(|file| file.metadata()).map_or(0, |known| known.len());
        if present >= self.lines.len() as u64 {
            return Ok(());
        }
        // Without waiting for the disk: a launcher may end the process soon.
        let mut file = folder.atomic(name)?;
        file.write_all(&self.lines)?;
        file.commit_without_sync()
    }
}

/// Returns how many bytes each of `nodes` nodes may send, if the launcher kills the ranks soon or
/// not.
pub(crate) fn limit_per_node(nodes: usize, killed_soon: bool) -> u64 {
    let all = if killed_soon { ALL_NODES_MAX_IN_HASTE } else { ALL_NODES_MAX };
    (all / nodes.max(1) as u64).min(NODE_MAX)
}

/// Calls `each` with every line of a file that is complete, including its end.
fn whole_lines(folder: &OwnFolder, name: &str, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let mut file = BufReader::new(folder.read(name)?);
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line)? > 0 {
        if line.ends_with(b"\n") {
            each(&line);
        }
        line.clear();
    }
    Ok(())
}

/// Most bytes of a node: some 7000 pairs, or 8 hours at the default period.
const NODE_MAX: u64 = 1 << 20;
/// Most bytes that the root gathers.
const ALL_NODES_MAX: u64 = 64 << 20;
/// Most bytes that the root gathers if the launcher kills the ranks a second after its signal.
const ALL_NODES_MAX_IN_HASTE: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "node1.snapshot_pairs.jsonl";

    /// Sends a file of lines 0, 1, … and returns the lines that arrive.
    fn sent(count: u32, limit: u64) -> (Vec<u32>, u64) {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let [from, to] = ["from", "to"].map(|name| OwnFolder::create(&parent.path().join(name)).expect("ours"));
        let text: String = (0..count).map(|number| format!("{number:03}\n")).collect();
        std::fs::write(from.path_of(NAME), text + "unfinished").expect("writable");
        let pairs = SentPairs::read(&from, NAME, limit).expect("readable");
        pairs.write(&to, NAME, limit).expect("writable");
        let text = std::fs::read_to_string(to.path_of(NAME)).expect("written");
        assert!(text.len() as u64 <= limit, "{text}");
        (text.lines().map(|line| line.parse().expect("whole lines")).collect(), pairs.left_out)
    }

    #[test]
    fn what_is_too_long_is_thinned_evenly_and_keeps_its_ends() {
        assert_eq!(sent(4, 100), (vec![0, 1, 2, 3], 0));
        assert_eq!(sent(10, 24), (vec![0, 1, 3, 5, 7, 9], 4));
        assert_eq!(sent(100, 16), (vec![0, 33, 66, 99], 96));
        assert_eq!(sent(100, 8), (vec![0, 99], 98));
    }

    #[test]
    fn a_file_with_as_much_is_not_replaced() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let folder = OwnFolder::open(parent.path()).expect("ours");
        let content = || std::fs::read_to_string(folder.path_of(NAME)).expect("written");
        let short = SentPairs { lines: b"0\n".to_vec(), left_out: 0 };
        let long = SentPairs { lines: b"0\n1\n".to_vec(), left_out: 0 };
        for (pairs, expected) in [(&short, "0\n"), (&long, "0\n1\n"), (&short, "0\n1\n")] {
            pairs.write(&folder, NAME, NODE_MAX).expect("writable");
            assert_eq!(content(), expected);
        }
    }

    #[test]
    fn all_nodes_share_what_the_root_takes() {
        assert_eq!(limit_per_node(2, false), NODE_MAX);
        assert_eq!(limit_per_node(1024, false), 64 << 10);
        assert_eq!(limit_per_node(64, true), 64 << 10);
    }
}
