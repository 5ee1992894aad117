//! Whole files: real traces where they are at hand, small ones by hand for every rule, broken ones for every refusal.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;
use crate::Error;
use crate::formats::FactOptions;
use crate::model::{CollectiveKind, Instance, Picoseconds};

/// The real traces; `None`, with a message, where they are not at hand.
fn data() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/torch");
    let found = folder.is_dir();
    if !found {
        println!("skipped: {} is absent", folder.display());
    }
    found.then_some(folder)
}

fn traces(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.to_string_lossy().ends_with(".gz")).collect();
    files.sort();
    files
}

/// A file's bytes, inflated by a reader that stops after the first gzip member.
fn contents(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).unwrap();
    if path.extension().is_some_and(|extension| extension == "gz") {
        flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    } else {
        std::io::BufReader::new(file).read_to_end(&mut bytes).unwrap();
    }
    bytes
}

/// Text as JSON; numbers stay text.
fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// Rewrites a text.
fn rewritten(
    text: &[u8],
    options: RewriteOptions,
    mut map: impl FnMut(Picoseconds) -> Picoseconds,
) -> Result<(Vec<u8>, RewriteStats), Error> {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.json"), folder.path().join("out.json"));
    std::fs::write(&input, text).unwrap();
    let outcome = rewrite(&input, &output, &options, &mut map);
    assert_eq!(output.exists(), outcome.is_ok(), "a refused file leaves no output");
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1 + usize::from(outcome.is_ok()),
        "nothing is left behind"
    );
    outcome.map(|stats| (contents(&output), stats))
}

fn check_rewrite(text: &str, options: RewriteOptions, map: impl FnMut(Picoseconds) -> Picoseconds, expected: &str) {
    let (out, _) = rewritten(text.as_bytes(), options, map).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

const MICROSECOND: Picoseconds = 1_000_000;

#[test]
fn identity_changes_no_byte_of_any_real_trace() {
    let Some(folder) = data() else { return };
    let target = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for set in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
        for input in traces(&set) {
            let original = contents(&input);
            for name in ["out.json", "out.json.gz"] {
                let output = target.path().join(name);
                let stats = rewrite(&input, &output, &RewriteOptions::default(), &mut |time| time).unwrap();
                assert!(contents(&output) == original, "{}", input.display());
                assert_eq!((stats.changed, stats.rounded, stats.bytes_out), (0, 0, original.len() as u64));
            }
            seen += 1;
        }
    }
    assert!(seen >= 18, "{seen} traces");
}

#[test]
fn a_shift_there_and_back_keeps_every_time_of_every_real_trace() {
    let Some(folder) = data() else { return };
    let target = tempfile::tempdir().unwrap();
    let (there, back) = (target.path().join("there.json"), target.path().join("back.json"));
    let shift = 123_456_789_123_000;
    for set in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
        for input in traces(&set) {
            rewrite(&input, &there, &RewriteOptions::default(), &mut |time| time - shift).unwrap();
            rewrite(&there, &back, &RewriteOptions::default(), &mut |time| time + shift).unwrap();
            let times = |path: &Path| -> Vec<_> {
                let mut times = Vec::new();
                let base = read_kineto(path, &FactOptions::default()).unwrap().base_ns;
                let mut document = document::Document::open(path, &[]).unwrap();
                loop {
                    match document.next().unwrap() {
                        document::Item::End => return times,
                        document::Item::Event(event) => {
                            let value = |span: &std::ops::Range<usize>| {
                                decimal::parse(&event.bytes[span.clone()]).map(|it| it.ps)
                            };
                            let start = value(&event.spans.ts).unwrap() + i128::from(base.unwrap_or(0)) * 1000;
                            times.push((start, value(&event.spans.dur)));
                        }
                        _ => {}
                    }
                }
            };
            assert!(times(&input) == times(&back), "{}", input.display());
            json(&contents(&there));
            assert_eq!(read_kineto(&there, &FactOptions::default()).unwrap().dialect, Dialect::Based);
        }
    }
}

