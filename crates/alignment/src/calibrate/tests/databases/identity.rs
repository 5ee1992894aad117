//! Whose a database is, its span, its markers; hostile rows; what several processes together come
//! to.

use super::*;

#[test]
fn a_database_says_whose_it_is_and_when_it_ran() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut database = process(folder.path(), 3, "gpu-07", &torch(3, 8));
    database.call("hipLaunchKernel", 1_000, 2_000, &[]);
    database.call("hipFree", 0, 9_000, &[]);
    database.sample(500, &text(r#"{"message": "probe_sync.clock#1700000000000000000"}"#));
    database.sample(600, &text(r#"{"message": "clkmark#1700000000000000001"}"#));
    let facts = database.facts().expect("facts");
    assert_eq!(facts.identity.hostname.as_deref(), Some("gpu-07"));
    assert_eq!((facts.identity.rank, facts.identity.world_size), (Some(3), Some(8)));
    assert_eq!(facts.identity.launcher, Some(Launcher::Torchrun));
    assert_eq!(facts.identity.guid.as_deref(), Some("00000003-aaaa-7bbb-8ccc-0123456789ab"));
    // The marker at 500 is none of the program's events, and neither is the process's start at 5.
    assert_eq!((facts.events, facts.span, facts.clock), (4, Some((600_000, 9_000_000)), TraceClock::Boot));
    let pairs: Vec<_> = facts.pairs.iter().map(|pair| (pair.tracer_ps, pair.system_ns, pair.kind)).collect();
    assert_eq!(pairs, [(500_000, 1_700_000_000_000_000_000, PairKind::Marker)]);
    assert!(!facts.merged && facts.notes.is_empty(), "{:?}", facts.notes);
}

#[test]
fn markers_are_names_and_messages() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut database = process(folder.path(), 0, "a", "{}");
    database.call("probe_sync.clock#70", 50, 60, &[]);
    database.call("now=71", 51, 60, &[]);
    database.call("probe_sync.rank#1/2", 52, 60, &[]);
    database.call("work", 53, 54, &[]);
    let markers = Some(regex::Regex::new(r"^now=(?<system_ns>\d+)$").expect("a pattern"));
    let facts = Rocpd.read_facts(&database.path, &FactOptions { markers, ..FactOptions::default() }).expect("facts");
    let times: Vec<_> = facts.pairs.iter().map(|pair| (pair.tracer_ps, pair.system_ns)).collect();
    assert_eq!(times, [(50_000, 70), (51_000, 71)]);
    assert_eq!((facts.identity.marked_rank, facts.identity.rank), (Some((1, 2)), Some(1)));
    assert_eq!(facts.span, Some((53_000, 54_000)));
}

#[test]
fn hostile_rows_are_refused_by_name_or_left_alone() {
    let check = |fill: &dyn Fn(&mut Database), expected: Result<Option<(i128, i128)>, &str>| {
        let folder = tempfile::tempdir().expect("a folder");
        let mut database = process(folder.path(), 0, "a", "{}");
        database.call("work", 10, 20, &[]);
        fill(&mut database);
        match (database.facts(), expected) {
            (Ok(found), Ok(span)) => assert_eq!(found.span, span),
            (Err(said), Err(part)) => assert!(said.contains(part) && said.contains("0_results.db"), "{said}"),
            (found, expected) => panic!("{found:?} for {expected:?}"),
        }
    };
    let region =
        |database: &mut Database, start: Value, end: Value| database.region(&text("ncclAllReduce"), [start, end], None);
    let wrong = "row 2: start, end must contain whole numbers of nanoseconds";
    check(&|database| region(database, text("soon"), 30.into()), Err(wrong));
    check(&|database| region(database, Value::Real(30.5), 31.into()), Err(wrong));
    check(&|database| region(database, 30.into(), Value::Blob(vec![1])), Err(wrong));
    let ordinary = Ok(Some((10_000, 20_000)));
    check(&|database| region(database, Value::Null, 0.into()), ordinary);
    let whole = (i128::from(i64::MIN) * 1000, i128::from(i64::MAX) * 1000);
    check(&|database| region(database, i64::MIN.into(), i64::MAX.into()), Ok(Some(whole)));
    let message = |bytes: &[u8]| Value::Blob(bytes.to_vec());
    for extra in [
        text("not a JSON object"),
        text("{\"message\": 7}"),
        message(b"{\"message\": \"\xff\xfe\"}"),
        Value::Null,
        12.into(),
    ] {
        check(&|database| database.sample(15, &extra), ordinary);
    }
    check(
        &|database| {
            let name = Value::Blob(b"nccl\xff\x00AllReduce".to_vec());
            database.region(&name, [15.into(), 16.into()], None);
            let statement = format!(
                "INSERT INTO \"rocpd_string{0}\" (id, string) VALUES (99, CAST(x'6e63636cff416c6c' AS TEXT)); \
                 INSERT INTO \"rocpd_region{0}\" (start, \"end\", name_id) VALUES (12, 13, 99)",
                database.suffix
            );
            database.connection.execute_batch(&statement).expect("a row");
        },
        ordinary,
    );
}

#[test]
fn no_cut_and_no_changed_byte_panics() {
    changed_bytes(1499);
}

#[test]
#[ignore = "long: writes and reads some 4000 damaged databases"]
fn no_cut_and_no_changed_byte_of_many_panics() {
    changed_bytes(97);
}

/// A prime `step` meets every kind of page and every place in a row.
fn changed_bytes(step: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut database = process(folder.path(), 0, "gpu-07", &torch(0, 2));
    for turn in 0..50 {
        database.call("ncclAllReduce", 100 * turn + 1, 100 * turn + 50, SUM);
        database.sample(100 * turn + 60, &text(r#"{"message": "probe_sync.clock#1700000000000000000"}"#));
    }
    let whole = std::fs::read(&database.path).expect("a database");
    let path = folder.path().join("bent_results.db");
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("written");
        Rocpd.read_facts(&path, &FactOptions::default()).map(|facts| facts.events).map_err(|error| error.to_string())
    };
    assert_eq!(read(&whole), Ok(100));
    let named = |bytes: &[u8]| {
        if let Err(said) = read(bytes) {
            assert!(said.contains("bent_results.db"), "{said}");
        }
    };
    for at in (0..whole.len()).step_by(step) {
        for flip in [0x01, 0x80, 0xff] {
            let mut bent = whole.clone();
            bent[at] ^= flip;
            named(&bent);
        }
    }
    // A page that no row of interest is on may be missing.
    (0..whole.len()).step_by(10 * step + 39).for_each(|end| named(&whole[..end]));
    assert!(read(&whole[..whole.len() / 2]).is_err());
}

#[test]
fn a_damaged_environment_costs_the_rank_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let facts = process(folder.path(), 0, "a", "{\"RANK\": ").facts().expect("facts");
    assert_eq!((facts.identity.rank, facts.identity.hostname.as_deref()), (None, Some("a")));
    assert!(facts.warnings[0].contains("cannot parse the stored environment"), "{:?}", facts.warnings);
}

#[test]
fn rows_of_several_machines_are_on_several_clocks() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut database = process(folder.path(), 0, "a", &torch(0, 2));
    database.call("work", 10, 20, &[]);
    let other = "00000009-aaaa-7bbb-8ccc-0123456789ab";
    database.insert("rocpd_info_node", "id, guid, machine_id, hostname", params![8, other, "0101", "b"]);
    database.insert("rocpd_info_process", "id, guid, environment", params![2, other, torch(1, 2)]);
    let facts = database.facts().expect("facts");
    assert!(facts.merged && facts.identity.rank.is_none() && facts.identity.hostname.is_none());
    assert_eq!(facts.clock, TraceClock::SeveralBoot);
    let offsets = folder.path().join("offsets.csv");
    std::fs::write(&offsets, "node,node_realtime_ns,offset_vs_node0_ns\n0,0,0\n0,90000000,0\n").expect("written");
    let request = Request {
        traces: vec![database.path],
        nodes: vec![0],
        clocks: ClockSource::Offsets(offsets),
        ..Request::default()
    };
    let refused = calibrate(&request).expect_err("two clocks").to_string();
    assert!(refused.contains("rows from several machines"), "{refused}");
}

#[test]
fn a_trace_with_markers_needs_no_pairs_and_says_which_it_does_not_use() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut database = process(folder.path(), 0, "a", "{}");
    // The machine was started an hour before 1.7·10¹⁸ ns.
    let boot = |second: i64| 3_600_000_000_000 + second * 1_000_000_000;
    let system = |second: i64| 1_700_000_000_000_000_000 + second * 1_000_000_000;
    for second in 0..20 {
        let marker = format!(r#"{{"message": "probe_sync.clock#{}"}}"#, system(second));
        database.sample(boot(second) + 5_000, &text(&marker));
    }
    database.call("work", boot(3), boot(4), &[]);
    let written = |name: &str, content: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("written");
        path
    };
    let row = |second: i64| format!("0,{},0\n", system(second));
    let offsets = written("offsets.csv", format!("node,node_realtime_ns,offset_vs_node0_ns\n{}{}", row(0), row(20)));
    let pair = format!(
        r#"{{"sys_clock_ns": {}, "tracer_clock_ns": {}, "bracket_ns": 100, "tracer_clock": "monotonic"}}"#,
        system(3),
        boot(3)
    );
    let pairs = written("pairs.jsonl", pair);
    let request = |snapshots: Vec<PathBuf>| Request {
        traces: vec![database.path.clone()],
        nodes: vec![0],
        clocks: ClockSource::Offsets(offsets.clone()),
        snapshots,
        ..Request::default()
    };
    for snapshots in [Vec::new(), vec![pairs]] {
        let given = !snapshots.is_empty();
        let calibrated = calibrate(&request(snapshots)).expect("tied by markers");
        assert_eq!(calibrated.timeline, "system clock of node 0");
        let trace = &calibrated.traces[0];
        let at = trace.map.as_ref().expect("a map").map(i128::from(boot(3)) * 1000).time_ps;
        let early = i128::from(system(3)) * 1000 - at;
        assert!((0..6_000_000).contains(&early), "{early} ps early");
        let told = trace
            .notes
            .iter()
            .any(|note| note.contains("for the clock monotonic") && note.contains("using the trace's own markers"));
        assert_eq!(told, given, "{:?}", trace.notes);
    }
}

