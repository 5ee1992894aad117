//! `query` over databases of rocprofv3: sums, times, few open files, and what is refused.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use probe_sync_rocpd::schema::{self, BASE_TABLES, Version};
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::boot_clock::{Set, run};
use crate::support::{complaint, output, probe_sync, text, wait};

/// The rows of a query as JSON.
fn rows(traces: &[PathBuf], sql: &str, flags: &[&str], files: &[(&str, &[PathBuf])]) -> Vec<Value> {
    let done = run("query", traces, &[&["--sql", sql, "--format", "json"], flags].concat(), files);
    assert!(done.status.success(), "{sql}: {}", complaint(&done));
    serde_json::from_slice(&done.stdout).expect("JSON")
}

/// The only number of a query's only row.
fn number(traces: &[PathBuf], sql: &str) -> i64 {
    let rows = rows(traces, sql, &["--no-correction"], &[]);
    rows[0].as_object().expect("an object").values().next().and_then(Value::as_i64).expect("a number")
}

fn refused(traces: &[PathBuf], sql: &str, flags: &[&str], status: i32) -> String {
    let done = run("query", traces, &[&["--sql", sql], flags].concat(), &[]);
    assert_eq!(done.status.code(), Some(status), "{sql}: {}", complaint(&done));
    complaint(&done)
}

#[test]
fn a_statement_that_has_no_end_is_given_up() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("one.db");
    made(&path, 0, "a");
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    let said = refused(&[path], endless, &["--no-correction", "--timeout", "200ms"], 1);
    assert!(said.contains("aborted after 200ms"), "{said}");
}

