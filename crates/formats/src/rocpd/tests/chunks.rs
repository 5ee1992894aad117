//! What chunks of a database hold, against SQL over it.

use super::*;
use crate::chunk::Sorter;
use crate::chunk::{Chunk, FlowEnd, TrackKind, Value as Argument};
use crate::{AgentIndex, ChunkOptions, FactOptions, WantedArgs};

/// Everything of a database as one chunk, in the order of time; times through a shift.
fn read(path: &Path, options: &ChunkOptions, shift_ns: i64) -> Result<(Chunk, u64), Error> {
    let mut sorter = Sorter::default();
    let mut map = |time: Picoseconds| time + Picoseconds::from(shift_ns) * 1000;
    let stats = Rocpd.read_chunks(path, options, &mut map, &mut |chunk| sorter.push(chunk, |_, _| true))?;
    let (mut sorted, mut chunk, mut more) = (sorter.finish(0)?, Chunk::default(), Chunk::default());
    assert!(sorted.next(&mut chunk)?);
    chunk.check(0)?;
    assert!(!sorted.next(&mut more)?, "it fits into one chunk");
    Ok((chunk, stats.untimed))
}

fn with_args() -> ChunkOptions {
    ChunkOptions { args: WantedArgs::All, ..ChunkOptions::default() }
}

/// Slices and the sum of their lengths by kind, moments, arguments and arrows, as SQL finds them.
fn by_sql(path: &Path) -> (usize, i64, usize, usize, usize) {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("a database");
    let number =
        |sql: &str| connection.query_row(sql, [], |row| row.get::<_, Option<i64>>(0)).expect("a number").unwrap_or(0);
    let tables = ["region", "kernel_dispatch", "memory_copy", "memory_allocate"].map(|table| format!("rocpd_{table}"));
    let count = tables.iter().map(|table| number(&format!("SELECT count(*) FROM {table}"))).sum::<i64>();
    let length = tables.iter().map(|table| number(&format!("SELECT sum(\"end\" - start) FROM {table}"))).sum::<i64>();
    let events: Vec<String> = tables.iter().map(|table| format!("SELECT event_id FROM {table}")).collect();
    let arrows = number(&format!(
        "SELECT sum(n - 1) FROM (SELECT count(*) AS n FROM rocpd_event WHERE stack_id != 0 AND id IN ({}) GROUP BY guid, stack_id)",
        events.join(" UNION ALL ")
    ));
    let (samples, args) = (number("SELECT count(*) FROM rocpd_sample"), number("SELECT count(*) FROM rocpd_arg"));
    (count as usize, length, samples as usize, args as usize, arrows as usize)
}

#[test]
fn chunks_hold_what_sql_finds() {
    for set in ["a_2node", "b_4node_offset_drift", "c_real_mi350_1node", "c_real_mi350_1node_2"] {
        for path in shared(set) {
            let (chunk, untimed) = read(&path, &with_args(), 1000).expect("read");
            let (slices, length, samples, args, arrows) = by_sql(&path);
            let found: i64 =
                chunk.slices.end_ns.iter().zip(&chunk.slices.start_ns).map(|(end, start)| end - start).sum();
            assert_eq!(
                (chunk.slices.track.len(), found, chunk.instants.track.len(), untimed),
                (slices, length, samples, 0)
            );
            let mut ends: BTreeMap<u64, usize> = BTreeMap::new();
            chunk
                .slices
                .flow
                .iter()
                .filter(|flow| flow.id != 0)
                .for_each(|flow| *ends.entry(flow.id).or_default() += 1);
            assert_eq!(ends.values().map(|count| count - 1).sum::<usize>(), arrows, "{}", path.display());
            let texts = |name: &str| chunk.args.key.iter().filter(|key| chunk.strings.text(**key) == name).count();
            assert!(args == 0 || texts("sendbuff") > 0, "{}", path.display());
            let (shifted, _) = read(&path, &with_args(), 0).expect("read");
            let moved = shifted.slices.start_ns.iter().map(|start| start + 1000);
            assert!(moved.eq(chunk.slices.start_ns.iter().copied()), "every time went through the map");
        }
    }
}

