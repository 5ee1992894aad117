//! A time map that collects the statistics of `align` and `merge`.
//!
//! It sees every time that passes from a trace's format through its map, and keeps a bounded sample
//! of the corrections for their median.

use probe_sync_estimate::series::{Cursor, Place, TimeMap};
use probe_sync_formats::model::{Picoseconds, TraceClock, UNIX_TIME_MIN_PS};
use serde::Serialize;

use crate::clocks::{Extrapolated, NodeClock, Span, Tie};
use crate::nodes::{NodeTrace, SettledBy};

/// Statistics of the alignment of one trace: the content of `alignment_stats.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AlignmentStats {
    /// Node whose clock the trace was on; `None` (JSON: null) if no node's offsets were applied.
    pub node: Option<u32>,
    /// How the node was determined: `--nodes`, the host, the rank.
    pub node_settled_by: Option<String>,
    /// What ties the times to the node's system clock; `None` (JSON: null) if the clock is unknown.
    pub tied_by: Option<Tie>,
    /// Number of events, as the format counts them.
    pub events: u64,
    /// Events omitted from the output because of implausible times; a note describes them.
    pub left_out: u64,
    /// Number of times mapped: lines, starts and ends.
    pub times: u64,
    /// Times that changed: their correction is not zero.
    pub corrected: u64,
    /// Times adjusted to keep the order on a line; 0 on a continuous map.
    pub clamped: u64,
    /// Times before the start of the node's first window, or before the first pair of its clock.
    pub extrapolated_before: u64,
    /// Times after the end of the node's last window, or after the last pair of its clock.
    pub extrapolated_after: u64,
    /// Extrapolated times that lie before the first or after the last pair of the node's clock, but
    /// within its measured span. The other extrapolated times lie outside that span.
    pub beyond_pairs: u64,
    /// Smallest, median and largest correction (new time minus old), ns; `None` (JSON: null) if
    /// times were moved from one clock to another.
    pub correction_ns: Option<[f64; 3]>,
    /// Largest standard deviation of any mapped time, ns; infinite (JSON: null) if the clock is
    /// unknown.
    pub uncertainty_ns: f64,
    /// Base of the output's times, ns.
    pub base_ns: Option<i64>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// A map that keeps statistics.
pub(crate) struct Counting<'a> {
    cursor: Cursor<'a>,
    /// Map of times on a clock that counts from boot.
    raw: Option<Cursor<'a>>,
    /// True if all times are on such a clock.
    of_boot: bool,
    /// Measured span of the node, on its own clock.
    measured: Option<Span>,
    /// Clock through which the trace's times are mapped.
    clock: Option<&'a NodeClock>,
    stats: AlignmentStats,
    least: Picoseconds,
    most: Picoseconds,
    /// Every `stride`-th correction, for the median.
    kept: Vec<Picoseconds>,
    /// A power of two.
    stride: u64,
}

impl<'a> Counting<'a> {
    /// Creates empty statistics for a trace on this clock.
    pub(crate) fn new(of: TraceClock, map: &'a TimeMap, clock: Option<&'a NodeClock>, measured: Option<Span>) -> Self {
        Self {
            of_boot: of != TraceClock::System,
            cursor: map.cursor(),
            raw: clock.and_then(|clock| clock.raw.as_ref()).map(|raw| raw.map.cursor()),
            measured,
            clock,
            stats: AlignmentStats { tied_by: clock.map(|clock| clock.tie), ..AlignmentStats::default() },
            least: Picoseconds::MAX,
            most: Picoseconds::MIN,
            kept: Vec::new(),
            stride: 1,
        }
    }

    /// Maps a time.
    pub(crate) fn map(&mut self, time: Picoseconds) -> Picoseconds {
        let raw = self.raw.as_mut().filter(|_| time < UNIX_TIME_MIN_PS);
        let converted = self.of_boot || raw.is_some();
        let mapped = raw.unwrap_or(&mut self.cursor).map(time);
        // From one clock to another is no correction: decades would hide the microseconds.
        if !converted {
            let correction = mapped.time_ps - time;
            self.least = self.least.min(correction);
            self.most = self.most.max(correction);
            // A multiple of the stride, without the division, which is slow.
            if self.stats.times & (self.stride - 1) == 0 {
                self.keep(correction);
            }
        }
        self.stats.times += 1;
        self.stats.corrected += u64::from(mapped.time_ps != time);
        self.stats.clamped += u64::from(mapped.clamped);
        let extrapolated = match (mapped.place, self.clock) {
            (Place::Inside, _) => Extrapolated::Nothing,
            (_, Some(clock)) => clock.extrapolated(time, self.measured),
            (_, None) => Extrapolated::Offsets,
        };
        if extrapolated != Extrapolated::Nothing {
            self.stats.beyond_pairs += u64::from(extrapolated == Extrapolated::Pairs);
            self.stats.extrapolated_before += u64::from(mapped.place == Place::Before);
            self.stats.extrapolated_after += u64::from(mapped.place == Place::After);
        }
        let sigma_ns = self.clock.map_or(mapped.sigma_ns, |clock| clock.sigma_ns(mapped.sigma_ns));
        self.stats.uncertainty_ns = self.stats.uncertainty_ns.max(sigma_ns);
        mapped.time_ps
    }

    /// Returns the statistics of this trace.
    pub(crate) fn stats(mut self, trace: &NodeTrace) -> AlignmentStats {
        if trace.settled_by != SettledBy::Nothing {
            self.stats.node = Some(trace.node);
            self.stats.node_settled_by = Some(trace.settled_by.to_string());
        }
        if !self.kept.is_empty() {
            let middle = self.kept.len() / 2;
            let median = *self.kept.select_nth_unstable(middle).1;
            self.stats.correction_ns = Some([self.least, median, self.most].map(|ps| ps as f64 * 1e-3));
        }
        self.stats
    }

    /// Keeps a limited sample, evenly spread over the trace.
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
