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
