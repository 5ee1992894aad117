//! Which node a recorded run measured against: what its `run.json` says.
//!
//! Place in the flow: asked by callers of `solve` that were told no reference. Recorded files lie in a folder of the run's directory
//! (`windows/nodeN.jsonl`), so its `run.json` is one folder up. What it does not do: read recordings.

use std::fs;
use std::path::{Path, PathBuf};

use probe_sync_time::NodeId;
use serde::Deserialize;

use crate::Error;

/// The reference of the run that left `files`; `None` where no `run.json` lies beside their folder, or it names none.
///
/// # Errors
/// A `run.json` that cannot be read, or files of runs with different references: nobody can tell which is meant.
pub fn recorded_reference(files: &[PathBuf]) -> Result<Option<NodeId>, Error> {
    let mut documents: Vec<PathBuf> = files.iter().filter_map(|file| document_of(file)).collect();
    documents.sort();
    documents.dedup();
    let mut known: Option<(NodeId, PathBuf)> = None;
    for document in documents {
        let Some(node) = reference_in(&document)? else { continue };
        match &known {
            Some((other, first)) if *other != node => {
                let (first, second) = (first.display(), document.display());
                let reason = format!("{first} says node {other} and {second} node {node}; name the one that is meant");
                return Err(Error::Configuration { origin: "command line".into(), key: "--reference".into(), reason });
            }
            _ => known = Some((node, document)),
        }
    }
    Ok(known.map(|(node, _)| node))
}

/// What is read of `run.json`. Older runs name no reference; theirs was node 0.
#[derive(Deserialize)]
struct RunDocument {
    reference: Option<NodeId>,
}

fn document_of(file: &Path) -> Option<PathBuf> {
    let file = std::path::absolute(file).ok()?;
    let document = file.parent()?.parent()?.join("run.json");
    document.is_file().then_some(document)
}

fn reference_in(document: &Path) -> Result<Option<NodeId>, Error> {
    let text = fs::read_to_string(document).map_err(Error::file(document, "read"))?;
    let read: Result<RunDocument, _> = serde_json::from_str(&text);
    let read = read.map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error));
    Ok(read.map_err(Error::file(document, "read"))?.reference)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(folder: &Path, run: &str, document: Option<&str>) -> PathBuf {
        let windows = folder.join(run).join("windows");
        fs::create_dir_all(&windows).expect("writable");
        if let Some(document) = document {
            fs::write(folder.join(run).join("run.json"), document).expect("writable");
        }
        windows.join("node0.jsonl")
    }

    #[test]
    fn the_recorded_runs_reference_is_found_beside_its_folder() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let of = |run: &str, document| recording(folder.path(), run, document);
        let two = of("two", Some(r#"{"run_id": "a", "reference": 2}"#));
        let (same, other) = (of("same", Some(r#"{"reference": 2}"#)), of("other", Some(r#"{"reference": 1}"#)));
        let (older, bare, broken) = (of("older", Some("{}")), of("bare", None), of("broken", Some("{\"refer")));
        let found = |files: &[&PathBuf]| recorded_reference(&files.iter().copied().cloned().collect::<Vec<_>>());
        assert_eq!(found(&[&two, &same, &bare, &older]).expect("one"), Some(NodeId(2)));
        assert_eq!(found(&[&bare, &older]).expect("none"), None);
        assert_eq!(found(&[]).expect("none"), None);
        let differing = found(&[&two, &other]).expect_err("two").to_string();
        assert!(
            differing.contains("node 2") && differing.contains("node 1") && differing.contains("--reference"),
            "{differing}"
        );
        let unreadable = found(&[&broken]).expect_err("cut").to_string();
        assert!(unreadable.contains("run.json"), "{unreadable}");
    }
}
