//! What is no database of rocprofv3, or one that something was done to: each refused in words, and
//! no output is left.

use super::*;

/// Makes a file, and expects an alignment to be refused with these words.
fn check(name: &str, words: &[&str], make: impl FnOnce(&Path)) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("input.db");
    make(&path);
    let refused = aligned(&path, 1000).expect_err(name).to_string();
    for word in words.iter().chain(&["input.db"]) {
        assert!(refused.contains(word), "{name}: {refused}");
    }
    assert!(!path.with_extension("aligned.db").exists(), "{name}: an output is left");
    let left = std::fs::read_dir(folder.path()).expect("a listing").count();
    assert_eq!(
        left,
        std::fs::read_dir(folder.path())
            .expect("a listing")
            .filter(|entry| {
                entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("input.db"))
            })
            .count(),
        "{name}: something is left"
    );
}

/// A good database to which something is done.
fn check_changed(name: &str, words: &[&str], change: &str) {
    check(name, words, |path| {
        let suffix = schema::suffix_of(GUID);
        let connection = made(path, GUID, "", &[("rocpd_region", &region(10, 20))]);
        connection.execute_batch(&change.replace("{}", &suffix)).expect(name);
    });
}

#[test]
fn what_is_no_database_is_refused() {
    check("empty", &["is empty"], |path| std::fs::write(path, b"").expect("a file"));
    check("text", &["not a SQLite database"], |path| std::fs::write(path, b"{\"traceEvents\": []}").expect("a file"));
    check("magic alone", &["damaged"], |path| std::fs::write(path, b"SQLite format 3\0").expect("a file"));
    check("another program's", &["not from rocprofv3"], |path| {
        Connection::open(path).and_then(|file| file.execute_batch("CREATE TABLE a (b)")).expect("a database");
    });
}

#[test]
fn damaged_files_are_refused() {
    let whole = |path: &Path| {
        let suffix = schema::suffix_of(GUID);
        let connection = made(path, GUID, "PRAGMA page_size = 1024", &[]);
        let rows = format!(
            "WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < 4000) INSERT INTO \"rocpd_region{suffix}\" \
             (nid, pid, tid, name_id, start, end) SELECT 7, 1, 1, 1, k, k FROM n"
        );
        connection.execute_batch(&rows).expect("rows");
        drop(connection);
        std::fs::read(path).expect("a file")
    };
    for keep in [|length| length / 2, |length| length - 1] {
        let keep: fn(usize) -> usize = keep;
        check("cut short", &["is truncated: it has"], |path| {
            let bytes = whole(path);
            std::fs::write(path, &bytes[..keep(bytes.len())]).expect("a file");
        });
    }
    check("pages overwritten", &["damaged"], |path| {
        let mut bytes = whole(path);
        let end = bytes.len();
        bytes[end - 60 * 1024..end - 50 * 1024].fill(0xa5);
        std::fs::write(path, bytes).expect("a file");
    });
}

#[test]
fn databases_of_other_shapes_are_refused() {
    check_changed(
        "a version to come",
        &["gives schema 7.1", "schemas 3 and 4"],
        "UPDATE \"rocpd_metadata{}\" SET value = '7.1' WHERE tag = 'schema_version'",
    );
    check_changed(
        "no version",
        &["no schema_version"],
        "DELETE FROM \"rocpd_metadata{}\" WHERE tag = 'schema_version'",
    );
    check_changed(
        "a table gone",
        &["has no table rocpd_event_"],
        "PRAGMA foreign_keys = OFF; DROP VIEW rocpd_event; DROP TABLE \"rocpd_event{}\"",
    );
    check_changed(
        "two versions",
        &["schema 3 and of schema 4.1"],
        "CREATE TABLE rocpd_metadata_x (id INTEGER PRIMARY KEY, tag TEXT, value TEXT); \
        INSERT INTO rocpd_metadata_x (tag, value) VALUES ('schema_version', '4.1'); CREATE TABLE rocpd_string_x (id); CREATE TABLE rocpd_info_node_x (id); \
        CREATE TABLE rocpd_info_process_x (id); CREATE TABLE rocpd_event_x (id); CREATE TABLE rocpd_region_x (id); CREATE TABLE rocpd_kernel_dispatch_x (id)",
    );
}

