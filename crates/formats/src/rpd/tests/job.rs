//! Facts of a job, and the way from its traces to a verdict.

use probe_sync_alignment::{AlignSettings, ClockSource, MergeSettings, Request, align, calibrate, check, merge};

use super::*;
use crate::model::{CollectiveKind, Instance, TraceClock};

#[test]
fn a_trace_tells_its_clock_its_marked_rank_and_its_kernels() {
    for rank in 0..3 {
        let found = facts(&made(rank)).expect("facts");
        assert_eq!(found.clock, TraceClock::Monotonic);
        assert_eq!((found.identity.hostname.as_deref(), found.identity.rank), (None, Some(rank)));
        assert_eq!((found.identity.marked_rank, found.merged), (Some((rank, 3)), false));
        assert_eq!(found.notes, ["24 RCCL kernels name no communicator: the format does not record it"]);
        assert_eq!((found.warnings.len(), found.collectives.len(), found.collectives.left_out()), (0, 24, 0));
        let labels: Vec<_> = found.collectives.labels().map(|(_, label, count)| (label.clone(), count)).collect();
        let [(label, 24)] = labels.as_slice() else { panic!("{labels:?}") };
        assert_eq!(label.name, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
        assert_eq!(label.kind, CollectiveKind::AllToAll);
        assert!(matches!(&label.instance, Instance::Communicator { number: 0, .. }), "{label:?}");
        assert_eq!(found.steps.series().collect::<Vec<_>>(), ["step "]);
        // One call before the steps, four and a mark in each with two kernels and a copy; and the rank.
        assert_eq!(found.events, 24 * 8 + 2);
    }
    let old = facts(&made_of_schema_2()).expect("facts");
    assert_eq!((old.identity.rank, old.collectives.len(), old.events), (Some(0), 2, 2 * 8 + 2));
}

#[test]
fn markers_state_the_system_time_and_are_no_part_of_the_span() {
    let usual = facts(&made(0)).expect("facts");
    let statements = "INSERT INTO rocpd_ustring VALUES (900, 'probe_sync.clock#1750000000000000000');
        UPDATE rocpd_api SET args_id = 900, start = start - 5000000, end = end - 5000000
            WHERE id = (SELECT min(id) FROM rocpd_api WHERE id > 6000000000);";
    let (_folder, path) = changed(&made(0), statements);
    let found = facts(&path).expect("facts");
    assert_eq!((found.pairs.len(), found.pairs[0].system_ns), (1, 1_750_000_000_000_000_000));
    assert_eq!((found.span, found.identity.rank), (usual.span, None));
}

#[test]
fn one_file_of_several_processes_or_devices_is_of_no_rank() {
    let (_folder, path) = changed(&made(1), "UPDATE rocpd_api SET pid = 77 WHERE id % 2 = 0");
    let found = facts(&path).expect("facts");
    assert_eq!((found.identity.rank, found.identity.marked_rank), (None, None));
    assert!(found.notes.iter().any(|note| note.contains("2 processes")), "{:?}", found.notes);
    let (_folder, path) = changed(&made(1), "UPDATE rocpd_op SET gpuId = 3 WHERE id > 4294967350");
    let found = facts(&path).expect("facts");
    assert_eq!((found.collectives.len(), found.collectives.left_out()), (0, 24));
    assert!(found.notes.iter().any(|note| note.contains("ignored 24 RCCL kernels on 2 devices")), "{:?}", found.notes);
}

#[test]
fn rows_that_the_tracer_collected_from_other_nodes_make_a_merged_trace() {
    let (_folder, path) = changed(&made(1), "UPDATE rocpd_op SET gpuId = 1002 WHERE id > 4294967350");
    let found = facts(&path).expect("facts");
    assert!(found.merged && found.warnings[0].contains("from 2 nodes"), "{:?}", found.warnings);
    let loaded = "INSERT INTO rocpd_metadata (tag, value) VALUES ('clocksync_shm', '/rpd_sync_1_2')";
    let (_folder, path) = changed(&made(1), loaded);
    let found = facts(&path).expect("facts");
    assert!(!found.merged && found.warnings[0].contains("RPDT_CLOCKSYNC"), "{:?}", found.warnings);
}

/// The job with its true offsets.
fn request() -> Request {
    let beside = |name: String| made(0).with_file_name(name);
    Request {
        traces: (0..3).map(made).collect(),
        nodes: vec![0, 1, 2],
        clocks: ClockSource::Offsets(beside("offsets.csv".to_owned())),
        snapshots: (0..3).map(|node| beside(format!("node{node}.snapshot_pairs.jsonl"))).collect(),
        ..Request::default()
    }
}

#[test]
fn kernels_without_a_communicator_are_not_paired() {
    let calibrated = calibrate(&request()).expect("read");
    let verdict = check(&calibrated);
    let after = &verdict.result;
    assert_eq!((after.instances, after.ambiguous_instances, after.unpaired_parts), (0, 24, 0), "{}", verdict.text());
}

#[test]
fn aligned_kernels_begin_when_their_ranks_were_ready() {
    let truth = std::fs::read(made(0).with_file_name("truth.json")).expect("a file");
    let truth: serde_json::Value = serde_json::from_slice(&truth).expect("JSON");
    let folder = tempfile::tempdir().expect("a folder");
    let calibrated = calibrate(&request()).expect("read");
    let written = align(&calibrated, folder.path(), AlignSettings::default()).expect("outputs");
    for (rank, aligned) in written.enumerate() {
        let path = aligned.expect("written").output;
        assert_eq!(facts(&path).expect("facts").aligned_to.as_deref(), Some("system clock of node 0"));
        let connection = Connection::open(&path).expect("a database");
        let sql = "SELECT start FROM rocpd_op WHERE queueId = 1 ORDER BY id";
        let mut statement = connection.prepare(sql).expect("a statement");
        let starts = statement.query_map([], |row| row.get::<_, i64>(0)).expect("rows");
        let starts: Vec<i64> = starts.collect::<Result<_, _>>().expect("times");
        for (start, step) in starts.iter().zip(truth["steps"].as_array().expect("steps")) {
            let ready = step["ready_ns"][rank].as_i64().expect("a time");
            assert!((start - ready).abs() <= 2, "rank {rank}: {start} instead of {ready}");
        }
        assert_eq!(starts.len(), 24);
        assert_eq!(connection.query_row("SELECT count(*) FROM api", [], |row| row.get(0)), Ok(24 * 5 + 2));
    }
}

#[test]
fn the_monotonic_clock_alone_is_no_common_clock() {
    let untied = Request { snapshots: Vec::new(), ..request() };
    let said = calibrate(&untied).expect_err("nothing ties it").to_string();
    assert!(said.contains("CLOCK_MONOTONIC") && said.contains("--tracer-clock monotonic"), "{said}");
}

#[test]
fn traces_are_merged_for_viewers() {
    let folder = tempfile::tempdir().expect("a folder");
    let calibrated = calibrate(&request()).expect("read");
    for name in ["job.pftrace", "job.json"] {
        let output = folder.path().join(name);
        let report = merge(&calibrated, &output, MergeSettings::default()).expect("merged");
        assert!(report.traces.iter().all(|trace| trace.events > 200) && output.exists(), "{:?}", report.traces);
    }
    let refused = merge(&calibrated, &folder.path().join("job.rpd"), MergeSettings::default());
    let said = refused.expect_err("no such merge").to_string();
    assert!(said.contains(".pftrace"), "{said}");
}
