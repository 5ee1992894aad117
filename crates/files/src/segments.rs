//! The files of a recording that lasts days: the closed segments `NAME.000001.jsonl`,
//! `NAME.000002.jsonl` and so on, then `NAME.jsonl`, which is in progress.
//!
//! Writers name segments and every reader finds them with this module. The first segments may be
//! missing, because they are removed if a recording is limited in size.

use std::path::{Path, PathBuf};

/// Returns the name of the segment with this number, counted from 1.
pub fn segment(path: &Path, number: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{number:06}."));
    name.push(path.extension().unwrap_or_default());
    path.with_file_name(name)
}

/// Returns the existing closed segments of a recording with their numbers, oldest first.
pub fn closed_segments(path: &Path) -> Vec<(u32, PathBuf)> {
    let (Some(stem), Some(ending)) = (path.file_stem().and_then(|name| name.to_str()), extension(path)) else {
        return Vec::new();
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let number = |name: &str| {
        let digits = name.strip_prefix(stem)?.strip_prefix('.')?.strip_suffix(ending)?.strip_suffix('.')?;
        let written = digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit());
        written.then(|| digits.parse().ok()).flatten()
    };
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut segments: Vec<(u32, PathBuf)> = found
        .filter_map(|entry| {
            let name = entry.file_name();
            Some((number(name.to_str()?)?, path.with_file_name(name)))
        })
        .collect();
    segments.sort_unstable();
    segments
}

/// Returns all files of a recording, oldest first. `path` itself is the last, and is always
/// included unless only closed segments exist: opening it then shows that it is missing.
pub fn segments(path: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = closed_segments(path).into_iter().map(|(_, path)| path).collect();
    if all.is_empty() || path.exists() {
        all.push(path.to_owned());
    }
    all
}

/// Returns the files of this name that continue this one, with the first round of each: in folders
/// beside it, `rank3-from-round17`, created by a rank that takes over from a lost one. They apply
/// from that round on.
pub fn continuations(path: &Path) -> Vec<(u64, PathBuf)> {
    let Some(name) = path.file_name() else { return Vec::new() };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let first_round = |folder: &str| {
        let (rank, round) = folder.strip_prefix("rank")?.split_once("-from-round")?;
        rank.parse::<u32>().ok().and(round.parse::<u64>().ok())
    };
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<(u64, PathBuf)> = found
        .filter_map(|entry| {
            let round = first_round(entry.file_name().to_str()?)?;
            let file = entry.path().join(name);
            (file.is_file() || !closed_segments(&file).is_empty()).then_some((round, file))
        })
        .collect();
    all.sort_unstable();
    all
}

/// Returns the last file of a recording: that of a successor if another rank continued it, or the
/// last segment if the next one has not begun.
pub fn newest(path: &Path) -> PathBuf {
    let last = continuations(path).pop().map_or_else(|| path.to_owned(), |(_, path)| path);
    if last.is_file() { last } else { closed_segments(&last).pop().map_or(last, |(_, segment)| segment) }
}

/// Only JSON lines are recorded in segments.
fn extension(path: &Path) -> Option<&str> {
    path.extension().and_then(|ending| ending.to_str()).filter(|ending| *ending == "jsonl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_went_on_with_is_found_in_order_of_rounds() {
        let folder = std::env::temp_dir().join(format!("probe_sync_continuations.{}", std::process::id()));
        for (name, file) in [
            ("rank2-from-round100", "offsets.jsonl"),
            ("rank1-from-round17", "offsets.000001.jsonl"),
            ("rank3-from-round18", "other.jsonl"),
            ("rankx-from-round1", "offsets.jsonl"),
            ("rank1-from-round", "offsets.jsonl"),
        ] {
            std::fs::create_dir_all(folder.join(name)).expect("writable");
            std::fs::write(folder.join(name).join(file), "").expect("writable");
        }
        let expected = [(17, "rank1-from-round17"), (100, "rank2-from-round100")]
            .map(|(round, name)| (round, folder.join(name).join("offsets.jsonl")));
        assert_eq!(continuations(&folder.join("offsets.jsonl")), expected);
        std::fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn segments_are_found_in_order_and_nothing_else_is() {
        let folder = std::env::temp_dir().join(format!("probe_sync_segments.{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("writable");
        let path = folder.join("node1.jsonl");
        assert_eq!(segments(&path), std::slice::from_ref(&path), "who opens it learns that it is missing");
        let numbers = [2, 10, 1_000_000];
        for number in numbers {
            std::fs::write(segment(&path, number), "").expect("writable");
        }
        for other in ["node1.12.jsonl", "node10.000001.jsonl", "node1.000003.jsonl.1", "node1.00000x.jsonl"] {
            std::fs::write(folder.join(other), "").expect("writable");
        }
        assert_eq!(segments(&path), numbers.map(|number| segment(&path, number)));
        std::fs::write(&path, "").expect("writable");
        assert_eq!(segments(&path).last(), Some(&path));
        assert_eq!(segment(&path, 2).file_name().and_then(|name| name.to_str()), Some("node1.000002.jsonl"));
        let table = folder.join("node1.csv");
        assert_eq!(segments(&table), std::slice::from_ref(&table));
        std::fs::remove_dir_all(&folder).expect("ours");
    }
}