#[test]
fn what_would_run_is_refused_and_never_runs() {
    check_changed(
        "a trigger",
        &["trigger t on rocpd_region", "DROP TRIGGER t"],
        "CREATE TRIGGER t AFTER INSERT ON \"rocpd_region{}\" BEGIN DELETE FROM \"rocpd_string{}\"; END",
    );
    check_changed(
        "a generated column",
        &["column twice", "generated"],
        "CREATE TABLE \"rocpd_more{}\" (id INTEGER PRIMARY KEY, start INTEGER, twice INTEGER AS (start * 2))",
    );
    check_changed(
        "an index that computes",
        &["the index i", "not authorized to use function: hex"],
        "CREATE INDEX i ON \"rocpd_region{}\" (hex(zeroblob(start)))",
    );
    // Only by writing into the schema itself can such definitions come in.
    let by_hand = |name: &str, sql: &str| {
        format!(
            "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = '{sql}' WHERE name = '{name}'; PRAGMA writable_schema = RESET"
        )
    };
    check_changed(
        "a virtual table",
        &["is virtual"],
        &by_hand("rocpd_track{}", "CREATE VIRTUAL TABLE \"rocpd_track{}\" USING zipfile(x)"),
    );
    check_changed(
        "a virtual table whose definition begins otherwise",
        &["is virtual"],
        &by_hand("rocpd_track{}", "CREATE/**/VIRTUAL TABLE \"rocpd_track{}\" USING zipfile(x)"),
    );
}

#[test]
fn computed_columns_are_not_computed_by_looking_for_damage() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("input.db");
    let connection = made(&path, GUID, "", &[]);
    let table = format!("rocpd_more{}", schema::suffix_of(GUID));
    // Hours of work for whoever looks at all rows.
    connection
        .execute_batch(&format!(
            "CREATE TABLE \"{table}\" (id INTEGER PRIMARY KEY, g TEXT NOT NULL AS (hex(zeroblob(1000000)))); \
             WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < 1000000) INSERT INTO \"{table}\" (id) SELECT k FROM n"
        ))
        .expect("rows");
    drop(connection);
    let options = FactOptions { thorough: true, ..FactOptions::default() };
    let refused = Rocpd.read_facts(&path, &options).expect_err("computed").to_string();
    assert!(refused.contains("column g") && refused.contains("generated"), "{refused}");
    assert!(aligned(&path, 5).is_err());
}

#[test]
fn a_name_beside_which_an_older_journal_lies_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("input.db");
    drop(made(&path, GUID, "", &[("rocpd_region", &region(10, 20))]));
    for ending in ["-wal", "-journal", "-shm"] {
        let left = folder.path().join(format!("input.aligned.db{ending}"));
        std::fs::write(&left, b"of before").expect("a file");
        let refused = aligned(&path, 5).expect_err(ending).to_string();
        assert!(refused.contains(&format!("input.aligned.db{ending}")) && refused.contains("remove it"), "{refused}");
        std::fs::remove_file(left).expect("a file");
    }
    aligned(&path, 5).expect("nothing is in the way");
}

#[test]
fn processes_on_different_clocks_in_one_file_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let [one, two] = ["one.db", "two.db"].map(|name| folder.path().join(name));
    drop(made(&one, GUID, "", &[("rocpd_region", &region(10, 20))]));
    drop(made(&two, OTHER_GUID, "", &[("rocpd_region", &region(10, 20))]));
    let once = aligned(&one, 5).expect("aligned");
    let options = FactOptions::default();
    assert_eq!(Rocpd.read_facts(&once, &options).expect("facts").aligned_to.as_deref(), Some("system clock of node 0"));
    // A merge as they are says nothing of clocks, so the file must.
    let output = folder.path().join("mixed.db");
    let mut maps = [later(0), later(0)];
    let mut parts: Vec<MergeInput<'_>> = [&once, &two]
        .into_iter()
        .zip(&mut maps)
        .map(|(path, map)| MergeInput {
            path: path.clone(),
            part: 0,
            name: String::new(),
            map,
            metadata: Vec::new(),
            reach: None,
            known: None,
        })
        .collect();
    merge(&mut parts, &output, &MergeOptions::default()).expect("as they are");
    let refused = Rocpd.read_facts(&output, &options).expect_err("two clocks").to_string();
    assert!(refused.contains("different clocks") && refused.contains("system clock of node 0"), "{refused}");
}

