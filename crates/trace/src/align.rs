//! Rewrites one trace through a node's time map, and says what that did.
//!
//! Place in the flow: `clocks` made the map; the format does the rewriting; [`Counting`] stands between them and counts.
//! Both ends of every event go through the map, so durations follow the clock too. A time on the trace's timeline R becomes
//! one on the reference clock by subtracting the correction: with node 1 2.5 ms ahead, its event at 10.0 ms is written at 7.5.
//!
//! What it does not do: make maps, choose a base for several nodes (the caller gives one).

use std::path::Path;

use probe_sync_estimate::series::{Cursor, Place, TimeMap};
use serde::Serialize;

use crate::Error;
use crate::formats::{Format, kineto, xspace};
use crate::model::Picoseconds;

/// What to do beside mapping.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct AlignOptions {
    /// The base of the output's times, ns; `None`: the format's own choice. Viewers that draw each host from its own session
    /// start need one base for all nodes.
    pub base_ns: Option<i64>,
    /// Keep each event's correction in the output.
    pub annotate: bool,
}

/// What aligning a trace did: the content of `alignment_stats.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AlignmentStats {
    /// Events with a time.
    pub events: u64,
    /// Times that were mapped: lines, starts and ends.
    pub times: u64,
    /// Times held back so that order on a line is kept; 0 on a continuous map.
    pub clamped: u64,
    /// Times before the first point at which the clocks are known.
    pub extrapolated_before: u64,
    /// Times after the last.
    pub extrapolated_after: u64,
    /// Smallest, median and largest correction (new time minus old), ns.
    pub correction_ns: Option<[f64; 3]>,
    /// Largest standard deviation of any mapped time, ns; infinite (JSON: null) where the clock is not known.
    pub uncertainty_ns: f64,
    /// The base of the output's times, ns.
    pub base_ns: Option<i64>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Writes `input` with its times mapped to `output`, which appears when it is whole.
///
/// # Errors
/// Those of the format's reader, with file and byte, and of writing.
pub fn align(
    input: &Path,
    format: Format,
    output: &Path,
    map: &TimeMap,
    options: AlignOptions,
) -> Result<AlignmentStats, Error> {
    format.refuse_other_ending(output)?;
    let mut counting = Counting::new(map);
    let AlignOptions { base_ns, annotate } = options;
    let (events, base_ns) = match format {
        Format::XSpace => {
            let options = xspace::RewriteOptions { base_ns, annotate };
            let stats = xspace::rewrite(input, output, &options, &mut |time| counting.map(time))?;
            (stats.events, stats.base_ns)
        }
        Format::Kineto => {
            let options = kineto::RewriteOptions { base_ns, annotate, ..kineto::RewriteOptions::default() };
            let stats = kineto::rewrite(input, output, &options, &mut |time| counting.map(time))?;
            (stats.events, stats.base_ns)
        }
    };
    Ok(AlignmentStats { events, base_ns, ..counting.stats() })
}

/// A map that counts what it does.
pub struct Counting<'a> {
    cursor: Cursor<'a>,
    stats: AlignmentStats,
    least: Picoseconds,
    most: Picoseconds,
    /// Every `stride`-th correction, for the median.
    kept: Vec<Picoseconds>,
    stride: u64,
}

impl<'a> Counting<'a> {
    /// A count of nothing yet.
    pub fn new(map: &'a TimeMap) -> Self {
        Self {
            cursor: map.cursor(),
            stats: AlignmentStats::default(),
            least: Picoseconds::MAX,
            most: Picoseconds::MIN,
            kept: Vec::new(),
            stride: 1,
        }
    }

    /// Maps a time.
    pub fn map(&mut self, time: Picoseconds) -> Picoseconds {
        let mapped = self.cursor.map(time);
        let correction = mapped.time_ps - time;
        self.least = self.least.min(correction);
        self.most = self.most.max(correction);
        if self.stats.times.is_multiple_of(self.stride) {
            self.keep(correction);
        }
        self.stats.times += 1;
        self.stats.clamped += u64::from(mapped.clamped);
        self.stats.extrapolated_before += u64::from(mapped.place == Place::Before);
        self.stats.extrapolated_after += u64::from(mapped.place == Place::After);
        self.stats.uncertainty_ns = self.stats.uncertainty_ns.max(mapped.sigma_ns);
        mapped.time_ps
    }

    /// What was counted.
    pub fn stats(mut self) -> AlignmentStats {
        if !self.kept.is_empty() {
            let middle = self.kept.len() / 2;
            let median = *self.kept.select_nth_unstable(middle).1;
            self.stats.correction_ns = Some([self.least, median, self.most].map(|ps| ps as f64 * 1e-3));
        }
        self.stats
    }

    /// Keeps a bounded sample, evenly spread over the trace.
    fn keep(&mut self, correction: Picoseconds) {
        if self.kept.len() == KEPT_MAX {
            let mut index = 0;
            self.kept.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride *= 2;
        }
        self.kept.push(correction);
    }
}

/// Corrections kept for the median: a megabyte.
const KEPT_MAX: usize = 1 << 16;
