//! Rewriting: everything but times is copied, and every time is where its map puts it.

use super::*;
use crate::model::nearest_ns;

#[test]
fn the_identity_changes_nothing() {
    for input in [made(0), made(2), made_2021()] {
        let folder = tempfile::tempdir().expect("a folder");
        let (output, stats) = rewritten(&input, folder.path(), &mut |time| time).expect("written");
        assert_eq!(content(&output), content(&input), "{}", input.display());
        assert!(stats.notes.is_empty() && stats.events > 0, "{:?}", stats.notes);
    }
}

#[test]
fn a_constant_offset_moves_the_start_alone() {
    let input = made(2);
    let folder = tempfile::tempdir().expect("a folder");
    let by = -1_500_000_000;
    let (output, _) = rewritten(&input, folder.path(), &mut later(by)).expect("written");
    let mut expected = content(&input);
    let (_, columns, rows) = expected.get_mut(catalog::SESSION).expect("a start");
    assert_eq!(columns[..3], ["utcEpochNs", "utcTime", "localTime"]);
    let texts =
        [("2025-06-15T15:06:39", 1), ("2025-06-16T00:06:39", 2)].map(|(text, at)| (text.as_bytes().to_vec(), at));
    assert_eq!(rows[0][0], Cell::Whole(1_749_999_999_411_057_400));
    texts.iter().for_each(|(text, at)| assert_eq!(rows[0][*at], Cell::Text(text.clone())));
    rows[0][0] = Cell::Whole(1_749_999_999_411_057_400 + by);
    rows[0][1] = Cell::Text(b"2025-06-15T15:06:37".to_vec());
    rows[0][2] = Cell::Text(b"2025-06-16T00:06:37".to_vec());
    assert_eq!(content(&output), expected);
}

/// A clock that is 3 ms behind and gains 40 ppm.
fn drifting(time: Picoseconds) -> Picoseconds {
    time + 3_000_000_001_234 + (time - 1_750_000_000_000_000_000_000) / 25_000
}

#[test]
fn every_time_is_where_the_map_puts_it() {
    let input = made(1);
    let folder = tempfile::tempdir().expect("a folder");
    let (output, stats) = rewritten(&input, folder.path(), &mut drifting).expect("written");
    let start = |content: &Content| match content[catalog::SESSION].2[0][0] {
        Cell::Whole(start) => start,
        _ => panic!("a start"),
    };
    let (before, after) = (content(&input), content(&output));
    let (old_start, new_start) = (start(&before), start(&after));
    let mut times = 0;
    for (name, (sql, columns, rows)) in &before {
        let (new_sql, new_columns, new_rows) = &after[name];
        assert_eq!((new_sql, new_columns, new_rows.len()), (sql, columns, rows.len()), "{name}");
        for (row, new_row) in rows.iter().zip(new_rows) {
            for ((column, cell), new_cell) in columns.iter().zip(row).zip(new_row) {
                match (cell, new_cell) {
                    (Cell::Whole(old), Cell::Whole(new))
                        if ["start", "end", "timestamp"].contains(&column.as_str()) =>
                    {
                        times += 1;
                        let expected = nearest_ns(drifting(Picoseconds::from(old_start + old) * 1000));
                        assert_eq!(Some(new_start + new), expected, "{name}.{column}");
                    }
                    _ if name == catalog::SESSION => {}
                    _ => assert_eq!(cell, new_cell, "{name}.{column}"),
                }
            }
        }
    }
    assert!(times > 600 && stats.events > 350, "{times} times, {} events", stats.events);
    let moved = facts(&output).expect("facts").span.expect("a span");
    let span = facts(&input).expect("facts").span.expect("a span");
    assert_eq!(nearest_ns(moved.0), nearest_ns(drifting(span.0)));
    assert_eq!(nearest_ns(moved.1), nearest_ns(drifting(span.1)));
}