#[test]
fn tables_without_row_numbers_are_refused_where_they_have_times() {
    check_changed(
        "without row numbers",
        &["rocpd_more_", "WITHOUT ROWID"],
        "CREATE TABLE \"rocpd_more{}\" (a TEXT PRIMARY KEY, start INTEGER) WITHOUT ROWID; INSERT INTO \"rocpd_more{}\" VALUES ('x', 7)",
    );
}

#[test]
fn hostile_views_are_written_anew_and_never_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("input.db");
    let connection = made(&path, GUID, "", &[("rocpd_region", &region(10, 20))]);
    connection
        .execute_batch(
            "CREATE VIEW kernels AS SELECT load_extension('/nowhere.so'); DROP VIEW rocpd_region; \
             CREATE VIEW rocpd_region AS SELECT 1 AS start; CREATE VIEW mine AS SELECT * FROM kernels",
        )
        .expect("views");
    drop(connection);
    let output = Connection::open(aligned(&path, 5).expect("aligned")).expect("a database");
    let text = |sql: &str| output.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap_or_default();
    assert!(!text("SELECT sql FROM sqlite_master WHERE name = 'kernels'").contains("load_extension"));
    assert_eq!(text("SELECT CAST(start AS TEXT) FROM rocpd_region"), "15");
    assert_eq!(text("SELECT sql FROM sqlite_master WHERE name = 'mine'"), "");
}

#[test]
fn cells_that_are_no_times_are_refused_with_their_place() {
    for (value, words) in [
        (Value::from("soon".to_owned()), "contains text instead of a time in ns"),
        (Value::Blob(vec![1]), "contains blob"),
        (Value::Real(1.5), "contains real"),
        (Value::from(i64::MAX), "exceeds the range"),
    ] {
        let place = ["table rocpd_region_", "row 2, column end"];
        check(words, &[words, place[0], place[1]], |path| {
            drop(made(path, GUID, "", &[("rocpd_region", &region(10, 20)), ("rocpd_region", &region(10, value))]));
        });
    }
}

#[test]
fn an_aligned_database_is_not_aligned_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("input.db");
    drop(made(&path, GUID, "", &[("rocpd_region", &region(10, 20))]));
    let once = aligned(&path, 5).expect("aligned");
    let refused = aligned(&once, 5).expect_err("already aligned").to_string();
    assert!(refused.contains("already aligned, to the system clock of node 0"), "{refused}");
}

#[test]
fn databases_that_do_not_go_together_are_not_merged() {
    let folder = tempfile::tempdir().expect("a folder");
    let [one, two] = ["one.db", "two.db"].map(|name| folder.path().join(name));
    let refused = |change: &str, guid: &str, words: &[&str]| {
        for path in [&one, &two] {
            let _ = std::fs::remove_file(path);
        }
        drop(made(&one, GUID, "", &[("rocpd_region", &region(10, 20))]));
        let connection = made(&two, guid, "", &[("rocpd_region", &region(10, 20))]);
        connection.execute_batch(&change.replace("{}", &schema::suffix_of(guid))).expect(change);
        drop(connection);
        let refused = merged(&[&one, &two], 5, false).expect_err(change).to_string();
        for word in words {
            assert!(refused.contains(word), "{change}: {refused}");
        }
        assert!(!folder.path().join("merged.db").exists(), "{change}: an output is left");
    };
    refused("", GUID, &["two.db", "from the same process, 00000545-", "one.db"]);
    let version = "UPDATE \"rocpd_metadata{}\" SET value = '3.0.0' WHERE tag = 'schema_version'";
    refused(version, OTHER_GUID, &["two.db", "schema 3.0.0", "one.db has 3"]);
    refused(
        "ALTER TABLE \"rocpd_region{}\" ADD COLUMN more",
        OTHER_GUID,
        &["two.db", "rocpd_region_", "11 columns and 10"],
    );
    refused("CREATE TABLE notes (a); INSERT INTO notes VALUES (1)", OTHER_GUID, &["two.db", "notes", "--drop-foreign"]);
    refused(
        "CREATE VIEW rocpd_mine AS SELECT 1; CREATE TABLE notes (start INTEGER); INSERT INTO notes VALUES (1)",
        OTHER_GUID,
        &["notes"],
    );
    // One may still leave it out, and one database may keep it.
    let output = Connection::open(merged(&[&one, &two], 5, true).expect("merged")).expect("a database");
    assert!(output.prepare("SELECT * FROM notes").is_err());
    let output = Connection::open(aligned(&two, 5).expect("aligned")).expect("a database");
    assert_eq!(output.query_row("SELECT start FROM notes", [], |row| row.get::<_, i64>(0)).expect("a row"), 1);
}

