//! Whole files: real traces where they are at hand, small ones by hand for every rule, broken ones
//! for every refusal.

mod facts;
mod merge;
mod odd;
mod others;
mod refusals;
mod rewrite;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::facts::read_facts;
use super::rewrite::rewrite;
use super::*;
use crate::model::{CollectiveKind, Instance, Picoseconds};

/// The real traces; `None`, with a message, if they are missing.
fn data() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/torch");
    let found = folder.is_dir();
    if !found {
        println!("skipped: {} is absent", folder.display());
    }
    found.then_some(folder)
}

fn traces(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.to_string_lossy().ends_with(".gz")).collect();
    files.sort();
    files
}

/// Merges, with what the reader of facts finds for a merge and without it.
fn merge(inputs: &mut [MergeInput<'_>], output: &Path, options: &MergeOptions) -> Result<MergeStats, Error> {
    let alone = super::merge::merge(inputs, output, options);
    for input in inputs.iter_mut() {
        let facts = read_facts(&input.path, &FactOptions { merging: true, ..FactOptions::default() });
        input.known = facts.ok().and_then(|facts| facts.merging);
    }
    let written = alone.is_ok().then(|| std::fs::read(output).unwrap());
    let known = super::merge::merge(inputs, output, options);
    assert_eq!(known.as_ref().map_err(ToString::to_string), alone.as_ref().map_err(ToString::to_string));
    assert!(written.is_none_or(|written| written == std::fs::read(output).unwrap()), "the same bytes");
    alone
}

/// A file's bytes, inflated by a reader that stops after the first gzip member.
fn contents(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).unwrap();
    if path.extension().is_some_and(|extension| extension == "gz") {
        flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    } else {
        std::io::BufReader::new(file).read_to_end(&mut bytes).unwrap();
    }
    bytes
}

/// Text as JSON; numbers stay text.
fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// Rewrites a text.
fn rewritten(
    text: &[u8],
    options: RewriteOptions<'_>,
    mut map: impl FnMut(Picoseconds) -> Picoseconds,
) -> Result<(Vec<u8>, RewriteStats), Error> {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.json"), folder.path().join("out.json"));
    std::fs::write(&input, text).unwrap();
    let outcome = rewrite(&input, &output, &options, &mut map);
    assert_eq!(output.exists(), outcome.is_ok(), "a refused file leaves no output");
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1 + usize::from(outcome.is_ok()),
        "nothing is left behind"
    );
    outcome.map(|stats| (contents(&output), stats))
}

fn check_rewrite(text: &str, options: RewriteOptions<'_>, map: impl FnMut(Picoseconds) -> Picoseconds, expected: &str) {
    let (out, _) = rewritten(text.as_bytes(), options, map).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

const MICROSECOND: Picoseconds = 1_000_000;

/// The exact offsets of a set: per node, the node's time and its offset to node 0.
fn exact_offsets(folder: &Path) -> BTreeMap<usize, Vec<(i128, f64)>> {
    let mut offsets: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for line in std::fs::read_to_string(folder.join("offsets.csv")).unwrap().lines().skip(1) {
        let fields: Vec<_> = line.split(',').collect();
        let time: i128 = fields[1].parse().unwrap();
        offsets.entry(fields[0].parse().unwrap()).or_default().push((time * 1000, fields[2].parse().unwrap()));
    }
    offsets
}

/// A node's time on node 0's clock, by straight lines between the exact offsets.
fn corrected(series: &[(i128, f64)], time: Picoseconds) -> Picoseconds {
    let after = series.partition_point(|(at, _)| *at <= time).clamp(1, series.len() - 1);
    let ((x0, y0), (x1, y1)) = (series[after - 1], series[after]);
    let offset_ns = y0 + (y1 - y0) * ((time - x0) as f64 / (x1 - x0) as f64);
    time - (offset_ns * 1000.0).round() as i128
}
