//! What is refused, and what costs only itself.

use super::*;
use crate::model::PairKind;

fn refused(input: &Path, statements: &str, part: &str) {
    let (folder, path) = changed(input, statements);
    let of_facts = facts(&path).map(drop);
    let of_rewriting = rewritten(&path, folder.path(), &mut |time| time).map(drop);
    let of_chunks = Nsys.read_chunks(&path, &ChunkOptions::default(), &mut |time| time, &mut |_| Ok(())).map(drop);
    for result in [of_facts, of_rewriting, of_chunks] {
        let said = result.expect_err(part).to_string();
        assert!(said.contains(part) && said.contains("report.sqlite"), "{said}");
    }
    assert!(!folder.path().join("out.sqlite").exists());
}

#[test]
fn what_would_run_or_has_no_origin_is_refused() {
    let made = made(0);
    let check = |statements: &str, part: &str| refused(&made, statements, part);
    check("CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN SELECT 1; END", "trigger t on StringIds");
    check("ALTER TABLE OSRT_API ADD COLUMN g INTEGER AS (start + 1)", "is generated");
    check("DROP TABLE TARGET_INFO_SESSION_START_TIME", "has no TARGET_INFO_SESSION_START_TIME.utcEpochNs");
    check("DELETE FROM TARGET_INFO_SESSION_START_TIME", "is empty");
    check("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = NULL", "is not a Unix time in ns");
    check("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = 5000000000", "is not a Unix time in ns");
    check(
        "INSERT INTO TARGET_INFO_SESSION_START_TIME SELECT * FROM TARGET_INFO_SESSION_START_TIME",
        "states several starts",
    );
    check("UPDATE META_DATA_EXPORT SET value = '-17' WHERE name = 'EXPORT_PARAM_TIME_SHIFT'", "--ts-shift=-17");
    check("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_CONFIG_TIME_SHIFT', '5')", "--ts-shift=5");
    let normalized = |value: &str| {
        format!("UPDATE META_DATA_EXPORT SET value = '{value}' WHERE name = 'EXPORT_PARAM_TIME_NORMALIZE';")
    };
    check(&normalized("maybe"), "neither true nor false");
    let shift = "UPDATE META_DATA_EXPORT SET value = '0' WHERE name = 'EXPORT_PARAM_TIME_SHIFT';";
    check(
        &format!("{}{shift}{}", normalize(), normalized("FALSE")),
        "EXPORT_PARAM_TIME_NORMALIZE), but they look like it",
    );
    check("DROP TABLE StringIds; CREATE TABLE StringIds (id INTEGER, value TEXT)", "has no INTEGER PRIMARY KEY id");
    let all = "DROP TABLE TARGET_INFO_SESSION_START_TIME; DROP TABLE ANALYSIS_DETAILS; DROP TABLE META_DATA_EXPORT;";
    check(all, "not an export of Nsight Systems");
}

#[test]
fn the_tables_of_a_database_decide_whose_it_is() {
    let name = |path: &Path| crate::detect(path).expect("a database").name();
    let none = "DROP TABLE TARGET_INFO_SESSION_START_TIME; DROP TABLE META_DATA_EXPORT;";
    let (_folder, export) = changed(&made(0), none);
    assert_eq!(name(&export), "nsys");
    let folder = tempfile::tempdir().expect("a folder");
    let [other, damaged] = ["other.sqlite", "damaged.sqlite"].map(|name| folder.path().join(name));
    let connection = Connection::open(&other).expect("a database");
    connection.execute_batch("CREATE TABLE rocpd_metadata_x (a)").expect("a table");
    connection.close().expect("closed");
    assert_eq!(name(&other), "rocpd");
    std::fs::write(&damaged, &std::fs::read(made(0)).expect("a database")[..4000]).expect("a file");
    assert_eq!(name(&damaged), "nsys");
    let output = folder.path().join("out.sqlite");
    let is_refused =
        |format: &dyn TraceFormat, input: &Path| crate::refuse_other_ending(format, &output, [input]).is_err();
    assert!(!is_refused(&crate::Rocpd, &other) && !is_refused(&Nsys, &export));
    assert!(is_refused(&crate::Rocpd, &export));
}

#[test]
fn cells_that_hold_no_time_are_refused() {
    let (folder, path) = changed(&made(0), "UPDATE OSRT_API SET end = 'soon' WHERE rowid = 3");
    let said = facts(&path).expect_err("no time").to_string();
    assert!(said.contains("the table OSRT_API, row 3"), "{said}");
    let said = rewritten(&path, folder.path(), &mut |time| time).expect_err("no time").to_string();
    assert!(said.contains("table OSRT_API, row 3, column end: contains text"), "{said}");
    let (_folder, path) = changed(&made(0), "UPDATE NVTX_EVENTS SET start = x'00' WHERE rowid = 4");
    let said = facts(&path).expect_err("no time").to_string();
    assert!(said.contains("the table NVTX_EVENTS, row 4"), "{said}");
}

#[test]
fn damaged_files_are_refused() {
    let whole = std::fs::read(made(0)).expect("a database");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("report.sqlite");
    for length in [0, 50, 4000, whole.len() / 2, whole.len() - 1024] {
        std::fs::write(&path, &whole[..length]).expect("a file");
        let of_facts = Nsys.read_facts(&path, &FactOptions { thorough: true, ..FactOptions::default() });
        let said = of_facts.expect_err("damaged").to_string();
        assert!(said.contains("report.sqlite"), "{said}");
        assert!(rewritten(&path, folder.path(), &mut |time| time).is_err());
    }
}

