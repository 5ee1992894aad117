//! Snapshot pairs: moments at which a sampler read the tracer clock and the system clock together.
//!
//! `snapshots/nodeN.snapshot_pairs.pb` or `.jsonl` of a run become [`Snapshots`]. The protobuf is
//! `SnapshotPairs { repeated SnapshotPair pairs = 1; sampling_period_ns = 2; tracer_clock = 3; tracer_clock_reason = 4; namespace_ns = 5 }`,
//! `SnapshotPair { sys_clock_ns = 1, tracer_clock_ns = 2, bracket_ns = 3 }`; JSON lines use the
//! same names. Files of other writers, and documents of earlier versions, have no bracket and name
//! no clock: the bracket is then taken as [`UNSTATED_BRACKET_NS`], the limit above which samplers
//! retry. It does not check whether the clock is that of a trace; `planes` does.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::Error;
use probe_sync_formats::model::{ClockPair, PairKind, Picoseconds};
use probe_sync_formats::protobuf::{Fault, Fields, Source, Value};
use probe_sync_time::TimeNamespace;
use serde::Deserialize;

use super::lines::{Line, Lines};

/// Snapshot pairs of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshots {
    /// The pairs, in file order.
    pub pairs: Vec<ClockPair>,
    /// Name of the tracer clock, as the sampler calls it; `None` if the file does not say.
    pub clock: Option<String>,
    /// The offsets that the time namespaces of its samplers add to the tracer clock, ns, each once;
    /// already subtracted from `pairs`. `None` if there are no pairs.
    pub namespaces: BTreeSet<i64>,
    /// Why the pairs say nothing about a trace on the tracer clock although they are of the same
    /// machine.
    pub unrelated: Option<String>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl Snapshots {
    /// The pairs as a process sees them to whose tracer clock its time namespace adds
    /// `namespace_ns`.
    fn seen(mut self, namespace_ns: i64) -> Self {
        self.pairs.iter_mut().for_each(|pair| pair.tracer_ps += i128::from(namespace_ns) * 1000);
        self
    }

    /// The pairs as seen by the process that wrote a trace: `stated` is its time namespace, if its
    /// marks state it; otherwise `same` assumes that of the samplers. Some of `others` are
    /// processes of its node in time namespaces, perhaps including the trace's.
    pub(crate) fn in_namespace(self, stated: Option<TimeNamespace>, same: bool, others: &[TimeNamespace]) -> Self {
        let of_clock = |namespace: &TimeNamespace| match self.clock.as_deref() {
            Some("monotonic" | "monotonic_raw") => namespace.monotonic_ns,
            Some("boottime" | "rocprofiler") => namespace.boottime_ns,
            _ => 0,
        };
        if let Some(stated) = stated {
            let namespace_ns = of_clock(&stated);
            return self.seen(namespace_ns);
        }
        let others = others.iter().map(of_clock).filter(|_| !same);
        let all: BTreeSet<i64> = self.namespaces.iter().copied().chain(others).collect();
        let mut all = all.into_iter();
        match (all.next(), all.next()) {
            (None, _) | (Some(0), None) => self,
            (Some(only), None) if same => self.seen(only),
            (Some(one), other) => {
                let clock = self.clock.as_deref().unwrap_or("tracer");
                let seconds = if one == 0 { other.unwrap_or(one) } else { one } as f64 * 1e-9;
                let unrelated = format!(
                    "the clock {clock} of its node is {seconds} s ahead in a time namespace (/proc/self/timens_offsets), and the \
                    namespace in which the trace was recorded is unknown"
                );
                Self { unrelated: Some(unrelated), ..self }
            }
        }
    }
}

/// Reads the pairs of one node: JSON lines if the first line begins with a brace, otherwise
/// protobuf. Of more than 2^20 pairs those nearest to the trace `near` are kept; if more than that
/// lie within it, every other one.
///
/// # Errors
/// [`Error::Trace`] or [`Error::Line`] naming the place where the file is
/// invalid or changes to a second clock.
pub fn read_snapshots(path: &Path, near: Option<(Picoseconds, Picoseconds)>) -> Result<Snapshots, Error> {
    let mut nearest = Nearest { near, most: MOST_PAIRS, pairs: Vec::new() };
    let (mut clock, mut namespaces) = (None, BTreeSet::new());
    let mut first = [0];
    let mut file = File::open(path).map_err(Error::io(path, "open"))?;
    let read = file.read(&mut first).map_err(Error::io(path, "read"))?;
    match (read, first[0]) {
        (0, _) => {}
        (_, b'{') => read_lines(path, &mut nearest, &mut clock, &mut namespaces)?,
        _ => {
            let namespace_ns = read_protobuf(path, &mut nearest, &mut clock)?;
            nearest.pairs.iter_mut().for_each(|pair| pair.tracer_ps -= i128::from(namespace_ns) * 1000);
            namespaces.insert(namespace_ns);
        }
    }
    if nearest.pairs.is_empty() {
        return Err(Error::malformed(path, 0, "contains no snapshot pairs"));
    }
    Ok(Snapshots { pairs: nearest.pairs, clock, namespaces, ..Snapshots::default() })
}

