//! What people bring from the XLA distributed profiler: environments, files of settings, recorded
//! files, command lines. All of it is written here by hand, from the profiler's documents.

use std::path::Path;

use crate::support::{complaint, free_port, lines, output, probe_sync, text, wait};

/// Two ranks for a second with this environment and these flags: whether they ran, and the line
/// that says what was read as what.
fn run(folder: &Path, environment: &[(&str, &str)], flags: &[&str]) -> (bool, String, String) {
    let mut command = probe_sync(&["run", "--local", "2", "--duration", "1s"]);
    command.current_dir(folder).args(flags).envs(environment.iter().copied());
    let output = output(command);
    let complaint = complaint(&output);
    let mut said = complaint.lines().filter(|line| line.contains("settings of the XLA distributed profiler"));
    let line = said.next().unwrap_or_default().to_owned();
    assert_eq!(said.next(), None, "one line says it: {complaint}");
    (output.status.success(), line, complaint)
}

fn has(line: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(line.contains(part), "{part} is missing in: {line}"));
}

#[test]
fn an_old_environment_measures_as_it_says() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let environment = [
        ("XLA_ENABLE_DISTRIBUTED_PROFILING", "1"),
        ("XLA_PROBE_CADENCE_US", "1000"),
        ("XLA_PROBE_WINDOW_S", "1"),
        ("XLA_PACKET_SPACING_US", "50"),
        ("XLA_SNAPSHOT_PERIOD_MS", "100"),
        ("XLA_DIST_PROF_OUTPUT_DIR", "my_prof_data"),
        ("XLA_FLAGS", "--xla_gpu_autotune_level=2"),
    ];
    let (ran, line, complaint) = run(folder.path(), &environment, &[]);
    assert!(ran, "{complaint}");
    has(
        &line,
        &[
            "XLA_ENABLE_DISTRIBUTED_PROFILING=1 accepted",
            "XLA_PROBE_CADENCE_US=1000 read as --cadence 1000us",
            "XLA_PROBE_WINDOW_S=1 read as --window 1s",
            "XLA_PACKET_SPACING_US=50 read as --spacing 50us",
            "XLA_SNAPSHOT_PERIOD_MS=100 read as --snapshot-pair-period-ms 100",
            "XLA_DIST_PROF_OUTPUT_DIR=my_prof_data read as --out my_prof_data",
        ],
    );
    let run_json = std::fs::read_to_string(folder.path().join("my_prof_data/run.json")).expect("a run");
    let run: serde_json::Value = serde_json::from_str(&run_json).expect("JSON");
    let configuration = &run["configuration"];
    for (key, value) in [("cadence", "1ms"), ("window", "1s"), ("spacing", "50us"), ("snapshot_pair_period_ms", "100")]
    {
        assert_eq!(configuration[key], value, "{key} in {configuration}");
    }
}

#[test]
fn our_names_win_over_old_ones_and_that_is_said() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let config = folder.path().join("dist_prof_config.json");
    let old = r#"{"enabled": true, "probe_cadence_us": 800, "probe_window_s": 4, "packet_spacing_us": 100, "output_dir": "of_file"}"#;
    std::fs::write(&config, old).expect("writable");
    let environment = [
        ("XLA_DIST_PROF_CONFIG", text(&config)),
        ("XLA_PROBE_CADENCE_US", "2000"),
        ("XLA_PACKET_SPACING_US", "100"),
        ("PROBE_SYNC_SPACING", "100us"),
        ("PROBE_SYNC_CADENCE", "1ms"),
    ];
    let (ran, line, complaint) = run(folder.path(), &environment, &["--window", "500ms"]);
    assert!(ran, "{complaint}");
    let of_file = |setting: &str| format!("{setting} in {}", config.display());
    has(
        &line,
        &[
            &format!("XLA_DIST_PROF_CONFIG={0} read as --config {0}", config.display()),
            "XLA_PROBE_CADENCE_US=2000 is ignored because PROBE_SYNC_CADENCE=1ms is given",
            &format!("{} is ignored because --window 500ms is given", of_file("probe_window_s = 4")),
            "XLA_PACKET_SPACING_US=100 read as --spacing 100us",
            &format!("{} read as --out of_file", of_file("output_dir = of_file")),
        ],
    );
    assert!(folder.path().join("of_file/run.json").exists());
}

