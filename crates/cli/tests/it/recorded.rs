//! `--keep-probes`, `solve` and `export`.

use std::f64::consts::TAU;
use std::path::{Path, PathBuf};

use probe_sync_alignment::clocks::Offsets;
use serde_json::Value;

use crate::support::{complaint, lines, output, probe_sync, report};

struct Recorded {
    directory: tempfile::TempDir,
    out: PathBuf,
}

fn record() -> Recorded {
    record_with(&["--local", "3", "--duration", "2s", "--inject-skew", "3"])
}

fn record_with(more: &[&str]) -> Recorded {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let arguments = ["run", "--window", "1s", "--keep-probes", "--json", "--out", out.to_str().expect("UTF-8")];
    report(&[&arguments[..], more].concat());
    Recorded { directory, out }
}

impl Recorded {
    fn solve(&self) -> (Vec<Value>, String) {
        let (path, complaint) = self.solve_with("probes", &["--knots", "rounds"]);
        (lines(&path), complaint)
    }

    /// Solves from all nodes' `probes` or `windows`; the file and the complaints.
    fn solve_with(&self, kind: &str, more: &[&str]) -> (PathBuf, String) {
        let solved = self.directory.path().join(format!("{kind}{}.jsonl", more.len()));
        let mut inputs: Vec<PathBuf> = std::fs::read_dir(self.out.join(kind))
            .expect("recorded")
            .map(|entry| entry.expect("a file").path())
            .collect();
        inputs.sort();
        let mut command = probe_sync(&["solve", "--out", solved.to_str().expect("UTF-8"), &format!("--{kind}")]);
        command.args(inputs).args(more);
        let output = output(command);
        assert!(output.status.success(), "{}", complaint(&output));
        (solved, complaint(&output))
    }

    fn probes(&self, node: u32) -> PathBuf {
        self.out.join(format!("probes/node{node}.jsonl"))
    }

    fn truth(&self) -> Value {
        let text = std::fs::read_to_string(self.out.join("truth.json")).expect("truth.json");
        serde_json::from_str(&text).expect("JSON")
    }
}

/// How far node's clock is ahead when the reference shows `at_ns`, as `truth.json` documents it.
fn true_offset_ns(truth: &Value, node: u64, at_ns: i64) -> f64 {
    let clock = &truth["nodes"][node.to_string()];
    let number = |key: &str| clock[key].as_f64().expect("a number");
    let since = (at_ns - clock["t0_ns"].as_i64().expect("a time")) as f64;
    let wave = (TAU * since / number("period_ns") + number("phase_rad")).sin();
    assert_eq!(number("step_ns"), 0.0, "steps are not looked at here");
    number("off_ns") + number("ppm") * 1e-6 * since + number("amp_ns") * wave
}

/// Root mean square of the lines' errors, which must lie in the hard intervals.
fn rms_error_ns(truth: &Value, lines: &[Value]) -> f64 {
    let error = |line: &Value| {
        let number = |key: &str| line[key].as_f64().expect("a number");
        let middle = (line["window_start_ns"].as_i64().expect("a time"))
            .midpoint(line["window_end_ns"].as_i64().expect("a time"));
        let expected = true_offset_ns(truth, line["node_id"].as_u64().expect("a node"), middle);
        assert!(number("bound_lo_ns") <= expected && expected <= number("bound_hi_ns"), "{expected} is outside {line}");
        number("offset_ns") - expected
    };
    let squares: Vec<f64> = lines[1..]
        .iter()
        .filter(|line| line["node_id"] != 0 && line["reachable"] == true)
        .map(|line| error(line).powi(2))
        .collect();
    (squares.iter().sum::<f64>() / squares.len() as f64).sqrt()
}

