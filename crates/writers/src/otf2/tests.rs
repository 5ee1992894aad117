//! The writer on chunks of its own making, read back by `otf2-print`; without that program what it
//! refuses is tested only.

use std::process::Command;

use probe_sync_formats::Error;
use probe_sync_formats::chunk::{ArgRange, Chunk, Flow, Process, StringId, Track, TrackId, TrackKind};
use probe_sync_otf2::CollectiveOperation;

use super::{CollectivePart, Otf2};
use crate::Meta;

/// A process with a thread and a device, and on that a stream and a counter.
fn tracks(chunk: &mut Chunk) {
    let process = Process { pid: 7, host: "gpu-01".into(), rank: Some(3), ..Process::default() };
    let mut add = |parent: Option<u32>, kind: TrackKind, name: &str| {
        chunk.tracks.push(Track { parent: parent.map(TrackId), kind, name: name.into() });
    };
    add(None, TrackKind::Process(process), "train");
    add(Some(0), TrackKind::Thread { tid: 7 }, "main");
    add(Some(0), TrackKind::Agent, "GPU 0");
    add(Some(2), TrackKind::Stream, "stream 1");
    add(Some(2), TrackKind::Counter { unit: "bytes".into() }, "allocated");
}

fn slice(chunk: &mut Chunk, track: u32, [start, end]: [i64; 2], name: &str) {
    let name = chunk.strings.intern(name);
    let slices = &mut chunk.slices;
    slices.track.push(TrackId(track));
    slices.start_ns.push(start);
    slices.end_ns.push(end);
    slices.name.push(name);
    slices.category.push(StringId::EMPTY);
    slices.flow.push(Flow::default());
    slices.args.push(ArgRange::default());
}

fn instant(chunk: &mut Chunk, track: u32, time: i64, name: &str) {
    let name = chunk.strings.intern(name);
    let instants = &mut chunk.instants;
    instants.track.push(TrackId(track));
    instants.time_ns.push(time);
    instants.name.push(name);
    instants.category.push(StringId::EMPTY);
    instants.args.push(ArgRange::default());
}

fn counter(chunk: &mut Chunk, track: u32, time: i64, value: f64) {
    chunk.counters.track.push(TrackId(track));
    chunk.counters.time_ns.push(time);
    chunk.counters.value.push(value);
}

fn open(folder: &tempfile::TempDir) -> Otf2 {
    Otf2::open(folder.path(), "traces", &Meta::default()).expect("an archive")
}

/// Lines of `otf2-print` that begin with these words, with repeated spaces collapsed; `None` if it
/// is not installed.
fn printed(folder: &tempfile::TempDir, flags: &[&str], kinds: &[&str]) -> Option<Vec<String>> {
    let done = Command::new("otf2-print").args(flags).arg(folder.path().join("traces.otf2")).output().ok();
    let Some(done) = done else {
        println!("skipped: otf2-print is not here (Debian: otf2-tools)");
        return None;
    };
    assert!(done.status.success() && done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8(done.stdout).expect("UTF-8");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted = |line: &String| kinds.iter().any(|kind| line.starts_with(&format!("{kind} ")));
    Some(text.lines().map(words).filter(wanted).collect())
}

#[test]
fn lanes_moments_and_values_are_locations_regions_and_metrics() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut chunk = Chunk::default();
    tracks(&mut chunk);
    // The second neither nests into the first nor follows it.
    slice(&mut chunk, 3, [100, 200], "a");
    slice(&mut chunk, 3, [150, 250], "b");
    slice(&mut chunk, 3, [200, 200], "c");
    instant(&mut chunk, 1, 120, "step");
    counter(&mut chunk, 4, 110, 1.5);
    counter(&mut chunk, 4, 110, 2.5);
    let mut writer = open(&folder);
    writer.write(&chunk, &[]).expect("written");
    let report = writer.finish().expect("whole");
    assert_eq!((report.slices, report.instants, report.counters, report.lanes), (3, 1, 2, 1));
    let Some(events) = printed(&folder, &[], &["ENTER", "LEAVE", "METRIC"]) else { return };
    let of = |word: &str| events.iter().filter(|line| line.contains(word)).cloned().collect::<Vec<_>>();
    assert_eq!(of("\"a\""), ["ENTER 0 100 Region: \"a\" <0>", "LEAVE 0 200 Region: \"a\" <0>"]);
    assert_eq!(of("\"b\"").len() + of("\"c\"").len(), 4, "{events:?}");
    assert!(of("\"b\"").iter().all(|line| !line.contains(" 0 1") && !line.contains(" 0 2")), "{events:?}");
    assert_eq!(of("step").iter().filter(|line| line.contains(" 120 ")).count(), 2, "{events:?}");
    let values = of("METRIC");
    assert!(values.len() == 2 && values[0].contains("1.5") && values[1].contains("2.5"), "{values:?}");
    let places = printed(&folder, &["-G"], &["LOCATION", "LOCATION_GROUP", "SYSTEM_TREE_NODE", "CLOCK_PROPERTIES"]);
    let places = places.expect("as before").join("\n");
    for expected in [
        "Ticks per Seconds: 1000000000, Global Offset: 100, Length: 150",
        "Name: \"gpu-01\"",
        "Name: \"rank 3 · gpu-01 · train 7\"",
        "Type: ACCELERATOR, Parent: \"node::gpu-01\" <1>, Creator: \"rank 3 · gpu-01 · train 7\"",
        "Name: \"main\"",
        "Name: \"stream 1 (lane 2)\"",
        "Type: METRIC, # Events: 2, Group: \"GPU 0\"",
    ] {
        assert!(places.contains(expected), "{expected}: {places}");
    }
}

