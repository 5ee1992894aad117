//! Planes on a raw clock, from the file to the aligned file: the machine was started an hour before
//! the session of 5 ms.

use probe_sync_alignment::{AlignSettings, Calibrated, ClockSource, Request, align, calibrate};

use super::*;

/// When on the raw clock the session began, ns.
const BOOT_NS: i64 = 3_600_000_000_000;

fn host_plane() -> Message {
    let line = Message::default().number(3, 0).message(4, event(1, 1_000_000_000, 20_000_000));
    Message::default().text(2, "/host:CPU").message(3, line).entry(4, 1, "launch")
}

/// A device's plane with one event at `at_ns`, as it stands.
fn device_plane(at_ns: i64) -> Message {
    let line = Message::default().number(3, at_ns).message(4, event(1, 0, 20_000_000));
    Message::default().text(2, "/device:GPU:0").message(3, line).entry(4, 1, "kernel")
}

/// Pairs at the session's start and 5 ms later, of a raw clock that reads `boot_ns` at the start.
fn snapshot_plane(boot_ns: i64) -> Message {
    let pair = |late_ns: i64| {
        let stat = Message::default().number(1, 3).number(3, boot_ns + late_ns);
        event(1, late_ns * 1000, 0).message(4, stat)
    };
    let line = Message::default().number(3, 0).message(4, pair(0)).message(4, pair(5_000_000));
    Message::default().text(2, "/host:snapshots").message(3, line).entry(4, 1, "snapshot").entry(5, 3, "rocm_ns")
}

/// A request for node 1, which is 2.5 ms ahead of node 0.
fn request(files: &Files, planes: &[Message], pairs: Option<&str>) -> Request {
    let offsets =
        format!("node,node_realtime_ns,offset_vs_node0_ns\n1,{START_NS},2500000\n1,{},2500000\n", START_NS + 5_000_000);
    Request {
        traces: vec![files.put("node1.xplane.pb", &space(planes))],
        nodes: vec![1],
        clocks: ClockSource::Offsets(files.put("offsets.csv", offsets.as_bytes())),
        snapshots: pairs.map(|pairs| files.put("pairs.jsonl", pairs.as_bytes())).into_iter().collect(),
        ..Request::default()
    }
}

fn pair_lines(boot_ns: i64) -> String {
    pair_lines_at(boot_ns, START_NS)
}

fn pair_lines_at(boot_ns: i64, start_ns: i64) -> String {
    let line = |late_ns: i64| {
        let (system, tracer) = (start_ns + late_ns, boot_ns + late_ns);
        format!("{{\"sys_clock_ns\":{system},\"tracer_clock_ns\":{tracer},\"bracket_ns\":300}}\n")
    };
    [0, 5_000_000].map(line).concat()
}

fn aligned(files: &Files, calibrated: &Calibrated, settings: AlignSettings) -> Result<Vec<u8>, String> {
    let output = files.path("aligned.xplane.pb");
    let done = align(calibrated, &output, settings).map_err(|error| error.to_string())?;
    done.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    std::fs::read(output).map_err(|error| error.to_string())
}

/// Events of the aligned file by name, ps after the session's start.
fn starts(bytes: &[u8]) -> Vec<(String, Picoseconds)> {
    let planes = seen(bytes).into_iter().filter(|event| event.name != "snapshot");
    planes.map(|event| (event.name, event.start_ps - START_PS)).collect()
}

