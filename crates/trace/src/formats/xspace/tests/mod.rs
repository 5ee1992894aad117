//! Tests of the format on hand-made files and, where they are present, on the shared data sets.

use std::io::Write;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::outline::{self, Stat, StatValue};
use super::wire::{Fields, Value, put_bytes, put_number};
use super::*;
use crate::formats::FactOptions;
use crate::model::{ClockPair, CollectiveKind, Instance, PairKind, Picoseconds, TraceFacts};

/// Session start of hand-made files, Unix ns.
const START_NS: i64 = 1_700_000_000_000_000_000;
const START_PS: Picoseconds = START_NS as Picoseconds * 1000;

/// A message built from pieces.
#[derive(Clone, Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(mut self, field: u32, value: i64) -> Message {
        put_number(&mut self.0, field, value as u64);
        self
    }

    fn text(mut self, field: u32, value: &str) -> Message {
        put_bytes(&mut self.0, field, value.as_bytes());
        self
    }

    fn message(mut self, field: u32, value: impl std::borrow::Borrow<Message>) -> Message {
        put_bytes(&mut self.0, field, &value.borrow().0);
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Message {
        self.0.extend_from_slice(bytes);
        self
    }

    fn entry(self, field: u32, number: i64, name: &str) -> Message {
        self.message(
            field,
            Message::default().number(1, number).message(2, Message::default().number(1, number).text(2, name)),
        )
    }
}

fn event(metadata: i64, offset_ps: i64, duration_ps: i64) -> Message {
    Message::default().number(1, metadata).number(2, offset_ps).number(3, duration_ps)
}

fn session_plane() -> Message {
    Message::default()
        .text(2, "Task Environment")
        .message(6, Message::default().number(1, 1).number(3, START_NS))
        .message(6, Message::default().number(1, 2).number(3, START_NS + 5_000_000))
        .entry(5, 1, "profile_start_time")
        .entry(5, 2, "profile_stop_time")
}

/// A file of these planes, the session's plane last, as real files have it.
fn space(planes: &[Message]) -> Vec<u8> {
    let mut message = Message::default();
    for plane in planes {
        message = message.message(1, plane.clone());
    }
    message.message(1, session_plane()).text(4, "host7").0
}

struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Files {
        Files { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        std::fs::write(self.path(name), bytes).expect("a file");
        self.path(name)
    }

    fn rewritten(
        &self,
        bytes: &[u8],
        options: &RewriteOptions,
        map: &mut dyn FnMut(Picoseconds) -> Picoseconds,
    ) -> Vec<u8> {
        let (input, output) = (self.put("in", bytes), self.path("out"));
        rewrite(&input, &output, options, map).expect("rewritten");
        std::fs::read(output).expect("the output")
    }
}

/// An event seen absolutely.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    name: String,
    start_ps: Picoseconds,
    duration_ps: Picoseconds,
    numbers: Vec<(String, i64)>,
}

fn children(bytes: &[u8], number: u32) -> Vec<&[u8]> {
    let fields = Fields::of(bytes).map(|field| field.expect("a field")).filter(|field| field.number == number);
    fields.map(|field| if let Value::Bytes(bytes) = field.value { bytes } else { panic!("not bytes") }).collect()
}

fn last_number(bytes: &[u8], number: u32) -> Option<i64> {
    let fields = Fields::of(bytes).map(|field| field.expect("a field")).filter(|field| field.number == number);
    fields.filter_map(|field| if let Value::Number(value) = field.value { Some(value as i64) } else { None }).last()
}

fn names(plane: &[u8], field: u32) -> std::collections::HashMap<i64, String> {
    let name = |entry: &[u8]| {
        let value = children(entry, 2)[0];
        children(value, 2).first().map_or(String::new(), |name| String::from_utf8_lossy(name).into_owned())
    };
    children(plane, field).into_iter().map(|entry| (last_number(entry, 1).unwrap_or(0), name(entry))).collect()
}

fn plane_name(plane: &[u8]) -> String {
    children(plane, 2).first().map_or(String::new(), |name| String::from_utf8_lossy(name).into_owned())
}

