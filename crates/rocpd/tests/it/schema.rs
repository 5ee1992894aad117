//! The schema against facts of a database that rocprofv3 wrote, and its views over databases with
//! equal pids.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use probe_sync_rocpd::schema::{self, BASE_TABLES, Version, View};
use rusqlite::Connection;
use rusqlite::types::Value;

pub(crate) const FACTS: &str = include_str!("../../fixtures/schema_3.txt");
const GUID: &str = "000003ce-5d4c-7a2f-9d08-acd3eb0a98a1";

/// A database in memory with the tables of the given guids and all views.
fn database(guids: &[&str]) -> Connection {
    let connection = Connection::open_in_memory().expect("memory");
    connection.execute_batch("BEGIN").expect("a transaction");
    let suffixes: Vec<String> = guids.iter().map(|guid| schema::suffix_of(guid)).collect();
    for (guid, suffix) in guids.iter().zip(&suffixes) {
        for table in schema::tables(suffix, guid) {
            connection.execute(&table.sql, []).expect("a table");
        }
    }
    let suffixes: Vec<&str> = suffixes.iter().map(String::as_str).collect();
    for base in BASE_TABLES {
        connection.execute(&schema::union_view(base, &suffixes), []).expect("a view over tables");
    }
    // Of the first process's tables: those of a view over hundreds take SQLite long to say.
    let columns = |table: &str, column: &str| has(&connection, &format!("{table}{}", suffixes[0]), column);
    for view in schema::canonical_views(&columns) {
        connection.execute(&view.sql, []).unwrap_or_else(|error| panic!("{}: {error}\n{}", view.name, view.sql));
    }
    connection.execute_batch("COMMIT").expect("a transaction");
    connection
}

fn has(connection: &Connection, table: &str, column: &str) -> bool {
    let query = "SELECT count(*) FROM pragma_table_xinfo(?1) WHERE name = ?2";
    connection.query_row(query, [table, column], |row| row.get::<_, i64>(0)).expect("a pragma") > 0
}

