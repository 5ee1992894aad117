//! Dumps of recorded jobs and dumps that are made here, to facts, events and verdicts.

use std::path::PathBuf;

use probe_sync_alignment::{
    AlignSettings, Calibrated, ClockSource, FilterSettings, MergeSettings, Outcome, Ranks, Request, align, calibrate,
    check, merge,
};
use probe_sync_hang::Dump;

use super::*;
use crate::chunk::{Chunk, StringId, Value};
use crate::model::{CollectiveKind, Instance, Picoseconds, Reach};
use crate::{Perfetto, WantedArgs, detect, testing};

const MS: i64 = 1_000_000;
/// CLOCK_REALTIME of the made dumps, ns.
const NOW: i64 = 1_758_610_505_000_000_000;

/// Files of a test.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).expect("writable");
        path
    }

    /// Writes the offsets of nodes, each constant, ns.
    fn offsets(&self, offsets_ns: &[i64]) -> PathBuf {
        let mut text = "node,node_realtime_ns,offset_vs_node0_ns\n".to_owned();
        for (node, offset) in offsets_ns.iter().enumerate() {
            // The recorded jobs are half a day apart.
            for at in [NOW - 86_400_000 * MS, NOW + 86_400_000 * MS] {
                text.push_str(&format!("{node},{at},{offset}\n"));
            }
        }
        self.write("offsets.csv", text)
    }
}

/// An entry as NCCL writes it; `more` adds members and replaces none.
fn entry(group: (&str, &str), sequence: u32, name: &str, created_ns: i64, more: &str) -> String {
    format!(
        r#"{{"record_id": {sequence}, "pg_id": 0, "process_group": ["{}", "{}"], "collective_seq_id": {sequence}, "p2p_seq_id": 0, "profiling_name": "{name}", "time_created_ns": {created_ns}, "input_sizes": [[4, 2]], "input_dtypes": ["Float"], "is_p2p": false{more}}}"#,
        group.0, group.1
    )
}

