//! All operations of a job in order of time: their dependencies, and the job's duration without one
//! rank's delays.

use std::collections::{BTreeMap, BTreeSet};

use probe_sync_alignment::collectives::Evidence;
use serde::Serialize;

use probe_sync_lateness::operation::{Arrival, DEVIATIONS, Judged, Waits, median};

/// An operation with its verdict.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// Operation name.
    pub(crate) name: String,
    /// Description of the instance.
    pub(crate) instance: String,
    /// Evidence that its parts belong together.
    pub(crate) evidence: Evidence,
    /// Step of the program that contains it, if known.
    pub(crate) step: Option<i64>,
    /// Which arrivals wait for which.
    pub(crate) waits: Waits,
    /// The parts, in order of rank.
    pub(crate) arrivals: Vec<Arrival>,
    /// Rank with the latest arrival as recorded, and the spread of the recorded arrivals, ns.
    pub(crate) recorded: (usize, i64),
    /// Verdict on the operation.
    pub(crate) judged: Judged,
    /// Number of ranks that others wait for and whose traces are missing.
    pub(crate) missing: usize,
}

/// A part: index of the operation and of the arrival in it.
type Place = (usize, usize);

/// Dependencies between operations.
pub(crate) struct History<'a> {
    operations: &'a [Held],
    /// The operation that ended last before an arrival on the same rank, by operation and arrival.
    before: Vec<Vec<Option<Place>>>,
    /// Starts and ends of all parts in order of time; starts come first at equal times.
    moments: Vec<(i64, bool, Place)>,
}

/// The longest chain of dependencies that leads to the last end.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CriticalPath {
    /// Start, ns on the reference clock.
    pub from_ns: i64,
    /// End, ns on the reference clock.
    pub to_ns: i64,
    /// Time that the path spends in operations that all members have joined, ns.
    pub transfer_ns: i64,
    /// Number of operations on the path.
    pub operations: usize,
    /// Operations at which uncertainty leaves open through which rank the path leads.
    pub tied_operations: usize,
    /// Time between operations, by rank: what the job waited for.
    pub ranks: Vec<PathShare>,
}

/// A rank's share of the critical path.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathShare {
    /// The rank.
    pub rank: u32,
    /// Time of the rank on the path, ns.
    pub compute_ns: i64,
}

impl<'a> History<'a> {
    pub(crate) fn new(operations: &'a [Held]) -> Self {
        let mut ends: BTreeMap<usize, Vec<(i64, Place)>> = BTreeMap::new();
        let mut moments = Vec::new();
        for (number, operation) in operations.iter().enumerate() {
            for (place, arrival) in operation.arrivals.iter().enumerate() {
                ends.entry(arrival.rank).or_default().push((arrival.end_ns, (number, place)));
                moments.push((arrival.start_ns, false, (number, place)));
                moments.push((arrival.end_ns.max(arrival.start_ns), true, (number, place)));
            }
        }
        ends.values_mut().for_each(|ends| ends.sort_unstable());
        moments.sort_unstable();
        let before = |number: usize, arrival: &Arrival| {
            let ends = &ends[&arrival.rank];
            let ended = &ends[..ends.partition_point(|(end, _)| *end <= arrival.start_ns)];
            // A part of no length ends when it begins.
            ended.iter().rev().map(|(_, place)| *place).find(|(other, _)| *other != number)
        };
        let before = operations
            .iter()
            .enumerate()
            .map(|(number, operation)| operation.arrivals.iter().map(|arrival| before(number, arrival)).collect());
        Self { operations, before: before.collect(), moments }
    }

    fn arrival(&self, (operation, place): Place) -> &Arrival {
        &self.operations[operation].arrivals[place]
    }

    /// Traces the path back from the last end; `name` returns a rank's number.
    pub(crate) fn critical_path(&self, name: impl Fn(usize) -> u32) -> Option<CriticalPath> {
        let all = self.operations.iter().enumerate();
        let places =
            all.flat_map(|(number, operation)| (0..operation.arrivals.len()).map(move |place| (number, place)));
        let mut at = places.max_by_key(|place| (self.arrival(*place).end_ns, std::cmp::Reverse(*place)))?;
        let to_ns = self.arrival(at).end_ns;
        let mut path = CriticalPath { to_ns, ..CriticalPath::default() };
        let mut ranks: BTreeMap<usize, i64> = BTreeMap::new();
        // Ends: each turn goes to an operation that ended before, on the same rank, the one at hand
        // began.
        for _ in 0..self.operations.len() {
            let (number, place) = at;
            let operation = &self.operations[number];
            let last = operation.last_for(place);
            let arrival = &operation.arrivals[last];
            path.operations += 1;
            path.tied_operations += usize::from(operation.is_tied(place, last));
            path.transfer_ns += (operation.arrivals[place].end_ns - arrival.start_ns).max(0);
            path.from_ns = arrival.start_ns;
            let Some(origin) = self.origin(number, last) else { break };
            *ranks.entry(arrival.rank).or_default() += arrival.start_ns - origin;
            path.from_ns = origin;
            let Some(before) = self.before[number][last] else { break };
            at = before;
        }
        path.ranks = ranks.into_iter().map(|(rank, compute_ns)| PathShare { rank: name(rank), compute_ns }).collect();
        path.ranks.sort_by_key(|share| (std::cmp::Reverse(share.compute_ns), share.rank));
        Some(path)
    }