/// All timed events of a file with absolute times, decoded without the code under test above the wire.
fn seen(bytes: &[u8]) -> Vec<Seen> {
    let start_ns =
        children(bytes, 1).into_iter().find(|plane| plane_name(plane) == "Task Environment").map_or(0, |plane| {
            let stats = names(plane, 5);
            let start = children(plane, 6).into_iter().find(|stat| {
                stats.get(&last_number(stat, 1).unwrap_or(0)).is_some_and(|name| name == "profile_start_time")
            });
            start.and_then(|stat| last_number(stat, 3)).expect("a start")
        });
    let mut events = Vec::new();
    for plane in children(bytes, 1) {
        let (event_names, stat_names) = (names(plane, 4), names(plane, 5));
        for line in children(plane, 3) {
            let line_ps = Picoseconds::from(start_ns + last_number(line, 3).unwrap_or(0)) * 1000;
            for event in children(line, 4).into_iter().filter(|event| last_number(event, 5).is_none()) {
                let stats = children(event, 4).into_iter().map(|stat| Stat::parse(stat).expect("a stat"));
                let numbers = stats.filter_map(|stat| match stat.value {
                    StatValue::Number(value) => Some((stat_names[&(stat.number as i64)].clone(), value as i64)),
                    _ => None,
                });
                events.push(Seen {
                    name: event_names.get(&last_number(event, 1).unwrap_or(0)).cloned().unwrap_or_default(),
                    start_ps: line_ps + Picoseconds::from(last_number(event, 2).unwrap_or(0)),
                    duration_ps: Picoseconds::from(last_number(event, 3).unwrap_or(0)),
                    numbers: numbers.collect(),
                });
            }
        }
    }
    events
}

fn data() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/jax");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: the shared data sets are absent");
    None
}

/// All real files of the data sets that are whole.
fn real_files(folder: &Path) -> Vec<PathBuf> {
    let sets = std::fs::read_dir(folder).expect("the sets").map(|set| set.expect("a set").path());
    let files = sets.filter(|set| !set.ends_with("x_corrupt_utf8_mangled")).flat_map(|set| {
        std::fs::read_dir(set).expect("a set").map(|file| file.expect("a file").path()).collect::<Vec<_>>()
    });
    let mut files =
        files.filter(|file| file.extension().is_some_and(|extension| extension == "pb")).collect::<Vec<_>>();
    files.sort();
    files
}

#[test]
fn the_identity_gives_the_same_bytes_for_every_real_file() {
    let Some(folder) = data() else { return };
    let files = Files::new();
    let real = real_files(&folder);
    assert!(real.len() >= 11, "{real:?}");
    for input in real {
        let output = files.path("out");
        rewrite(&input, &output, &RewriteOptions::default(), &mut |time| time).expect("rewritten");
        assert!(
            std::fs::read(&input).expect("input") == std::fs::read(&output).expect("output"),
            "{}",
            input.display()
        );
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(&std::fs::read(&input).expect("input")).expect("packed");
        let packed = files.put("in.gz", &packer.finish().expect("packed"));
        rewrite(&packed, &output, &RewriteOptions::default(), &mut |time| time).expect("rewritten");
        assert!(
            std::fs::read(&input).expect("input") == std::fs::read(&output).expect("output"),
            "{}",
            packed.display()
        );
    }
}

#[test]
fn all_real_files_keep_their_unknown_parts_when_times_move() {
    let Some(folder) = data() else { return };
    let files = Files::new();
    for input in real_files(&folder) {
        let bytes = std::fs::read(&input).expect("input");
        let mut map = |time: Picoseconds| time + (time - START_PS) / 10_000 - 7_654_321;
        let moved = files.rewritten(&bytes, &RewriteOptions::default(), &mut map);
        let (before, after) = (seen(&bytes), seen(&moved));
        assert_eq!(before.len(), after.len());
        for (before, after) in before.iter().zip(&after) {
            let start_ps = map(before.start_ps);
            let duration_ps = map(before.start_ps + before.duration_ps) - start_ps;
            let expected = Seen { start_ps, duration_ps, ..before.clone() };
            assert_eq!(after, &expected, "{}", input.display());
        }
    }
}

