//! The recorded job in this program, stamped with the clocks of a run.
//!
//! `examples/traces/torch` was recorded on four clocks whose errors are known. Those errors are
//! removed, the job is moved into the measured time, and the run's clocks are put in their place:
//! the files are what four nodes with such clocks would have written. Only JSON is used here, and
//! none of the code that is to mend the traces.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use probe_sync::Truth;
use probe_sync_files::NewFolders;
use probe_sync_time::{NodeId, Timestamp};
use serde_json::{Value, json};

use super::text::TimeError;
use crate::output::write_whole;

/// Traces of one job with their true times.
pub struct TraceSet {
    traces: Vec<Trace>,
}

/// A trace: its document, and the true time of each event that has one, ns since 1970.
struct Trace {
    document: Value,
    times_ns: Vec<i64>,
}

/// Traces as files on the clocks of a run.
pub struct Recorded {
    traces: Vec<(PathBuf, Vec<i64>)>,
}

impl TraceSet {
    /// Unpacks the traces and removes the known errors of the clocks they were recorded on.
    ///
    /// # Errors
    /// Returns an error if the embedded files are damaged.
    pub fn read() -> anyhow::Result<Self> {
        let errors = errors()?;
        let traces = TRACES.iter().zip(&errors).map(|(packed, error)| Trace::read(packed, error));
        Ok(Self { traces: traces.collect::<anyhow::Result<_>>()? })
    }

    /// Writes the traces as the clocks of a run would have stamped them, with the job in the middle
    /// of the measured span.
    ///
    /// # Errors
    /// Names the file that cannot be written.
    pub fn stamped(self, truth: &Truth, host: &str, middle_ns: i64, folder: &Path) -> anyhow::Result<Recorded> {
        let times = || self.traces.iter().flat_map(|trace| &trace.times_ns);
        let (first, last) = times().min().zip(times().max()).context("the embedded traces are empty")?;
        let shift_ns = middle_ns - (first + last) / 2;
        // Small numbers of µs keep their nanoseconds in JSON.
        let base_ns = first + shift_ns - 1_000_000_000;
        NewFolders::create(folder).with_context(|| format!("cannot create {}", folder.display()))?.keep();
        let mut traces = Vec::new();
        for (mut trace, node) in self.traces.into_iter().zip(0..) {
            trace.document["baseTimeNanoseconds"] = base_ns.into();
            trace.document["host_name"] = host.into();
            trace.state_rank(node)?;
            for (event, time_ns) in timed(&mut trace.document).zip(&mut trace.times_ns) {
                *time_ns += shift_ns;
                // The run's reference is node 0, whose clock is the true one.
                let error_ns = truth.offset_ns(NodeId(node), Timestamp::from_ns(*time_ns)).unwrap_or_default();
                let shown_us = ((*time_ns - base_ns) as f64 + error_ns.round()) / 1e3;
                event["ts"] = shown_us.into();
            }
            let path = folder.join(format!("rank{node}.pt.trace.json"));
            write_whole(&path, &serde_json::to_vec(&trace.document)?)?;
            traces.push((path, trace.times_ns));
        }
        Ok(Recorded { traces })
    }
}

impl Recorded {
    /// The files, by rank.
    pub fn files(&self) -> Vec<PathBuf> {
        self.traces.iter().map(|(path, _)| path.clone()).collect()
    }

    /// Compares the times of aligned files with the true ones.
    ///
    /// # Errors
    /// Returns an error if an aligned file cannot be read, or does not have the events of its
    /// input.
    pub fn compare(&self, aligned: &[(PathBuf, PathBuf)]) -> anyhow::Result<TimeError> {
        let mut errors_ns = Vec::new();
        for (input, output) in aligned {
            let (_, times_ns) = self.traces.iter().find(|(path, _)| path == input).context("a trace of this job")?;
            let text = std::fs::read(output).with_context(|| format!("cannot read {}", output.display()))?;
            let mut document: Value = serde_json::from_slice(&text)?;
            let base_ns = base_ns(&document)?;
            let shown: Vec<i64> = timed(&mut document).filter_map(|event| shown_ns(event, base_ns)).collect();
            ensure!(shown.len() == times_ns.len(), "{} lacks events of its input", output.display());
            errors_ns.extend(shown.iter().zip(times_ns).map(|(shown, time)| (shown - time).abs()));
        }
        errors_ns.sort_unstable();
        let worst_ns = errors_ns.last().copied().context("the aligned traces have no events")?;
        Ok(TimeError { times: errors_ns.len(), median_ns: errors_ns[errors_ns.len() / 2], worst_ns })
    }
}

