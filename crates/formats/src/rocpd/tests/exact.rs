//! Every cell but times stays, in type and bytes.

use proptest::prelude::*;

use super::*;

/// Inputs and what becomes of them alone and together.
fn check(inputs: &[PathBuf]) {
    let folder = tempfile::tempdir().expect("a folder");
    let copies: Vec<PathBuf> = inputs
        .iter()
        .enumerate()
        .map(|(place, path)| {
            let copy = folder.path().join(format!("{place}.db"));
            std::fs::copy(path, &copy).expect("a copy");
            copy
        })
        .collect();
    for by in [0, 1_795_099_228_226_274_252] {
        let mut all = BTreeMap::new();
        for copy in &copies {
            let output = aligned(copy, by).expect("aligned");
            let expected = content(copy).later(by).without_tags();
            let found = content(&output);
            assert!(found.clone().without_tags() == expected, "{} by {by}: cells changed", copy.display());
            let sidecars = ["-wal", "-journal", "-shm"].map(|ending| format!("{}{ending}", output.display()));
            assert!(sidecars.iter().all(|beside| !Path::new(beside).exists()), "a sidecar is left");
            all.extend(found.0.into_iter().filter(|(name, _)| name.starts_with("rocpd_")));
        }
        let paths: Vec<&Path> = copies.iter().map(PathBuf::as_path).collect();
        let mut together = content(&merged(&paths, by, false).expect("merged"));
        together.0.retain(|name, _| name.starts_with("rocpd_"));
        assert!(together.0 == all, "by {by}: a merge is not its alignments");
    }
}

#[test]
fn shared_databases_keep_every_cell_but_times() {
    for set in ["a_2node", "b_4node_offset_drift", "c_real_mi350_1node", "c_real_mi350_1node_2"] {
        let databases = shared(set);
        if !databases.is_empty() {
            check(&databases);
        }
    }
}

#[test]
fn odd_values_and_files_stay_what_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let invalid = Value::Blob(vec![0xff, 0, b'\'', b'"']);
    for (place, settings) in [
        "PRAGMA page_size = 512",
        "PRAGMA page_size = 65536",
        "PRAGMA encoding = 'UTF-16le'",
        "PRAGMA auto_vacuum = FULL",
        "PRAGMA user_version = 7",
    ]
    .iter()
    .enumerate()
    {
        let path = folder.path().join(format!("{place}.db"));
        let long = "é\0\"'`;--".repeat(9000);
        let far = [("id", Value::from(i64::MAX - 1)), ("timestamp", 5.into()), ("track_id", 1.into())];
        let early = [("id", Value::from(-3)), ("timestamp", Value::from(-80)), ("track_id", 1.into())];
        let rows: Rows<'_> = &[
            ("rocpd_string", &[("id", 5.into()), ("string", long.into())]),
            ("rocpd_string", &[("id", 9.into()), ("string", invalid.clone())]),
            ("rocpd_event", &[("extdata", Value::Real(0.1)), ("call_stack", invalid.clone())]),
            ("rocpd_event", &[("extdata", "17".to_owned().into()), ("category_id", "no number".to_owned().into())]),
            ("rocpd_region", &region(10, 20)),
            ("rocpd_region", &region(0, 20)),
            ("rocpd_region", &region(30, 0)),
            ("rocpd_sample", &far),
            ("rocpd_sample", &early),
            ("rocpd_info_thread", &[("nid", 7.into()), ("pid", 1.into()), ("tid", 1.into()), ("start", Value::Null)]),
            ("rocpd_pmc_event", &[("pmc_id", 1.into()), ("value", Value::Real(f64::NAN))]),
            ("rocpd_pmc_event", &[("pmc_id", 1.into()), ("value", Value::Real(-0.0))]),
        ];
        let connection = made(&path, GUID, settings, rows);
        // Text that is no UTF-8, as an instrument may write it.
        let suffix = schema::suffix_of(GUID);
        let odd = format!("INSERT INTO \"rocpd_string{suffix}\" (string) VALUES (CAST(x'ff00fe27' AS TEXT))");
        connection.execute_batch(&odd).expect("a row");
        connection.execute_batch(&format!("DELETE FROM \"rocpd_string{suffix}\" WHERE id = 5")).expect("a gap");
        drop(connection);
        check(&[path]);
    }
}

#[test]
fn rows_whose_number_is_no_column_are_all_copied() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("odd.db");
    let connection = made(&path, GUID, "", &[]);
    let suffix = schema::suffix_of(GUID);
    connection
        .execute_batch(&format!(
            "CREATE TABLE \"rocpd_down{suffix}\" (id INTEGER PRIMARY KEY DESC, start BIGINT); \
             INSERT INTO \"rocpd_down{suffix}\" VALUES (NULL, 10), (NULL, 20), (3, 30); \
             CREATE TABLE \"rocpd_named{suffix}\" (rowid TEXT, \"end\" BIGINT CHECK (json_valid(rowid) OR 1), more TEXT DEFAULT (datetime('now'))); \
             INSERT INTO \"rocpd_named{suffix}\" VALUES (NULL, 10, ''), ('5', 20, ''), (NULL, 30, ''); \
             CREATE INDEX by_length ON \"rocpd_named{suffix}\" (abs(\"end\"))"
        ))
        .expect("tables");
    drop(connection);
    check(&[path]);
}

