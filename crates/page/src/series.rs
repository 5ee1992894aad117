//! Conversion of rounds into columns: a trend per node, then the deviations from it, thinned.
//!
//! It reads a [`Source`] twice. The trend of a node is the least-squares line through its offsets,
//! over rounds in which it was reached and its clock was undisturbed. A clock's own rate moves an
//! offset by milliseconds while the errors are nanoseconds, so charts show the deviations from the
//! trend. After a round in which the clock or the reference's was disturbed (for example stepped),
//! the trend restarts, and that round itself has no value: its line cannot be trusted, and its
//! fault is marked.
//!
//! Memory does not grow with the run. Of more than [`NODES_SHOWN`] nodes those that are known worst
//! have series, the others a common one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use probe_sync_time::NodeId;

use crate::Error;
use crate::data::{NodeSeries, Others, Series};
use crate::number::Number;
use crate::rounds::{Estimate, PageRound, Reading, Source};
use crate::thin::{Columns, Extremes};

/// Result of the first pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct Survey {
    /// Rounds in order of time.
    pub rounds: usize,
    /// Time of the first round's offsets, ns on the reference clock.
    pub first_at_ns: i64,
    /// That of the last round.
    pub last_at_ns: i64,
    /// The nodes.
    pub nodes: BTreeMap<NodeId, NodeSurvey>,
    /// The last rounds, oldest first.
    pub latest: VecDeque<PageRound>,
    /// What could not be read.
    pub reading: Reading,
}

/// One node over all rounds.
#[derive(Clone, Debug)]
pub(crate) struct NodeSurvey {
    /// From its last round.
    pub last: Estimate,
    /// Rounds in which it was reachable.
    pub reached: usize,
    /// Each with the index of its first round.
    trends: Vec<(usize, Trend)>,
    /// The trend has ended.
    broken: bool,
}

/// Sums for a straight line, relative to its own first value.
#[derive(Copy, Clone, Debug, Default)]
struct Trend {
    count: f64,
    first_ns: f64,
    mean_s: f64,
    mean_ns: f64,
    squares: f64,
    products: f64,
}

/// Times of faults and other rounds of interest.
pub(crate) type Times = BTreeMap<u64, f64>;

impl Survey {
    /// Reads all rounds.
    pub fn of(source: &dyn Source) -> Result<Self, Error> {
        let mut survey = Self::default();
        let reading = source.each(&mut |round| survey.take(round))?;
        survey.reading = reading;
        Ok(survey)
    }

    fn take(&mut self, round: &PageRound) {
        if self.rounds == 0 {
            self.first_at_ns = round.at_ns;
        }
        self.rounds += 1;
        self.last_at_ns = round.at_ns;
        let seconds = self.seconds(round.at_ns);
        for estimate in &round.nodes {
            if self.nodes.len() >= NODES_MAX && !self.nodes.contains_key(&estimate.node) {
                continue;
            }
            let fresh = || NodeSurvey { last: *estimate, reached: 0, trends: Vec::new(), broken: true };
            self.nodes.entry(estimate.node).or_insert_with(fresh).take(estimate, self.rounds - 1, seconds);
        }
        let kept = LATEST_VALUES.checked_div(round.nodes.len()).unwrap_or(LATEST_ROUNDS).clamp(1, LATEST_ROUNDS);
        self.latest.push_back(round.clone());
        while self.latest.len() > kept {
            self.latest.pop_front();
        }
    }

    /// Seconds since the first round.
    pub fn seconds(&self, at_ns: i64) -> f64 {
        (i128::from(at_ns) - i128::from(self.first_at_ns)) as f64 * 1e-9
    }

    /// Nodes that have series, least certain first; the reference has none.
    pub fn shown(&self, reference: Option<NodeId>) -> Vec<NodeId> {
        let mut nodes: Vec<(&NodeId, &NodeSurvey)> =
            self.nodes.iter().filter(|(node, of)| Some(**node) != reference && of.reached > 0).collect();
        nodes.sort_by(|(_, a), (_, b)| {
            a.last.reachable.cmp(&b.last.reachable).then(b.last.half_width_ns.total_cmp(&a.last.half_width_ns))
        });
        nodes.into_iter().take(NODES_SHOWN).map(|(node, _)| *node).collect()
    }