/// A process of pid 9 with a region that launches a kernel, an argument, a counted value and a
/// moment without a time.
#[expect(clippy::too_many_lines, reason = "a whole database as its chunks")]
fn one(path: &Path, guid: &str) {
    let text = |text: &str| Value::from(text.to_owned());
    let n = |number: i64| Value::from(number);
    let rows: Rows<'_> = &[
        ("rocpd_string", &[("id", n(1)), ("string", text("hipLaunchKernel"))]),
        ("rocpd_string", &[("id", n(2)), ("string", text("MARKER_CORE_RANGE_API"))]),
        (
            "rocpd_info_process",
            &[("id", n(9)), ("nid", n(7)), ("pid", n(9)), ("command", text("/usr/bin/train --fast"))],
        ),
        ("rocpd_info_thread", &[("id", n(9)), ("nid", n(7)), ("pid", n(9)), ("tid", n(9)), ("name", text("main"))]),
        (
            "rocpd_info_agent",
            &[
                ("id", n(3)),
                ("nid", n(7)),
                ("pid", n(9)),
                ("type", text("GPU")),
                ("absolute_index", n(4)),
                ("logical_index", n(2)),
                ("type_index", n(0)),
                ("name", text("gfx942")),
            ],
        ),
        ("rocpd_info_queue", &[("id", n(5)), ("nid", n(7)), ("pid", n(9)), ("name", text("Queue 5"))]),
        ("rocpd_info_stream", &[("id", n(6)), ("nid", n(7)), ("pid", n(9)), ("name", text("Stream 6"))]),
        (
            "rocpd_info_pmc",
            &[
                ("id", n(1)),
                ("nid", n(7)),
                ("pid", n(9)),
                ("agent_id", n(3)),
                ("name", text("SQ_WAVES")),
                ("symbol", text("SQ_WAVES")),
            ],
        ),
        ("rocpd_event", &[("id", n(1)), ("category_id", n(1)), ("stack_id", n(40))]),
        ("rocpd_event", &[("id", n(2)), ("category_id", n(1)), ("stack_id", n(40))]),
        (
            "rocpd_event",
            &[("id", n(3)), ("category_id", n(2)), ("stack_id", n(0)), ("extdata", text("{\"message\":\"step 3\"}"))],
        ),
        (
            "rocpd_region",
            &[
                ("id", n(1)),
                ("nid", n(7)),
                ("pid", n(9)),
                ("tid", n(9)),
                ("start", n(100)),
                ("end", n(200)),
                ("name_id", n(1)),
                ("event_id", n(1)),
            ],
        ),
        (
            "rocpd_region",
            &[
                ("id", n(2)),
                ("nid", n(7)),
                ("pid", n(9)),
                ("tid", n(9)),
                ("start", n(90)),
                ("end", n(300)),
                ("name_id", n(1)),
                ("event_id", n(3)),
            ],
        ),
        (
            "rocpd_region",
            &[
                ("id", n(3)),
                ("nid", n(7)),
                ("pid", n(9)),
                ("tid", n(9)),
                ("start", n(90)),
                ("end", n(0)),
                ("name_id", n(1)),
            ],
        ),
        (
            "rocpd_arg",
            &[
                ("id", n(1)),
                ("event_id", n(1)),
                ("position", n(0)),
                ("type", text("int")),
                ("name", text("grid")),
                ("value", text("64")),
            ],
        ),
        (
            "rocpd_kernel_dispatch",
            &[
                ("id", n(1)),
                ("nid", n(7)),
                ("pid", n(9)),
                ("tid", n(9)),
                ("agent_id", n(3)),
                ("kernel_id", n(1)),
                ("dispatch_id", n(1)),
                ("queue_id", n(5)),
                ("stream_id", n(6)),
                ("start", n(150)),
                ("end", n(180)),
                ("workgroup_size_x", n(1)),
                ("workgroup_size_y", n(1)),
                ("workgroup_size_z", n(1)),
                ("grid_size_x", n(64)),
                ("grid_size_y", n(1)),
                ("grid_size_z", n(1)),
                ("event_id", n(2)),
            ],
        ),
        ("rocpd_pmc_event", &[("id", n(1)), ("event_id", n(2)), ("pmc_id", n(1)), ("value", Value::from(2.5))]),
        ("rocpd_pmc_event", &[("id", n(2)), ("event_id", n(2)), ("pmc_id", n(1)), ("value", Value::from(4.0))]),
    ];
    drop(made(path, guid, "", rows));
}