#[test]
fn what_is_aligned_is_not_aligned_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let [once, twice] = ["once.sqlite", "twice.sqlite"].map(|name| folder.path().join(name));
    let metadata = [("probe_sync_timeline", "system clock of node 0"), ("probe_sync_sigma_ns", "512.5")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = RewriteOptions { metadata: &metadata, ..RewriteOptions::default() };
    rewrite::rewrite(&made(1), &once, &options, &mut later(5)).expect("written");
    let found = facts(&once).expect("facts");
    assert_eq!(found.aligned_to.as_deref(), Some("system clock of node 0"));
    assert_eq!(found.aligned_sigma_ns, Some(512.5));
    let said = rewrite::rewrite(&once, &twice, &options, &mut later(5)).expect_err("aligned").to_string();
    assert!(said.contains("already aligned, to the system clock of node 0"), "{said}");
    let options = RewriteOptions { annotate: true, ..RewriteOptions::default() };
    let said = rewrite::rewrite(&made(1), &twice, &options, &mut later(5)).expect_err("no column").to_string();
    assert!(said.contains("--annotate"), "{said}");
}

#[test]
fn a_merge_names_the_outputs_that_are_possible() {
    let said = Nsys.merge(&mut [], Path::new("all.sqlite"), &MergeOptions::default()).expect_err("refused").to_string();
    assert!(said.contains("all.sqlite") && said.contains(".pftrace"), "{said}");
}

#[test]
fn times_far_from_the_others_are_left_out_and_counted() {
    let statements = "UPDATE OSRT_API SET start = 31536000000000000, end = 31536000000000000 WHERE rowid = 1;
        UPDATE SCHED_EVENTS SET start = -31536000000000000 WHERE rowid = 2;
        UPDATE NVTX_EVENTS SET start = 31536000000000000 WHERE rowid = 9;
        UPDATE OSRT_API SET end = start - 5 WHERE rowid = 4;";
    let (folder, path) = changed(&made(0), statements);
    let (found, usual) = (facts(&path).expect("facts"), facts(&made(0)).expect("facts"));
    let reach = found.reach.expect("a range");
    assert_eq!(found.span, usual.span);
    assert_eq!(found.omitted.iter().map(|(_, count)| count).sum::<u64>(), 4, "{:?}", found.omitted);
    assert!(found.warnings[0].contains("ignored 4 events"), "{:?}", found.warnings);
    let output = folder.path().join("moved.sqlite");
    let options = RewriteOptions { reach: Some(reach), ..RewriteOptions::default() };
    let stats =
        rewrite::rewrite(&path, &output, &options, &mut |time| time + (time - 1_750_000_000_000_000_000_000) / 1000)
            .expect("written");
    assert!(stats.notes.iter().any(|note| note.starts_with("4 implausible times")), "{:?}", stats.notes);
    assert_eq!(content(&output)["OSRT_API"].2[0][..2], content(&path)["OSRT_API"].2[0][..2]);
    let options = ChunkOptions { reach: Some(reach), ..ChunkOptions::default() };
    let read = Nsys.read_chunks(&path, &options, &mut |time| time, &mut |_| Ok(())).expect("events");
    // The table of scheduling is not shown.
    assert_eq!(read.left_out, 3);
}

#[test]
fn one_end_far_from_the_others_is_left_out() {
    let (_folder, path) = changed(&made(0), "UPDATE OSRT_API SET end = end + 31536000000000000 WHERE rowid = 3");
    let (found, usual) = (facts(&path).expect("facts"), facts(&made(0)).expect("facts"));
    assert_eq!((found.span, found.events), (usual.span, usual.events - 1));
    assert!(found.reach.is_some());
    assert!(found.warnings[0].contains("ignored 1 event"), "{:?}", found.warnings);
}

#[test]
fn markers_in_ranges_are_pairs_and_steps_are_numbered() {
    let statements = "INSERT INTO StringIds VALUES (900, 'probe_sync.clock#1749999999900000123');
        INSERT INTO NVTX_EVENTS (start, end, eventType, textId, domainId, eventId) VALUES (400000000, -1, 34, 900, 0, 900);
        INSERT INTO NVTX_EVENTS (start, end, eventType, text, domainId, eventId) VALUES (600000000, -1, 34, 'mark', 0, 902);
        INSERT INTO NVTX_EVENTS (start, end, eventType, text, domainId, eventId) VALUES (400000500, 400000600, 59, 'clkmark#1#1749999999900000200', 0, 901);";
    let (_folder, path) = changed(&made(0), statements);
    let found = facts(&path).expect("facts");
    let pairs: Vec<(Picoseconds, i64)> = found.pairs.iter().map(|pair| (pair.tracer_ps, pair.system_ns)).collect();
    assert_eq!(
        pairs,
        [
            (1_749_999_999_900_000_000_000, 1_749_999_999_900_000_123),
            (1_749_999_999_900_000_500_000, 1_749_999_999_900_000_200)
        ]
    );
    assert!(found.pairs.iter().all(|pair| pair.kind == PairKind::Marker));
    assert_eq!(found.span, facts(&made(0)).expect("facts").span);
    assert_eq!(found.steps.series().collect::<Vec<_>>(), ["step "]);
    // The end of a mark means nothing.
    assert_eq!(found.warnings, Vec::<String>::new());
}
