//! What the writer has written, read by SQLite: every row, while it writes and afterwards.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use probe_sync_rocpd::schema;
use probe_sync_rocpd::writer::{
    Agent, AgentKind, Argument, CodeObject, CounterDefinition, CounterValue, End, Error, Hardware, Journal, Kernel,
    KernelSymbol, Links, MemoryAllocation, MemoryCopy, MemoryOperation, Process, Region, Report, Sample, Settings,
    Source, Writer, message,
};
use rusqlite::{Connection, OpenFlags};

pub(crate) fn settings(folder: &Path) -> Settings {
    Settings { output: folder.join("%hostname%/%pid%_results.db"), ..Settings::default() }
}

/// Without write permission and without changing anything, as a reader of another process.
pub(crate) fn read(path: &Path) -> Connection {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("a database");
    connection.busy_timeout(Duration::from_secs(10)).expect("a number");
    connection
}

pub(crate) fn number(connection: &Connection, query: &str) -> i64 {
    connection.query_row(query, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{query}: {error}"))
}

/// No row refers to nothing, no page is damaged, and nothing lies beside.
pub(crate) fn check_whole(path: &Path) {
    let connection = read(path);
    let text: String = connection.query_row("PRAGMA quick_check", [], |row| row.get(0)).expect("an answer");
    assert_eq!(text, "ok");
    let mut broken = connection.prepare("PRAGMA foreign_key_check").expect("a pragma");
    assert!(!broken.exists([]).expect("an answer"), "a row refers to nothing");
}

pub(crate) fn check_alone(path: &Path) {
    for ending in ["-wal", "-shm", "-journal"] {
        let beside = PathBuf::from(format!("{}{ending}", path.display()));
        assert!(!beside.exists(), "{}", beside.display());
    }
    let mode: String = read(path).query_row("PRAGMA journal_mode", [], |row| row.get(0)).expect("a mode");
    assert_eq!(mode, "delete");
}

/// Some of everything, with sums that the views must give.
pub(crate) fn record_all(writer: &Writer, count: i64) {
    let names = ["step", "MARKER_RANGE", "KERNEL_DISPATCH", "MEMORY_COPY_HOST_TO_DEVICE", "MEMORY_COPY", "rss", "hit"];
    let [step, marker, dispatch, to_device, copy, rss, hit] = names.map(|name| writer.intern(name));
    let thread = writer.thread(100, Some("main"));
    let cpu = writer.agent(Agent { kind: AgentKind::Cpu, name: "cpu".to_owned(), ..Agent::default() });
    let hardware = Hardware {
        multiprocessors: 304,
        clock_mhz: 2100,
        memory_bytes: 192 << 30,
        capability: 90402,
        caches: vec![(1, 32), (2, 4096)],
        ..Hardware::default()
    };
    let gpu = writer.agent(Agent { absolute_index: 1, name: "gfx942".to_owned(), hardware, ..Agent::default() });
    let (queue, stream) = (writer.queue("Queue 1"), writer.stream("Stream 1"));
    let code_object = writer.code_object(CodeObject { agent: gpu, uri: "memory://1".to_owned() });
    let kernel = writer.kernel_symbol(KernelSymbol {
        code_object,
        kernel_name: "gemm.kd".to_owned(),
        display_name: "gemm".to_owned(),
    });
    let counter =
        writer.counter(CounterDefinition { name: "RSS".to_owned(), symbol: "rss".to_owned(), ..Default::default() });
    let track = writer.track("memory", &thread);
    for at in 0..count {
        let links = Links { stack_id: at, ..Links::default() };
        let region = Region { start_ns: at, end_ns: at + 3, name: step, category: marker, links, ..Region::default() };
        let argument = Argument { kind: "int".into(), name: "count".into(), value: at.to_string() };
        let extdata = message("m");
        let call_stack = vec!["inner (a.rs:7)".to_owned(), "outer".to_owned()];
        let source = Some(Box::new(Source { call_stack, file: "a.rs".to_owned(), line: 7 }));
        assert!(thread.region(Region { arguments: Box::new([argument]), extdata, source, ..region }));
        let operation = if at % 2 == 0 { MemoryOperation::Allocate } else { MemoryOperation::Free };
        let allocation =
            MemoryAllocation { start_ns: at, end_ns: at + 2, operation, agent: Some(gpu), ..Default::default() };
        assert!(thread.memory_allocation(MemoryAllocation { address: 4096, size: 64, ..allocation }));
        assert!(thread.kernel(Kernel {
            start_ns: at,
            end_ns: at + 5,
            category: dispatch,
            region: step,
            queue,
            stream,
            dispatch_id: at,
            links,
            workgroup: [64, 1, 1],
            grid: [256, 2, 1],
            ..Kernel::new(kernel, gpu)
        }));
        assert!(thread.memory_copy(MemoryCopy {
            start_ns: at,
            end_ns: at + 7,
            name: to_device,
            category: copy,
            size: 1024,
            stream: Some(stream),
            links,
            ..MemoryCopy::new(End { agent: cpu, address: 1 }, End { agent: gpu, address: 2 })
        }));
        assert!(thread.counter(CounterValue { at_ns: at, track, counter, category: rss, value: at as f64 }));
        let argument = Argument { kind: "int".into(), name: "hits".into(), value: at.to_string() };
        assert!(thread.sample(Sample { category: hit, arguments: Box::new([argument]), ..Sample::new(track, at) }));
    }
    writer.thread_span(&thread, [5, 5 + count]);
}

fn check_all(report: &Report, count: i64) {
    let connection = read(&report.path);
    assert_eq!((report.events, report.rows), (6 * count as u64, 15 * count as u64));
    assert_eq!((report.dropped, report.problem.as_deref()), (0, None));
    for (query, expected) in [
        ("SELECT count(*) FROM regions WHERE name = 'step' AND category = 'MARKER_RANGE' AND tid = 100", count),
        ("SELECT sum(duration) FROM regions", 3 * count),
        ("SELECT count(*) FROM regions WHERE json_extract(extdata, '$.message') = 'm'", count),
        ("SELECT sum(value) FROM region_args WHERE name = 'count'", count * (count - 1) / 2),
        ("SELECT sum(duration) FROM kernels WHERE name = 'gemm' AND region = 'step' AND queue = 'Queue 1'", 5 * count),
        ("SELECT sum(duration) FROM memory_copies WHERE src_agent_type = 'CPU' AND dst_device = 'gfx942'", 7 * count),
        ("SELECT sum(size) FROM memory_copies", 1024 * count),
        ("SELECT count(*) FROM samples WHERE name = 'memory'", 2 * count),
        ("SELECT CAST(sum(value) AS INTEGER) FROM rocpd_pmc_event", count * (count - 1) / 2),
        ("SELECT count(*) FROM threads WHERE name = 'main'", 1),
        ("SELECT count(*) FROM rocpd_event", 6 * count),
        ("SELECT count(*) FROM rocpd_event WHERE call_stack ->> 1 = 'outer' AND line_info ->> 'line' = 7", count),
        ("SELECT count(*) FROM rocpd_event WHERE call_stack = '{}' AND line_info = '{}'", 5 * count),
        ("SELECT sum(A.value) FROM rocpd_arg A JOIN rocpd_sample S USING (event_id)", count * (count - 1) / 2),
        ("SELECT count(*) FROM memory_allocations WHERE type = 'ALLOC' AND level = 'REAL'", (count + 1) / 2),
        ("SELECT sum(size) FROM memory_allocations WHERE agent_name = 'gfx942'", 64 * count),
        ("SELECT extdata ->> 'cu_count' FROM rocpd_info_agent WHERE type = 'GPU'", 304),
        ("SELECT extdata ->> 'local_mem_size' FROM rocpd_info_agent WHERE type = 'GPU'", 192 << 30),
        ("SELECT extdata ->> '$.caches[1].size' FROM rocpd_info_agent WHERE type = 'GPU'", 4096),
        ("SELECT count(*) FROM rocpd_info_agent WHERE type = 'CPU' AND extdata = '{}'", 1),
        ("SELECT \"end\" - start FROM rocpd_info_thread", count),
        ("SELECT count(*) FROM processes WHERE start < \"end\" AND fini = \"end\"", 1),
        ("SELECT value FROM rocpd_metadata WHERE tag = 'schema_version_major'", 3),
        ("SELECT value FROM rocpd_metadata WHERE tag = 'probe_sync_dropped'", 0),
    ] {
        let found = connection.query_row(query, [], |row| row.get::<_, rusqlite::types::Value>(0)).expect(query);
        let found = match found {
            rusqlite::types::Value::Text(text) => text.parse().expect("a number"),
            rusqlite::types::Value::Integer(number) => number,
            rusqlite::types::Value::Real(number) => number as i64,
            other => panic!("{query}: {other:?}"),
        };
        assert_eq!(found, expected, "{query}");
    }
    check_whole(&report.path);
    check_alone(&report.path);
}

#[test]
fn everything_that_was_recorded_is_in_the_views() {
    for (journal, count) in
        [(None, 1_000), (Some(Journal::Rollback), 1_000), (Some(Journal::WriteAhead), 1), (None, 63)]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let writer =
            Writer::open(Settings { journal, ..settings(folder.path()) }, Process::current()).expect("a writer");
        record_all(&writer, count);
        let report = writer.finish().expect("a report");
        if let Some(journal) = journal {
            assert_eq!(report.journal, journal);
        }
        assert!(report.stands_alone);
        check_all(&report, count);
    }
}

