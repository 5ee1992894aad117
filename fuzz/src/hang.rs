//! Dumps of PyTorch's Flight Recorder, as pickles and as JSON.

use probe_sync_hang::{Clocks, Dump, Job};

/// What is accepted as a dump of rank 0 is judged, and every rank that is named is one of the job.
pub fn dump(data: &[u8]) {
    let Ok(dump) = Dump::read(data) else { return };
    let mut job = Job::new();
    if job.add(0, &dump).is_ok() {
        let verdict = job.judge(&Clocks::default());
        assert!(!verdict.text().is_empty());
        assert!(serde_json::to_string(&verdict).is_ok());
    }
}
