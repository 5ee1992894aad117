//! Judges whether causality holds between the traces, before and after their clocks are corrected.
//!
//! Place in the flow: after [`calibrate()`](crate::calibrate()); `collectives` does the judging. Traces whose clock is not known
//! are left out of the verdict where any clock is known. What it does not do: print, rewrite.

use std::path::Path;

use probe_sync_estimate::series::{Place, TimeMap};
use serde_json::json;

use crate::Error;
use crate::calibrate::{Calibrated, CalibratedTrace};
use crate::collectives::{self, CheckOptions, CheckReport, MapTime, Outcome};
use crate::model::{MappedTime, UNIX_TIME_MIN_PS};
use crate::nodes;
use crate::outputs;

/// The verdict on a set of traces.
#[derive(Debug)]
pub struct Verdict<'a> {
    calibrated: &'a Calibrated,
    /// The check of the times as they are in the files, where there is one of corrected times too.
    pub before: Option<CheckReport>,
    /// The check that counts.
    pub result: CheckReport,
}

/// Judges happens-before on the times as they are and, where clocks are known, on the corrected ones.
///
/// ```
/// use probe_sync_trace::{Request, calibrate, check};
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
    let judge = |maps: &[Option<Box<MapTime<'_>>>]| {
        let traces: Vec<_> = calibrated.traces.iter().map(|calibrated| &calibrated.trace).collect();
        nodes::with_collectives(&traces, maps, |nodes| collectives::check(nodes, &CheckOptions::default()))
    };
    let raw = judge(&calibrated.traces.iter().map(as_is).collect::<Vec<_>>());
    let maps: Vec<Option<Box<MapTime<'_>>>> = calibrated.traces.iter().map(CalibratedTrace::look).collect();
    if maps.iter().any(Option::is_some) {
        let mut result = judge(&maps);
        // What is left out because its clock is not known is not judged: no success without it.
        let left_out = calibrated.traces.iter().filter(|trace| trace.map.is_none());
        result.unjudged_parts += left_out.map(|trace| trace.trace.facts.collectives.len()).sum::<u64>();
        return Verdict { calibrated, before: Some(raw), result };
    }
    Verdict { calibrated, before: None, result: raw }
}

/// A trace's times as they are in the file. On a clock that counts from the machine's start they say nothing beside others.
fn as_is(calibrated: &CalibratedTrace) -> Option<Box<MapTime<'_>>> {
    let has_raw = !calibrated.trace.facts.since_boot.is_empty();
    Some(Box::new(move |at| {
        let sigma_ns = if has_raw && at < UNIX_TIME_MIN_PS { f64::INFINITY } else { 0.0 };
        MappedTime { at, sigma_ns, own_sigma_ns: sigma_ns, early_by_ns: 0.0 }
    }))
}

impl Verdict<'_> {
    /// What it comes to.
    pub fn outcome(&self) -> Outcome {
        self.result.outcome()
    }

    /// A table of operations, broken edges, and the verdict in a sentence.
    pub fn text(&self) -> String {
        collectives::table(self.before.as_ref(), &self.result)
    }

    /// What limits the verdict: traces that are left out or are beyond the measured offsets.
    pub fn remarks(&self) -> Vec<String> {
        if self.before.is_none() {
            return Vec::new();
        }
        let beyond = |map: &TimeMap, time: i128| map.map(time).place != Place::Inside;
        let remark = |CalibratedTrace { trace, map, .. }: &CalibratedTrace| {
            let text = match (map, trace.facts.span) {
                (None, _) => "left out: its clock is not known",
                (Some(map), Some((first, last))) if beyond(map, first) && beyond(map, last) => {
                    "is beyond the measured offsets: its times are extrapolated"
                }
                _ => return None,
            };
            Some(format!("{} {text}", trace.path.display()))
        };
        self.calibrated.traces.iter().filter_map(remark).collect()
    }

    /// Writes both checks as JSON.
    ///
    /// # Errors
    /// The file would overwrite an input, or cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        self.calibrated.refuse_overwriting(&[path.to_owned()])?;
        outputs::write_json(path, &json!({"before": self.before, "result": self.result}))
    }
}