#[test]
fn old_settings_are_read_or_are_errors() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (ran, _, complaint) = run(folder.path(), &[("XLA_PROBE_CADANCE_US", "1000")], &[]);
    assert!(!ran && complaint.contains("XLA_PROBE_CADANCE_US: unknown variable"), "{complaint}");
    let config = folder.path().join("old.json");
    std::fs::write(&config, r#"{"probe_window_s": 1, "enable_master_sync": false}"#).expect("writable");
    let (ran, _, complaint) = run(folder.path(), &[], &["--config", text(&config)]);
    assert!(ran && complaint.contains("enable_master_sync = false"), "{complaint}");
    assert!(complaint.contains("read as --rounds local"), "{complaint}");
}

/// Three nodes, each with a file of its own.
fn with_lists(lists: [&str; 3]) -> (tempfile::TempDir, [std::process::Output; 3]) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let port = free_port().to_string();
    let start = |(rank, list): (usize, &str)| {
        let config = folder.path().join(format!("node{rank}.json"));
        std::fs::write(&config, format!("{{{list}, \"probe_window_s\": 1}}")).expect("writable");
        let mut command = probe_sync(&["run", "--duration", "2s", "--out", "out", "--config", text(&config)]);
        command.current_dir(folder.path()).env("RANK", rank.to_string()).env("WORLD_SIZE", "3");
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command.spawn().expect("the command starts")
    };
    let children: Vec<_> = lists.into_iter().enumerate().map(start).collect();
    let outputs: Vec<_> = children.into_iter().map(wait).collect();
    (folder, outputs.try_into().expect("three"))
}

#[test]
fn lists_of_neighbours_are_the_graph() {
    // Node 2 only answers.
    let (folder, outputs) = with_lists([
        r#""neighbors": [1, 2], "in_neighbors": [1]"#,
        r#""neighbors": [0], "in_neighbors": [0]"#,
        r#""neighbors": [], "in_neighbors": [0]"#,
    ]);
    for output in &outputs {
        assert!(output.status.success(), "{}", complaint(output));
    }
    has(&complaint(&outputs[0]), &["neighbors = [1,2] in", "read as --out-neighbors [1,2]"]);
    let out = folder.path().join("out");
    let run = std::fs::read_to_string(out.join("run.json")).expect("a run");
    let run: serde_json::Value = serde_json::from_str(&run).expect("JSON");
    assert_eq!(run["edges"], serde_json::json!([[0, 1], [0, 2], [1, 0]]));
    let offsets = lines(&out.join("offsets.jsonl"));
    assert!(offsets[1..].iter().all(|line| line["reachable"] == true), "{offsets:?}");
}