#[test]
fn a_raw_plane_is_brought_to_the_others_by_pairs_of_the_file_or_of_the_run() {
    let raw = || device_plane(BOOT_NS + 1_000_000);
    let shifted = || device_plane(BOOT_NS + 1_000_000 - START_NS);
    let own = || snapshot_plane(BOOT_NS);
    let both = [("launch".to_owned(), -1_500_000_000), ("kernel".to_owned(), -1_500_000_000)];
    let run = pair_lines(BOOT_NS);
    let named = run.replace("\"bracket_ns\"", "\"tracer_clock\":\"boottime\",\"bracket_ns\"");
    for (planes, pairs) in [
        (vec![host_plane(), raw(), own()], None),
        (vec![host_plane(), raw()], Some(run.as_str())),
        (vec![host_plane(), raw()], Some(named.as_str())),
        (vec![host_plane(), shifted(), own()], None),
        (vec![own(), host_plane(), device_plane(1_000_000)], None),
        (vec![host_plane(), device_plane(START_NS + 1_000_000)], Some(run.as_str())),
    ] {
        let files = Files::new();
        let calibrated = calibrate(&request(&files, &planes, pairs)).expect("clocks");
        let bytes = aligned(&files, &calibrated, AlignSettings::default()).expect("aligned");
        // At 1 ms of node 1's clock, which is 2.5 ms ahead.
        assert_eq!(starts(&bytes), both, "{:?}", calibrated.traces[0].notes);
        let again = facts_of(&files.put("again", &bytes));
        assert!(again.since_boot.is_empty() && again.span.is_some(), "an aligned file has one clock: {again:?}");
    }
}

#[test]
fn a_raw_plane_without_pairs_that_close_the_loop_is_refused() {
    let refused = |planes: &[Message], pairs: Option<&str>, expected: &str| {
        let files = Files::new();
        let said = calibrate(&request(&files, planes, pairs)).expect_err(expected).to_string();
        assert!(said.contains(expected), "{said}");
        assert!(said.contains("node 1: the plane /device:GPU:0") && said.contains("3600.001 to 3600.001 s"), "{said}");
    };
    let raw = || device_plane(BOOT_NS + 1_000_000);
    refused(&[host_plane(), raw()], None, "there are no snapshot pairs");
    refused(&[host_plane(), raw(), snapshot_plane(90_000_000_000_000)], None, "90000.000 to 90000.005 s");
    let later = pair_lines(BOOT_NS - 60_000_000_000);
    refused(&[host_plane(), raw()], Some(&later), "outside the session");
}

#[test]
fn an_ordinary_trace_says_nothing_of_pairs_of_another_clock() {
    let files = Files::new();
    let planes = [host_plane(), device_plane(1_000_000), snapshot_plane(BOOT_NS)];
    let quiet = calibrate(&request(&files, &planes, None)).expect("clocks");
    assert!(!quiet.traces[0].notes.iter().any(|note| note.contains("pairs")), "{:?}", quiet.traces[0].notes);
    // Files that were named on purpose and are of no use are told.
    let told = calibrate(&request(&files, &planes[..2], Some(&pair_lines(BOOT_NS)))).expect("clocks");
    assert!(
        told.traces[0].notes.iter().any(|note| note.contains("for a different clock")),
        "{:?}",
        told.traces[0].notes
    );
}