/// Offsets of a node as the data sets state them: node time ns, offset ns, interpolated linearly.
fn exact_offset(folder: &Path, node: u32) -> impl Fn(Picoseconds) -> Picoseconds + use<> {
    let text = std::fs::read_to_string(folder.join("offsets.csv")).expect("offsets");
    let rows =
        text.lines().skip(1).map(|row| row.split(',').map(|cell| cell.parse::<f64>().expect("a number") as i128));
    let wide = text.lines().skip(1).map(|row| row.split(',').nth(1).expect("a time").parse::<i128>().expect("a time"));
    let knots = rows.zip(wide).filter_map(|(mut row, at)| {
        let owner = row.next().expect("a node");
        (owner == i128::from(node)).then(|| (at * 1000, row.nth(1).expect("an offset") * 1000))
    });
    let knots = knots.collect::<Vec<_>>();
    move |time| {
        let right = knots.partition_point(|(at, _)| *at < time).clamp(1, knots.len() - 1);
        let ((at0, offset0), (at1, offset1)) = (knots[right - 1], knots[right]);
        offset0 + (offset1 - offset0) * (time - at0) / (at1 - at0)
    }
}

#[test]
fn markers_of_all_nodes_agree_after_mapping_with_the_exact_offsets() {
    let Some(folder) = data() else { return };
    for set in ["a_2node_noskew", "b_4node_offset_drift", "c_2node_pytracer"] {
        let folder = folder.join(set);
        let (mut raw, mut aligned) = (Vec::new(), Vec::new());
        for node in 0.. {
            let Ok(bytes) = std::fs::read(folder.join(format!("node{node}.xplane.pb"))) else { break };
            let offset = exact_offset(&folder, node);
            let options = RewriteOptions { base_ns: Some(START_NS), annotate: true };
            let moved = Files::new().rewritten(&bytes, &options, &mut |time| time - offset(time));
            raw.push(marker_median_ns(&bytes));
            aligned.push(marker_median_ns(&moved));
        }
        let spread = |medians: &[i64]| medians.iter().max().expect("nodes") - medians.iter().min().expect("nodes");
        println!("{set}: medians of marker minus truth, ns: raw {raw:?}, aligned {aligned:?}");
        assert!(spread(&aligned) < 3000, "{set}: {aligned:?}");
        assert!(aligned.iter().all(|median| (0..60_000).contains(median)), "{set}: {aligned:?}");
        assert!(set != "b_4node_offset_drift" || spread(&raw) > 1_000_000, "raw {raw:?}");
    }
}

/// Median of a marker's start minus the true time that it states.
fn marker_median_ns(bytes: &[u8]) -> i64 {
    let markers = seen(bytes).into_iter().filter(|event| event.name == "clkmark");
    let mut lateness = markers.map(|event| {
        let (_, true_ns) = event.numbers.iter().find(|(name, _)| name == "true_ns").expect("true_ns");
        (event.start_ps / 1000) as i64 - true_ns
    });
    let mut lateness = lateness.by_ref().collect::<Vec<_>>();
    assert!(lateness.len() >= 5, "{} markers", lateness.len());
    lateness.sort_unstable();
    lateness[lateness.len() / 2]
}

#[test]
fn facts_of_the_data_sets() {
    let Some(folder) = data() else { return };
    let check = |set: &str, node: u32, collectives: usize, pairs: usize| {
        let facts = facts_of(&folder.join(set).join(format!("node{node}.xplane.pb")));
        assert_eq!(facts.identity.hostname, Some(format!("node{node}")));
        let judged = facts.collectives.iter().filter(|event| event.kind == CollectiveKind::AllToAll).count();
        assert_eq!((judged, facts.pairs.len()), (collectives, pairs), "{set} node {node}");
        assert_eq!(facts.notes, Vec::<String>::new());
        for collective in &facts.collectives {
            let Instance::Hlo { module, run_id, op } = &collective.instance else { panic!("{collective:?}") };
            assert!(!module.is_empty() && *run_id != 0 && op == &collective.name, "{collective:?}");
            assert_eq!(i64::from(*run_id as i32), *run_id, "{collective:?}");
        }
        for pair in &facts.pairs {
            let late_ns = pair.tracer_ps / 1000 - i128::from(pair.system_ns);
            assert!((0..2_000_000).contains(&late_ns), "{set} node {node}: {late_ns}");
        }
        let (first, last) = facts.span.expect("events");
        assert!(last > first && facts.events > 100);
    };
    for node in 0..4 {
        check("b_4node_offset_drift", node, 36, 16);
    }
    for node in 0..2 {
        check("a_2node_noskew", node, 12, 10);
        check("c_2node_pytracer", node, 19, 6);
    }
}