#[test]
fn times_are_mapped_at_both_ends_and_nothing_else_is() {
    let text = "{\"ts\": 1, \"traceEvents\": [\n {\"ph\":\"X\",\"ts\":10.5,\"dur\":2,\"args\":{\"ts\":7}},\n {\"ph\":\"s\",\"id\":1,\"ts\":11}\n], \"baseTimeNanoseconds\": 1000000}";
    // The file's 10.5 µs are 1 010.5 µs; the clock runs at double speed.
    check_rewrite(
        text,
        RewriteOptions::default(),
        |time| time * 2,
        "{\"ts\": 1, \"traceEvents\": [\n {\"ph\":\"X\",\"ts\":1021.000,\"dur\":4.000,\"args\":{\"ts\":7}},\n {\"ph\":\"s\",\"id\":1,\"ts\":1022.000}\n], \"baseTimeNanoseconds\": 1000000}",
    );
    let based = RewriteOptions { base_ns: Some(2_000_000), ..RewriteOptions::default() };
    check_rewrite(text, based, |time| time + 1000 * MICROSECOND, &text.replace("1000000}", "2000000}"));
}

#[test]
fn dialects_without_base_get_one_when_a_time_changes() {
    let text = "{\"traceEvents\":[{\"ph\":\"i\",\"ts\":1682725898236567},{\"ph\":\"X\",\"ts\":1682725898236568.25,\"dur\":68.0}]}";
    check_rewrite(text, RewriteOptions::default(), |time| time, text);
    // 213 quarters of 7 889 238 s.
    check_rewrite(
        text,
        RewriteOptions::default(),
        |time| time - 67 * MICROSECOND,
        "{\n  \"baseTimeNanoseconds\": 1680407694000000000,\"traceEvents\":[{\"ph\":\"i\",\"ts\":2318204236500.000},{\"ph\":\"X\",\"ts\":2318204236501.250,\"dur\":68.0}]}",
    );
}

#[test]
fn a_base_that_only_looks_like_one_is_not_believed() {
    let text = "{\"traceEvents\":[{\"ph\":\"i\",\"ts\":5}],\"other\":{\"baseTimeNanoseconds\": 77}}";
    check_rewrite(
        text,
        RewriteOptions { base_ns: Some(0), ..RewriteOptions::default() },
        |time| time + MICROSECOND,
        &text.replace(":5", ":6.000").replace("{\"trace", "{\n  \"baseTimeNanoseconds\": 0,\"trace"),
    );
    let two = "{\"traceEvents\":[{\"ph\":\"i\",\"ts\":5}],\"baseTimeNanoseconds\": 3000,\"other\":{\"baseTimeNanoseconds\": 77}}";
    let based = RewriteOptions { base_ns: Some(1000), ..RewriteOptions::default() };
    check_rewrite(two, based, |time| time, &two.replace(":5", ":7.000").replace("3000", "1000"));
    let lied = RewriteOptions { base_ns: Some(1000), input_base: InputBase::At(9), ..RewriteOptions::default() };
    check_rewrite(two, lied, |time| time, &two.replace(":5", ":7.000").replace("3000", "1000"));
}

#[test]
fn corrections_are_told_on_request() {
    let options = RewriteOptions { annotate: true, ..RewriteOptions::default() };
    check_rewrite(
        "{\"baseTimeNanoseconds\":0,\"traceEvents\":[{\"ts\":5,\"args\":{}},{\"ts\":6,\"args\": {\"a\":1}},{\"ts\":7},{\"pid\":1}]}",
        options,
        |time| time - 1500,
        "{\"baseTimeNanoseconds\":0,\"traceEvents\":[{\"ts\":4.999,\"args\":{\"timestamp_correction_ns\": -1.500}},{\"ts\":5.999,\"args\": {\"timestamp_correction_ns\": -1.500, \"a\":1}},{\"ts\":6.999, \"args\": {\"timestamp_correction_ns\": -1.500}},{\"pid\":1}]}",
    );
}

#[test]
fn fine_digits_are_kept_or_counted() {
    let text = "{\"baseTimeNanoseconds\":0,\"traceEvents\":[{\"ph\":\"X\",\"ts\":1.0000015,\"dur\":1.123456}]}";
    check_rewrite(text, RewriteOptions::default(), |time| time, text);
    let (out, stats) = rewritten(text.as_bytes(), RewriteOptions::default(), |time| time + 1).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), text.replace("1.0000015", "1.000002"));
    assert_eq!((stats.rounded, stats.changed, stats.events), (1, 1, 1));
}

