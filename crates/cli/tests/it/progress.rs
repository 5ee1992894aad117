//! What commands expect to read of traces is what they read: time left is told by it.

use std::path::Path;

use crate::support::{complaint, output, probe_sync, text};

#[test]
fn commands_read_what_they_expect_to_read() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/traces");
    let folder = tempfile::tempdir().expect("a folder");
    let read = |set: &str, ending: &str, command: &[&str]| {
        let set = examples.join(set);
        let traces: Vec<_> = (0..4).map(|node| set.join(format!("node{node}{ending}"))).collect();
        let traces: Vec<&str> = traces.iter().map(|path| text(path)).collect();
        let offsets = set.join("offsets.csv");
        let clocks = ["--offsets", text(&offsets), "--assume-order", "--verbose"];
        let mut asked = probe_sync(&[&command[..1], &traces, &clocks, &command[1..]].concat());
        asked.current_dir(folder.path());
        let done = output(asked);
        assert!(done.status.success(), "{command:?}: {}", complaint(&done));
        let said = complaint(&done);
        let said = said.lines().find(|line| line.contains("of what was expected has been read"));
        let words: Vec<&str> = said.unwrap_or_else(|| panic!("{command:?}")).split_whitespace().collect();
        let share = words[words.iter().position(|word| *word == "of").expect("a share") - 1];
        share.parse::<f64>().expect("a number")
    };
    let torch = ("torch", ".pt.trace.json.gz");
    let jax = ("jax", ".xplane.pb");
    let cases: [((&str, &str), &[&str]); 11] = [
        (torch, &["check"]),
        (torch, &["stragglers"]),
        (torch, &["align", "-o", "torch"]),
        (torch, &["merge", "-o", "torch.json"]),
        (torch, &["merge", "-o", "marked.json", "--mark-late"]),
        (torch, &["merge", "-o", "some.json", "--only", "collectives"]),
        (torch, &["merge", "-o", "torch.pftrace"]),
        (jax, &["check"]),
        (jax, &["align", "-o", "jax"]),
        (jax, &["merge", "-o", "jax.xplane.pb"]),
        (jax, &["merge", "-o", "jax.pftrace"]),
    ];
    let wrong: Vec<String> = cases
        .iter()
        .map(|((set, ending), command)| (set, command, read(set, ending, command)))
        .filter(|(.., share)| !(0.9..=1.1).contains(share))
        .map(|(set, command, share)| format!("{set} {command:?}: {share}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
