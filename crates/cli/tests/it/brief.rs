//! What the commands on traces print by default: the verdict first, and no more than fits on a
//! screen.

use crate::support::{output, probe_sync};

const SET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/traces/torch");
const OFFSETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/traces/torch/offsets.csv");

/// Runs a command on the example traces; its first line, and all of it.
fn told(arguments: &[&str]) -> (String, String) {
    let done = output(probe_sync(&[&arguments[..1], &[SET], &arguments[1..]].concat()));
    let text = String::from_utf8(done.stdout).expect("UTF-8");
    (text.lines().next().unwrap_or_default().to_owned(), text)
}

fn fits(text: &str) {
    assert!(text.lines().count() <= 20, "{} lines: {text}", text.lines().count());
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn a_check_says_its_verdict_first_and_the_worst_edges_in_a_few_words() {
    let (first, text) = told(&["check"]);
    assert_eq!(first, "46 of 92 edges are broken, 46 of them beyond the clocks' uncertainty");
    assert!(text.contains("\n  all_gather #8: rank 2 ended 19.624 ms before rank 1 began\n"), "{text}");
    fits(&text);
    let (first, text) = told(&["check", "--offsets", OFFSETS]);
    assert_eq!(first, "causality holds on all 92 edges");
    assert_eq!(text.matches("causality").count(), 1, "{text}");
    fits(&text);
}

#[test]
fn late_ranks_are_named_first() {
    let (first, text) = told(&["stragglers", "--offsets", OFFSETS]);
    assert!(first.contains("straggler"), "{text}");
    fits(&text);
}

#[test]
fn traces_that_were_moved_are_a_table_after_the_verdict() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let [merged, aligned] = ["one.pftrace", "aligned"].map(|name| folder.path().join(name).display().to_string());
    // The folder's path is as long as the machine's.
    let without = |text: &str, path: &str| text.replace(path, "OUTPUT");
    for (command, output) in [("merge", &merged), ("align", &aligned)] {
        let (first, text) = told(&[command, "--offsets", OFFSETS, "--output", output]);
        assert!(first.starts_with(output) && first.contains("4 traces"), "{text}");
        assert!(text.contains("\n torch/node2.pt.trace.json.gz"), "{text}");
        fits(&without(&text, output));
        let (first, text) = told(&[command, "--offsets", OFFSETS, "--validate", "--output", output]);
        assert_eq!(first, "causality holds on all 92 edges", "{text}");
        let (_, text) = told(&[command, "--offsets", OFFSETS, "-v", "--output", output]);
        assert_eq!(text.matches(" → ").count(), 4, "{text}");
    }
}