/// Pairs near a trace, as many as memory is meant to hold.
struct Nearest {
    near: Option<(Picoseconds, Picoseconds)>,
    most: usize,
    pairs: Vec<ClockPair>,
}

impl Nearest {
    fn keep(&mut self, pair: ClockPair) {
        self.pairs.push(pair);
        if self.pairs.len() <= self.most {
            return;
        }
        let mut distances: Vec<Picoseconds> = self.pairs.iter().map(|pair| self.distance(pair)).collect();
        let (_, &mut nearer_half, _) = distances.select_nth_unstable(self.most / 2);
        let near = self.near;
        self.pairs.retain(|pair| distance(near, pair) <= nearer_half);
        // Two may be equally far; more are within the trace.
        if self.pairs.len() > self.most * 3 / 4 {
            let mut index = 0_usize;
            self.pairs.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
    }

    fn distance(&self, pair: &ClockPair) -> Picoseconds {
        distance(self.near, pair)
    }
}

/// Distance of a pair from a trace, which may be on either clock.
fn distance(near: Option<(Picoseconds, Picoseconds)>, pair: &ClockPair) -> Picoseconds {
    let Some((first, last)) = near else { return 0 };
    let beyond = |time: Picoseconds| first.saturating_sub(time).max(time.saturating_sub(last)).max(0);
    beyond(pair.tracer_ps).min(beyond(i128::from(pair.system_ns) * 1000))
}

#[derive(Deserialize)]
struct JsonPair {
    sys_clock_ns: i64,
    tracer_clock_ns: i64,
    bracket_ns: Option<f64>,
    tracer_clock: Option<String>,
    /// Offset that the time namespace of the sampler adds to that clock.
    #[serde(default)]
    namespace_ns: i64,
}

fn read_lines(
    path: &Path,
    nearest: &mut Nearest,
    clock: &mut Option<String>,
    namespaces: &mut BTreeSet<i64>,
) -> Result<(), Error> {
    let mut lines = Lines::open(path)?;
    while let Some(Line { number, text, may_be_cut }) = lines.next()? {
        match serde_json::from_slice::<JsonPair>(text) {
            Ok(pair) => {
                one_clock(clock, pair.tracer_clock).map_err(|problem| lines.problem(number, problem))?;
                let mut read = clock_pair(pair.sys_clock_ns, pair.tracer_clock_ns, pair.bracket_ns);
                read.tracer_ps -= i128::from(pair.namespace_ns) * 1000;
                nearest.keep(read);
                namespaces.insert(pair.namespace_ns);
            }
            Err(_) if may_be_cut && number > 1 => break,
            Err(error) => return Err(lines.problem(number, error.to_string())),
        }
    }
    Ok(())
}

/// Takes a clock's name in, which is that of all pairs of a file.
fn one_clock(known: &mut Option<String>, named: Option<String>) -> Result<(), String> {
    match (known.as_ref(), named) {
        (_, Some(name)) if name.is_empty() || name.len() > LONGEST_NAME => {
            Err(format!("the name of the tracer clock has {} characters", name.len()))
        }
        (Some(known), Some(name)) if *known != name => {
            Err(format!("a pair of the tracer clock {name} among those of {known}"))
        }
        (_, Some(name)) => {
            *known = Some(name);
            Ok(())
        }
        (_, None) => Ok(()),
    }
}

fn clock_pair(system_ns: i64, tracer_ns: i64, bracket_ns: Option<f64>) -> ClockPair {
    let width = bracket_ns.filter(|width| width.is_finite() && *width > 0.0).unwrap_or(UNSTATED_BRACKET_NS);
    ClockPair { tracer_ps: i128::from(tracer_ns) * 1000, system_ns, kind: PairKind::Bracketed(width) }
}

/// Returns the offset that the sampler's time namespace adds to the clock.
fn read_protobuf(path: &Path, nearest: &mut Nearest, clock: &mut Option<String>) -> Result<i64, Error> {
    let mut namespace_ns = 0;
    let mut source = Source::open(path)?;
    while let Some(field) = source.next_header(source.limit())? {
        match (field.number, field.wire) {
            (1, 2) => {
                let pair = parse_pair(source.piece(field.body())?);
                nearest.keep(pair.map_err(|fault| source.fault(field.body_at(), fault))?);
                source.consume(field.body() as usize);
            }
            // A longer one is no name, and is not of this format.
            (3, 2) if (1..=LONGEST_NAME as u64).contains(&field.body()) => {
                let name = String::from_utf8_lossy(source.piece(field.body())?).into_owned();
                one_clock(clock, Some(name)).map_err(|problem| source.malformed(field.body_at(), problem))?;
                source.consume(field.body() as usize);
            }
            (5, 0) => namespace_ns = field.value as i64,
            _ => source.skip(field.body())?,
        }
    }
    Ok(namespace_ns)
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
/// Clocks have short names.
const LONGEST_NAME: usize = 64;
/// 64 MB of pairs; at a pair every 4 s, 48 days.
const MOST_PAIRS: usize = 1 << 20;

#[cfg(test)]
mod tests {
    //! Snapshot files in both encodings, cut and damaged ones included.

    use super::*;

    fn read(content: &[u8]) -> Result<Vec<ClockPair>, String> {
        read_of_clock(content).map(|found| found.pairs)
    }

    fn read_of_clock(content: &[u8]) -> Result<Snapshots, String> {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("pairs");
        std::fs::write(&path, content).expect("writable");
        read_snapshots(&path, None).map_err(|error| error.to_string())
    }

    fn pair(system_ns: i64, tracer_ns: i64, width: f64) -> ClockPair {
        ClockPair { tracer_ps: i128::from(tracer_ns) * 1000, system_ns, kind: PairKind::Bracketed(width) }
    }

    /// Pairs (150, 7) and (−1, 0 by omission, bracket 200), a period, and unknown fields of every
    /// wire type.
    const PAIRS: &[u8] = &[
        0x0a, 0x05, 0x08, 0x96, 0x01, 0x10, 0x07, // pairs: sys 150, tracer 7
        0x0a, 0x11, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x18, 0xc8, 0x01, 0x22, 0x01,
        0x00, 0x10, 0x80, 0x08, // sampling period
        0x22, 0x01, 0x3f, // why it is that clock
        0x29, 1, 2, 3, 4, 5, 6, 7, 8, 0x35, 1, 2, 3, 4, 0x3a, 0x02, 0xff, 0xff,
    ];

    #[test]
    fn protobuf_and_lines_say_the_same() {
        assert_eq!(read(PAIRS), Ok(vec![pair(150, 7, 5000.0), pair(-1, 0, 200.0)]));
        let lines =
            br#"{"sys_clock_ns":150,"tracer_clock_ns":7,"sampling_period_ns":4000000000,"tracer_clock":"boottime","tracer_clock_reason":"auto: x"}
    {"sys_clock_ns":-1,"tracer_clock_ns":0,"bracket_ns":200}
    {"sys_clock_ns":-1,"trac"#;
        assert_eq!(read(lines), Ok(vec![pair(150, 7, 5000.0), pair(-1, 0, 200.0)]));
    }

    #[test]
    fn a_file_names_one_clock_or_none() {
        let check = |content: &[u8], expected: Result<Option<&str>, &str>| match (read_of_clock(content), expected) {
            (Ok(found), Ok(clock)) => assert_eq!(found.clock.as_deref(), clock),
            (Err(said), Err(part)) => assert!(said.contains(part), "{said}"),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        };
        let line = |clock: &str| format!("{{\"sys_clock_ns\":1,\"tracer_clock_ns\":2{clock}}}\n");
        let named = |clock: &str| line(&format!(",\"tracer_clock\":\"{clock}\""));
        let of = |lines: &[String]| lines.concat().into_bytes();
        check(&of(&[line(""), line("")]), Ok(None));
        check(&of(&[line(""), named("boottime"), line("")]), Ok(Some("boottime")));
        check(&of(&[named("tsc"), named("tsc")]), Ok(Some("tsc")));
        check(
            &of(&[named("tsc"), named("boottime")]),
            Err("line 2: a pair of the tracer clock boottime among those of tsc"),
        );
        check(&of(&[named(&"x".repeat(64))]), Ok(Some(&"x".repeat(64))));
        check(&of(&[named(&"x".repeat(65))]), Err("line 1: the name of the tracer clock has 65 characters"));
        check(&of(&[named("")]), Err("has 0 characters"));
        let document = |name: &[u8]| [PAIRS, &[0x1a, name.len() as u8], name].concat();
        check(PAIRS, Ok(None));
        check(&document(b"boottime"), Ok(Some("boottime")));
        check(&document(b""), Ok(None));
        check(&document(&[b'x'; 64]), Ok(Some(&"x".repeat(64))));
        check(&document(&[b'x'; 65]), Ok(None));
        check(
            &[&document(b"tsc")[..], &[0x1a, 1, b'a']].concat(),
            Err("a pair of the tracer clock a among those of tsc"),
        );
        check(&document(b"tsc")[..PAIRS.len() + 3], Err("extends past the end"));
    }

    #[test]
    fn of_more_pairs_than_fit_those_near_the_trace_are_kept() {
        let check = |near: Option<(Picoseconds, Picoseconds)>, count: i64, expected: &[i64]| {
            let mut nearest = Nearest { near, most: 8, pairs: Vec::new() };
            (0..count).for_each(|at| nearest.keep(pair(at + 1000, at, 100.0)));
            let kept: Vec<i64> = nearest.pairs.iter().map(|pair| pair.system_ns - 1000).collect();
            assert_eq!(kept, expected, "{near:?}");
        };
        check(None, 8, &[0, 1, 2, 3, 4, 5, 6, 7]);
        // The ninth makes room: the five nearest stay, on whichever clock the trace is.
        check(Some((6_000, 7_000)), 9, &[4, 5, 6, 7, 8]);
        check(Some((1_006_000, 1_007_000)), 9, &[4, 5, 6, 7, 8]);
        check(Some((6_000, 7_000)), 1000, &[4, 5, 6, 7, 8, 9]);
        // All within the trace: every other one, so that none of it is without.
        check(None, 9, &[0, 2, 4, 6, 8]);
        check(Some((0, 100_000)), 13, &[0, 4, 8, 10, 12]);
    }

    #[test]
    fn a_last_line_that_is_still_being_written_is_left_out() {
        let line = "{\"sys_clock_ns\":1000,\"tracer_clock_ns\":2000}\n";
        let read_pairs = |text: String| read(text.as_bytes()).map(|pairs| pairs.len());
        assert_eq!(read_pairs(format!("{line}{{\"sys_clock")), Ok(1));
        assert!(read_pairs(format!("{line}{{\"sys_clock\n")).is_err(), "a line that ends is whole");
    }

    #[test]
    fn errors_name_the_place() {
        for (content, expected) in [
            (&b""[..], "no snapshot pairs"),
            (b"    ", "no snapshot pairs"),
            (&PAIRS[..4], "extends past the end"),
            (&PAIRS[..30], "truncated"),
            (b"\x0a\x02\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "truncated or longer than 64 bits"),
            (b"\x0a\x02\x08\x96\x01", "truncated"),
            (b"\x00\x01", "field 0"),
            (b"\x0b", "wire type 3"),
            (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "extends past the end"),
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

    #[test]
    fn a_time_namespace_is_taken_out_and_put_in_where_it_is_known() {
        const SECOND: i64 = 1_000_000_000;
        let line = |namespace_ns: i64| {
            let tracer_ns = 7 + namespace_ns;
            format!(
                "{{\"sys_clock_ns\":150,\"tracer_clock_ns\":{tracer_ns},\"tracer_clock\":\"boottime\",\"namespace_ns\":{namespace_ns}}}\n"
            )
        };
        let read = |text: &str| read_of_clock(text.as_bytes()).expect("pairs");
        let moved = |seconds: i64| TimeNamespace { monotonic_ns: 9, boottime_ns: seconds * SECOND };
        let at = |found: &Snapshots| (found.unrelated.is_none()).then(|| found.pairs[0].tracer_ps / 1000);
        let inside = read(&line(2 * SECOND));
        // The same as a document.
        let document = [
            &[0x0a, 0x09, 0x08, 0x96, 0x01, 0x10, 0x87, 0xa8, 0xd6, 0xb9, 0x07][..],
            b"\x1a\x08boottime",
            &[0x28, 0x80, 0xa8, 0xd6, 0xb9, 0x07],
        ];
        assert_eq!(read_of_clock(&document.concat()), Ok(inside.clone()));
        // Proven by marks: none, the same, another namespace.
        for seconds in [0, 2, -3] {
            let seen = inside.clone().in_namespace(Some(moved(seconds)), false, &[]);
            assert_eq!(at(&seen), Some(i128::from(7 + seconds * SECOND)));
        }
        // Nobody says it: the caller's own file is taken at its word, a run's is not.
        assert_eq!(at(&inside.clone().in_namespace(None, true, &[])), Some(2_000_000_007));
        let refused = inside.in_namespace(None, false, &[]).unrelated.expect("a reason");
        assert!(
            refused.contains("boottime of its node is 2 s ahead") && refused.contains("timens_offsets"),
            "{refused}"
        );
        let outside = read(&line(0));
        assert_eq!(at(&outside.clone().in_namespace(None, false, &[])), Some(7));
        // Another process of the node is in a namespace, and the trace may be its.
        assert_eq!(at(&outside.clone().in_namespace(None, false, &[moved(2)])), None);
        assert_eq!(at(&outside.in_namespace(None, true, &[moved(2)])), Some(7));
        // The sampler was started again in another container.
        assert_eq!(at(&read(&(line(0) + &line(SECOND))).in_namespace(None, true, &[])), None);
    }
}