#[test]
fn times_before_the_base_are_counted_and_metadata_stays_at_it() {
    let text = "{\"baseTimeNanoseconds\":1000000,\"traceEvents\":[{\"ph\":\"M\",\"ts\":0},{\"ph\":\"M\",\"ts\":0.5},{\"ph\":\"i\",\"ts\":1}]}";
    let (out, stats) = rewritten(text.as_bytes(), RewriteOptions::default(), |time| time - 3 * MICROSECOND).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        text.replace("\"ts\":0.5", "\"ts\":0.000").replace("\"ts\":1}", "\"ts\":-2.000}")
    );
    assert_eq!((stats.before_base, stats.metadata_clamped, stats.untimed), (1, 1, 1));
}

#[test]
fn strings_of_any_bytes_pass() {
    let text = b"{\"baseTimeNanoseconds\":0,\"x\":\"\xff\x01\",\"traceEvents\":[{\"name\":\"\xc3\x28\x00\n\\\"ts\\\":1\",\"ts\":1.000,\"\xfe\":\"\\\\\"}]}";
    let (out, _) = rewritten(text, RewriteOptions::default(), |time| time + MICROSECOND).unwrap();
    let at = memchr::memmem::find(text, b"1.000").unwrap();
    let expected = [&text[..at], &b"2.000"[..], &text[at + 5..]].concat();
    assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(&expected));
    assert_eq!(out, expected);
}

/// Every reader refuses `text` in one line that names this byte.
fn check_refused(name: &str, text: &[u8], offset: u64, problem: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join(name), folder.path().join("out.json"));
    std::fs::write(&input, text).unwrap();
    let mut identity = |time| time;
    let node = MergeInput { path: input.clone(), node: 0, name: String::new(), map: &mut identity };
    let errors = [
        read_facts(&input, &FactOptions::default()).map(|_| ()).unwrap_err(),
        rewrite(&input, &output, &RewriteOptions::default(), &mut |time| time).map(|_| ()).unwrap_err(),
        merge(&mut [node], &output, &MergeOptions::default()).map(|_| ()).unwrap_err(),
    ];
    for error in errors {
        let line = error.to_string();
        assert!(line.contains(problem) && line.contains(&format!("byte {offset}:")) && !line.contains('\n'), "{line}");
    }
    assert!(!output.exists());
}

#[test]
fn what_is_broken_is_refused_in_one_line_that_names_the_byte() {
    check_refused("a.json", b"{\"traceEvents\":[{\"ts\":\"5\"}]}", 22, "ts is not a number");
    check_refused("a.json", b"{\"traceEvents\":[{\"ts\":null}]}", 22, "ts is not a number");
    check_refused("a.json", b"{\"traceEvents\":[{\"ts\":1,\"dur\":[]}]}", 30, "dur is not a number");
    check_refused("a.json", b"{\"traceEvents\":[{\"ts\":1,\"ts\":2}]}", 29, "twice");
    check_refused("a.json", b"{\"baseTimeNanoseconds\":1.5,\"traceEvents\":[]}", 26, "whole number");
    check_refused("a.json", b"{\"traceEvents\":[{\"ts\":1},", 25, "ends inside traceEvents");
    check_refused(
        "a.json",
        &[b"{\"traceEvents\":[{\"args\":".to_vec(), vec![b'['; 10_000]].concat(),
        24 + u64::from(scan::DEPTH_MAX),
        "too deep",
    );
    check_refused("a.json", &vec![b' '; document::BUFFER_MAX + 1], 0, "no end within");
    check_refused("a.pb", b"\x0a\x10plane", 1, "not a JSON object");
    let whole = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, b"{\"traceEvents\":[{\"ts\":1}]}").unwrap();
        encoder.finish().unwrap()
    };
    check_refused("a.json.gz", &whole[..whole.len() - 9], 26, "gzip data ends early");
    let mut wrong = whole;
    let checksum = wrong.len() - 6;
    wrong[checksum] ^= 1;
    check_refused("a.json.gz", &wrong, 26, "gzip data ends early or is damaged");
}

/// The facts of all nodes of a set.
fn facts(folder: &Path) -> Vec<KinetoFacts> {
    traces(folder).iter().map(|path| read_kineto(path, &FactOptions::default()).unwrap()).collect()
}

