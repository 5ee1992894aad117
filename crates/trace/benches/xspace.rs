//! How fast XSpace is rewritten: `cargo bench -p probe-sync-trace --bench xspace [-- OPTIONS]`.
//!
//! Options: `--input FILE` (a real `*.xplane.pb`; default: one of the shared data sets), `--megabytes N` (200),
//! `--python PROGRAM` (also runs `bench/xspace_upb.py` on the same file, right after), `--keep` (leaves the files).
//!
//! The input is made by repeating the real file's events, line by line, until the size is reached, each repetition later
//! than the one before. Printed per run: MB per second of the
//! wall and of the processor (they differ on a busy machine), peak of resident memory during it. The map is a `TimeMap` with a
//! knot every 4 s, as a run of offsets gives it, through its cursor. Nothing here is a test of time.

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;
use probe_sync_estimate::series::{Knot, Segment, TimeMap};
use probe_sync_trace::formats::FactOptions;
use probe_sync_trace::formats::xspace::{MergeInput, MergeOptions, RewriteOptions, merge, read_facts, rewrite};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// From one knot to the next, ps.
const KNOT_STEP_PS: i128 = 4_000_000_000_000;
/// Knots of the map.
const KNOTS: i128 = 300;
/// Of each measurement the best of so many is shown: on a shared machine the others tell of the neighbours.
const REPETITIONS: usize = 3;
/// `XPlane.lines` and `XLine.events`.
const LINES: u64 = 3;
const EVENTS: u64 = 4;
/// `XEvent.offset_ps`.
const OFFSET_PS: u64 = 2;

fn main() -> Outcome<()> {
    let arguments = Arguments::parse()?;
    if !arguments.input.exists() {
        println!("skipped: {} is absent", arguments.input.display());
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let (input, output) = (folder.path().join("input.xplane.pb"), folder.path().join("output.xplane.pb"));
    std::fs::write(&input, repeated(&std::fs::read(&arguments.input)?, arguments.megabytes << 20))?;
    let facts = read_facts(&input, &FactOptions::default())?;
    println!("{} events, {} collectives, {} pairs", facts.events, facts.collectives.len(), facts.pairs.len());
    let (first_ps, _) = facts.span.ok_or("no events")?;
    drop(facts);
    let map = time_map(first_ps)?;

    println!("{:<34} {:>8} {:>9} {:>9} {:>9}", "what", "seconds", "MB/s", "MB/CPU s", "peak MiB");
    let bytes = std::fs::metadata(&input)?.len();
    measure("copy of the file", bytes, || Ok(std::fs::copy(&input, &output).map(|_| ())?))?;
    measure("facts", bytes, || Ok(read_facts(&input, &FactOptions::default()).map(|_| ())?))?;
    let plain = RewriteOptions::default();
    measure("rewrite, identity", bytes, || Ok(rewrite(&input, &output, &plain, &mut |time| time).map(|_| ())?))?;
    if std::fs::read(&input)? != std::fs::read(&output)? {
        return Err("the identity changed the file".into());
    }
    for (what, annotate) in [("rewrite, time map", false), ("rewrite, time map, annotated", true)] {
        let options = RewriteOptions { annotate, ..plain };
        let mut cursor = map.cursor();
        measure(what, bytes, || {
            Ok(rewrite(&input, &output, &options, &mut |time| cursor.map(time).time_ps).map(|_| ())?)
        })?;
    }
    let mut cursors = [map.cursor(), map.cursor()];
    measure("merge of two", 2 * bytes, || {
        let [first, second] = &mut cursors;
        let (mut first, mut second) = (|time| first.map(time).time_ps, |time| second.map(time).time_ps);
        let mut inputs = [
            MergeInput { path: input.clone(), node: 0, name: "node0".to_owned(), map: &mut first },
            MergeInput { path: input.clone(), node: 1, name: "node1".to_owned(), map: &mut second },
        ];
        Ok(merge(&mut inputs, &output, &MergeOptions::default()).map(|_| ())?)
    })?;
    let packed = folder.path().join("input.xplane.pb.gz");
    pack(&input, &packed)?;
    let mut cursor = map.cursor();
    measure("rewrite, time map, gzip in", bytes, || {
        Ok(rewrite(&packed, &output, &plain, &mut |time| cursor.map(time).time_ps).map(|_| ())?)
    })?;
    if let Some(python) = &arguments.python {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/xspace_upb.py");
        Command::new(python).arg(script).arg(&input).arg(&output).status()?;
    }
    if arguments.keep {
        println!("kept: {}", folder.keep().display());
    }
    Ok(())
}

struct Arguments {
    input: PathBuf,
    megabytes: usize,
    python: Option<String>,
    keep: bool,
}

impl Arguments {
    fn parse() -> Outcome<Arguments> {
        let set = "../../../shared/data/jax/b_4node_offset_drift/node1.xplane.pb";
        let input = Path::new(env!("CARGO_MANIFEST_DIR")).join(set);
        let mut parsed = Arguments { input, megabytes: 200, python: None, keep: false };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} wants a value"));
            match word.as_str() {
                "--input" => parsed.input = value()?.into(),
                "--megabytes" => parsed.megabytes = value()?.parse()?,
                "--python" => parsed.python = Some(value()?),
                "--keep" => parsed.keep = true,
                "--bench" => {}
                _ => return Err(format!("unknown option {word}").into()),
            }
        }
        Ok(parsed)
    }
}

