//! Fitted windows of the XLA distributed profiler: `probe_windows_nodeN.jsonl`,
//! `alpha_beta_nodeN.csv`, and the messages of its documents' `probe_sync.proto`.
//!
//! [`format_of`] distinguishes its files from our `windows/nodeN.jsonl`. [`Fits::read`] reads them
//! and [`Fits::put_into`] makes windows of them, which are solved like ours. The differences are:
//!
//! ```text
//!          there                                      here
//! beta     at the window's START                      at its middle: beta + alpha · length / 2
//! alpha    rate of theta, or ratio of the rates       rate of theta: one within 1 % of 1 is a ratio, and 1 is taken off
//! missing  alpha = beta = 0                           no fit
//! round    round_id, from a master                    the same; where it is missing or repeats, windows go by their time
//! ```
//!
//! **What the files do not state.** There are no hard bounds: none are claimed. There is no
//! covariance: it is taken from how the fits of an edge scatter from window to window (`scatter`),
//! and the digits that the file cut off are added. There is no delay: 95 % intervals allow for
//! paths as asymmetric as those of [`ASSUMED_DELAY_NS`] are. Notes say so.

mod csv;
mod export;
mod fit;
mod lines;
mod messages;
mod scatter;

pub use self::export::export;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use probe_sync_lines::{EdgeFit, NodeWindow, Punctuality};
use probe_sync_time::{NodeId, RoundId, StampSource, System, Timestamp};

use self::fit::{Fit, Quanta, Window};
use self::scatter::{Scatter, Spread};
use super::plausible::{implausible_span, implausible_window};
use super::recording::Recording;
use super::selection::Selection;
use crate::Error;

/// Format of a file of windows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Lines of probe_sync.
    Own,
    /// `probe_windows_nodeN.jsonl`.
    Lines,
    /// `alpha_beta_nodeN.csv`.
    Csv,
    /// Protobuf.
    Messages,
}

/// Returns the format of a file of windows: by its first line that is a JSON object, otherwise by
/// its header. A file that is not text and is not named `.jsonl` is a message; damaged lines of a
/// `.jsonl` are left to its reader.
///
/// # Errors
/// Returns an error if it cannot be read.
pub(super) fn format_of(path: &Path) -> Result<Format, Error> {
    let file = std::fs::File::open(path).map_err(Error::file(path, "read"))?;
    let mut start = Vec::new();
    file.take(SNIFFED_BYTES).read_to_end(&mut start).map_err(Error::file(path, "read"))?;
    if let Some(theirs) = start.split(|byte| *byte == b'\n').find_map(lines::is_theirs) {
        return Ok(if theirs { Format::Lines } else { Format::Own });
    }
    let is_text = |byte: &u8| *byte >= b' ' || byte.is_ascii_whitespace();
    let is_lines = path.extension().is_some_and(|extension| extension == "jsonl");
    Ok(match std::str::from_utf8(&start) {
        Ok(text) if text.trim_start().lines().next().is_some_and(csv::is_header) => Format::Csv,
        _ if is_lines || start.iter().all(is_text) => Format::Own,
        _ => Format::Messages,
    })
}

/// The fits of all files.
#[derive(Debug, Default)]
pub(super) struct Fits {
    windows: Vec<Window>,
    /// Fits whose alpha was a ratio of rates.
    ratios: usize,
    /// Fits excluded by the selection.
    unselected: usize,
}

impl Fits {
    /// Reads a file. Lines that are not valid windows are skipped and listed.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or is not of its format as a whole.
    pub(super) fn read(
        &mut self,
        path: &Path,
        format: Format,
        selection: &Selection,
        recording: &mut Recording,
    ) -> Result<(), Error> {
        match format {
            Format::Own => Ok(()),
            Format::Lines => lines::read(path, recording, |window| self.take(window, selection)),
            Format::Csv => csv::read(path, selection, recording, |window| self.take(window, selection)),
            Format::Messages => messages::read(path, |window| self.take(window, selection)),
        }
    }

