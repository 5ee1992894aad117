//! Times that move, and everything else that does not.

use super::*;

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
            let options = RewriteOptions { base_ns: Some(START_NS), annotate: true, ..RewriteOptions::default() };
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
    let options = RewriteOptions { base_ns: Some(START_NS), ..RewriteOptions::default() };
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
    let options = RewriteOptions { annotate: true, ..RewriteOptions::default() };
    let moved = Files::new().rewritten(&bytes, &options, &mut |time| time - 2_600);
    let corrections = seen(&moved).into_iter().map(|event| event.numbers);
    let expected = vec![("timestamp_correction_ns".to_owned(), -3)];
    assert_eq!(corrections.collect::<Vec<_>>(), [expected.clone(), expected]);
}

#[test]
fn a_time_that_does_not_fit_is_an_error() {
    let files = Files::new();
    let line = Message::default().message(4, event(1, 2, i64::MAX));
    let input = files.put("in", &space(&[Message::default().text(2, "/host:CPU").message(3, line)]));
    let mut map = |time: Picoseconds| time * 3;
    let said =
        rewrite(&input, &files.path("out"), &RewriteOptions::default(), &mut map).expect_err("refused").to_string();
    assert!(said.contains("does not fit in 64 bits"), "{said}");
}