/// Runs something a few times, and prints its best speed and its peak of memory.
fn measure(what: &str, bytes: u64, mut run: impl FnMut() -> Outcome<()>) -> Outcome<()> {
    // 5 sets the peak back to what is in use now (proc(5)); where that is refused the peak is that of the whole run.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let (mut seconds, mut cpu) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..REPETITIONS {
        let (begin, cpu_begin) = (Instant::now(), cpu_seconds()?);
        run()?;
        seconds = seconds.min(begin.elapsed().as_secs_f64());
        cpu = cpu.min(cpu_seconds()? - cpu_begin);
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    let peak_kib: f64 = peak.trim().trim_end_matches("kB").trim().parse()?;
    let speed = |seconds: f64| bytes as f64 / 1e6 / seconds;
    println!("{what:<34} {seconds:>8.3} {:>9.0} {:>9.0} {:>9.1}", speed(seconds), speed(cpu), peak_kib / 1024.0);
    Ok(())
}

/// Time of processors that this process used so far, in user and kernel mode.
fn cpu_seconds() -> Outcome<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Fields 14 and 15, counted from behind the name, which may hold anything; in ticks of 10 ms, as everywhere on Linux.
    let (_, numbers) = stat.rsplit_once(')').ok_or("an odd /proc/self/stat")?;
    let ticks = numbers.split_whitespace().skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(ticks as f64 / 100.0)
}

/// A map as the offsets of a run give it: 50 ppm that wander a little from window to window.
fn time_map(first_ps: i128) -> Outcome<TimeMap> {
    let knots = (0..KNOTS).map(|index| Knot {
        at_ps: first_ps + index * KNOT_STEP_PS,
        correction_ps: 2_500_000_000 + index * KNOT_STEP_PS / 20_000 + index * index % 17 * 1_000,
        sigma_ns: 20.0,
    });
    Ok(TimeMap::new(&[Segment { knots: knots.collect(), ..Segment::default() }])?)
}

/// Packs a file with gzip.
fn pack(input: &Path, output: &Path) -> Outcome<()> {
    let mut packer = GzEncoder::new(File::create(output)?, Compression::fast());
    std::io::copy(&mut File::open(input)?, &mut packer)?;
    packer.finish()?.flush()?;
    Ok(())
}

/// A file of about `size` bytes with the events of a real one, again and again.
fn repeated(bytes: &[u8], size: usize) -> Vec<u8> {
    let lines = fields(bytes).filter_map(|field| field.message).flat_map(fields).filter(|field| field.number == LINES);
    let once = lines.map(|line| line.whole.len()).sum::<usize>().max(1);
    let copies = size.div_ceil(once) as u64;
    let mut out = Vec::with_capacity(size + size / 2);
    for field in fields(bytes) {
        match field.message {
            Some(plane) if field.number == 1 && fields(plane).any(|field| field.number == LINES) => {
                let mut longer = Vec::new();
                for part in fields(plane) {
                    match part.message {
                        Some(line) if part.number == LINES => put(&mut longer, LINES, &repeated_line(line, copies)),
                        _ => longer.extend_from_slice(part.whole),
                    }
                }
                put(&mut out, 1, &longer);
            }
            _ => out.extend_from_slice(field.whole),
        }
    }
    out
}

/// A line with its events repeated, each time later by as much as the line is long.
fn repeated_line(line: &[u8], copies: u64) -> Vec<u8> {
    let offset = |event: &[u8]| fields(event).find(|field| field.number == OFFSET_PS).map_or(0, |field| field.value);
    let events = || fields(line).filter(|field| field.number == EVENTS).filter_map(|field| field.message);
    let span = events().map(offset).max().unwrap_or(0) + 1_000_000;
    let mut out = Vec::new();
    for field in fields(line).filter(|field| field.number != EVENTS) {
        out.extend_from_slice(field.whole);
    }
    let mut later = Vec::new();
    for copy in 0..copies {
        for event in events() {
            later.clear();
            for field in fields(event) {
                if field.number == OFFSET_PS {
                    put_varint(&mut later, OFFSET_PS << 3);
                    put_varint(&mut later, field.value + copy * span);
                } else {
                    later.extend_from_slice(field.whole);
                }
            }
            put(&mut out, EVENTS, &later);
        }
    }
    out
}

/// A field of a message, decoded as little as the bench needs.
struct Field<'a> {
    number: u64,
    value: u64,
    message: Option<&'a [u8]>,
    whole: &'a [u8],
}

/// The fields of a message that is known to be good.
fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        let (tag, tag_width) = varint(rest)?;
        let (value, width) = match tag & 7 {
            0 | 2 => varint(&rest[tag_width..])?,
            1 => (0, 8),
            _ => (0, 4),
        };
        let body_at = tag_width + width;
        let end = if tag & 7 == 2 { body_at + value as usize } else { body_at };
        let (whole, after) = rest.split_at(end);
        rest = after;
        Some(Field { number: tag >> 3, value, message: (tag & 7 == 2).then(|| &whole[body_at..]), whole })
    })
}

fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put(out: &mut Vec<u8>, number: u64, message: &[u8]) {
    put_varint(out, number << 3 | 2);
    put_varint(out, message.len() as u64);
    out.extend_from_slice(message);
}
