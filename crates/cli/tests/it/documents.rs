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
    check("README.md", readme, &format!("one offset per node every {} s", config.window.as_ns() / 1_000_000_000));
    check("CHANGELOG.md", changelog, &format!("{} (the default)", default("tracer_clock")));
    check("README.md", readme, "against another node than node 0");
    assert_eq!(default("reference"), "0");
}

#[test]
fn the_readme_shows_every_command() {
    let readme = include_str!("../../../../README.md");
    for command in ["solve", "align", "merge", "check", "sim", "doctor", "export"] {
        check("README.md", readme, &format!("| `probe_sync {command}"));
    }
}