    /// The second pass: series of nodes, and the time of each of the `wanted` rounds.
    pub fn series(
        &self,
        source: &dyn Source,
        reference: Option<NodeId>,
        wanted: &BTreeSet<u64>,
    ) -> Result<(Series, Times), Error> {
        let shown = self.shown(reference);
        let others = self.nodes.len() > shown.len() + 1;
        let columns = Columns::new(self.rounds, shown.len(), others);
        let mut building = Building::new(self, columns, &shown, reference);
        let mut times = Times::new();
        let mut place = 0;
        source.each(&mut |round| {
            // A run that goes on has more rounds by now.
            if place < self.rounds {
                if wanted.contains(&round.number) {
                    times.insert(round.number, self.seconds(round.at_ns));
                }
                building.take(place, round);
            }
            place += 1;
        })?;
        Ok((building.finish(), times))
    }
}

impl NodeSurvey {
    fn take(&mut self, estimate: &Estimate, place: usize, seconds: f64) {
        self.last = *estimate;
        if !estimate.reachable || !estimate.offset_ns.is_finite() {
            return;
        }
        self.reached += 1;
        if estimate.disturbed {
            self.broken = true;
            return;
        }
        if std::mem::take(&mut self.broken) && self.trends.len() < TRENDS_MAX {
            self.trends.push((place, Trend::default()));
        }
        if let Some((_, trend)) = self.trends.last_mut() {
            trend.take(seconds, estimate.offset_ns);
        }
    }
}

impl Trend {
    fn take(&mut self, seconds: f64, offset_ns: f64) {
        if self.count == 0.0 {
            self.first_ns = offset_ns;
        }
        let ns = offset_ns - self.first_ns;
        self.count += 1.0;
        let (before_s, before_ns) = (seconds - self.mean_s, ns - self.mean_ns);
        self.mean_s += before_s / self.count;
        self.mean_ns += before_ns / self.count;
        self.squares += before_s * (seconds - self.mean_s);
        self.products += before_s * (ns - self.mean_ns);
    }

    /// ns per second, which is ppb.
    fn slope(&self) -> f64 {
        if self.squares > 0.0 { self.products / self.squares } else { 0.0 }
    }

    fn at(&self, seconds: f64) -> f64 {
        self.first_ns + (self.mean_ns + self.slope() * (seconds - self.mean_s))
    }
}

/// Columns being built.
struct Building<'a> {
    survey: &'a Survey,
    columns: Columns,
    places: BTreeMap<NodeId, usize>,
    reference: Option<NodeId>,
    /// First and last time of a bucket.
    times: Vec<[f64; 2]>,
    nodes: Vec<NodeBuilding<'a>>,
    others: Vec<Extremes>,
}

/// Columns of a node being built.
struct NodeBuilding<'a> {
    node: NodeId,
    trends: &'a [(usize, Trend)],
    buckets: Vec<Bucket>,
}

/// A node's values in one bucket.
#[derive(Copy, Clone)]
struct Bucket {
    offset: Extremes,
    low: Extremes,
    high: Extremes,
    hard_low: Extremes,
    hard_high: Extremes,
    rate: Extremes,
    half_width: Extremes,
    error: Extremes,
}

const EMPTY: Bucket = Bucket {
    offset: Extremes::NONE,
    low: Extremes::NONE,
    high: Extremes::NONE,
    hard_low: Extremes::NONE,
    hard_high: Extremes::NONE,
    rate: Extremes::NONE,
    half_width: Extremes::NONE,
    error: Extremes::NONE,
};

impl<'a> Building<'a> {
    fn new(survey: &'a Survey, columns: Columns, shown: &[NodeId], reference: Option<NodeId>) -> Self {
        let of = |node: &NodeId| {
            let trends = survey.nodes.get(node).map_or(&[][..], |node| &node.trends);
            NodeBuilding { node: *node, trends, buckets: vec![EMPTY; columns.buckets()] }
        };
        Self {
            survey,
            columns,
            places: shown.iter().enumerate().map(|(place, node)| (*node, place)).collect(),
            reference,
            times: vec![[f64::NAN; 2]; columns.buckets()],
            nodes: shown.iter().map(of).collect(),
            others: vec![Extremes::NONE; columns.buckets()],
        }
    }

    fn take(&mut self, place: usize, round: &PageRound) {
        let bucket = self.columns.bucket(place);
        let seconds = self.survey.seconds(round.at_ns);
        let [first, last] = &mut self.times[bucket];
        if first.is_nan() {
            *first = seconds;
        }
        *last = seconds;
        for estimate in round.nodes.iter().filter(|estimate| estimate.reachable && estimate.offset_ns.is_finite()) {
            if let Some(shown) = self.places.get(&estimate.node) {
                let node = &mut self.nodes[*shown];
                // Before the first trend no round of the node is of use.
                let trend = node.trends.iter().rfind(|(first, _)| *first <= place).map(|(_, trend)| trend);
                node.buckets[bucket].take(estimate, trend.filter(|_| !estimate.disturbed), seconds);
            } else if Some(estimate.node) != self.reference {
                self.others[bucket].take(estimate.half_width_ns);
            }
        }
    }