#[test]
fn lists_that_leave_a_node_out_are_refused_on_every_rank() {
    let (_folder, outputs) = with_lists([r#""neighbors": [1]"#, r#""neighbors": [0]"#, r#""neighbors": []"#]);
    for output in &outputs {
        assert_eq!(output.status.code(), Some(2), "{}", complaint(output));
    }
    has(&complaint(&outputs[0]), &["no chain of out_neighbors connects node 2", "add an edge"]);
}

/// When node 0 shows this, all is as [`OFFSETS`] says.
const START_NS: i64 = 1_712_094_923_000_000_000;
const WINDOW_NS: i64 = 4_000_000_000;
/// Offset and rate of each node's clock against node 0's.
const OFFSETS: [(i64, f64); 3] = [(0, 0.0), (5_000_000, 50e-6), (-3_000_000, -10e-6)];
const EDGES: [(usize, usize); 4] = [(0, 1), (0, 2), (1, 2), (2, 0)];
const WINDOWS: i64 = 12;

fn offset_ns(node: usize, since_ns: i64) -> f64 {
    OFFSETS[node].0 as f64 + OFFSETS[node].1 * since_ns as f64
}

/// One fit: its destination, alpha, beta at the window's start.
type Fit = (usize, f64, f64);

/// A node's window: its start and end on the node's clock, its fits.
fn window(node: usize, number: i64) -> (i64, i64, Vec<Fit>) {
    let [start, end] = [number, number + 1].map(|at| at * WINDOW_NS);
    let own = |at: i64| START_NS + at + offset_ns(node, at) as i64;
    // Some hundred ns of noise, the same in every run.
    let noise = |at: usize| ((number * 7919 + at as i64 * 104_729) % 601 - 300) as f64;
    let fit = |(index, &(_, dst)): (usize, &(usize, usize))| {
        let theta = offset_ns(dst, start) - offset_ns(node, start);
        (dst, OFFSETS[dst].1 - OFFSETS[node].1, theta + noise(index))
    };
    (own(start), own(end), EDGES.iter().enumerate().filter(|(_, (src, _))| *src == node).map(fit).collect())
}

/// The profiler's file of a node; without a master it has no rounds, and in its documents alpha is
/// a ratio.
fn probe_windows(folder: &Path, node: usize, master: bool) -> std::path::PathBuf {
    let mut text = format!(
        "{{\"meta\":true,\"node_id\":{node},\"start_walltime_ns\":1712094923123456789,\"start_gpu_ns\":9876543210}}\n"
    );
    for number in 0..WINDOWS {
        let (start, end, fits) = window(node, number);
        let ratio = if master { 0.0 } else { 1.0 };
        let edge = |(dst, alpha, beta): &Fit| {
            let (alpha, beta) = (alpha + ratio, *beta as i64);
            format!("{{\"dst\":{dst},\"alpha\":{alpha:.10},\"beta\":{beta},\"pairs\":487,\"lost\":5}}")
        };
        let edges = fits.iter().map(edge).collect::<Vec<_>>().join(",");
        let round = if master { format!("\"window_id\":{number},\"round_id\":{},", number + 3) } else { String::new() };
        text += &format!(
            "{{\"window_start_ns\":{start},\"window_end_ns\":{end},{round}\"node_id\":{node},\"edges\":[{edges}]}}\n"
        );
    }
    let path = folder.join(format!("probe_windows_node{node}.jsonl"));
    std::fs::write(&path, text).expect("writable");
    path
}

/// Solves; the lines and what was said.
fn solve(folder: &Path, arguments: &[&str]) -> (Vec<serde_json::Value>, String) {
    let out = folder.join("offsets.jsonl");
    let mut command = probe_sync(&["solve", "--out", text(&out), "--knots", "rounds"]);
    command.args(arguments);
    let output = output(command);
    assert!(output.status.success(), "{}", complaint(&output));
    (lines(&out), complaint(&output))
}

/// Lines are within `limit_ns` of the truth and within four of their own deviations, and bounded by
/// nothing.
fn judge(lines: &[serde_json::Value], limit_ns: f64) {
    let mut judged = 0;
    for line in lines[1..].iter().filter(|line| line["node_id"] != 0) {
        let number = |key: &str| line[key].as_i64().unwrap_or_else(|| panic!("{key} in {line}"));
        let since = i64::midpoint(number("window_start_ns"), number("window_end_ns")) - START_NS;
        let expected = offset_ns(number("node_id") as usize, since);
        let error = (line["offset_ns"].as_f64().expect("a number") - expected).abs();
        assert!(error < limit_ns && error < 4.0 * line["sigma_ns"].as_f64().expect("a number"), "{error} ns: {line}");
        assert!(line["bound_lo_ns"].is_null() && line["bound_hi_ns"].is_null(), "a hard bound out of nothing: {line}");
        judged += 1;
    }
    assert!(judged > 1, "{lines:?}");
}

fn files(paths: &[std::path::PathBuf]) -> Vec<&str> {
    paths.iter().map(|path| text(path)).collect()
}

/// At 50 ppm a beta that is taken to hold in the window's middle is wrong by 100 µs.
#[test]
fn old_windows_give_the_offsets_that_their_fits_say() {
    for master in [true, false] {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let paths = [0, 1, 2].map(|node| probe_windows(folder.path(), node, master));
        let (found, said) = solve(folder.path(), &[&["--windows"][..], &files(&paths)].concat());
        assert_eq!(found.len(), 1 + 3 * WINDOWS as usize, "{said}");
        judge(&found, 1_000.0);
        has(&said, &["beta, which applies to the window's start", "no hard intervals"]);
        assert_eq!(said.contains("alpha near 1"), !master, "{said}");
        assert_eq!(said.contains("round_id is missing"), !master, "{said}");
        assert_eq!(found[1]["round_id"], if master { 3 } else { 0 });
        // Damage is named, and the rest is used.
        let text = std::fs::read_to_string(&paths[1]).expect("written");
        std::fs::write(&paths[1], format!("\u{0}cut\n{text}{{\"window_start_ns\":5")).expect("writable");
        let (found, said) = solve(folder.path(), &[&["--windows"][..], &files(&paths)].concat());
        judge(&found, 1_000.0);
        has(&said, &["node1.jsonl line 1: ignored", "node1.jsonl line 15: ignored"]);
    }
}

#[test]
fn an_old_command_line_solves_old_windows() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let paths = [0, 1, 2].map(|node| probe_windows(folder.path(), node, true));
    let out = folder.path().join("round_offsets.jsonl");
    let inputs = format!("--input_files={}", files(&paths).join(","));
    let old = [
        "solve",
        &inputs,
        "--output_offsets",
        text(&out),
        "--reference_node=1",
        "--min_pairs=12",
        "--max_loss_ratio=0.6",
    ];
    let output = output(probe_sync(&old));
    let said = complaint(&output);
    assert!(output.status.success(), "{said}");
    has(
        &said,
        &[
            "flags of the XLA distributed profiler: --input_files read as --windows",
            "--reference_node read as --reference",
        ],
    );
    assert_eq!(lines(&out)[0]["reference"], 1);
    for flag in ["--min_pairs=488", "--max_loss_ratio=0.01"] {
        let refused = crate::support::output(probe_sync(&[&old[..4], &[flag]].concat()));
        assert_eq!(refused.status.code(), Some(2));
        has(&complaint(&refused), &["exclude all 48 fits"]);
    }
    let refused = crate::support::output(probe_sync(&[&old[..4], &["--smoothing_factor=0.3"]].concat()));
    assert_eq!(refused.status.code(), Some(2));
    has(&complaint(&refused), &["--smoothing_factor: the whole run is smoothed"]);
}

#[test]
fn an_old_summary_needs_its_time() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let csv = folder.path().join("alpha_beta_node0.csv");
    std::fs::write(
        &csv,
        "src,dst,alpha,beta_ns,num_pairs,lost_packets\n0,1,5e-05,5e+06,487,14\n0,2,-1e-05,-3e+06,490,0\n",
    )
    .expect("writable");
    let out = folder.path().join("offsets.jsonl");
    let refused = output(probe_sync(&["solve", "--windows", text(&csv), "--out", text(&out)]));
    assert_eq!(refused.status.code(), Some(2));
    has(&complaint(&refused), &["alpha_beta_node0.csv", "--at", "probe_windows_nodeN.jsonl"]);
    assert!(!out.exists());
    let (found, said) = solve(folder.path(), &["--windows", text(&csv), "--at", &START_NS.to_string()]);
    judge(&found, 1_000.0);
    has(&said, &["too few windows to estimate it"]);
    assert_eq!(found[1]["window_end_ns"], START_NS + WINDOW_NS);
    let windows = probe_windows(folder.path(), 0, true);
    let both = output(probe_sync(&["solve", "--windows", text(&csv), text(&windows), "--out", text(&out)]));
    has(&complaint(&both), &["give files of one kind"]);
}

