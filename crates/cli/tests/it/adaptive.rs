//! Adaptive probing as its users run it: real packets with a target, the simulated comparison, and
//! what is refused.

use crate::support::{complaint, output, probe_sync, report};

#[test]
fn an_easy_target_saves_packets_and_the_report_says_so() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let out_text = out.to_str().expect("a UTF-8 path");
    let arguments = ["run", "--local", "3", "--duration", "4s", "--window", "500ms", "--inject-skew", "7", "--json"];
    let more = ["--target-error", "1ms", "--budget-cpu", "50%", "--out", out_text];
    let report = report(&[&arguments[..], &more].concat());
    let pacing = &report["pacing"];
    assert_eq!(pacing["target_ns"], 1e6, "{report:#}");
    assert_eq!((&pacing["verdict"], &pacing["nodes_within"]), (&"reached".into(), &2.into()), "{report:#}");
    let number = |key: &str| pacing[key].as_f64().expect("a number");
    assert!(number("exchanges_per_host") < 0.5 * number("exchanges_per_host_fixed"), "{report:#}");
    let started = report["counters"]["exchanges_started"].as_f64().expect("a count");
    assert!(started < 0.6 * number("exchanges_per_host_fixed"), "{report:#}");
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
    let metrics = std::fs::read_to_string(out.join("metrics.prom")).expect("metrics.prom");
    assert!(metrics.contains("target_seconds"), "{metrics}");
}

#[test]
fn the_simulated_comparison_ends_with_its_demands() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().to_str().expect("a UTF-8 path");
    let small = ["sim", "--adaptive", "--nodes", "5", "--neighbors", "3", "--load", "0.2", "--seeds", "1"];
    let more = ["--duration", "8s", "--window", "1s", "--out", out];
    let output = output(probe_sync(&[&small[..], &more].concat()));
    assert!(output.status.success(), "{}", complaint(&output));
    let text = String::from_utf8(output.stdout).expect("text");
    for part in ["target ±200 ns", "hw 0.2", "sw 0.2", "quiet: at most 1/5"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let csv = std::fs::read_to_string(directory.path().join("adaptive.csv")).expect("adaptive.csv");
    assert_eq!(csv.lines().count(), 1 + 2 * 2, "two paces of two kinds of stamps: {csv}");
}

#[test]
fn budgets_of_a_fixed_pace_and_impossible_ones_are_refused() {
    let check = |arguments: &[&str], part: &str| {
        let output = output(probe_sync(arguments));
        assert_eq!(output.status.code(), Some(2), "{}", complaint(&output));
        assert!(complaint(&output).contains(part), "{} lacks {part}", complaint(&output));
    };
    check(&["run", "--local", "2", "--fixed", "--budget-bps", "1M"], "--fixed");
    check(&["run", "--local", "2", "--fixed", "--target-error", "1us"], "omit one of them");
    check(&["run", "--local", "2", "--target-error", "0ns"], "greater than zero");
    check(&["run", "--local", "2", "--budget-bps", "10"], "per minute");
    check(&["sim", "--adaptive", "--target-error=-1ns"], "greater than zero");
    check(&["sim", "--target-error", "1us"], "--adaptive");
}