fn facts_of(path: &Path) -> TraceFacts {
    read_facts(path, &FactOptions::default()).expect("facts")
}

#[test]
fn a_shift_and_a_stretch_reach_every_time_and_nothing_else() {
    let odd = Message::default().number(1, 4).raw(&[0x10, 0x80, 0x80, 0x00]).raw(&[0xfa, 0x3f, 2, 9, 9]);
    let counted = Message::default().number(1, 4).number(5, 77).number(3, 1000);
    let late = Message::default().number(1, 4).number(3, 2_000_000);
    let line = Message::default()
        .number(1, 9)
        .text(2, "thread")
        .number(3, 1_000)
        .number(9, 5_000_000)
        .message(4, event(4, 3_000_000, 1_000_000))
        .message(4, counted.clone())
        .message(4, late)
        .message(4, odd)
        .raw(&[0xfa, 0x3f, 1, 7]);
    let bytes = space(&[Message::default().text(2, "/host:CPU").message(3, line).entry(4, 4, "work")]);
    let files = Files::new();
    assert_eq!(files.rewritten(&bytes, &RewriteOptions::default(), &mut |time| time), bytes, "identity");

    // Twice as slow from the session start on, and 5 ms later.
    let mut map = |time: Picoseconds| START_PS + (time - START_PS) * 2 + 5_000_000_000;
    let options = RewriteOptions { base_ns: Some(START_NS), annotate: false };
    let moved = files.rewritten(&bytes, &options, &mut map);
    let expected = [(8_000_000, 2_000_000), (2_000_000, 4_000_000), (2_000_000, 0)];
    let times = seen(&moved).into_iter().map(|event| (event.start_ps - START_PS - 5_000_000_000, event.duration_ps));
    assert_eq!(times.collect::<Vec<_>>(), expected);
    let plane = children(&moved, 1)[0];
    let line = children(plane, 3)[0];
    assert_eq!((last_number(line, 3), last_number(line, 9)), (Some(5_002_000), Some(10_000_000)));
    assert!(children(line, 4)[1] == counted.0, "aggregated events stay");
    assert!(moved.windows(5).any(|bytes| bytes == [0xfa, 0x3f, 2, 9, 9]), "unknown fields of events stay");
    assert!(line.ends_with(&[0xfa, 0x3f, 1, 7]), "unknown fields of lines stay");
    let outline = outline::outline(&files.path("out")).expect("an outline");
    assert_eq!((outline.start_ns, outline.stop_ns), (Some(START_NS), Some(START_NS + 15_000_000)));
}

#[test]
fn corrections_are_kept_per_event_on_request_only() {
    let line = Message::default().number(3, 10).message(4, event(4, 500, 0)).message(4, event(4, 300_000, 7));
    let plane = Message::default().text(2, "/host:CPU").message(3, line).entry(4, 4, "work").entry(5, 6, "other");
    let bytes = space(&[plane]);
    let options = RewriteOptions { base_ns: None, annotate: true };
    let moved = Files::new().rewritten(&bytes, &options, &mut |time| time - 2_600);
    let corrections = seen(&moved).into_iter().map(|event| event.numbers);
    let expected = vec![("timestamp_correction_ns".to_owned(), -3)];
    assert_eq!(corrections.collect::<Vec<_>>(), [expected.clone(), expected]);
}

#[test]
fn pairs_come_from_markers_and_snapshot_planes_wherever_their_names_stand() {
    let number = |stat: i64, value: i64| Message::default().number(1, stat).number(4, value);
    let line = Message::default()
        .number(3, 1_000)
        .message(4, event(1, 2_000_000, 0).message(4, number(9, START_NS + 2_500)))
        .message(4, event(2, 4_000_000, 0))
        .message(4, event(3, 6_000_000, 0));
    let threads = Message::default()
        .message(3, line)
        .text(2, "/host:CPU")
        .entry(4, 1, "probe_sync.clock")
        .entry(4, 2, "sync at 1700000000000004000 ns")
        .entry(4, 3, "probe_sync.clock#1700000000000006500")
        .entry(5, 9, "system_ns");
    let shots =
        Message::default().number(3, 5_000).message(4, event(1, 7_000_000, 0).message(4, number(3, START_NS + 5)));
    let snapshots =
        Message::default().text(2, "/host:snapshots").message(3, shots).entry(4, 1, "snapshot").entry(5, 3, "rocm_ns");
    let files = Files::new();
    let path = files.put("in", &space(&[threads, snapshots]));
    let markers = regex::Regex::new(r"^sync at (?<system_ns>\d+) ns$").expect("an expression");
    let facts = read_facts(&path, &FactOptions { markers: Some(markers) }).expect("facts");
    let marker = |late_ps: i128, late_ns: i64| ClockPair {
        tracer_ps: START_PS + late_ps,
        system_ns: START_NS + late_ns,
        kind: PairKind::Marker,
    };
    let snapshot =
        ClockPair { tracer_ps: START_PS + 5_000, system_ns: START_NS + 12_000, kind: PairKind::Bracketed(5000.0) };
    assert_eq!(facts.pairs, [marker(3_000_000, 2_500), marker(5_000_000, 4_000), marker(7_000_000, 6_500), snapshot]);
    assert_eq!(facts.identity.hostname.as_deref(), Some("host7"));
}

