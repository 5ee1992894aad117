//! The clock that a run keeps for other processes, as they read it.

use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::support::{complaint, output, probe_sync, text, wait};

fn system_ns() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_nanos() as i64
}

#[test]
fn another_process_reads_the_references_time() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (out, page) = (folder.path().join("out"), folder.path().join("clock"));
    let read = || output(probe_sync(&["clock", text(&page), "--json"]));
    assert_eq!(read().status.code(), Some(1), "nobody keeps it yet");
    let arguments = ["--local", "2", "--inject-skew", "7", "--window", "300ms", "--clock-page", text(&page)];
    let mut run = probe_sync(&arguments);
    run.args(["--duration", "4s", "--out", text(&out)]).stdout(Stdio::null()).stderr(Stdio::piped());
    let run = run.spawn().expect("the command starts");
    let deadline = Instant::now() + Duration::from_secs(120);
    let (before, now, after) = loop {
        let (before, found, after) = (system_ns(), read(), system_ns());
        if found.status.success() {
            let now: Value = serde_json::from_slice(&found.stdout).expect("--json prints JSON");
            break (before, now, after);
        }
        assert!(Instant::now() < deadline, "{}", complaint(&found));
        std::thread::sleep(Duration::from_millis(50));
    };
    let number = |key: &str| now[key].as_i64().expect("a number");
    // Rank 0 keeps it, node 0 is the reference and has no virtual clock: reference time is this
    // machine's system clock.
    assert!(number("earliest_ns") <= after && number("latest_ns") >= before, "{now}");
    assert_eq!((number("node"), number("reference"), &now["status"]), (0, 0, &"synchronised".into()), "{now}");
    let ended = wait(run);
    assert!(ended.status.success(), "{}", complaint(&ended));
    let text = output(probe_sync(&["clock", text(&page)]));
    let printed = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(printed.contains("the time of node 0 (holdover") && printed.contains("± "), "{printed}");
}
