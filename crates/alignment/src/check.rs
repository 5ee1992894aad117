//! Checks whether causality holds between the traces, before and after their clocks are corrected.
//!
//! If any clock is known, traces with an unknown clock are left out of the verdict. Files that
//! several traces were merged into are left out too: their parts do not state their rank, so two
//! ranks' parts would be taken for one's.

use std::path::Path;

use crate::Error;
use probe_sync_estimate::series::{Place, TimeMap};
use probe_sync_formats::model::{MappedTime, UNIX_TIME_MIN_PS};
use serde::Serialize;

use crate::calibrated::{Calibrated, CalibratedTrace};
use crate::clocks::{Extrapolated, NodeClock};
use crate::collectives::{self, CheckOptions, CheckReport, MapTime, Outcome, Pairing};
use crate::early_devices;
use crate::held_out::HeldOut;
use crate::nodes;
use crate::omitted::Omitted;
use crate::outputs;
use crate::paired::pairing;

/// The verdict on a set of traces.
#[derive(Debug)]
pub struct Verdict<'a> {
    calibrated: &'a Calibrated,
    pairing: Pairing,
    /// True if each operation was judged by clocks that were determined from the others.
    is_held_out: bool,
    /// Check of the times as recorded, if the corrected times are checked too.
    pub before: Option<CheckReport>,
    /// The decisive check.
    pub result: CheckReport,
}

/// Judges happens-before order on the times as recorded and, if clocks are known, on the corrected
/// ones.
///
/// ```
/// use probe_sync_alignment::{Request, calibrate, check};
///
/// // An all-reduce ends nowhere before it has begun everywhere, but rank 0 left it at 20 µs and rank 1 came at 1000 µs.
/// let folder = tempfile::tempdir()?;
/// let write = |rank: u32, ts: u32| {
///     let args = r#""Collective name": "allreduce", "Process Group Name": "0", "Seq": 7, "Process Group Ranks": "[0, 1]""#;
///     let event = format!(r#"{{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0, "tid": 7, "ts": {ts}, "dur": 10, "args": {{{args}}}}}"#);
///     let path = folder.path().join(format!("rank{rank}.json"));
///     let document = format!(r#"{{"distributedInfo": {{"rank": {rank}, "world_size": 2}}, "traceEvents": [{event}]}}"#);
///     std::fs::write(&path, document).map(|()| path)
/// };
/// let calibrated = calibrate(&Request { traces: vec![write(0, 10)?, write(1, 1000)?], ..Request::default() })?;
/// let verdict = check(&calibrated);
/// assert_eq!((verdict.result.edges, verdict.result.violations()), (2, 1), "{}", verdict.text());
/// assert_eq!(verdict.result.worst_ns, 980_000.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check(calibrated: &Calibrated) -> Verdict<'_> {
    let single = || calibrated.traces.iter().filter(|calibrated| !calibrated.trace.facts.merged);
    let traces: Vec<_> = single().map(|calibrated| &calibrated.trace).collect();
    let known = single().any(|of| of.map.is_some());
    let pairing = pairing(calibrated);
    let judge = |maps: &[Option<Box<MapTime<'_>>>]| {
        nodes::with_collectives(&traces, maps, |nodes| collectives::check(nodes, &pairing, &CheckOptions::default()))
    };
    let unrelated = calibrated.is_of_several_boots();
    let raw = || judge(&single().map(|of| as_is(of, unrelated)).collect::<Vec<_>>());
    let held_out = HeldOut::learn(calibrated, &pairing);
    let maps = || match &held_out {
        Some(held_out) => (0..calibrated.traces.len()).map(|place| Some(held_out.look(place))).collect::<Vec<_>>(),
        None => single().map(CalibratedTrace::look).collect(),
    };
    // What was aligned before says how surely.
    let aligned = single().all(|of| of.trace.facts.aligned_sigma_ns.is_some());
    let (before, mut result) = match known {
        true => (Some(raw()), judge(&maps())),
        false => (None, if aligned { judge(&maps()) } else { raw() }),
    };
    // What is left out is not judged: no success without it.
    let left_out = calibrated.traces.iter().filter(|trace| trace.trace.facts.merged || (known && trace.map.is_none()));
    result.unjudged_parts += left_out.map(|trace| trace.trace.facts.collectives.len()).sum::<u64>();
    let is_held_out = held_out.is_some();
    Verdict { calibrated, pairing, before, result, is_held_out }
}

/// Returns a trace's times as recorded. Times on a clock that counts from boot cannot be compared
/// with those of other hosts (`unrelated`).
fn as_is(calibrated: &CalibratedTrace, unrelated: bool) -> Option<Box<MapTime<'_>>> {
    let has_raw = !calibrated.trace.facts.since_boot.is_empty();
    Some(Box::new(move |at| {
        let own_sigma_ns = if has_raw && at < UNIX_TIME_MIN_PS { f64::INFINITY } else { 0.0 };
        let sigma_ns = if unrelated { f64::INFINITY } else { own_sigma_ns };
        MappedTime { at, sigma_ns, own_sigma_ns, early_by_ns: 0.0 }
    }))
}