fn count(connection: &Connection, query: &str) -> i64 {
    connection.query_row(query, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{query}: {error}"))
}

/// Rows of a pragma as lines, with the suffix and guid of the test's process taken out.
fn pragma(connection: &Connection, kind: &str, query: &str, facts: &mut String) {
    let mut statement = connection.prepare(query).expect("a pragma");
    let columns = statement.column_count();
    let mut rows = statement.query([]).expect("a pragma");
    while let Some(row) = rows.next().expect("a row") {
        let cells = (0..columns).map(|at| match row.get::<_, Value>(at).expect("a cell") {
            Value::Null => "NULL".to_owned(),
            Value::Integer(number) => number.to_string(),
            Value::Text(text) => text.replace(&schema::suffix_of(GUID), "").replace(GUID, "GUID"),
            other => panic!("{other:?} in a pragma"),
        });
        writeln!(facts, "{kind} {}", cells.collect::<Vec<_>>().join("|")).expect("text");
    }
}

/// What AMD's reader of 2026 compares, as `fixtures/schema_3.txt` has it.
fn facts(connection: &Connection) -> String {
    let mut facts = String::new();
    for table in schema::tables(&schema::suffix_of(GUID), GUID) {
        let name = &table.name;
        writeln!(facts, "table {}", table.base).expect("text");
        pragma(connection, "column", &format!("PRAGMA table_xinfo(\"{name}\")"), &mut facts);
        pragma(connection, "key", &format!("PRAGMA foreign_key_list(\"{name}\")"), &mut facts);
        let mut indexes = connection.prepare(&format!("PRAGMA index_list(\"{name}\")")).expect("a pragma");
        let names = indexes.query_map([], |row| row.get::<_, String>(1)).expect("a pragma");
        for index in names {
            let index = index.expect("a name");
            let query = format!(
                "SELECT \"unique\" || '|' || origin || '|' || partial || ' ' ||
                 (SELECT group_concat(coalesce(name, 'None'), ' ') FROM pragma_index_xinfo('{index}'))
                 FROM pragma_index_list('{name}') WHERE name = '{index}'"
            );
            pragma(connection, "index", &query, &mut facts);
        }
        for check in table.sql.split("CHECK (").skip(1) {
            let end = check.find("))").expect("a list ends");
            writeln!(facts, "check {}", &check[..=end]).expect("text");
        }
    }
    facts
}

#[test]
fn tables_are_those_that_rocprofv3_makes() {
    let connection = database(&[GUID]);
    let expected: Vec<&str> = FACTS.lines().filter(|line| !line.starts_with("view ")).collect();
    let found = facts(&connection);
    for (found, expected) in found.lines().zip(&expected) {
        assert_eq!(found, *expected);
    }
    assert_eq!(found.lines().count(), expected.len());
}

#[test]
fn views_have_the_names_and_columns_of_rocprofv3s() {
    let connection = database(&[GUID]);
    let expected: Vec<&str> = FACTS.lines().filter_map(|line| line.strip_prefix("view ")).collect();
    assert_eq!(expected.len(), count(&connection, "SELECT count(*) FROM sqlite_master WHERE type = 'view'") as usize);
    for line in expected {
        let (view, columns) = line.split_once(' ').expect("a name and columns");
        let statement = connection.prepare(&format!("SELECT * FROM \"{view}\"")).expect("a view");
        assert_eq!(statement.column_names().collect::<Vec<_>>().join(" "), columns, "{view}");
    }
}

#[test]
fn tags_are_those_of_each_version() {
    let names = |version| -> Vec<&str> {
        schema::tags(version, "_a", "a", "2026-11-23 00:00:00").into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(names(Version::Three), ["schema_version", "uuid", "guid"]);
    let tags: BTreeMap<_, _> =
        schema::tags(Version::ThreeZeroZero, "_a_b", "a-b", "2026-11-23 01:02:03").into_iter().collect();
    let expected = [
        ("guid", "a-b"),
        ("schema_creation_time", "2026-11-23 01:02:03"),
        ("schema_version", "3.0.0"),
        ("schema_version_major", "3"),
        ("schema_version_minor", "0"),
        ("schema_version_patch", "0"),
        ("uuid", "_a_b"),
    ];
    let found: Vec<(&str, &str)> = tags.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(found, expected);
}

/// Processes of one pid: on five hosts, and one that was started again. Their machine-ids are
/// equal, as those of cloned images.
const EQUAL_PIDS: [&str; 6] = ["aa-0", "aa-1", "aa-2", "aa-3", "aa-4", "bb-4"];
const THREADS: i64 = 3;
const ALLOCATIONS: i64 = 20;

/// Three threads and twenty allocations each; every process has a size of its own, so that sums
/// show whose rows they are.
fn equal_pids() -> Connection {
    let connection = database(&EQUAL_PIDS);
    for (at, guid) in EQUAL_PIDS.iter().enumerate() {
        let s = schema::suffix_of(guid);
        let size = 10_i64.pow(at as u32);
        connection
            .execute_batch(&format!(
                "INSERT INTO rocpd_info_node{s} (id, hash, machine_id, hostname) VALUES (7, 7, 'clone', 'host{at}');
                 INSERT INTO rocpd_info_process{s} (id, nid, pid) VALUES (100, 7, 100);
                 INSERT INTO rocpd_info_agent{s} (id, nid, pid, type, absolute_index) VALUES (1, 7, 100, 'GPU', 1);
                 INSERT INTO rocpd_string{s} (id, string) VALUES (1, 'MEMORY_ALLOCATION'), (2, 'step');
                 WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n LIMIT {THREADS})
                 INSERT INTO rocpd_info_thread{s} (id, nid, pid, tid) SELECT i, 7, 100, i FROM n;
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {ALLOCATIONS})
                 INSERT INTO rocpd_event{s} (id, category_id) SELECT i, 1 FROM n;
                 INSERT INTO rocpd_memory_allocate{s} (nid, pid, tid, agent_id, type, level, start, \"end\", size, event_id)
                 SELECT 7, 100, 100 + id % {THREADS}, 1, 'ALLOC', 'REAL', id, id + 1, {size}, id FROM rocpd_event{s};
                 INSERT INTO rocpd_region{s} (nid, pid, tid, start, \"end\", name_id, event_id)
                 SELECT 7, 100, 100 + id % {THREADS}, id, id + {size}, 2, id FROM rocpd_event{s};"
            ))
            .expect("rows");
    }
    connection
}

#[test]
fn equal_pids_on_five_hosts_and_a_restarted_process_multiply_no_row() {
    let connection = equal_pids();
    let (threads, allocations) = (EQUAL_PIDS.len() as i64 * THREADS, EQUAL_PIDS.len() as i64 * ALLOCATIONS);
    // The trap is there: without a guid in one condition each row meets all six processes, as in
    // AMD's views.
    let by_id = "SELECT count(*) FROM rocpd_info_thread T JOIN rocpd_info_process P ON P.id = T.pid
                 JOIN rocpd_info_node N ON N.id = T.nid AND N.guid = T.guid";
    assert_eq!(count(&connection, by_id), 108);
    let by_id =
        "SELECT count(*) FROM rocpd_memory_allocate M JOIN rocpd_info_process P ON P.id = M.pid AND P.guid = M.guid
                 JOIN rocpd_info_thread T ON T.id = M.tid";
    assert_eq!(count(&connection, by_id), 720);

    assert_eq!(count(&connection, "SELECT count(*) FROM threads"), threads);
    assert_eq!(count(&connection, "SELECT count(*) FROM memory_allocations"), allocations);
    assert_eq!(count(&connection, "SELECT count(*) FROM processes"), EQUAL_PIDS.len() as i64);
    for (at, guid) in EQUAL_PIDS.iter().enumerate() {
        let size = 10_i64.pow(at as u32) * ALLOCATIONS;
        let sum = |view, column| count(&connection, &format!("SELECT sum({column}) FROM {view} WHERE guid = '{guid}'"));
        assert_eq!(sum("memory_allocations", "size"), size);
        assert_eq!(sum("regions", "duration"), size);
        assert_eq!(
            count(
                &connection,
                &format!("SELECT count(*) FROM threads WHERE guid = '{guid}' AND hostname = 'host{at}'")
            ),
            THREADS
        );
    }
}

/// Each view has a condition on guid for every join: shown on the text, for views over tables that
/// the tests leave empty.
#[test]
fn every_join_of_every_view_has_its_guid() {
    let views = schema::canonical_views(&|table, column| table != "rocpd_region" || column != "track_id");
    let by_track = schema::canonical_views(&|_, _| true);
    assert!(views.len() > 20 && by_track.len() > 15, "{} and {} views", views.len(), by_track.len());
    for View { name, select, .. } in views.iter().chain(&by_track) {
        let joins = select.matches(" JOIN \"").count();
        let keyed = select.matches(".guid = ").count() - select.matches("RS.guid = ").count();
        assert_eq!(joins, keyed, "{name}: {select}");
    }
}

/// All tables of one process, and those of 511 others that the view reads (each table costs SQLite
/// a look at all others).
#[test]
fn views_over_five_hundred_and_twelve_processes_open() {
    const READ: [&str; 3] = ["rocpd_info_node", "rocpd_info_process", "rocpd_info_thread"];
    let guids: Vec<String> = (0..512).map(|at| format!("{at:04}-a")).collect();
    let suffixes: Vec<String> = guids.iter().map(|guid| schema::suffix_of(guid)).collect();
    let connection = database(&[&guids[0]]);
    connection.execute_batch("BEGIN").expect("a transaction");
    for (guid, s) in guids.iter().zip(&suffixes) {
        for table in schema::tables(s, guid).iter().filter(|table| READ.contains(&table.base) && s != &suffixes[0]) {
            connection.execute(&table.sql, []).expect("a table");
        }
        connection
            .execute_batch(&format!(
                "INSERT INTO rocpd_info_node{s} (id, hash, machine_id) VALUES (1, 1, 'm');
                 INSERT INTO rocpd_info_process{s} (id, nid, pid) VALUES (9, 1, 9);
                 INSERT INTO rocpd_info_thread{s} (id, nid, pid, tid) VALUES (9, 1, 9, 9);"
            ))
            .expect("rows");
    }
    let suffixes: Vec<&str> = suffixes.iter().map(String::as_str).collect();
    for base in READ {
        connection.execute(&format!("DROP VIEW {base}"), []).expect("a view");
        connection.execute(&schema::union_view(base, &suffixes), []).expect("a view");
    }
    connection.execute_batch("COMMIT").expect("a transaction");
    assert_eq!(count(&connection, "SELECT count(*) FROM rocpd_info_thread"), 512);
    assert_eq!(count(&connection, "SELECT count(*) FROM threads"), 512);
    assert_eq!(count(&connection, "SELECT count(*) FROM kernels"), 0);
}

/// Tables and columns of schema 4.1.0 as far as its views read them.
const BY_TRACK: &[(&str, &str)] = &[
    ("rocpd_metadata", "id tag value"),
    ("rocpd_string", "id guid string"),
    ("rocpd_info_node", "id guid hash machine_id name system_name hostname release version hardware_name domain_name"),
    ("rocpd_info_process", "id guid nid ppid pid name init fini start end command environment extdata"),
    ("rocpd_info_thread", "id guid nid ppid pid tid name start end extdata"),
    ("rocpd_info_category", "id guid name extdata"),
    (
        "rocpd_info_agent",
        "id guid nid pid type absolute_index logical_index type_index uuid name generic_name model_name vendor_name product_name extdata",
    ),
    ("rocpd_info_queue", "id guid nid pid name extdata"),
    ("rocpd_info_stream", "id guid nid pid name extdata"),
    (
        "rocpd_info_pmc",
        "id guid nid pid agent_id target_arch event_code instance_id name symbol qualifier description long_description component \
         units value_type block expression is_constant is_derived extdata",
    ),
    ("rocpd_info_code_object", "id guid nid pid agent_id uri load_base load_size load_delta storage_type extdata"),
    (
        "rocpd_info_kernel_symbol",
        "id guid nid pid code_object_id kernel_name display_name kernel_object kernarg_segment_size kernarg_segment_alignment \
         group_segment_size private_segment_size sgpr_count arch_vgpr_count accum_vgpr_count extdata",
    ),
    ("rocpd_track", "id guid nid ppid pid tid agent_id queue_id stream_id name_id extdata"),
    ("rocpd_event", "id guid category_id stack_id parent_stack_id correlation_id extdata"),
    ("rocpd_arg", "id guid event_id position type name value extdata"),
    ("rocpd_pmc_event", "id guid event_id pmc_id value extdata"),
    ("rocpd_region", "id guid track_id name_id start end event_id extdata"),
    ("rocpd_sample", "id guid track_id name_id timestamp event_id extdata"),
    (
        "rocpd_kernel_dispatch",
        "id guid track_id kernel_id dispatch_id start end private_segment_size group_segment_size workgroup_size_x \
         workgroup_size_y workgroup_size_z grid_size_x grid_size_y grid_size_z region_name_id event_id extdata",
    ),
    (
        "rocpd_memory_copy",
        "id guid track_id start end name_id dst_agent_id dst_address src_agent_id src_address size region_name_id event_id extdata",
    ),
    (
        "rocpd_memory_allocate",
        "id guid track_id type level start end name_id address size region_name_id event_id extdata",
    ),
];

#[test]
fn tables_of_schema_4_have_the_views_by_track() {
    let connection = Connection::open_in_memory().expect("memory");
    for (table, columns) in BY_TRACK {
        let columns: Vec<String> = columns.split_whitespace().map(schema::quoted).collect();
        connection.execute(&format!("CREATE TABLE {table} ({})", columns.join(", ")), []).expect("a table");
    }
    let views = schema::canonical_views(&|table, column| has(&connection, table, column));
    for view in &views {
        connection.execute(&view.sql, []).expect("a view");
        connection
            .prepare(&format!("SELECT * FROM {}", view.name))
            .unwrap_or_else(|error| panic!("{}: {error}", view.name));
        assert!(!view.select.contains("NULL AS"), "{}: {}", view.name, view.select);
    }
    assert_eq!(views.len(), 19);
    connection
        .execute_batch(
            "INSERT INTO rocpd_track (id, guid, nid, pid, tid) VALUES (1, 'a', 1, 5, 5), (1, 'b', 1, 5, 5);
             INSERT INTO rocpd_string VALUES (1, 'a', 'step'), (1, 'b', 'step');
             INSERT INTO rocpd_info_category VALUES (3, 'a', 'MARKER', '{}'), (3, 'b', 'HIP', '{}');
             INSERT INTO rocpd_event (id, guid, category_id) VALUES (1, 'a', 3), (1, 'b', 3);
             INSERT INTO rocpd_region VALUES (1, 'a', 1, 1, 10, 14, 1, '{}'), (1, 'b', 1, 1, 20, 21, 1, '{}');",
        )
        .expect("rows");
    assert_eq!(count(&connection, "SELECT sum(duration) FROM regions WHERE category = 'MARKER' AND name = 'step'"), 4);
    assert_eq!(count(&connection, "SELECT count(*) FROM regions_and_samples"), 2);
}

/// A column of a later version is named where it is, and not where it is not; a missing one of the
/// first is NULL.
#[test]
fn views_name_only_columns_that_the_tables_have() {
    let select = |name: &str, present: &dyn Fn(&str, &str) -> bool| -> Option<String> {
        schema::canonical_views(present).into_iter().find(|view| view.name == name).map(|view| view.select)
    };
    let first = |table: &str, column: &str| {
        let definition = schema::tables("", "g").into_iter().find(|definition| definition.base == table);
        definition.is_some_and(|definition| definition.sql.contains(&format!("\n    \"{column}\" ")))
    };
    let later =
        |table: &str, column: &str| first(table, column) || column.starts_with("graph_") || column == "sample_id";
    let kernels = select("kernels", &first).expect("a view");
    assert!(!kernels.contains("graph_exec_id") && !kernels.contains("K.event_id AS"), "{kernels}");
    let kernels = select("kernels", &later).expect("a view");
    assert!(kernels.contains("K.graph_exec_id") && kernels.contains("K.event_id AS"), "{kernels}");
    let counters = select("counters_collection", &first).expect("a view");
    assert!(!counters.contains("sample_id"), "{counters}");
    let counters = select("counters_collection", &later).expect("a view");
    assert!(counters.contains("WHERE V.sample_id IS NULL GROUP BY"), "{counters}");
    let without = |table: &str, column: &str| first(table, column) && column != "line_info";
    let regions = select("regions", &without).expect("a view");
    assert!(regions.contains("NULL AS \"line_info\""), "{regions}");
    assert_eq!(select("regions", &|table, column| first(table, column) && table != "rocpd_info_thread"), None);
}
