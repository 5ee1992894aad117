//! Snapshot files in both encodings, cut and damaged ones included.

use super::*;

fn read(content: &[u8]) -> Result<Vec<ClockPair>, String> {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("pairs");
    std::fs::write(&path, content).expect("writable");
    read_snapshots(&path).map_err(|error| error.to_string())
}

fn pair(system_ns: i64, tracer_ns: i64, width: f64) -> ClockPair {
    ClockPair { tracer_ps: i128::from(tracer_ns) * 1000, system_ns, kind: PairKind::Bracketed(width) }
}

/// Pairs (150, 7) and (−1, 0 by omission, bracket 200), a period, and unknown fields of every wire type.
const PAIRS: &[u8] = &[
    0x0a, 0x05, 0x08, 0x96, 0x01, 0x10, 0x07, // pairs: sys 150, tracer 7
    0x0a, 0x11, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x18, 0xc8, 0x01, 0x22, 0x01, 0x00,
    0x10, 0x80, 0x08, // sampling period
    0x29, 1, 2, 3, 4, 5, 6, 7, 8, 0x35, 1, 2, 3, 4, 0x3a, 0x02, 0xff, 0xff,
];

#[test]
fn protobuf_and_lines_say_the_same() {
    assert_eq!(read(PAIRS), Ok(vec![pair(150, 7, 5000.0), pair(-1, 0, 200.0)]));
    let lines = br#"{"sys_clock_ns":150,"tracer_clock_ns":7,"sampling_period_ns":4000000000,"tracer_clock":"boottime"}
{"sys_clock_ns":-1,"tracer_clock_ns":0,"bracket_ns":200}
{"sys_clock_ns":-1,"trac"#;
    assert_eq!(read(lines), Ok(vec![pair(150, 7, 5000.0), pair(-1, 0, 200.0)]));
}

#[test]
fn errors_name_the_place() {
    for (content, expected) in [
        (&b""[..], "no snapshot pairs"),
        (b"    ", "no snapshot pairs"),
        (&PAIRS[..4], "ends within"),
        (&PAIRS[..30], "ends within"),
        (b"\x0a\x02\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "more than ten bytes"),
        (b"\x0a\x02\x08\x96\x01", "reaches beyond its pair"),
        (b"\x00\x01", "byte 1: a field without a number"),
        (b"\x0b", "wire type 3"),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "ends within a field"),
        (b"{\"sys_clock_ns\":1}\n", "line 1: missing field"),
    ] {
        let error = read(content).expect_err(expected);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn no_prefix_and_no_flipped_byte_panics() {
    for end in 0..PAIRS.len() {
        let _ = read(&PAIRS[..end]);
        for flip in [0x01, 0x80, 0xff] {
            let mut bent = PAIRS.to_vec();
            bent[end] ^= flip;
            let _ = read(&bent);
        }
    }
}