#[test]
fn schema_3_is_lifted_on_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let [one, two] = ["one.db", "two.db"].map(|name| folder.path().join(name));
    let process: [(&str, Value); 5] = [
        ("nid", 7.into()),
        ("ppid", 1.into()),
        ("pid", 5.into()),
        ("start", 1_795_000_000_000_000_000_i64.into()),
        ("fini", 1_795_000_007_900_000_000_i64.into()),
    ];
    drop(made(&one, GUID, "", &[("rocpd_region", &region(10, 20)), ("rocpd_info_process", &process)]));
    let connection = made(&two, OTHER_GUID, "", &[]);
    let table = format!("rocpd_metadata{}", schema::suffix_of(OTHER_GUID));
    connection
        .execute_batch(&format!("UPDATE \"{table}\" SET value = '3.0.0' WHERE tag = 'schema_version'"))
        .expect("a tag");
    drop(connection);
    let output = folder.path().join("merged.db");
    let lifted = |wanted: &str| {
        let mut maps = [later(0), later(0)];
        let [first, second] = &mut maps;
        let mut parts = [
            MergeInput {
                path: one.clone(),
                part: 0,
                name: String::new(),
                map: first,
                metadata: tags(),
                reach: None,
                known: None,
            },
            MergeInput {
                path: two.clone(),
                part: 1,
                name: String::new(),
                map: second,
                metadata: tags(),
                reach: None,
                known: None,
            },
        ];
        let options = MergeOptions { schema: Some(wanted.to_owned()), ..MergeOptions::default() };
        merge(&mut parts, &output, &options).map_err(|refused| refused.to_string())
    };
    let refused = lifted("4.1.0").expect_err("nothing becomes that");
    assert!(refused.contains("can only convert schema 3 to 3.0.0"), "{refused}");
    lifted("3.0.0").expect("lifted");
    let connection = Connection::open(&output).expect("a database");
    let count = |tag: &str, value: &str| -> i64 {
        let sql = "SELECT count(*) FROM rocpd_metadata WHERE tag = ?1 AND value LIKE ?2";
        connection.query_row(sql, [tag, value], |row| row.get(0)).expect("a count")
    };
    assert_eq!((count("schema_version", "3.0.0"), count("schema_version", "%")), (2, 2));
    // The other had its own tags, right or wrong.
    assert_eq!((count("schema_version_major", "3"), count("schema_creation_time", "%")), (1, 1));
    // The end of the process, not the present: equal inputs give equal outputs.
    assert_eq!(count("schema_creation_time", "2026-11-18 11:06:47"), 1);
    drop(connection);
    let first = std::fs::read(&output).expect("the output");
    lifted("3.0.0").expect("lifted again");
    assert_eq!(std::fs::read(&output).expect("the output"), first);
    let changed = Connection::open(&one).expect("a database");
    changed
        .execute_batch(&format!("ALTER TABLE \"rocpd_region{}\" ADD COLUMN more", schema::suffix_of(GUID)))
        .expect("a column");
    let refused = lifted("3.0.0").expect_err("other tables under one number");
    assert!(refused.contains("rocpd_region_") && refused.contains("does not match schema 3.0.0"), "{refused}");
}

#[test]
fn corrections_have_no_column() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("input.db");
    drop(made(&path, GUID, "", &[]));
    let options = RewriteOptions { annotate: true, ..RewriteOptions::default() };
    let refused =
        rewrite(&path, &folder.path().join("out.db"), &options, &mut later(1)).expect_err("refused").to_string();
    assert!(refused.contains("--annotate"), "{refused}");
}
