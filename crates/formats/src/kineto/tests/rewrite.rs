//! Times that move, and everything else that does not.

use super::*;

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
                assert_eq!((stats.rounded, stats.bytes_written), (0, original.len() as u64));
            }
            seen += 1;
        }
    }
    assert!(seen >= 18, "{seen} traces");
}

#[test]
#[ignore = "long: rewrites every shared trace"]
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
                let base = base::find(path).unwrap();
                let mut document = document::Document::open(path, &[]).unwrap();
                loop {
                    match document.next().unwrap() {
                        document::Item::End => return times,
                        document::Item::Event(event) => {
                            let value = |span: scan::Span| decimal::parse(span.of(event.bytes)).map(|it| it.ps);
                            let start = value(event.spans.ts).unwrap() + i128::from(base.unwrap_or(0)) * 1000;
                            times.push((start, value(event.spans.dur)));
                        }
                        _ => {}
                    }
                }
            };
            assert!(times(&input) == times(&back), "{}", input.display());
            json(&contents(&there));
            assert!(base::find(&there).unwrap().is_some());
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
fn threads_change_no_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let event =
        |index: u32| format!(r#"{{"ph": "X", "name": "e{index}", "ts": {index}.5, "dur": 2, "args": {{"a": NaN}}}}"#);
    let events: Vec<String> = (0..40_000).map(event).collect();
    let values = vec!["[1, \"\u{1}\"]"; 200_000].join(", ");
    let text = format!("{{\"traceEvents\": [{}], \"x\": [{values}], \"baseTimeNanoseconds\": 7}}", events.join(",\n"));
    let path = folder.path().join("t.json.gz");
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packer, text.as_bytes()).expect("packed");
    std::fs::write(&path, packer.finish().expect("packed")).expect("a file");
    let check = |workers: usize, name: &str| {
        let output = folder.path().join(name);
        let rewritten = crate::with_workers(workers, || {
            Kineto.rewrite(&path, &output, &RewriteOptions::default(), &mut |time| time + 1_000_000)
        });
        (rewritten.expect("rewritten"), std::fs::read(&output).expect("an output"))
    };
    let alone = check(1, "alone.json");
    assert!(alone == check(4, "ahead.json"));
    assert!(
        alone.0.notes[0].starts_with("not valid JSON: 40000 values such as NaN, 200000 control"),
        "{:?}",
        alone.0.notes
    );
}

#[test]
fn fine_digits_are_kept_or_counted() {
    let text = "{\"baseTimeNanoseconds\":0,\"traceEvents\":[{\"ph\":\"X\",\"ts\":1.0000015,\"dur\":1.123456}]}";
    check_rewrite(text, RewriteOptions::default(), |time| time, text);
    let (out, stats) = rewritten(text.as_bytes(), RewriteOptions::default(), |time| time + 1).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), text.replace("1.0000015", "1.000002"));
    assert_eq!((stats.rounded, stats.events), (1, 1));
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

/// Medians over the markers of each rewritten file: the event's start minus the true time in its
/// name, µs.
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
            let facts = read_facts(input, &FactOptions::default()).unwrap();
            assert!(!facts.pairs.is_empty());
            let output = target.path().join(format!("{node}.json"));
            let options = RewriteOptions { base_ns: base::find(input).unwrap(), ..RewriteOptions::default() };
            rewrite(input, &output, &options, &mut |time| corrected(&offsets[&node], time)).unwrap();
            files.push(output);
        }
        let medians = marker_medians(&files);
        let spread = medians.iter().fold(f64::MIN, |a, b| a.max(*b)) - medians.iter().fold(f64::MAX, |a, b| a.min(*b));
        println!("{set}: medians {medians:?} us, spread {spread:.1}");
        assert!(spread < 10.0, "{set}: {medians:?}");
    }
}
