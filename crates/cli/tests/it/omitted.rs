//! What is left out of traces: it costs itself alone, and every command's document names it.

use serde_json::Value;

use crate::support::{collective_traces, complaint, output, probe_sync, right_clocks, text};

/// Of three traces one cannot be read, and one has an event that ends before it begins.
#[test]
fn what_is_left_out_is_in_every_document_and_costs_itself_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let traces = collective_traces(folder.path(), Some([10, 12]));
    let good = std::fs::read_to_string(&traces[0]).expect("a trace");
    let odd = r#"{"ph": "X", "name": "step", "pid": 0, "tid": 7, "ts": 30, "dur": -3}]}"#;
    std::fs::write(&traces[0], good.replace("]}", &format!(", {odd}")).replace("\"[0, 1], ", "\"[0, 1]"))
        .expect("writable");
    let broken = at("rank2.json");
    std::fs::write(&broken, r#"{"traceEvents": [{"ph": "X", "ts": 1"#).expect("writable");
    let clocks = right_clocks(folder.path());
    let check = |command: &str, arguments: &[&str]| {
        let with = |skip: &[&str]| {
            let given = ["--offsets", text(&clocks), "--json"];
            let named: Vec<&str> = traces.iter().chain([&broken]).map(|path| text(path)).collect();
            output(probe_sync(&[&[command], arguments, skip, &given, &["--traces"], &named].concat()))
        };
        let refused = with(&[]);
        assert_eq!(refused.status.code(), Some(1), "{command}: {}", complaint(&refused));
        assert!(
            complaint(&refused).contains("rank2.json") && complaint(&refused).contains("--skip-bad"),
            "{}",
            complaint(&refused)
        );
        let done = with(&["--skip-bad"]);
        assert!(done.status.success(), "{command}: {}", complaint(&done));
        let document: Value = serde_json::from_slice(&done.stdout).expect("one document");
        let omitted = &document["omitted"];
        let (files, events) = (&omitted["traces"], &omitted["events"]);
        assert_eq!(files.as_array().map(Vec::len), Some(1), "{command}: {document}");
        assert!(files[0]["path"].as_str().is_some_and(|path| path.ends_with("rank2.json")), "{command}: {document}");
        assert!(!files[0]["reason"].as_str().unwrap_or_default().is_empty(), "{command}: {document}");
        assert_eq!((&events[0]["events"], &events[0]["rank"]), (&1.into(), &0.into()), "{command}: {document}");
        assert_eq!(events[0]["reason"], "with a negative length", "{command}");
        document
    };
    let aligned = check("align", &["-o", text(&at("aligned"))]);
    assert_eq!(aligned["traces"][0]["alignment"]["left_out"], 1, "{aligned}");
    check("merge", &["-o", text(&at("merged.json"))]);
    check("convert", &["-f", "json", "-d", text(&at("converted"))]);
    check("check", &[]);
    check("stragglers", &[]);
}