#[test]
fn solve_knows_no_less_than_the_run_did() {
    let recorded = record_with(&["--local", "4", "--duration", "4s", "--inject-skew", "11"]);
    let truth = recorded.truth();
    let live = lines(&recorded.out.join("offsets.jsonl"));
    let live_rms = rms_error_ns(&truth, &live);
    for kind in ["probes", "windows"] {
        let (path, _) = recorded.solve_with(kind, &["--knots", "rounds"]);
        let solved = lines(&path);
        assert_eq!(solved.len(), live.len());
        for (now, then) in solved[1..].iter().zip(&live[1..]) {
            for key in ["round_id", "node_id", "window_start_ns", "window_end_ns", "reachable"] {
                assert_eq!(now[key], then[key], "{key} from {kind}");
            }
            // The fits are the same, and so are the bounds that the packets set; reading a number
            // back may cost its last digit.
            for key in ["bound_lo_ns", "bound_hi_ns"] {
                let [now, then] = [now, then].map(|line| line[key].as_f64().expect("bounded"));
                assert!((now - then).abs() < 1e-3, "{key} from {kind}: {now} instead of {then}");
            }
        }
        let rms = rms_error_ns(&truth, &solved);
        // A busy machine delays packets of one run by hundreds of ns, and chance decides who
        // suffers.
        assert!(rms <= 1.2 * live_rms + 100.0, "{rms} from {kind}, {live_rms} live");
    }
    let refused = output(probe_sync(&[
        "solve",
        "--out",
        recorded.probes(0).to_str().expect("UTF-8"),
        "--probes",
        recorded.probes(0).to_str().expect("UTF-8"),
    ]));
    assert!(complaint(&refused).contains("one of the inputs"), "{}", complaint(&refused));
}

#[test]
fn solve_measures_against_the_node_that_the_run_did() {
    let recorded = record_with(&["--local", "3", "--duration", "2s", "--inject-skew", "3", "--reference", "2"]);
    for kind in ["probes", "windows"] {
        let (path, said) = recorded.solve_with(kind, &[]);
        assert_eq!(lines(&path)[0]["reference"], 2, "{kind}");
        assert!(said.contains("reference is node 2"), "{said}");
    }
    let (path, _) = recorded.solve_with("windows", &["--reference", "1"]);
    assert_eq!(lines(&path)[0]["reference"], 1);
}

#[test]
fn knots_follow_a_clock_that_swings() {
    let recorded = record_with(&["--local", "4", "--duration", "4s", "--inject-skew", "7", "--skew-model", "sinusoid"]);
    let truth = recorded.truth();
    let (rounds, _) = recorded.solve_with("probes", &["--knots=rounds"]);
    let (knots, _) = recorded.solve_with("probes", &["--knots", "100ms"]);
    let written = lines(&knots);
    assert!((written.len() - 1).is_multiple_of(4) && written.len() > 4 * 38, "{}", written.len());
    rms_error_ns(&truth, &written);
    let ends = [&written[1], &written[written.len() - 1]].map(|line| line["window_start_ns"].as_i64().expect("a time"));
    // What alignment makes of both files, on the node's own clock, between the first knot and the
    // last.
    let rms = |path: &Path| {
        let offsets = Offsets::read(path).expect("our own file");
        let error = |node: u32, at_ns: i64| {
            let map = offsets.map(node).expect("offsets").expect("not the reference").map;
            let own_ns = at_ns as f64 - ends[0] as f64 + true_offset_ns(&truth, node.into(), at_ns);
            let mapped = map.map((own_ns * 1e3).round() as i128 + i128::from(ends[0]) * 1000);
            ((mapped.time_ps - i128::from(at_ns) * 1000) as f64 * 1e-3).abs()
        };
        let squares: Vec<f64> = (1..4)
            .flat_map(|node| (ends[0]..ends[1]).step_by(50_000_000).map(move |at_ns| (node, at_ns)))
            .map(|(node, at_ns)| error(node, at_ns).powi(2))
            .collect();
        (squares.iter().sum::<f64>() / squares.len() as f64).sqrt()
    };
    let [coarse, fine] = [rms(&rounds), rms(&knots)];
    println!("error along the run: {coarse} ns by rounds, {fine} ns by knots");
    // Not the worst error: that is of one moment, where a busy machine delayed its packets.
    assert!(fine <= 1.25 * coarse + 50.0, "{fine} ns by knots, {coarse} ns by rounds");
}

#[test]
fn knots_that_make_no_sense_are_refused() {
    let recorded = record();
    for (spacing, reason) in
        [("10us", "1ms or more"), ("0s", "1ms or more"), ("-1s", "1ms or more"), ("soon", "for example 800us")]
    {
        let out = recorded.directory.path().join("never.jsonl");
        let mut command = probe_sync(&["solve", "--out", out.to_str().expect("UTF-8"), &format!("--knots={spacing}")]);
        command.arg("--windows").args((0..3).map(|node| recorded.out.join(format!("windows/node{node}.jsonl"))));
        let output = output(command);
        assert_eq!(output.status.code(), Some(2), "{spacing}");
        assert!(complaint(&output).contains(reason), "{}", complaint(&output));
        assert!(!out.exists());
    }
}

