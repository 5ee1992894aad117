//! Benchmark of converting a recording into a trace:
//! `cargo bench -p probe-sync-record --features rocpd --bench export [-- FOLDER [MILLIONS [FORMAT]]]`.
//!
//! A real recording of one thread, scopes three deep with an argument in every second, is written
//! in each format, or in one. Printed are events per second by the clock and by the processor time
//! of all threads, and the greatest memory of a process that does nothing else; with `--bench` two
//! million scopes or as many as are asked for, without it (as tests are run) a few. FOLDER defaults
//! to the one for temporary files.

use std::path::{Path, PathBuf};
use std::time::Instant;

use probe_sync_record::export::Format;
use probe_sync_record::{Kind, Policy, Reach, Recorder, Recording, scope};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mark, recording, format, repeats] = &arguments[..]
        && mark == CHILD
    {
        let repeats = repeats.parse().expect("a number");
        return written(Path::new(recording), format.parse().expect("a format"), repeats);
    }
    let measured = arguments.iter().any(|argument| argument == "--bench");
    let mut words = arguments.iter().filter(|argument| !argument.starts_with("--"));
    let folder = words.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(folder).expect("a folder");
    let millions: u64 = words.next().map_or(2, |text| text.parse().expect("millions of scopes"));
    let only: Option<Format> = words.next().map(|text| text.parse().expect("a format"));
    let (scopes, repeats) = if measured { (millions * 1_000_000, 3) } else { (2_000, 1) };
    let path = folder.path().join("export.rec");
    let recording = recorded(scopes, &path);
    let begun = Instant::now();
    let mut events = 0_u64;
    for thread in recording.threads() {
        let count = |_: &probe_sync_record::read::Event<'_>| {
            events += 1;
            Ok::<(), probe_sync_record::Error>(())
        };
        recording.visit(thread.serial, count).expect("sound");
    }
    println!("{scopes} scopes; read alone: {:.0} events/s", events as f64 / begun.elapsed().as_secs_f64());
    for format in Format::ALL.into_iter().filter(|format| only.is_none_or(|only| only == *format)) {
        // A process of its own, whose memory is the export's alone.
        let mut child = std::process::Command::new(std::env::current_exe().expect("this program"));
        child.arg(CHILD).arg(&path).args([format.as_str(), &repeats.to_string()]);
        assert!(child.status().expect("it starts").success(), "{} fails", format.as_str());
    }
}

/// Writes a recording in a format, a few times, and prints how fast.
fn written(recording: &Path, format: Format, repeats: usize) {
    let folder = recording.parent().expect("its folder");
    let recording = Recording::open(recording).expect("sound");
    let mut rates: Vec<[f64; 2]> = (0..repeats).map(|repeat| rate(&recording, format, folder, repeat)).collect();
    rates.sort_by(|one, other| one[0].total_cmp(&other[0]));
    let [by_clock, by_processor] = rates[repeats / 2];
    let name = format.as_str();
    println!(
        "{name}: {by_clock:.0} events/s, {by_processor:.0} per second of processor time, {} MiB at most",
        peak_mib()
    );
}

fn rate(recording: &Recording, format: Format, folder: &Path, repeat: usize) -> [f64; 2] {
    let ending = format.endings().iter().find(|ending| !ending.ends_with(".gz")).expect("each has a plain one");
    let path = folder.join(format!("{}{repeat}{ending}", format.as_str()));
    let (begun, used) = (Instant::now(), processor_s());
    let exported = recording.on_system().expect("pairs").write(format, &path).expect("room");
    let spans = [begun.elapsed().as_secs_f64(), processor_s() - used];
    std::fs::remove_file(path).expect("it was written");
    spans.map(|seconds| exported.events as f64 / seconds)
}

fn recorded(scopes: u64, path: &Path) -> Recording {
    let policy = Policy::DropNewest { bytes: ((scopes as usize * 64) + (1 << 20)).next_power_of_two() };
    let builder = Recorder::builder().reach(Reach::Thread).policy(policy).spill(path);
    let session = builder.start().expect("nothing else records");
    for step in 0..scopes / 4 {
        let _step = scope!("step", step = step);
        {
            let _forward = scope!(Kind::Function, "forward");
            let _read = scope!(Kind::Io, "read", bytes = 4096);
        }
        let _backward = scope!(Kind::Backward, "backward");
    }
    session.finish().expect("whole")
}

/// Processor time of all threads so far.
fn processor_s() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 * 1e-9
}

/// The greatest resident memory so far.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// What this program is started with for a format.
const CHILD: &str = "--write";
