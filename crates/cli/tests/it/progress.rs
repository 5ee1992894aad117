//! What commands expect to read of traces is what they read: time left is told by it.

use std::path::Path;
use std::time::Duration;

use probe_sync_rocpd::writer::{Process, Region, Settings, Writer};

use crate::support::{complaint, output, probe_sync, text};

/// What a command has read of what it expected to read.
fn share_read(folder: &Path, command: &[&str]) -> f64 {
    let mut asked = probe_sync(command);
    asked.current_dir(folder);
    let done = output(asked);
    assert!(done.status.success(), "{command:?}: {}", complaint(&done));
    let said = complaint(&done);
    let said = said.lines().find(|line| line.contains("of the expected data has been read"));
    let words: Vec<&str> = said.unwrap_or_else(|| panic!("{command:?}")).split_whitespace().collect();
    let share = words[words.iter().position(|word| *word == "of").expect("a share") - 1];
    share.parse().expect("a number")
}

/// How often SQLite reads a page depends on what is in the tables (here only regions), so of
/// databases the share is right to a factor of two.
#[test]
fn of_databases_half_or_twice_of_it_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    for node in 0..2 {
        let output = folder.path().join(format!("node{node}_results.db"));
        let mut process = Process::current();
        process.guid = format!("0000000{node}-0000-7000-8000-000000000000");
        let writer = Writer::open(Settings { output, ..Settings::default() }, process).expect("a new file");
        let (thread, name) = (writer.thread(1, Some("main")), writer.intern("step"));
        for step in 0..REGIONS {
            let start_ns = 1_795_000_000_000_000_000 + step * 10_000;
            let end_ns = start_ns + 7_000;
            while !thread.region(Region { name, category: name, start_ns, end_ns, ..Region::default() }) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        drop(thread);
        writer.finish().expect("written");
    }
    let traces = ["node0_results.db", "node1_results.db", "--verbose"];
    for command in [
        &["merge", "--no-correction", "-o", "all.db"][..],
        &["merge", "--no-correction", "-o", "all.pftrace"],
        &["convert", "--realtime-only", "-f", "json", "-o", "all"],
    ] {
        let share = share_read(folder.path(), &[&command[..1], &traces, &command[1..]].concat());
        assert!((0.5..=2.0).contains(&share), "{command:?}: {share}");
    }
}

/// So many are larger than what SQLite keeps in memory by itself.
const REGIONS: i64 = 60_000;

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
        share_read(folder.path(), &[&command[..1], &traces, &clocks, &command[1..]].concat())
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
