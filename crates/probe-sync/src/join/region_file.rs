//! The file that assigns ranks to regions.
//!
//! With `--region-file` every rank reads it before the ranks are grouped (`regions`). A line is a
//! region's name followed by ranks or ranges of ranks; a region may have several lines, and `#`
//! starts a comment:
//!
//! ```text
//! west 0-3,8   # one site
//! east 4-7
//! ```
//!
//! A rank that is named twice or does not exist is an error.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::config::region_name;

/// Returns the region of `rank` among `size`, as given by the file.
///
/// # Errors
/// Names the file, the line and the problem, or states that no line contains the rank.
pub(super) fn region_of(path: &Path, rank: usize, size: usize) -> Result<String, String> {
    let wrong = |reason: String| format!("--region-file {}: {reason}", path.display());
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(FILE_MAX + 1).read_to_string(&mut text));
    let read = read.map_err(|error| wrong(format!("cannot be read: {error}")))?;
    if read as u64 > FILE_MAX {
        return Err(wrong(format!("is longer than {FILE_MAX} bytes")));
    }
    let regions = parse(&text, size).map_err(wrong)?;
    regions.get(&rank).cloned().ok_or_else(|| wrong(format!("rank {rank} is missing; the job has {size} ranks")))
}

/// Returns the region by rank.
fn parse(text: &str, size: usize) -> Result<BTreeMap<usize, String>, String> {
    let mut regions: BTreeMap<usize, String> = BTreeMap::new();
    for (line, number) in text.lines().zip(1..) {
        let told = line.split('#').next().unwrap_or_default();
        let mut words = told.split_whitespace();
        let Some(name) = words.next() else { continue };
        let wrong = |reason: String| format!("line {number}: {reason}");
        let name = region_name(name).map_err(wrong)?;
        let lists: Vec<&str> = words.collect();
        if lists.is_empty() {
            return Err(wrong(format!("region {name} has no ranks; write them after its name, as in {name} 0-3,8")));
        }
        for part in lists.iter().flat_map(|list| list.split(',')).filter(|part| !part.is_empty()) {
            for rank in ranks(part, size).map_err(wrong)? {
                if let Some(other) = regions.insert(rank, name.clone()) {
                    return Err(wrong(format!("rank {rank} is already in region {other}")));
                }
            }
        }
    }
    Ok(regions)
}

/// Parses `4` or `4-7`.
fn ranks(part: &str, size: usize) -> Result<std::ops::RangeInclusive<usize>, String> {
    let number = |text: &str| {
        text.parse::<usize>().map_err(|_| format!("{part:?} is not a rank or a range of ranks, such as 4 or 4-7"))
    };
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let (first, last) = (number(first)?, number(last)?);
    match (first <= last, last < size) {
        (false, _) => Err(format!("{part}: the first rank is greater than the last")),
        (true, false) => Err(format!("{part}: there is no rank {last}; the job has {size} ranks, numbered from 0")),
        (true, true) => Ok(first..=last),
    }
}

/// Largest file, bytes: enough for a line for each of a million ranks.
const FILE_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_regions_and_their_ranks() {
        let check = |text: &str, expected: Result<&str, &str>| match (parse(text, 6), expected) {
            (Ok(regions), Ok(expected)) => {
                assert_eq!(regions.into_values().collect::<Vec<_>>().join(" "), expected, "{text:?}");
            }
            (Err(reason), Err(part)) => assert!(reason.contains(part), "{part} is missing in {reason}"),
            (other, _) => panic!("{text:?} gave {other:?}"),
        };
        check("a 0-2\nb 3-5\n", Ok("a a a b b b"));
        check("# sites\n\na 0,2 # two\nb\t1-1\n a 3 4-5,", Ok("a b a a a a"));
        check("a 0\nb 0-1", Err("line 2: rank 0 is already in region a"));
        check("a 0-6", Err("line 1: 0-6: there is no rank 6; the job has 6"));
        check("a 99999999999999999999", Err("not a rank or a range"));
        check("a 3-1", Err("greater than the last"));
        check("a", Err("region a has no ranks"));
        check("a/b 0", Err("not a region name"));
    }

    #[test]
    fn a_rank_of_no_line_and_a_missing_file_are_named() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("regions.txt");
        let error = region_of(&path, 0, 2).expect_err("no file");
        assert!(error.contains("regions.txt") && error.contains("cannot be read"), "{error}");
        std::fs::write(&path, "a 0").expect("writable");
        assert_eq!(region_of(&path, 0, 2).as_deref(), Ok("a"));
        let error = region_of(&path, 1, 2).expect_err("no line");
        assert!(error.contains("rank 1 is missing"), "{error}");
    }
}
