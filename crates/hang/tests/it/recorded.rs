//! Dumps that a training framework wrote when ranks were made to fail.

use std::path::Path;

use probe_sync_hang::{Certainty, Clocks, Dump, Fault, Job};

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

#[test]
fn ranks_whose_device_failed_are_named_without_clocks() {
    let Some(job) = job("gpu_error_1st") else { return };
    let verdict = job.judge(&Clocks::default());
    println!("{}", verdict.text());
    let ranks: Vec<u32> = verdict.causes.iter().flat_map(|cause| cause.ranks.clone()).collect();
    assert_eq!(ranks, [12, 14], "{:?}", verdict.causes);
    assert!(verdict.causes.iter().all(|cause| cause.fault == Fault::DeviceStopped));
    assert_eq!(verdict.waiting.len(), 14);
}

#[test]
fn ranks_whose_interpreter_was_locked_are_named_without_clocks() {
    let Some(job) = job("lock_gil_1st") else { return };
    let verdict = job.judge(&Clocks::default());
    println!("{}", verdict.text());
    let ranks: Vec<u32> = verdict.causes.iter().flat_map(|cause| cause.ranks.clone()).collect();
    assert_eq!(ranks, [9, 14], "{:?}", verdict.causes);
    assert!(verdict.causes.iter().all(|cause| cause.certainty == Certainty::Certain));
    assert_eq!(verdict.waiting.len(), 14);
}
