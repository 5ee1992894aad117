//! Snapshot pairs: moments at which a sampler read the tracer clock and the system clock together.
//!
//! Place in the flow: `snapshots/nodeN.snapshot_pairs.pb` or `.jsonl` of a run → [`ClockPair`]s. The protobuf is
//! `SnapshotPairs { repeated SnapshotPair pairs = 1; sampling_period_ns = 2 }`, `SnapshotPair { sys_clock_ns = 1,
//! tracer_clock_ns = 2, bracket_ns = 3 }`; JSON lines carry the same names. Files of other writers have no bracket; theirs
//! counts as [`UNSTATED_BRACKET_NS`], what samplers retry for. What it does not do: say which clock the tracer's was.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;

use super::lines::{Line, Lines};
use crate::Error;
use crate::model::{ClockPair, PairKind};

/// Reads the pairs of one node: JSON lines where the first line begins with a brace, else protobuf.
///
/// # Errors
/// [`Error::Io`]; [`Error::Line`] or [`Error::Malformed`] naming where the file is not what it should be.
pub fn read_snapshots(path: &Path) -> Result<Vec<ClockPair>, Error> {
    let mut first = [0];
    let mut file = File::open(path).map_err(Error::io(path, "open"))?;
    let read = file.read(&mut first).map_err(Error::io(path, "read"))?;
    let pairs = if read == 1 && first[0] == b'{' { read_lines(path)? } else { Wire::open(path)?.pairs()? };
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

/// Protobuf, a byte at a time.
struct Wire<'a> {
    path: &'a Path,
    reader: BufReader<File>,
    offset: u64,
}

/// A field's number and what its wire type says of its length.
enum Field {
    Varint(u32, u64),
    Bytes(u32, u64),
}

impl<'a> Wire<'a> {
    fn open(path: &'a Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(Error::io(path, "open"))?;
        Ok(Self { path, reader: BufReader::new(file), offset: 0 })
    }

    fn pairs(mut self) -> Result<Vec<ClockPair>, Error> {
        let mut pairs = Vec::new();
        while let Some(field) = self.field()? {
            match field {
                Field::Bytes(1, length) => pairs.push(self.pair(length)?),
                Field::Bytes(_, length) => self.skip(length)?,
                Field::Varint(..) => {}
            }
            if pairs.len() > MOST_PAIRS {
                return Err(self.problem(format!("more than {MOST_PAIRS} pairs")));
            }
        }
        Ok(pairs)
    }

    fn pair(&mut self, length: u64) -> Result<ClockPair, Error> {
        let end = self.offset.saturating_add(length);
        // proto3 leaves zeros out.
        let (mut system, mut tracer, mut bracket) = (0, 0, None);
        while self.offset < end {
            match self.field()? {
                Some(Field::Varint(1, value)) => system = value as i64,
                Some(Field::Varint(2, value)) => tracer = value as i64,
                Some(Field::Varint(3, value)) => bracket = Some(value as f64),
                Some(Field::Varint(..)) => {}
                Some(Field::Bytes(_, length)) => self.skip(length)?,
                None => return Err(self.problem("ends within a pair")),
            }
        }
        if self.offset > end {
            return Err(self.problem("a field reaches beyond its pair"));
        }
        Ok(clock_pair(system, tracer, bracket))
    }

    /// The next field; None at the end of the file.
    fn field(&mut self) -> Result<Option<Field>, Error> {
        if self.reader.fill_buf().map_err(Error::io(self.path, "read"))?.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok().filter(|number| *number > 0);
        let number = number.ok_or_else(|| self.problem("a field without a number"))?;
        Ok(Some(match key & 7 {
            0 => Field::Varint(number, self.varint()?),
            1 => Field::Bytes(0, 8),
            2 => Field::Bytes(number, self.varint()?),
            5 => Field::Bytes(0, 4),
            other => return Err(self.problem(format!("wire type {other}, which snapshot pairs do not use"))),
        }))
    }

    fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let mut byte = [0];
            if self.reader.read(&mut byte).map_err(Error::io(self.path, "read"))? == 0 {
                return Err(self.problem("ends within a number"));
            }
            self.offset += 1;
            value |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] < 0x80 {
                return Ok(value);
            }
        }
        Err(self.problem("a number of more than ten bytes"))
    }

    fn skip(&mut self, length: u64) -> Result<(), Error> {
        let skipped = std::io::copy(&mut (&mut self.reader).take(length), &mut std::io::sink());
        let skipped = skipped.map_err(Error::io(self.path, "read"))?;
        self.offset += skipped;
        if skipped < length { Err(self.problem("ends within a field")) } else { Ok(()) }
    }

    fn problem(&self, problem: impl Into<String>) -> Error {
        Error::malformed(self.path, self.offset, problem)
    }
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
}
