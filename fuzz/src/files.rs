//! Files and messages: recorded exchanges, snapshot pairs, exports, configurations, and what ranks
//! tell each other.
//!
//! Readers that take a path get a file in a directory of memory (`/dev/shm` where it exists), one
//! per thread.

use std::path::{Path, PathBuf};

use probe_sync::solve::{Input, Lines, MAX_NOTES, Selection, solve_files};
use probe_sync::{Config, config, export, fuzzing, snapshots};
use probe_sync_time::Timestamp;

/// What a rank decodes of a message from another one.
pub fn round_messages(data: &[u8]) {
    fuzzing::round_messages(data);
}

/// `probe_sync solve`: every line is used or counted, and equal input gives equal output.
pub fn probe_lines(data: &[u8]) {
    // The graph's work grows with the number of nodes; the parser is what is looked for here.
    if data.len() > MAX_RECORDING {
        return;
    }
    with_directory(|directory| {
        let (input, output) = ([directory.join("probes.jsonl")], directory.join("offsets.jsonl"));
        write(&input[0], data);
        // The same bytes as packets of others, and as fits, ours or the XLA profiler's: most are
        // none.
        let packets = Input::Packets { files: &input, window: None };
        let _ = solve_files(packets, &output, Lines::Sufficient, &Config::default());
        let _ = solve_files(Input::Windows(&input), &output, Lines::Sufficient, &Config::default());
        let selection = Selection { at: Some(Timestamp::from_ns(0)), ..Selection::default() };
        let fits = Input::Fits { files: &input, selection };
        let _ = solve_files(fits, &output, Lines::Sufficient, &Config::default());
        let solve = || solve_files(Input::Probes(&input), &output, Lines::Sufficient, &Config::default());
        let Ok(solved) = solve() else { return };
        let lines = data.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count();
        assert!(solved.exchanges + solved.skipped_lines <= lines, "{solved:?} of {lines} lines");
        assert!(solved.notes.len() <= MAX_NOTES);
        let first = std::fs::read(&output).expect("just written");
        solve().expect("as before");
        assert_eq!(std::fs::read(&output).expect("just written"), first);
    });
}

/// A protobuf file of pairs. The smallest pair is an empty message, two bytes in its parent.
pub fn snapshot_pairs(data: &[u8]) {
    if let Ok(document) = snapshots::read(data) {
        assert!(document.pairs.len() <= data.len() / 2);
    }
}

/// A run in one protobuf file.
pub fn run_export(data: &[u8]) {
    let _ = export::read(data);
}

/// A configuration file, as TOML or JSON by the first byte; and the same bytes as a duration.
pub fn configuration(data: &[u8]) {
    let Some((kind, text)) = data.split_first() else { return };
    with_directory(|directory| {
        let path = directory.join(if kind % 2 == 0 { "probe_sync.toml" } else { "probe_sync.json" });
        write(&path, text);
        let _ = Config::load(Some(&path), std::iter::empty(), &[]);
    });
    if let Ok(text) = std::str::from_utf8(text) {
        let _ = config::duration(text);
        let mut config = Config::default();
        if let Some((key, value)) = text.split_once('=') {
            let _ = config.set(key, value, "a fuzz target");
        }
    }
}

/// Runs `work` with a directory that this thread alone uses; its files stay for the next run.
pub fn with_directory(work: impl FnOnce(&Path)) {
    thread_local! {
        static DIRECTORY: Option<tempfile::TempDir> = memory().and_then(|memory| tempfile::tempdir_in(memory).ok()).or_else(|| tempfile::tempdir().ok());
    }
    DIRECTORY.with(|directory| {
        if let Some(directory) = directory {
            work(directory.path());
        }
    });
}

fn memory() -> Option<PathBuf> {
    let memory = PathBuf::from("/dev/shm");
    memory.is_dir().then_some(memory)
}

/// Writes a file that nobody else has.
pub fn write(path: &Path, data: &[u8]) {
    std::fs::write(path, data).expect("a temporary directory can be written");
}

const MAX_RECORDING: usize = 64 << 10;