#[test]
fn corrupt_windows_are_named_and_the_rest_is_used() {
    let recorded = record();
    let path = recorded.out.join("windows/node1.jsonl");
    let text = std::fs::read_to_string(&path).expect("recorded windows");
    let mut damaged: Vec<String> = text.lines().map(str::to_owned).collect();
    let first = damaged[0].clone();
    let as_node = |node: &str| first.replacen("\"node_id\":1", &format!("\"node_id\":{node}"), 1);
    damaged.insert(0, first.clone());
    damaged.insert(0, as_node("2"));
    damaged.insert(0, as_node("70000"));
    damaged.insert(0, "[".repeat(3 << 20));
    damaged.insert(0, "\u{0}garbage".into());
    let mut damaged = damaged.join("\n");
    damaged.truncate(damaged.len() - 30);
    std::fs::write(&path, damaged).expect("writable");
    let (solved, complaint) = recorded.solve_with("windows", &["--knots", "rounds"]);
    let reasons = [
        "1: ignored: expected",
        "2: ignored: longer",
        "3: ignored: a node number",
        "4: ignored: an edge of another",
        "6: ignored: a second window",
        "7: ignored: EOF",
    ];
    for part in reasons {
        assert!(complaint.contains(&format!("node1.jsonl line {part}")), "no {part} in {complaint}");
    }
    let solved = lines(&solved);
    assert_eq!(solved.len(), 1 + 2 * 3);
    assert!(solved[1..].iter().all(|line| line["reachable"] == true), "others probed node 1");
}

#[test]
fn corrupt_lines_are_named_and_the_rest_is_used() {
    let recorded = record();
    let path = recorded.probes(1);
    let text = std::fs::read_to_string(&path).expect("recorded probes");
    let mut damaged: Vec<&str> = text.lines().collect();
    damaged.insert(2, "{\"round_id\":0,\"src\":1,");
    damaged.insert(5, "\u{0}\u{1}garbage");
    damaged.insert(7, "{\"round_id\":0,\"src\":1,\"dst\":1,\"seq\":0,\"stamp\":\"kernel\",\"t\":[0,0,0,0,0,0,0,0]}");
    let mut damaged = damaged.join("\n");
    damaged.truncate(damaged.len() - 30);
    std::fs::write(&path, damaged).expect("writable");
    let (solved, complaint) = recorded.solve();
    for part in ["node1.jsonl line 3", "node1.jsonl line 6", "node1.jsonl line 8: ignored: source and destination"] {
        assert!(complaint.contains(part), "no {part} in {complaint}");
    }
    assert_eq!(solved.len(), 1 + 2 * 3);
    assert!(solved[1..].iter().all(|line| line["reachable"] == true));
}

#[test]
fn packets_of_others_are_solved_too() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (packets, out) = (directory.path().join("packets.csv"), directory.path().join("offsets.jsonl"));
    // Node 1 is 1000 ns ahead of node 0; packets take 200 ns.
    let mut text = "src,dst,send_ns,recv_ns,stamp\n".to_owned();
    for at in (1_000_000..2_001_000_000_i64).step_by(10_000_000) {
        text += &format!("0,1,{at},{},kernel\n1,0,{},{},kernel\n", at + 1200, at + 6000, at + 5200);
    }
    std::fs::write(&packets, text + "0,1,now\n").expect("writable");
    let [file, out_text] = [&packets, &out].map(|path| path.to_str().expect("UTF-8"));
    let arguments =
        ["solve", "--packets", file, "--window", "1s", "--reference", "1", "--knots", "rounds", "--out", out_text];
    let output = output(probe_sync(&arguments));
    assert!(output.status.success(), "{}", complaint(&output));
    assert!(complaint(&output).contains("packets.csv line 402: ignored"), "{}", complaint(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("400 packets of 2 nodes in 2 rounds"));
    let solved = lines(&out);
    assert_eq!((solved.len(), &solved[0]["reference"]), (1 + 2 * 2, &1.into()));
    for line in solved[1..].iter().filter(|line| line["node_id"] == 0) {
        assert!((line["offset_ns"].as_f64().expect("a number") + 1000.0).abs() < 10.0, "{line}");
    }
}

#[test]
fn nothing_usable_is_an_error() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let empty = directory.path().join("empty.jsonl");
    std::fs::write(&empty, "").expect("writable");
    let missing = directory.path().join("missing.jsonl");
    let out = directory.path().join("o.jsonl");
    for path in [&empty, &missing] {
        let mut command = probe_sync(&["solve", "--out", out.to_str().expect("UTF-8"), "--probes"]);
        command.arg(path);
        let output = output(command);
        assert_eq!(output.status.code(), Some(1));
        assert!(complaint(&output).contains(path.to_str().expect("UTF-8")), "{}", complaint(&output));
        assert!(!out.exists(), "nothing half-written is left");
    }
}

