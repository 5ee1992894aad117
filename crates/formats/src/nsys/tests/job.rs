//! Facts of a job, and the way from its reports to a verdict.

use probe_sync_alignment::{ClockSource, MergeSettings, Request, calibrate, check, merge};

use super::*;
use crate::model::{CollectiveKind, Instance};

#[test]
fn a_report_tells_whose_it_is_and_what_it_did() {
    for rank in 0..3 {
        let found = facts(&made(rank)).expect("facts");
        assert_eq!(found.identity.hostname, Some(format!("gpu-{rank:02}")));
        assert_eq!((found.identity.rank, found.identity.world_size), (Some(rank), Some(3)));
        assert_eq!(found.notes, ["exported by Nsight Systems 2026.4, schema 3.28.1"]);
        assert_eq!((found.warnings.len(), found.collectives.len(), found.collectives.left_out()), (0, 24, 0));
        let labels: Vec<_> = found.collectives.labels().map(|(_, label, count)| (label.clone(), count)).collect();
        let [(label, 24)] = labels.as_slice() else { panic!("{labels:?}") };
        assert_eq!((label.name.as_str(), &label.kind), ("ncclAllReduce", &CollectiveKind::AllToAll));
        let Instance::Order { group: Some(group), signature } = &label.instance else { panic!("{label:?}") };
        assert_eq!((group.name.as_str(), group.size), ("communicator 0xf00dface12345678", Some(3)));
        assert_eq!(signature, "ncclAllReduce 4194304 bytes");
    }
    let old = facts(&made_2021()).expect("facts");
    assert_eq!((old.identity.hostname.as_deref(), old.identity.rank), (Some("gpu-01"), Some(1)));
    // Its payloads are not in the tables.
    assert_eq!((old.collectives.len(), old.communicators.len()), (3, 1));
    assert!(old.notes.iter().any(|note| note.contains("--include-blobs=true")), "{:?}", old.notes);
}

#[test]
fn one_report_of_several_ranks_belongs_to_none() {
    let other = (1_i64 << 48) | (77 << 24);
    let statements = format!("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = {other} WHERE rowid > 24");
    let (_folder, path) = changed(&made(1), &statements);
    let found = facts(&path).expect("facts");
    assert_eq!((found.identity.rank, found.collectives.len(), found.collectives.left_out()), (None, 0, 24));
    let notes = found.notes.join("\n");
    assert!(
        notes.contains("2 processes that ran kernels or MPI") && notes.contains("ignored 24 NCCL kernels"),
        "{notes}"
    );
}

#[test]
fn a_process_without_nccl_makes_a_report_one_of_several() {
    let other = (1_i64 << 48) | (77 << 24);
    let statements = format!(
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = {other}
            WHERE shortName NOT IN (SELECT id FROM StringIds WHERE value GLOB 'nccl*')"
    );
    let (_folder, path) = changed(&made(1), &statements);
    let found = facts(&path).expect("facts");
    assert_eq!((found.identity.rank, found.collectives.len(), found.collectives.left_out()), (None, 0, 24));
    assert!(found.notes.iter().any(|note| note.starts_with("ignored 24 NCCL kernels")), "{:?}", found.notes);
}

#[test]
fn kernels_without_plausible_times_are_counted() {
    let statements = "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 9223372036854775807
            WHERE shortName IN (SELECT id FROM StringIds WHERE value GLOB 'nccl*') AND correlationId =
            (SELECT min(correlationId) FROM CUPTI_ACTIVITY_KIND_KERNEL
                WHERE shortName IN (SELECT id FROM StringIds WHERE value GLOB 'nccl*'))";
    let (_folder, path) = changed(&made(1), statements);
    let found = facts(&path).expect("facts");
    assert_eq!((found.collectives.len(), found.collectives.left_out(), found.notes.len()), (23, 1, 2));
    assert!(found.notes.iter().any(|note| note.starts_with("ignored 1 NCCL kernels")), "{:?}", found.notes);
}