#[test]
fn dialects_and_identities_of_real_traces_are_told() {
    let Some(folder) = data() else { return };
    for (set, dialect, rank, world, host) in [
        ("x_real_2of128_abs_us", Dialect::Microseconds, Some(0), Some(128), None),
        ("x_real_abs_ns", Dialect::Nanoseconds, Some(0), None, None),
        ("x_real_mi300_8gpu_rank0", Dialect::Based, Some(0), Some(8), None),
        ("x_real_gloo_300ranks", Dialect::Based, Some(34), Some(300), None),
        ("x_real_mtia", Dialect::Based, None, None, Some("twshared38393.01.cco6.facebook.com")),
        ("b_4node_offset_drift", Dialect::Based, Some(0), Some(4), Some("node0")),
    ] {
        let found = &facts(&folder.join(set))[0];
        let identity = &found.facts.identity;
        assert_eq!((found.dialect, identity.rank), (dialect, rank), "{set}");
        assert!(world.is_none_or(|world| identity.world_size == Some(world)), "{set}: {identity:?}");
        assert!(host.is_none_or(|host| identity.hostname.as_deref() == Some(host)), "{set}: {identity:?}");
    }
    let base = |set: &str| facts(&folder.join(set))[0].base_ns;
    assert_eq!(base("x_real_mi250"), Some(1_735_632_360_000_000_000));
    assert_eq!(base("x_real_2of128_abs_us"), None);
}

#[test]
fn collectives_are_taken_from_one_level() {
    let Some(folder) = data() else { return };
    let counts = |facts: &KinetoFacts| {
        let mut counts = BTreeMap::new();
        for event in &facts.facts.collectives {
            *counts.entry(event.name.clone()).or_insert(0) += 1;
        }
        counts
    };
    let gloo = facts(&folder.join("b_4node_offset_drift"));
    for (rank, found) in gloo.iter().enumerate() {
        let found = counts(found);
        // Ranks 0 and 2 have a group of their own beside the world's.
        let all_reduce = if rank % 2 == 0 { 20 } else { 10 };
        let all: Vec<_> = found.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        let rest = [("barrier", 3), ("broadcast", 10), ("recv", 10), ("reduce", 10), ("send", 10)];
        assert_eq!(all, [&[("all_gather", 10), ("all_reduce", all_reduce), ("all_to_all", 10)][..], &rest].concat());
    }
    let nccl = &facts(&folder.join("x_real_nccl_2gpu_rank0"))[0].facts;
    assert_eq!(nccl.collectives.len(), 21, "one per kernel");
    let named =
        nccl.collectives.iter().filter(|event| event.name == "allreduce" && event.kind == CollectiveKind::AllToAll);
    assert_eq!(named.count(), 15);
    let enqueued = &facts(&folder.join("x_real_abs_ns"))[0].facts;
    assert!(
        enqueued.collectives.is_empty() && enqueued.notes.iter().any(|note| note.contains("only enqueue")),
        "{:?}",
        enqueued.notes
    );
}

#[test]
fn gloo_peers_are_told_where_the_groups_agree() {
    let Some(folder) = data() else { return };
    let all = facts(&folder.join("b_4node_offset_drift"));
    let ends = |rank: usize, name: &str| {
        let found = all[rank].facts.collectives.iter().filter(|event| event.name == name);
        found.map(|event| (event.kind.clone(), event.instance.clone())).collect::<Vec<_>>()
    };
    let edge = |source, destination| CollectiveKind::PointToPoint { source, destination };
    for (index, ((kind, sent), (_, received))) in ends(3, "send").into_iter().zip(ends(0, "recv")).enumerate() {
        assert_eq!(kind, edge(Some(3), Some(0)));
        assert_eq!(sent, received, "a send and its receive recognise each other");
        let Instance::Order { signature, .. } = sent else { panic!("{sent:?}") };
        assert!(signature.ends_with(&format!(" tag {index}")), "{signature}");
    }
    assert!(
        ends(0, "send").iter().all(|(kind, _)| *kind == edge(Some(0), None)),
        "1 is rank 1 of one group and rank 2 of the other"
    );
}

