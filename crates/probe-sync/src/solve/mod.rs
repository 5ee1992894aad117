//! Recomputes a run from its recorded exchanges (`probes/nodeN.jsonl`) or from its recorded fits
//! alone (`windows/nodeN.jsonl`).
//!
//! Exchanges of all files are grouped by round and node into windows and fitted as in the live run.
//! A line that closes a window states its limits and losses; without one (a file cut short, or
//! written by somebody else) the window is as long as its exchanges. Windows, fitted here or there,
//! pass through the same graph and the same watch over faults; then `smoothing` looks at the whole
//! run at once, which the live run cannot. A line that is cut, corrupt or impossible is left out
//! and named with file and line number; the rest is used.
//!
//! Memory: all exchanges are held, 80 MB per million; with everything else that looking at them
//! takes a run of a million was solved in 225 MB. Fits take some 200 bytes per edge and round.
//!
//! [`Input::Packets`] solves one-way packets that somebody else captured (`packets`), and files of
//! windows may be the XLA distributed profiler's (`xla`).
//!
//! Beside it [`compose_runs`] puts the runs of several regions on one timeline.
//!
//! It adds no measurements, so a clock event that only the nodes observed is known from windows but
//! not from exchanges.

mod origin;
mod packets;
mod plausible;
mod recording;
mod regions;
mod selection;
mod solved;
#[cfg(test)]
mod tests;
mod xla;

use std::fs;
use std::path::{Path, PathBuf};

use probe_sync_estimate::run::{Recorded, Smoothed};
use probe_sync_files::{closed_segments, no_more_open_than};
use probe_sync_lines::OffsetRecord;
use probe_sync_time::{Duration, NodeId};

pub use self::origin::recorded_reference;
use self::packets::Packets;
use self::recording::{Recording, Rounds, TakeLine};
pub(crate) use self::regions::check_region;
pub use self::regions::{Composed, ComposedRegion, Region, compose_runs};
pub use self::selection::Selection;
pub use self::solved::{MAX_NOTES, Solved};
pub use self::xla::export as export_for_xla;
use crate::config::ReferenceChoice;
use crate::{Config, Error};

/// Input files left by a run or a capture.
#[derive(Copy, Clone, Debug)]
pub enum Input<'a> {
    /// Files of exchanges: `probes/nodeN.jsonl`.
    Probes(&'a [PathBuf]),
    /// Files of fitted windows: `windows/nodeN.jsonl`, or the XLA distributed profiler's
    /// `probe_windows_nodeN.jsonl` or messages.
    Windows(&'a [PathBuf]),
    /// Files of fitted windows with a selection; also the XLA distributed profiler's
    /// `alpha_beta_nodeN.csv`, whose time must be given.
    Fits {
        /// The files.
        files: &'a [PathBuf],
        /// Which fits to use, and the time at which they hold.
        selection: Selection,
    },
    /// CSV files of one-way packets captured on both sides, with the columns
    /// `src,dst,send_ns,recv_ns` and optionally `stamp`. Each time is on its own node's clock.
    Packets {
        /// The files.
        files: &'a [PathBuf],
        /// Length of the windows into which they are divided; `None`: one window.
        window: Option<Duration>,
    },
}

/// Which lines to write.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Lines {
    /// Enough that linear interpolation between them adds a tenth of sigma, from the first window's
    /// start to the last one's end.
    #[default]
    Sufficient,
    /// One per round and node.
    Rounds,
    /// One per this interval.
    Every(Duration),
}

impl std::str::FromStr for Lines {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Sufficient),
            "rounds" => Ok(Self::Rounds),
            time => crate::config::duration(time)
                .map(Self::Every)
                .map_err(|problem| format!("use auto, rounds, or a time: {problem}")),
        }
    }
}

