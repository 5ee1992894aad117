//! Joins the consecutive traces of a rank into one: a repeating schedule, directories of
//! iterations, and restarts leave several.
//!
//! A restarted process counts its operations from the beginning, so numbers that an earlier trace
//! already used are shifted.

use std::collections::{BTreeMap, HashMap};

use super::trace::NodeTrace;
use crate::collectives::MapTime;
use crate::model::parts::{CollectiveParts, Spill};
use crate::model::{GroupKey, Label, Picoseconds, Steps};

/// The places of the traces of each rank, in the order of time.
pub(crate) fn of_ranks(traces: &[&NodeTrace]) -> Vec<Vec<usize>> {
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

/// What several traces of a rank hold together.
pub(super) struct Joined<'a> {
    pub(super) parts: CollectiveParts,
    pub(super) groups: &'a [GroupKey],
    pub(super) steps: Steps,
    /// When each trace but the first begins, on its own timeline.
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

    /// Times through the map of the trace that they are of.
    pub(super) fn map<'m>(&'m self, maps: Vec<&'m MapTime<'m>>) -> Box<MapTime<'m>> {
        Box::new(move |time| {
            let trace = self.begins.iter().filter(|begin| **begin <= time).count().min(maps.len() - 1);
            maps[trace](time)
        })
    }
}

/// By how much numbers are moved on with each trace: no process counts so far.
const AGAIN_BITS: u32 = 40;

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use crate::{LatenessSettings, MergeSettings, Request, calibrate, check, lateness, merge};

    /// A trace of three all-reduces, the `span`-th of its rank; rank 1 is 300 µs late to each. A
    /// process that was started again counts from 1 again.
    fn trace(folder: &Path, rank: u32, span: u32, first_number: u32) -> PathBuf {
        let all_reduce = |number: u32| {
            let ts = span * 3_000_000 + number * 10_000 + rank * 300;
            let args = format!(
                r#""Collective name": "allreduce", "Process Group Name": "0", "Seq": {}, "Process Group Ranks": "[0, 1]""#,
                first_number + number
            );
            format!(
                r#"{{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 7, "ts": {ts}, "dur": {}, "args": {{{args}}}}}"#,
                400 - rank * 300
            )
        };
        let path = folder.join(format!("rank{rank}.{span}.pt.trace.json"));
        let events: Vec<String> = (1..=3).map(all_reduce).collect();
        let document = format!(
            r#"{{"distributedInfo": {{"rank": {rank}, "world_size": 2}}, "host_name": "a", "traceEvents": [{}]}}"#,
            events.join(",")
        );
        std::fs::write(&path, document).expect("writable");
        path
    }

    #[test]
    fn traces_of_one_rank_that_follow_each_other_are_one_rank() {
        // Numbers that go on, and numbers of a process that was started again.
        for second in [3, 0] {
            let folder = tempfile::tempdir().expect("a folder");
            let of = |rank, span| trace(folder.path(), rank, span, span * second);
            let traces = vec![of(1, 1), of(0, 0), of(0, 1), of(1, 0)];
            let calibrated = calibrate(&Request { traces, ..Request::default() }).expect("four traces of two ranks");
            let verdict = check(&calibrated);
            let result = &verdict.result;
            assert_eq!((result.edges, result.broken, result.ambiguous_instances), (12, 0, 0), "{}", verdict.text());
            let late = lateness(&calibrated, &LatenessSettings::default()).expect("one clock");
            let last: Vec<_> = late.instances.iter().map(|instance| (instance.last_rank, instance.lead_ns)).collect();
            assert_eq!(last, [(Some(1), 300_000); 6]);
            let titles: Vec<String> = calibrated.traces.iter().map(|of| of.trace.title()).collect();
            assert_eq!(titles, ["rank 0 · a", "rank 0, span 2 · a", "rank 1 · a", "rank 1, span 2 · a"]);
            let settings = MergeSettings { allow_uncalibrated: true, ..MergeSettings::default() };
            let report = merge(&calibrated, &folder.path().join("all.json"), settings).expect("merged");
            assert_eq!(report.traces.iter().map(|trace| trace.events).collect::<Vec<_>>(), [3; 4]);
        }
    }
}
