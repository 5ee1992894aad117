//! What people bring from the XLA distributed profiler: environments, files of settings, recorded files, command lines. All of it is
//! written here by hand, from the profiler's documents.

use std::path::Path;

use crate::support::{complaint, free_port, lines, output, probe_sync, text, wait};

/// Two ranks for a second with this environment and these flags: whether they ran, and the line that says what was read as what.
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
    for (key, value) in
        [("probe_cadence", "1ms"), ("window", "1s"), ("spacing", "50us"), ("snapshot_pair_period_ms", "100")]
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
        ("PROBE_SYNC_PROBE_CADENCE", "1ms"),
    ];
    let (ran, line, complaint) = run(folder.path(), &environment, &["--window", "500ms"]);
    assert!(ran, "{complaint}");
    let of_file = |setting: &str| format!("{setting} in {}", config.display());
    has(
        &line,
        &[
            &format!("XLA_DIST_PROF_CONFIG={0} read as --config {0}", config.display()),
            "XLA_PROBE_CADENCE_US=2000 is not used, for PROBE_SYNC_PROBE_CADENCE=1ms is given",
            &format!("{} is not used, for --window 500ms is given", of_file("probe_window_s = 4")),
            "XLA_PACKET_SPACING_US=100 read as --spacing 100us",
            &format!("{} read as --out of_file", of_file("output_dir = of_file")),
        ],
    );
    assert!(folder.path().join("of_file/run.json").exists());
}

#[test]
fn old_settings_that_mean_nothing_here_are_errors() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (ran, _, complaint) = run(folder.path(), &[("XLA_PROBE_CADANCE_US", "1000")], &[]);
    assert!(!ran && complaint.contains("XLA_PROBE_CADANCE_US: unknown variable"), "{complaint}");
    let config = folder.path().join("old.json");
    std::fs::write(&config, r#"{"probe_window_s": 4, "enable_master_sync": false}"#).expect("writable");
    let (ran, _, complaint) = run(folder.path(), &[], &["--config", text(&config)]);
    assert!(
        !ran && complaint.contains("old.json: enable_master_sync: there are no windows without rank 0"),
        "{complaint}"
    );
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
    has(&complaint(&outputs[0]), &["no chain of out_neighbors joins node 2", "add an edge"]);
}
