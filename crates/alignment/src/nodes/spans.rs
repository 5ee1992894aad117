//! Joins the consecutive traces of a rank into one: a repeating schedule, directories of
//! iterations, and restarts leave several.
//!
//! A restarted process counts its operations from the beginning, so numbers that an earlier trace
//! already used are shifted.

use std::collections::{BTreeMap, HashMap};

use probe_sync_formats::model::parts::{CollectiveParts, Spill};
use probe_sync_formats::model::{GroupKey, Label, Picoseconds, Steps};

use super::trace::NodeTrace;
use crate::collectives::MapTime;

/// The places of the traces of each rank, in the order of time.
pub fn of_ranks(traces: &[&NodeTrace]) -> Vec<Vec<usize>> {
    let mut places: BTreeMap<u32, usize> = BTreeMap::new();
    let mut ranks: Vec<Vec<usize>> = Vec::new();
    for (place, trace) in traces.iter().enumerate() {
        let rank = *places.entry(trace.rank_part).or_insert(ranks.len());
        if rank == ranks.len() {
            ranks.push(Vec::new());
        }
        ranks[rank].push(place);
    }
    ranks.iter_mut().for_each(|rank| rank.sort_by_key(|place| traces[*place].span));
    ranks
}

/// Combines several traces of a rank.
pub(super) struct Joined<'a> {
    pub(super) parts: CollectiveParts,
    pub(super) groups: &'a [GroupKey],
    pub(super) steps: Steps,
    /// Start of each trace but the first, on its own timeline.
    begins: Vec<Picoseconds>,
}

impl<'a> Joined<'a> {
    pub(super) fn of(traces: &[&'a NodeTrace]) -> Self {
        let mut parts = CollectiveParts::new(&Spill::default());
        let mut last: HashMap<Label, i64> = HashMap::new();
        for (trace, span) in traces.iter().zip(0_i64..) {
            let mut largest: HashMap<Label, i64> = HashMap::new();
            parts.append(&trace.facts.collectives, |label, number| {
                let is_again = number != 0 && last.get(label).is_some_and(|last| number <= *last);
                let entry = largest.entry(label.clone()).or_insert(number);
                *entry = number.max(*entry);
                if is_again { number.saturating_add(span << AGAIN_BITS) } else { number }
            });
            largest.into_iter().for_each(|(label, number)| {
                let entry = last.entry(label).or_insert(number);
                *entry = number.max(*entry);
            });
        }
        parts.close();
        let groups = traces.iter().map(|trace| &trace.facts.groups[..]).find(|groups| !groups.is_empty());
        let begins = traces.iter().skip(1).filter_map(|trace| trace.facts.span.map(|(first, _)| first)).collect();
        let steps = Steps::joined(traces.iter().map(|trace| &trace.facts.steps));
        Self { parts, groups: groups.unwrap_or_default(), steps, begins }
    }

    /// Maps times by the map of the trace that they belong to.
    pub(super) fn map<'m>(&'m self, maps: Vec<&'m MapTime<'m>>) -> Box<MapTime<'m>> {
        Box::new(move |time| {
            let trace = self.begins.iter().filter(|begin| **begin <= time).count().min(maps.len() - 1);
            maps[trace](time)
        })
    }
}

/// Added to numbers with each trace, as a power of two: no process counts that far.
const AGAIN_BITS: u32 = 40;
