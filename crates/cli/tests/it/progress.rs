//! What commands expect to read of traces is what they read: time left is told by it.

use std::path::Path;

use crate::support::{complaint, output, probe_sync, text};

#[test]
fn commands_read_what_they_expect_to_read() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/traces");
    let folder = tempfile::tempdir().expect("a folder");
    let read = |(set, ending): (&str, &str), command: &[&str]| {
        let offsets = examples.join(set).join("offsets.csv");
        let set = if ending == ".pftrace" { folder.path().join("shown") } else { examples.join(set) };
        let traces: Vec<_> = (0..4).map(|node| set.join(format!("node{node}{ending}"))).collect();
        let traces: Vec<&str> = traces.iter().map(|path| text(path)).collect();
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
    // Each by a process of its own, so that the traces stay one per node.
    for node in 0..4 {
        let trace = examples.join("torch").join(format!("node{node}.pt.trace.json.gz"));
        let name = format!("shown/node{node}");
        let made =
            output(probe_sync(&["convert", text(&trace), "-f", "pftrace", "-d", text(folder.path()), "-o", &name]));
        assert!(made.status.success(), "{}", complaint(&made));
        let made = folder.path().join(format!("{name}_results.pftrace"));
        std::fs::rename(made, folder.path().join(format!("{name}.pftrace"))).expect("it is there");
    }
    let perfetto = ("torch", ".pftrace");
    let cases: [((&str, &str), &[&str]); 16] = [
        (torch, &["check"]),
        (torch, &["stragglers"]),
        (torch, &["align", "-o", "torch"]),
        (torch, &["merge", "-o", "torch.json"]),
        (torch, &["merge", "-o", "marked.json", "--mark-late"]),
        (torch, &["merge", "-o", "some.json", "--only", "collectives"]),
        (torch, &["merge", "-o", "torch.pftrace"]),
        (torch, &["convert", "-f", "pftrace", "-o", "converted"]),
        (jax, &["check"]),
        (jax, &["stragglers"]),
        (jax, &["merge", "-o", "marked.xplane.pb", "--mark-late"]),
        (jax, &["align", "-o", "jax"]),
        (jax, &["merge", "-o", "jax.xplane.pb"]),
        (jax, &["merge", "-o", "jax.pftrace"]),
        (perfetto, &["merge", "-o", "perfetto.tar"]),
        (torch, &["merge", "-o", "two.json", "--ranks", "0-1"]),
    ];
    let wrong: Vec<String> = cases
        .iter()
        .map(|(set, command)| (set, command, read(*set, command)))
        .filter(|(.., share)| !(0.9..=1.1).contains(share))
        .map(|(set, command, share)| format!("{set:?} {command:?}: {share}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