    /// Adds a window, or returns why it is not valid.
    fn take(&mut self, mut window: Window, selection: &Selection) -> Result<(), String> {
        let twin = |other: &Window| (other.node, other.start_ns) == (window.node, window.start_ns);
        if let Some(reason) = implausible_span(Timestamp::from_ns(window.start_ns), Timestamp::from_ns(window.end_ns)) {
            return Err(reason.into());
        }
        if window.end_ns <= window.start_ns {
            return Err("a window that ends before it starts".into());
        }
        if self.windows.iter().rev().take(TWINS_LOOKED_AT).any(twin) {
            return Err("a second window of the same node and start".into());
        }
        let mut fits = Vec::with_capacity(window.fits.len());
        for mut fit in window.fits {
            if !fit.alpha.is_finite() || !fit.beta.is_finite() {
                return Err(format!("the fit to node {} is not finite", fit.dst));
            }
            // So the profiler writes an edge without a fit.
            if fit.alpha == 0.0 && fit.beta == 0.0 {
                continue;
            }
            if (fit.alpha - 1.0).abs() < RATE_MAX {
                fit.alpha -= 1.0;
                self.ratios += 1;
            }
            if fit.alpha.abs() >= RATE_MAX {
                return Err(format!(
                    "alpha {} to node {} is not a plausible rate between two clocks",
                    fit.alpha, fit.dst
                ));
            }
            if selection.wants(fit.pairs, fit.lost) {
                fits.push(fit);
            } else {
                self.unselected += 1;
            }
        }
        window.fits = fits;
        self.windows.push(window);
        Ok(())
    }

    /// Creates windows from all fits; returns the number excluded by the selection.
    pub(super) fn put_into(mut self, recording: &mut Recording) -> usize {
        self.windows.sort_by_key(|window| (window.start_ns, window.node));
        let scatter = Scatter::of(&self.windows);
        self.tell(&scatter, recording);
        let rounds = self.rounds(recording);
        let mut taken: BTreeSet<(RoundId, NodeId)> = BTreeSet::new();
        for (window, round) in self.windows.iter().zip(rounds) {
            let data = data(window, round, &scatter);
            if let Some(reason) = implausible_window(&data) {
                recording.leave_out(&format!("node {}, window at {} ns: {reason}", window.node, window.start_ns));
            } else if !taken.insert((round, window.node)) {
                recording.leave_out(&format!(
                    "node {}, window at {} ns: a second window in its round",
                    window.node, window.start_ns
                ));
            } else {
                recording.nodes.insert(window.node);
                recording.nodes.extend(window.fits.iter().map(|fit| fit.dst));
                recording.solved.exchanges += window.fits.iter().map(|fit| fit.pairs as usize).sum::<usize>();
                recording.put(data);
            }
        }
        self.unselected
    }

    /// Logs what the files do not state, and the assumptions made.
    fn tell(&self, scatter: &Scatter, recording: &mut Recording) {
        let (fits, ratios) = (self.windows.iter().map(|window| window.fits.len()).sum::<usize>(), self.ratios);
        recording.note(format!(
            "{fits} fits of the XLA distributed profiler: beta, which applies to the window's start, is moved to its midpoint; the \
            files contain no bounds, so there are no hard intervals; {scatter}; assuming the path asymmetry that is usual for delays \
            of {} µs",
            ASSUMED_DELAY_NS / 1e3
        ));
        if ratios > 0 {
            recording.note(format!(
                "{ratios} of these fits have an alpha near 1, which is read as the ratio of the clocks' rates"
            ));
        }
        if self.unselected > 0 {
            recording.note(format!("ignored {} more fits with too few pairs or too many losses", self.unselected));
        }
    }

    /// Returns the round of each window: its own number if every node has each number once,
    /// otherwise by its time.
    fn rounds(&self, recording: &mut Recording) -> Vec<RoundId> {
        let stated: Option<Vec<u64>> = self.windows.iter().map(|window| window.round).collect();
        if let Some(stated) = stated {
            let mut seen = BTreeSet::new();
            if self.windows.iter().zip(&stated).all(|(window, round)| seen.insert((window.node, *round))) {
                return stated.into_iter().map(RoundId).collect();
            }
        }
        let mut lengths: Vec<i64> = self.windows.iter().map(Window::length_ns).collect();
        lengths.sort_unstable();
        let length = lengths.get(lengths.len() / 2).copied().unwrap_or(1).max(1);
        let first = self.windows.iter().map(Window::middle_ns).min().unwrap_or(0);
        if self.windows.len() > 1 {
            recording.note(
                "round_id is missing or repeats, as it does without a master; windows are grouped into rounds by their nodes' clock times"
                    .to_owned(),
            );
        }
        let mut latest: BTreeMap<NodeId, u64> = BTreeMap::new();
        let mut round = |window: &Window| {
            // The nearest: clocks that run apart must not put two windows into one round.
            let nearest = (window.middle_ns().saturating_sub(first).saturating_add(length / 2) / length) as u64;
            let next = latest.get(&window.node).map_or(0, |latest| latest + 1);
            latest.insert(window.node, nearest.max(next));
            RoundId(nearest.max(next))
        };
        self.windows.iter().map(&mut round).collect()
    }
}