#[test]
fn kernels_tell_group_and_sequence() {
    let kernel = |seq: &str, ranks: &str| {
        format!(
            "{{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"ncclDevKernel_AllReduce(x)\",\"pid\":0,\"tid\":7,\"ts\":1,\"dur\":2,\"args\":{{\"Collective name\":\"allreduce\",\"dtype\":\"Float\",\"In msg nelems\":8,\"Out msg nelems\":8,\"Group size\":2,\"Process Group Name\":\"5\",\"Process Group Ranks\":\"{ranks}\"{seq}}}}}"
        )
    };
    let text = format!(
        "{{\"traceEvents\":[{},{},{}],\"baseTimeNanoseconds\":5000}}",
        kernel(",\"Seq\":9", "[0, 1]"),
        kernel("", "[0, 1]"),
        "{\"ph\":\"X\",\"cat\":\"gpu_user_annotation\",\"name\":\"nccl:all_reduce\",\"ts\":1,\"dur\":2}"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    std::fs::write(&path, text).unwrap();
    let found = read_facts(&path, &FactOptions::default()).unwrap();
    let group = crate::model::GroupKey { name: "5".into(), ranks: Some(vec![0, 1]), size: Some(2) };
    let instances: Vec<_> = found.collectives.iter().map(|event| event.instance.clone()).collect();
    let ordered = Instance::Order { group: Some(group.clone()), signature: "allreduce Float 8".into() };
    assert_eq!(instances, [Instance::Sequence { group: group.clone(), sequence: 9 }, ordered]);
    assert_eq!((found.collectives[0].start_ps, found.collectives[0].end_ps), (6_000_000, 8_000_000));
    assert_eq!((found.groups, found.events), (vec![group], 3));
}

#[test]
fn markers_are_read_by_name_and_by_pattern() {
    let event = |category: &str, name: &str| {
        format!("{{\"ph\":\"X\",\"cat\":\"{category}\",\"name\":\"{name}\",\"ts\":1,\"dur\":2}}")
    };
    let names = ["probe_sync.clock#41", "clkmark#7#42", "tick at 43 ns", "probe_sync.clock#x", "other"];
    let mut events: Vec<_> = names.iter().map(|name| event("user_annotation", name)).collect();
    events.push(event("gpu_user_annotation", "probe_sync.clock#44"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    std::fs::write(&path, format!("{{\"traceEvents\":[{}]}}", events.join(","))).unwrap();
    let found = |pattern: Option<&str>| {
        let options = FactOptions { markers: pattern.map(|pattern| regex::Regex::new(pattern).unwrap()) };
        let facts = read_facts(&path, &options).unwrap();
        assert!(
            facts.notes.iter().any(|note| note.contains("1 clock markers carry no readable time")),
            "{:?}",
            facts.notes
        );
        facts.pairs.iter().map(|pair| pair.system_ns).collect::<Vec<_>>()
    };
    assert_eq!(found(None), [41, 42]);
    assert_eq!(found(Some(r"tick at (?<system_ns>\d+) ns")), [41, 42, 43]);
}

/// The exact offsets of a set: per node, the node's time and its offset to node 0.
fn exact_offsets(folder: &Path) -> BTreeMap<usize, Vec<(i128, f64)>> {
    let mut offsets: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for line in std::fs::read_to_string(folder.join("offsets.csv")).unwrap().lines().skip(1) {
        let fields: Vec<_> = line.split(',').collect();
        let time: i128 = fields[1].parse().unwrap();
        offsets.entry(fields[0].parse().unwrap()).or_default().push((time * 1000, fields[2].parse().unwrap()));
    }
    offsets
}

/// A node's time on node 0's clock, by straight lines between the exact offsets.
fn corrected(series: &[(i128, f64)], time: Picoseconds) -> Picoseconds {
    let after = series.partition_point(|(at, _)| *at <= time).clamp(1, series.len() - 1);
    let ((x0, y0), (x1, y1)) = (series[after - 1], series[after]);
    let offset_ns = y0 + (y1 - y0) * ((time - x0) as f64 / (x1 - x0) as f64);
    time - (offset_ns * 1000.0).round() as i128
}

/// Medians over the markers of each rewritten file: the event's start minus the true time in its name, µs.
fn marker_medians(files: &[PathBuf]) -> Vec<f64> {
    let median = |path: &PathBuf| {
        let document = json(&contents(path));
        let base: i128 = document["baseTimeNanoseconds"].as_i64().unwrap().into();
        let mut delays = Vec::new();
        for event in document["traceEvents"].as_array().unwrap() {
            if let Some(rest) = event["name"].as_str().and_then(|name| name.strip_prefix("clkmark#")) {
                let truth: i128 = rest.split('#').next().unwrap().parse().unwrap();
                // f64 holds the relative times of these sets to a nanosecond.
                delays.push((base - truth) as f64 / 1000.0 + event["ts"].as_f64().unwrap());
            }
        }
        delays.sort_by(f64::total_cmp);
        delays[delays.len() / 2]
    };
    files.iter().map(median).collect()
}

#[test]
fn markers_of_all_nodes_agree_after_mapping() {
    let Some(folder) = data() else { return };
    for set in ["a_2node_noskew", "b_4node_offset_drift", "c_2node_stack"] {
        let folder = folder.join(set);
        let (offsets, target) = (exact_offsets(&folder), tempfile::tempdir().unwrap());
        let mut files = Vec::new();
        for (node, input) in traces(&folder).iter().enumerate() {
            let facts = read_kineto(input, &FactOptions::default()).unwrap();
            assert!(!facts.facts.pairs.is_empty());
            let output = target.path().join(format!("{node}.json"));
            let options =
                RewriteOptions { base_ns: facts.base_ns, input_base: facts.input_base(), ..RewriteOptions::default() };
            rewrite(input, &output, &options, &mut |time| corrected(&offsets[&node], time)).unwrap();
            files.push(output);
        }
        let medians = marker_medians(&files);
        let spread = medians.iter().fold(f64::MIN, |a, b| a.max(*b)) - medians.iter().fold(f64::MAX, |a, b| a.min(*b));
        println!("{set}: medians {medians:?} us, spread {spread:.1}");
        assert!(spread < 10.0, "{set}: {medians:?}");
    }
}

#[test]
fn merged_nodes_share_no_number_and_keep_their_links() {
    let Some(folder) = data() else { return };
    let (set, target) = (folder.join("b_4node_offset_drift"), tempfile::tempdir().unwrap());
    let offsets = exact_offsets(&set);
    let output = target.path().join("all.json.gz");
    let inputs = traces(&set);
    let mut maps: Vec<_> = (0..inputs.len())
        .map(|node| {
            let series = &offsets[&node];
            move |time| corrected(series, time)
        })
        .collect();
    let mut nodes: Vec<_> = maps
        .iter_mut()
        .enumerate()
        .map(|(node, map)| MergeInput {
            path: inputs[node].clone(),
            node: node as u32,
            name: format!("host{node}"),
            map,
        })
        .collect();
    let options =
        MergeOptions { metadata: vec![("method".into(), "exact \"offsets\"".into())], ..MergeOptions::default() };
    let stats = merge(&mut nodes, &output, &options).unwrap();
    let merged = json(&contents(&output));
    assert_eq!(merged["probe_sync"]["method"], "exact \"offsets\"");
    assert_eq!(merged["nodes"][2]["distributedInfo"]["rank"], 2);
    assert_eq!(stats.headers_left_out, 0);
    let events = merged["traceEvents"].as_array().unwrap();
    let (mut owners, mut names, mut threads) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
    for event in events {
        let (pid, tid) = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let node = (pid - 1_000_000) / 1_000_000;
        assert!(pid < 1 << 32 && tid < 1 << 32 && event["ts"].as_f64().unwrap() >= 0.0);
        if event["ph"] != "M" {
            assert_eq!(*threads.entry(tid).or_insert(pid), pid, "a thread belongs to one process");
        }
        if let Some(id) = event["id"].as_u64().or(event["args"]["External id"].as_u64()) {
            assert_eq!(*owners.entry((event["id"].is_null(), id)).or_insert(node), node, "an id belongs to one node");
        }
        if event["name"] == "process_name" {
            names.insert(event["args"]["name"].as_str().unwrap().to_owned());
        }
    }
    assert!(names.contains("node1 host1: python (pid 30592)") && names.contains("node3 host3: Spans"), "{names:?}");
    for (node, input) in inputs.iter().enumerate() {
        // Flows still begin and end on the same slices.
        let original = json(&contents(input));
        let flow = |events: &[Value], shift: u64| -> Vec<(String, u64, String)> {
            let flows = events.iter().filter(|event| !event["id"].is_null());
            flows
                .map(|event| (event["ph"].to_string(), event["id"].as_u64().unwrap() - shift, event["cat"].to_string()))
                .collect()
        };
        let mine: Vec<_> = events
            .iter()
            .filter(|event| event["pid"].as_u64().unwrap() / 1_000_000 == node as u64 + 1)
            .cloned()
            .collect();
        assert_eq!(flow(&mine, node as u64 * stats.id_stride), flow(original["traceEvents"].as_array().unwrap(), 0));
        let lasting = |events: &[Value]| events.iter().filter(|event| event["ph"] == "X").count();
        assert_eq!(lasting(&mine), lasting(original["traceEvents"].as_array().unwrap()));
    }
}

#[test]
fn odd_numbers_are_merged_too() {
    let folder = tempfile::tempdir().unwrap();
    let text = "{\"traceEvents\":[{\"ph\":\"X\",\"ts\":5,\"name\":\"no pid\"},{\"ph\":\"s\",\"id\":\"0x1f\",\"pid\":\"\",\"tid\":-1,\"ts\":6},{\"ph\":\"s\",\"id\":\"a!\",\"pid\":7,\"tid\":7,\"ts\":7,\"args\":{\"correlation\":12,\"External id\":-1}}],\"name\":\"x\",\"baseTimeNanoseconds\":9000}";
    let input = folder.path().join("in.json");
    std::fs::write(&input, text).unwrap();
    let (mut one, mut two) = (|time| time, |time: Picoseconds| time + MICROSECOND);
    let mut nodes = [
        MergeInput { path: input.clone(), node: 4, name: "a\"b".into(), map: &mut one },
        MergeInput { path: input.clone(), node: 9, name: String::new(), map: &mut two },
    ];
    let output = folder.path().join("out.json");
    let stats = merge(&mut nodes, &output, &MergeOptions { base_ns: Some(9000), ..MergeOptions::default() }).unwrap();
    let merged = json(&contents(&output));
    assert_eq!((stats.id_stride, stats.base_ns), (100, 9000));
    assert_eq!(
        (&merged["nodes"][0]["inputName"], &merged["nodes"][0]["inputBaseTimeNanoseconds"]),
        (&"x".into(), &9000.into())
    );
    let events: Vec<_> = merged["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] != "M").collect();
    let fields = |key: &str| events.iter().map(|event| event[key].to_string()).collect::<Vec<_>>();
    assert_eq!(fields("ts"), ["5", "6", "7", "6.0", "7.0", "8.0"]);
    assert_eq!(fields("id"), ["null", "\"0x1f\"", "\"1:a!\"", "null", "\"0x83\"", "\"2:a!\""]);
    assert_eq!(fields("pid"), ["1000000", "1000001", "1000003", "2000000", "2000001", "2000003"]);
    assert_eq!((&events[5]["args"]["correlation"], &events[5]["args"]["External id"]), (&112.into(), &(-1).into()));
    let names: BTreeSet<_> = merged["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["name"] == "process_name")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names.into_iter().collect::<Vec<_>>(),
        ["node4 a\"b: instants", "node4 a\"b: pid 7", "node9: instants", "node9: pid 7"]
    );
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(proptest::sample::select(&b"{}[]\",:\\ \n1.5-e"[..]), 0..120), cut in 0_usize..140) {
        let head = b"{\"baseTimeNanoseconds\":5,\"traceEvents\":[{\"ph\":\"X\",\"ts\":1.5,\"dur\":2,\"args\":{\"a\":1}},";
        let text = [&head[..cut.min(head.len())], &bytes].concat();
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in.json"), folder.path().join("out.json"));
        std::fs::write(&input, &text).unwrap();
        let _ = read_facts(&input, &FactOptions::default());
        let _ = rewrite(&input, &output, &RewriteOptions::default(), &mut |time| time + 1000);
        let mut identity = |time| time;
        let node = MergeInput { path: input, node: 0, name: String::new(), map: &mut identity };
        let _ = merge(&mut [node], &output, &MergeOptions::default());
    }
}