#[test]
fn a_file_that_is_there_is_never_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = Writer::open(settings(folder.path()), Process::current()).expect("a writer");
    let path = first.path().to_owned();
    first.finish().expect("a report");
    let before = std::fs::read(&path).expect("the file");
    let second = Writer::open(settings(folder.path()), Process::current()).expect_err("refused");
    assert!(matches!(&second, Error::Exists { path: named } if *named == path), "{second}");
    assert_eq!(std::fs::read(&path).expect("the file"), before);
}

#[test]
fn events_that_name_nothing_refer_to_the_defaults() {
    let folder = tempfile::tempdir().expect("a folder");
    let writer =
        Writer::open(Settings { flush_rows: 0, ..settings(folder.path()) }, Process::current()).expect("a writer");
    let thread = writer.thread(1, None);
    let agent = writer.agent(Agent::default());
    let code_object = writer.code_object(CodeObject { agent, uri: String::new() });
    let (kernel_name, display_name) = (String::new(), "k".to_owned());
    let kernel = writer.kernel_symbol(KernelSymbol { code_object, kernel_name, display_name });
    assert!(thread.region(Region { name: writer.intern(""), ..Region::default() }));
    assert!(thread.kernel(Kernel::new(kernel, agent)));
    let report = writer.finish().expect("a report");
    check_whole(&report.path);
    let connection = read(&report.path);
    assert_eq!(number(&connection, "SELECT count(*) FROM regions WHERE name = '' AND category = ''"), 1);
    let query = "SELECT count(*) FROM kernels WHERE queue = 'Default Queue' AND stream = 'Default Stream'";
    assert_eq!(number(&connection, query), 1);
}

