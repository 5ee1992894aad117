//! What is refused, and what costs only itself.

use super::*;

fn refused(input: &Path, statements: &str, part: &str) {
    let (folder, path) = changed(input, statements);
    let of_facts = facts(&path).map(drop);
    let of_rewriting = rewritten(&path, folder.path(), &mut |time| time).map(drop);
    let of_chunks = Rpd.read_chunks(&path, &ChunkOptions::default(), &mut |time| time, &mut |_| Ok(())).map(drop);
    for result in [of_facts, of_rewriting, of_chunks] {
        let said = result.expect_err(part).to_string();
        assert!(said.contains(part) && said.contains("trace.rpd"), "{said}");
    }
    assert!(!folder.path().join("out.rpd").exists());
}

#[test]
fn what_would_run_or_is_no_trace_is_refused() {
    let check = |statements: &str, part: &str| refused(&made(0), statements, part);
    check("CREATE TRIGGER t AFTER INSERT ON rocpd_string BEGIN SELECT 1; END", "trigger t on rocpd_string");
    check("ALTER TABLE rocpd_api ADD COLUMN g INTEGER AS (start + 1)", "is generated");
    check("DROP VIEW api; PRAGMA foreign_keys = OFF; DROP TABLE rocpd_api", "it has no table rocpd_api");
    check(
        "ALTER TABLE rocpd_string RENAME TO s; CREATE TABLE rocpd_string (id INTEGER, string TEXT)",
        "has no INTEGER PRIMARY KEY id",
    );
}

#[test]
fn the_tables_of_a_database_decide_whose_it_is() {
    let name = |path: &Path| crate::detect(path).expect("a database").name();
    assert_eq!(name(&made(0)), "rpd");
    let folder = tempfile::tempdir().expect("a folder");
    let [other, damaged, database] = ["other.rpd", "damaged.rpd", "trace.db"].map(|name| folder.path().join(name));
    let connection = Connection::open(&other).expect("a database");
    connection.execute_batch("CREATE TABLE rocpd_metadata_x (a)").expect("a table");
    connection.close().expect("closed");
    assert_eq!(name(&other), "rocpd");
    std::fs::write(&damaged, &std::fs::read(made(0)).expect("a database")[..4000]).expect("a file");
    assert_eq!(name(&damaged), "rpd");
    let packed = folder.path().join("trace.rpd.gz");
    std::fs::write(&packed, b"\x1f\x8b\x08\x00").expect("a file");
    let said = facts(&packed).expect_err("packed").to_string();
    assert!(said.contains("decompress it first"), "{said}");
    std::fs::copy(made(0), &database).expect("a copy");
    let said = crate::Rocpd.read_facts(&database, &FactOptions::default()).expect_err("another format").to_string();
    assert!(said.contains("let its name end in .rpd"), "{said}");
}

#[test]
fn cells_that_hold_no_time_are_refused() {
    let (folder, path) = changed(&made(0), "UPDATE rocpd_op SET end = 'soon' WHERE id = 4294967299");
    let said = facts(&path).expect_err("no time").to_string();
    assert!(said.contains("the table rocpd_op, row 4294967299"), "{said}");
    let said = rewritten(&path, folder.path(), &mut |time| time).expect_err("no time").to_string();
    assert!(said.contains("table rocpd_op, row 4294967299, column end: contains text"), "{said}");
}

#[test]
fn a_damaged_index_hides_no_rows() {
    // An index of few rows in the place of the one of all.
    let statements = "CREATE INDEX few ON rocpd_string (string) WHERE string = ''; PRAGMA writable_schema = ON;
        UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = 'few') WHERE name = 'by_string';
        DELETE FROM sqlite_master WHERE name = 'few';";
    let (_folder, path) = changed(&made(0), statements);
    let (found, usual) = (facts(&path).expect("facts"), facts(&made(0)).expect("facts"));
    assert_eq!((found.collectives.len(), found.identity.rank), (usual.collectives.len(), usual.identity.rank));
}

#[test]
fn calls_and_devices_on_two_clocks_are_refused() {
    let ahead = "UPDATE rocpd_op SET start = start + 7000000000000, end = end + 7000000000000";
    let (_folder, path) = changed(&made(0), ahead);
    let said = facts(&path).expect_err("two clocks").to_string();
    assert!(said.contains("at least 7000.0") && said.contains("suspended"), "{said}");
}

#[test]
fn damaged_files_are_refused() {
    let whole = std::fs::read(made(0)).expect("a database");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.rpd");
    for length in [0, 50, 4000, whole.len() / 2, whole.len() - 1024] {
        std::fs::write(&path, &whole[..length]).expect("a file");
        let of_facts = Rpd.read_facts(&path, &FactOptions { thorough: true, ..FactOptions::default() });
        let said = of_facts.expect_err("damaged").to_string();
        assert!(said.contains("trace.rpd"), "{said}");
        assert!(rewritten(&path, folder.path(), &mut |time| time).is_err());
    }
}

#[test]
fn what_is_aligned_is_not_aligned_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let [once, twice] = ["once.rpd", "twice.rpd"].map(|name| folder.path().join(name));
    let metadata = [("probe_sync_timeline", "system clock of node 0"), ("probe_sync_sigma_ns", "512.5")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = RewriteOptions { metadata: &metadata, ..RewriteOptions::default() };
    rewrite::rewrite(&made(1), &once, &options, &mut |time| time + 5_000).expect("written");
    let found = facts(&once).expect("facts");
    assert_eq!(found.aligned_to.as_deref(), Some("system clock of node 0"));
    assert_eq!((found.aligned_sigma_ns, found.clock), (Some(512.5), crate::model::TraceClock::System));
    let said = rewrite::rewrite(&once, &twice, &options, &mut |time| time).expect_err("aligned").to_string();
    assert!(said.contains("already aligned, to the system clock of node 0"), "{said}");
    let options = RewriteOptions { annotate: true, ..RewriteOptions::default() };
    let said = rewrite::rewrite(&made(1), &twice, &options, &mut |time| time).expect_err("no column").to_string();
    assert!(said.contains("--annotate"), "{said}");
}

#[test]
fn times_far_from_the_others_are_left_out_and_counted() {
    let statements = "UPDATE rocpd_api SET end = 31536000000000000 WHERE id = 4294967299;
        UPDATE rocpd_op SET start = 0 WHERE id = 4294967299;
        UPDATE rocpd_op SET end = start - 5 WHERE id = 4294967300;";
    let (_folder, path) = changed(&made(0), statements);
    let (found, usual) = (facts(&path).expect("facts"), facts(&made(0)).expect("facts"));
    assert_eq!(found.span, usual.span);
    assert_eq!(found.omitted.iter().map(|(_, count)| count).sum::<u64>(), 3, "{:?}", found.omitted);
    assert!(found.warnings[0].contains("ignored 3 events"), "{:?}", found.warnings);
    let options = ChunkOptions { reach: found.reach, ..ChunkOptions::default() };
    let read = Rpd.read_chunks(&path, &options, &mut |time| time, &mut |_| Ok(())).expect("events");
    assert_eq!(read.left_out, 3);
}
