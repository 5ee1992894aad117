//! Snapshot pairs: moments at which a sampler read the tracer clock and the system clock together.
//!
//! Place in the flow: `snapshots/nodeN.snapshot_pairs.pb` or `.jsonl` of a run → [`ClockPair`]s. The protobuf is
//! `SnapshotPairs { repeated SnapshotPair pairs = 1; sampling_period_ns = 2 }`, `SnapshotPair { sys_clock_ns = 1,
//! tracer_clock_ns = 2, bracket_ns = 3 }`; JSON lines carry the same names. Files of other writers have no bracket; theirs
//! counts as [`UNSTATED_BRACKET_NS`], what samplers retry for. What it does not do: say which clock the tracer's was.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;

use super::lines::{Line, Lines};
use crate::Error;
use crate::model::{ClockPair, PairKind};
use crate::protobuf::{Fault, Fields, Source, Value};

/// Reads the pairs of one node: JSON lines where the first line begins with a brace, else protobuf.
///
/// # Errors
/// [`Error::Io`]; [`Error::Line`] or [`Error::Malformed`] naming where the file is not what it should be.
pub fn read_snapshots(path: &Path) -> Result<Vec<ClockPair>, Error> {
    let mut first = [0];
    let mut file = File::open(path).map_err(Error::io(path, "open"))?;
    let read = file.read(&mut first).map_err(Error::io(path, "read"))?;
    let pairs = match (read, first[0]) {
        (0, _) => Vec::new(),
        (_, b'{') => read_lines(path)?,
        _ => read_protobuf(path)?,
    };
    if pairs.is_empty() {
        return Err(Error::malformed(path, 0, "holds no snapshot pairs"));
    }
    Ok(pairs)
}

#[derive(Deserialize)]
struct JsonPair {
    sys_clock_ns: i64,
    tracer_clock_ns: i64,
    bracket_ns: Option<f64>,
}

fn read_lines(path: &Path) -> Result<Vec<ClockPair>, Error> {
    let mut lines = Lines::open(path)?;
    let mut pairs = Vec::new();
    while let Some(Line { number, text, may_be_cut }) = lines.next()? {
        match serde_json::from_slice::<JsonPair>(text) {
            Ok(pair) => pairs.push(clock_pair(pair.sys_clock_ns, pair.tracer_clock_ns, pair.bracket_ns)),
            Err(_) if may_be_cut && number > 1 => break,
            Err(error) => return Err(lines.problem(number, error.to_string())),
        }
        if pairs.len() > MOST_PAIRS {
            return Err(lines.problem(number, format!("more than {MOST_PAIRS} pairs")));
        }
    }
    Ok(pairs)
}

fn clock_pair(system_ns: i64, tracer_ns: i64, bracket_ns: Option<f64>) -> ClockPair {
    let width = bracket_ns.filter(|width| width.is_finite() && *width > 0.0).unwrap_or(UNSTATED_BRACKET_NS);
    ClockPair { tracer_ps: i128::from(tracer_ns) * 1000, system_ns, kind: PairKind::Bracketed(width) }
}

fn read_protobuf(path: &Path) -> Result<Vec<ClockPair>, Error> {
    let mut source = Source::open(path)?;
    let mut pairs = Vec::new();
    while let Some(field) = source.next_header(source.limit())? {
        if (field.number, field.wire) != (1, 2) {
            source.skip(field.body())?;
            continue;
        }
        let pair = parse_pair(source.piece(field.body())?);
        pairs.push(pair.map_err(|fault| source.fault(field.body_at(), fault))?);
        source.consume(field.body() as usize);
        if pairs.len() > MOST_PAIRS {
            return Err(source.malformed(field.at, format!("more than {MOST_PAIRS} pairs")));
        }
    }
    Ok(pairs)
}

fn parse_pair(message: &[u8]) -> Result<ClockPair, Fault> {
    // proto3 leaves zeros out.
    let (mut system_ns, mut tracer_ns, mut bracket_ns) = (0, 0, None);
    for field in Fields::of(message) {
        let field = field?;
        match (field.number, field.value) {
            (1, Value::Number(value)) => system_ns = value as i64,
            (2, Value::Number(value)) => tracer_ns = value as i64,
            (3, Value::Number(value)) => bracket_ns = Some(value as f64),
            _ => {}
        }
    }
    Ok(clock_pair(system_ns, tracer_ns, bracket_ns))
}

/// The bracket that samplers retry for.
const UNSTATED_BRACKET_NS: f64 = 5000.0;
/// 50 MB of pairs; at a pair every 4 s, 48 days.
const MOST_PAIRS: usize = 1 << 20;

#[cfg(test)]
mod tests {
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
        0x0a, 0x11, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x18, 0xc8, 0x01, 0x22, 0x01,
        0x00, 0x10, 0x80, 0x08, // sampling period
        0x29, 1, 2, 3, 4, 5, 6, 7, 8, 0x35, 1, 2, 3, 4, 0x3a, 0x02, 0xff, 0xff,
    ];

    #[test]
    fn protobuf_and_lines_say_the_same() {
        assert_eq!(read(PAIRS), Ok(vec![pair(150, 7, 5000.0), pair(-1, 0, 200.0)]));
        let lines =
            br#"{"sys_clock_ns":150,"tracer_clock_ns":7,"sampling_period_ns":4000000000,"tracer_clock":"boottime"}
    {"sys_clock_ns":-1,"tracer_clock_ns":0,"bracket_ns":200}
    {"sys_clock_ns":-1,"trac"#;
        assert_eq!(read(lines), Ok(vec![pair(150, 7, 5000.0), pair(-1, 0, 200.0)]));
    }

    #[test]
    fn errors_name_the_place() {
        for (content, expected) in [
            (&b""[..], "no snapshot pairs"),
            (b"    ", "no snapshot pairs"),
            (&PAIRS[..4], "runs past the end"),
            (&PAIRS[..30], "cut short"),
            (b"\x0a\x02\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "cut short or longer than 64 bits"),
            (b"\x0a\x02\x08\x96\x01", "cut short"),
            (b"\x00\x01", "field 0"),
            (b"\x0b", "wire type 3"),
            (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "runs past the end"),
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
}