impl Verdict<'_> {
    /// Returns the outcome.
    pub fn outcome(&self) -> Outcome {
        self.result.outcome()
    }

    /// Returns the verdict in a sentence, the worst broken edges, and a table of operations.
    pub fn text(&self) -> String {
        collectives::table(self.before.as_ref(), &self.result)
    }

    /// Returns the verdict, the worst broken edges and the table of operations; one line counts
    /// what could not be judged.
    pub fn brief(&self) -> String {
        collectives::brief(self.before.as_ref(), &self.result)
    }

    /// Returns one line per broken edge, with its times and uncertainty.
    pub fn details(&self) -> String {
        collectives::details(&self.result)
    }

    /// Returns what limits the verdict: traces that were omitted, extend beyond the measured
    /// offsets, or have devices with early times.
    pub fn remarks(&self) -> Vec<String> {
        let known = self.before.is_some();
        let remark = |CalibratedTrace { trace, map, clock, measured, .. }: &CalibratedTrace| {
            let beyond = |map: &TimeMap, time: i128| {
                let offsets = |clock: &NodeClock| clock.extrapolated(time, *measured) == Extrapolated::Offsets;
                map.map(time).place != Place::Inside && clock.as_ref().is_none_or(offsets)
            };
            let text = match (map, trace.facts.span) {
                _ if trace.facts.merged => {
                    "skipped because several traces were merged into it; check the original traces"
                }
                (None, _) if known => "skipped because its clock is unknown",
                (Some(map), Some((first, last))) if beyond(map, first) && beyond(map, last) => {
                    "lies beyond the measured offsets, so its times are extrapolated"
                }
                _ => return None,
            };
            Some(format!("{} {text}", trace.path.display()))
        };
        let pairing = self.pairing.notes().into_iter().chain(self.pairing.is_refuted().then(|| REFUTED.to_owned()));
        let learnt =
            self.calibrated.collectives.is_some().then(|| if self.is_held_out { HELD_OUT } else { LEARNT }.to_owned());
        learnt
            .into_iter()
            .chain(pairing)
            .chain(self.calibrated.traces.iter().filter_map(remark))
            .chain(self.early_devices())
            .collect()
    }

    /// Lists traces whose launches show that a device's times are early. This does not affect the
    /// verdict: how early other kernels are is unknown, and an allowance could hide a wrong clock.
    fn early_devices(&self) -> Option<String> {
        let traces = self.calibrated.traces.iter().map(|of| &of.trace);
        let found = traces.map(|trace| (trace.path.display().to_string(), trace.facts.before_launch()));
        early_devices::told(found, "a broken edge there may be caused by this and not by a clock")
    }

    /// Writes both checks as JSON, together with the sums that the XLA distributed profiler's
    /// `validate_collectives.py` writes: `violations` are broken edges that uncertainty does not
    /// explain, `overlaps` all other edges, `warnings` what could not be judged, `gap_count` and
    /// `avg_gap_ns` the starts of operations of all ranks.
    ///
    /// # Errors
    /// Fails if the file would overwrite an input or cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        self.calibrated.refuse_overwriting(&[path.to_owned()])?;
        outputs::write_json(path, &self.document())
    }

    /// Returns the document that [`Self::write`] writes.
    pub fn document(&self) -> VerdictDocument<'_> {
        let result = &self.result;
        VerdictDocument {
            schema: VERDICT_SCHEMA,
            before: self.before.as_ref(),
            result,
            violations: result.violations(),
            overlaps: result.edges - result.violations(),
            warnings: result.ambiguous_instances as u64 + result.unjudged_edges as u64 + result.unjudged_parts,
            gap_count: result.start_gaps,
            avg_gap_ns: result.start_gap_mean_ns,
            omitted: self.calibrated.omitted(),
        }
    }
}

/// Output of `probe_sync check --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerdictDocument<'a> {
    /// Version of this document; raised when a field is removed or changes its meaning.
    schema: u32,
    /// Check of the times as recorded, if the corrected times are checked too.
    before: Option<&'a CheckReport>,
    /// The decisive check.
    result: &'a CheckReport,
    /// Broken edges that uncertainty does not explain.
    violations: usize,
    /// All other edges judged.
    overlaps: usize,
    /// Edges and parts that could not be judged.
    warnings: u64,
    /// Operations whose starts are known on all ranks.
    gap_count: usize,
    /// Mean over these operations of the latest start minus the earliest, ns.
    avg_gap_ns: f64,
    /// Traces and events that were not examined.
    omitted: Omitted,
}