#[test]
fn collectives_of_devices_are_found_by_library_and_by_operation() {
    let reference = |stat: i64, value: i64| Message::default().number(1, stat).number(7, value);
    let hlo = |event: Message, op: i64| {
        event
            .message(4, reference(1, op))
            .message(4, reference(2, 12))
            .message(4, Message::default().number(1, 3).number(3, 42))
    };
    let line = Message::default()
        .message(4, hlo(event(1, 0, 10), 10))
        .message(4, hlo(event(2, 20, 10), 11))
        .message(4, hlo(event(3, 40, 10), 10))
        .message(4, event(1, 60, 10));
    let plane = Message::default()
        .text(2, "/device:GPU:0")
        .message(3, line)
        .entry(4, 1, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
        .entry(4, 2, "loop_reduce_fusion")
        .entry(4, 3, "RaggedAllToAllKernel")
        .entry(5, 1, "hlo_op")
        .entry(5, 2, "hlo_module")
        .entry(5, 3, "run_id")
        .entry(5, 10, "all-reduce-start.1")
        .entry(5, 11, "loop_reduce_fusion")
        .entry(5, 12, "jit_step");
    let facts = facts_of(&Files::new().keep("in", &space(&[plane])));
    let found = facts.collectives.iter().map(|event| (event.name.as_str(), event.kind.clone(), event.instance.clone()));
    let instance = Instance::Hlo { module: "jit_step".to_owned(), run_id: 42, op: "all-reduce-start.1".to_owned() };
    let loose = Instance::Order { group: None, signature: "ncclDevKernel_AllReduce_Sum_f32_RING_LL".to_owned() };
    let expected = [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", CollectiveKind::AllToAll, instance.clone()),
        ("RaggedAllToAllKernel", CollectiveKind::AllToAll, instance),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", CollectiveKind::AllToAll, loose),
    ];
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

impl Files {
    /// A file that outlives this value; for one-line tests.
    fn keep(self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.put(name, bytes);
        let _ = self.folder.keep();
        path
    }
}

/// What reading and rewriting say of a file, which must be the same, in one line.
fn refusal(path: &Path) -> String {
    let facts = read_facts(path, &FactOptions::default()).expect_err("refused by the reader").to_string();
    let output = path.with_extension("out");
    let rewritten = rewrite(path, &output, &RewriteOptions::default(), &mut |time| time);
    assert_eq!(rewritten.expect_err("refused by the writer").to_string(), facts);
    assert!(!output.exists());
    assert!(!facts.contains('\n'));
    facts
}

#[test]
fn files_that_are_no_xspace_are_refused_with_the_place() {
    let files = Files::new();
    let good =
        space(&[Message::default().text(2, "/host:CPU").message(3, Message::default().message(4, event(1, 2, 3)))]);
    let check = |what: &str, bytes: &[u8], part: &str| {
        let said = refusal(&files.put("in", bytes));
        assert!(said.contains(part), "{what}: {said}");
    };
    check("empty", b"", "byte 0: the file is empty");
    check("spaces", &b" ".repeat(100_000), "byte 0: not XSpace protobuf: field 4 of XSpace has wire type 0");
    check("JSON", b"{\"traceEvents\": []}", "byte 0: not XSpace protobuf: field 15 of wire type 3");
    check("cut", &good[..good.len() - 20], "runs past the end");
    check("cut in a header", &good[..good.len() - 6], "cut short");
    check("huge length", &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1], "runs past the end");
    check("longest length", &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], "runs past the end");
    check("groups", &[0x0b].repeat(100_000), "field 1 of wire type 3");
    let mut nested = Vec::new();
    for _ in 0..2000 {
        let inner = std::mem::take(&mut nested);
        put_bytes(&mut nested, 1, &inner);
    }
    check("deep nesting", &nested, "field 1 of a plane has wire type 2");
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(&good).expect("packed");
    let packed = packer.finish().expect("packed");
    check("cut gzip", &packed[..packed.len() / 2], "gzip data is damaged or cut short");
    check("no plane", &Message::default().text(4, "host").0, "there is no plane in it");
    let late = Message::default().message(4, event(1, 2, 3)).number(3, 9);
    let late = space(&[Message::default().message(3, late)]);
    let path = files.put("late", &late);
    let said = read_facts(&path, &FactOptions::default()).expect_err("refused").to_string();
    assert!(said.contains("states its start after its events"), "{said}");
}

