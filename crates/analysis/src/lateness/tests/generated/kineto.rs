//! A rank's trace as PyTorch's profiler writes it.

use std::path::{Path, PathBuf};

use super::{BASE_NS, Done, Job};

pub(super) fn write(job: &Job, rank: usize, folder: &Path) -> PathBuf {
    let path = folder.join(format!("rank{rank}.json"));
    std::fs::write(&path, trace(job, rank)).expect("written");
    path
}

fn trace(job: &Job, rank: usize) -> String {
    let shown = |time: i64| {
        let time = time + job.ahead[rank] + 1_000_000_000;
        format!("{}.{:03}", time / 1000, time % 1000)
    };
    let mut events = Vec::new();
    for step in job.recorded[rank].clone().filter(|_| job.states_steps) {
        let (start, end) = job.steps[rank][step as usize];
        let length = (end - start) / 1000;
        events.push(format!(r#"{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", "pid": 9, "tid": 9, "ts": {}, "dur": {length}}}"#, shown(start)));
    }
    for (number, Done { group, stays, .. }) in
        job.done.iter().enumerate().filter(|(_, done)| job.recorded[rank].contains(&done.step))
    {
        let Some((start, end)) = stays.get(&rank) else { continue };
        let members = &job.groups[*group];
        let args = format!(
            r#""External id": {number}, "Collective name": "allreduce", "In msg nelems": 4096, "dtype": "Float", "Group size": {}, "Process Group Name": "{group}", "Process Group Ranks": "{members:?}""#,
            members.len()
        );
        events.push(format!(r#"{{"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 9, "tid": 9, "ts": {}, "dur": 9, "args": {{{args}}}}}"#, shown(start - 20_000)));
        let length = end - start;
        events.push(format!(r#"{{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "pid": 0, "tid": 7, "ts": {}, "dur": {}.{:03}, "args": {{{args}}}}}"#, shown(*start), length / 1000, length % 1000));
    }
    let listed: Vec<String> = job
        .groups
        .iter()
        .enumerate()
        .filter(|(_, members)| members.contains(&rank))
        .map(|(number, members)| {
            format!(r#"{{"pg_name": "{number}", "pg_size": {}, "ranks": {members:?}}}"#, members.len())
        })
        .collect();
    let (listed, events, ranks) = (listed.join(", "), events.join(", "), job.steps.len());
    format!(
        r#"{{"distributedInfo": {{"rank": {rank}, "world_size": {ranks}, "pg_config": [{listed}]}}, "baseTimeNanoseconds": {BASE_NS}, "traceEvents": [{events}]}}"#
    )
}