    fn finish(self) -> Series {
        let thinned = self.columns.are_thinned();
        let each = self.columns.of_bucket();
        let t = self.times.iter().flat_map(|times| times[..each].to_vec()).map(Number::thousandth).collect();
        let is_other = |(node, of): &(&NodeId, &NodeSurvey)| {
            of.reached > 0 && Some(**node) != self.reference && !self.places.contains_key(*node)
        };
        let others = self.survey.nodes.iter().filter(is_other).count();
        let widths = |value: fn(Extremes) -> f64| {
            self.others.iter().flat_map(|of| vec![value(*of); each]).map(Number::tenth).collect()
        };
        let others = (others > 0).then(|| Others {
            nodes: others,
            widest: widths(Extremes::high),
            narrowest: widths(Extremes::low),
        });
        let nodes = self.nodes.iter().map(|node| node.series(each)).collect();
        Series { t, nodes, others, thinned }
    }
}

impl Bucket {
    /// Without a trend the offset of the round is not reliable.
    fn take(&mut self, estimate: &Estimate, trend: Option<&Trend>, seconds: f64) {
        let Estimate { offset_ns, rate_ppm, half_width_ns, hard_ns, truth_ns, .. } = *estimate;
        self.half_width.take(half_width_ns);
        let Some(trend) = trend else { return };
        let beside = |ns: f64| ns - trend.at(seconds);
        self.offset.take(beside(offset_ns));
        self.low.take(beside(offset_ns - half_width_ns));
        self.high.take(beside(offset_ns + half_width_ns));
        let [hard_low, hard_high] = hard_ns.map(|bound| if bound.is_finite() { beside(bound) } else { f64::NAN });
        self.hard_low.take(hard_low);
        self.hard_high.take(hard_high);
        self.rate.take(rate_ppm * 1e3 - trend.slope());
        self.error.take(offset_ns - truth_ns);
    }
}

impl NodeBuilding<'_> {
    /// With `each` columns per bucket.
    fn series(&self, each: usize) -> NodeSeries {
        let thinned = each > 1;
        let lines = |of: fn(&Bucket) -> Extremes| -> Vec<Number> {
            self.buckets.iter().flat_map(|bucket| of(bucket).in_order()[..each].to_vec()).map(Number::tenth).collect()
        };
        let edges = |of: fn(&Bucket) -> f64| -> Vec<Number> {
            self.buckets.iter().flat_map(|bucket| vec![of(bucket); each]).map(Number::tenth).collect()
        };
        // Where no round has a value the list says nothing.
        let or_none =
            |values: Vec<Number>| if values.iter().all(|value| value.0.is_nan()) { Vec::new() } else { values };
        let trend = self.trends.last().map(|(_, trend)| *trend).unwrap_or_default();
        NodeSeries {
            node: self.node.0,
            trends: self.trends.len(),
            trend_ns: trend.at(0.0),
            trend_ppm: trend.slope() * 1e-3,
            offset: lines(|bucket| bucket.offset),
            low: if thinned { edges(|bucket| bucket.low.low()) } else { Vec::new() },
            high: if thinned { edges(|bucket| bucket.high.high()) } else { Vec::new() },
            hard_low: or_none(edges(|bucket| bucket.hard_low.low())),
            hard_high: or_none(edges(|bucket| bucket.hard_high.high())),
            rate: or_none(lines(|bucket| bucket.rate)),
            half_width: lines(|bucket| bucket.half_width),
            error: or_none(lines(|bucket| bucket.error)),
        }
    }
}

