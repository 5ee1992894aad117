//! Sentences of the documents that the code can contradict.

use probe_sync::Config;

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn check(name: &str, document: &str, sentence: &str) {
    assert!(words(document).contains(sentence), "{name} lacks: {sentence}");
}

#[test]
fn documents_state_the_defaults() {
    let (readme, changelog) = (include_str!("../../../../README.md"), include_str!("../../../../CHANGELOG.md"));
    let config = Config::default();
    let entries = config.entries();
    let default = |key: &str| entries.iter().find(|(name, _)| name == key).map(|(_, text)| text.as_str()).expect(key);
    let fixed = Config { fixed: true, ..Config::default() };
    let (us, seconds) = (fixed.cadence().as_ns() / 1_000, fixed.window().as_ns() / 1_000_000_000);
    let pace = format!("one exchange per {us} µs and host, one offset per node every {seconds} s");
    check("README.md", readme, &pace);
    let pacing = config.pacing().expect("adapted by default");
    assert_eq!(pacing.window, Some([1_000_000_000, 16_000_000_000]), "README: every second at first, ... 16 s");
    check("README.md", readme, &format!("as ±{} µs requires", pacing.target_ns / 1e3));
    check("README.md", readme, &format!("share of a core, default {}", pacing.budget.cpu_share.expect("limited")));
    check("CHANGELOG.md", changelog, &format!("{} (the default)", default("tracer_clock")));
    check("README.md", readme, "against another node than node 0");
    assert_eq!(default("reference"), "0");
}

#[test]
fn the_readme_shows_every_command() {
    let readme = include_str!("../../../../README.md");
    for command in [
        "solve",
        "compose",
        "align",
        "merge",
        "check",
        "stragglers",
        "sim",
        "doctor",
        "clock",
        "config",
        "record",
        "export",
        "completions",
        "man",
        "status",
    ] {
        check("README.md", readme, &format!("| `probe_sync {command}"));
    }
}
