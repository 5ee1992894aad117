//! How every command ends: a status per outcome, and no start that is refused leaves anything
//! behind.

use std::path::Path;

use crate::support::{collective_traces, complaint, output, probe_sync, right_clocks, text};

/// Runs a command and checks its status and, where it failed, what it says.
fn check(arguments: &[&str], status: i32, part: &str) {
    let output = output(probe_sync(arguments));
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", complaint(&output));
    assert!(complaint(&output).contains(part), "{arguments:?}: {part} is missing in {}", complaint(&output));
}

/// What the trace commands end with on traces that hold, that do not, and that share no collective.
const JUDGED: [(&str, Option<[u32; 2]>, i32); 3] =
    [("holds", Some([10, 12]), 0), ("broken", Some([10, 1000]), 3), ("nothing", None, 4)];

#[test]
fn check_ends_with_its_verdict() {
    for (name, starts_us, status) in JUDGED {
        let folder = tempfile::tempdir().expect("a folder");
        let [one, two] = collective_traces(folder.path(), starts_us);
        let json = folder.path().join("check.json");
        check(&["check", "--traces", text(&one), text(&two), "--nodes", "0", "1", "--json", text(&json)], status, "");
        assert!(json.exists(), "{name}: the report is written whatever it says");
    }
    check(&["check", "--traces", "no/such.json", "--nodes", "0"], 1, "no/such.json");
    check(&["check"], 2, "--traces");
    check(&["check", "--nonsense"], 2, "--nonsense");
}

#[test]
fn merge_and_align_end_with_the_verdict_that_validate_asks_for() {
    for (name, starts_us, status) in JUDGED {
        let folder = tempfile::tempdir().expect("a folder");
        let [one, two] = collective_traces(folder.path(), starts_us);
        let (clocks, merged, aligned) =
            (right_clocks(folder.path()), folder.path().join("all.json"), folder.path().join("aligned"));
        let common = ["--traces", text(&one), text(&two), "--nodes", "0", "1", "--offsets", text(&clocks)];
        let merge = [&["merge", "--output", text(&merged)], &common[..]].concat();
        let align = [&["align", "--output", text(&aligned)], &common[..]].concat();
        for command in [&merge, &align] {
            check(command, 0, "");
            check(&[&command[..], &["--validate"]].concat(), status, "");
        }
        assert!(merged.exists() && aligned.is_dir(), "{name}: outputs are written without --validate");
        let at = |name: &str| folder.path().join(name);
        for (command, out) in [(&merge, at("validated.json")), (&align, at("validated"))] {
            let validated = [&command[..1], &["--output", text(&out)], &command[3..], &["--validate"]].concat();
            check(&validated, status, if status == 3 { "was not written" } else { "" });
            assert_eq!(out.exists(), status != 3, "{name}: what is violated is not written");
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let [one, two] = collective_traces(folder.path(), None);
    let out = folder.path().join("new/out.json");
    for (command, said) in [("merge", "the traces may be on different clocks"), ("align", "the clock of")] {
        let unknown = [command, "--traces", text(&one), text(&two), "--nodes", "0", "1", "--output", text(&out)];
        check(&unknown, 2, said);
        check(&[command, "--traces", text(&one)], 2, "--output");
    }
    assert!(!folder.path().join("new").exists(), "a refused start leaves nothing behind");
}

#[test]
fn a_request_that_cannot_be_is_a_wrong_command_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let [one, two] = collective_traces(folder.path(), Some([10, 12]));
    let (clocks, out) = (right_clocks(folder.path()), folder.path().join("new/out.json"));
    let pairs = folder.path().join("pairs.jsonl");
    std::fs::write(&pairs, "{\"sys_clock_ns\":1,\"tracer_clock_ns\":2}\n").expect("writable");
    let traces = ["--traces", text(&one), text(&two)];
    let offsets = ["--offsets", text(&clocks)];
    for (flags, part) in [
        (&["--nodes", "0"][..], "2 traces, but 1 node numbers"),
        (&["--nodes", "0", "1", "--snapshots", text(&pairs)], "2 traces, but 1 snapshot files"),
        (&["--nodes", "0", "1", "--timeline", "tracer"], "there are no pairs that relate"),
        (&["--nodes", "0", "1", "--snapshot-markers", "a"], "a group named system_ns"),
    ] {
        check(&[&["check"], &traces[..], &offsets, flags].concat(), 2, part);
        for command in ["align", "merge"] {
            check(&[&[command, "--output", text(&out)], &traces[..], &offsets, flags].concat(), 2, part);
        }
    }
    let nodes = ["--nodes", "0", "1"];
    let align = ["align", "--output", text(&out), "--embed-snapshots"];
    check(&[&align[..], &traces, &offsets, &nodes].concat(), 2, "only an XSpace");
    check(&[&["check"], &traces[..], &["--assume-order"]].concat(), 2, "--assume-order needs");
    check(&[&["check", "--json", text(&one)], &traces[..], &offsets, &nodes].concat(), 2, "would overwrite");
    // What files say is no fault of the command line.
    let three = folder.path().join("three.csv");
    std::fs::write(&three, "node,node_realtime_ns,offset_vs_node0_ns\n1,0,0\n2,0,0\n").expect("writable");
    check(&[&["check"], &traces[..], &["--offsets", text(&three)]].concat(), 1, "cannot tell which node wrote");
    std::fs::write(&clocks, "node,node_realtime_ns,offset_vs_node0_ns\n0,0,5\n").expect("writable");
    check(&[&["check"], &traces[..], &offsets, &nodes].concat(), 1, "line 2: node 0 is the reference");
    assert!(!folder.path().join("new").exists(), "nothing was begun");
}

#[test]
fn solve_export_doctor_and_sim_end_with_their_statuses() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let (packets, empty, out) = (at("packets.csv"), at("empty.csv"), at("o"));
    let lines = "src,dst,send_ns,recv_ns\n0,1,0,1200\n1,0,2000,1200\n0,1,50000,51200\n1,0,52000,51200\n";
    std::fs::write(&packets, lines).expect("writable");
    std::fs::write(&empty, "src,dst,send_ns,recv_ns\n").expect("writable");
    check(&["solve", "--packets", text(&packets), "--out", text(&out)], 0, "");
    check(&["solve", "--packets", text(&empty), "--out", text(&out)], 1, "no usable exchange");
    check(&["solve", "--packets", text(&packets), "--out", text(&out), "--reference", "9"], 2, "names node 9");
    check(&["solve", "--packets", text(&packets)], 2, "--out");

    for part in ["run/windows", "run/probes"] {
        std::fs::create_dir_all(at(part)).expect("writable");
    }
    std::fs::write(at("run/run.json"), "{}").expect("writable");
    std::fs::write(at("run/global_windows.jsonl"), "").expect("writable");
    check(&["export", "--run-dir", text(&at("run")), "--out", text(&out)], 0, "");
    check(&["export", "--run-dir", text(&at("none")), "--out", text(&out)], 1, "run.json");
    check(&["export", "--run-dir", text(&at("run"))], 2, "--out");

    let doctor = output(probe_sync(&["doctor", "--json"]));
    let failing = String::from_utf8_lossy(&doctor.stdout).contains("\"fail\"");
    assert_eq!(doctor.status.code(), Some(i32::from(failing)), "{}", complaint(&doctor));
    check(&["doctor", "--nonsense"], 2, "--nonsense");

    let small = ["sim", "--nodes", "3", "--duration", "2s", "--window", "1s", "--methods", "hull", "--out"];
    check(&[&small[..], &[text(&at("made/sim"))]].concat(), 0, "");
    assert!(at("made/sim/accuracy.csv").exists());
    check(&[&small[..], &[text(&at("empty.csv/sim"))]].concat(), 1, "empty.csv/sim");
    check(&[&small[..], &[text(&at("refused/sim")), "--load", "2"]].concat(), 2, "--load");
    check(&["sim", "--window", "9s", "--duration", "2s", "--out", text(&at("refused/sim"))], 2, "--window");
    assert!(!at("refused").exists(), "a refused start leaves nothing behind");
}