/// An operation that finished this long after its enqueue.
fn finished(group: (&str, &str), sequence: u32, created_ns: i64, took_ns: i64) -> String {
    let completed = created_ns + took_ns;
    let more = format!(r#", "state": "completed", "retired": true, "time_discovered_completed_ns": {completed}"#);
    entry(group, sequence, "nccl:all_reduce", created_ns, &more)
}

fn dump(groups: &[(&str, &str, &str)], entries: &[String]) -> String {
    let group = |(name, description, ranks): &(&str, &str, &str)| {
        format!(r#""{name}": {{"name": "{name}", "desc": "{description}", "ranks": "{ranks}"}}"#)
    };
    let groups: Vec<String> = groups.iter().map(group).collect();
    format!(r#"{{"entries": [{}], "pg_config": {{{}}}, "version": "2.10"}}"#, entries.join(", "), groups.join(", "))
}

/// Reads all of a file's events.
fn chunk(path: &Path, reach: Option<Reach>, map: &mut MapFunction<'_>) -> (Chunk, ChunkStats) {
    let mut read = None;
    let options = ChunkOptions { args: WantedArgs::All, reach, ..ChunkOptions::default() };
    let stats = FlightRecorder
        .read_chunks(path, &options, map, &mut |chunk| {
            chunk.check(0).expect("a sound chunk");
            assert!(read.replace(chunk.clone()).is_none(), "few operations are one chunk");
            Ok(())
        })
        .expect("readable");
    (read.expect("a chunk"), stats)
}

fn facts(path: &Path) -> TraceFacts {
    FlightRecorder.read_facts(path, &FactOptions::default()).expect("a dump")
}

fn calibrated(traces: Vec<PathBuf>, offsets: PathBuf) -> Calibrated {
    calibrate(&Request { traces, clocks: ClockSource::Offsets(offsets), ..Request::default() }).expect("known clocks")
}

/// Recorded jobs in which every operation of the dumps had been enqueued and none had finished.
#[test]
fn every_operation_of_recorded_jobs_is_an_event_at_its_mapped_time() {
    for (set, events) in [("fr/gpu_error_1st", 289), ("fr/lock_gil_1st", 142)] {
        let Some(folder) = testing::folder(set) else { return };
        let made = Folder::new();
        let offsets_ns: Vec<i64> = (0..16).map(|rank| rank * MS).collect();
        let (mut all, mut paths) = (Vec::new(), Vec::new());
        for rank in 0..16_u32 {
            let path = folder.join(format!("_dump_{rank}"));
            let dump = Dump::read(&std::fs::read(&path).expect("a dump")).expect("a dump");
            let times: Vec<i64> = dump.operations().filter_map(|recorded| recorded.created_ns).collect();
            assert_eq!(detect(&path).map(TraceFormat::name).ok(), Some("flight_recorder"));
            let facts = facts(&path);
            assert_eq!((facts.identity.rank, facts.identity.world_size), (Some(rank), Some(16)));
            assert_eq!((facts.events, facts.collectives.len()), (times.len() as u64, 0), "{path:?}");
            let span = times.iter().min().zip(times.iter().max());
            assert_eq!(facts.span, span.map(|(first, last)| (i128::from(*first) * 1000, i128::from(*last) * 1000)));

            let mapped = |time: Picoseconds| time - 7_000_000 - time / 10_000;
            let (chunk, stats) = chunk(&path, facts.reach, &mut { mapped });
            assert_eq!((stats.events, stats.untimed, stats.left_out), (facts.events, 0, 0));
            assert!(chunk.slices.track.is_empty(), "nothing had finished");
            let expected: Vec<i64> =
                times.iter().map(|time| (mapped(i128::from(*time) * 1000) + 500).div_euclid(1000) as i64).collect();
            assert_eq!(chunk.instants.time_ns, expected);
            let name = |id: &StringId| chunk.strings.text(*id).ends_with(" (not finished)");
            assert!(chunk.instants.name.iter().all(name));
            all.extend(times.iter().map(|time| time - offsets_ns[rank as usize]));
            paths.push(path);
        }
        assert_eq!(all.len(), events, "{set}");

        let output = made.0.path().join("all.pftrace");
        let report =
            merge(&calibrated(paths, made.offsets(&offsets_ns)), &output, MergeSettings::default()).expect("merged");
        assert_eq!(report.traces.len(), 16);
        let written = Perfetto.read_facts(&output, &FactOptions::default()).expect("a trace");
        let ends = all.iter().min().zip(all.iter().max());
        assert_eq!(written.events as usize, events);
        assert_eq!(written.span, ends.map(|(first, last)| (i128::from(*first) * 1000, i128::from(*last) * 1000)));
    }
}

/// What an entry may state about its times and its state, by its time of enqueue after [`NOW`].
const STATES: [(i64, &str); 6] = [
    (
        0,
        r#", "state": "completed", "time_discovered_started_ns": 1758610505001000000, "time_discovered_completed_ns": 1758610505003000000, "duration_ms": 1.5, "frames": [{"name": "f", "filename": "a.py", "line": 3}]"#,
    ),
    (MS, r#", "state": "completed", "time_discovered_completed_ns": null, "duration_ms": 2.25"#),
    (2 * MS, r#", "state": "started", "time_discovered_started_ns": 1758610505004000000"#),
    (3 * MS, r#", "state": "scheduled", "time_discovered_completed_ns": 0"#),
    // Gloo's words for one that has finished at an unknown time.
    (4 * MS, r#", "state": "scheduled", "retired": true"#),
    (6 * MS, r#", "state": "scheduled", "duration_ms": "long""#),
];

/// Writes a dump with these entries, one without a time, one that ends before it begins, and one
/// from a year before.
fn every_state(folder: &Folder) -> PathBuf {
    let group = ("1", "TENSOR");
    let of_state = |(number, (after_ns, more)): (u32, &(i64, &str))| {
        let group = if number == 5 { ("2", "undefined") } else { group };
        entry(group, number, "nccl:all_reduce", NOW + after_ns, more)
    };
    let mut entries: Vec<String> = (1..).zip(&STATES).map(of_state).collect();
    entries.push(entry(group, 7, "nccl:all_reduce", 0, ""));
    entries.push(finished(group, 8, NOW + 5 * MS, -1));
    entries.push(finished(group, 9, NOW - 400 * 86_400_000 * MS, MS));
    folder.write("rank1.json", dump(&[("1", "TENSOR", "[0, 1]")], &entries))
}

#[test]
fn an_operation_is_a_slice_only_if_its_end_is_known() {
    let folder = Folder::new();
    let path = every_state(&folder);
    assert_eq!(detect(&path).map(TraceFormat::name).ok(), Some("flight_recorder"));
    let facts = facts(&path);
    assert_eq!((facts.events, facts.omitted.len(), facts.warnings.len()), (6, 2, 1), "{:?}", facts.warnings);
    assert!(facts.notes[0].contains("1 operation without a time"), "{:?}", facts.notes);
    assert_eq!(facts.collectives.len(), 1, "only one has members, an enqueue and a completion");
    assert!(facts.notes[2].contains("enqueued"), "{:?}", facts.notes);

    let (read, stats) = chunk(&path, facts.reach, &mut |time| time);
    assert_eq!((stats.events, stats.untimed, stats.left_out), (6, 1, 2));
    let slices: Vec<_> =
        read.slices.start_ns.iter().zip(&read.slices.end_ns).map(|(start, end)| (start - NOW, end - NOW)).collect();
    assert_eq!(slices, [(MS, 3 * MS), (MS, MS + 2_250_000)]);
    let text = |id: &StringId| read.strings.text(*id).to_owned();
    let instants: Vec<_> =
        read.instants.time_ns.iter().zip(&read.instants.name).map(|(time, name)| (time - NOW, text(name))).collect();
    let open = "all_reduce (not finished)".to_owned();
    let expected = [(4 * MS, open.clone()), (3 * MS, open.clone()), (4 * MS, "all_reduce".to_owned()), (6 * MS, open)];
    assert_eq!(instants, expected);
    let tracks: Vec<&str> = read.tracks.iter().map(|track| track.name.as_str()).collect();
    assert_eq!(tracks, ["Flight Recorder", "TENSOR (1)", "2 (undescribed)"]);
}

#[test]
fn arguments_are_what_the_recorder_states() {
    let folder = Folder::new();
    let (read, _) = chunk(&every_state(&folder), None, &mut |time| time);
    let first = read.slices.args[0];
    let text = |id: StringId| read.strings.text(id).to_owned();
    let argument = |at: u32| {
        let (key, value) = (read.args.key[at as usize], read.args.value[at as usize]);
        let value = match value {
            Value::Text(id) | Value::Json(id) => text(id),
            other => format!("{other:?}"),
        };
        format!("{}: {value}", text(key))
    };
    let arguments: Vec<String> = (first.first..first.first + first.count).map(argument).collect();
    let expected = [
        "finished: Boolean(true)",
        "state: completed",
        "collective_seq_id: Integer(1)",
        "process_group: 1",
        "queued_ns: Integer(1000000)",
        "duration_ms: Float(1.5)",
        "input_sizes: [[4, 2]]",
        "input_dtypes: [\"Float\"]",
        "frame: f (a.py:3)",
    ];
    assert_eq!(arguments, expected);
}

/// Rank 1's clock is 5 ms ahead, so its enqueue at 6 ms was at 1 ms.
#[test]
fn offsets_are_subtracted_and_decide_the_verdict() {
    let folder = Folder::new();
    let write = |rank: u32, created_ns: i64| {
        let entries = [finished(("0", "default_pg"), 7, NOW + created_ns, 2 * MS)];
        folder.write(&format!("_dump_{rank}"), dump(&[("0", "default_pg", "[0, 1]")], &entries))
    };
    let paths = vec![write(0, 0), write(1, 6 * MS)];
    let raw = Request { traces: paths.clone(), ..Request::default() };
    let raw = calibrate(&raw).expect("read");
    let verdict = check(&raw);
    assert_eq!((verdict.result.edges, verdict.result.violations()), (2, 1), "{}", verdict.text());
    let output = folder.0.path().join("all.pftrace");
    assert!(merge(&raw, &output, MergeSettings::default()).is_err(), "the dumps are not on one clock");

    let calibrated = calibrated(paths, folder.offsets(&[0, 5 * MS]));
    let verdict = check(&calibrated);
    assert_eq!((verdict.outcome(), verdict.result.edges), (Outcome::Holds, 2), "{}", verdict.text());
    merge(&calibrated, &output, MergeSettings::default()).expect("merged");
    let span = Perfetto.read_facts(&output, &FactOptions::default()).expect("a trace").span;
    assert_eq!(span, Some((i128::from(NOW) * 1000, i128::from(NOW + 3 * MS) * 1000)));

    let refused = align(&calibrated, &folder.0.path().join("aligned"), AlignSettings::default())
        .and_then(|mut aligning| aligning.try_for_each(|aligned| aligned.map(drop)));
    let said = refused.expect_err("refused").to_string();
    assert!(said.contains("not rewritten; merge it into a .pftrace"), "{said}");
}

/// Pairs of a profiler's clock, 3 ms behind the system clock, move its traces and no dump.
#[test]
fn pairs_of_another_clock_do_not_move_a_dump() {
    let folder = Folder::new();
    let entries = [finished(("0", "default_pg"), 7, NOW, MS)];
    let dump = folder.write("_dump_0", dump(&[("0", "default_pg", "[0]")], &entries));
    let event = r#"{"ph": "X", "pid": 1, "tid": 1, "ts": 0, "dur": 1000, "name": "a"}"#;
    let kineto = folder.write("trace.json", format!(r#"{{"baseTimeNanoseconds": {NOW}, "traceEvents": [{event}]}}"#));
    let row = |at: i64| format!(r#"{{"tracer_clock_ns": {at}, "sys_clock_ns": {}, "bracket_ns": 100}}"#, at + 3 * MS);
    let rows: Vec<String> = (-20..20).map(|second| row(NOW + second * 1000 * MS)).collect();
    let (snapshots, offsets) = (folder.write("node0.jsonl", rows.join("\n")), folder.offsets(&[0]));
    let check = |trace: PathBuf, moved_ns: i64, note: &str| {
        let (traces, snapshots) = (vec![trace], vec![snapshots.clone()]);
        let clocks = ClockSource::Offsets(offsets.clone());
        let request = Request { traces, clocks, snapshots, nodes: vec![0], ..Request::default() };
        let calibrated = calibrate(&request).expect("known clocks");
        let output = folder.0.path().join("all.pftrace");
        merge(&calibrated, &output, MergeSettings::default()).expect("merged");
        let span = Perfetto.read_facts(&output, &FactOptions::default()).expect("a trace").span;
        let first = NOW + moved_ns;
        assert_eq!(span, Some((i128::from(first) * 1000, i128::from(first + MS) * 1000)));
        let notes = calibrated.traces[0].notes.join("; ");
        assert!(notes.contains(note) && !notes.contains("assuming"), "{notes}");
    };
    check(kineto, 3 * MS, "");
    check(dump, 0, "a different clock than the trace's times and have no effect");
}

#[test]
fn groups_of_one_name_with_other_members_are_not_compared() {
    let folder = Folder::new();
    let write = |rank: u32, ranks: &str, created_ns: i64| {
        let entries = [finished(("1", "TENSOR"), 3, NOW + created_ns, MS)];
        folder.write(
            &format!("_dump_{rank}"),
            dump(&[("0", "default_pg", "[0, 1, 2, 3]"), ("1", "TENSOR", ranks)], &entries),
        )
    };
    // The second pair is a minute later: together they would break causality.
    let paths = vec![
        write(0, "[0, 1]", 0),
        write(1, "[0, 1]", MS / 2),
        write(2, "[2, 3]", 60_000 * MS),
        write(3, "[2, 3]", 60_000 * MS),
    ];
    let calibrated = calibrated(paths, folder.offsets(&[0; 4]));
    let verdict = check(&calibrated);
    assert_eq!((verdict.outcome(), verdict.result.edges), (Outcome::Holds, 4), "{}", verdict.text());
}

/// Gloo states neither the members of its groups nor when an operation was complete.
#[test]
fn groups_without_members_are_not_compared() {
    let folder = Folder::new();
    let more = r#", "state": "scheduled", "retired": true, "time_discovered_completed_ns": 1758610505003000000"#;
    let gloo = dump(&[("", "", "[0, 1]")], &[entry(("0", "default_pg"), 1, "gloo:all_reduce", NOW, more)]);
    assert_eq!(facts(&folder.write("rank_0", gloo)).collectives.len(), 0);
}

/// A message names two ranks, a broadcast a root that a dump does not state, and an exchange may
/// leave ranks out.
#[test]
fn parts_are_what_a_dump_can_prove() {
    let folder = Folder::new();
    let done = r#", "state": "completed", "time_discovered_completed_ns": 1758610505003000000"#;
    let names = ["nccl:_all_gather_base", "nccl:broadcast", "nccl:all_to_all", "nccl:send 0->1"];
    let entries: Vec<String> =
        (1..).zip(names).map(|(number, name)| entry(("0", "g"), number, name, NOW, done)).collect();
    let mut text = dump(&[("0", "g", "[0, 1]")], &entries);
    let message = text.rfind(r#""is_p2p": false"#).expect("the message");
    text.replace_range(message..message + 15, r#""is_p2p": true"#);
    let found = facts(&folder.write("_dump_0", text)).collectives.events();
    let kinds: Vec<_> = found.iter().map(|part| (part.label.kind.clone(), part.recipients)).collect();
    use crate::model::Recipients::{All, Unknown};
    let expected =
        [(CollectiveKind::AllToAll, All), (CollectiveKind::FromRoot(None), All), (CollectiveKind::AllToAll, Unknown)];
    assert_eq!(kinds, expected);
    let Instance::Sequence { group } = &found[0].label.instance else { panic!("{:?}", found[0]) };
    assert_eq!((group.name.as_str(), group.ranks.as_deref()), ("g (0)", Some(&[0, 1][..])));
}

/// A dump may cover the time of a profiler's trace of the same rank, but not that of another dump.
#[test]
fn a_dump_accompanies_a_trace_of_its_rank() {
    let folder = Folder::new();
    let entries = [finished(("0", "default_pg"), 1, NOW, MS), finished(("0", "default_pg"), 2, NOW + MS, MS)];
    let text = dump(&[("0", "default_pg", "[0, 1]")], &entries);
    let dumps = [0, 1].map(|rank| folder.write(&format!("_dump_{rank}"), &text));
    let event = r#"{"ph": "X", "pid": 1, "tid": 1, "ts": 500, "dur": 900, "name": "a"}"#;
    let kineto = folder.write(
        "kineto_rank0.json",
        format!(
            r#"{{"schemaVersion": 1, "distributedInfo": {{"rank": 0, "world_size": 2}}, "baseTimeNanoseconds": {NOW}, "traceEvents": [{event}]}}"#
        ),
    );
    let offsets = folder.offsets(&[0, 0]);
    let merged = |traces: Vec<PathBuf>, ranks: Option<Ranks>| {
        let request = Request { traces, clocks: ClockSource::Offsets(offsets.clone()), ..Request::default() };
        let output = folder.0.path().join("all.pftrace");
        let filter = FilterSettings { ranks, ..FilterSettings::default() };
        let settings = MergeSettings { filter, ..MergeSettings::default() };
        let report = calibrate(&request).and_then(|calibrated| merge(&calibrated, &output, settings));
        report.map(|report| report.traces.len()).map_err(|error| error.to_string())
    };
    let [zero, one] = dumps;
    let all = vec![zero.clone(), one, kineto.clone()];
    assert_eq!(merged(all.clone(), None), Ok(3));
    assert_eq!(merged(all, "0".parse().ok()), Ok(2), "both of rank 0");
    let copy = folder.write("copy_0", &text);
    let said = merged(vec![zero, copy, kineto], None).expect_err("two dumps of one rank");
    assert!(said.contains("both from rank 0 and overlap in time"), "{said}");
}

#[test]
fn files_that_are_no_dumps_are_refused_with_their_name() {
    let folder = Folder::new();
    let text = dump(&[("1", "TENSOR", "[0, 1]")], &[finished(("1", "TENSOR"), 1, NOW, MS)]);
    let check = |name: &str, content: &[u8], expected: &str| {
        let path = folder.write(name, content);
        let error = detect(&path).and_then(|format| format.read_facts(&path, &FactOptions::default()).map(drop));
        let said = error.expect_err("refused").to_string();
        assert!(said.contains(name) && said.contains(expected), "{said}");
    };
    check("_dump_0", b"", "nothing but white space");
    check("_dump_5", text.as_bytes(), "rank 5 is not a member of its own group 1");
    check("cut_1", &text.as_bytes()[..text.len() / 2], &format!("byte {}: EOF", text.len() / 2));
    check("old_1", text.replace("\"2.10\"", "\"1.0\"").as_bytes(), "format 1.0 is not supported");
    check("code_1", b"\x80\x02cpg_config\nsystem\n.", "byte 2: the instruction GLOBAL");
    check("other_1", b"\x80\x02}q\x00.", "is not JSON");
}

#[test]
fn only_dumps_are_taken_from_other_json() {
    let folder = Folder::new();
    let check = |content: &str, expected: &str| {
        for name in ["rank0.json", "rank0"] {
            let path = folder.write(name, content);
            assert_eq!(detect(&path).map(TraceFormat::name).ok(), Some(expected), "{name}: {content}");
        }
    };
    let text = dump(&[("0", "default_pg", "[0]")], &[finished(("0", "default_pg"), 1, NOW, MS)]);
    check(&text, "flight_recorder");
    check(&format!("\u{feff}\n{text}"), "flight_recorder");
    check(r#"{"version": "2.10", "nccl_version": "2.27.3", "entries": []}"#, "flight_recorder");
    check(r#"{"version": "2.10", "entries": []}"#, "kineto");
    check(
        r#"{"schemaVersion": 1, "distributedInfo": {"pg_config": [], "nccl_version": "2.27.3"}, "traceEvents": []}"#,
        "kineto",
    );
    check(r#"{"version": "1", "traceEvents": [{"name": "pg_config"}]}"#, "chrome");
    check(r#"{"traceEvents": []}"#, "chrome");
    check("{}", "kineto");
    check("[]", "kineto");
}

#[test]
fn a_packed_dump_is_read() {
    let folder = Folder::new();
    let text = dump(&[("0", "default_pg", "[0, 3]")], &[finished(("0", "default_pg"), 1, NOW, MS)]);
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packer, text.as_bytes()).expect("packed");
    let path = folder.write("rank3.json.gz", packer.finish().expect("packed"));
    assert_eq!(detect(&path).map(TraceFormat::name).ok(), Some("flight_recorder"));
    assert_eq!(facts(&path).identity.rank, Some(3));
}

#[test]
fn an_odd_field_costs_itself_and_an_odd_enqueue_its_part() {
    let folder = Folder::new();
    let world = ("0", "default_pg");
    let started = |sequence: u32, created_ns: i64| {
        let begin = NOW + i64::from(sequence) * MS;
        let more = format!(
            r#", "state": "completed", "time_discovered_started_ns": {begin}, "time_discovered_completed_ns": {}, "duration_ms": [], "input_dtypes_of": null"#,
            begin + MS
        );
        entry(world, sequence, "nccl:all_reduce", created_ns, &more)
    };
    // One enqueue is in 1970, although its start was noticed when it should be.
    let mut entries: Vec<String> = (1..8).map(|sequence| started(sequence, NOW + i64::from(sequence) * MS)).collect();
    entries.push(started(8, 1));
    entries[0] = entries[0].replace(r#"["Float"]"#, r#"["Float", null]"#);
    let path = folder.write("rank_0.json", dump(&[("0", "default_pg", "[0, 1]")], &entries));
    let facts = facts(&path);
    assert_eq!((facts.events, facts.collectives.len()), (8, 7), "{:?}", facts.warnings);
    assert_eq!(facts.omitted.iter().map(|(_, events)| events).sum::<u64>(), 1, "{:?}", facts.omitted);
    let first = facts.span.expect("events").0;
    assert!(first > Picoseconds::from(NOW) * 1000, "the span has no time of 1970");
}
