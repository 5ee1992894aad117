//! The operations of a group on each rank, in the order in which the rank began them.
//!
//! All ranks of a group perform its operations in one order, so a shift that pairs different kinds
//! is impossible.

use std::collections::BTreeMap;

use probe_sync_formats::model::{MappedTime, PS_PER_NS, Picoseconds, Steps};

use crate::collectives::NodeCollectives;

/// Labels by their numbers, with the kinds of operation that they are.
pub(in crate::collectives::matching) type Kinds = BTreeMap<u32, usize>;

/// Operations whose order is that of one group.
pub(in crate::collectives::matching) struct Class<'a> {
    pub(in crate::collectives::matching) nodes: &'a [NodeCollectives<'a>],
    /// By kind of operation: every end is after every start.
    pub(in crate::collectives::matching) all: Vec<bool>,
    /// By place of the node: its labels, with their kinds.
    pub(in crate::collectives::matching) labels: BTreeMap<usize, Kinds>,
    /// The clocks are known as well as the maps say; else only nodes on one clock can be compared.
    pub(in crate::collectives::matching) clocks_known: bool,
}

/// A piece of a rank's operations.
pub(super) struct Sequence<'a> {
    /// Index of its first among all of them.
    pub(super) first: u64,
    pub(super) parts: Vec<Seen>,
    pub(super) steps: &'a Steps,
    /// The clock it is on.
    clock: u32,
    /// Total number of the rank's operations.
    total: u64,
    /// None begins before the previous one has ended.
    pub(super) serial: bool,
}

/// One operation.
#[derive(Copy, Clone, Debug)]
pub(super) struct Seen {
    pub(super) kind: usize,
    /// On the trace's own timeline.
    pub(super) start_ps: Picoseconds,
    pub(super) end_ps: Picoseconds,
    /// On the common clock.
    pub(super) start: MappedTime,
    pub(super) end: MappedTime,
}

impl<'a> Class<'a> {
    /// The nodes that show any, in order.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        self.labels.keys().copied()
    }

    /// Number of operations that a node shows.
    pub(super) fn count(&self, place: usize) -> u64 {
        let labels = &self.labels[&place];
        let counts = self.nodes[place].parts.labels().filter(|(number, ..)| labels.contains_key(number));
        counts.map(|(.., count)| count).sum()
    }

    /// Up to `take` operations of a node after the first `skip`.
    pub(super) fn read(&self, place: usize, skip: u64, take: u64) -> Sequence<'a> {
        let NodeCollectives { parts, steps, map, clock, .. } = self.nodes[place];
        let kinds = &self.labels[&place];
        let labels: Vec<u32> = kinds.keys().copied().collect();
        let mut cursor = parts.cursor(&labels);
        let all = std::iter::from_fn(|| cursor.next()).skip(skip as usize).take(take as usize);
        let seen = all.map(|part| Seen {
            kind: kinds[&part.label],
            start_ps: part.start_ps,
            end_ps: part.end_ps,
            start: map(part.start_ps),
            end: map(part.end_ps),
        });
        let parts: Vec<Seen> = seen.collect();
        let serial = parts.windows(2).all(|pair| pair[0].end_ps <= pair[1].start_ps);
        Sequence { first: skip, parts, steps, clock, total: self.count(place), serial }
    }

    /// How much later a time of the one may appear than one of the other that it precedes, ps;
    /// infinite if a clock is unknown.
    pub(super) fn room_ps(&self, [one, other]: [&Sequence<'_>; 2]) -> f64 {
        let same = one.clock == other.clock;
        if !(same || self.clocks_known) {
            return f64::INFINITY;
        }
        let times = |sequence: &Sequence<'_>| {
            let times = sequence.parts.iter().flat_map(|part| [part.start, part.end]);
            let sigma = |time: &MappedTime| if same { time.own_sigma_ns } else { time.sigma_ns };
            times.fold((0.0_f64, 0.0_f64), |most, time| (most.0.max(sigma(&time)), most.1.max(time.early_by_ns)))
        };
        let (one, other) = (times(one), times(other));
        (DEVIATIONS * one.0.hypot(other.0) + one.1.max(other.1)) * PS_PER_NS as f64
    }
}

impl Sequence<'_> {
    /// Whether these are all of the rank's operations.
    pub(super) fn is_whole(&self) -> bool {
        self.parts.len() as u64 == self.total
    }
}

/// The indices of the first of two windows that a shift pairs with one of the second.
pub(super) fn overlap([one, other]: [usize; 2], shift: i64) -> std::ops::Range<usize> {
    let from = (-shift).max(0) as usize;
    let until = (other as i64 - shift).clamp(0, one as i64) as usize;
    from.min(until)..until
}

/// The shifts that pair only operations of the same kind, in order.
pub(super) fn consistent([one, other]: [&Sequence<'_>; 2]) -> Vec<i64> {
    let lengths = [one.parts.len(), other.parts.len()];
    let shifts = 1 - lengths[0] as i64..lengths[1] as i64;
    let is_consistent = |shift: &i64| {
        let mut places = overlap(lengths, *shift);
        !places.is_empty()
            && places.all(|place| one.parts[place].kind == other.parts[(place as i64 + shift) as usize].kind)
    };
    shifts.filter(is_consistent).collect()
}

/// Largest assumed error of clocks, in standard deviations.
const DEVIATIONS: f64 = 6.0;