#[test]
fn only_ranges_of_one_thread_are_calls() {
    let (_folder, path) = changed(&made(0), "UPDATE NVTX_EVENTS SET eventType = 60 WHERE rowid = 4");
    let found = facts(&path).expect("facts");
    assert!(
        found.notes.iter().any(|note| note.starts_with("1 NCCL kernels could not be assigned")),
        "{:?}",
        found.notes
    );
}

#[test]
fn ranks_of_mpi_count_before_the_environment() {
    let thread = (1_i64 << 48) | (4001 << 24) | 4001;
    let statements = format!(
        "CREATE TABLE MPI_RANKS (globalTid INTEGER NOT NULL, rank INTEGER NOT NULL); INSERT INTO MPI_RANKS VALUES ({thread}, 2)"
    );
    let (_folder, path) = changed(&made(1), &statements);
    let found = facts(&path).expect("facts");
    assert_eq!(found.identity.rank, Some(2));
    assert!(found.warnings[0].contains("MPI_COMM_WORLD_RANK 2 and RANK 1"), "{:?}", found.warnings);
}

#[test]
fn kernels_of_a_group_of_several_operations_name_no_communicator() {
    let statements = "INSERT INTO StringIds VALUES (800, 'ncclGroupStart'), (801, 'ncclGroupEnd');
        UPDATE NVTX_EVENTS SET start = start - 40, end = start - 30 WHERE rowid = 4;
        INSERT INTO NVTX_EVENTS (start, end, eventType, textId, globalTid, domainId, eventId)
            SELECT start - 20, start - 10, 59, 800, globalTid, 1, 800 FROM NVTX_EVENTS WHERE rowid = 4;
        INSERT INTO NVTX_EVENTS (start, end, eventType, textId, globalTid, domainId, binaryData, eventId)
            SELECT start + 15, start + 16, 59, textId, globalTid, 1, binaryData, 801 FROM NVTX_EVENTS WHERE rowid = 4;
        INSERT INTO NVTX_EVENTS (start, end, eventType, textId, globalTid, domainId, eventId)
            SELECT start + 20, start + 20000, 59, 801, globalTid, 1, 802 FROM NVTX_EVENTS WHERE rowid = 4;";
    let (_folder, path) = changed(&made(0), statements);
    let found = facts(&path).expect("facts");
    assert_eq!((found.collectives.len(), found.communicators.len()), (24, 2));
    assert!(
        found.notes.iter().any(|note| note.starts_with("1 NCCL kernels could not be assigned")),
        "{:?}",
        found.notes
    );
}

/// The job with its true offsets.
fn request() -> Request {
    Request {
        traces: (0..3).map(made).collect(),
        nodes: vec![0, 1, 2],
        clocks: ClockSource::Offsets(made(0).with_file_name("offsets.csv")),
        ..Request::default()
    }
}

#[test]
fn true_offsets_repair_every_edge_of_the_job() {
    let calibrated = calibrate(&request()).expect("read");
    let verdict = check(&calibrated);
    let before = verdict.before.as_ref().expect("raw times");
    assert!(before.broken > 20 && before.worst_ns > 10_000_000.0, "{}", verdict.text());
    let after = &verdict.result;
    let counts = (after.instances, after.edges, after.broken, after.ambiguous_instances, after.unpaired_parts);
    assert_eq!(counts, (24, 72, 0, 0, 0), "{}", verdict.text());
}

#[test]
fn reports_are_merged_for_viewers() {
    let folder = tempfile::tempdir().expect("a folder");
    let calibrated = calibrate(&request()).expect("read");
    for name in ["job.pftrace", "job.json"] {
        let output = folder.path().join(name);
        let report = merge(&calibrated, &output, MergeSettings::default()).expect("merged");
        assert!(report.traces.iter().all(|trace| trace.events > 250) && output.exists(), "{:?}", report.traces);
    }
    let refused = merge(&calibrated, &folder.path().join("job.sqlite"), MergeSettings::default());
    let said = refused.expect_err("no such merge").to_string();
    assert!(said.contains(".pftrace"), "{said}");
}
