//! Processes of one host in two time namespaces: containers that were restored, or made with
//! offsets of their own.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::support::{complaint, output, probe_sync, text, wait};

/// The command in a time namespace whose clocks are ahead by seconds; `None` if this user may not
/// create one.
fn ahead(command: &Command, seconds: [i64; 2]) -> Option<Command> {
    let [monotonic, boottime] = seconds.map(|seconds| seconds.to_string());
    let unshare = |program: &Command| {
        let mut inside = Command::new("unshare");
        inside.args(["--time", "--monotonic", &monotonic, "--boottime", &boottime]).arg(program.get_program());
        inside.args(program.get_args());
        inside
    };
    let may = unshare(&Command::new("true")).stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !may {
        println!("skipped: unshare --time needs root and a kernel with time namespaces");
    }
    may.then(|| unshare(command))
}

fn run(out: &Path, page: &Path) -> Command {
    let arguments = ["run", "--local", "1", "--window", "300ms", "--duration", "4s", "--tracer-clock", "boottime"];
    let mut run = probe_sync(&arguments);
    run.args(["--clock-page", text(page), "--out", text(out)]);
    run
}

fn system_ns() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_nanos() as i64
}

/// Reads the page until it shows a time; node 0 is the reference, whose time is this machine's
/// system clock.
fn check_page(read: impl Fn() -> Command) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let (before, found, after) = (system_ns(), output(read()), system_ns());
        if found.status.success() {
            let now: Value = serde_json::from_slice(&found.stdout).expect("--json prints JSON");
            let number = |key: &str| now[key].as_i64().expect("a number");
            assert!(
                number("earliest_ns") <= after && number("latest_ns") >= before,
                "{now} outside {before} to {after}"
            );
            return;
        }
        assert!(Instant::now() < deadline, "{}", complaint(&found));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_page_shows_the_same_time_in_every_namespace() {
    for (writer, reader) in [([2, 0], [0, 0]), ([0, 0], [-3, 5]), ([2, 7], [-3, 5])] {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let (out, page) = (folder.path().join("out"), folder.path().join("clock"));
        let Some(mut running) = ahead(&run(&out, &page), writer) else { return };
        let running = running.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the command starts");
        check_page(|| ahead(&probe_sync(&["clock", text(&page), "--json"]), reader).expect("it may"));
        let ended = wait(running);
        assert!(ended.status.success(), "{}", complaint(&ended));
        let pairs = std::fs::read_to_string(out.join("snapshots/node0.snapshot_pairs.jsonl")).expect("pairs");
        let first: Value = serde_json::from_str(pairs.lines().next().expect("a pair")).expect("JSON");
        let stated = first.get("namespace_ns").map_or(Some(0), Value::as_i64);
        assert_eq!(stated, Some(writer[1] * 1_000_000_000), "{first}");
    }
}
