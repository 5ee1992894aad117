//! How fast Kineto JSON is rewritten: `cargo bench -p probe-sync-trace --bench kineto [-- OPTIONS]`.
//!
//! Options: `--input FILE` (a real `*.pt.trace.json.gz`; default: one of the shared data sets), `--megabytes N` (200),
//! `--python PROGRAM` (also runs `bench/kineto_orjson.py` on the same file, right after), `--keep` (leaves the files).
//!
//! The input is the real file merged with itself until the size is reached, each copy later than the one before. Printed per
//! run: MB (before compression) per second of the wall and of the processor (they differ on a busy machine, and where
//! threads work), peak of resident memory during it. The map is a `TimeMap` with a knot every 4 s, as a run of offsets gives
//! it, through its cursor. Nothing here is a test of time.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use probe_sync_estimate::series::{Knot, Segment, TimeMap};
use probe_sync_trace::formats::FactOptions;
use probe_sync_trace::formats::kineto::{
    InputBase, MergeInput, MergeOptions, RewriteOptions, merge, read_facts, read_kineto, rewrite,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// From one knot to the next, ps.
const KNOT_STEP_PS: i128 = 4_000_000_000_000;
/// Knots of the map.
const KNOTS: i128 = 300;

fn main() -> Outcome<()> {
    let arguments = Arguments::parse()?;
    if !arguments.input.exists() {
        println!("skipped: {} is absent", arguments.input.display());
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let (input, output) = (at("input.json"), at("output.json"));
    repeat(&arguments.input, &input, arguments.megabytes << 20)?;
    let found = read_kineto(&input, &FactOptions::default())?;
    println!("{} events, {} collectives", found.facts.events, found.facts.collectives.len());
    let map = time_map(found.facts.span.ok_or("no events")?.0)?;
    let bytes = std::fs::metadata(&input)?.len();

    println!("{:<34} {:>8} {:>9} {:>9} {:>9}", "what", "seconds", "MB/s", "MB/CPU s", "peak MiB");
    let plain = RewriteOptions::default();
    measure("copy of the file", bytes, || Ok(std::fs::copy(&input, &output).map(|_| ())?))?;
    measure("facts", bytes, || Ok(read_facts(&input, &FactOptions::default()).map(|_| ())?))?;
    measure("rewrite, identity", bytes, || Ok(rewrite(&input, &output, &plain, &mut |time| time).map(|_| ())?))?;
    if std::fs::read(&input)? != std::fs::read(&output)? {
        return Err("the identity changed the file".into());
    }
    let mapped = |what: &str, from: &Path, to: &Path, options: RewriteOptions| {
        let mut cursor = map.cursor();
        measure(what, bytes, || Ok(rewrite(from, to, &options, &mut |time| cursor.map(time).time_ps).map(|_| ())?))
    };
    let annotated = RewriteOptions { annotate: true, ..plain };
    let (packed, packed_output) = (at("input.json.gz"), at("output.json.gz"));
    mapped("rewrite, time map", &input, &output, plain)?;
    mapped("rewrite, time map, annotated", &input, &output, annotated)?;
    mapped("rewrite, time map, gzip out", &input, &packed, RewriteOptions { base_ns: Some(0), ..plain })?;
    let known = RewriteOptions { input_base: InputBase::At(0), ..plain };
    mapped("rewrite, time map, gzip in", &packed, &output, known)?;
    mapped("rewrite, time map, gzip in and out", &packed, &packed_output, known)?;
    let (length, packed_length) = (bytes as f64 / 1e6, std::fs::metadata(&packed)?.len() as f64 / 1e6);
    println!("gzip: {length:.0} MB as {packed_length:.1} MB");
    measure("merge of two", 2 * bytes, || {
        let (mut first, mut second) = (map.cursor(), map.cursor());
        let (mut first, mut second) = (|time| first.map(time).time_ps, |time| second.map(time).time_ps);
        let mut inputs = [
            MergeInput { path: input.clone(), node: 0, name: "host0".to_owned(), map: &mut first },
            MergeInput { path: input.clone(), node: 1, name: "host1".to_owned(), map: &mut second },
        ];
        Ok(merge(&mut inputs, &output, &MergeOptions::default()).map(|_| ())?)
    })?;
    if let Some(python) = &arguments.python {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/kineto_orjson.py");
        Command::new(python).arg(script).arg(&input).arg(&output).status()?;
    }
    if arguments.keep {
        println!("kept: {}", folder.keep().display());
    }
    Ok(())
}

struct Arguments {
    input: PathBuf,
    megabytes: u64,
    python: Option<String>,
    keep: bool,
}

impl Arguments {
    fn parse() -> Outcome<Arguments> {
        let set = "../../../shared/data/torch/x_real_mi300_8gpu_rank0/resnet_act_checkpoint.json.gz";
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

/// A file of at least `size` bytes with the events of a real one, again and again.
fn repeat(real: &Path, output: &Path, size: u64) -> Outcome<()> {
    let (first, last) = read_facts(real, &FactOptions::default())?.span.ok_or("no events")?;
    let once = rewrite(real, output, &RewriteOptions::default(), &mut |time| time)?.bytes_out.max(1);
    let later = |copy: u64| move |time: i128| time + i128::from(copy) * (last - first);
    let mut maps: Vec<_> = (0..size.div_ceil(once)).map(later).collect();
    let input = |(copy, map)| -> MergeInput<'_> {
        MergeInput { path: real.to_path_buf(), node: copy, name: String::new(), map }
    };
    let maps = maps.iter_mut().map(|map| map as &mut dyn FnMut(i128) -> i128);
    let mut inputs: Vec<_> = (0..).zip(maps).map(input).collect();
    merge(&mut inputs, output, &MergeOptions::default())?;
    Ok(())
}

/// Runs something, and prints its speed and its peak of memory.
fn measure(what: &str, bytes: u64, mut run: impl FnMut() -> Outcome<()>) -> Outcome<()> {
    // 5 sets the peak back to what is in use now (proc(5)); where that is refused the peak is that of the whole run.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let (begin, cpu_begin) = (Instant::now(), cpu_seconds()?);
    run()?;
    let (seconds, cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds()? - cpu_begin);
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
