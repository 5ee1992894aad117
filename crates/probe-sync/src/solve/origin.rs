//! The run's own information about its nodes, for files that are solved again.
//!
//! `probes/nodeN.jsonl` and `windows/nodeN.jsonl` are in a run's directory, whose `offsets.jsonl`
//! names hosts, ranks and the reference in its first line. The output of `solve` repeats this;
//! otherwise alignment could not match traces to nodes. It does not look elsewhere: files that were
//! moved away have no hosts.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use probe_sync_files::{open_regular, segments};
use probe_sync_lines::OffsetsHeader;
use probe_sync_time::NodeId;

use crate::Error;

/// Returns the first line of the run's `offsets.jsonl`; `None` if there is none.
///
/// # Errors
/// Returns an error if the files are from runs with different first lines.
pub(super) fn header(paths: &[PathBuf]) -> Result<Option<OffsetsHeader>, String> {
    let mut found: Option<(PathBuf, OffsetsHeader)> = None;
    for (directory, header) in headers(paths) {
        match &found {
            Some((other, same)) if (&same.nodes, &same.ranks) != (&header.nodes, &header.ranks) => {
                return Err(format!(
                    "omitted hosts and ranks, because the runs in {} and {} disagree about them",
                    other.display(),
                    directory.display()
                ));
            }
            Some(_) => {}
            None => found = Some((directory, header)),
        }
    }
    Ok(found.map(|(_, header)| header))
}

/// Returns the reference node of the run that left `files`; `None` if its `offsets.jsonl` is not
/// next to their folder.
///
/// # Errors
/// [`Error::Configuration`] if the files are from runs with different references, since it is
/// unknown which is meant.
pub fn recorded_reference(files: &[PathBuf]) -> Result<Option<NodeId>, Error> {
    let headers = headers(files);
    let Some((first, OffsetsHeader { reference, .. })) = headers.first() else { return Ok(None) };
    match headers.iter().find(|(_, header)| header.reference != *reference) {
        None => Ok(Some(*reference)),
        Some((second, other)) => {
            let (first, second) = (first.display(), second.display());
            let reason = format!(
                "the run in {first} measured against node {reference}, the one in {second} against node {}; choose one with --reference",
                other.reference
            );
            Err(Error::Configuration { origin: "command line".into(), key: "--reference".into(), reason })
        }
    }
}

/// Returns the directories of the runs that left `files`, in order, each with the first line of its
/// `offsets.jsonl`.
fn headers(files: &[PathBuf]) -> Vec<(PathBuf, OffsetsHeader)> {
    let directory = |path: &PathBuf| Some(std::fs::canonicalize(path).ok()?.parent()?.parent()?.to_owned());
    let directories: BTreeSet<PathBuf> = files.iter().filter_map(directory).collect();
    let known = |directory: PathBuf| {
        // Every segment begins with it.
        let header = segments(&directory.join("offsets.jsonl")).iter().rev().find_map(|file| first_line(file));
        header.map(|header| (directory, header))
    };
    directories.into_iter().filter_map(known).collect()
}

fn first_line(path: &Path) -> Option<OffsetsHeader> {
    let mut line = Vec::new();
    BufReader::new(open_regular(path).ok()?).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).ok()?;
    serde_json::from_slice::<OffsetsHeader>(&line).ok().filter(|header| header.meta)
}

/// Longest line, bytes; enough for a run of tens of thousands of nodes.
const MAX_LINE_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(parent: &Path, name: &str, first_line: Option<&str>) -> PathBuf {
        std::fs::create_dir_all(parent.join(name).join("probes")).expect("writable");
        if let Some(line) = first_line {
            std::fs::write(parent.join(name).join("offsets.jsonl"), format!("{line}\n{{}}\n")).expect("writable");
        }
        let probes = parent.join(name).join("probes/node0.jsonl");
        std::fs::write(&probes, "").expect("writable");
        probes
    }

    #[test]
    fn the_reference_comes_from_the_run_that_recorded() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let run = |name: &str, line: Option<&str>| run(folder.path(), name, line);
        let (two, same) =
            (run("two", Some("{\"meta\":true,\"reference\":2}")), run("same", Some("{\"meta\":true,\"reference\":2}")));
        let (older, moved) = (run("older", Some("{\"meta\":true}")), run("moved", None));
        let found = |files: &[&PathBuf]| recorded_reference(&files.iter().copied().cloned().collect::<Vec<_>>());
        assert_eq!(found(&[&two, &same, &moved]).expect("one"), Some(NodeId(2)));
        assert_eq!(found(&[&older]).expect("older runs name none"), Some(NodeId(0)));
        assert_eq!((found(&[&moved]).expect("none"), found(&[]).expect("none")), (None, None));
        let differing = found(&[&two, &older]).expect_err("two").to_string();
        for part in ["node 2", "node 0", "two", "older", "--reference"] {
            assert!(differing.contains(part), "{part} is missing in {differing}");
        }
    }

    #[test]
    fn hosts_and_ranks_come_from_the_run_that_recorded() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let head = |host: &str| {
            format!(
                "{{\"meta\":true,\"reference\":1,\"nodes\":[{{\"node_id\":0,\"hostname\":\"{host}\"}}],\
                 \"ranks\":[{{\"rank\":3,\"world_size\":8,\"hostname\":\"{host}\",\"node_id\":0}}]}}"
            )
        };
        let run = |name: &str, line: Option<&str>| run(folder.path(), name, line);
        let (a, b) = (run("a", Some(&head("x"))), run("b", Some(&head("x"))));
        let (other, none, odd) = (run("c", Some(&head("y"))), run("d", None), run("e", Some("{\"meta\":false}")));
        let found = header(&[a.clone(), none.clone(), b]).expect("alike").expect("one");
        assert_eq!((found.nodes[0].hostname.as_deref(), found.ranks[0].rank), (Some("x"), 3));
        assert_eq!(header(&[none, odd]), Ok(None));
        assert_eq!(header(&[PathBuf::from("node0.jsonl")]), Ok(None));
        let problem = header(&[a, other]).expect_err("two runs");
        assert!(problem.contains("disagree"), "{problem}");
    }
}
