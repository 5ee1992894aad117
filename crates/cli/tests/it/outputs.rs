//! Outputs that are no plain files, and what a signal leaves.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use probe_sync_record::{Policy, Reach, Recorder, scope};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{collective_traces, complaint, output, probe_sync, text, wait};

/// Inputs of every command that writes one file.
struct Inputs {
    folder: tempfile::TempDir,
    traces: [PathBuf; 2],
}

impl Inputs {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let traces = collective_traces(folder.path(), Some([10, 12]));
        let inputs = Self { folder, traces };
        let lines = "src,dst,send_ns,recv_ns\n0,1,0,1200\n1,0,2000,1200\n0,1,50000,51200\n1,0,52000,51200\n";
        fs::write(inputs.at("packets.csv"), lines).expect("writable");
        for part in ["run/windows", "run/probes", "out"] {
            fs::create_dir_all(inputs.at(part)).expect("writable");
        }
        fs::write(inputs.at("run/run.json"), "{\"run_id\": \"exported\"}").expect("writable");
        fs::write(inputs.at("run/global_windows.jsonl"), "").expect("writable");
        inputs
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Each command with `out` as its output, and a part of what it writes.
    fn commands(&self, out: &Path) -> Vec<(Vec<String>, &'static str)> {
        let (packets, run, [one, two]) = (self.at("packets.csv"), self.at("run"), &self.traces);
        let offsets = self.at("offsets.csv");
        fs::write(&offsets, "node,node_realtime_ns,offset_vs_node0_ns\n0,0,0\n0,90000000,0\n").expect("writable");
        let traces = ["--traces", text(one), text(two), "--nodes", "0", "1"];
        let commands = [
            (vec!["solve", "--packets", text(&packets), "--out", text(out)], "\"offset_ns\""),
            (vec!["export", "--run-dir", text(&run), "--out", text(out)], "exported"),
            ([&["check", "--json", text(out)], &traces[..]].concat(), "\"broken\": 0"),
            ([&["merge", "--allow-uncalibrated", "--output", text(out)], &traces[..]].concat(), "rank 1 (node 1)"),
            (
                vec!["align", "--trace", text(one), "--node", "0", "--offsets", text(&offsets), "--output", text(out)],
                "traceEvents",
            ),
        ];
        commands.map(|(arguments, part)| (arguments.into_iter().map(str::to_owned).collect(), part)).to_vec()
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("coreutils").success());
}

fn reader(path: &Path) -> JoinHandle<String> {
    let path = path.to_owned();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        fs::File::open(path).expect("a pipe").read_to_end(&mut all).expect("readable");
        String::from_utf8_lossy(&all).into_owned()
    })
}

fn run(arguments: &[String]) {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = output(probe_sync(&arguments));
    assert!(output.status.success(), "{arguments:?}: {}", complaint(&output));
}

#[test]
fn every_command_writes_through_a_pipe_and_leaves_it_one() {
    let inputs = Inputs::new();
    let pipe = inputs.at("out/pipe");
    make_pipe(&pipe);
    for (arguments, part) in inputs.commands(&pipe) {
        let reader = reader(&pipe);
        run(&arguments);
        let read = reader.join().expect("a reader");
        assert!(read.contains(part), "{arguments:?}: {part} is missing in {read}");
        assert!(fs::symlink_metadata(&pipe).expect("the pipe").file_type().is_fifo(), "{arguments:?}");
        assert_eq!(names(&inputs.at("out")), ["pipe"], "{arguments:?}: nothing belongs beside a pipe");
    }
}

