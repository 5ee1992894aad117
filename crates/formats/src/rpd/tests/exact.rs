//! Rewriting: everything but times is copied, and every time is where its map puts it.

use super::*;
use crate::model::nearest_ns;

#[test]
fn the_identity_changes_nothing() {
    for input in [made(0), made(2), made_of_schema_2()] {
        let folder = tempfile::tempdir().expect("a folder");
        let (output, stats) = rewritten(&input, folder.path(), &mut |time| time).expect("written");
        assert_eq!(content(&output), content(&input), "{}", input.display());
        assert!(stats.notes.is_empty() && stats.events > 0, "{:?}", stats.notes);
    }
}

/// A clock that is 3 ms behind and gains 40 ppm.
fn drifting(time: Picoseconds) -> Picoseconds {
    time + 3_000_000_001_234 + time / 25_000
}

#[test]
fn every_time_is_where_the_map_puts_it() {
    for input in [made(1), made_of_schema_2()] {
        let folder = tempfile::tempdir().expect("a folder");
        let (output, stats) = rewritten(&input, folder.path(), &mut drifting).expect("written");
        let (before, mut after) = (content(&input), content(&output));
        let mut times = 0;
        for (name, (sql, columns, rows)) in before {
            let (new_sql, new_columns, new_rows) = after.remove(&name).expect("an entry");
            assert_eq!((new_sql, &new_columns, new_rows.len()), (sql, &columns, rows.len()), "{name:?}");
            for (row, new_row) in rows.iter().zip(&new_rows) {
                for ((column, cell), new_cell) in columns.iter().zip(row).zip(new_row) {
                    let expected = match cell {
                        Value::Integer(old) if ["start", "end"].contains(&column.as_str()) => {
                            times += 1;
                            let new = nearest_ns(drifting(Picoseconds::from(*old) * 1000));
                            Value::Integer(new.expect("a time"))
                        }
                        other => other.clone(),
                    };
                    assert_eq!(*new_cell, expected, "{name:?}.{column}");
                }
            }
        }
        assert!(after.is_empty() && times > 30 && stats.events as usize * 2 == times, "{times} times, {stats:?}");
        let [old, new] = [&input, &output].map(|path| facts(path).expect("facts").span.expect("a span"));
        assert_eq!(nearest_ns(new.0), nearest_ns(drifting(old.0)));
        assert_eq!(nearest_ns(new.1), nearest_ns(drifting(old.1)));
    }
}

#[test]
fn only_times_of_the_tracer_move_and_what_others_added_stays() {
    let statements = "CREATE TABLE ext_ranges (start integer, name); INSERT INTO ext_ranges VALUES (5, x'00ff');
        CREATE TABLE rocpd_hsaApi (id integer PRIMARY KEY, pid integer, tid integer, start integer, end integer, apiName_id integer, args_id integer);
        INSERT INTO rocpd_hsaApi VALUES (7, 1, 1, 1000, 2000, 1, 1);
        CREATE VIEW mine AS SELECT missing FROM nowhere;
        UPDATE rocpd_api SET start = 0 WHERE id = (SELECT max(id) FROM rocpd_api);
        UPDATE rocpd_op SET end = -1 WHERE id = (SELECT max(id) FROM rocpd_op);
        UPDATE rocpd_metadata SET value = x'31' WHERE tag = 'session_count';";
    let (folder, input) = changed(&made(0), statements);
    let (output, stats) = rewritten(&input, folder.path(), &mut |time| time + 1_000_000).expect("written");
    let (before, after) = (content(&input), content(&output));
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    let rows = |content: &Content, table: &str| content[&("table".to_owned(), table.to_owned())].2.clone();
    for table in ["ext_ranges", "rocpd_metadata", "rocpd_string", "rocpd_api_ops", "sqlite_sequence"] {
        assert_eq!(rows(&after, table), rows(&before, table), "{table}");
    }
    assert_eq!(rows(&after, "rocpd_hsaApi")[0][3..5], [Value::Integer(2000), Value::Integer(3000)]);
    assert_eq!(rows(&after, "rocpd_api").last().expect("a row")[3], Value::Integer(0));
    let notes = stats.notes.join("\n");
    assert!(notes.contains("2 implausible times were not moved"), "{notes}");
    assert!(notes.contains("not taken as times: ext_ranges"), "{notes}");
}
