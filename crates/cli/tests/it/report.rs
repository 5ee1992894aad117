//! `probe_sync report`: the page of real runs, of simulations, of runs that left little, and what
//! it refuses. What a browser makes of it is looked at by `bench/browser`.

use serde_json::Value;

use crate::support::{collective_traces, complaint, output, probe_sync, report, text};

fn page(arguments: &[&str]) -> String {
    let output = output(probe_sync(arguments));
    assert!(output.status.success(), "{}", complaint(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The block of data of a page.
fn data(html: &str) -> Value {
    let (_, rest) = html.split_once("id=\"data\">").expect("a block");
    serde_json::from_str(rest.split_once("</script>").expect("its end").0).expect("JSON")
}

#[test]
fn a_run_leaves_a_page_whose_values_are_those_of_its_report() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let out = folder.path().join("out");
    let run =
        ["run", "--local", "3", "--inject-skew", "5", "--fixed", "--window", "500ms", "--duration", "4s", "--json"];
    report(&[&run[..], &["--out", text(&out)]].concat());
    let left = std::fs::read_to_string(out.join("report.html")).expect("at the run's end");
    let written: Value =
        serde_json::from_slice(&std::fs::read(out.join("report.json")).expect("written")).expect("JSON");
    let found = data(&left);
    assert_eq!((&found["nodes"], &found["truth"]), (&written["nodes"], &written["truth"]));
    assert_eq!(found["rounds"], written["rounds"]);
    let series = &found["series"];
    assert_eq!(series["t"].as_array().map(|t| t.len() as u64), written["rounds"].as_u64());
    assert!(
        series["nodes"]
            .as_array()
            .is_some_and(|nodes| nodes.len() == 2 && nodes.iter().all(|of| of["error"].is_array()))
    );
    assert!(found["edges"]["edges"].as_array().is_some_and(|edges| !edges.is_empty()), "{}", found["edges"]);
    assert!(left.contains("Hard intervals were never violated."), "the truth is known");
    assert!(!left.contains(text(folder.path())), "no path of the machine");

    // Asked again: the same bytes, wherever they go.
    assert_eq!(page(&["report", text(&out), "-o", "-"]), left);
    let other = folder.path().join("other.html");
    assert!(page(&["report", text(&out), "-o", text(&other)]).contains("other.html"));
    assert_eq!(std::fs::read_to_string(&other).expect("written"), left);

    // The job hung: rank 2, which is node 2, never came to the second operation.
    let dumps = folder.path().join("dumps");
    std::fs::create_dir(&dumps).expect("writable");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a present").as_nanos() as i64;
    let entry = |number: i64, state: &str| {
        format!(
            r#"{{"record_id": {number}, "process_group": ["0", "world"], "collective_seq_id": {number}, "profiling_name": "gloo:all_reduce", "time_created_ns": {}, "state": "{state}"}}"#,
            now - 3_000_000_000 + 20_000_000 * number
        )
    };
    for rank in 0..3 {
        let last = if rank == 2 { String::new() } else { format!(", {}", entry(2, "scheduled")) };
        let dump = format!(
            r#"{{"version": "2.10", "pg_config": {{"0": {{"desc": "world", "ranks": "[0, 1, 2]"}}}}, "entries": [{}{last}]}}"#,
            entry(1, "completed")
        );
        std::fs::write(dumps.join(format!("rank_{rank}")), dump).expect("writable");
    }
    let hung = page(&["report", text(&out), "--hang", text(&dumps), "-o", "-"]);
    assert!(hung.contains("The job stopped: rank 2"), "the first sentence of the verdict");
    assert!(hung.contains("Who waits for whom") && hung.contains("in all_reduce #2 of world"), "{hung}");
    assert!(hung.contains("All ranks on one clock.") && hung.matches("class=\"open\"").count() == 2, "the chart");

    // A killed run has no report, and its files may end anywhere.
    std::fs::remove_file(out.join("report.json")).expect("it was there");
    let offsets = std::fs::read(out.join("offsets.jsonl")).expect("written");
    std::fs::write(out.join("offsets.jsonl"), &offsets[..offsets.len() - 30]).expect("writable");
    let cut = page(&["report", text(&out), "-o", "-"]);
    assert!(
        cut.contains("ends in the middle of a line") && cut.contains("The run has not written a report"),
        "both are said"
    );
    assert_eq!(data(&cut)["nodes"].as_array().map(Vec::len), Some(3));

    // Killed in its first window.
    std::fs::remove_file(out.join("offsets.jsonl")).expect("it was there");
    assert!(page(&["report", text(&out), "-o", "-"]).contains("Nothing was measured"));
}

#[test]
fn traces_are_judged_on_the_page() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let out = folder.path().join("out");
    std::fs::create_dir(&out).expect("writable");
    std::fs::write(out.join("run.json"), r#"{"run_id": "1", "reference": 0}"#).expect("writable");
    let line = |round: u64, node: u64| {
        let start = 50_000_000 * round;
        format!(
            r#"{{"round_id":{round},"window_id":{round},"window_start_ns":{start},"window_end_ns":{},"node_id":{node},"offset_ns":{},"drift_ppm":0.0,"residual":1.0,"reachable":true,"converged":true,"sigma_ns":10.0,"drift_sigma_ppm":0.1,"bound_lo_ns":null,"bound_hi_ns":null,"edges_used":1,"edges_excluded":0}}"#,
            start + 50_000_000,
            1_000_000 * node
        )
    };
    let lines: Vec<String> = (0..4).flat_map(|round| [line(round, 0), line(round, 1)]).collect();
    std::fs::write(out.join("offsets.jsonl"), lines.join("\n") + "\n").expect("writable");
    // Node 1 is 1 ms ahead: as recorded rank 0 has left before rank 1 came.
    let [first, second] = collective_traces(folder.path(), Some([50_000, 51_000]));
    let asked = ["report", text(&out), "-o", "-", "--traces", text(&first), text(&second), "--assume-order"];
    let output = output(probe_sync(&asked));
    assert!(output.status.success(), "{}", complaint(&output));
    let html = String::from_utf8(output.stdout).expect("UTF-8");
    let html = &html[html.find("<!DOCTYPE").expect("a page")..];
    assert!(
        html.contains("1 of 2 happens-before edges of the collectives are broken as recorded, 0 of 2 after alignment.")
    );
    assert_eq!(data(html)["traces"]["edges"], serde_json::json!([[2, 1], [2, 0]]));
    assert!(html.contains("-1.000000 ms"), "what alignment moves");
}

#[test]
fn a_simulation_leaves_a_page_with_the_truth() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let run = |name: &str| {
        let out = folder.path().join(name);
        let small =
            ["sim", "--nodes", "4", "--neighbors", "3", "--rate", "20", "--duration", "12s", "--out", text(&out)];
        page(&small);
        std::fs::read_to_string(out.join("report.html")).expect("written")
    };
    let html = run("one");
    assert_eq!(html, run("two"), "the same bytes");
    let found = data(&html);
    assert!(found["truth"]["judged"].as_u64() >= Some(9), "{}", found["truth"]);
    assert!(found["series"]["nodes"][0]["error"].is_array());
}

#[test]
fn what_is_no_run_and_what_would_be_overwritten_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let check = |arguments: &[&str], status: i32, part: &str| {
        let output = output(probe_sync(arguments));
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", complaint(&output));
        assert!(complaint(&output).contains(part), "{arguments:?}: {}", complaint(&output));
    };
    check(&["report", text(folder.path())], 1, "give the directory that was given to --output");
    let out = folder.path().join("out");
    std::fs::create_dir(&out).expect("writable");
    let run = out.join("run.json");
    std::fs::write(&run, "{}").expect("writable");
    check(&["report", text(&out), "-o", text(&run)], 2, "is one of the run's own files");
    assert_eq!(std::fs::read(&run).expect("there"), b"{}");
    check(&["report", text(&out), "--nodes", "1"], 2, "--traces");
    // Traces need offsets, of which this run has none.
    check(&["report", text(&out), "--traces", "no/such.json"], 1, "offsets.jsonl");
    check(&["report", text(&out), "-o", text(&folder.path().join("no/such/page.html"))], 1, "no/such");
}
