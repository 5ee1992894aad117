//! `probe_sync status` beside real runs.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::faults::signal;
use crate::support::{complaint, output, probe_sync, wait};

const WINDOW: Duration = Duration::from_secs(1);

fn begun(out: &Path) -> Child {
    let out = out.to_string_lossy().into_owned();
    let run = ["run", "--local", "3", "--fixed", "--window", "1s", "--duration", "60s", "--out", &out];
    probe_sync(&run).spawn().expect("it starts")
}

fn status(out: &Path) -> Value {
    let output = output(probe_sync(&["status", "--json", &out.to_string_lossy()]));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", complaint(&output)))
}

/// Looks again until it is so.
fn until(out: &Path, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if out.join("run.json").exists() {
            let found = status(out);
            if is_so(&found) {
                return found;
            }
            assert!(Instant::now() < deadline, "never {what}: {found:#}");
        }
        assert!(Instant::now() < deadline, "never {what}: nothing is there");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_run_is_seen_to_go_on_to_stall_and_to_end() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let out = folder.path().join("out");
    let child = begun(&out);
    let found = until(&out, "running", |found| found["round"]["number"].as_u64() >= Some(2));
    assert_eq!((&found["state"], &found["schema"]), (&"running".into(), &3.into()), "{found:#}");
    assert_eq!(found["process"], child.id(), "the master's: {found:#}");
    assert_eq!(found["round"]["window_s"].as_f64().map(f64::round), Some(1.0));
    let nodes = found["nodes"].as_array().expect("a list");
    assert_eq!(nodes.iter().map(|node| node["node"].as_u64()).collect::<Vec<_>>(), [Some(0), Some(1), Some(2)]);
    assert!(nodes.iter().all(|node| node["reachable"] == true && !node["host"].as_str().unwrap_or("").is_empty()));
    let text = String::from_utf8(output(probe_sync(&["status", &out.to_string_lossy()])).stdout).expect("text");
    assert!(text.contains("running (process") && text.contains("reached     2 of 2 other nodes"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80 || line.contains("out: ")), "{text}");

    signal(&child, Signal::STOP);
    let before = until(&out, "stalled", |found| found["state"] == "stalled");
    let age = before["round"]["age_s"].as_f64().expect("a number");
    assert!(age > WINDOW.mul_f64(1.75).as_secs_f64(), "{before:#}");
    signal(&child, Signal::CONT);
    until(&out, "running again", |found| {
        found["state"] == "running" && found["round"]["number"].as_u64() > before["round"]["number"].as_u64()
    });
    signal(&child, Signal::TERM);
    let ended = wait(child);
    assert!(ended.status.success(), "{}", complaint(&ended));
    let found = status(&out);
    assert_eq!((&found["state"], &found["process"]), (&"ended".into(), &Value::Null), "{found:#}");
}

#[test]
fn a_directory_without_a_run_is_named() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let output = output(probe_sync(&["status", &folder.path().to_string_lossy()]));
    assert_eq!(output.status.code(), Some(1));
    let said = complaint(&output);
    assert!(said.contains("run.json") && said.contains("give the directory that was given to --output"), "{said}");
}

#[test]
#[ignore = "long: another rank is given half a minute to take over"]
fn watching_a_run_whose_process_is_gone_ends() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let out = folder.path().join("out");
    let child = begun(&out);
    until(&out, "running", |found| found["state"] == "running");
    signal(&child, Signal::KILL);
    drop(wait(child));
    assert_eq!(status(&out)["is_gone"], true);
    let output = output(probe_sync(&["status", "--watch", &out.to_string_lossy()]));
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("no process on this host has the directory open"), "{}", complaint(&output));
}
