//! Events whose times cannot be believed, categories of earlier versions, numbers in quotes, values
//! that are no JSON: each costs itself and no more.

use super::*;
use crate::WantedArgs;
use crate::chunk::{Chunk, TrackKind, Value as Argument};

/// Three events of one process in 2026, and one more.
fn with(odd: &str) -> String {
    let event = |name: &str, ts: u32| {
        format!(r#"{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 9, "tid": 9, "ts": {ts}.5, "dur": 2.25}}"#)
    };
    let good = [event("a", 4_000_000_100), event("b", 4_000_000_103), event("c", 4_000_000_106)];
    format!(
        "{{\"baseTimeNanoseconds\": 1795000000000000000,\n\"traceEvents\": [\n{odd}{}{}\n]}}",
        if odd.is_empty() { "" } else { ",\n" },
        good.join(",\n")
    )
}

fn events(document: &Value) -> Vec<Value> {
    document["traceEvents"].as_array().expect("events").clone()
}

/// All commands omit the event and keep the others; `note` is the message.
fn check_left_out(odd: &str, note: &str) {
    let folder = tempfile::tempdir().unwrap();
    let [good, input, output] = ["good.json", "in.json", "out.json"].map(|name| folder.path().join(name));
    std::fs::write(&good, with("")).unwrap();
    std::fs::write(&input, with(odd)).unwrap();
    let (expected, facts) =
        (read_facts(&good, &FactOptions::default()).unwrap(), read_facts(&input, &FactOptions::default()).unwrap());
    assert_eq!((facts.events, facts.span), (expected.events, expected.span), "{odd}");
    assert!(
        facts.warnings.iter().any(|said| said.contains(note) && said.contains("byte")),
        "{odd}: {:?}",
        facts.warnings
    );
    let reach = facts.reach;
    let mut map = |time: Picoseconds| time + MICROSECOND;
    let stats = rewrite(&input, &output, &RewriteOptions { reach, ..RewriteOptions::default() }, &mut map).unwrap();
    assert_eq!((stats.events, stats.left_out), (3, 1), "{odd}");
    let times: Vec<_> = events(&json(&contents(&output))).iter().map(|event| event["ts"].to_string()).collect();
    assert_eq!(times, ["4000000101.5", "4000000104.5", "4000000107.5"], "{odd}");
    let node = MergeInput {
        path: input.clone(),
        part: 0,
        name: "n".into(),
        map: &mut map,
        metadata: Vec::new(),
        reach,
        known: None,
    };
    let stats = merge(&mut [node], &output, &MergeOptions::default()).unwrap();
    assert_eq!((stats.inputs[0].events, stats.inputs[0].left_out), (3, 1), "{odd}");
    assert_eq!(stats.base_ns, 1_790_857_026_000_000_000, "{odd}: the quarter of the events");
    let read = chunks_of(&input, reach);
    assert_eq!(read.0.slices.start_ns.len(), 3, "{odd}");
    assert_eq!(read.1.left_out, 1, "{odd}");
}

fn chunks_of(path: &Path, reach: Option<crate::model::Reach>) -> (Chunk, ChunkStats) {
    let mut all = Chunk::default();
    let options = ChunkOptions { args: WantedArgs::All, reach, ..ChunkOptions::default() };
    let stats = Kineto.read_chunks(path, &options, &mut |time| time, &mut |chunk| {
        all = chunk.clone();
        Ok(())
    });
    (all, stats.expect("read"))
}

fn read_text(text: &str) -> Chunk {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.json");
    std::fs::write(&path, text).unwrap();
    chunks_of(&path, None).0
}

#[test]
fn a_base_after_absolute_times_is_taken_from_the_facts() {
    // Times of 2026 in µs, which by themselves suggest that the file has no base.
    let event = r#"{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 0, "tid": 7, "ts": 1795000000000000, "dur": 2}"#;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.json");
    std::fs::write(&path, format!("{{\"traceEvents\": [{event}], \"baseTimeNanoseconds\": 1000}}")).unwrap();
    let facts = read_facts(&path, &FactOptions::default()).unwrap();
    assert_eq!(facts.base_ns, Some(1000));
    let options = ChunkOptions { base_ns: facts.base_ns, ..ChunkOptions::default() };
    let mut starts = Vec::new();
    let read = Kineto.read_chunks(&path, &options, &mut |time| time, &mut |chunk| {
        starts.extend_from_slice(&chunk.slices.start_ns);
        Ok(())
    });
    read.expect("read");
    assert_eq!(starts, [1_795_000_000_000_001_000]);
    assert_eq!(facts.span.map(|(first, _)| first / 1000), Some(i128::from(starts[0])));
}

#[test]
fn an_event_with_an_odd_time_costs_itself() {
    let event = |times: &str| format!(r#"{{"ph": "X", "cat": "kernel", "name": "nccl", "pid": 0, "tid": 7, {times}}}"#);
    check_left_out(&event(r#""ts": 0.0, "dur": 0.0"#), "1 at time 0");
    check_left_out(&event(r#""ts": -1"#), "1 at time 0");
    check_left_out(&event(r#""ts": 4000000100.5, "dur": -3"#), "1 with a negative length");
    check_left_out(&event(r#""ts": 4000000100.5, "dur": -3.0"#), "1 with a negative length");
    check_left_out(&event(r#""ts": 4000000100.5, "dur": 18446744073709551.613"#), "days or decades away");
    check_left_out(&event(r#""ts": 4000000100.5, "dur": 18446744073709551613"#), "1 with an unreadable time or length");
    check_left_out(&event(r#""ts": -1795000000000000.5, "dur": 5"#), "days or decades away");
    check_left_out(&event(r#""ts": 900000000000000"#), "days or decades away");
    for text in ["null", "NaN", "-Infinity", "\"never\"", "[]", "true"] {
        check_left_out(&event(&format!(r#""ts": {text}, "dur": 2"#)), "1 with an unreadable time or length");
        check_left_out(&event(&format!(r#""ts": 4000000100.5, "dur": {text}"#)), "1 with an unreadable time or length");
    }
    // Moments and ends of flows, too.
    check_left_out(r#"{"ph": "i", "pid": 9, "tid": 9, "ts": -8000000000000000, "name": "m"}"#, "days or decades away");
    check_left_out(r#"{"ph": "s", "id": 1, "pid": 9, "tid": 9, "ts": 0, "name": "f"}"#, "1 at time 0");
}

/// −3 µs in 32 bits without a sign are 71.6 minutes, which a hang can last; but no profiler sees an
/// end after its own.
#[test]
fn a_length_that_wrapped_around_below_a_day_is_left_out_where_the_recording_proves_it() {
    let check = |stopped: &str, dur: &str, left_out: u64| {
        let end = if stopped.is_empty() {
            String::new()
        } else {
            format!(
                r#"{{"ph": "i", "s": "g", "cat": "", "name": "Record Window End", "pid": "Traces", "tid": "x", "ts": {stopped}}},"#
            )
        };
        let text = with(&format!(
            r#"{end}{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 4000000101.5, "dur": {dur}}}"#
        ));
        let folder = tempfile::tempdir().unwrap();
        let [input, output] = ["in.json", "out.json"].map(|name| folder.path().join(name));
        std::fs::write(&input, text).unwrap();
        let facts = read_facts(&input, &FactOptions::default()).unwrap();
        let reach = facts.reach;
        let options = RewriteOptions { reach, ..RewriteOptions::default() };
        let stats = rewrite(&input, &output, &options, &mut |time| time).unwrap();
        assert_eq!((stats.left_out, chunks_of(&input, reach).1.left_out), (left_out, left_out), "{stopped} {dur}");
        assert_eq!(facts.omitted.len() as u64, left_out, "{stopped} {dur}");
        let (mut map, reach) = (|time| time, facts.reach);
        let node = MergeInput {
            path: input,
            part: 0,
            name: "n".into(),
            map: &mut map,
            metadata: Vec::new(),
            reach,
            known: None,
        };
        let merged = merge(&mut [node], &output, &MergeOptions::default()).unwrap();
        assert_eq!(Some(merged.base_ns), facts.span.map(|(first, _)| base::quarter_before(first)), "{stopped} {dur}");
        let warned = facts.warnings.iter().any(|said| said.contains("wrapped around to 71.6 minutes"));
        let noted = facts.notes.iter().any(|said| said.contains("this is not certain"));
        (warned, noted)
    };
    const WRAPPED: &str = "4294967293";
    assert_eq!(check("4000000200", WRAPPED, 1), (true, false));
    // Nothing says when the recording ended, or it went on for so long: a hang.
    assert_eq!(check("", WRAPPED, 0), (false, true));
    assert_eq!(check("8294967500", WRAPPED, 0), (false, true));
    // Another length is none that wrapped around.
    assert_eq!(check("4000000200", "4200000000", 0), (false, false));
}

#[test]
fn a_number_in_quotes_is_a_time() {
    let text = with(r#"{"ph": "X", "name": "q", "pid": 9, "tid": 9, "ts": "4000000101.5", "dur": "1.5"}"#);
    let (out, stats) = rewritten(text.as_bytes(), RewriteOptions::default(), |time| time + MICROSECOND).unwrap();
    assert_eq!(stats.events, 4);
    assert_eq!(events(&json(&out))[0]["ts"].to_string(), "4000000102.5");
    assert_eq!(read_text(&text).slices.start_ns[0], 1_795_004_000_000_101_500);
}

#[test]
fn the_events_that_stay_are_parted_by_commas() {
    let odd = r#"{"ph":"X","ts":1,"dur":-1}"#;
    let good = r#"{"ph":"X","ts":5,"dur":1}"#;
    for (text, expected) in [
        (format!("{{\"traceEvents\":[{odd}]}}"), "{\"traceEvents\":[]}".to_owned()),
        (format!("{{\"traceEvents\":[{odd} , {good},{good}]}}"), format!("{{\"traceEvents\":[ {good},{good}]}}")),
        (format!("{{\"traceEvents\":[{good},{odd},{good}]}}"), format!("{{\"traceEvents\":[{good},{good}]}}")),
        (format!("{{\"traceEvents\":[{good},{odd}\n]}}"), format!("{{\"traceEvents\":[{good}\n]}}")),
    ] {
        let (out, _) = rewritten(text.as_bytes(), RewriteOptions::default(), |time| time).unwrap();
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}

#[test]
fn metadata_stays_whatever_its_time() {
    for ts in ["0", "\"\"", "null", "900000000000000"] {
        let text = with(&format!(
            r#"{{"ph": "M", "name": "process_name", "pid": 9, "ts": {ts}, "args": {{"name": "python"}}}}"#
        ));
        let (out, stats) = rewritten(text.as_bytes(), RewriteOptions::default(), |time| time).unwrap();
        assert_eq!((out, stats.left_out), (text.into_bytes(), 0), "{ts}");
    }
}

#[test]
fn categories_of_earlier_versions_are_read_as_those_of_today() {
    let kernel = |category: &str| {
        let args =
            r#""Collective name": "allreduce", "Process Group Name": "0", "Seq": 1, "correlation": 4, "device": 0"#;
        let launch = r#"{"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 1, "dur": 2, "args": {"correlation": 4}}"#;
        format!(
            r#"{{"traceEvents": [{launch}, {{"ph": "X", "cat": "{category}", "name": "ncclKernel_AllReduce", "pid": 0, "tid": 7, "ts": 5, "dur": 2, "args": {{{args}}}}}]}}"#
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.json");
    for category in ["kernel", "Kernel", "KERNEL"] {
        std::fs::write(&path, kernel(category)).unwrap();
        assert_eq!(read_facts(&path, &FactOptions::default()).unwrap().collectives.len(), 1, "{category}");
        let chunk = read_text(&kernel(category));
        let categories: Vec<_> = chunk.slices.category.iter().map(|id| chunk.strings.text(*id)).collect();
        assert_eq!(categories, ["cuda_runtime", "kernel"], "{category}");
    }
}

#[test]
fn whole_numbers_keep_their_digits() {
    let text = with(
        r#"{"ph": "X", "name": "x", "pid": 9, "tid": 9, "ts": 4000000099, "args": {"a": 17093776592125785438, "b": -9223372036854775808, "c": 123456789012345678901234567890, "d": [18446744073709551615, {"e": -9223372036854775809}], "f": 1.5}}"#,
    );
    let chunk = read_text(&text);
    let range = chunk.slices.args[0];
    let shown = |index: u32| match chunk.args.value[index as usize] {
        Argument::Text(id) | Argument::Json(id) => chunk.strings.text(id).to_owned(),
        other => format!("{other:?}"),
    };
    let found: Vec<_> = (range.first..range.first + range.count).map(shown).collect();
    let expected = [
        "Unsigned(17093776592125785438)",
        "Integer(-9223372036854775808)",
        "123456789012345678901234567890",
        r#"[18446744073709551615, {"e": -9223372036854775809}]"#,
        "Float(1.5)",
    ];
    assert_eq!(found, expected);
}

/// The tracks of a text: what is above each row, and its name.
fn rows(text: &str) -> Vec<(String, String)> {
    let chunk = read_text(text);
    let name = |at: u32| {
        let track = &chunk.tracks[at as usize];
        match track.kind {
            TrackKind::Process(_) => format!("process {}", track.name),
            TrackKind::Agent => format!("device {}", track.name),
            _ => track.name.clone(),
        }
    };
    let row = |row: usize| {
        let track = chunk.slices.track[row].0;
        let parent = chunk.tracks[track as usize].parent.expect("a row is below something").0;
        (name(parent), format!("{} {}", chunk.strings.text(chunk.slices.name[row]), name(track)))
    };
    (0..chunk.slices.track.len()).map(row).collect()
}

#[test]
fn the_category_of_a_row_decides_where_it_is() {
    let label = |pid: &str, label: &str| {
        format!(r#"{{"ph": "M", "name": "process_labels", "pid": {pid}, "tid": 0, "args": {{"labels": "{label}"}}}}"#)
    };
    let event = |name: &str, category: &str, pid: &str, tid: &str| {
        format!(
            r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid}, "ts": 5, "dur": 1, "args": {{"device": 0}}}}"#
        )
    };
    let check = |events: &[String], expected: &[(&str, &str)]| {
        let text = format!("{{\"traceEvents\": [{}]}}", events.join(","));
        let found = rows(&text);
        let found: Vec<_> = found.iter().map(|(above, row)| (above.as_str(), row.as_str())).collect();
        assert_eq!(found, expected, "{text}");
    };
    let all = [
        event("op", "cpu_op", "42", "42"),
        event("frame", "python_function", "0", "0"),
        event("k", "kernel", "0", "0"),
        event("note", "gpu_user_annotation", "0", "0"),
        event("other", "my own", "0", "0"),
        event("span", "Trace", "\"Spans\"", "\"PyTorch Profiler\""),
    ];
    let labels = [label("42", "CPU"), label("0", "GPU 0")];
    let expected = [
        ("process CPU 42", "op thread 42"),
        ("process CPU 42", "frame thread 0"),
        ("device GPU 0", "k stream 0"),
        ("device GPU 0", "note stream 0"),
        ("device GPU 0", "other stream 0"),
        ("process CPU 42", "span thread PyTorch Profiler"),
    ]
    .map(|(above, row)| (if above == "process CPU 42" { "process " } else { above }, row));
    check(&[&all[..], &labels].concat(), &expected);
    // No process is labelled as that of the host, or none at all.
    check(&[&all[..], &labels[1..]].concat(), &expected);
    check(&all, &expected);
    // A row of which the first event names no side is that of the first that does.
    check(
        &[event("other", "my own", "0", "7"), event("k", "kernel", "0", "7"), event("op", "cpu_op", "42", "42")],
        &[("device GPU 0", "other stream 7"), ("device GPU 0", "k stream 7"), ("process ", "op thread 42")],
    );
    // Kernels on the process that launched them state their device.
    check(
        &[event("op", "cpu_op", "42", "42"), event("k", "kernel", "42", "7").replace("device\": 0", "device\": 3")],
        &[("process ", "op thread 42"), ("device GPU 3", "k stream 7")],
    );
}

#[test]
fn a_thread_is_one_with_and_without_quotes() {
    let text = r#"{"traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 7, "tid": "25738", "ts": 1, "dur": 5},
        {"ph": "s", "cat": "async", "name": "f", "id": 3, "pid": "7", "tid": 25738, "ts": 1},
        {"ph": "f", "cat": "async", "name": "f", "id": "3", "pid": 7, "tid": 25738, "ts": 4},
        {"ph": "X", "cat": "cpu_op", "name": "b", "pid": 7, "tid": 25738, "ts": 4, "dur": 1}]}"#;
    let chunk = read_text(text);
    assert_eq!(chunk.slices.track, [chunk.flows.track[0]; 2]);
    assert_eq!(chunk.flows.flow[0].id, chunk.flows.flow[1].id);
    let folder = tempfile::tempdir().unwrap();
    let [input, output] = ["in.json", "out.json"].map(|name| folder.path().join(name));
    std::fs::write(&input, text).unwrap();
    let mut map = |time: Picoseconds| time;
    let node = |part, map| MergeInput {
        path: input.clone(),
        part,
        name: "n".into(),
        map,
        metadata: Vec::new(),
        reach: None,
        known: None,
    };
    let mut other = |time: Picoseconds| time;
    merge(&mut [node(0, &mut map), node(1, &mut other)], &output, &MergeOptions::default()).unwrap();
    let merged = events(&json(&contents(&output)));
    let of = |node: u64| merged.iter().filter(move |event| event["pid"].as_u64().unwrap() / 1_000_000 == node + 1);
    for node in 0..2 {
        let tids: BTreeSet<_> =
            of(node).filter(|event| event["ph"] != "M").map(|event| event["tid"].as_u64()).collect();
        assert_eq!(tids.len(), 1, "{tids:?}");
        let ids: BTreeSet<_> =
            of(node).filter_map(|event| event.get("id")).map(|id| id.to_string().replace('"', "")).collect();
        assert_eq!(ids.len(), 1, "{ids:?}");
    }
}

#[test]
fn values_that_are_no_json_are_counted_and_repaired() {
    let odd = "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"a\x01b\u{ff}\", \"pid\": 9, \"tid\": 9, \"ts\": 4000000100, \"dur\": 1, \"args\": {\"est. achieved occupancy %\": NaN, \"l\": [inf, {\"deep\": -inf}]}}";
    let mut text = with(&odd.replace('\u{ff}', "?")).into_bytes();
    let at = text.iter().position(|byte| *byte == b'?').unwrap();
    text[at] = 0xff;
    let at = text.iter().position(|byte| *byte == b'\n').unwrap();
    text.splice(at..at, b"\n\"deviceProperties\": [{\"x\": nan}],".iter().copied());
    let (out, stats) = rewritten(&text, RewriteOptions::default(), |time| time).unwrap();
    assert_eq!(out, text, "passed on as it is");
    let said = "not valid JSON: 4 values such as NaN, 1 control characters in strings, 1 bytes that are not UTF-8";
    assert!(stats.notes.iter().any(|note| note.starts_with(said) && note.contains("--repair")), "{:?}", stats.notes);
    let repair = RewriteOptions { repair: true, ..RewriteOptions::default() };
    let (out, stats) = rewritten(&text, repair, |time| time).unwrap();
    assert!(stats.notes.iter().any(|note| note.starts_with(said) && note.ends_with(": repaired")), "{:?}", stats.notes);
    let repaired = json(&out);
    assert_eq!(repaired["deviceProperties"][0]["x"], "nan");
    let event = &events(&repaired)[0];
    assert_eq!(event["name"], "a\u{1}b\u{fffd}");
    assert_eq!(event["args"].to_string(), r#"{"est. achieved occupancy %":"NaN","l":["inf",{"deep":"-inf"}]}"#);
    let folder = tempfile::tempdir().unwrap();
    let [input, output] = ["in.json", "out.json"].map(|name| folder.path().join(name));
    std::fs::write(&input, &text).unwrap();
    let mut map = |time: Picoseconds| time;
    let node = MergeInput {
        path: input.clone(),
        part: 0,
        name: "n".into(),
        map: &mut map,
        metadata: Vec::new(),
        reach: None,
        known: None,
    };
    let stats = merge(&mut [node], &output, &MergeOptions { repair: true, ..MergeOptions::default() }).unwrap();
    assert!(stats.inputs[0].notes.iter().any(|note| note.starts_with(said)), "{:?}", stats.inputs[0].notes);
    let merged = json(&contents(&output));
    assert_eq!(merged["nodes"][0]["deviceProperties"][0]["x"], "nan");
    assert_eq!(events(&merged)[0]["name"], "a\u{1}b\u{fffd}");
    // Arguments of converted events are valid JSON as well.
    let chunk = chunks_of(&input, None).0;
    let lists: Vec<_> = chunk
        .args
        .value
        .iter()
        .filter_map(|value| if let Argument::Json(id) = value { Some(chunk.strings.text(*id)) } else { None })
        .collect();
    assert_eq!(lists, [r#"["inf", {"deep": "-inf"}]"#]);
}

#[test]
fn what_no_repair_mends_is_refused_by_byte() {
    let text = br#"{"traceEvents": [{"ts": 1, "args": {"a": [1,,2]}}]}"#;
    let repair = RewriteOptions { repair: true, ..RewriteOptions::default() };
    let said = rewritten(text, repair, |time| time).expect_err("refused").to_string();
    assert!(said.contains("byte 17") && said.contains("cannot be repaired"), "{said}");
    assert!(rewritten(text, RewriteOptions::default(), |time| time).is_ok());
}