#[test]
fn a_refused_run_leaves_nothing_behind_and_an_earlier_one_in_its_place() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let port = taken.local_addr().expect("bound").port().to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let run = |out: &Path, more: &[&str], status: i32, part: &str| {
        let start = ["run", "--local", "2", "--duration", "1s", "--window", "500ms", "--out", text(out)];
        check(&[&start[..], more].concat(), status, part);
    };
    run(&at("new/out"), &["--port", &port], 2, "refused");
    run(&at("new/out"), &["--window", "soon"], 2, "--window");
    assert!(!at("new").exists(), "nothing is left of a refused start");
    // What earlier builds left of one blocks no run.
    for part in ["out/windows", "out/probes", "out/snapshots"] {
        std::fs::create_dir_all(at(part)).expect("writable");
    }
    std::fs::write(at("out/.lock"), "").expect("writable");
    run(&at("out"), &[], 0, "");
    let id = || std::fs::read_to_string(at("out/run.json")).expect("a run");
    let first = id();
    run(&at("out"), &["--port", &port], 2, "refused");
    assert_eq!(id(), first, "the earlier run is where it was");
    assert!(!at("out.1").exists());
    run(&at("out"), &[], 0, "");
    assert_ne!(id(), first);
    assert_eq!(std::fs::read_to_string(at("out.1/run.json")).expect("the earlier run"), first);
}

#[test]
fn every_help_tells_the_statuses() {
    for command in ["run", "solve", "compose", "doctor", "align", "merge", "check", "sim", "export"] {
        let help = output(probe_sync(&[command, "--help"]));
        assert!(help.status.success(), "{command}");
        let said = String::from_utf8_lossy(&help.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("EXIT STATUS 0 done; 1 failed; 2 invalid command line"), "{command}: {said}");
        assert!(said.contains("3 violations found; 4 nothing could be checked"), "{command}: {said}");
    }
}
