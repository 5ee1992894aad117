//! Foreign packets, from the text to the offsets.

use std::path::PathBuf;

use probe_sync_time::Duration;
use serde_json::Value;

use super::{Input, Lines, Solved, solve_files};
use crate::{Config, Error};

fn solve(text: &str, window: Option<Duration>, config: &Config) -> Result<(Solved, Vec<Value>), Error> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (packets, out) = (directory.path().join("packets.csv"), directory.path().join("offsets.jsonl"));
    std::fs::write(&packets, text).expect("writable");
    let solved = solve_files(Input::Packets { files: &[packets], window }, &out, Lines::Rounds, config)?;
    let text = std::fs::read_to_string(&out).expect("written");
    Ok((solved, text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()))
}

/// Three nodes in a row, 0 – 1 – 2: node 1 is 80 s behind node 0, node 2 is 5 ms ahead of it.
/// Packets take at least 100 µs.
fn three_nodes() -> String {
    let ahead = [0, -80_000_000_000_i64, 5_000_000];
    let mut text = String::from("# made by hand\nstamp,recv_ns,src,send_ns,dst\n");
    for packet in 0..400_i64 {
        for (src, dst) in [(0, 1), (1, 0), (1, 2), (2, 1)] {
            let at = 1_600_000_000_000_000_000 + packet * 10_000_000;
            let delay = 100_000 + packet * 7919 % 1000 * 50;
            text += &format!("kernel,{},{src},{},{dst}\n", at + delay + ahead[dst], at + ahead[src]);
        }
    }
    text
}

#[test]
fn packets_of_a_chain_give_every_nodes_offset() {
    let (solved, lines) = solve(&three_nodes(), Some(Duration::from_ms(1_000)), &Config::default()).expect("packets");
    assert_eq!((solved.exchanges, solved.nodes, solved.rounds, solved.skipped_lines), (1600, 3, 4, 0), "{solved:?}");
    assert_eq!(lines.len(), 1 + 4 * 3);
    for line in &lines[1..] {
        let expected = [0.0, -80e9, 5e6][line["node_id"].as_u64().expect("a node") as usize];
        let number = |key: &str| line[key].as_f64().unwrap_or(f64::NAN);
        assert!((number("offset_ns") - expected).abs() < 5_000.0, "{line}");
        assert!(number("bound_lo_ns") <= expected && expected <= number("bound_hi_ns"), "{line}");
    }
}