#[test]
fn times_are_mapped_in_the_order_of_rows_and_keep_theirs() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("many.db");
    let connection = made(&path, GUID, "", &[]);
    let suffix = schema::suffix_of(GUID);
    // More than two batches, with gaps in their numbers.
    let count = 2 * (1 << 15) + 77;
    connection
        .execute_batch(&format!(
            "WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < {count}) INSERT INTO \"rocpd_region{suffix}\" \
             (id, nid, pid, tid, name_id, start, end) SELECT 3 * k, 7, 1, 1, 1, 10 * k, 10 * k + k % 7 FROM n"
        ))
        .expect("rows");
    drop(connection);
    let output = folder.path().join("out.db");
    // 50 ppm faster, with digits below the nanosecond.
    let mut map = |time: Picoseconds| time + time / 20_000;
    let stats = rewrite(&path, &output, &RewriteOptions::default(), &mut map).expect("aligned");
    assert_eq!((stats.events, stats.untimed), (count, 0));
    // Their names, processes and threads are not there.
    let noted = format!("{} references point to missing rows", 3 * count);
    assert!(stats.notes[0].starts_with(&noted), "{:?}", stats.notes);
    let before = content(&path);
    let after = content(&output);
    let name = format!("rocpd_region{suffix}");
    let (_, columns, rows) = &after.0[&name];
    let [start, end] = ["start", "end"].map(|name| columns.iter().position(|column| column == name).expect("a column"));
    let mut last = i64::MIN;
    for (old, new) in before.0[&name].2.iter().zip(rows) {
        let (Cell::Whole(old_start), Cell::Whole(old_end)) = (&old[start], &old[end]) else { panic!("{old:?}") };
        let (Cell::Whole(new_start), Cell::Whole(new_end)) = (&new[start], &new[end]) else { panic!("{new:?}") };
        let expected = |old: i64| (old as f64 * 1.00005).round() as i64;
        assert_eq!((*new_start, *new_end), (expected(*old_start), expected(*old_end)));
        assert!(*new_start > last && new_start <= new_end);
        last = *new_start;
    }
}

#[test]
fn views_count_every_row_once_where_processes_share_their_numbers() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths: Vec<PathBuf> = (0..5)
        .map(|host| {
            let path = folder.path().join(format!("{host}.db"));
            let process = [("id", Value::from(1)), ("nid", 7.into()), ("pid", 1.into())];
            let thread = [("id", Value::from(1)), ("nid", 7.into()), ("pid", 1.into()), ("tid", 1.into())];
            let rows: Rows<'_> = &[
                ("rocpd_info_process", &process),
                ("rocpd_info_thread", &thread),
                ("rocpd_string", &[("id", 1.into()), ("string", "step".to_owned().into())]),
                ("rocpd_event", &[("id", 1.into()), ("category_id", 1.into())]),
                (
                    "rocpd_region",
                    &[
                        ("id", 1.into()),
                        ("nid", 7.into()),
                        ("pid", 1.into()),
                        ("tid", 1.into()),
                        ("name_id", 1.into()),
                        ("event_id", 1.into()),
                        ("start", 10.into()),
                        ("end", 20.into()),
                    ],
                ),
            ];
            // Of five hosts two run copies of one image, and all have the same pid.
            drop(made(&path, &format!("0000000{host}-0000-7000-8000-000000000000"), "", rows));
            path
        })
        .collect();
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let connection = Connection::open(merged(&paths, 5, false).expect("merged")).expect("a database");
    for view in ["threads", "processes", "regions", "rocpd_region"] {
        let count: i64 =
            connection.query_row(&format!("SELECT count(*) FROM {view}"), [], |row| row.get(0)).expect(view);
        assert_eq!(count, 5, "{view}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_values_stay(
        texts in proptest::collection::vec((".{0,40}", any::<Option<i64>>(), any::<f64>(), proptest::collection::vec(any::<u8>(), 0..60)), 1..20),
        page in 9_u32..16,
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("any.db");
        let connection = made(&path, GUID, &format!("PRAGMA page_size = {}", 1 << page), &[]);
        let suffix = schema::suffix_of(GUID);
        for (text, number, real, bytes) in texts {
            // A time far from the ends of what 64 bits hold; the ends are refused.
            let time = number.map_or(Value::Null, |number| Value::from(number >> 2));
            let row = [("type", Value::from(text)), ("name", bytes.into()), ("value", real.into()), ("event_id", 1.into()), ("position", number.into())];
            put(&connection, &format!("rocpd_arg{suffix}"), &row.map(|(name, value)| (name, if value == Value::Null { 0.into() } else { value })));
            put(&connection, &format!("rocpd_info_process{suffix}"), &[("nid", 7.into()), ("pid", 1.into()), ("init", time.clone()), ("end", time)]);
        }
        drop(connection);
        check(&[path]);
    }
}