#[test]
fn raw_counts_lengths_and_numbers_that_are_no_times_stay() {
    let statements = "CREATE TABLE mine (start INTEGER, value); INSERT INTO mine VALUES (5000000000, 1);
        CREATE TABLE NEW_EVENTS (start INTEGER, rawTimestamp INTEGER); INSERT INTO NEW_EVENTS VALUES (5000000000, 5000000000);
        CREATE TABLE DYNAMIC_NVTXPAYLOAD_DATATYPE_1_2_3 (start INTEGER); INSERT INTO DYNAMIC_NVTXPAYLOAD_DATATYPE_1_2_3 VALUES (5000000000);
        CREATE VIEW kernels AS SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL;
        CREATE INDEX by_start ON CUPTI_ACTIVITY_KIND_KERNEL (start);
        UPDATE OSRT_API SET end = 9223372036854775807 WHERE rowid = 1;
        UPDATE OSRT_API SET end = -1 WHERE rowid = 2;";
    let (folder, input) = changed(&made(0), statements);
    let (output, stats) = rewritten(&input, folder.path(), &mut drifting).expect("written");
    let after = content(&output);
    let first = |table: &str, at: usize| after[table].2[0][at].clone();
    assert_eq!(first("mine", 0), Cell::Whole(5_000_000_000));
    assert_eq!(first("DYNAMIC_NVTXPAYLOAD_DATATYPE_1_2_3", 0), Cell::Whole(5_000_000_000));
    // Five seconds after the start the clock has gained 200 µs.
    assert_eq!(first("NEW_EVENTS", 0), Cell::Whole(5_000_200_000));
    assert_eq!(first("NEW_EVENTS", 1), Cell::Whole(5_000_000_000));
    let calls = &after["OSRT_API"].2;
    assert_eq!((&calls[0][1], &calls[1][1]), (&Cell::Whole(i64::MAX), &Cell::Whole(-1)));
    let notes = stats.notes.join("\n");
    for part in [
        "1 implausible times were not moved",
        "taken as times: NEW_EVENTS",
        "not taken as times: mine",
        "dropped 1 views",
    ] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
    let connection = Connection::open(&output).expect("a database");
    let indexes = "SELECT count(*) FROM sqlite_master WHERE type = 'index' AND name = 'by_start'";
    assert_eq!(connection.query_row(indexes, [], |row| row.get::<_, i64>(0)).expect("a count"), 1);
}

#[test]
fn times_that_are_unix_times_already_are_moved_as_such() {
    let (_folder, plain) = changed(&made(0), &normalize());
    let (found, usual) = (facts(&plain).expect("facts"), facts(&made(0)).expect("facts"));
    assert_eq!((found.span, found.events, found.warnings.len()), (usual.span, usual.events, 0));
    assert_eq!(found.collectives.len(), usual.collectives.len());
    // What stands in place of a time is 0 or −1 here too.
    let statements = "UPDATE OSRT_API SET end = 0 WHERE rowid = 1; UPDATE OSRT_API SET end = -1 WHERE rowid = 4;
        UPDATE SCHED_EVENTS SET start = 0 WHERE rowid = 2; UPDATE NVTX_EVENTS SET end = -1 WHERE rowid = 9;";
    let (folder, input) = changed(&plain, statements);
    let found = facts(&input).expect("facts");
    assert_eq!((found.span, found.reach), (usual.span, None));
    assert_eq!(found.omitted.iter().map(|(_, count)| count).sum::<u64>(), 4, "{:?}", found.omitted);
    let by = 1_000_000_007;
    let (output, stats) = rewritten(&input, folder.path(), &mut later(by)).expect("written");
    assert!(stats.notes.iter().any(|note| note.starts_with("4 implausible times")), "{:?}", stats.notes);
    let (before, after) = (content(&input), content(&output));
    for table in ["CUPTI_ACTIVITY_KIND_KERNEL", "OSRT_API", "SCHED_EVENTS", "NVTX_EVENTS"] {
        let (_, columns, rows) = &before[table];
        for (row, new_row) in rows.iter().zip(&after[table].2) {
            for ((column, cell), new_cell) in columns.iter().zip(row).zip(new_row) {
                let expected = match cell {
                    Cell::Whole(time) if time.abs() > 1 && ["start", "end"].contains(&column.as_str()) => {
                        Cell::Whole(time + by)
                    }
                    other => other.clone(),
                };
                assert_eq!(*new_cell, expected, "{table}.{column}");
            }
        }
    }
    assert_eq!(after[catalog::SESSION].2[0][0], Cell::Whole(1_749_999_999_500_000_000 + by));
}

#[test]
fn a_text_of_the_start_in_another_form_stays_and_is_told() {
    let statements = "UPDATE TARGET_INFO_SESSION_START_TIME SET utcTime = '2025-06-15 15:06:39'";
    let (folder, input) = changed(&made(0), statements);
    for (by, notes) in [(1, 0), (2_000_000_000, 1)] {
        let (output, stats) = rewritten(&input, folder.path(), &mut later(by)).expect("written");
        let told = stats.notes.iter().filter(|note| note.contains("utcTime still states the original start")).count();
        assert_eq!((told, stats.notes.len()), (notes, notes), "{:?}", stats.notes);
        assert_eq!(content(&output)[catalog::SESSION].2[0][1], Cell::Text(b"2025-06-15 15:06:39".to_vec()));
    }
}
