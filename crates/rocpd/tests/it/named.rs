//! Events with names instead of ids, and files that are committed on request.

use std::path::Path;
use std::time::Duration;

use probe_sync_rocpd::writer::{
    Agent, Error, NamedEvent, NamedKind, NamedWriter, Process, Region, Report, Settings, Writer,
};

use crate::writer::{check_alone, check_whole, number, read};

/// Commits nothing on its own account.
fn lazy(folder: &Path) -> Settings {
    let output = folder.join("results.db");
    Settings { output, flush_interval: Duration::from_secs(3600), flush_rows: 1 << 20, ..Settings::default() }
}

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn names_are_defined_once_and_found_in_the_views() {
    let folder = tempfile::tempdir().expect("a folder");
    let writer = NamedWriter::open(lazy(folder.path()), Process::current()).expect("a writer");
    let [first, second] =
        [0, 1].map(|index| writer.agent(Agent { absolute_index: index, name: "gfx942".into(), ..Agent::default() }));
    let event = |kind, name| NamedEvent { kind, name, start_ns: 10, end_ns: 30, ..NamedEvent::default() };
    let kernel = event(NamedKind::Kernel, "gemm");
    let on = |agent, queue| NamedEvent { agent: Some(agent), queue, ..kernel };
    let copy = event(NamedKind::MemoryCopy, "MEMORY_COPY_DEVICE_TO_DEVICE");
    let events = [
        event(NamedKind::Region, "step"),
        NamedEvent { category: Some("HIP_RUNTIME_API"), thread: Some(12), ..event(NamedKind::Region, "hipMalloc") },
        on(first, Some("Queue 1")),
        on(first, Some("Queue 1")),
        on(second, None),
        NamedEvent { agent: Some(first), destination: Some(second), bytes: 4096, stream: Some("Stream 1"), ..copy },
        NamedEvent { agent: Some(first), value: 512.5, ..event(NamedKind::Counter, "power") },
        NamedEvent { value: 1.0, ..event(NamedKind::Counter, "power") },
        event(NamedKind::Sample, "checkpoint"),
    ];
    for event in &events {
        assert!(writer.record(event).expect("a valid event"), "{event:?}");
    }
    let report = writer.finish().expect("a report");
    assert_eq!((report.events, report.dropped), (events.len() as u64, 0));
    let connection = read(&report.path);
    for (query, expected) in [
        ("SELECT count(*) FROM regions WHERE name = 'step' AND category = 'MARKER_RANGE'", 1),
        ("SELECT tid FROM regions WHERE category = 'HIP_RUNTIME_API'", 12),
        ("SELECT count(*) FROM kernels WHERE name = 'gemm' AND duration = 20", 3),
        ("SELECT count(*) FROM kernels WHERE queue = 'Queue 1' AND agent_abs_index = 0", 2),
        ("SELECT count(*) FROM rocpd_info_kernel_symbol", 2),
        ("SELECT count(*) FROM rocpd_info_queue WHERE name = 'Queue 1'", 1),
        ("SELECT size FROM memory_copies WHERE stream_name = 'Stream 1'", 4096),
        ("SELECT count(*) FROM rocpd_info_pmc", 2),
        ("SELECT count(*) FROM rocpd_track", 2),
        ("SELECT count(*) FROM rocpd_pmc_event WHERE value = 512.5", 1),
    ] {
        assert_eq!(number(&connection, query), expected, "{query}");
    }
    drop(connection);
    check_whole(&report.path);
    check_alone(&report.path);
}

#[test]
fn agents_are_added_before_they_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let writer = NamedWriter::open(lazy(folder.path()), Process::current()).expect("a writer");
    let kernel = NamedEvent { kind: NamedKind::Kernel, name: "gemm", ..NamedEvent::default() };
    for agent in [None, Some(0), Some(1)] {
        let refused = writer.record(&NamedEvent { agent, ..kernel });
        assert!(matches!(refused, Err(Error::Agent { agent: named, .. }) if named == agent), "{refused:?}");
    }
    assert_eq!(writer.finish().expect("a report").events, 0);
}

#[test]
fn what_was_recorded_is_in_the_file_after_a_flush() {
    const EVENTS: i64 = 100_000;
    let folder = tempfile::tempdir().expect("a folder");
    let settings = Settings { buffer_events: EVENTS as usize * 2, ..lazy(folder.path()) };
    for flush_rows in [1 << 20, 1_000] {
        let output = folder.path().join(format!("{flush_rows}.db"));
        let settings = Settings { output, flush_rows, ..settings.clone() };
        let writer = Writer::open(settings, Process::current()).expect("a writer");
        let (name, thread) = (writer.intern("step"), writer.thread(1, None));
        let record = || (0..EVENTS).all(|start_ns| thread.region(Region { start_ns, name, ..Region::default() }));
        for flushes in 1..=2 {
            assert!(record(), "nothing is dropped");
            writer.flush(LIMIT).expect("committed");
            assert_eq!(number(&read(writer.path()), "SELECT count(*) FROM rocpd_region"), flushes * EVENTS);
        }
        let Report { events, dropped, .. } = writer.finish().expect("a report");
        assert_eq!((events, dropped), (2 * EVENTS as u64, 0));
    }
}