#[test]
fn another_reference_moves_all_offsets() {
    let config = |text: &str| {
        let mut config = Config::default();
        config.set("reference", text, "--reference").expect("a choice");
        config
    };
    let (_, lines) = solve(&three_nodes(), None, &config("2")).expect("packets");
    assert_eq!(lines[0]["reference"], 2);
    let offset = |node: usize| lines[1 + node]["offset_ns"].as_f64().expect("a number");
    assert!((offset(1) + 80.005e9).abs() < 5_000.0 && offset(2) == 0.0, "{lines:?}");
    for (choice, part) in [("3", "the files have 3 nodes"), ("auto", "a node number")] {
        let error = solve(&three_nodes(), None, &config(choice)).expect_err("refused").to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn missing_stamps_and_fractions_are_left_out_and_told() {
    let line = |src: u32, dst: u32, sent: &str, received: &str| format!("{src},{dst},{sent},{received}\n");
    let head = "src,dst,send_ns,recv_ns\n".to_owned();
    let whole = line(0, 1, "1700000000000001000", "1700000000000003200")
        + &line(1, 0, "1700000000000005000", "1700000000000005800");
    for missing in ["0", "-5", "1700000000.000001"] {
        let text =
            [&head, &whole, &line(0, 1, missing, "1700000000000003200"), &line(1, 0, "1700000000000005000", missing)]
                .map(String::as_str)
                .concat();
        let (solved, _) = solve(&text, None, &Config::default()).expect("two packets");
        assert_eq!((solved.exchanges, solved.skipped_lines), (2, 2), "{missing}");
        assert!(solved.notes[0].contains("line 4: ignored"), "{:?}", solved.notes);
        // An interval of 2.7e17 ns is no answer.
        assert!(solved.half_width_95_ns.is_none_or(|ns| ns < 1e12), "{:?}", solved.half_width_95_ns);
    }
    let none = [&head, &line(0, 1, "1700000000.5", "1700000000.6")].map(String::as_str).concat();
    let error = solve(&none, None, &Config::default()).expect_err("no packets").to_string();
    assert!(
        error.contains("1 lines were ignored") && error.contains("line 2") && error.contains("whole nanoseconds"),
        "{error}"
    );
}

#[test]
fn lines_that_are_no_packets_are_named() {
    let text =
        "src,dst,send_ns,recv_ns\n0,1,1000,2200\n1,0,3000,2200\n0,1,5\n0,0,1,2\n0,x,1,2\n0,70000,1,2\n0,1,1,soon\n";
    let (solved, _) = solve(text, None, &Config::default()).expect("two packets");
    assert_eq!((solved.exchanges, solved.skipped_lines), (2, 5));
    for (note, part) in
        solved.notes.iter().zip(["line 4: ignored: too few", "same node", "node \"x\"", "65535", "time \"soon\""])
    {
        assert!(note.contains(part), "{note} lacks {part}");
    }
    let error = solve("from,to\n0,1\n", None, &Config::default()).expect_err("no packets").to_string();
    assert!(error.contains("packets.csv: the first line has no column src"), "{error}");
    let marked = format!("\u{feff}{text}");
    assert_eq!(solve(&marked, None, &Config::default()).expect("two packets").0.exchanges, 2);
    let error =
        solve(&three_nodes(), Some(Duration::from_ns(1)), &Config::default()).expect_err("too many").to_string();
    assert!(error.contains("--window"), "{error}");
}

#[test]
fn clocks_that_drift_apart_by_whole_windows_are_followed() {
    // Node 1 runs 60 ppm fast for 50 000 s, 3 s in all: its windows of 100 s and node 0's are 1.5 s
    // apart at both ends.
    let mut text = String::from("src,dst,send_ns,recv_ns\n");
    let offset = |at: i64| (at as f64 * 60e-6) as i64;
    for packet in 0..5_000_i64 {
        let sent = packet * 10_000_000_000 + 1_000_000;
        let back = sent + 5_000_000_000;
        let delay = 20_000 + packet * 7919 % 1000;
        text += &format!("0,1,{sent},{}\n1,0,{},{}\n", sent + delay + offset(sent), back + offset(back), back + delay);
    }
    let (solved, lines) = solve(&text, Some(Duration::from_ms(100_000)), &Config::default()).expect("packets");
    assert_eq!((solved.exchanges, solved.notes.len()), (10_000, 0), "{solved:?}");
    for line in lines[1..].iter().filter(|line| line["node_id"] == 1) {
        let ends = ["window_start_ns", "window_end_ns"].map(|key| line[key].as_i64().expect("a time"));
        let expected = offset(ends[0].midpoint(ends[1])) as f64;
        let number = |key: &str| line[key].as_f64().expect("a number");
        assert!((number("offset_ns") - expected).abs() < 2_000.0, "{expected}: {line}");
        assert!(number("bound_hi_ns") - number("bound_lo_ns") < 200_000.0, "{line}");
    }
}

#[test]
fn packets_without_a_way_back_are_counted() {
    let text = format!("{}kernel,1600000009000000000,0,1600000009000100000,1\n", three_nodes());
    let (solved, _) = solve(&text, Some(Duration::from_ms(1_000)), &Config::default()).expect("packets");
    assert_eq!(solved.exchanges, 1600, "{solved:?}");
    assert!(solved.notes.iter().any(|note| note.starts_with("1 of 1601 packets are in no fit")), "{solved:?}");
}

#[test]
fn a_capture_of_two_hosts() {
    // 46 TCP packets between two hosts, captured on both (Trace Compass); the published line is 79
    // 796 s and some apart.
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let found = root.ancestors().map(|folder| folder.join("shared/data/probes/tracecompass-synctraces-packets.csv"));
    let Some(capture) = found.into_iter().find(|path| path.exists()) else {
        println!("skipped: the capture is not here");
        return;
    };
    let text = std::fs::read_to_string(capture).expect("text");
    let (solved, lines) = solve(&text, None, &Config::default()).expect("packets");
    assert_eq!((solved.exchanges, solved.skipped_lines), (46, 0), "{solved:?}");
    let line = lines.last().expect("node 1");
    let number = |key: &str| line[key].as_f64().expect("a number");
    assert!(number("bound_lo_ns") <= number("offset_ns") && number("offset_ns") <= number("bound_hi_ns"), "{line}");
    assert!(number("bound_hi_ns") - number("bound_lo_ns") < 2e6, "{line}");
}

/// Two windows of hardware stamps between node 0 and node 1, 1000 ns ahead; the second was not
/// closed, as if the run was killed.
fn hardware_probes(stated: &str) -> String {
    let mut text = String::new();
    for round in 0..2_i64 {
        let start = 1_600_000_000_000_000_000 + round * 1_000_000_000;
        for seq in 0..40 {
            let at = start + seq * 25_000_000;
            let pass = |at: i64, ahead: [i64; 2]| [at + ahead[0], at + 500 + seq % 7 + ahead[1]];
            let [[a, b], [c, d]] = [at, at + 100_000].map(|at| pass(at, [0, 1_000]));
            let [[e, f], [g, h]] = [at + 500_000, at + 600_000].map(|at| pass(at, [1_000, 0]));
            text += &format!(
                "{{\"round_id\":{round},\"src\":0,\"dst\":1,\"seq\":{seq},\"stamp\":\"hardware\",\"t\":[{a},{b},{c},{d},{e},{f},{g},{h}]}}\n"
            );
        }
        if round == 0 {
            let end = start + 1_000_000_000;
            text += &format!(
                "{{\"meta\":true,\"round_id\":0,\"src\":0,\"window_start_ns\":{start},\"window_end_ns\":{end},\"lost\":[]{stated}}}\n"
            );
        }
    }
    text
}

#[test]
fn what_converted_stamps_may_be_wrong_by_is_read_from_the_recording() {
    let solve = |stated: &str| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (probes, out) = (directory.path().join("node0.jsonl"), directory.path().join("offsets.jsonl"));
        std::fs::write(&probes, hardware_probes(stated)).expect("writable");
        let solved = solve_files(Input::Probes(&[probes]), &out, Lines::Rounds, &Config::default()).expect("exchanges");
        let text = std::fs::read_to_string(&out).expect("written");
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let widths: Vec<[f64; 2]> = lines
            .iter()
            .filter(|line| line["node_id"] == 1)
            .map(|line| {
                [
                    line["bound_hi_ns"].as_f64().expect("bounded") - line["bound_lo_ns"].as_f64().expect("bounded"),
                    line["sigma_ns"].as_f64().expect("known"),
                ]
            })
            .collect();
        (solved, widths)
    };
    let (unstated, narrow) = solve("");
    assert!(
        unstated.notes.iter().any(|note| note.contains("2 windows of hardware timestamps")),
        "{:?}",
        unstated.notes
    );
    let (stated, wide) = solve(",\"stamp_errors_ns\":[[1,[700.0,900.0]]]");
    assert!(!stated.notes.iter().any(|note| note.contains("hardware")), "{:?}", stated.notes);
    assert_eq!((narrow.len(), wide.len()), (2, 2));
    for (narrow, wide) in narrow.iter().zip(&wide) {
        assert!(wide[0] >= narrow[0] + 2.0 * 1600.0 - 1.0, "{wide:?} {narrow:?}");
        assert!(wide[1] >= (700.0_f64.powi(2) + 900.0_f64.powi(2)).sqrt() / 3.0_f64.sqrt(), "{wide:?}");
    }
    for bad in ["-1.0", "1e300"] {
        let (solved, _) = solve(&format!(",\"stamp_errors_ns\":[[1,[0.0,{bad}]]]"));
        assert_eq!(solved.skipped_lines, 1, "{solved:?}");
        assert!(
            solved.notes.iter().any(|note| note.contains("a timestamp error that is negative")),
            "{:?}",
            solved.notes
        );
    }
}

/// A window of `node` in which it probed `peer`, or no node while all paused; clocks are 1000 ns
/// apart.
fn probed(node: i64, peer: Option<i64>, round: i64) -> String {
    let (start, second) = (1_600_000_000_000_000_000 + round * 1_000_000_000, 1_000_000_000);
    let mut text = String::new();
    for (seq, peer) in (0..40).flat_map(|seq| peer.map(|peer| (seq, peer))) {
        let [a, b, c, d] = [(0, node), (1, peer), (100, node), (101, peer)].map(|(step, of)| (step, of * 1_000));
        let [e, f, g, h] = [(500, peer), (501, node), (600, peer), (601, node)].map(|(step, of)| (step, of * 1_000));
        let at = start + seq * 25_000_000;
        let t = [a, b, c, d, e, f, g, h].map(|(step, ahead)| at + step * 1_000 + seq % 7 + ahead);
        text += &format!(
            "{{\"round_id\":{round},\"src\":{node},\"dst\":{peer},\"seq\":{seq},\"stamp\":\"kernel\",\"t\":{t:?}}}\n"
        );
    }
    let end = start + second;
    text + &format!(
        "{{\"meta\":true,\"round_id\":{round},\"src\":{node},\"window_start_ns\":{start},\"window_end_ns\":{end},\"lost\":[]}}\n"
    )
}

#[test]
fn a_round_in_which_all_paused_before_the_reference_was_lost_loses_none_after_it() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let files: Vec<PathBuf> = (0..3).map(|node| directory.path().join(format!("node{node}.jsonl"))).collect();
    let peers = [Some(1), Some(2), Some(1)];
    for (node, file) in (0..).zip(&files) {
        let rounds = if node == 0 { 0..3 } else { 0..6 };
        let peer = |round| peers[node as usize].filter(|_| round != 2);
        std::fs::write(file, rounds.map(|round| probed(node, peer(round), round)).collect::<String>())
            .expect("writable");
    }
    let out = directory.path().join("offsets.jsonl");
    let solved = solve_files(Input::Probes(&files), &out, Lines::Rounds, &Config::default()).expect("exchanges");
    assert_eq!((solved.rounds, solved.carried_rounds, solved.skipped_rounds), (3, 3, 0), "{solved:?}");
    let text = std::fs::read_to_string(&out).expect("written");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let after: Vec<Value> = lines.filter(|line| line["round_id"].as_u64() >= Some(3) && line["node_id"] == 2).collect();
    assert_eq!(after.len(), 3, "{text}");
    for line in after {
        let offset = line["offset_ns"].as_f64().expect("carried");
        assert!(line["reachable"] == true && (offset - 2_000.0).abs() < 50.0, "{line}");
    }
}