#[test]
fn embedded_snapshots_are_read_back() {
    let embed = AlignSettings { embed_snapshots: true, ..AlignSettings::default() };
    let files = Files::new();
    let day_ns = 86_400_000_000_000;
    let next_day = pair_lines_at(BOOT_NS + day_ns, START_NS + day_ns);
    let far = format!("{}{next_day}", pair_lines(BOOT_NS));
    let planes = [host_plane(), device_plane(BOOT_NS + 1_000_000)];
    let calibrated = calibrate(&request(&files, &planes, Some(&far))).expect("clocks");
    let bytes = aligned(&files, &calibrated, embed).expect("aligned");
    let pair = |late_ns: i64| ClockPair {
        tracer_ps: Picoseconds::from(BOOT_NS + late_ns) * 1000,
        system_ns: START_NS + late_ns,
        kind: PairKind::Bracketed(300.0),
    };
    let again = facts_of(&files.put("again", &bytes));
    assert_eq!(again.pairs, [pair(0), pair(5_000_000)], "the node's own clocks; those of another day are left out");
    assert_eq!(starts(&bytes)[0], ("launch".to_owned(), -1_500_000_000));
    let plane = children(&bytes, 1).into_iter().find(|plane| plane_name(plane) == "/host:snapshots").expect("a plane");
    let stats: Vec<String> = names(plane, 5).into_values().collect();
    assert!(["rocm_ns", "tracer_ns", "bracket_ns"].iter().all(|name| stats.iter().any(|stat| stat == name)));

    let refused = |pairs: Option<&str>, expected: &str| {
        let calibrated = calibrate(&request(&files, &[host_plane()], pairs)).expect("clocks");
        let said = aligned(&files, &calibrated, embed).expect_err(expected);
        assert!(said.contains(expected) && said.contains("node1.xplane.pb"), "{said}");
    };
    refused(None, "no snapshot pairs for its node");
    refused(Some(&next_day), "at a different time");
    let of_clock = |clock: &str| {
        pair_lines(BOOT_NS).replace("\"bracket_ns\"", &format!("\"tracer_clock\":\"{clock}\",\"bracket_ns\""))
    };
    refused(Some(&of_clock("monotonic_raw")), "its pairs use the clock monotonic_raw, but readers of the plane");
    let calibrated = calibrate(&request(&files, &[host_plane()], Some(&of_clock("boottime")))).expect("clocks");
    let bytes = aligned(&files, &calibrated, embed).expect("of a profiler's clock");
    assert_eq!(facts_of(&files.put("named", &bytes)).pairs.len(), 2);
}

#[test]
fn pairs_are_not_embedded_beside_a_plane_that_is_there() {
    let embed = AlignSettings { embed_snapshots: true, ..AlignSettings::default() };
    let files = Files::new();
    let empty = Message::default().text(2, "/host:snapshots");
    for plane in [snapshot_plane(BOOT_NS), empty] {
        let planes = [host_plane(), plane];
        let calibrated = calibrate(&request(&files, &planes, Some(&pair_lines(BOOT_NS)))).expect("clocks");
        assert!(calibrated.traces[0].trace.facts.has_snapshot_plane);
        let said = aligned(&files, &calibrated, embed).expect_err("there is one");
        assert!(said.contains("node1.xplane.pb: it already has a plane /host:snapshots"), "{said}");
        assert!(!files.path("aligned.xplane.pb").exists(), "nothing was begun");
        // Without the flag the plane stays as it is.
        let bytes = aligned(&files, &calibrated, AlignSettings::default()).expect("aligned");
        let count = children(&bytes, 1).into_iter().filter(|plane| plane_name(plane) == "/host:snapshots").count();
        assert_eq!(count, 1);
        std::fs::remove_file(files.path("aligned.xplane.pb")).expect("written");
    }
}

#[test]
fn pairs_that_are_embedded_are_not_said_to_be_of_no_use() {
    // They move no time of a trace on Unix time, and are written into it all the same.
    let files = Files::new();
    let calibrated = calibrate(&request(&files, &[host_plane()], Some(&pair_lines(BOOT_NS)))).expect("clocks");
    let notes = &calibrated.traces[0].notes;
    assert!(notes.iter().any(|note| note.ends_with("have no effect")), "{notes:?}");
    assert!(!notes.iter().any(|note| note.contains("not used")), "{notes:?}");
}

#[test]
fn a_raw_plane_is_not_tied_by_pairs_of_another_raw_clock() {
    // MONOTONIC_RAW, which differs by 2 ms only: the plane would be put into the session, 2 ms off.
    let files = Files::new();
    let raw = [host_plane(), device_plane(BOOT_NS + 1_000_000)];
    let pairs =
        pair_lines(BOOT_NS - 2_000_000).replace("\"bracket_ns\"", "\"tracer_clock\":\"monotonic_raw\",\"bracket_ns\"");
    let said = calibrate(&request(&files, &raw, Some(&pairs))).expect_err("another clock").to_string();
    assert!(said.contains("node 1: the plane /device:GPU:0") && said.contains("for the clock monotonic_raw"), "{said}");
}