#[test]
fn rows_of_a_database_become_tracks_flows_and_values() {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("one_results.db");
    one(&path, "00000545-b497-7dea-bd43-ec1fa8b02134");
    for (group_by_queue, agent_index, row, agent) in [
        (false, AgentIndex::Relative, "Stream 6", "Agent-2 (GPU gfx942)"),
        (true, AgentIndex::Absolute, "Queue 5", "Agent-4 (GPU gfx942)"),
        (true, AgentIndex::TypeRelative, "Queue 5", "GPU-0 (GPU gfx942)"),
    ] {
        let options = ChunkOptions { rank: Some(2), group_by_queue, agent_index, ..with_args() };
        let (chunk, untimed) = read(&path, &options, 0).expect("read");
        let labels: Vec<String> = chunk.tracks.iter().map(|track| track.label()).collect();
        assert_eq!(labels, ["rank 2 · gpu-1 · train 9", "main", agent, row, "SQ_WAVES"]);
        assert_eq!(untimed, 1, "the region that never ended");
        let names: Vec<&str> = chunk.slices.name.iter().map(|name| chunk.strings.text(*name)).collect();
        assert_eq!(names, ["step 3", "hipLaunchKernel", ""], "a marker is called what it says");
        assert_eq!((chunk.slices.track[1].0, chunk.slices.track[2].0), (1, 3));
        assert_eq!(chunk.slices.flow[0].id, 0);
        assert_eq!(chunk.slices.flow[1].id, chunk.slices.flow[2].id);
        assert_eq!((chunk.slices.flow[1].end, chunk.slices.flow[2].end), (FlowEnd::Out, FlowEnd::In));
        let range = chunk.slices.args[1];
        assert_eq!((range.count, chunk.strings.text(chunk.args.key[range.first as usize])), (1, "grid"));
        assert!(matches!(chunk.args.value[range.first as usize], Argument::Text(id) if chunk.strings.text(id) == "64"));
        // Both instances of the counter together, from the kernel's start until its end.
        assert_eq!((chunk.counters.time_ns.clone(), chunk.counters.value.clone()), (vec![150, 180], vec![6.5, 0.0]));
        assert!(matches!(chunk.tracks[4].kind, TrackKind::Counter { .. }));
    }
}

/// Values of the counters of this name by the name of their agent, each with its time.
fn counted(chunk: &Chunk, name: &str) -> BTreeMap<String, Vec<(i64, f64)>> {
    let mut found: BTreeMap<String, Vec<(i64, f64)>> = BTreeMap::new();
    let counters = &chunk.counters;
    for ((track, time), value) in counters.track.iter().zip(&counters.time_ns).zip(&counters.value) {
        let track = &chunk.tracks[track.0 as usize];
        if track.name == name {
            assert!(matches!(&track.kind, TrackKind::Counter { unit } if unit == "bytes"));
            let agent = track.parent.map_or_else(String::new, |agent| chunk.tracks[agent.0 as usize].name.clone());
            found.entry(agent).or_default().push((*time, *value));
        }
    }
    found
}

#[test]
fn bytes_copied_and_allocated_are_what_sql_finds() {
    let mut points = 0;
    for set in ["a_2node", "b_4node_offset_drift"] {
        let databases = shared(set);
        if databases.is_empty() {
            return;
        }
        for path in databases {
            let (chunk, _) = read(&path, &with_args(), 0).expect("read");
            let connection = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("a database");
            let at =
                |sql: &str, time: i64| connection.query_row(sql, [time], |row| row.get::<_, f64>(0)).expect("a sum");
            let copying = "SELECT total(size) FROM rocpd_memory_copy WHERE start <= ?1 AND \"end\" > ?1";
            let allocated = "SELECT total(size * CASE type WHEN 'ALLOC' THEN 1 ELSE 0 END) FROM rocpd_memory_allocate WHERE \"end\" <= ?1";
            for (name, sql) in [("bytes copied", copying), ("bytes allocated", allocated)] {
                let found = counted(&chunk, name);
                assert_eq!(found.len(), 1, "one agent takes part: {}", path.display());
                for (time, value) in found.into_values().flatten() {
                    assert_eq!(value, at(sql, time), "{name} at {time} of {}", path.display());
                    points += 1;
                }
            }
        }
    }
    assert!(points > 100, "{points} values were compared");
}

