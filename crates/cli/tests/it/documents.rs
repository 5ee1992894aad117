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
    let commands = include_str!("../../../../docs/reference/commands.md");
    let config = Config::default();
    let entries = config.entries();
    let default = |key: &str| entries.iter().find(|(name, _)| name == key).map(|(_, text)| text.as_str()).expect(key);
    let fixed = Config { fixed: true, ..Config::default() };
    let (us, seconds) = (fixed.cadence().as_ns() / 1_000, fixed.window().as_ns() / 1_000_000_000);
    let pace = format!("one exchange per {us} µs and host, one offset per node every {seconds} s");
    check("commands.md", commands, &pace);
    let pacing = config.pacing().expect("adapted by default");
    assert_eq!(pacing.window, Some([1_000_000_000, 16_000_000_000]), "commands.md: every second at first, ... 16 s");
    check("commands.md", commands, &format!("as ±{} µs requires", pacing.target_ns / 1e3));
    check("commands.md", commands, &format!("share of a core, default {}", pacing.budget.cpu_share.expect("limited")));
    assert_eq!(default("tracer_clock"), "auto");
    check("commands.md", commands, "offsets against another node than node 0");
    assert_eq!(default("reference"), "0");
}

#[test]
fn the_reference_lists_every_command() {
    let commands = include_str!("../../../../docs/reference/commands.md");
    for command in [
        "run",
        "demo",
        "ctl",
        "report",
        "convert",
        "query",
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
        check("commands.md", commands, &format!("| `probe_sync {command}"));
    }
}
