//! What says little of who is late: operations and ranks that traces show in part, one long delay,
//! devices whose times are wrong.

use std::path::PathBuf;

use probe_sync_alignment::{Request, StepNames, calibrate};

use crate::{Lateness, lateness};

/// An all-reduce of a group in these ranks, with a number, which begins and ends at these times,
/// µs.
fn kernel((group, number, start, end): (&str, u32, u32, u32), ranks: &str) -> String {
    let args = format!(
        r#""Collective name": "allreduce", "Process Group Name": "{group}", "Seq": {number}, "Process Group Ranks": "{ranks}", "correlation": {number}"#
    );
    let length = end - start;
    format!(
        r#"{{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0, "tid": 7, "ts": {start}, "dur": {length}, "args": {{{args}}}}}"#
    )
}

/// A trace of one host.
fn document(rank: u32, world_size: u32, events: &[String]) -> String {
    let events = events.join(", ");
    format!(
        r#"{{"host_name": "h", "distributedInfo": {{"rank": {rank}, "world_size": {world_size}}}, "traceEvents": [{events}]}}"#
    )
}

/// A trace of one of four ranks.
fn trace(rank: u32, operations: &[(&str, u32, u32, u32)]) -> String {
    let events: Vec<String> = operations.iter().map(|operation| kernel(*operation, "[0, 1, 2, 3]")).collect();
    document(rank, 4, &events)
}

fn judged(traces: &[String]) -> Lateness {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |(rank, trace): (usize, &String)| {
        let path = folder.path().join(format!("rank{rank}.json"));
        std::fs::write(&path, trace).expect("written");
        path
    };
    let traces: Vec<PathBuf> = traces.iter().enumerate().map(write).collect();
    let calibrated = calibrate(&Request { traces, ..Request::default() }).expect("one host");
    lateness(&calibrated, &StepNames::default()).expect("lateness")
}

#[test]
fn nobody_is_named_where_a_rank_that_belongs_there_is_missing() {
    // Each a millisecond after the one before; rank r comes r µs late.
    let of = |rank: u32, operations: &[(&'static str, u32)]| {
        let at = |&(group, number)| (group, number, 1000 * number + rank, 1000 * number + 50);
        trace(rank, &operations.iter().map(at).collect::<Vec<_>>())
    };
    let all = [("0", 1), ("0", 2), ("0", 3)];
    // Rank 2's trace ends before the third, and rank 3 shows nothing that another does.
    let found = judged(&[of(0, &all), of(1, &all), of(2, &all[..2]), of(3, &[("9", 7)])]);
    let told: Vec<_> = found.instances.iter().map(|instance| (instance.last_rank, instance.arrivals.len())).collect();
    // Rank 3 is of the group: it may have been the last.
    assert_eq!(told, [(None, 3), (None, 3)]);
    let has = |part: &str| found.notes.iter().any(|note| note.contains(part));
    assert!(has("ignored 1 operation, because") && has("no operation of rank 3 can be analysed"), "{:?}", found.notes);
}

#[test]
fn one_long_delay_neither_hides_nor_makes_a_straggler() {
    // Rank 2 is late by `often` µs in every third operation of 30, and one rank by 300 ms in the
    // first.
    let job = |first: u32, often: u32| {
        let of = |rank: u32| {
            let operation = |number: u32| {
                let begun = 400_000 * u32::from(number > 0) + 10_000 * number;
                let delay = |rank: u32| match number {
                    0 if rank == first => 300_000,
                    n if n > 0 && n % 3 == 0 && rank == 2 => often,
                    _ => (7 * number + 3 * rank) % 5,
                };
                let end = begun + 50 + (0..4).map(delay).max().expect("four ranks");
                ("0", number + 1, begun + delay(rank), end)
            };
            trace(rank, &(0..31).map(operation).collect::<Vec<_>>())
        };
        let found = judged(&(0..4).map(of).collect::<Vec<_>>());
        assert!(
            found.notes.iter().any(|note| note.contains(&format!("an operation (rank {first}: 300 ms)"))),
            "{found:?}"
        );
        found.stragglers.iter().map(|late| (late.rank, late.times, late.saved_ns / 1_000_000)).collect::<Vec<_>>()
    };
    assert_eq!(job(0, 5_000), [(Some(2), 10, 49)]);
    assert_eq!(job(2, 5_000), [(Some(2), 10, 49)]);
    // What it would have saved in the first does not count.
    assert_eq!(job(2, 20), []);
}

#[test]
fn a_device_that_begins_before_its_launch_is_known_no_better_than_that() {
    // Two operations; in the first rank 1's kernel begins `early` µs before its launch, in the
    // second it is 10 µs late.
    let job = |early: u32| {
        let of = |rank: u32| {
            let event = |(number, start, launch): (u32, u32, u32)| {
                let launch = format!(
                    r#"{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "pid": 9, "tid": 9, "ts": {launch}, "dur": 2, "args": {{"correlation": {number}}}}}"#
                );
                [kernel(("0", number, start, 1000 * number + 100), "[0, 1]"), launch]
            };
            let (first, second) = ((1, 1000, 995 + rank * (5 + early)), (2, 2000 + 10 * rank, 1990));
            document(rank, 2, &[event(first), event(second)].concat())
        };
        let found = judged(&[of(0), of(1)]);
        (found.instances[1].last_rank, found.notes.iter().any(|note| note.contains("rank 1 (1, by up to")))
    };
    assert_eq!(job(0), (Some(1), false));
    assert_eq!(job(4), (Some(1), true));
    // 20 µs / √12 = 5.8 µs, and three of these are more than 10 µs.
    assert_eq!(job(20), (None, true));
}