/// Most nodes with series of their own.
pub(crate) const NODES_SHOWN: usize = 64;
/// No run has more: a foreign file must not fill the memory.
const NODES_MAX: usize = 1 << 20;
/// Most trends of a node; a clock disturbed more often keeps the last one.
const TRENDS_MAX: usize = 64;
/// Rounds kept for the map of edges, and estimates in them.
const LATEST_ROUNDS: usize = 64;
const LATEST_VALUES: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    struct Given(Vec<PageRound>);

    impl Source for Given {
        fn each(&self, take: &mut dyn FnMut(&PageRound)) -> Result<Reading, Error> {
            self.0.iter().for_each(take);
            Ok(Reading::default())
        }
    }

    /// Node 1 gains 1 ppm from 5 ms on, known to ±10 ns, with one excursion, and steps by 1 ms in
    /// the round `step`.
    fn rounds(count: u64, excursion: u64, step: u64) -> Given {
        let round = |number: u64| {
            let at_ns = 1_700_000_000_000_000_000 + 1_000_000_000 * number as i64;
            let extra = if number == excursion { 300.0 } else { 0.0 };
            let stepped = if number >= step { 1e6 } else { 0.0 };
            let node = |node: u32, offset_ns: f64, half_width_ns: f64| Estimate {
                node: NodeId(node),
                reachable: true,
                disturbed: number == step,
                offset_ns,
                rate_ppm: if node == 0 { 0.0 } else { 1.0 },
                half_width_ns,
                hard_ns: [offset_ns - 500.0, f64::INFINITY],
                truth_ns: f64::NAN,
            };
            PageRound {
                number,
                at_ns,
                nodes: vec![node(0, 0.0, 0.0), node(1, 5e6 + stepped + 1000.0 * number as f64 + extra, 10.0 + extra)],
            }
        };
        Given((0..count).map(round).collect())
    }

    fn read(source: &Given) -> (Series, Times) {
        let survey = Survey::of(source).expect("rounds");
        survey.series(source, Some(NodeId(0)), &BTreeSet::from([3])).expect("rounds")
    }

    #[test]
    fn what_is_beside_the_trend_is_shown() {
        let (series, times) = read(&rounds(10, u64::MAX, u64::MAX));
        assert_eq!((series.t.len(), series.thinned, series.nodes.len()), (10, false, 1));
        let node = &series.nodes[0];
        assert!((node.trend_ns - 5e6).abs() < 1e-3 && (node.trend_ppm - 1.0).abs() < 1e-9, "{node:?}");
        assert!(node.offset.iter().all(|value| value.0.abs() == 0.0), "{node:?}");
        assert_eq!((node.half_width[0].0, node.trends), (10.0, 1));
        assert_eq!((node.hard_low[0].0, node.hard_high.len(), node.error.len()), (-500.0, 0, 0));
        assert_eq!(times, Times::from([(3, 3.0)]));
        assert!(series.others.is_none());
    }

    #[test]
    fn after_a_step_the_trend_begins_anew() {
        let (series, _) = read(&rounds(10, u64::MAX, 4));
        let node = &series.nodes[0];
        assert!((node.trend_ns - 6e6).abs() < 1e-3 && node.trends == 2, "{node:?}");
        let stated: Vec<bool> = node.offset.iter().map(|value| value.0 == 0.0).collect();
        assert_eq!(stated, [true, true, true, true, false, true, true, true, true, true]);
        assert!(node.offset[4].0.is_nan() && node.half_width[4].0 == 10.0, "{node:?}");
    }

    #[test]
    fn one_round_of_days_is_seen_in_the_thinned_series() {
        let (series, _) = read(&rounds(43_200, 30_001, u64::MAX));
        assert!(series.thinned && series.t.len() == 800, "{}", series.t.len());
        let node = &series.nodes[0];
        let most = |values: &[Number]| values.iter().map(|value| value.0).fold(f64::MIN, f64::max);
        assert_eq!((most(&node.offset), most(&node.high), most(&node.half_width)), (300.0, 610.0, 310.0));
        assert!(series.t.is_sorted_by(|a, b| a.0 < b.0), "times ascend");
    }

    #[test]
    fn of_many_nodes_the_worst_are_shown() {
        let node = |node: u32| Estimate {
            node: NodeId(node),
            reachable: node != 7,
            disturbed: false,
            offset_ns: 1.0,
            rate_ppm: 0.0,
            half_width_ns: f64::from(node),
            hard_ns: [-9e9, 9e9],
            truth_ns: 0.0,
        };
        let source = Given(vec![PageRound { number: 0, at_ns: 5, nodes: (0..100).map(node).collect() }]);
        let (series, _) = read(&source);
        let shown: Vec<u32> = series.nodes.iter().map(|node| node.node).collect();
        assert_eq!((shown.len(), shown[0], shown[63]), (NODES_SHOWN, 99, 36));
        let others = series.others.expect("those that are left");
        assert_eq!((others.nodes, others.widest[0].0, others.narrowest[0].0), (34, 35.0, 1.0));
        assert_eq!(series.nodes[0].error[0].0, 1.0);
    }
}