/// Reads `input`, solves every round, smooths the run and writes `out` in the form of
/// `offsets.jsonl`, with the lines selected by `lines`. The 95 % intervals are those of the
/// smoothed run; hard intervals are the rounds' own and, between their midpoints, what clocks allow
/// whose rates change by at most 3 ppm from one to the next.
///
/// Only the fit and the reference of `config` are used. Two nodes whose packets were captured by
/// another program:
///
/// ```
/// use probe_sync::Config;
/// use probe_sync::solve::{Input, Lines, solve_files};
///
/// let directory = tempfile::tempdir()?;
/// let packets = directory.path().join("packets.csv");
/// // Node 1 is 1000 ns ahead of node 0, and a packet takes 200 ns each way.
/// std::fs::write(&packets, "src,dst,send_ns,recv_ns\n0,1,1000,2200\n1,0,3000,2200\n0,1,51000,52200\n1,0,53000,52200\n")?;
/// let out = directory.path().join("offsets.jsonl");
/// let input = Input::Packets { files: &[packets], window: None };
/// let solved = solve_files(input, &out, Lines::Rounds, &Config::default())?;
/// assert_eq!((solved.nodes, solved.rounds, solved.skipped_lines), (2, 1, 0));
/// let last = std::fs::read_to_string(&out)?;
/// let line: serde_json::Value = serde_json::from_str(last.lines().last().expect("node 1's line"))?;
/// // Its clock minus the reference's.
/// assert!((line["offset_ns"].as_f64().expect("a number") - 1000.0).abs() < 1.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Returns an error if a file cannot be read or written, contains nothing usable or not the
/// reference, or if `lines` are too many.
pub fn solve_files(input: Input<'_>, out: &Path, lines: Lines, config: &Config) -> Result<Solved, Error> {
    let reference = reference(config)?;
    let mut recording = Recording::new(reference);
    let files = with_segments(input);
    let input = match input {
        Input::Probes(_) => Input::Probes(&files),
        Input::Windows(_) => Input::Windows(&files),
        Input::Fits { selection, .. } => Input::Fits { files: &files, selection },
        packets @ Input::Packets { .. } => packets,
    };
    let paths = read(input, &mut recording)?;
    if !matches!(input, Input::Packets { .. }) {
        match origin::header(paths) {
            Ok(header) => recording.origin = header,
            Err(problem) => recording.note(problem),
        }
    }
    let same = |path: &PathBuf| fs::canonicalize(path).ok() == fs::canonicalize(out).ok();
    if out.exists() && paths.iter().any(same) {
        return Err(Error::OutputIsInput { path: out.into() });
    }
    no_more_open_than(paths, &[out]);
    if recording.solved.exchanges == 0 {
        let mut files = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        if let Some(first) = recording.solved.notes.first() {
            files = format!("{files}; {} lines were ignored, the first: {first}", recording.solved.skipped_lines);
        }
        return Err(Error::NothingToSolve { files });
    }
    recording.drop_strays();
    if reference.index() >= recording.node_count() {
        let reason = format!("names node {reference}, but the files have {} nodes", recording.node_count());
        return Err(Error::Configuration { origin: "command line".into(), key: "--reference".into(), reason });
    }
    recording.fit(config);
    let Rounds { solved: rounds, carried } = recording.rounds(config)?;
    if rounds.is_empty() {
        let files = format!("any round, because none has node {reference} or an edge to it");
        return Err(Error::NothingToSolve { files });
    }
    recording.solved.rounds = rounds.len();
    let recorded: Vec<Recorded<'_>> = recording.recorded().collect();
    let recorded = Some(&recorded[..]).filter(|some| !some.is_empty());
    let smoothed = Smoothed::new(&recording.options(config), rounds, recorded);
    recording.report(&smoothed);
    let carried = || carried.iter().flat_map(OffsetRecord::of_round);
    recording.solved.lines = match lines {
        Lines::Sufficient => {
            let (knots, share) = smoothed.sufficient_knots();
            if share < 1.0 {
                recording
                    .note(format!("the limit of 10⁷ lines allows only {:.1} % of the lines needed", 100.0 * share));
            }
            recording.write(out, smoothed.knot_lines(knots).chain(carried()))?
        }
        Lines::Every(spacing) => {
            let knots = smoothed.knots(spacing, recording.nodes.len()).map_err(|error| unusable_knots(&error))?;
            recording.write(out, smoothed.knot_lines(knots).chain(carried()))?
        }
        Lines::Rounds => recording.write(out, smoothed.round_lines().chain(carried()))?,
    };
    Ok(recording.solved)
}