#[test]
fn a_guid_that_is_none_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    for guid in ["", "a\"b", "a b"] {
        let process = Process { guid: guid.to_owned(), ..Process::current() };
        let refused = Writer::open(settings(folder.path()), process).expect_err("refused");
        assert!(matches!(refused, Error::Guid { .. }), "{refused}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing was made");
}

#[test]
fn a_place_that_takes_no_file_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let output = file.join("%pid%.db");
    let refused = Writer::open(Settings { output, ..Settings::default() }, Process::current()).expect_err("refused");
    assert!(refused.to_string().contains(&file.display().to_string()), "{refused}");
}

/// Rows that the reader of another process waits for.
pub(crate) const READ_MEANWHILE: i64 = 30_000;

/// What the reader does: looks again and again, until the last row is there.
pub(crate) fn read_meanwhile(path: &Path) {
    let reader = read(path);
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut before = 0;
    while before < READ_MEANWHILE {
        let now = number(&reader, "SELECT count(*) FROM regions");
        assert!(now >= before, "committed rows stay");
        assert!(Instant::now() < deadline, "{now} of {READ_MEANWHILE} rows could be read");
        before = now;
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A second process sees all that was recorded before the writer is told to end.
fn read_while_written(journal: Journal) {
    let folder = tempfile::tempdir().expect("a folder");
    let flush_interval = Duration::from_millis(50);
    let own = Settings { journal: Some(journal), flush_interval, flush_rows: 1_000, ..settings(folder.path()) };
    let writer = Writer::open(own, Process::current()).expect("a writer");
    let (name, category) = (writer.intern("step"), writer.intern("MARKER_RANGE"));
    let thread = writer.thread(1, None);
    let reader = crate::faults::role("read meanwhile", writer.path(), None).stdout(Stdio::piped()).spawn();
    for at in 0..READ_MEANWHILE {
        thread.region(Region { start_ns: at, end_ns: at + 1, name, category, ..Region::default() });
    }
    crate::faults::check_played(&reader.expect("a child").wait_with_output().expect("our own child"));
    let report = writer.finish().expect("a report");
    assert_eq!((report.events, report.dropped), (READ_MEANWHILE as u64, 0));
    assert!(report.commits >= 2 * READ_MEANWHILE as u64 / 1_000, "{report:?}");
    check_whole(&report.path);
}

#[test]
fn rows_can_be_read_while_it_writes() {
    read_while_written(Journal::WriteAhead);
    read_while_written(Journal::Rollback);
}

/// Many threads at once, each with a recorder of its own, and all with one.
#[test]
fn threads_do_not_lose_events() {
    const THREADS: i64 = 8;
    const EVENTS: i64 = 5_000;
    let folder = tempfile::tempdir().expect("a folder");
    let writer = Writer::open(settings(folder.path()), Process::current()).expect("a writer");
    let category = writer.intern("MARKER_RANGE");
    let common = writer.thread(1, Some("common"));
    let recorded = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (writer, common) = (&writer, &common);
                scope.spawn(move || {
                    let own = writer.thread(100 + number, None);
                    let name = writer.intern(&format!("of {number}"));
                    let region = |at| Region { start_ns: at, end_ns: at + 1, name, category, ..Region::default() };
                    (0..EVENTS).filter(|at| own.region(region(*at))).count()
                        + (0..EVENTS).filter(|at| common.region(region(*at))).count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<usize>()
    });
    let report = writer.finish().expect("a report");
    assert_eq!(report.events, recorded as u64);
    assert_eq!(report.events + report.dropped, (2 * THREADS * EVENTS) as u64);
    let connection = read(&report.path);
    assert_eq!(number(&connection, "SELECT count(*) FROM regions"), recorded as i64);
    assert_eq!(number(&connection, "SELECT count(DISTINCT name) FROM regions"), THREADS);
    check_whole(&report.path);
}

/// Names as programs have them, and threads that come and go: everything is written as it was
/// given.
#[test]
fn odd_names_and_short_threads_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let writer = Writer::open(settings(folder.path()), Process::current()).expect("a writer");
    let long = "x".repeat(100_000);
    let names = [
        "it's",
        "\"quoted\"",
        "a\0b",
        "%s; DROP TABLE rocpd_string",
        "\u{1f600}\u{301}",
        "\n\t\\",
        &long,
        "void f<int>(T*)",
    ];
    for (at, text) in names.iter().enumerate() {
        let thread = writer.thread(at as i64, Some(text));
        let (name, extdata) = (writer.intern(text), message(text));
        let argument =
            Argument { kind: (*text).to_owned().into(), name: (*text).to_owned().into(), value: (*text).to_owned() };
        assert!(thread.region(Region { name, extdata, arguments: Box::new([argument]), ..Region::default() }));
    }
    let report = writer.finish().expect("a report");
    let connection = read(&report.path);
    let query = "SELECT R.name, T.name, A.type, A.name, A.value, json_extract(R.extdata, '$.message') FROM regions R
                 JOIN threads T ON T.tid = R.tid JOIN region_args A ON A.id = R.id ORDER BY R.tid";
    let mut statement = connection.prepare(query).expect(query);
    let rows = statement.query_map([], |row| (0..6).map(|at| row.get::<_, String>(at)).collect::<Result<Vec<_>, _>>());
    let rows: Vec<Vec<String>> = rows.expect(query).collect::<Result<_, _>>().expect(query);
    assert_eq!(rows.len(), names.len());
    for (cells, text) in rows.iter().zip(names) {
        assert!(cells.iter().all(|cell| cell == text), "{text:?}: {cells:?}");
    }
    check_whole(&report.path);
}

/// One buffer of four events and a writer that comes late: what did not fit is counted, in the
/// report and in the file.
#[test]
fn what_finds_no_room_is_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = Settings { buffer_events: 4, flush_interval: Duration::from_secs(60), ..settings(folder.path()) };
    let writer = Writer::open(own, Process::current()).expect("a writer");
    let (name, category) = (writer.intern("step"), writer.intern("MARKER_RANGE"));
    let thread = writer.thread(1, None);
    let kept = (0..100_000).filter(|_| thread.region(Region { name, category, ..Region::default() })).count() as u64;
    assert_eq!(writer.dropped(), 100_000 - kept);
    let report = writer.finish().expect("a report");
    assert!(!thread.region(Region { name, category, ..Region::default() }), "nothing comes after the end");
    assert_eq!((report.events, report.dropped), (kept, 100_000 - kept));
    let connection = read(&report.path);
    assert_eq!(number(&connection, "SELECT count(*) FROM rocpd_region"), kept as i64);
    let in_file =
        number(&connection, "SELECT CAST(value AS INTEGER) FROM rocpd_metadata WHERE tag = 'probe_sync_dropped'");
    assert_eq!(in_file as u64, report.dropped);
}