#[test]
fn memory_that_is_given_back_is_found_by_its_address() {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("one_results.db");
    let n = |number: i64| Value::from(number);
    let connection = made(&path, GUID, "", &[]);
    let table = |base: &str| format!("{base}{}", schema::suffix_of(GUID));
    let call = |id: i64, kind: &str, level: &str, agent: Option<i64>, times: [i64; 2], address: i64, size: i64| {
        let text = |text: &str| Value::from(text.to_owned());
        let row = [
            ("id", n(id)),
            ("nid", n(7)),
            ("pid", n(9)),
            ("type", text(kind)),
            ("level", text(level)),
            ("agent_id", agent.map_or(Value::Null, n)),
            ("start", n(times[0])),
            ("end", n(times[1])),
            ("address", n(address)),
            ("size", n(size)),
        ];
        put(&connection, &table("rocpd_memory_allocate"), &row);
    };
    call(1, "ALLOC", "REAL", Some(1), [10, 12], 64, 1000);
    call(2, "ALLOC", "REAL", Some(2), [20, 22], 128, 500);
    call(3, "FREE", "REAL", None, [30, 31], 64, 0);
    // The same address, on another agent; and what was never allocated, has no time, or is scratch
    // memory.
    call(4, "ALLOC", "VIRTUAL", Some(2), [40, 42], 64, 7);
    call(5, "FREE", "REAL", None, [50, 51], 64, 0);
    call(6, "FREE", "REAL", None, [60, 61], 64, 0);
    call(7, "FREE", "REAL", None, [0, 0], 128, 0);
    call(8, "ALLOC", "SCRATCH", Some(2), [70, 71], 0, 9);
    // Another thread is given the address before the call that gives it back has ended.
    call(9, "ALLOC", "REAL", Some(1), [80, 81], 256, 1000);
    call(10, "ALLOC", "REAL", Some(1), [85, 95], 256, 1000);
    call(11, "FREE", "REAL", None, [90, 94], 256, 0);
    call(12, "FREE", "REAL", None, [99, 100], 256, 0);
    call(13, "ALLOC", "REAL", None, [101, 102], 512, 3);
    for (id, start, end, size) in [(1, 10, 30, 100), (2, 20, 40, 11), (3, 40, 50, 5)] {
        let row = [
            ("id", n(id)),
            ("nid", n(7)),
            ("pid", n(9)),
            ("start", n(start)),
            ("end", n(end)),
            ("name_id", n(1)),
            ("src_agent_id", n(1)),
            ("dst_agent_id", n(2)),
            ("size", n(size)),
        ];
        put(&connection, &table("rocpd_memory_copy"), &row);
    }
    drop(connection);
    let mut sorter = Sorter::default();
    let stats = Rocpd
        .read_chunks(&path, &with_args(), &mut |time| time, &mut |chunk| sorter.push(chunk, |_, _| true))
        .expect("read");
    assert!(stats.notes.len() == 1 && stats.notes[0].contains(": 2 rows copy, allocate or free"), "{:?}", stats.notes);
    let (chunk, _) = read(&path, &with_args(), 0).expect("read");
    let expected = |lists: &[(&str, &[(i64, f64)])]| {
        lists.iter().map(|(agent, list)| ((*agent).to_owned(), list.to_vec())).collect::<BTreeMap<_, _>>()
    };
    let of_first: &[(i64, f64)] = &[(12, 1000.0), (30, 0.0), (81, 1000.0), (90, 0.0), (95, 1000.0), (99, 0.0)];
    let of_second: &[(i64, f64)] = &[(22, 500.0), (42, 507.0), (50, 500.0)];
    assert_eq!(counted(&chunk, "bytes allocated"), expected(&[("agent 1", of_first), ("agent 2", of_second)]));
    let copied: &[(i64, f64)] = &[(10, 100.0), (20, 111.0), (30, 11.0), (40, 5.0), (50, 0.0)];
    assert_eq!(counted(&chunk, "bytes copied"), expected(&[("agent 2", copied)]));
}

