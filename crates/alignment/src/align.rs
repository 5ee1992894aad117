//! Rewrites every trace onto one clock, each in its own format.
//!
//! Both ends of every event pass through the map, so durations follow the clock too. A time on the
//! trace's timeline R becomes one on the reference clock by subtracting the correction: if node 1
//! is 2.5 ms ahead, its event at 10.0 ms is written at 7.5 ms. Formats whose viewers draw each node
//! from its own session start get one base for all nodes.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use crate::Error;
use probe_sync_files::NewFolders;
use probe_sync_formats::model::{ClockPair, PS_PER_NS, Picoseconds, TraceFacts};
use probe_sync_formats::{RewriteOptions, RewriteStats, refuse_other_ending, side_by_side, workers};

use crate::calibrated::{Calibrated, CalibratedTrace};
use crate::clocks::is_of_profilers;
use crate::counting::{AlignmentStats, Counting};
use crate::outputs;
use crate::provenance;

/// Options of an alignment.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct AlignSettings {
    /// Write each event's correction to the output, as `timestamp_correction_ns`.
    pub annotate: bool,
    /// Write the run's snapshot pairs to the output, as the plane `/host:snapshots` of an XSpace.
    /// Traces that already have this plane are refused: its content comes from the profiler, or was
    /// taken alongside it.
    pub embed_snapshots: bool,
    /// Replace invalid JSON values in traces, such as `NaN`; otherwise they are passed on and
    /// counted.
    pub repair: bool,
}

/// One trace written.
#[derive(Clone, Debug)]
pub struct Aligned<'a> {
    /// The input, its map and its notes.
    pub calibrated: &'a CalibratedTrace,
    /// The file written.
    pub output: PathBuf,
    /// Content of the statistics file.
    pub stats: AlignmentStats,
}

/// An alignment in progress, several traces at a time. Nothing is written before the first
/// [`Iterator::next`], and no further trace is started after an error.
#[derive(Debug)]
#[must_use = "traces are written as the iterator is driven"]
pub struct Aligning<'a> {
    calibrated: &'a Calibrated,
    outputs: Vec<PathBuf>,
    options: RewriteOptions<'static>,
    /// Pairs written to the output, by trace.
    snapshots: Vec<Vec<ClockPair>>,
    next: usize,
    /// Results that have not been returned yet; an error comes after everything written
    /// concurrently.
    done: VecDeque<Result<Aligned<'a>, Error>>,
    /// Outputs that are complete.
    written: Vec<PathBuf>,
    /// Removes a new output folder if it stays empty.
    _folders: NewFolders,
}

/// Aligns every trace into `output`: a file for a single trace, otherwise a directory, which is
/// created. Each output appears together with its statistics when it is complete. After an error no
/// further trace is started, and outputs already written remain.
///
/// ```
/// use probe_sync_alignment::{AlignSettings, ClockSource, Request, align, calibrate};
///
/// let folder = tempfile::tempdir()?;
/// let [trace, offsets, output] = ["node1.json", "offsets.csv", "aligned.json"].map(|name| folder.path().join(name));
/// std::fs::write(&trace, r#"{"baseTimeNanoseconds": 0, "traceEvents": [{"ph": "X", "ts": 10000, "dur": 5}]}"#)?;
/// std::fs::write(&offsets, "node,node_realtime_ns,offset_vs_node0_ns\n1,0,2500000\n1,90000000,2500000\n")?;
/// let clocks = ClockSource::Offsets(offsets);
/// let calibrated = calibrate(&Request { traces: vec![trace], nodes: vec![1], clocks, ..Request::default() })?;
///
/// for aligned in align(&calibrated, &output, AlignSettings::default())? {
///     // Smallest, median and largest correction, new time minus old, ns: node 1's clock is 2.5 ms ahead.
///     assert_eq!(aligned?.stats.correction_ns, Some([-2_500_000.0; 3]));
/// }
/// assert!(std::fs::read_to_string(&output)?.contains(r#""ts": 7500.000, "dur": 5"#)); // µs
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Fails if a trace's clock is unknown, or if outputs would overwrite an input or each other.
/// During iteration: errors of the formats, with file and byte offset, and of writing;
/// [`Error::Unfinished`] if other outputs have been written already, in which case these are
/// returned first.
pub fn align<'a>(calibrated: &'a Calibrated, output: &Path, settings: AlignSettings) -> Result<Aligning<'a>, Error> {
    if let Some(unknown) = calibrated.traces.iter().find(|trace| trace.map.is_none()) {
        let reason = unknown.notes.last().map_or("give --run-dir, --offsets or --from-collectives", String::as_str);
        return Err(calibrated.no_clock(format!("the clock of {} is unknown: {reason}", unknown.trace.path.display())));
    }
    let (outputs, folders) = outputs::for_each(&calibrated.traces, output)?;
    calibrated.refuse_overwriting(&outputs)?;
    let snapshots: Vec<Vec<ClockPair>> = if settings.embed_snapshots {
        calibrated.traces.iter().map(embedded).collect::<Result<_, _>>()?
    } else {
        vec![Vec::new(); outputs.len()]
    };
    let options = RewriteOptions {
        base_ns: common_base(&calibrated.traces)?,
        annotate: settings.annotate,
        repair: settings.repair,
        ..RewriteOptions::default()
    };
    Ok(Aligning {
        calibrated,
        outputs,
        options,
        snapshots,
        next: 0,
        done: VecDeque::new(),
        written: Vec::new(),
        _folders: folders,
    })
}