#[test]
fn export_holds_the_whole_run() {
    let recorded = record();
    let pb = recorded.directory.path().join("run.pb");
    let output = output(probe_sync(&[
        "export",
        "--run-dir",
        recorded.out.to_str().expect("UTF-8"),
        "--out",
        pb.to_str().expect("UTF-8"),
    ]));
    assert!(output.status.success(), "{}", complaint(&output));
    let bytes = std::fs::read(&pb).expect("the export");
    let export = probe_sync::export::read(&bytes).expect("our own protobuf");
    assert_eq!(export.rounds.len(), 2);
    assert_eq!(export.windows.len(), 2 * 3);
    let finished: u32 = export.windows.iter().flat_map(|w| &w.edges).map(|edge| edge.pairs_count).sum();
    assert_eq!(export.exchanges.len(), finished as usize);
    assert!(export.run_json.contains("\"run_id\""));
}

#[test]
fn a_corrupt_node_number_makes_no_thousands_of_silent_nodes() {
    let recorded = record();
    let path = recorded.probes(0);
    let text = std::fs::read_to_string(&path).expect("recorded");
    let line = text.lines().find(|line| line.contains("\"dst\":1,")).expect("an exchange");
    let stray = line.replace("\"dst\":1,", "\"dst\":65535,");
    std::fs::write(&path, format!("{text}{stray}\n")).expect("writable");
    let (solved, complaint) = recorded.solve();
    assert!(complaint.contains("such numbers do not fit a run of 3 nodes"), "{complaint}");
    assert!(!complaint.contains("silent"), "{complaint}");
    assert!(solved.iter().skip(1).all(|line| line["node_id"].as_u64() < Some(3)));
}

#[test]
fn recorded_ranks_settle_whose_traces_are_whose_in_a_run_and_in_what_is_solved() {
    let recorded = record();
    let (solved, _) = recorded.solve_with("windows", &[]);
    let header = &lines(&solved)[0];
    assert_eq!(header["ranks"], lines(&recorded.out.join("offsets.jsonl"))[0]["ranks"]);
    let host = header["nodes"][2]["hostname"].as_str().expect("a host").to_owned();
    let truth = recorded.truth();
    let line = &lines(&solved)[1];
    let at_ns =
        line["window_start_ns"].as_i64().expect("a time").midpoint(line["window_end_ns"].as_i64().expect("a time"));
    // One event per rank, at the same true time; all ranks are on one host, and files are named
    // after other ranks.
    let write = |rank: u64| {
        let path = recorded.directory.path().join(format!("node{}.json", (rank + 1) % 3));
        let ts = true_offset_ns(&truth, rank, at_ns) * 1e-3;
        let job = format!("\"host_name\": \"{host}\", \"distributedInfo\": {{\"rank\": {rank}, \"world_size\": 3}}");
        let event = format!("{{\"ph\": \"X\", \"pid\": 1, \"tid\": 1, \"ts\": {ts:.3}, \"dur\": 5, \"name\": \"a\"}}");
        let text = format!("{{{job}, \"baseTimeNanoseconds\": {at_ns}, \"traceEvents\": [{event}]}}");
        std::fs::write(&path, text).expect("writable");
        path
    };
    let traces: Vec<PathBuf> = [2, 0, 1].map(write).to_vec();
    for (flag, source) in [("--run-dir", &recorded.out), ("--offsets", &solved)] {
        let aligned = recorded.directory.path().join(format!("aligned{flag}"));
        let mut command = probe_sync(&["align", "-v", "--traces"]);
        command.args(&traces).arg(flag).arg(source).arg("--output").arg(&aligned);
        let done = output(command);
        assert!(done.status.success(), "{flag}: {}", complaint(&done));
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(said.contains("node 2, by its rank 2 of 3, which the run recorded on this node"), "{said}");
        for trace in &traces {
            let path = aligned.join(trace.file_name().expect("a file"));
            let written: Value = serde_json::from_slice(&std::fs::read(path).expect("an output")).expect("JSON");
            let apart_us = written["traceEvents"][0]["ts"].as_f64().expect("a time");
            assert!(apart_us.abs() < 100.0, "{flag} {}: {apart_us} µs; clocks are ms apart", trace.display());
        }
    }
}
