//! What the benches of all formats measure: facts, rewriting and merging of one large file through
//! the format's interface.
//!
//! Options: `--input FILE` (a real trace; default: one of the shared data sets), `--megabytes N`
//! (200), `--python PROGRAM` (also runs the format's script on the same file, right after),
//! `--keep` (leaves the files).
//!
//! Printed per run: MB (before compression) per second of the wall and of the processor (they
//! differ on a busy machine, and where threads work), peak of resident memory during it. The map is
//! a `TimeMap` with a knot every 4 s, as a run of offsets gives it, through its cursor. Nothing
//! here is a test of time.

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;
use probe_sync_estimate::series::{Knot, Segment, TimeMap};
use probe_sync_formats::{FactOptions, MergeInput, MergeOptions, RewriteOptions, TraceFormat};

/// Result of a bench.
pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// A format and its input.
pub struct Bench {
    /// The measured format.
    pub format: &'static dyn TraceFormat,
    /// The real trace that is repeated, seen from this crate's folder.
    pub real: &'static str,
    /// The ending of the files' names.
    pub ending: &'static str,
    /// Writes a file of about this size with the events of a real trace, repeated, each time later
    /// than before.
    pub make: fn(&Path, &Path, u64) -> Outcome<()>,
    /// A script for comparison, in the folder `bench` of the repository.
    pub script: &'static str,
}

impl Bench {
    /// Makes the input and measures everything.
    pub fn run(&self) -> Outcome<()> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let arguments = Arguments::parse(root.join(self.real))?;
        if !arguments.input.exists() {
            println!("skipped: {} is absent", arguments.input.display());
            return Ok(());
        }
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(format!("{name}{}", self.ending));
        let (input, output) = (at("input"), at("output"));
        (self.make)(&arguments.input, &input, arguments.megabytes << 20)?;
        let facts = self.format.read_facts(&input, &FactOptions::default())?;
        println!("{} events, {} collectives, {} pairs", facts.events, facts.collectives.len(), facts.pairs.len());
        let map = time_map(facts.span.ok_or("no events")?.0)?;
        drop(facts);
        println!("{:<34} {:>8} {:>9} {:>9} {:>9}", "what", "seconds", "MB/s", "MB/CPU s", "peak MiB");
        self.measure_all(&input, &output, &map)?;
        if let Some(python) = &arguments.python {
            let script = root.join("../../bench").join(self.script);
            Command::new(python).arg(script).arg(&input).arg(&output).status()?;
        }
        if arguments.keep {
            println!("kept: {}", folder.keep().display());
        }
        Ok(())
    }

    fn measure_all(&self, input: &Path, output: &Path, map: &TimeMap) -> Outcome<()> {
        let bytes = std::fs::metadata(input)?.len();
        let plain = RewriteOptions::default();
        measure("copy of the file", bytes, || Ok(std::fs::copy(input, output).map(|_| ())?))?;
        measure("facts", bytes, || Ok(self.format.read_facts(input, &FactOptions::default()).map(|_| ())?))?;
        measure("rewrite, identity", bytes, || {
            Ok(self.format.rewrite(input, output, &plain, &mut |time| time).map(|_| ())?)
        })?;
        if std::fs::read(input)? != std::fs::read(output)? {
            return Err("the identity changed the file".into());
        }
        let mapped = |what: &str, from: &Path, to: &Path, options: RewriteOptions<'_>| {
            measure(what, bytes, || {
                let mut cursor = map.cursor();
                let map = &mut |time| cursor.map(time).time_ps;
                Ok(self.format.rewrite(from, to, &options, map).map(|_| ())?)
            })
        };
        mapped("rewrite, time map", input, output, plain)?;
        mapped("rewrite, time map, annotated", input, output, RewriteOptions { annotate: true, ..plain })?;
        let packed = |path: &Path| PathBuf::from(format!("{}.gz", path.display()));
        pack(input, &packed(input))?;
        mapped("rewrite, time map, gzip in", &packed(input), output, plain)?;
        if self.format.packs_outputs() {
            mapped("rewrite, time map, gzip out", input, &packed(output), plain)?;
            mapped("rewrite, time map, gzip in and out", &packed(input), &packed(output), plain)?;
        }
        let (length, packed_length) = (bytes as f64 / 1e6, std::fs::metadata(packed(input))?.len() as f64 / 1e6);
        println!("gzip: {length:.0} MB as {packed_length:.1} MB");
        measure("merge of two", 2 * bytes, || {
            let (mut first, mut second) = (map.cursor(), map.cursor());
            let (mut first, mut second) = (|time| first.map(time).time_ps, |time| second.map(time).time_ps);
            let mut inputs = [
                MergeInput {
                    path: input.to_owned(),
                    part: 0,
                    name: "node0".to_owned(),
                    map: &mut first,
                    metadata: Vec::new(),
                    reach: None,
                    known: None,
                },
                MergeInput {
                    path: input.to_owned(),
                    part: 1,
                    name: "node1".to_owned(),
                    map: &mut second,
                    metadata: Vec::new(),
                    reach: None,
                    known: None,
                },
            ];
            Ok(self.format.merge(&mut inputs, output, &MergeOptions::default()).map(|_| ())?)
        })
    }
}

struct Arguments {
    input: PathBuf,
    megabytes: u64,
    python: Option<String>,
    keep: bool,
}

impl Arguments {
    fn parse(input: PathBuf) -> Outcome<Arguments> {
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

/// Runs something a few times, and prints its best speed and its peak memory.
fn measure(what: &str, bytes: u64, mut run: impl FnMut() -> Outcome<()>) -> Outcome<()> {
    // 5 sets the peak back to what is in use now (proc(5)); where that is refused the peak is that
    // of the whole run.
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

/// Processor time used by this process so far, in user and kernel mode.
fn cpu_seconds() -> Outcome<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Fields 14 and 15, counted from behind the name, which may hold anything; in ticks of 10 ms,
    // as everywhere on Linux.
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

/// Compresses a file with gzip.
fn pack(input: &Path, output: &Path) -> Outcome<()> {
    let mut packer = GzEncoder::new(File::create(output)?, Compression::fast());
    std::io::copy(&mut File::open(input)?, &mut packer)?;
    packer.finish()?.flush()?;
    Ok(())
}

/// Distance between knots, ps.
const KNOT_STEP_PS: i128 = 4_000_000_000_000;
/// Knots of the map.
const KNOTS: i128 = 300;
/// Repetitions of each measurement, of which the best is shown: on a shared machine the others
/// reflect the neighbours.
const REPETITIONS: usize = 3;