fn data(window: &Window, round_id: RoundId, scatter: &Scatter) -> NodeWindow {
    let half_ns = window.half_ns();
    let midpoint: Timestamp<System> = Timestamp::from_ns(window.middle_ns());
    let edge = |fit: &Fit| EdgeFit {
        src_node_id: window.node,
        dst_node_id: fit.dst,
        midpoint,
        alpha: fit.alpha,
        beta: fit.beta + fit.alpha * half_ns,
        pairs_count: fit.pairs,
        lost_count: fit.lost,
        covariance: covariance(scatter.spread(window.node, fit.dst), fit.quanta, half_ns),
        margin_ns: ASSUMED_DELAY_NS,
        bound_lo_ns: f64::NEG_INFINITY,
        bound_hi_ns: f64::INFINITY,
        alpha_bounds: [-1.0, 1.0],
        feasible: true,
        purity: 1.0,
        stamp: StampSource::User,
        stamp_errors_ns: [0.0; 2],
    };
    NodeWindow {
        node_id: window.node,
        round_id,
        window_start: Timestamp::from_ns(window.start_ns),
        window_end: Timestamp::from_ns(window.end_ns),
        edges: window.fits.iter().map(edge).collect(),
        clock_event: None,
        stop_requested: false,
        packets: Vec::new(),
        unfitted: Vec::new(),
        punctuality: Punctuality::default(),
    }
}

/// Returns the covariance at the window's middle. Digits truncated from alpha shift the middle
/// while the start is fixed, so both errors are correlated.
fn covariance(spread: Spread, quanta: Quanta, half_ns: f64) -> [f64; 3] {
    let uniform = |quantum: f64| quantum * quantum / 12.0;
    let [of_alpha, of_beta] = [uniform(quanta.alpha), uniform(quanta.beta_ns)];
    [
        spread.beta_ns.powi(2) + of_beta + half_ns * half_ns * of_alpha,
        half_ns * of_alpha,
        spread.alpha.powi(2) + of_alpha,
    ]
}

/// Returns the common format of all files.
///
/// # Errors
/// Returns an error if a file cannot be read, or files of different programs are given together.
pub(super) fn common_format(paths: &[PathBuf]) -> Result<Format, Error> {
    let mut formats: BTreeMap<&'static str, (Format, &Path)> = BTreeMap::new();
    for path in paths {
        let format = format_of(path)?;
        let name = match format {
            Format::Own => "windows of a probe_sync run",
            Format::Lines | Format::Messages => "windows of the XLA distributed profiler",
            Format::Csv => "a summary of the XLA distributed profiler, which repeats the last of its windows",
        };
        formats.entry(name).or_insert((format, path));
    }
    let mut found = formats.iter();
    match (found.next(), found.next()) {
        (Some((a, (_, first))), Some((b, (_, second)))) => Err(Error::Configuration {
            origin: "command line".into(),
            key: "--windows".into(),
            reason: format!("{} is {a}, and {} is {b}; give files of one kind", first.display(), second.display()),
        }),
        (Some((_, (format, _))), None) => Ok(*format),
        _ => Ok(Format::Own),
    }
}

/// Assumed one-way delay of paths, ns: that of two hosts in one data centre.
const ASSUMED_DELAY_NS: f64 = 50_000.0;
/// Upper limit of the difference between two clocks' rates.
const RATE_MAX: f64 = 0.01;
/// Number of following windows in which a repeated one is searched for.
const TWINS_LOOKED_AT: usize = 4096;
/// Bytes read to detect the format; the first whole line ends before.
const SNIFFED_BYTES: u64 = 1 << 20;