#[test]
fn parts_of_a_collective_stand_within_their_regions() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut writer = open(&folder);
    for member in 0..2 {
        let mut chunk = Chunk::default();
        tracks(&mut chunk);
        // Tracks are numbered on; those of the other member were ended.
        chunk.tracks.iter_mut().filter_map(|track| track.parent.as_mut()).for_each(|parent| parent.0 += 5 * member);
        let start = 100 - 10 * i64::from(member);
        slice(&mut chunk, 5 * member + 3, [start, 300], "reduce");
        slice(&mut chunk, 5 * member + 3, [start + 1, 299], "copy");
        let kind = CollectiveOperation::Reduce;
        let part = CollectivePart { operation: 9, member, members: 2, kind, root: Some(1), group: "dp" };
        // One within another ends before it, which would turn round what readers match.
        let within = CollectivePart { operation: 10, ..part };
        writer.write(&chunk, &[(0, part), (1, within)]).expect("written");
        writer.end_tracks().expect("closed");
    }
    let report = writer.finish().expect("whole");
    assert_eq!((report.collectives, report.communicators), (2, 1));
    let kinds = ["ENTER", "LEAVE", "MPI_COLLECTIVE_BEGIN", "MPI_COLLECTIVE_END"];
    let Some(events) = printed(&folder, &[], &kinds) else { return };
    let words = events.iter().map(|line| line.split(' ').collect::<Vec<_>>());
    let of_second: Vec<&str> = words.filter(|words| words[1] == "1").map(|words| words[0]).collect();
    assert_eq!(
        of_second,
        ["ENTER", "MPI_COLLECTIVE_BEGIN", "ENTER", "LEAVE", "MPI_COLLECTIVE_END", "LEAVE"],
        "{events:?}"
    );
    let end = "Operation: REDUCE, Communicator: \"dp\" <0>, Root: 1 (\"stream 1\" <1>), Sent: 0, Received: 0";
    assert_eq!(events.iter().filter(|line| line.contains(end)).count(), 2, "{events:?}");
}

#[test]
fn what_cannot_stand_in_an_archive_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let refusal = |writer: &mut Otf2, chunk: &Chunk, part: &str| match writer.write(chunk, &[]) {
        Err(Error::Chunk { problem }) => assert!(problem.contains(part), "{problem}"),
        other => panic!("{other:?}"),
    };
    let mut writer = open(&folder);
    let mut early = Chunk::default();
    tracks(&mut early);
    slice(&mut early, 1, [-1, 5], "a");
    refusal(&mut writer, &early, "slices: row 0: an OTF2 trace cannot contain a time before the clock's zero");
    let mut chunk = Chunk::default();
    tracks(&mut chunk);
    slice(&mut chunk, 1, [1, 5], "a\0b");
    slice(&mut chunk, 1, [2, 3], &"\u{e9}".repeat(200_000));
    writer.write(&chunk, &[]).expect("neither a NUL in a name is a reason nor a long one");
    writer.end_tracks().expect("closed");
    let mut late = Chunk::default();
    slice(&mut late, 1, [6, 7], "a");
    refusal(&mut writer, &late, "track 1: events follow its end");
    let missing = Otf2::open(&folder.path().join("x\0y"), "traces", &Meta::default());
    assert!(matches!(missing, Err(Error::Sink { .. })));
}