#[test]
fn nothing_else_is_written_to_standard_output_if_an_output_goes_there() {
    let inputs = Inputs::new();
    let (real, whole) = (inputs.at("out/real.json"), inputs.at("out/whole"));
    let commands = inputs.commands(&real).into_iter().zip(inputs.commands(Path::new("/dev/stdout")));
    for ((to_file, _), (arguments, _)) in commands {
        run(&to_file);
        let expected = fs::read_to_string(&real).expect("what was written");
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let piped = output(probe_sync(&arguments));
        assert!(piped.status.success(), "{arguments:?}: {}", complaint(&piped));
        assert_eq!(String::from_utf8_lossy(&piped.stdout), expected, "{arguments:?}: a pipe");
        // Both the output and standard output begin at the start of such a file.
        let file = fs::File::create(&whole).expect("writable");
        assert!(
            wait(probe_sync(&arguments).stdout(file).stderr(Stdio::null()).spawn().expect("starts")).status.success()
        );
        assert_eq!(fs::read_to_string(&whole).expect("it"), expected, "{arguments:?}: a file");
        if ["solve", "export", "merge", "align"].contains(&arguments[0]) {
            let refused = output(probe_sync(&[&arguments[..], &["--json"]].concat()));
            assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
            assert!(complaint(&refused).contains("both write to standard output"), "{}", complaint(&refused));
            assert!(refused.stdout.is_empty());
        }
    }
}