    /// Returns how much earlier each step would have ended, ns, had these ranks never taken longer
    /// between two operations than the median of the others.
    pub(crate) fn without_delays_of(&self, ranks: &BTreeSet<usize>) -> Saving {
        let sizes = || self.operations.iter().map(|operation| operation.arrivals.len());
        let mut starts: Vec<Vec<Option<i64>>> = sizes().map(|size| vec![None; size]).collect();
        let mut ends = starts.clone();
        // Of operations that everybody waits in: the latest start so far, as it was and as it would
        // have been.
        let mut latest = vec![NOT_YET; self.operations.len()];
        for &(_, is_end, (number, place)) in &self.moments {
            let operation = &self.operations[number];
            let arrival = &operation.arrivals[place];
            if is_end {
                let (was, would) = match operation.waits {
                    Waits::All => latest[number],
                    Waits::Of(ref of) => later(
                        NOT_YET,
                        of[place]
                            .iter()
                            .filter_map(|other| Some((operation.arrivals[*other].start_ns, starts[number][*other]?))),
                    ),
                };
                // Its own start is among them.
                ends[number][place] = Some(arrival.end_ns - (was - would));
                continue;
            }
            let origin = match self.before[number][place] {
                Some(before) => ends[before.0][before.1],
                None => arrival.begun_ns,
            };
            let would = match (origin, self.gap(number, place, ranks)) {
                (Some(origin), Some(gap)) => origin + gap,
                _ => arrival.start_ns,
            };
            starts[number][place] = Some(would);
            latest[number] = later(latest[number], [(arrival.start_ns, would)]);
        }
        self.saving(&ends)
    }

    /// Returns when a rank became free for an operation, ns: the end of its previous one or, before
    /// its first, the beginning of the step.
    fn origin(&self, number: usize, place: usize) -> Option<i64> {
        match self.before[number][place] {
            Some(before) => Some(self.arrival(before).end_ns),
            None => self.arrival((number, place)).begun_ns,
        }
    }

    /// Returns the time from there to its arrival, ns; for ranks in `ranks` at most the median of
    /// the other ranks.
    fn gap(&self, number: usize, place: usize, ranks: &BTreeSet<usize>) -> Option<i64> {
        let arrivals = &self.operations[number].arrivals;
        let gap = |place: usize| Some(arrivals[place].start_ns - self.origin(number, place)?);
        let own = gap(place)?;
        if !ranks.contains(&arrivals[place].rank) {
            return Some(own);
        }
        // Of ranks that come from the same operation, or none.
        let from = |place: usize| self.before[number][place].map(|(operation, _)| operation);
        let others = (0..arrivals.len()).filter(|other| !ranks.contains(&arrivals[*other].rank));
        let same = others.filter(|other| from(*other) == from(place)).filter_map(gap);
        Some(median(same.collect()).map_or(own, |median| own.min(median)))
    }

    /// Returns by how much the ends moved, by step.
    fn saving(&self, ends: &[Vec<Option<i64>>]) -> Saving {
        let mut last: BTreeMap<Option<i64>, (i64, i64)> = BTreeMap::new();
        for (operation, ends) in self.operations.iter().zip(ends) {
            for (arrival, end) in operation.arrivals.iter().zip(ends) {
                let of_step = last.entry(operation.step).or_insert((i64::MIN, i64::MIN));
                of_step.0 = of_step.0.max(arrival.end_ns);
                of_step.1 = of_step.1.max(end.unwrap_or(arrival.end_ns));
            }
        }
        let mut steps: Vec<(i64, Option<i64>, i64)> =
            last.into_iter().map(|(step, (was, would))| (was, step, was - would)).collect();
        steps.sort_unstable();
        let total_ns = steps.last().map_or(0, |(.., saved)| *saved);
        let mut before = 0;
        let by_step = steps.into_iter().filter_map(|(_, step, saved)| {
            let own = saved - std::mem::replace(&mut before, saved);
            Some((step?, own))
        });
        Saving { by_step: by_step.collect(), total_ns }
    }
}

/// Time that a job would have saved.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Saving {
    /// Saving at the end of the job, ns.
    pub(crate) total_ns: i64,
    /// Saving in each step, ns.
    pub(crate) by_step: BTreeMap<i64, i64>,
}

impl Held {
    /// Returns the latest of the arrivals whose start the end of this arrival must follow.
    fn last_for(&self, place: usize) -> usize {
        let start = |other: &usize| (self.arrivals[*other].start_ns, std::cmp::Reverse(*other));
        self.waits.on(place, self.arrivals.len()).into_iter().max_by_key(start).unwrap_or(place)
    }

    /// Returns true if, within clock errors, another arrival may be the latest.
    fn is_tied(&self, place: usize, last: usize) -> bool {
        let latest = &self.arrivals[last];
        let others = self.waits.on(place, self.arrivals.len()).into_iter().filter(|other| *other != last);
        let mut others = others.map(|other| &self.arrivals[other]);
        others.any(|other| (latest.start_ns - other.start_ns) as f64 <= DEVIATIONS * latest.error.with(other.error))
    }
}

/// Returns the later of the recorded starts and of the hypothetical ones.
fn later(first: (i64, i64), others: impl IntoIterator<Item = (i64, i64)>) -> (i64, i64) {
    others.into_iter().fold(first, |most, other| (most.0.max(other.0), most.1.max(other.1)))
}

/// Value before any start was seen.
const NOT_YET: (i64, i64) = (i64::MIN, i64::MIN);