#[test]
fn the_copy_of_a_database_with_a_journal_is_nobody_elses_and_ends_with_the_command() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| folder.path().join(name);
    made(&at("writing.db"), 0, "a");
    let writing = Connection::open(at("writing.db")).expect("a database");
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 5000) INSERT INTO filler SELECT randomblob(200) FROM n";
    let begin = "CREATE TABLE filler (x); INSERT INTO filler SELECT randomblob(9000); PRAGMA cache_size = 5; BEGIN; UPDATE filler SET x = randomblob(9000);";
    writing.execute_batch(&format!("{begin} {fill}")).expect("a transaction that does not end");
    for ending in ["", "-journal"] {
        std::fs::copy(at(&format!("writing.db{ending}")), at(&format!("found.db{ending}"))).expect("as after a crash");
    }
    drop(writing);
    let temporary = at("tmp");
    std::fs::create_dir(&temporary).expect("a folder");
    let copies = || std::fs::read_dir(&temporary).expect("ours").map(|entry| entry.expect("ours").path());
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    let query = |more: &[&str]| {
        let mut command = probe_sync(&["query", "--no-correction", "--sql", endless]);
        command.args(more).arg("--traces").arg(at("found.db")).env("TMPDIR", &temporary);
        command
    };
    for signal in [Signal::TERM, Signal::INT] {
        let mut child = query(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let copy = loop {
            if let Some(copy) = copies().find(|copy| copy.join("copy.db").exists()) {
                break copy;
            }
            assert!(child.try_wait().expect("our own child").is_none(), "it ended before anybody saw its copy");
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(std::fs::metadata(&copy).expect("it is there").permissions().mode() & 0o777, 0o700);
        kill_process(Pid::from_child(&child), signal).expect("our own child");
        let ended = wait(child);
        assert_eq!(ended.status.signal(), Some(signal.as_raw()), "{}", complaint(&ended));
        assert_eq!(copies().count(), 0, "nothing is left");
    }
    let given_up = output(query(&["--timeout", "200ms"]));
    assert!(complaint(&given_up).contains("aborted after 200ms"), "{}", complaint(&given_up));
    assert_eq!(copies().count(), 0, "nothing is left");
}

/// A database of a process with three threads, twenty allocations, regions and dispatches, its pid
/// and machine as all others' are.
fn made(path: &Path, at: usize, host: &str) {
    let guid = format!("{at:08x}-0000-7000-8000-000000000000");
    let connection = Connection::open(path).expect("a new file");
    connection.execute_batch("PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF; BEGIN").expect("settings");
    let s = schema::suffix_of(&guid);
    for table in schema::tables(&s, &guid) {
        connection.execute_batch(&table.sql).expect("a table");
    }
    for base in BASE_TABLES {
        connection.execute_batch(&schema::union_view(base, &[&s])).expect("a view");
    }
    for (tag, value) in schema::tags(Version::Three, &s, &guid, "") {
        let insert = format!("INSERT INTO \"rocpd_metadata{s}\" (tag, value) VALUES (?1, ?2)");
        connection.execute(&insert, (tag, value)).expect("a tag");
    }
    let size = at + 1;
    let mut sql = format!(
        "INSERT INTO rocpd_info_node{s} (id, hash, machine_id, hostname) VALUES (7, 7, 'clone', '{host}');
         INSERT INTO rocpd_info_process{s} (id, nid, pid, start, \"end\", environment) VALUES (100, 7, 100, 5, 0, '{{\"RANK\": \"{at}\", \"WORLD_SIZE\": \"100\"}}');
         INSERT INTO rocpd_info_agent{s} (id, nid, pid, type, absolute_index) VALUES (1, 7, 100, 'GPU', 1);
         INSERT INTO rocpd_string{s} (id, string) VALUES (1, 'MEMORY_ALLOCATION'), (2, 'step');"
    );
    write!(
        sql,
        "WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n LIMIT 3)
         INSERT INTO rocpd_info_thread{s} (id, nid, pid, tid) SELECT i, 7, 100, i FROM n;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20)
         INSERT INTO rocpd_event{s} (id, category_id) SELECT i, 1 FROM n;
         INSERT INTO rocpd_memory_allocate{s} (nid, pid, tid, agent_id, type, level, start, \"end\", size, event_id)
         SELECT 7, 100, 100 + id % 3, 1, 'ALLOC', 'REAL', id, id + 1, {size}, id FROM rocpd_event{s};
         INSERT INTO rocpd_region{s} (nid, pid, tid, start, \"end\", name_id, event_id)
         SELECT 7, 100, 100 + id % 3, 1000 * id, 1000 * id + {size}, 2, id FROM rocpd_event{s}; COMMIT"
    )
    .expect("text");
    connection.execute_batch(&sql).expect("rows");
}

/// Databases of `count` processes, two to a host.
fn made_all(folder: &Path, count: usize) -> Vec<PathBuf> {
    (0..count)
        .map(|at| {
            let path = folder.join(format!("{at:03}_results.db"));
            made(&path, at, &format!("host{}", at / 2));
            path
        })
        .collect()
}

#[test]
fn times_are_those_that_align_writes() {
    for (name, nodes) in [("a_2node", 2), ("b_4node_offset_drift", 4)] {
        let Some(set) = Set::find(name, nodes) else { return };
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let (pairs, offsets) = (set.all_pairs(scratch.path()), [set.offsets()]);
        let clocks: [(&str, &[PathBuf]); 2] = [("--offsets", &offsets), ("--snapshots", &pairs)];
        let aligned = [scratch.path().join("aligned")];
        let files = [&clocks[..], &[("--output", &aligned[..])]].concat();
        let done = run("align", &set.databases(), &["--assume-order"], &files);
        assert!(done.status.success(), "{}", complaint(&done));
        for (table, columns) in [
            ("rocpd_region", "guid, id, start, \"end\""),
            ("rocpd_sample", "guid, id, timestamp"),
            ("rocpd_info_process", "guid, id, init, fini, start, \"end\""),
            ("rocpd_kernel_dispatch", "guid, id, start, \"end\""),
        ] {
            let sql = format!("SELECT {columns} FROM {table} ORDER BY guid, id");
            let asked = rows(&set.databases(), &sql, &["--assume-order"], &clocks);
            let written = rows(&aligned, &sql, &[], &[]);
            assert!(asked == written && (table != "rocpd_region" || asked.len() > 50 * nodes), "{name}: {table}");
        }
        // What the files themselves say, by host and all together.
        let each =
            rows(&aligned, "SELECT file, count(*) n, sum(\"end\" - start) ns FROM regions GROUP BY file", &[], &[]);
        assert_eq!(each.len(), nodes);
        for row in each {
            let connection = Connection::open(row["file"].as_str().expect("a name")).expect("a database");
            let sql = "SELECT count(*), sum(\"end\" - start) FROM regions";
            let of_file = connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).expect("a row");
            assert_eq!((row["n"].as_i64(), row["ns"].as_i64()), of_file);
        }
    }
}

#[test]
fn equal_pids_multiply_no_row_and_each_row_says_where_it_is_from() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let traces = made_all(scratch.path(), 6);
    let folder = [scratch.path().to_owned()];
    assert_eq!(number(&folder, "SELECT count(*) FROM threads"), 18);
    assert_eq!(number(&folder, "SELECT count(*) FROM memory_allocations"), 120);
    let by_host =
        rows(&traces, "SELECT host, sum(size) s FROM memory_allocations GROUP BY host", &["--no-correction"], &[]);
    let sums: BTreeMap<&str, i64> =
        by_host.iter().map(|row| (row["host"].as_str().expect("a host"), row["s"].as_i64().expect("a sum"))).collect();
    assert_eq!(sums, BTreeMap::from([("host0", 60), ("host1", 140), ("host2", 220)]));
    assert_eq!(number(&folder, "SELECT sum(duration) FROM regions WHERE rank = 4"), 100);
    assert_eq!(
        number(&folder, "SELECT count(*) FROM rocpd_region WHERE rank IN (1, 2) AND host = 'HOST1' COLLATE NOCASE"),
        20
    );
    assert_eq!(number(&folder, "SELECT count(*) FROM rocpd_event WHERE id = 3"), 6);
    assert_eq!(number(&folder, "SELECT count(*) FROM rocpd_event WHERE id = '3' AND rank = '2'"), 1);
    // SQLite looks for the rows of each condition, and tells rows apart by their numbers; "+" has
    // it look at every row.
    let either = |id: &str, rank: &str| format!("SELECT count(*) FROM rocpd_event WHERE {id} = 3 OR {rank} = 2");
    let found = number(&folder, &either("id", "rank"));
    assert_eq!(found, number(&folder, &either("+id", "+rank")));
    assert!(found > 6, "{found}");
    // The profiler's view has no guid, without which a join multiplies rows.
    let joined = "SELECT count(*) FROM regions r JOIN events_args a ON a.event_id = r.event_id AND a.guid = r.guid AND a.host = r.host";
    assert_eq!(number(&folder, joined), number(&folder, "SELECT count(*) FROM region_args"));
    // Arguments are found by an index that is made once, not by looking through all of them for
    // each event.
    let plan = rows(&folder, "EXPLAIN QUERY PLAN SELECT count(*) FROM region_args", &["--no-correction"], &[]);
    assert!(plan.iter().any(|step| step["detail"].as_str().is_some_and(|step| step.contains("AUTOMATIC"))), "{plan:?}");
    // Files of a folder are in the order of their names, which is no order of nodes.
    for flags in [&["--assume-order"][..], &["--nodes", "0", "1", "2", "3", "4", "5"]] {
        let said = refused(&folder, "SELECT 1", &[&["--no-correction"], flags].concat(), 2);
        assert!(said.contains("have no reliable order") && said.contains(flags[0]), "{said}");
    }
    // Folders behind links are looked into.
    let links = tempfile::tempdir().expect("a temporary directory");
    std::os::unix::fs::symlink(&folder[0], links.path().join("linked")).expect("a link");
    assert_eq!(number(&[links.path().to_owned()], "SELECT count(*) FROM threads"), 18);
    let guid = "SELECT count(*) FROM regions WHERE guid IN ('00000002-0000-7000-8000-000000000000', 'none')";
    assert_eq!(number(&folder, guid), 20);
    let merged = [scratch.path().join("merged.db")];
    let done = run("merge", &traces, &["--no-correction"], &[("--output", &merged)]);
    assert!(done.status.success(), "{}", complaint(&done));
    // One file of many processes: host and rank are each process's own.
    assert_eq!(number(&merged, "SELECT sum(duration) FROM regions WHERE rank = 4 AND host = 'host2'"), 100);
    // Unset times stay unset, others are as they stand.
    let times = rows(&traces[..1], "SELECT init, start, \"end\" FROM processes", &["--no-correction"], &[]);
    assert_eq!(times[0].to_string(), r#"{"end":0,"init":null,"start":5}"#);
    let window = ["--no-correction", "--start", "5000", "--end", "7001"];
    let whole = rows(&traces[..1], "SELECT count(*) n, min(start) s FROM regions", &window, &[]);
    assert_eq!(whole[0].to_string(), r#"{"n":3,"s":5000}"#);
}

#[test]
#[ignore = "long: opens hundreds of databases"]
fn many_databases_are_asked_with_few_of_them_open() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    made_all(scratch.path(), 70);
    // Far more rows than a pipe holds: the command waits for us, in the middle of its work.
    let sql = "SELECT a.file, b.id, a.id FROM rocpd_region b, rocpd_region a, rocpd_event c";
    let mut command = probe_sync(&["query", "--no-correction", "--format", "csv", "--sql", sql, "--traces"]);
    command.arg(scratch.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut read = 0;
    let mut most = 0;
    for line in lines.by_ref().take(200_000) {
        line.expect("a line");
        read += 1;
        if read % 5_000 == 0 {
            let open = std::fs::read_dir(format!("/proc/{}/fd", child.id())).expect("our own child");
            let names = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
            // Databases that were written a moment ago are read from copies.
            most = most.max(names.filter(|name| text(name).contains(".db")).count());
        }
    }
    assert_eq!(read, 200_000);
    assert!((1..=64).contains(&most), "{most} open");
    // Whoever reads has seen enough: no complaint, no failure.
    drop(lines);
    let done = wait(child);
    assert!(done.status.success(), "{}", complaint(&done));
    let folder = [scratch.path().to_owned()];
    let all =
        run("query", &folder, &["--no-correction", "--sql", "SELECT host, count(*) FROM regions GROUP BY host"], &[]);
    assert!(
        all.status.success() && complaint(&all).contains("queried 70 databases, 20 of them open at once"),
        "{}",
        complaint(&all)
    );
    assert_eq!(String::from_utf8_lossy(&all.stdout).lines().count(), 2 + 35);
    // What the condition leaves out is not read.
    for sql in [
        "SELECT count(*) FROM regions WHERE host = 'host3'",
        "SELECT name FROM regions WHERE file LIKE '%033_results.db'",
    ] {
        let few = run("query", &folder, &["--no-correction", "--sql", sql], &[]);
        let said = complaint(&few);
        let open =
            said.split("queried 70 databases, ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
        assert!(few.status.success() && open.is_some_and(|open| (1..=2).contains(&open)), "{sql}: {said}");
    }
}

#[test]
fn only_reading_is_allowed() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let traces = made_all(scratch.path(), 2);
    let other = scratch.path().join("other");
    let attach = format!("ATTACH '{}' AS other", other.display());
    for sql in [
        attach.as_str(),
        "PRAGMA temp_store_directory = 'x'",
        "DELETE FROM rocpd_region",
        "CREATE TABLE t(a)",
        "CREATE TEMP TABLE t AS SELECT 1",
        "UPDATE probe_sync_processes SET host = 'x'",
        "SELECT load_extension('x')",
        "VACUUM",
    ] {
        let said = refused(&traces, sql, &["--no-correction"], 2);
        assert!(said.contains("--sql: "), "{sql}: {said}");
    }
    assert!(!other.exists());
    for (sql, part) in
        [("SELECT nowhere FROM regions", "no such column: nowhere"), ("SELECT 1; SELECT 2", "--sql: "), ("", "--sql: ")]
    {
        let said = refused(&traces, sql, &["--no-correction"], 2);
        assert!(said.contains(part), "{sql}: {said}");
    }
    // Two of one host are on one clock; of three the last is of another.
    assert_eq!(rows(&traces, "SELECT count(*) n FROM regions WHERE start > 0", &[], &[])[0]["n"], 40);
    let elsewhere = scratch.path().join("elsewhere_results.db");
    made(&elsewhere, 9, "host9");
    let three = [&traces[..], &[elsewhere]].concat();
    for sql in ["SELECT count(*) n FROM regions", "SELECT count(*) n FROM rocpd_region"] {
        assert_eq!(rows(&three, sql, &[], &[])[0]["n"], 60, "{sql}");
    }
    for sql in ["SELECT start FROM regions", "SELECT max(\"end\") FROM rocpd_region", "SELECT * FROM rocpd_region"] {
        let said = refused(&three, sql, &[], 2);
        assert!(said.contains("is on the boot clock of host0") && said.contains("host9"), "{sql}: {said}");
        assert!(said.contains("--no-correction"), "{sql}: {said}");
        assert!(run("query", &three, &["--sql", sql], &[]).stdout.is_empty(), "{sql}");
        assert!(!rows(&three, sql, &["--no-correction"], &[]).is_empty(), "{sql}");
    }
    assert!(refused(&three, "SELECT nowhere FROM regions", &[], 2).contains("no such column: nowhere"));
    // One alone needs no clock.
    assert_eq!(rows(&three[2..], "SELECT min(start) s FROM regions", &[], &[])[0]["s"], 1000);
    assert_eq!(number(&traces, "SELECT count(*) FROM pragma_table_info('rocpd_string')"), 6);
}

#[test]
fn a_bad_database_of_many_is_named_and_may_be_left_out() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let traces = made_all(scratch.path(), 3);
    let whole = std::fs::read(&traces[1]).expect("a database");
    let check = |part: &str, content: &[u8]| {
        std::fs::write(&traces[1], content).expect("written");
        let said = refused(&traces, "SELECT count(*) FROM regions", &["--no-correction"], 1);
        assert!(said.contains(text(&traces[1])) && said.contains(part), "{said}");
        let sql = "SELECT count(*) n FROM regions";
        let done = run("query", &traces, &["--no-correction", "--skip-bad", "--sql", sql, "--format", "csv"], &[]);
        assert!(done.status.success() && complaint(&done).contains("skipped"), "{}", complaint(&done));
        assert_eq!(String::from_utf8_lossy(&done.stdout), "n\r\n40\r\n");
    };
    check("is truncated", &whole[..whole.len() / 2]);
    check("is empty", b"");
    // A row of another process among those of this one: its guid would choose the wrong file.
    std::fs::write(&traces[1], &whole).expect("written");
    let suffix = schema::suffix_of("00000001-0000-7000-8000-000000000000");
    let connection = Connection::open(&traces[1]).expect("a database");
    connection.execute(&format!("UPDATE rocpd_region{suffix} SET guid = 'other' WHERE id = 9"), []).expect("a row");
    drop(connection);
    let said = refused(&traces, "SELECT count(guid) FROM regions", &["--no-correction"], 1);
    let parts = [text(&traces[1]), "row 9", "guid"];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    // One process twice.
    std::fs::copy(&traces[0], &traces[1]).expect("a copy");
    let said = refused(&traces, "SELECT 1", &["--no-correction"], 1);
    assert!(said.contains("000_results.db") && said.contains("001_results.db"), "{said}");
}

#[test]
fn an_output_appears_when_it_is_whole_and_never_in_place_of_an_input() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let traces = made_all(scratch.path(), 2);
    let ask = |sql: &str, out: &Path| -> Output {
        let mut command = probe_sync(&["query", "--no-correction", "--format", "csv", "--sql", sql, "--out"]);
        command.arg(out).arg("--traces").args(&traces);
        output(command)
    };
    let out = scratch.path().join("rows.csv");
    let failed = ask("SELECT abs(-9223372036854775807 - id) FROM rocpd_region", &out);
    assert!(!failed.status.success() && !out.exists(), "{}", complaint(&failed));
    assert!(ask("SELECT id FROM rocpd_region", &out).status.success());
    assert_eq!(std::fs::read_to_string(&out).expect("rows").lines().count(), 41);
    let before = std::fs::read(&traces[0]).expect("a database");
    assert_eq!(ask("SELECT 1", &traces[0]).status.code(), Some(2));
    assert_eq!(std::fs::read(&traces[0]).expect("a database"), before);
}

/// The lines of a CSV file, cell by cell; texts in quotes.
fn cells(path: &Path) -> Vec<Vec<String>> {
    let content = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    content.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn csv_has_the_events_of_all_ranks_with_the_times_of_align() {
    let Some(set) = Set::find("b_4node_offset_drift", 4) else { return };
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let (pairs, offsets) = (set.all_pairs(scratch.path()), [set.offsets()]);
    let clocks: [(&str, &[PathBuf]); 2] = [("--offsets", &offsets), ("--snapshots", &pairs)];
    let (aligned, out) = ([scratch.path().join("aligned")], [scratch.path().join("csv")]);
    let done =
        run("align", &set.databases(), &["--assume-order"], &[&clocks[..], &[("--output", &aligned[..])]].concat());
    assert!(done.status.success(), "{}", complaint(&done));
    let files = [&clocks[..], &[("--output-path", &out[..])]].concat();
    let converted = |flags: &[&str]| {
        let done =
            run("convert", &set.databases(), &[&["-f", "csv", "-o", "all", "--assume-order"], flags].concat(), &files);
        assert!(done.status.success(), "{flags:?}: {}", complaint(&done));
    };
    converted(&[]);
    let of = |name: &str| cells(&out[0].join(format!("all_{name}.csv")));
    // Name of a file, its view, and where guid, start and end stand in it.
    for (name, view, condition, [guid, start]) in [
        ("kernel_trace", "kernels", "", [0, 10]),
        ("memory_copy_trace", "memory_copies", "", [0, 7]),
        ("memory_allocation_trace", "memory_allocations", "", [0, 7]),
        ("hip_api_trace", "regions", "WHERE category LIKE 'HIP%'", [0, 6]),
        ("rccl_api_trace", "regions", "WHERE category LIKE 'RCCL%'", [0, 6]),
        ("marker_api_trace", "regions_and_samples", "WHERE category LIKE 'MARKER%'", [0, 6]),
    ] {
        let table = of(name);
        let mut expected: Vec<(String, i64, i64)> = Vec::new();
        for entry in std::fs::read_dir(&aligned[0]).expect("the folder").map(|entry| entry.expect("an entry").path()) {
            if entry.extension().is_some_and(|ending| ending == "db") {
                let connection = Connection::open(entry).expect("a database");
                let sql = format!("SELECT guid, start, \"end\" FROM {view} {condition}");
                let mut statement = connection.prepare(&sql).expect("a statement");
                let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).expect("rows");
                expected.extend(found.map(|row| row.expect("a row")));
            }
        }
        expected.sort_by_key(|(guid, start, end)| (guid.clone(), *start, std::cmp::Reverse(*end)));
        let number = |cell: &String| cell.parse::<i64>().expect("a number");
        let found = table[1..].iter().map(|row| {
            assert_eq!(row.len(), table[0].len(), "{name}: {row:?}");
            (row[guid].trim_matches('"').to_owned(), number(&row[start]), number(&row[start + 1]))
        });
        let found: Vec<(String, i64, i64)> = found.collect();
        assert!(found == expected && found.len() >= 80, "{name}: {} of {}", found.len(), expected.len());
        let last = &table[0][table[0].len() - 2..];
        assert_eq!(
            (last, &*table[1][table[0].len() - 2]),
            (&["\"Host\"".to_owned(), "\"Rank\"".to_owned()][..], "\"node3\"")
        );
    }
    let kernel = &of("kernel_trace")[1];
    assert_eq!(kernel[1..3], ["\"KERNEL_DISPATCH\"", "\"Agent 1\""]);
    converted(&["--plain-columns", "--agent-index-value", "type-relative"]);
    let plain = of("kernel_trace");
    assert_eq!((plain[0].len(), &*plain[0][22], &*plain[1][2]), (23, "\"Grid_Size_Z\"", "\"GPU 0\""));
    // What is no database has no such columns.
    let json = scratch.path().join("rank0.json");
    std::fs::write(&json, r#"{"traceEvents": [{"ph": "X", "ts": 1, "dur": 1, "name": "a"}]}"#).expect("written");
    let refused = run("convert", &[json], &["-f", "csv", "-o", "none"], &[("--output-path", &out[..])]);
    assert_eq!(refused.status.code(), Some(2), "{}", complaint(&refused));
    assert!(
        complaint(&refused).contains("rank0.json") && complaint(&refused).contains("rocprofv3"),
        "{}",
        complaint(&refused)
    );
    assert!(!out[0].join("none_kernel_trace.csv").exists());
}

#[test]
fn agents_are_described_by_their_json_and_without_it_by_their_columns() {
    let Some(set) = Set::find("a_2node", 2) else { return };
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let path = scratch.path().join("node0_results.db");
    std::fs::copy(&set.databases()[0], &path).expect("a copy");
    let connection = Connection::open(&path).expect("a database");
    let by_name = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'rocpd_info_agent_*'";
    let table: String = connection.query_row(by_name, [], |row| row.get(0)).expect("its table");
    // As rocprofv3 writes it: fields of bits one by one, and a number of 64 bits without a sign.
    let json = r#"{"node_id": 5, "logical_node_id": 4, "simd_count": 1024, "wave_front_size": 64, "hive_id": 18446744073709551615,
        "sdma_fw_version": {"uCodeSDMA": 3, "uCodeRes": 1}, "fw_version": {"uCode": 7, "Major": 9, "Minor": 5, "Stepping": 1},
        "capability": {"HotPluggable": 1, "WatchPointsTotalBits": 2, "DebugSupportedFirmware": 1},
        "workgroup_max_dim": {"x": 1024, "y": 1023, "z": 1022}, "name": "gfx950", "product_name": "a \"GPU\""}"#;
    let update = format!("UPDATE \"{table}\" SET extdata = ?1 WHERE type = 'GPU'");
    assert_eq!(connection.execute(&update, [json]).expect("an update"), 1);
    drop(connection);
    let out = [scratch.path().join("csv")];
    let done = run("convert", &[path], &["-f", "csv", "-o", "one"], &[("--output-path", &out[..])]);
    assert!(done.status.success(), "{}", complaint(&done));
    let agents = cells(&out[0].join("one_agent_info.csv"));
    assert_eq!((agents.len(), agents[0].len()), (3, 56), "a CPU, a GPU; AMD's 54 columns, host and rank");
    let cell = |row: usize, name: &str| {
        let place = agents[0].iter().position(|head| head.trim_matches('"') == name).expect(name);
        agents[row][place].trim_matches('"').to_owned()
    };
    for (name, of_cpu, of_gpu) in [
        ("Node_Id", "0", "5"),
        ("Logical_Node_Id", "0", "4"),
        ("Agent_Type", "CPU", "GPU"),
        ("Simd_Count", "0", "1024"),
        ("Wave_Front_Size", "0", "64"),
        ("Sdma_Fw_Version", "0", "1027"),
        // 7 + (9 << 10) + (5 << 16) + (1 << 24), and 1 + (2 << 8) + (1 << 29).
        ("Fw_Version", "0", "17114119"),
        ("Capability", "0", "536871425"),
        ("Hive_Id", "0", "18446744073709551615"),
        ("Workgroup_Max_Dim_Y", "0", "1023"),
        ("Grid_Max_Dim_Z", "0", "0"),
        ("Host", "node0", "node0"),
    ] {
        assert_eq!((cell(1, name).as_str(), cell(2, name).as_str()), (of_cpu, of_gpu), "{name}");
    }
    assert_eq!(cell(2, "Name"), "gfx950");
}