/// A varint field; zeros are left out.
fn number(tag: u64, value: u64) -> Vec<u8> {
    let varint = |mut value: u64| {
        let mut bytes = Vec::new();
        while value > 127 {
            bytes.push(value as u8 | 128);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    };
    if value == 0 { Vec::new() } else { [varint(tag << 3), varint(value)].concat() }
}

fn double(tag: u8, value: f64) -> Vec<u8> {
    [&[tag << 3 | 1][..], &value.to_le_bytes()].concat()
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = number(1, body.len() as u64)[1..].to_vec();
    [&[tag << 3 | 2][..], &length, body].concat()
}

/// `NodeWindowData` of the documents.
fn node_message(node: usize, round: i64) -> Vec<u8> {
    let (start, end, fits) = window(node, round);
    let edge = |(dst, alpha, beta): &Fit| {
        let ends = [number(1, node as u64), number(2, *dst as u64)].concat();
        message(6, &[ends, double(3, *alpha), double(4, *beta), number(5, 487), number(6, 5)].concat())
    };
    let head = [number(1, node as u64), number(2, round as u64), number(3, round as u64)].concat();
    [head, number(4, start as u64), number(5, end as u64), fits.iter().flat_map(edge).collect()].concat()
}

#[test]
fn the_documents_messages_are_read_or_refused() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let global = |round: i64| {
        let head = [number(1, round as u64), number(2, round as u64), number(3, 7), number(4, 9)].concat();
        let nodes = (0..3).flat_map(|node| message(5, &node_message(node, round))).collect();
        let path = folder.path().join(format!("round{round}.pb"));
        std::fs::write(&path, [head, nodes, number(6, round as u64)].concat()).expect("writable");
        path
    };
    let (found, _) =
        solve(folder.path(), &[&["--windows"][..], &files(&(0..WINDOWS).map(global).collect::<Vec<_>>())].concat());
    judge(&found, 1_000.0);
    let one = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("writable");
        path
    };
    let node = one("node1.pb", &node_message(0, 3));
    judge(&solve(folder.path(), &["--windows", text(&node)]).0, 1_000.0);
    // As our own `NodeWindowData` begins: a node, a round, times in 8 bytes.
    let own = [number(1, 1), number(2, 3), number(3, 3), double(4, 1.0), double(5, 1.0)].concat();
    for (bytes, expected) in [
        ([node_message(0, 3), node_message(0, 4)].concat(), "occurs twice; give one message per file"),
        (own, "messages of probe_sync itself"),
        (node_message(0, 3)[..70].to_vec(), "not a protobuf message"),
        (message(7, b"x"), "field 7 is not part of any message"),
        (number(1, 5), "a message without windows, or truncated"),
    ] {
        let path = one("other.pb", &bytes);
        let out = folder.path().join("none.jsonl");
        let refused = output(probe_sync(&["solve", "--windows", text(&path), "--out", text(&out)]));
        assert_eq!(refused.status.code(), Some(2), "{}", complaint(&refused));
        has(&complaint(&refused), &["other.pb", expected]);
        assert!(!out.exists());
    }
}