impl Trace {
    fn read(packed: &[u8], error: &[(i64, i64)]) -> anyhow::Result<Self> {
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(packed).read_to_end(&mut text)?;
        let mut document: Value = serde_json::from_slice(&text)?;
        let base_ns = base_ns(&document)?;
        // These state readings of the clock that is taken away.
        let events = document["traceEvents"].as_array_mut().context("a trace without events")?;
        events.retain(|event| !event["name"].as_str().is_some_and(|name| name.starts_with("clkmark#")));
        let true_ns = |shown_ns: i64| shown_ns - error_at(error, shown_ns);
        let times_ns = timed(&mut document).filter_map(|event| shown_ns(event, base_ns)).map(true_ns).collect();
        Ok(Self { document, times_ns })
    }

    /// Adds the event by which a trace states its rank in the run: all ranks are on one host.
    fn state_rank(&mut self, rank: u32) -> anyhow::Result<()> {
        let events = self.document["traceEvents"].as_array_mut().context("a trace without events")?;
        let name = format!("probe_sync.rank#{rank}/{}", TRACES.len());
        events.push(
            json!({ "ph": "X", "cat": "user_annotation", "name": name, "pid": 0, "tid": 0, "ts": 0.0, "dur": 1.0 }),
        );
        self.times_ns.push(self.times_ns.iter().copied().min().context("a trace without times")?);
        Ok(())
    }
}

/// The errors of the clocks that the traces were recorded on, by node: clock reading, and clock
/// minus true time, ns.
fn errors() -> anyhow::Result<[Vec<(i64, i64)>; TRACES.len()]> {
    let mut errors = [const { Vec::new() }; TRACES.len()];
    for row in csv::Reader::from_reader(OFFSETS).deserialize() {
        let (node, shown_ns, error_ns): (usize, i64, i64) = row?;
        errors.get_mut(node).context("a node of the embedded traces")?.push((shown_ns, error_ns));
    }
    Ok(errors)
}

/// The error at a clock reading: interpolated linearly between the known errors, constant before
/// and after them.
fn error_at(known: &[(i64, i64)], shown_ns: i64) -> i64 {
    let next = known.partition_point(|(at, _)| *at <= shown_ns);
    match (next.checked_sub(1).and_then(|last| known.get(last)), known.get(next)) {
        (Some((from, before)), Some((to, after))) => {
            let share = (shown_ns - from) as f64 / (to - from) as f64;
            before + ((after - before) as f64 * share).round() as i64
        }
        (Some((_, error)), None) | (None, Some((_, error))) => *error,
        (None, None) => 0,
    }
}

fn base_ns(document: &Value) -> anyhow::Result<i64> {
    document["baseTimeNanoseconds"].as_i64().context("a trace without baseTimeNanoseconds")
}

/// The events that have a time.
fn timed(document: &mut Value) -> impl Iterator<Item = &mut Value> {
    let events = document["traceEvents"].as_array_mut().into_iter().flatten();
    events.filter(|event| event["ts"].is_number() && event["ph"] != "M")
}

fn shown_ns(event: &Value, base_ns: i64) -> Option<i64> {
    Some(base_ns + (event["ts"].as_f64()? * 1e3).round() as i64)
}

const TRACES: [&[u8]; 4] = [
    include_bytes!("../../../../examples/traces/torch/node0.pt.trace.json.gz"),
    include_bytes!("../../../../examples/traces/torch/node1.pt.trace.json.gz"),
    include_bytes!("../../../../examples/traces/torch/node2.pt.trace.json.gz"),
    include_bytes!("../../../../examples/traces/torch/node3.pt.trace.json.gz"),
];
const OFFSETS: &[u8] = include_bytes!("../../../../examples/traces/torch/offsets.csv");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_errors_are_removed_from_the_embedded_traces() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let set = TraceSet::read().expect("the embedded traces");
        // Clocks that are right.
        let traces = set.stamped(&Truth::default(), "host", 1_795_000_000_000_000_000, folder.path()).expect("written");
        let request =
            probe_sync_alignment::Request { traces: traces.files(), ..probe_sync_alignment::Request::default() };
        let calibrated = probe_sync_alignment::calibrate(&request).expect("four traces");
        let result = probe_sync_alignment::check(&calibrated).result;
        assert_eq!((result.edges, result.broken), (92, 0));
    }

    #[test]
    fn errors_between_known_ones_are_on_a_line() {
        let known = [(100, 10), (200, 20)];
        let found = [0, 100, 150, 200, 900].map(|at| error_at(&known, at));
        assert_eq!(found, [10, 10, 15, 20, 20]);
    }
}
