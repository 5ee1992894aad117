//! Long lines, which several threads rewrite as one does.

use super::*;
use crate::xspace::rewrite::{Renaming, Rewriter};
use crate::xspace::sink::Sink;

/// What comes of rewriting a file: bytes and statistics, or the error; and the times mapped, in
/// order.
type Rewritten = (Result<(Vec<u8>, RewriteStats), String>, Vec<Picoseconds>);

/// Rewrites a file, with lines from `shared_from` bytes on shared out; with `linked`, as a part of
/// a merged file.
fn rewritten(input: &Path, annotate: bool, linked: bool, shared_from: u64) -> Rewritten {
    let output = input.with_extension("out");
    let mut mapped = Vec::new();
    let mut map = |time: Picoseconds| {
        mapped.push(time);
        time + (time - START_PS) / 3 - 7_654_321
    };
    let mut same = |id| id;
    let mut write = || {
        let outline = outline::outline(input)?;
        let mut sink = Sink::create(&output)?;
        let renaming =
            linked.then_some(Renaming { planes: &[], line_ids: &mut same, link_addend: 1 << 44, kept: None });
        let options = RewriteOptions { annotate, ..RewriteOptions::default() };
        let rewriter = Rewriter::open(input, &outline, options, renaming, &mut sink, &mut map)?;
        let stats = rewriter.shared_from(shared_from).run(&outline)?;
        sink.finish()?;
        Ok((std::fs::read(&output).expect("the output"), stats))
    };
    let result = write().map_err(|error: Error| error.to_string());
    assert!(result.is_ok() || !output.exists(), "nothing half-written");
    let _ = std::fs::remove_file(&output);
    (result, mapped)
}

/// Compares both ways, for an annotated part of a merged file or for an aligned one, and returns
/// the error, if any.
fn check(input: &Path, what: &str, of_merge: bool) -> Option<String> {
    let [threads, one] = [0, u64::MAX].map(|shared_from| rewritten(input, of_merge, of_merge, shared_from));
    // After an error it does not matter what was mapped.
    assert!(
        threads.0 == one.0 && (one.0.is_err() || threads.1 == one.1),
        "{what}: {:?}, {:?}",
        threads.0.err(),
        one.0.err()
    );
    one.0.err()
}

/// Lines of every kind of event; the first is longer than several runs.
fn long_lines() -> Vec<u8> {
    let linked = |index: i64| {
        let link = Message::default().number(1, 2).number(3, index % 5);
        event(1 + index % 40, 3_000_000 * index, 1_000 + index % 200_000).message(4, link)
    };
    let mut plane = Message::default().text(2, "/host:CPU");
    for (number, count) in [(1, 40_000), (2, 10), (3, 4), (4, 12_000), (5, 500)] {
        let mut line = Message::default().number(1, number).number(3, 1_000_000 * number);
        for index in 0..count {
            // Whole runs hold nothing but usual events.
            let usual = number == 1 && (22_000..30_000).contains(&index);
            line = match if usual { 999 } else { index % 1000 } {
                1 => line.message(4, Message::default().number(1, 3).number(5, 9)),
                2 => line.message(4, Message::default()),
                3 => line.message(4, event(1, index, -5)),
                4 => line.message(4, linked(index).text(4, &"x".repeat(300))),
                // A length, and an offset, that are longer than they need be.
                5 => line.raw(&[0x22, 0x87, 0x00, 0x10, 0x81, 0x80, 0x00, 0x18, 0x82, 0x00]),
                // Duration before offset, and an unknown field.
                6 => line.message(4, Message::default().number(3, 77).number(2, index).number(77, 1)),
                _ => line.message(4, linked(index)),
            };
            line = match (number, index) {
                // Both end a run early.
                (1, 36_000) => line.number(99, 1),
                (4, 11_000) => {
                    line.message(4, event(1, 2, 3).message(4, Message::default().text(5, &"y".repeat(300_000))))
                }
                _ => line,
            };
        }
        plane = plane.message(3, line);
    }
    space(&[plane.entry(4, 1, "work").entry(5, 2, "correlation_id")])
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).expect("packed");
    packer.finish().expect("packed")
}

#[test]
fn threads_write_the_same_bytes_and_map_in_the_same_order() {
    let files = Files::new();
    let bytes = long_lines();
    for of_merge in [false, true] {
        assert_eq!(check(&files.put("in", &bytes), "plain", of_merge), None);
        assert_eq!(check(&files.put("in.gz", &packed(&bytes)), "packed", of_merge), None);
        for input in data().iter().flat_map(|folder| real_files(folder)) {
            let copy = files.put("real", &std::fs::read(&input).expect("input"));
            assert_eq!(check(&copy, &input.display().to_string(), of_merge), None);
        }
    }
}

#[test]
fn threads_report_the_earliest_fault() {
    let files = Files::new();
    let bytes = long_lines();
    let packed = packed(&bytes);
    for part in 1..12 {
        let of_merge = part % 2 == 0;
        let cut = &bytes[..part * bytes.len() / 12];
        assert!(check(&files.put("in", cut), "cut", of_merge).is_some());
        let cut = &packed[..part * packed.len() / 12];
        assert!(check(&files.put("in.gz", cut), "packed and cut", of_merge).is_some());
    }
    let mut faults = 0;
    for damage in 0..32 {
        let mut bytes = bytes.clone();
        // The last bytes are read before the events.
        let end = bytes.len() - 400;
        let at = (damage * 7919 + 13) * 1201 % end;
        bytes[at] ^= 0x81;
        // A fault further on, which must not be reported instead.
        let later = at + (end - at) / 2;
        bytes[later] = 0xff;
        let what = format!("damaged at {at} and {later}");
        faults += usize::from(check(&files.put("in", &bytes), &what, damage % 2 == 0).is_some());
    }
    assert!(faults > 10, "{faults}");
}