#[test]
fn processes_of_one_pid_stay_apart_in_a_merged_database() {
    let scratch = tempfile::tempdir().expect("a folder");
    let at = |name: &str| scratch.path().join(name);
    one(&at("a.db"), "00000545-b497-7dea-bd43-ec1fa8b02134");
    one(&at("b.db"), "00000545-b497-7dea-bd43-ec1fa8b02135");
    let mut maps = [|time| time, |time| time];
    let mut inputs: Vec<MergeInput<'_>> = [at("a.db"), at("b.db")]
        .into_iter()
        .zip(&mut maps)
        .map(|(path, map)| MergeInput {
            path,
            part: 0,
            name: String::new(),
            metadata: Vec::new(),
            map,
            reach: None,
            known: None,
        })
        .collect();
    merge(&mut inputs, &at("all.db"), &MergeOptions::default()).expect("merged");
    let (chunk, _) = read(&at("all.db"), &ChunkOptions::default(), 0).expect("read");
    let processes: Vec<&str> = chunk
        .tracks
        .iter()
        .filter_map(|track| match &track.kind {
            TrackKind::Process(process) => Some(process.guid.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(processes, ["00000545-b497-7dea-bd43-ec1fa8b02134", "00000545-b497-7dea-bd43-ec1fa8b02135"]);
    assert_eq!(chunk.tracks.len(), 10);
    let flows: std::collections::BTreeSet<u64> =
        chunk.slices.flow.iter().map(|flow| flow.id).filter(|id| *id != 0).collect();
    assert_eq!((chunk.slices.track.len(), flows.len()), (6, 2), "stack ids are of a process");
    assert!(chunk.args.key.is_empty());
}

#[test]
fn values_counted_at_moments_keep_their_values() {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("cpu.db");
    let (text, n) = (|text: &str| Value::from(text.to_owned()), |number: i64| Value::from(number));
    let counter = |id: i64, agent: Value, name: &str| {
        [
            ("id", n(id)),
            ("nid", n(7)),
            ("pid", n(9)),
            ("agent_id", agent),
            ("name", text(name)),
            ("symbol", text(name)),
            ("units", text("MHz")),
        ]
    };
    let mut rows: Vec<(&str, Vec<(&str, Value)>)> = vec![
        ("rocpd_info_process", vec![("id", n(9)), ("nid", n(7)), ("pid", n(9))]),
        (
            "rocpd_info_agent",
            vec![("id", n(3)), ("nid", n(7)), ("pid", n(9)), ("type", text("CPU")), ("name", text("EPYC"))],
        ),
        ("rocpd_info_pmc", counter(1, n(3), "cpu_frequency").to_vec()),
        ("rocpd_info_pmc", counter(2, Value::Null, "page faults").to_vec()),
    ];
    for at in 0..20 {
        rows.push(("rocpd_event", vec![("id", n(at + 1))]));
        rows.push(("rocpd_sample", vec![("track_id", n(1)), ("timestamp", n(1000 + at)), ("event_id", n(at + 1))]));
        let value = Value::from(at as f64 / 2.0);
        rows.push(("rocpd_pmc_event", vec![("event_id", n(at + 1)), ("pmc_id", n(1 + at % 2)), ("value", value)]));
    }
    rows.push(("rocpd_event", vec![("id", n(30))]));
    rows.push(("rocpd_sample", vec![("track_id", n(1)), ("timestamp", n(2000)), ("event_id", n(30))]));
    rows.push(("rocpd_pmc_event", vec![("event_id", n(99)), ("pmc_id", n(1)), ("value", Value::from(1.0))]));
    let rows: Vec<(&str, &[(&str, Value)])> = rows.iter().map(|(table, row)| (*table, &row[..])).collect();
    drop(made(&path, GUID, "", &rows));
    let (chunk, untimed) = read(&path, &with_args(), 0).expect("read");
    let values: Vec<_> = chunk.counters.time_ns.iter().copied().zip(chunk.counters.value.iter().copied()).collect();
    assert_eq!(values, (0..20).map(|at| (1000 + at, at as f64 / 2.0)).collect::<Vec<_>>());
    assert_eq!((chunk.instants.time_ns.as_slice(), untimed), (&[2000][..], 0));
    let above = |row: usize| {
        let track = &chunk.tracks[chunk.counters.track[row].0 as usize];
        (track.name.as_str(), track.kind.clone(), chunk.tracks[track.parent.expect("a parent").0 as usize].kind.clone())
    };
    let unit = || TrackKind::Counter { unit: "MHz".into() };
    assert_eq!(above(0), ("cpu_frequency", unit(), TrackKind::Agent));
    assert!(matches!(above(1), ("page faults", kind, TrackKind::Process(_)) if kind == unit()));
    let mut sink = |_: &Chunk| Ok(());
    let notes = Rocpd.read_chunks(&path, &with_args(), &mut |time| time, &mut sink).expect("read").notes;
    assert!(notes.iter().any(|note| note.contains("dropped 1 values that belong to no kernel or sample")), "{notes:?}");
}

#[test]
fn a_writer_that_died_before_it_named_its_process_is_told() {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("died.db");
    drop(made(&path, GUID, "", &[]));
    let facts = Rocpd.read_facts(&path, &FactOptions::default()).expect("facts");
    assert!(facts.warnings[0].contains("its writer died"), "{:?}", facts.warnings);
}

#[test]
fn rows_whose_times_cannot_be_believed_are_left_out_and_counted() {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("bad.db");
    let good: Vec<_> = (0..5).map(|at| region(1_000_000 + at, 1_000_002 + at)).collect();
    let away = 40 * 365 * 86_400 * 1_000_000_000_i64;
    let bad = [region(50, 40), region(1_000_000, away), region(away, away + 1)];
    let rows: Vec<_> = good.iter().chain(&bad).map(|row| ("rocpd_region", &row[..])).collect();
    drop(made(&path, GUID, "", &rows));
    let facts = Rocpd.read_facts(&path, &FactOptions::default()).expect("facts");
    assert_eq!(facts.span, Some((40_000, 1_000_006_000)), "ps");
    let said = "ignored 3 events (1 with a negative length, 2 days or decades away from all others)";
    assert!(facts.warnings.iter().any(|note| note.starts_with(said)), "{:?}", facts.warnings);
    let (chunk, _) = read(&path, &ChunkOptions { reach: facts.reach, ..ChunkOptions::default() }, 0).expect("read");
    assert_eq!(chunk.slices.start_ns.len(), 5);
}

#[test]
fn a_row_whose_time_is_no_number_is_named() {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("text.db");
    drop(made(&path, "00000545-b497-7dea-bd43-ec1fa8b02134", "", &[("rocpd_region", &region("soon".to_owned(), 40))]));
    let said = read(&path, &ChunkOptions::default(), 0).expect_err("refused").to_string();
    assert!(said.contains("reading the table rocpd_region"), "{said}");
}

#[test]
fn a_damaged_index_hides_no_row_from_a_converter() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (whole, path) = (scratch.path().join("whole_results.db"), scratch.path().join("damaged_results.db"));
    one(&whole, GUID);
    std::fs::copy(&whole, &path).expect("a copy");
    let connection = Connection::open(&path).expect("a database");
    let suffix = schema::suffix_of(GUID);
    // An index of no rows, whose definition then says that it is one of all.
    for (table, columns) in [
        ("rocpd_region", "event_id, id, start, \"end\", name_id, tid, extdata"),
        ("rocpd_kernel_dispatch", "event_id"),
        ("rocpd_arg", "event_id, position, name, value"),
        ("rocpd_pmc_event", "event_id, pmc_id, value"),
        ("rocpd_info_thread", "id, tid, name"),
    ] {
        let index = format!("CREATE INDEX \"by_{table}\" ON \"{table}{suffix}\" ({columns}) WHERE 0");
        connection.execute_batch(&index).expect("an index");
    }
    let all_rows = "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, ' WHERE 0', '') WHERE name GLOB 'by_*'";
    connection.execute_batch(all_rows).expect("its definition");
    drop(connection);
    let connection = Connection::open(&path).expect("a database");
    let hidden = format!("SELECT count(*) FROM \"rocpd_arg{suffix}\" WHERE event_id > 0");
    let count = connection.query_row(&hidden, [], |row| row.get::<_, i64>(0)).expect("a number");
    assert_eq!(count, 0, "the index hides rows of a reader that uses it");
    drop(connection);
    let texts = |path: &Path| {
        let (chunk, untimed) = read(path, &with_args(), 0).expect("read");
        let counts = (chunk.slices.track.len(), chunk.args.key.len(), chunk.counters.track.len(), untimed);
        let tracks: Vec<String> = chunk.tracks.iter().map(|track| track.name.clone()).collect();
        (counts, tracks)
    };
    let expected = texts(&whole);
    assert!(expected.0.0 == 3 && expected.0.2 == 2, "{expected:?}");
    assert_eq!(texts(&path), expected);
}
