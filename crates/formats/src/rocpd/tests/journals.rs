//! Databases beside which a writer has left its journal, or still holds it: what was committed is
//! read, nothing else.

use super::*;

/// Times at which regions start, of an aligned copy.
fn starts(path: &Path) -> Vec<i64> {
    let output = Connection::open(aligned(path, 0).expect("aligned")).expect("a database");
    let mut statement = output.prepare("SELECT start FROM rocpd_region ORDER BY id").expect("a view");
    let rows = statement.query_map([], |row| row.get(0)).expect("rows");
    rows.collect::<Result<_, _>>().expect("rows")
}

fn insert(connection: &Connection, start: i64) {
    put(connection, &format!("rocpd_region{}", schema::suffix_of(GUID)), &region(start, start + 1));
}

/// Copies a database and what is beside it, as it would be found after a crash.
fn copied(path: &Path, to: &Path) {
    for ending in ["", "-wal", "-journal"] {
        let from = PathBuf::from(format!("{}{ending}", path.display()));
        if from.exists() {
            std::fs::copy(from, format!("{}{ending}", to.display())).expect("a copy");
        }
    }
}

#[test]
fn a_log_beside_it_is_read_as_far_as_it_is_committed() {
    let folder = tempfile::tempdir().expect("a folder");
    let [path, found] = ["writing.db", "found.db"].map(|name| folder.path().join(name));
    let connection = made(&path, GUID, "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0", &[]);
    insert(&connection, 10);
    insert(&connection, 20);
    connection.execute_batch("BEGIN").expect("a transaction");
    insert(&connection, 30);
    copied(&path, &found);
    // While it is written, and after a crash.
    assert_eq!(starts(&path), [10, 20]);
    assert_eq!(starts(&found), [10, 20]);
    connection.execute_batch("COMMIT").expect("committed");
    assert_eq!(starts(&path), [10, 20, 30]);
}

#[test]
fn nothing_is_left_beside_a_database_and_links_are_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    let [path, found, link] = ["writing.db", "found.db", "elsewhere/link.db"].map(|name| folder.path().join(name));
    let connection = made(&path, GUID, "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0", &[]);
    insert(&connection, 10);
    copied(&path, &found);
    let listing = |of: &Path| {
        let entries = std::fs::read_dir(of).expect("a listing").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = entries.filter(|name| !name.to_string_lossy().contains("aligned")).collect();
        names.sort();
        names
    };
    let before = listing(folder.path());
    // A crash has left a log without its shared memory.
    assert_eq!(starts(&found), [10]);
    assert_eq!(listing(folder.path()), before);
    std::fs::create_dir(folder.path().join("elsewhere")).expect("a folder");
    std::os::unix::fs::symlink(&found, &link).expect("a link");
    assert_eq!(starts(&link), [10]);
    // Closed in order, it is at rest, and stays so.
    drop(connection);
    assert!(!folder.path().join("writing.db-wal").exists());
    let before = listing(folder.path());
    assert_eq!(starts(&path), [10]);
    assert_eq!(listing(folder.path()), before);
}

#[test]
fn a_hot_journal_is_rolled_back_in_a_copy() {
    let folder = tempfile::tempdir().expect("a folder");
    let [path, found] = ["writing.db", "found.db"].map(|name| folder.path().join(name));
    let connection = made(&path, GUID, "", &[]);
    insert(&connection, 10);
    connection.execute_batch("PRAGMA cache_size = 5; BEGIN").expect("a transaction");
    for start in 0..5000 {
        insert(&connection, 100 + start);
    }
    // Its pages are in the file already, and those that were there before in the journal.
    copied(&path, &found);
    drop(connection);
    let before = std::fs::read(&found).expect("a file");
    assert!(folder.path().join("found.db-journal").metadata().expect("a journal").len() > 0);
    assert_eq!(starts(&found), [10]);
    assert!(std::fs::read(&found).expect("a file") == before, "the caller's file was changed");
}

#[test]
fn a_locked_database_is_waited_for_and_then_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("input.db");
    let connection = made(&path, GUID, "", &[("rocpd_region", &region(10, 20))]);
    connection.execute_batch("BEGIN EXCLUSIVE").expect("a lock");
    let refused = aligned(&path, 5).expect_err("locked").to_string();
    assert!(refused.contains("has locked it; wait until"), "{refused}");
    connection.execute_batch("COMMIT").expect("unlocked");
    aligned(&path, 5).expect("free again");
}

#[test]
fn a_file_that_grows_while_it_is_read_is_seen_in_one_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("input.db");
    let connection = made(&path, GUID, "PRAGMA journal_mode = WAL", &[]);
    for start in 1..50 {
        insert(&connection, start);
    }
    let readable = crate::sqlite::access::Readable::find(&path).expect("readable");
    let reading = readable.connect().expect("a connection");
    guard(&reading).expect("guarded");
    insert(&connection, 1000);
    let table = format!("rocpd_region{}", schema::suffix_of(GUID));
    let count: i64 =
        reading.query_row(&format!("SELECT count(*) FROM \"{table}\""), [], |row| row.get(0)).expect("rows");
    assert_eq!(count, 49);
}