#[test]
fn old_command_lines_of_trace_tools_are_taken() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let [first, second] = crate::support::collective_traces(folder.path(), Some([10, 30]));
    let (first, second) = (text(&first), text(&second));
    let report = folder.path().join("violations.json");
    let old = output(probe_sync(&["check", "--traces", first, second, "--output", text(&report)]));
    // Rank 0 left the all-reduce at 20 µs, and rank 1 came at 30 µs.
    assert_eq!(old.status.code(), Some(3), "{}", complaint(&old));
    has(&complaint(&old), &["flags of the XLA distributed profiler: --output read as --json"]);
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&report).expect("written")).expect("JSON");
    for (key, value) in [("violations", 1), ("overlaps", 1), ("warnings", 0), ("gap_count", 1)] {
        assert_eq!(report[key], value, "{key}");
    }
    assert_eq!(report["avg_gap_ns"], 20_000.0);

    let offsets = folder.path().join("offsets.csv");
    std::fs::write(&offsets, "node,node_time_ns,offset_ns\n1,0,20000\n1,100000,20000\n").expect("writable");
    let combined = folder.path().join("combined.json");
    let merge = |more: &[&str]| {
        let arguments = ["merge", "--traces", first, second, "--output", text(&combined), "--offsets", text(&offsets)];
        let merged = output(probe_sync(&[&arguments[..], more].concat()));
        assert!(merged.status.success(), "{}", complaint(&merged));
        let document = std::fs::read_to_string(&combined).expect("merged");
        let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
        let events = document["traceEvents"].as_array().expect("events").iter();
        let mut starts: Vec<f64> =
            events.filter(|event| event["ph"] == "X").filter_map(|event| event["ts"].as_f64()).collect();
        starts.sort_by(f64::total_cmp);
        (starts[1] - starts[0], complaint(&merged))
    };
    assert_eq!(merge(&["--assume-order"]).0, 0.0, "corrected: both came at once");
    let (apart_us, said) = merge(&["--no_correction"]);
    assert_eq!(apart_us, 20.0, "as they are");
    has(&said, &["--no_correction read as --no-correction"]);
    let refused =
        output(probe_sync(&["merge", "--traces", first, second, "--output", text(&combined), "--print_events"]));
    assert_eq!(refused.status.code(), Some(2));
    has(&complaint(&refused), &["--print_events", "--annotate"]);
}