#[test]
fn the_mangled_file_is_refused() {
    let Some(folder) = data() else { return };
    let path = folder.join("x_corrupt_utf8_mangled/tpu_inference_2.xplane.pb");
    let said = read_facts(&path, &FactOptions::default()).expect_err("refused").to_string();
    println!("{said}");
    assert!(said.contains("byte ") && !said.contains('\n'));
}

#[test]
fn a_time_that_does_not_fit_is_an_error() {
    let files = Files::new();
    let line = Message::default().message(4, event(1, 2, i64::MAX));
    let input = files.put("in", &space(&[Message::default().text(2, "/host:CPU").message(3, line)]));
    let mut map = |time: Picoseconds| time * 3;
    let said =
        rewrite(&input, &files.path("out"), &RewriteOptions::default(), &mut map).expect_err("refused").to_string();
    assert!(said.contains("does not fit 64 bits"), "{said}");
}

/// Merges and decodes names and ids: planes, lines, hosts.
fn merged(paths: &[PathBuf], layout: PlaneLayout, files: &Files) -> (Vec<u8>, MergeStats) {
    let shifts = (0..).map(|node| Picoseconds::from(node) * 1_000_000_000);
    let mut maps = shifts.map(|shift| move |time: Picoseconds| time - shift).take(paths.len()).collect::<Vec<_>>();
    let mut inputs = paths.iter().zip(maps.iter_mut()).zip(0..).map(|((path, map), node)| MergeInput {
        path: path.clone(),
        node,
        name: format!("node{node}"),
        map,
    });
    let mut inputs = inputs.by_ref().collect::<Vec<_>>();
    let metadata = vec![("method".to_owned(), "by hand".to_owned()), ("version".to_owned(), "1".to_owned())];
    let options = MergeOptions { layout, metadata, ..MergeOptions::default() };
    let stats = merge(&mut inputs, &files.path("merged"), &options).expect("merged");
    (std::fs::read(files.path("merged")).expect("the merged file"), stats)
}

#[test]
fn a_merged_file_has_every_event_and_no_name_or_id_twice() {
    let Some(folder) = data() else { return };
    let files = Files::new();
    let real = real_files(&folder);
    for layout in [PlaneLayout::Xprof, PlaneLayout::GpuTracks] {
        let (bytes, stats) = merged(&real, layout, &files);
        let before = real.iter().map(|path| seen(&std::fs::read(path).expect("input")).len()).sum::<usize>();
        assert_eq!(seen(&bytes).len(), before);
        assert_eq!(stats.inputs.iter().map(|input| input.events).sum::<u64>(), before as u64);
        let planes = children(&bytes, 1);
        let lines = planes.iter().flat_map(|plane| children(plane, 3)).collect::<Vec<_>>();
        distinct(planes.iter().map(|plane| plane_name(plane)));
        distinct(planes.iter().map(|plane| last_number(plane, 1).expect("an id")));
        distinct(lines.iter().map(|line| last_number(line, 1).expect("an id")));
        distinct(children(&bytes, 4));
        assert_eq!(stats.stride, 8, "the largest of the real files has 8 devices");
    }
}

fn distinct<T: std::hash::Hash + Eq + std::fmt::Debug + Clone>(all: impl IntoIterator<Item = T>) {
    let mut known = std::collections::HashSet::new();
    for one in all {
        assert!(known.insert(one.clone()), "{one:?} twice");
    }
}

