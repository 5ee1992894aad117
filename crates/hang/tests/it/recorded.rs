//! Dumps that a training framework wrote when ranks were made to fail.

use std::path::Path;

use probe_sync_hang::{Cause, Certainty, Clocks, Dump, Fault, Job};

/// Returns the dumps of one recorded job, or `None` where the shared data is absent.
fn job(set: &str) -> Option<Job> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/fr").join(set);
    if !folder.is_dir() {
        println!("skipped: {} is absent", folder.display());
        return None;
    }
    let mut job = Job::new();
    for rank in 0..16 {
        let bytes = std::fs::read(folder.join(format!("_dump_{rank}"))).expect("a dump");
        job.add(rank, &Dump::read(&bytes).expect("a readable dump")).expect("a rank of the job");
    }
    Some(job)
}

/// Checks the causes of a recorded job, judged without clocks, and that all other ranks wait.
fn check(set: &str, guilty: [u32; 2], is_expected: impl Fn(&Cause) -> bool) {
    let Some(job) = job(set) else { return };
    let verdict = job.judge(&Clocks::default());
    println!("{}", verdict.text());
    let ranks: Vec<u32> = verdict.causes.iter().flat_map(|cause| cause.ranks.clone()).collect();
    assert_eq!(ranks, guilty, "{:?}", verdict.causes);
    assert!(verdict.causes.iter().all(is_expected), "{:?}", verdict.causes);
    assert_eq!(verdict.waiting.len(), 14);
}

#[test]
fn ranks_whose_device_failed_are_named_without_clocks() {
    check("gpu_error_1st", [12, 14], |cause| cause.fault == Fault::DeviceStopped);
}

#[test]
fn ranks_whose_interpreter_was_locked_are_named_without_clocks() {
    check("lock_gil_1st", [9, 14], |cause| cause.certainty == Certainty::Certain);
}

#[test]
fn a_rank_of_any_number_takes_no_memory_for_those_below_it() {
    let gloo = r#"{"version": "2.10", "pg_config": {}, "entries": [{"process_group": ["1", "undefined"], "collective_seq_id": 1, "profiling_name": "gloo:barrier", "state": "scheduled"}]}"#;
    let mut job = Job::new();
    job.add(u32::MAX, &Dump::read(gloo.as_bytes()).expect("a dump")).expect("a rank");
    assert!(job.judge(&Clocks::default()).missing_dumps.len() <= 65_536);
}

/// Group, number, and whether the operation is retired.
type Ended<'a> = (&'a str, u64, bool);

/// A gloo job of 8 ranks as its dumps end (torch 2.15, `bench/hang`): name, number and `retired` of
/// the last operations. Groups "1" and "2" are halves, "3" to "6" pairs across them, "0" all ranks.
fn gloo(last: &[(u32, &[Ended<'_>])]) -> Job {
    let mut job = Job::new();
    for (rank, operations) in last {
        let entries = operations.iter().zip(0..).map(|((name, sequence, retired), number)| {
            let description = if *name == "0" { "default_pg" } else { "undefined" };
            format!(
                r#"{{"record_id": {number}, "pg_id": {name}, "process_group": ["{name}", "{description}"], "collective_seq_id": {sequence}, "profiling_name": "gloo:all_reduce", "state": "scheduled", "retired": {retired}}}"#
            )
        });
        let entries = entries.collect::<Vec<_>>().join(",");
        let dump = format!(r#"{{"version": "2.10", "pg_config": {{}}, "entries": [{entries}]}}"#);
        job.add(*rank, &Dump::read(dump.as_bytes()).expect("well-formed")).expect("a rank");
    }
    job
}

#[test]
fn operations_that_failed_because_a_peer_died_do_not_incriminate_those_who_left_them() {
    // Rank 2 was killed; its peers' operations ended with an error, which gloo retires as well.
    let job = gloo(&[
        (0, &[("3", 27, true), ("1", 28, false)]),
        (1, &[("4", 27, true), ("1", 28, true)]),
        (3, &[("6", 27, true), ("1", 28, true)]),
        (4, &[("3", 27, true), ("2", 28, false)]),
        (5, &[("4", 27, true), ("2", 28, false)]),
        (6, &[("2", 27, true), ("5", 27, true)]),
        (7, &[("6", 27, true), ("2", 28, false)]),
    ]);
    let verdict = job.judge(&Clocks::default());
    let causes: Vec<_> =
        verdict.causes.iter().map(|cause| (cause.ranks.clone(), cause.fault, cause.certainty)).collect();
    assert_eq!(causes, [(vec![2], Fault::NoDump, Certainty::Likely)], "{}", verdict.text());
}

#[test]
fn all_ranks_are_in_the_default_group_also_those_that_have_not_used_it() {
    // Rank 2 left out one operation of its pair; its peer waits there, and all others in the end.
    let done = |pair| [(pair, 40, true), ("0", 1, false)];
    let (a, b, c) = (done("3"), done("4"), done("6"));
    let job = gloo(&[
        (0, &a),
        (1, &b),
        (2, &[("5", 39, true), ("0", 1, false)]),
        (3, &c),
        (4, &a),
        (5, &b),
        (6, &[("5", 39, true), ("5", 40, false)]),
        (7, &c),
    ]);
    let verdict = job.judge(&Clocks::default());
    let candidates: Vec<u32> = verdict.causes.iter().flat_map(|cause| cause.ranks.clone()).collect();
    assert_eq!(candidates, [2, 6], "{}", verdict.text());
    assert!(!verdict.is_decided());
}