const VERDICT_SCHEMA: u32 = 2;
const LEARNT: &str =
    "the clocks were estimated from these same operations, so only a broken edge says something about the clocks";
const HELD_OUT: &str =
    "the clocks were estimated from the operations: each operation is checked against the estimate from the other half";
const REFUTED: &str = "no pairing of the operations is consistent with these clocks: a clock is wrong, or a trace is assigned to the \
    wrong node; the pairing with the fewest broken edges is shown";

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::{ClockSource, MergeSettings, Request, calibrate, merge};

    const GROUPS: [&str; 2] = ["[0, 1, 2]", "[0, 2]"];

    /// Trace of rank `rank` of three, whose clock is 1 ms ahead of the previous rank's: sums in the
    /// group of all, and sums without a number that may belong to either group.
    fn trace(folder: &Path, rank: u32) -> PathBuf {
        let kernel = |name: &str, ts: u32, args: &str| {
            let ts = ts + 1000 * rank;
            format!(
                r#"{{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_{name}", "pid": 0, "tid": 7, "ts": {ts}, "dur": 50, "args": {{{args}}}}}"#
            )
        };
        let numbered = |number: u32| {
            let ranks = GROUPS[0];
            let args = format!(
                r#""Collective name": "allreduce", "Process Group Name": "0", "Seq": {number}, "Process Group Ranks": "{ranks}""#
            );
            kernel("AllReduce_Sum_f32_RING_LL", 100 * number, &args)
        };
        let mut events: Vec<String> = (1..=3).map(numbered).collect();
        events.push(kernel(
            "AllReduce_Sum_f32_RING_LL",
            500,
            r#""Collective name": "allreduce", "In msg nelems": 4, "dtype": "Float""#,
        ));
        let groups = GROUPS.iter().zip(0..).filter(|(ranks, _)| ranks.contains(&rank.to_string()));
        let listed = groups.map(|(ranks, name)| format!(r#"{{"pg_name": "{name}", "ranks": {ranks}}}"#));
        let listed = listed.collect::<Vec<_>>().join(", ");
        let head = format!(r#""distributedInfo": {{"rank": {rank}, "world_size": 3, "pg_config": [{listed}]}}"#);
        let path = folder.join(format!("rank{rank}.json"));
        let events = events.join(", ");
        std::fs::write(&path, format!(r#"{{{head}, "baseTimeNanoseconds": 0, "traceEvents": [{events}]}}"#))
            .expect("written");
        path
    }

    #[test]
    fn a_merged_file_is_not_judged_and_the_traces_in_it_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let traces: Vec<PathBuf> = (0..3).map(|rank| trace(folder.path(), rank)).collect();
        let row = |node: i64| format!("{node},0,{0},1\n{node},90000000,{0},1\n", node * 1_000_000);
        let offsets = format!("node,node_realtime_ns,offset_vs_node0_ns,sigma_ns\n{}{}", row(1), row(2));
        std::fs::write(at("offsets.csv"), offsets).expect("written");
        let clocks = ClockSource::Offsets(at("offsets.csv"));
        let request = |traces: &[PathBuf], nodes: Vec<u32>, clocks: ClockSource| Request {
            traces: traces.to_vec(),
            nodes,
            clocks,
            ..Request::default()
        };
        let calibrated = calibrate(&request(&traces, vec![0, 1, 2], clocks)).expect("clocks");
        let single = check(&calibrated);
        let found = (single.result.edges, single.result.broken, single.result.ambiguous_instances);
        assert_eq!(found, (9, 0, 1), "{}", single.text());
        assert_eq!(single.before.as_ref().map(|before| before.broken), Some(6), "{}", single.text());
        merge(&calibrated, &at("all.json"), MergeSettings::default()).expect("merged");

        // Alone, and beside a trace that is in it.
        for (paths, nodes) in [(vec![at("all.json")], vec![]), (vec![at("all.json"), traces[1].clone()], vec![])] {
            let again = calibrate(&request(&paths, nodes, ClockSource::Nothing)).expect("facts");
            let verdict = check(&again);
            let merged = again.traces.iter().find(|trace| trace.trace.facts.merged).expect("the merged file");
            assert_eq!(merged.trace.facts.collectives.len(), 12);
            let found = (verdict.result.edges, verdict.result.unjudged_parts, verdict.outcome());
            assert_eq!(found, (0, 12, Outcome::Incomplete), "{}", verdict.text());
            let remarks = verdict.remarks();
            assert!(
                remarks.len() == 1 && remarks[0].contains("all.json skipped because several traces"),
                "{remarks:?}"
            );
        }
        let refused = calibrate(&request(&[at("all.json"), traces[1].clone()], vec![], ClockSource::Collectives));
        let refused = refused.expect_err("no bounds").to_string();
        assert!(refused.contains("all.json") && refused.contains("merged"), "{refused}");
    }
}