#[test]
fn equal_numbers_of_processes_and_machines_are_told_apart_by_host_and_guid() {
    let folder = tempfile::tempdir().expect("a folder");
    // Five hosts, all process 1 of machine 0101; the last rank was started again, and has a helper
    // that inherited its variables.
    let mut databases: Vec<Database> =
        (0..5).map(|rank| process(folder.path(), rank, &format!("host{rank}"), &torch(rank, 5))).collect();
    databases.push(process(folder.path(), 5, "host4", &torch(4, 5)));
    for database in &mut databases[..5] {
        database.call("ncclCommInitRank", 1, 2, &[("newcomm", "0x7ffe"), ("nranks", "5"), ("myrank", "0")]);
    }
    databases[5].call("work", 10, 20, &[]);
    let traces: Vec<PathBuf> = databases.iter().map(|database| database.path.clone()).collect();
    let calibrated = calibrate(&Request { traces, ..Request::default() }).expect("six processes");
    let mut parts: Vec<u32> = calibrated.traces.iter().map(|trace| trace.trace.part).collect();
    parts.sort_unstable();
    assert_eq!(parts, [0, 1, 2, 3, 4, 5]);
    let copy = folder.path().join("copy_results.db");
    std::fs::copy(&databases[2].path, &copy).expect("copied");
    let twice = Request { traces: vec![databases[2].path.clone(), copy], ..Request::default() };
    let refused = calibrate(&twice).expect_err("one process twice").to_string();
    assert!(
        refused.contains("are both from the process 00000002-") && refused.contains("copy_results.db"),
        "{refused}"
    );
}

#[test]
fn a_run_without_the_pairs_of_a_node_says_where_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut database = process(folder.path(), 0, "gpu-07", "{}");
    database.call("work", 3_600_000_000_000, 3_600_000_100_000, &[]);
    let row =
        |second: i64| format!("{{\"node_id\":1,\"midpoint_sys_ns\":{},\"offset_ns\":5}}\n", second * 1_000_000_000);
    std::fs::write(folder.path().join("offsets.jsonl"), [row(0), row(9_000)].concat()).expect("written");
    let clocks = ClockSource::Run(folder.path().to_owned());
    let request = Request { traces: vec![database.path.clone()], nodes: vec![1], clocks, ..Request::default() };
    let refused = calibrate(&request).expect_err("no pairs").to_string();
    let parts = ["has no pairs for node 1 (gpu-07)", "copy node1.snapshot_pairs.jsonl", "--from-collectives"];
    assert!(parts.iter().all(|part| refused.contains(part)), "{refused}");
    assert!(!refused.contains("Give --run-dir"), "the flag that was given: {refused}");
}