/// Returns the pairs for a trace's output: those taken during its recording, and within a minute of
/// it.
fn embedded(calibrated: &CalibratedTrace) -> Result<Vec<ClockPair>, Error> {
    let CalibratedTrace { trace, snapshots, .. } = calibrated;
    let refuse = |why: &str| {
        let problem = format!("--embed-snapshots: {}: {why}", trace.path.display());
        Err(Error::Request { problem })
    };
    if !trace.format.holds_snapshots() {
        return refuse("only an XSpace has a plane for snapshot pairs");
    }
    if trace.facts.has_snapshot_plane {
        return refuse("it already has a plane /host:snapshots; omit this flag to align it with that plane");
    }
    let Some(given) = snapshots.as_ref().filter(|given| !given.pairs.is_empty()) else {
        return refuse(
            "there are no snapshot pairs for its node; give --run-dir of a run that took them, or --snapshots",
        );
    };
    if let Some(clock) = given.clock.as_ref().filter(|clock| !is_of_profilers(clock)) {
        return refuse(&format!(
            "its pairs use the clock {clock}, but readers of the plane assume the profiler's clock"
        ));
    }
    let (first, last) = trace.facts.session.or(trace.facts.span).unwrap_or((Picoseconds::MIN, Picoseconds::MAX));
    let (from, until) = (first.saturating_sub(AROUND_PS), last.saturating_add(AROUND_PS));
    let near = |pair: &&ClockPair| (from..=until).contains(&(Picoseconds::from(pair.system_ns) * PS_PER_NS));
    match given.pairs.iter().filter(near).copied().collect::<Vec<_>>() {
        none if none.is_empty() => refuse("the snapshot pairs were all taken at a different time from the trace"),
        near => Ok(near),
    }
}

impl<'a> Iterator for Aligning<'a> {
    type Item = Result<Aligned<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done.is_empty() {
            let batch = self.next..self.outputs.len().min(self.next + workers());
            self.next = batch.end;
            let this = &*self;
            let done = side_by_side(batch.len(), |place| this.write(batch.start + place));
            self.take(done);
        }
        self.done.pop_front()
    }
}

impl<'a> Aligning<'a> {
    /// Adds the results of a batch: its outputs, then the first error, which lists what has been
    /// written and is the last item.
    fn take(&mut self, batch: Vec<Result<Aligned<'a>, Error>>) {
        let mut failed = None;
        for result in batch {
            match result {
                Ok(aligned) => {
                    self.written.push(aligned.output.clone());
                    self.done.push_back(Ok(aligned));
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let Some(error) = failed else { return };
        let (written, all) = (std::mem::take(&mut self.written), self.outputs.len());
        self.next = all;
        self.done.push_back(Err(match written.is_empty() {
            true => error,
            false => Error::Unfinished { written, all, source: Box::new(error) },
        }));
    }

    /// Writes one of the traces and its statistics.
    fn write(&self, trace: usize) -> Result<Aligned<'a>, Error> {
        let calibrated = &self.calibrated.traces[trace];
        let output = &self.outputs[trace];
        let metadata = provenance::of_trace(self.calibrated, calibrated);
        let TraceFacts { cpu_behind_ns, reach, .. } = calibrated.trace.facts;
        let options = RewriteOptions {
            snapshots: &self.snapshots[trace],
            metadata: &metadata,
            cpu_behind_ns,
            reach,
            ..self.options
        };
        let stats = write(calibrated, output, &options, self.outputs.len() > 1)?;
        Ok(Aligned { calibrated, output: output.clone(), stats })
    }
}

/// Writes one trace and its statistics.
fn write(
    calibrated: &CalibratedTrace,
    output: &Path,
    options: &RewriteOptions<'_>,
    several: bool,
) -> Result<AlignmentStats, Error> {
    let CalibratedTrace { trace, map, notes, clock, measured, .. } = calibrated;
    let map = map.as_ref().expect("align refuses traces without a map before it writes");
    refuse_other_ending(trace.format, output, [trace.path.as_path()])?;
    let mut counting = Counting::new(trace.facts.clock, map, clock.as_ref(), *measured);
    let rewritten = trace.format.rewrite(&trace.path, output, options, &mut |time| counting.map(time))?;
    let RewriteStats { events, left_out, base_ns, .. } = rewritten;
    let mut stats = AlignmentStats { events, left_out, base_ns, ..counting.stats(trace) };
    stats.notes.splice(0..0, notes.iter().chain(&rewritten.notes).cloned());
    outputs::write_statistics(output, several, &stats)?;
    Ok(stats)
}

/// Returns a common base if several nodes have a format that needs one, because viewers draw each
/// host from its own session start: the earliest start after mapping.
fn common_base(traces: &[CalibratedTrace]) -> Result<Option<i64>, Error> {
    let mixed = traces.windows(2).any(|pair| pair[0].trace.format != pair[1].trace.format);
    if traces.len() < 2 || mixed {
        return Ok(None);
    }
    let mut earliest: Option<i64> = None;
    for CalibratedTrace { trace, map, .. } in traces {
        if let Some((start_ns, map)) = trace.format.session_start_ns(&trace.path)?.zip(map.as_ref()) {
            let mapped = map.map(Picoseconds::from(start_ns) * 1000).time_ps.div_euclid(1000);
            let mapped = i64::try_from(mapped)
                .map_err(|_| Error::malformed(&trace.path, 0, "the mapped session start does not fit in 64 bits"))?;
            earliest = Some(earliest.map_or(mapped, |earliest| earliest.min(mapped)));
        }
    }
    Ok(earliest)
}

/// Snapshot pairs are taken every few seconds, so those shortly before and after the trace belong
/// to it too.
const AROUND_PS: Picoseconds = 60_000_000_000_000;