/// A panic that unwinds over the writer ends the file.
#[test]
fn a_panic_leaves_a_whole_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let writer = Writer::open(settings(folder.path()), Process::current()).expect("a writer");
    let path = writer.path().to_owned();
    let panicked = std::thread::spawn(move || {
        let (name, category) = (writer.intern("step"), writer.intern("MARKER_RANGE"));
        let thread = writer.thread(1, None);
        assert!(thread.region(Region { name, category, ..Region::default() }));
        panic!("as the test wants");
    });
    assert!(panicked.join().is_err());
    assert_eq!(number(&read(&path), "SELECT count(*) FROM regions"), 1);
    check_whole(&path);
    check_alone(&path);
}

/// What rocprofv3's reader of 2026 demands of a database before it opens it; the tables'
/// definitions are compared in `schema`.
#[test]
fn a_file_holds_what_rocprofv3s_reader_of_2026_demands() {
    let folder = tempfile::tempdir().expect("a folder");
    let writer = Writer::open(settings(folder.path()), Process::current()).expect("a writer");
    record_all(&writer, 10);
    let path = writer.finish().expect("a report").path;
    check_alone(&path);
    let connection = read(&path);
    let texts = |query: &str| -> Vec<String> {
        let mut statement = connection.prepare(query).expect(query);
        let rows = statement.query_map([], |row| row.get(0)).expect(query);
        rows.collect::<Result<_, _>>().expect(query)
    };
    let objects = |kind: &str| {
        texts(&format!(
            "SELECT name FROM sqlite_master WHERE type = '{kind}' AND name NOT GLOB 'sqlite_*' ORDER BY name"
        ))
    };
    assert_eq!((objects("index"), objects("trigger")), (vec![], vec![]));
    let suffix = texts("SELECT value FROM rocpd_metadata WHERE tag = 'uuid'").concat();
    let guid = texts("SELECT value FROM rocpd_metadata WHERE tag = 'guid'").concat();
    assert_eq!(suffix, schema::suffix_of(&guid));
    let mut expected: Vec<String> = schema::BASE_TABLES.iter().map(|base| format!("{base}{suffix}")).collect();
    expected.sort();
    assert_eq!(objects("table"), expected);
    // Views may be missing, and none may be there that it does not know.
    let mut known: Vec<&str> = crate::schema::FACTS.lines().filter_map(|line| line.strip_prefix("view ")).collect();
    known.iter_mut().for_each(|line| *line = line.split(' ').next().unwrap_or(line));
    assert!(objects("view").iter().all(|view| known.contains(&view.as_str())), "{:?}", objects("view"));
    let tags = texts("SELECT tag FROM rocpd_metadata ORDER BY id");
    let demanded =
        ["schema_version", "schema_version_major", "schema_version_minor", "schema_version_patch", "uuid", "guid"];
    for tag in demanded {
        assert_eq!(tags.iter().filter(|found| *found == tag).count(), 1, "{tag}: {tags:?}");
    }
    assert_eq!(texts("SELECT value FROM rocpd_metadata WHERE tag = 'schema_version'"), ["3.0.0"]);
    let guids = texts("SELECT DISTINCT guid FROM regions UNION SELECT DISTINCT guid FROM kernels");
    assert_eq!(guids, [guid]);
}