#[test]
fn planes_of_merged_files_are_called_as_viewers_expect() {
    let files = Files::new();
    let line = || Message::default().number(1, 17).number(10, 17).message(4, event(1, 5_000, 10));
    let link = Message::default().number(1, 2).number(3, 99);
    let linked = Message::default().number(1, 17).message(4, event(1, 6_000, 10).message(4, link));
    let gpu = |ordinal: i64| Message::default().number(1, ordinal).text(2, &format!("/device:GPU:{ordinal}"));
    let bytes = space(&[
        Message::default().text(2, "/host:CPU").message(3, line()),
        gpu(0).message(3, linked).entry(5, 2, "correlation_id"),
        gpu(1).message(3, line()),
    ]);
    let paths = [files.put("first", &bytes), files.put("second", &bytes)];
    let check = |layout: PlaneLayout, expected: &[(&str, i64)]| {
        let (bytes, stats) = merged(&paths, layout, &files);
        let planes = children(&bytes, 1).into_iter().map(|plane| (plane_name(plane), last_number(plane, 1)));
        let devices = planes.filter(|(name, _)| name.starts_with("/")).collect::<Vec<_>>();
        assert_eq!(devices.len(), expected.len());
        for ((name, id), (expected_name, expected_id)) in devices.iter().zip(expected) {
            assert_eq!(name, expected_name);
            assert!(*expected_id < 0 || *id == Some(*expected_id), "{name}: {id:?}");
        }
        // The second node's map puts it 1 ms earlier, which is the common base.
        assert_eq!(stats.base_ns, START_NS - 1_000_000);
        let links =
            seen(&bytes).into_iter().flat_map(|event| event.numbers).map(|(_, value)| value).collect::<Vec<_>>();
        assert_eq!(links, [99, 99 + (1 << 44)]);
        let hosts = children(&bytes, 4).into_iter().map(|host| String::from_utf8_lossy(host).into_owned());
        assert_eq!(hosts.collect::<Vec<_>>(), ["host7 (node0)", "host7 (node1)"]);
        let last = *children(&bytes, 1).last().expect("a plane");
        assert_eq!(plane_name(last), "probe_sync");
        assert_eq!(names(last, 5)[&1], "method");
        for line in children(&bytes, 1).iter().flat_map(|plane| children(plane, 3)) {
            let display = last_number(line, 10);
            assert!(display.is_none() || display == last_number(line, 1), "a display id follows its line");
        }
    };
    let devices = ("/device:GPU:0", 0);
    let others = [("/device:GPU:2", 2), ("/device:GPU:3", 3)];
    let first = [("/host:CPU", -1), devices, ("/device:GPU:1", 1)];
    check(PlaneLayout::Xprof, &[&first[..], &[("/host:CPU node1", -1)], &others].concat());
    check(PlaneLayout::GpuTracks, &[&first[..], &[("/device:GPU:4 node1 /host:CPU", 4)], &others].concat());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 1..400)) {
        let files = Files::new();
        let input = files.put("in", &bytes);
        let _ = read_facts(&input, &FactOptions::default());
        let _ = rewrite(&input, &files.path("out"), &RewriteOptions::default(), &mut |time| time);
    }

    #[test]
    fn damaged_files_never_panic(at in 0usize..400, with in any::<u8>(), cut in 0usize..400) {
        let line = Message::default().number(1, 17).number(3, 5).message(4, event(1, 5_000, 10).message(4, event(2, 3, 1)));
        let plane = Message::default().text(2, "/host:CPU").message(3, line).entry(4, 1, "clkmark").entry(5, 2, "node_ns");
        let mut bytes = space(&[plane]);
        let at = at % bytes.len();
        bytes[at] = with;
        bytes.truncate(bytes.len() - cut % bytes.len() / 4);
        let files = Files::new();
        let input = files.put("in", &bytes);
        let _ = read_facts(&input, &FactOptions::default());
        let _ = rewrite(&input, &files.path("out"), &RewriteOptions { annotate: true, ..Default::default() }, &mut |time| -time);
        let mut map = |time: Picoseconds| time;
        let mut inputs = [MergeInput { path: input, node: 3, name: "n".to_owned(), map: &mut map }];
        let _ = merge(&mut inputs, &files.path("out"), &MergeOptions::default());
    }
}
