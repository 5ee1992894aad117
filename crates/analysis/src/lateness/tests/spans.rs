//! Several traces of one rank, which follow each other.

use std::path::{Path, PathBuf};

use probe_sync_alignment::{MergeSettings, Request, StepNames, calibrate, check, merge};

use crate::lateness;

/// A trace of three all-reduces, the `span`-th of its rank; rank 1 is 300 µs late to each. A
/// process that was started again counts from 1 again.
fn trace(folder: &Path, rank: u32, span: u32, first_number: u32) -> PathBuf {
    let all_reduce = |number: u32| {
        let ts = span * 3_000_000 + number * 10_000 + rank * 300;
        let args = format!(
            r#""Collective name": "allreduce", "Process Group Name": "0", "Seq": {}, "Process Group Ranks": "[0, 1]""#,
            first_number + number
        );
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 7, "ts": {ts}, "dur": {}, "args": {{{args}}}}}"#,
            400 - rank * 300
        )
    };
    let path = folder.join(format!("rank{rank}.{span}.pt.trace.json"));
    let events: Vec<String> = (1..=3).map(all_reduce).collect();
    let document = format!(
        r#"{{"distributedInfo": {{"rank": {rank}, "world_size": 2}}, "host_name": "a", "traceEvents": [{}]}}"#,
        events.join(",")
    );
    std::fs::write(&path, document).expect("writable");
    path
}

#[test]
fn traces_of_one_rank_that_follow_each_other_are_one_rank() {
    // Numbers that go on, and numbers of a process that was started again.
    for second in [3, 0] {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |rank, span| trace(folder.path(), rank, span, span * second);
        let traces = vec![of(1, 1), of(0, 0), of(0, 1), of(1, 0)];
        let calibrated = calibrate(&Request { traces, ..Request::default() }).expect("four traces of two ranks");
        let verdict = check(&calibrated);
        let result = &verdict.result;
        assert_eq!((result.edges, result.broken, result.ambiguous_instances), (12, 0, 0), "{}", verdict.text());
        let late = lateness(&calibrated, &StepNames::default()).expect("one clock");
        let last: Vec<_> = late.instances.iter().map(|instance| (instance.last_rank, instance.lead_ns)).collect();
        assert_eq!(last, [(Some(1), 300_000); 6]);
        let titles: Vec<String> = calibrated.traces.iter().map(|of| of.trace.title()).collect();
        assert_eq!(titles, ["rank 0 · a", "rank 0, span 2 · a", "rank 1 · a", "rank 1, span 2 · a"]);
        let settings = MergeSettings { allow_uncalibrated: true, ..MergeSettings::default() };
        let report = merge(&calibrated, &folder.path().join("all.json"), settings).expect("merged");
        assert_eq!(report.traces.iter().map(|trace| trace.events).collect::<Vec<_>>(), [3; 4]);
    }
}