/// Returns the files, each preceded by the earlier segments of its recording that are not named
/// themselves.
fn with_segments(input: Input<'_>) -> Vec<PathBuf> {
    let (Input::Probes(files) | Input::Windows(files) | Input::Fits { files, .. } | Input::Packets { files, .. }) =
        input;
    let all = files.iter().flat_map(|file| {
        let closed = closed_segments(file).into_iter().map(|(_, segment)| segment);
        closed.filter(|segment| !files.contains(segment)).chain([file.clone()])
    });
    all.collect()
}

/// Reads the files; returns their names.
fn read<'a>(input: Input<'a>, recording: &mut Recording) -> Result<&'a [PathBuf], Error> {
    let (paths, take): (_, TakeLine) = match input {
        Input::Probes(paths) => (paths, Recording::take_exchange),
        Input::Windows(paths) => return windows(paths, Selection::default(), recording),
        Input::Fits { files, selection } => return windows(files, selection, recording),
        Input::Packets { files, window } => {
            let mut packets = Packets::default();
            for path in files {
                packets.read(path, recording)?;
            }
            packets.fit_into(recording, window)?;
            return Ok(files);
        }
    };
    for path in paths {
        recording.read(path, take)?;
    }
    Ok(paths)
}

/// Reads files of windows, of probe_sync or of the XLA distributed profiler.
fn windows<'a>(paths: &'a [PathBuf], selection: Selection, recording: &mut Recording) -> Result<&'a [PathBuf], Error> {
    let format = xla::common_format(paths)?;
    if format != xla::Format::Csv && (selection.at.is_some() || selection.window.is_some()) {
        let reason =
            "gives the time of the fits in alpha_beta_nodeN.csv, but these files contain it; omit --at and --window";
        return Err(Error::Configuration { origin: "command line".into(), key: "--at".into(), reason: reason.into() });
    }
    if format == xla::Format::Own {
        recording.selection = selection;
        paths.iter().try_for_each(|path| recording.read(path, Recording::take_window))?;
        if recording.unselected > 0 {
            recording.note(format!("ignored {} fits with too few pairs or too many losses", recording.unselected));
        }
        return selected(recording, recording.unselected).map(|()| paths);
    }
    let mut fits = xla::Fits::default();
    for path in paths {
        let format = xla::format_of(path)?;
        fits.read(path, format, &selection, recording)?;
    }
    let unselected = fits.put_into(recording);
    selected(recording, unselected).map(|()| paths)
}

/// Refuses a selection that leaves nothing.
fn selected(recording: &Recording, unselected: usize) -> Result<(), Error> {
    if recording.solved.exchanges > 0 || unselected == 0 {
        return Ok(());
    }
    let key = "--min-pairs or --max-loss-ratio".into();
    Err(Error::Configuration { origin: "command line".into(), key, reason: format!("exclude all {unselected} fits") })
}

fn reference(config: &Config) -> Result<NodeId, Error> {
    match config.reference {
        ReferenceChoice::Node(node) => Ok(node),
        ReferenceChoice::Auto => Err(Error::Configuration {
            origin: "command line".into(),
            key: "--reference".into(),
            reason: "auto is only for live runs; give a node number".into(),
        }),
    }
}

fn unusable_knots(error: &probe_sync_estimate::Error) -> Error {
    Error::Configuration { origin: "command line".into(), key: "--knots".into(), reason: error.to_string() }
}
