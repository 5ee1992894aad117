//! How fast a recording becomes a trace: `cargo bench -p probe-sync-record --features rocpd --bench export [-- FOLDER]`.
//!
//! A real recording of one thread, scopes three deep with an argument in every second, is written in each format, and events per second and the
//! greatest memory are printed; with `--bench` two million scopes, without it (as tests are run) a few. FOLDER defaults to the one for temporary files.
//! What it does not do: read a trace, time the recording itself.

use std::path::{Path, PathBuf};
use std::time::Instant;

use probe_sync_record::export::Format;
use probe_sync_record::{Kind, Policy, Reach, Recorder, Recording, scope};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let measured = arguments.iter().any(|argument| argument == "--bench");
    let folder = arguments.iter().find(|argument| !argument.starts_with("--"));
    let folder = folder.map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(folder).expect("a folder");
    let (scopes, repeats) = if measured { (2_000_000, 3) } else { (2_000, 1) };
    let recording = recorded(scopes, folder.path());
    let begun = Instant::now();
    let mut events = 0_u64;
    for thread in recording.threads() {
        let count = |_: &probe_sync_record::read::Event<'_>| {
            events += 1;
            Ok::<(), probe_sync_record::Error>(())
        };
        recording.visit(thread.serial, count).expect("sound");
    }
    println!("read alone: {:.0} events/s", events as f64 / begun.elapsed().as_secs_f64());
    for format in Format::ALL {
        let mut rates: Vec<f64> = (0..repeats).map(|repeat| rate(&recording, format, folder.path(), repeat)).collect();
        rates.sort_by(f64::total_cmp);
        println!("{}: {:.0} events/s, {} MiB at most", format.as_str(), rates[repeats / 2], peak_mib());
    }
}

fn rate(recording: &Recording, format: Format, folder: &Path, repeat: usize) -> f64 {
    let ending = format.endings().iter().find(|ending| !ending.ends_with(".gz")).expect("each has a plain one");
    let path = folder.join(format!("{}{repeat}{ending}", format.as_str()));
    let begun = Instant::now();
    let exported = recording.on_system().expect("pairs").write(format, &path).expect("room");
    let rate = exported.events as f64 / begun.elapsed().as_secs_f64();
    std::fs::remove_file(path).expect("it was written");
    rate
}

fn recorded(scopes: u64, folder: &Path) -> Recording {
    let policy = Policy::DropNewest { bytes: ((scopes as usize * 64) + (1 << 20)).next_power_of_two() };
    let builder = Recorder::builder().reach(Reach::Thread).policy(policy).spill(folder.join("export.rec"));
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

/// The greatest resident memory so far.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) / 1024
}
