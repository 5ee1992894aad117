//! Filters of `merge` on real XSpaces: what reaches into the span stays as it was, and nothing else
//! stays.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{complaint, output, probe_sync, text};

/// How often each event is there: its name, when it begins, how long it takes; ns.
type Events = BTreeMap<(String, i64, i64), u32>;

/// The events of a merged XSpace, as another format has them.
fn events(xspace: &Path, folder: &Path) -> Events {
    let done = output(probe_sync(&["convert", text(xspace), "-f", "json", "-d", text(folder)]));
    assert!(done.status.success(), "{}", complaint(&done));
    let trace = std::fs::read(folder.join("out_results.json")).expect("a trace");
    let trace: Value = serde_json::from_slice(&trace).expect("JSON");
    let base = trace["baseTimeNanoseconds"].as_i64().expect("a base");
    let mut events = Events::new();
    for event in trace["traceEvents"].as_array().expect("events").iter().filter(|event| event["ph"] == "X") {
        let ns = |key: &str| (event[key].as_f64().expect("µs") * 1e3).round() as i64;
        *events.entry((event["name"].to_string(), base + ns("ts"), ns("dur"))).or_default() += 1;
    }
    events
}

#[test]
fn a_span_of_real_xspaces_holds_what_reaches_into_it() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/traces/jax");
    let folder = tempfile::tempdir().expect("a folder");
    let traces: Vec<PathBuf> = (0..4).map(|node| examples.join(format!("node{node}.xplane.pb"))).collect();
    let offsets = examples.join("offsets.csv");
    let merged = |name: &str, filter: &[&str]| {
        let path = folder.path().join(format!("{name}.xplane.pb"));
        let inputs: Vec<&str> = traces.iter().map(|path| text(path)).collect();
        let line = ["--offsets", text(&offsets), "--assume-order", "-o", text(&path)];
        let done = output(probe_sync(&[&["merge"], &inputs[..], &line, filter].concat()));
        assert!(done.status.success(), "{}", complaint(&done));
        events(&path, &folder.path().join(name))
    };
    let all = merged("all", &[]);
    let mut begins: Vec<i64> = all.keys().map(|(_, begin, _)| *begin).collect();
    begins.sort_unstable();
    // Between two events: the other format has whole ns, and an XSpace parts of them.
    let between = |place: usize| {
        let pair = begins[place..].windows(2).find(|pair| pair[1] - pair[0] > 1_000).expect("some pause");
        (pair[0] + pair[1]) / 2
    };
    let (from, to) = (between(begins.len() / 4), between(begins.len() * 3 / 4));
    let found = merged("part", &["--from", &from.to_string(), "--to", &to.to_string()]);
    let expected: Events =
        all.into_iter().filter(|((_, begin, length), _)| begin + length >= from && *begin <= to).collect();
    let count = |events: &Events| events.values().sum::<u32>();
    assert!((500..2000).contains(&count(&expected)), "{} of 2694 events", count(&expected));
    assert!(found == expected, "{} events, not {}", count(&found), count(&expected));
}
