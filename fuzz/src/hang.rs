//! Dumps of PyTorch's Flight Recorder, as pickles and as JSON, and stacks of its processes.

use probe_sync_hang::{Clocks, Dump, Job, Stack};

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

/// A stack has frames, on one line each.
pub fn stack(data: &[u8]) {
    let Some(stack) = Stack::read(&String::from_utf8_lossy(data)) else { return };
    assert!(!stack.frames.is_empty());
    assert!(stack.frames.iter().all(|frame| !frame.contains('\n') && frame.ends_with(')')));
}