#[test]
fn a_run_is_written_in_the_profilers_files() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (run, theirs) = (folder.path().join("run"), folder.path().join("xla"));
    // Rates of 50 ppm: 12 µs between a window's start and its middle.
    let arguments = ["run", "--local", "3", "--duration", "3s", "--window", "500ms", "--fixed", "--inject-skew", "7"];
    assert!(output(probe_sync(&[&arguments[..], &["--out", text(&run)]].concat())).status.success());
    let export = ["export", "--run-dir", text(&run), "--dialect", "xla", "-o", text(&theirs)];
    let exported = output(probe_sync(&export));
    assert!(exported.status.success(), "{}", complaint(&exported));
    let expected: Vec<_> = lines(&run.join("offsets.jsonl"))[1..].to_vec();
    let rounds = expected.len() / 3;
    let of_lines: Vec<_> = (0..3).map(|node| theirs.join(format!("probe_windows_node{node}.jsonl"))).collect();
    let of_rounds: Vec<_> = (0..rounds).map(|round| theirs.join(format!("global_window_{round}.pb"))).collect();
    for paths in [of_lines, of_rounds] {
        let (found, said) = solve(folder.path(), &[&["--windows"][..], &files(&paths)].concat());
        assert_eq!(found.len() - 1, expected.len(), "{said}");
        let key = |line: &serde_json::Value| (line["round_id"].as_u64(), line["node_id"].as_u64());
        for line in &found[1..] {
            let same = expected.iter().find(|other| key(other) == key(line)).expect("the same round and node");
            let apart =
                |name: &str| (line[name].as_f64().expect("a number") - same[name].as_f64().expect("a number")).abs();
            // Without covariances the edges weigh differently.
            assert!(apart("offset_ns") < 2_000.0, "{line} instead of {same}");
        }
    }
}

/// `SnapshotPairs` as the profiler writes them: pairs of system clock and tracer clock, and no name
/// of that clock.
#[test]
fn old_snapshot_pairs_tie_a_trace_to_its_system_clock() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let [trace, _] = crate::support::collective_traces(folder.path(), Some([10, 30]));
    // The trace's clock began when the system clock showed this.
    let pair = |tracer: u64| message(1, &[number(1, START_NS as u64 + tracer), number(2, tracer)].concat());
    let pairs = folder.path().join("node0.snapshot_pairs.pb");
    let bytes = [pair(0), pair(50_000), pair(100_000), number(2, 100_000_000)].concat();
    std::fs::write(&pairs, bytes).expect("writable");
    let offsets = folder.path().join("offsets.csv");
    std::fs::write(&offsets, format!("node,node_time_ns,offset_ns\n1,{START_NS},7\n1,{},7\n", START_NS + 100_000))
        .expect("writable");
    let aligned = folder.path().join("aligned.json");
    let arguments = [
        "align",
        "--traces",
        text(&trace),
        "--nodes",
        "0",
        "--offsets",
        text(&offsets),
        "--snapshot_pairs",
        text(&pairs),
    ];
    let output = output(probe_sync(&[&arguments[..], &["--output", text(&aligned)]].concat()));
    assert!(output.status.success(), "{}", complaint(&output));
    has(&complaint(&output), &["--snapshot_pairs read as --snapshots"]);
    let document = std::fs::read_to_string(&aligned).expect("aligned");
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    assert_eq!(document["baseTimeNanoseconds"], 0);
    assert_eq!(document["traceEvents"][0]["ts"].as_f64(), Some((START_NS / 1000 + 10) as f64), "{document}");
}
