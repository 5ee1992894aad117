//! Filters of `merge` on real XSpaces: what lies within the span stays as it was, and so does who was late.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{complaint, output, probe_sync, text};

/// Operations by name and instance: who was last, by how much, and when.
fn late(traces: &[PathBuf], offsets: &Path) -> BTreeMap<String, [i64; 3]> {
    let traces: Vec<&str> = traces.iter().map(|path| text(path)).collect();
    let flags = ["--offsets", text(offsets), "--nodes", "0", "1", "2", "3", "--json"];
    let found = output(probe_sync(&[&["stragglers"], &traces[..], &flags].concat()));
    assert!(found.status.success(), "{}", complaint(&found));
    let document: Value = serde_json::from_slice(&found.stdout).expect("JSON");
    let of = |one: &Value| {
        let number = |key: &str| one[key].as_i64().unwrap_or(-1);
        (format!("{} {}", one["name"], one["instance"]), ["last_rank", "lead_ns", "last_arrival_ns"].map(number))
    };
    document["instances"].as_array().expect("operations").iter().map(of).collect()
}

#[test]
fn a_span_of_real_xspaces_names_the_same_stragglers() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/traces/jax");
    let folder = tempfile::tempdir().expect("a folder");
    let traces: Vec<PathBuf> = (0..4).map(|node| examples.join(format!("node{node}.xplane.pb"))).collect();
    let offsets = examples.join("offsets.csv");
    let all = late(&traces, &offsets);
    let mut times: Vec<i64> = all.values().map(|[_, _, at]| *at).collect();
    times.sort_unstable();
    let (from, to) = (times[times.len() / 4], times[times.len() * 3 / 4]);
    let merged = |node: usize| {
        let path = folder.path().join(format!("node{node}.xplane.pb"));
        let line = ["merge", text(&traces[node]), "--offsets", text(&offsets), "--nodes"];
        let (node, from, to) = (node.to_string(), from.to_string(), to.to_string());
        let filter = [node.as_str(), "--from", &from, "--to", &to, "--only", "collectives", "-o", text(&path)];
        let done = output(probe_sync(&[&line[..], &filter].concat()));
        assert!(done.status.success(), "{}", complaint(&done));
        path
    };
    let parts: Vec<PathBuf> = (0..4).map(merged).collect();
    let zero = folder.path().join("zero.csv");
    let lines = (0..4).map(|node| format!("{node},0,0\n{node},4000000000000000000,0\n"));
    std::fs::write(&zero, format!("node,node_realtime_ns,offset_vs_node0_ns\n{}", lines.collect::<String>()))
        .expect("writable");
    let found = late(&parts, &zero);
    // What begins or ends in the span is there; at its ends an operation may have parts on both sides.
    let inside = |[_, _, at]: &[i64; 3]| (from + MARGIN_NS..to - MARGIN_NS).contains(at);
    let expected: Vec<(&String, &[i64; 3])> = all.iter().filter(|(_, of)| inside(of)).collect();
    assert!(expected.len() >= 10, "{} of {} operations lie in the span", expected.len(), all.len());
    assert!(found.len() < all.len(), "{} of {} are left", found.len(), all.len());
    for (name, [rank, lead, at]) in expected {
        let other = found.get(name).unwrap_or_else(|| panic!("{name} is gone: {found:?}"));
        assert_eq!((*rank, true), (other[0], (lead - other[1]).abs() <= 1), "{name}: {lead} and {other:?}");
        assert!((at - other[2]).abs() <= 1, "{name}: at {at} and {other:?}");
    }
}

/// Longer than any operation of these traces takes.
const MARGIN_NS: i64 = 20_000_000;
