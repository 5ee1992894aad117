//! Dumps of PyTorch's Flight Recorder, as pickles and as JSON, stacks of its processes, and counts of
//! operations.

use probe_sync_hang::{Clocks, Counts, Dump, Job, Stack};

/// What is accepted as a dump of rank 0 is judged, and every rank that is named is one of the job.
pub fn dump(data: &[u8]) {
    let Ok(dump) = Dump::read(data) else { return };
    let mut job = Job::new();
    if job.add(0, &dump).is_ok() {
        judge(&job);
    }
}

/// Counts are judged, with the ranks that they have.
pub fn counts(data: &[u8]) {
    let Ok(counts) = Counts::read(data) else { return };
    let mut job = Job::new();
    job.add_counts(&counts);
    judge(&job);
}

fn judge(job: &Job) {
    let clocks = Clocks::default();
    let verdict = job.judge(&clocks);
    assert!(!verdict.text().is_empty());
    assert!(serde_json::to_string(&verdict).is_ok());
    let ranks: Vec<u32> = verdict.causes.iter().flat_map(|cause| cause.ranks.clone()).collect();
    let is_missing = |rank: &u32| verdict.missing_dumps.iter().any(|missing| missing.rank == *rank);
    assert!(ranks.iter().all(|rank| job.has(*rank) || is_missing(rank)), "{verdict:?}");
    assert!(job.timeline(&ranks, &clocks).ranks.iter().all(|shown| ranks.contains(&shown.rank)));
}

/// A stack has frames, on one line each.
pub fn stack(data: &[u8]) {
    let Some(stack) = Stack::read(&String::from_utf8_lossy(data)) else { return };
    assert!(!stack.frames.is_empty());
    assert!(stack.frames.iter().all(|frame| !frame.contains('\n') && frame.ends_with(')')));
}
