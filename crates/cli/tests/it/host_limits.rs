//! What a host does to a run: full and limited file systems, files that go, variables of other
//! programs, a terminal that goes.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::faults::signal;
use crate::support::{complaint, output, probe_sync, text, wait, wait_for_lines};

fn run(out: &Path, more: &[&str]) -> Command {
    let start = ["run", "--local", "2", "--window", "200ms", "--fixed", "--out", text(out)];
    probe_sync(&[&start[..], more].concat())
}

/// A run that has recorded some rounds.
fn under_way(out: &Path, more: &[&str]) -> Child {
    let mut run = run(out, &[&["--duration", "100s"], more].concat());
    let child = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the command starts");
    wait_for_lines(&out.join("offsets.jsonl"), 5);
    child
}

fn report(out: &Path) -> Value {
    let text = std::fs::read(out.join("report.json")).expect("a report");
    serde_json::from_slice(&text).expect("JSON")
}

/// The command as a shell's last, after what the shell does first.
fn after(script: &str, command: &Command) -> Command {
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("{script}; exec \"$@\""), "bash"]).arg(command.get_program()).args(command.get_args());
    shell
}

#[test]
fn a_clock_page_on_a_full_file_system_is_refused_and_ends_nothing_by_a_signal() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (out, small) = (folder.path().join("out"), folder.path().join("small"));
    std::fs::create_dir(&small).expect("writable");
    let page = small.join("page");
    let run = run(&out, &["--duration", "1s", "--clock-page", text(&page)]);
    // A page less than it has room for.
    let fill = format!(
        "mount -t tmpfs -o size=64k none {0} || exit 77; dd if=/dev/zero of={0}/fill bs=4k 2>/dev/null",
        small.display()
    );
    let inside = after(&fill, &run);
    let mut mounted = Command::new("unshare");
    mounted.arg("--mount").arg(inside.get_program()).args(inside.get_args());
    let done = output(mounted);
    let said = complaint(&done);
    if done.status.code() == Some(77) || said.contains("unshare failed") {
        println!("skipped: mounting a tmpfs needs root");
        return;
    }
    assert_eq!(done.status.code(), Some(1), "{:?} {said}", done.status);
    assert!(said.contains("No space left") && said.contains("page"), "{said}");
}

#[test]
fn a_limit_on_the_length_of_files_is_a_full_disk_and_no_end() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let out = folder.path().join("out");
    let limited = after("ulimit -f 4", &run(&out, &["--duration", "4s", "--tracer-clock", "none"]));
    let done = output(limited);
    let said = complaint(&done);
    assert_eq!(done.status.code(), Some(1), "{:?} {said}", done.status);
    assert!(said.contains(": File too large"), "{said}");
    assert!(said.contains("the run completed"), "{said}");
}

#[test]
fn variables_of_other_programs_end_no_run() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut run = run(&folder.path().join("out"), &["--duration", "400ms"]);
    run.env("PROBE_SYNC_SERVICE_HOST", "10.96.0.7").env("PROBE_SYNC_PORT", "tcp://10.96.0.7:9100");
    run.env("PROBE_SYNC_ROOT", "/opt/spack/probe-sync")
        .env("PROBE_SYNC_TCP_LOCAL", "tcp")
        .env("PROBE_SYNC_WINDO", "2s");
    let done = output(run);
    let said = complaint(&done);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("PROBE_SYNC_WINDO is not a setting; did you mean PROBE_SYNC_WINDOW?"), "{said}");
    assert!(!said.contains("SERVICE_HOST") && !said.contains("PROBE_SYNC_ROOT"), "{said}");
}

#[test]
fn a_terminal_that_goes_ends_a_run_in_order() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let out = folder.path().join("out");
    let child = under_way(&out, &[]);
    signal(&child, Signal::HUP);
    let ended = wait(child);
    assert!(ended.status.success(), "{:?} {}", ended.status, complaint(&ended));
    assert!(report(&out)["rounds"].as_u64() >= Some(2));
}

#[test]
fn files_that_are_removed_during_a_run_are_made_anew_and_counted() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (out, page) = (folder.path().join("out"), folder.path().join("page"));
    let child = under_way(&out, &["--clock-page", text(&page)]);
    // What cleans /tmp, and what RemoveIPC does to /dev/shm.
    for gone in [&out.join(".lock"), &out.join("offsets.jsonl"), &page] {
        std::fs::remove_file(gone).unwrap_or_else(|error| panic!("{}: {error}", gone.display()));
    }
    let second = output(run(&out, &["--duration", "1s"]));
    assert_eq!(second.status.code(), Some(2), "{}", complaint(&second));
    assert!(complaint(&second).contains("in use by another run"), "{}", complaint(&second));
    wait_for_lines(&out.join("offsets.jsonl"), 5);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !output(probe_sync(&["clock", text(&page)])).status.success() {
        assert!(Instant::now() < deadline, "the page is not made anew");
    }
    signal(&child, Signal::TERM);
    let ended = wait(child);
    let said = complaint(&ended);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("offsets.jsonl was removed") && said.contains("page was removed"), "{said}");
    let files = report(&out)["files"].clone();
    let named = |part: &str| {
        let files = files.as_array().expect("a list");
        files.iter().any(|file| file["name"].as_str().is_some_and(|name| name.ends_with(part)))
    };
    assert!(named("offsets.jsonl") && named("page"), "{files:#}");
}

#[test]
fn a_killed_run_is_broken_off_at_once() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let out = folder.path().join("out");
    // Windows so long that nothing is late yet.
    let start = ["run", "--local", "2", "--window", "2s", "--fixed", "--duration", "100s", "--out", text(&out)];
    let mut child = probe_sync(&start).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command starts");
    wait_for_lines(&out.join("offsets.jsonl"), 3);
    child.kill().expect("our own child");
    child.wait().expect("our own child");
    let found = output(probe_sync(&["status", "--json", text(&out)]));
    let standing: Value = serde_json::from_slice(&found.stdout).expect("JSON");
    assert_eq!((&standing["state"], found.status.code()), (&"broken".into(), Some(1)), "{standing:#}");
}