#[test]
fn every_command_follows_a_link_and_leaves_it_one() {
    let inputs = Inputs::new();
    let (link, real) = (inputs.at("link"), inputs.at("out/real"));
    std::os::unix::fs::symlink("out/real", &link).expect("a link");
    for (arguments, part) in inputs.commands(&link) {
        run(&arguments);
        assert!(fs::symlink_metadata(&link).expect("the link").is_symlink(), "{arguments:?}");
        let written = String::from_utf8_lossy(&fs::read(&real).expect("what it leads to")).into_owned();
        assert!(written.contains(part), "{arguments:?}: {part} is missing in {written}");
        assert_eq!(names(&inputs.at("out")), ["real"], "{arguments:?}");
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions().mode() & 0o777
}

fn close(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("ours");
}

#[test]
fn no_output_is_more_open_than_its_inputs() {
    let inputs = Inputs::new();
    inputs.traces.iter().for_each(|trace| close(trace));
    ["packets.csv", "run/run.json", "run/global_windows.jsonl"].iter().for_each(|name| close(&inputs.at(name)));
    let commands = inputs.commands(Path::new("out/new")).len();
    for command in 0..commands {
        let out = inputs.at(&format!("out/{command}.json"));
        run(&inputs.commands(&out)[command].0);
        assert_eq!(mode(&out), 0o600, "{:?}", inputs.commands(&out)[command].0);
    }
    let recording = inputs.at("one.rec");
    let policy = Policy::DropNewest { bytes: 1 << 20 };
    let session = Recorder::builder().reach(Reach::Thread).policy(policy).spill(&recording).start().expect("alone");
    drop(scope!("step"));
    session.finish().expect("whole");
    assert_eq!(mode(&recording), 0o600);
    for (format, name) in [("kineto", "one.json"), ("xspace", "one.xplane.pb"), ("rocpd", "one_results.db")] {
        let out = inputs.at(name);
        let arguments = ["record", "convert", "-f", format, "-o", text(&out), text(&recording)];
        run(&arguments.map(str::to_owned));
        assert_eq!(mode(&out), 0o600, "{format}");
    }
    assert_eq!(mode(&inputs.at("one_results.snapshot_pairs.jsonl")), 0o600);
    let (one, merged) = (inputs.at("one_results.db"), inputs.at("merged.db"));
    let arguments = ["merge", "--no-correction", "--output", text(&merged), "--traces", text(&one)];
    run(&arguments.map(str::to_owned));
    assert_eq!(mode(&merged), 0o600);
    let left: Vec<String> = names(inputs.folder.path()).into_iter().filter(|name| name.contains("partial")).collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn a_device_stays_a_device() {
    // A device of our own that swallows everything, so that no error here can harm the machine's.
    let inputs = Inputs::new();
    let device = inputs.at("out/null");
    let made = Command::new("mknod").arg(&device).args(["c", "1", "3"]).stderr(Stdio::null()).status();
    let usable = || fs::File::options().write(true).open(&device).is_ok();
    if !made.is_ok_and(|status| status.success()) || !usable() {
        println!("skipped: this user may not make devices here");
        return;
    }
    for (arguments, _) in inputs.commands(&device) {
        run(&arguments);
        assert!(fs::symlink_metadata(&device).expect("it").file_type().is_char_device(), "{arguments:?}");
        assert_eq!(names(&inputs.at("out")), ["null"], "{arguments:?}");
    }
}

#[test]
fn a_directory_is_refused_by_every_command() {
    let inputs = Inputs::new();
    let folder = inputs.at("out/folder");
    fs::create_dir(&folder).expect("writable");
    for (arguments, _) in inputs.commands(&folder).iter().filter(|(arguments, _)| arguments[0] != "align") {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = output(probe_sync(&arguments));
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = complaint(&output);
        assert!(said.contains("out/folder") && said.contains("it is a directory"), "{arguments:?}: {said}");
        assert_eq!(said.matches("it is a directory").count(), 1, "a cause is told once: {said}");
        assert_eq!(names(&inputs.at("out")), ["folder"], "{arguments:?}");
    }
}

/// A trace so long that somebody is there in time when it is rewritten.
fn long_trace(path: &Path) {
    let mut file = std::io::BufWriter::new(fs::File::create(path).expect("writable"));
    file.write_all(b"{\"baseTimeNanoseconds\": 0, \"traceEvents\": [").expect("writable");
    let event =
        br#"{"ph": "X", "name": "step", "pid": 1, "tid": 1, "ts": 10, "dur": 5, "args": {"of": "a long trace"}}"#;
    for index in 0..LONG_TRACE_EVENTS {
        file.write_all(if index == 0 { b"\n" } else { b",\n" }).and_then(|()| file.write_all(event)).expect("writable");
    }
    file.write_all(b"]}").and_then(|()| file.flush()).expect("writable");
}

#[test]
fn a_signal_leaves_no_unfinished_file() {
    let inputs = Inputs::new();
    let (trace, out) = (inputs.at("long.json"), inputs.at("out/aligned.json"));
    long_trace(&trace);
    fs::write(&out, "earlier").expect("writable");
    let offsets = inputs.at("offsets.csv");
    fs::write(&offsets, "node,node_realtime_ns,offset_vs_node0_ns\n0,0,0\n0,90000000,0\n").expect("writable");
    let arguments =
        ["align", "--trace", text(&trace), "--node", "0", "--offsets", text(&offsets), "--output", text(&out)];
    for signal in [Signal::TERM, Signal::INT] {
        let mut command = probe_sync(&arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        while names(&inputs.at("out")).len() < 2 {
            assert!(child.try_wait().expect("our own child").is_none(), "it ended before anybody saw it write");
            std::thread::sleep(Duration::from_millis(1));
        }
        kill_process(Pid::from_child(&child), signal).expect("our own child");
        let ended = wait(child);
        assert_eq!(ended.status.signal(), Some(signal.as_raw()), "{}", complaint(&ended));
        assert_eq!(names(&inputs.at("out")), ["aligned.json"]);
        assert_eq!(fs::read_to_string(&out).expect("the earlier file"), "earlier");
    }
}

#[test]
fn what_a_killed_command_left_does_not_hinder_the_next() {
    let inputs = Inputs::new();
    let out = inputs.at("out/result");
    fs::write(inputs.at("out/result.4711.partial"), "half").expect("writable");
    for (arguments, part) in inputs.commands(&out) {
        run(&arguments);
        let written = String::from_utf8_lossy(&fs::read(&out).expect("written")).into_owned();
        assert!(written.contains(part), "{arguments:?}: {part} is missing in {written}");
    }
}

/// Some 60 MB.
const LONG_TRACE_EVENTS: usize = 600_000;
