//! Turns a caller's request (traces, and a run or a file of offsets) into one time map per trace.
//!
//! [`align()`](crate::align()), [`merge()`](crate::merge()) and [`check()`](crate::check()) all
//! start here, for every front end. A [`Request`] says where the clocks come from; `source` reads
//! that, `nodes` reads the traces and matches them to nodes, `clocks` builds the maps, and
//! [`Calibrated`] is the result. Signs: `t_ref = t_i − offset_i`.
//!
//! It prints nothing: messages for the user are in the result's notes and warnings.

mod assignment;
mod length;
mod measured;
mod source;
mod traces;

use std::path::{Path, PathBuf};

use crate::Error;
use probe_sync_estimate::series::{Axis, OffsetSample, TimeMap};
use probe_sync_formats::model::{Picoseconds, TraceClock, TraceFacts};
use probe_sync_formats::words::counted;

use crate::calibrated::{Calibrated, CalibratedTrace, ONE_BOOT_PS};
use crate::clocks::{
    MarkBounds, NodeClock, Offsets, Snapshots, Span, Tie, Timeline, Wanted, map_of_pairs, node_clock, own_span,
};
use crate::collectives::{CollectiveOffsets, Half, MapTime, Shared};
use crate::nodes::{self, NodeTrace};
use crate::omitted::OmittedTrace;
use crate::request::{ClockSource, OutputClock, Request};
use length::length;
use measured::Measured;
use source::Source;
use traces::Traces;

/// Reads the traces' facts and learns their clocks.
///
/// ```
/// use probe_sync_alignment::{ClockSource, Request, calibrate};
///
/// let folder = tempfile::tempdir()?;
/// let (trace, offsets) = (folder.path().join("node1.json"), folder.path().join("offsets.csv"));
/// // One event at 10 ms of node 1's clock, which is 2.5 ms ahead of node 0's.
/// std::fs::write(&trace, r#"{"traceEvents": [{"ph": "X", "ts": 10000, "dur": 5, "name": "a"}]}"#)?;
/// std::fs::write(&offsets, "node,node_realtime_ns,offset_vs_node0_ns\n1,0,2500000\n1,90000000,2500000\n")?;
///
/// let request = Request {
///     traces: vec![trace],
///     nodes: vec![1],
///     clocks: ClockSource::Offsets(offsets),
///     ..Request::default()
/// };
/// let calibrated = calibrate(&request)?;
/// assert_eq!(calibrated.timeline, "system clock of node 0");
/// let map = calibrated.traces[0].map.as_ref().expect("node 1 has offsets");
/// assert_eq!(map.map(10_000_000_000).time_ps, 7_500_000_000); // picoseconds: 10 ms becomes 7.5 ms
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Names the file and the line or byte, or the parts of the request that are inconsistent. A node
/// without offsets is not an error: its trace has no map, and a note says so.
pub fn calibrate(request: &Request) -> Result<Calibrated, Error> {
    let source = Source::open(&request.clocks)?;
    let Traces { paths, read: mut traces, left_out, notes } = traces::read(request, &source)?;
    refuse_aligned(&traces, !matches!(source, Source::Nothing) || !request.snapshots.is_empty())?;
    let open = nodes::join_communicators(&mut traces);
    prepare(request, &source, &mut traces);
    let snapshots = traces::snapshots(request, &source, &paths, &mut traces)?;
    let mut calibrated = Calibrated {
        traces: Vec::with_capacity(traces.len()),
        method: source.method(),
        timeline: String::new(),
        notes,
        warnings: left_out.iter().map(|(_, bad)| format!("skipped: {bad}")).chain(traces::warnings(&traces)).collect(),
        unread: left_out.iter().map(omitted).collect(),
        collectives: None,
        hosts: source.survey().map(|survey| survey.hostnames.clone()).unwrap_or_default(),
        has_source: !matches!(source, Source::Nothing),
        // Those that were left out are nobody's outputs either.
        inputs: request.snapshots.iter().chain(&paths).cloned().collect(),
    };
    let offsets = match (source.offsets(wanted(&source, &traces, &snapshots))?, &source) {
        (Some(offsets), Source::Offsets(survey)) => {
            calibrated.inputs.push(survey.path.clone());
            offsets
        }
        (Some(offsets), _) => offsets,
        (None, Source::Collectives) => {
            let all: Vec<&NodeTrace> = traces.iter().collect();
            let pairs: Vec<Option<&Snapshots>> = snapshots.iter().map(Option::as_ref).collect();
            let found = offsets_of_collectives(&all, &pairs, request.max_rate_change_ppm, None)?;
            let mut offsets = as_offsets(&found);
            share_boot_clocks(&mut offsets, &mut traces, &snapshots);
            calibrated.warnings.extend(found.warning().map(str::to_owned));
            calibrated.collectives = Some(found);
            offsets
        }
        (None, _) => {
            let unknown = traces.into_iter().zip(snapshots);
            calibrated.traces = unknown.map(|(trace, snapshots)| CalibratedTrace::unknown(trace, snapshots)).collect();
            calibrated.notes.extend(open);
            calibrated.timeline = calibrated.common_clock().unwrap_or_else(|_| "each node's own clock".to_owned());
            return Ok(calibrated);
        }
    };
    calibrated.notes.extend(offsets.notes.iter().cloned());
    let by_part = calibrated.collectives.is_some();
    let measured = source.survey().map(|survey| Measured::new(survey, request.extrapolate));
    let of_reference = match (&source, request.timeline) {
        (Source::Run(run), OutputClock::Tracer) => run.snapshots(offsets.reference, None)?,
        _ => None,
    };
    let run = if let ClockSource::Run(directory) = &request.clocks { Some(directory.clone()) } else { None };
    let clocks = Clocks { offsets, snapshots, of_reference, by_part, run };
    make_maps(&mut calibrated, traces, &clocks, request, measured)?;
    join_by_clocks(&mut calibrated);
    if source.survey().is_some() {
        let contradicted = assignment::confirm(&calibrated, &clocks.offsets, request, &source, &paths)?;
        calibrated.warnings.extend(contradicted);
    }
    Ok(calibrated)
}

fn omitted((path, bad): &nodes::LeftOutFile) -> OmittedTrace {
    OmittedTrace { path: path.clone(), reason: bad.to_string() }
}

/// Drops clock pairs that the request does not want, and notes what the source lacks.
fn prepare(request: &Request, source: &Source, traces: &mut [NodeTrace]) {
    if request.realtime_only {
        traces.iter_mut().for_each(|trace| {
            trace.facts.pairs.clear();
            trace.facts.brackets.clear();
        });
    }
    if let Some(note) = source.live_only() {
        traces.iter_mut().for_each(|trace| trace.facts.notes.push(note.to_owned()));
    }
}

/// Joins the communicators that the traces' clocks distinguish, and notes those that stay open.
fn join_by_clocks(calibrated: &mut Calibrated) {
    let of_maps = calibrated.traces.iter_mut().map(|of| {
        let CalibratedTrace { trace, clock, .. } = of;
        let clock = clock.as_ref();
        let shared: Box<Shared<'_>> = Box::new(move |at| shared(clock?, at));
        (trace, shared)
    });
    let open = nodes::join_by_clocks(of_maps);
    calibrated.notes.extend(open);
}

/// A time on the common clock, and its possible error there, ps; `None` if unknown.
fn shared(clock: &NodeClock, at: Picoseconds) -> Option<(u32, Picoseconds, Picoseconds)> {
    let seen = clock.look(at);
    let off_ns = SURE_SIGMAS * seen.sigma_ns + seen.early_by_ns;
    off_ns.is_finite().then(|| (0, seen.at, (off_ns * 1e3).ceil() as Picoseconds))
}

/// Refuses clocks for times that are already on the common clock: they would be corrected a second
/// time.
fn refuse_aligned(traces: &[NodeTrace], clocks: bool) -> Result<(), Error> {
    let aligned = traces.iter().find_map(|trace| Some((trace, trace.facts.aligned_to.as_ref()?)));
    match aligned.filter(|_| clocks) {
        Some((trace, clock)) => {
            let path = trace.path.display();
            let problem = format!("{path} is already aligned, to the {clock}; give the trace that the profiler wrote");
            Err(Error::Nodes { problem })
        }
        None => Ok(()),
    }
}

/// The offsets that the traces need.
fn wanted(source: &Source, traces: &[NodeTrace], snapshots: &[Option<Snapshots>]) -> Wanted {
    let mut wanted = Wanted::default();
    for (trace, pairs) in traces.iter().zip(snapshots) {
        // A trace without events has a map too.
        let start = || source.survey()?.measured(trace.node).map(|span| Span { last_ns: span.first_ns, ..span });
        if let Some(span) = own_span(&trace.facts, pairs.as_ref()).or_else(start) {
            wanted.add(trace.node, span);
        }
    }
    wanted
}

/// Input for the maps.
struct Clocks {
    offsets: Offsets,
    /// In the order of the traces.
    snapshots: Vec<Option<Snapshots>>,
    /// Of the reference node, if its tracer clock is wanted.
    of_reference: Option<Snapshots>,
    /// The offsets are per rank, not per node.
    by_part: bool,
    /// Directory of the run, if one was named.
    run: Option<PathBuf>,
}

impl Clocks {
    fn number(&self, trace: &NodeTrace) -> u32 {
        if self.by_part { trace.rank_part } else { trace.node }
    }

    /// The clock on which the reference's trace stays if it counts from boot, since the offsets relate
    /// those.
    fn on_boot_clock(&self, traces: &[NodeTrace]) -> Result<Option<TraceClock>, Error> {
        let reference = |(_, trace): &(usize, &NodeTrace)| self.number(trace) == self.offsets.reference;
        let Some((index, trace)) = traces.iter().enumerate().find(reference) else { return Ok(None) };
        let boot = self.offsets.of_own_clocks && trace.facts.clock.counts_from_boot();
        let stays = boot && self.clock(index, trace, Timeline::Host)?.tie == Tie::Assumed;
        Ok(stays.then_some(trace.facts.clock))
    }

    fn clock(&self, index: usize, trace: &NodeTrace, timeline: Timeline<'_>) -> Result<NodeClock, Error> {
        let made =
            node_clock(&trace.facts, &self.offsets, self.number(trace), self.snapshots[index].as_ref(), timeline);
        made.map_err(|error| match (error, &self.run) {
            (Error::Untied { node, .. }, Some(run)) if self.snapshots[index].is_none() => {
                Error::Nodes { problem: lacks_pairs(trace, node, run) }
            }
            (error, _) => of_trace(trace, error),
        })
    }

    /// The map of the reference's tracer clock to its system clock: of its trace, else of the pairs
    /// that the run took.
    fn tracer_of_reference(&self, traces: &[NodeTrace]) -> Result<TimeMap, Error> {
        let reference = self.offsets.reference;
        if self.offsets.carried {
            let problem = format!(
                "--timeline tracer: node {reference}, the reference, was lost and another clock maintained its timeline, so its \
                tracer clock does not define the timeline; omit --timeline"
            );
            return Err(Error::Request { problem });
        }
        for (index, trace) in traces.iter().enumerate().filter(|(_, trace)| self.number(trace) == reference) {
            if let Some(tracer) = self.clock(index, trace, Timeline::Host)?.tracer {
                return Ok(tracer);
            }
        }
        let of_run = self.of_reference.as_ref().map(|pairs| map_of_pairs(&pairs.pairs)).transpose();
        let of_run = of_run.map_err(Error::clock(reference))?;
        of_run.flatten().map(|found| found.map).ok_or_else(|| {
            let problem = format!(
                "--timeline tracer: there are no pairs that relate the tracer clock of node {reference}, the reference, to its system \
                clock: give --run-dir of a run that took snapshot pairs, or that node's trace with its --snapshots"
            );
            Error::Request { problem }
        })
    }
}

/// Why a named run does not tie a trace on the boot clock: its node's pairs are not in the
/// directory.
fn lacks_pairs(trace: &NodeTrace, node: u32, run: &Path) -> String {
    let host = trace.facts.identity.hostname.as_ref().map_or_else(String::new, |host| format!(" ({host})"));
    let (kernel, tracer) = (trace.facts.clock.kernel_name(), trace.facts.clock.tracer_clocks());
    format!(
        "{}: its times are on {kernel}, but {} has no pairs for node {node}{host}. A run with --tracer-clock {} \
        collects them when it ends. If it failed or lost that node's rank, copy node{node}.snapshot_pairs.jsonl from snapshots/ of its \
        directory on the node's own host; if the run took none, relate the nodes with --from-collectives alone",
        trace.path.display(),
        run.join("snapshots").display(),
        tracer[0]
    )
}

fn make_maps(
    calibrated: &mut Calibrated,
    traces: Vec<NodeTrace>,
    clocks: &Clocks,
    request: &Request,
    mut measured: Option<Measured<'_>>,
) -> Result<(), Error> {
    let reference = clocks.offsets.reference;
    let tracer = match request.timeline {
        OutputClock::System => None,
        OutputClock::Tracer => Some(clocks.tracer_of_reference(&traces)?),
    };
    let (timeline, clock_name) = match &tracer {
        Some(map) => (Timeline::Tracer(Some(map)), "tracer clock"),
        None => (Timeline::Host, clocks.on_boot_clock(&traces)?.unwrap_or_default().name()),
    };
    calibrated.timeline = format!("{clock_name} of node {reference}");
    let mut mixed = MixedTies::default();
    for (index, trace) in traces.into_iter().enumerate() {
        let mut calibrated_trace = CalibratedTrace::unknown(trace, clocks.snapshots[index].clone());
        match clocks.clock(index, &calibrated_trace.trace, timeline) {
            Ok(clock) => {
                if let Some(measured) = &mut measured {
                    measured.look(&calibrated_trace.trace, &clock);
                }
                mixed.look(&clock);
                calibrated_trace.notes.extend(notes(&clock));
                if !request.snapshots.is_empty()
                    && clock.raw.is_none()
                    && matches!(clock.tie, Tie::Assumed | Tie::SameClock | Tie::SteadyClock | Tie::Trace)
                {
                    calibrated_trace.notes.push(UNUSED_SNAPSHOTS.to_owned());
                }
                calibrated_trace.map = Some(clock.chain.whole().clone());
                calibrated_trace.measured = match &calibrated.collectives {
                    Some(found) => learnt_in(found, calibrated_trace.trace.rank_part),
                    None => measured.as_ref().and_then(|known| known.of(calibrated_trace.trace.node)),
                };
                calibrated_trace.clock = Some(clock);
            }
            // Not an error where the caller can do without: merge asks, check leaves the node as it
            // is.
            Err(error @ Error::NoOffsets { .. }) => calibrated_trace.notes.push(error.to_string()),
            Err(error) => return Err(error),
        }
        calibrated.traces.push(calibrated_trace);
    }
    if mixed.differ() {
        calibrated.warnings.push(MIXED_TIES.to_owned());
    }
    measured.map_or(Ok(()), Measured::finish)
}

/// How all traces together are tied to their nodes' clocks.
#[derive(Default)]
struct MixedTies {
    assumed: bool,
    /// By pairs of any kind.
    tied: bool,
    /// By markers alone, whose times are early by the overhead of the tracers.
    early: bool,
    /// By brackets around marks, whose times are not early.
    marked: bool,
}

impl MixedTies {
    fn look(&mut self, clock: &NodeClock) {
        self.assumed |= clock.tie == Tie::Assumed;
        self.marked |= clock.marks.is_some();
        self.tied |= !matches!(clock.tie, Tie::Assumed | Tie::SameClock) && clock.marks.is_none();
        self.early |= clock.residuals.as_ref().is_some_and(|residuals| residuals.early_by_up_to_ns > 0.0);
    }

    fn differ(&self) -> bool {
        self.assumed && self.tied || self.marked && self.early
    }
}

/// Notes for the user about a node's clock.
fn notes(clock: &NodeClock) -> Vec<String> {
    let mut notes = clock.notes.clone();
    notes.extend(clock.marks.as_ref().map(|bounds| of_marks(clock.tie, bounds)));
    if let Some(residuals) = &clock.residuals {
        notes.push(format!(
            "matched {}: residual median {}, 95 % below {}, {}, {}",
            matched(residuals.bracketed, residuals.markers),
            length(residuals.median_ns),
            length(residuals.p95_ns),
            counted(residuals.outliers, "outlier"),
            counted(residuals.steps, "step")
        ));
    }
    if let Some(early) = clock.uncertainty.map(|uncertainty| uncertainty.early_by_up_to_ns).filter(|early| *early > 0.0)
    {
        notes.push(format!(
            "all times may be early by up to {}, the tracer's own delay, which is the same on all nodes",
            length(early)
        ));
    }
    notes
}

/// What relates a trace to the system clock.
fn matched(pairs: usize, markers: usize) -> String {
    let [of_pairs, of_markers] = [counted(pairs, "clock pair"), counted(markers, "clock marker")];
    match (pairs, markers) {
        (0, _) => of_markers,
        (_, 0) => of_pairs,
        _ => format!("{of_pairs} and {of_markers}"),
    }
}

/// What brackets around a trace's marks say about its map.
fn of_marks(tie: Tie, bounds: &MarkBounds) -> String {
    let MarkBounds { marks, apart, apart_by_ns, half_ns, all_ns } = *bounds;
    let (half, all) = (length(half_ns), length(all_ns));
    let surely = format!("residual at most {half} for half of them and {all} for all");
    if tie == Tie::SameClock {
        return format!("its times are system clock times, as all {marks} marks confirm; {surely}");
    }
    let by = length(apart_by_ns);
    let map = if tie == Tie::SteadyClock {
        "a constant fits all of them"
    } else {
        "the map passes through the midpoints of the readings"
    };
    format!(
        "its times are not system clock times: {apart} of {marks} marks lie outside the readings around them, by up to {by}; {map}, {surely}"
    )
}

/// A refusal of a trace's clock with its file: a node may have many.
fn of_trace(trace: &NodeTrace, error: Error) -> Error {
    match error {
        Error::Untied { problem, .. } => Error::Nodes { problem: format!("{}: {problem}", trace.path.display()) },
        error => error,
    }
}

/// Offsets from the collectives, with every trace on its node's own system clock, or on its boot
/// clock if nothing ties the two.
pub(crate) fn offsets_of_collectives(
    traces: &[&NodeTrace],
    snapshots: &[Option<&Snapshots>],
    max_rate_change_ppm: Option<f64>,
    half: Option<Half>,
) -> Result<CollectiveOffsets, Error> {
    let none = Offsets { of_own_clocks: true, ..Offsets::new(OF_COLLECTIVES, Axis::Reference) };
    let own = traces.iter().zip(snapshots).map(|(trace, snapshots)| {
        // As its own reference: the map ends at the node's own system clock.
        let made = node_clock(&trace.facts, &none, none.reference, *snapshots, Timeline::Host);
        made.map_err(|error| of_trace(trace, error))
    });
    let own: Vec<NodeClock> = own.collect::<Result<_, Error>>()?;
    let own: Vec<Option<Box<MapTime<'_>>>> = own.iter().map(|clock| Some(crate::calibrated::look(clock))).collect();
    nodes::offsets_from_collectives(traces, &own, max_rate_change_ppm, half)
}

/// The span, on a rank's clock, in which collectives provide information about it.
fn learnt_in(found: &CollectiveOffsets, part: u32) -> Option<Span> {
    let window = found.windows.get(found.windows.len() / 2)?;
    let offset_ns = window.nodes.iter().find(|node| node.node == part && node.reachable)?.offset_ns;
    let [first_ns, last_ns] = found.span_ns.map(|time| i128::from(time) + offset_ns as i128);
    Some(Span { first_ns, last_ns })
}

/// The same as offsets by rank.
pub(crate) fn as_offsets(found: &CollectiveOffsets) -> Offsets {
    let mut offsets = Offsets::new(OF_COLLECTIVES, Axis::Reference);
    offsets.of_own_clocks = true;
    offsets.reference = found.reference;
    for window in &found.windows {
        for node in window.nodes.iter().filter(|node| node.reachable) {
            let sample = OffsetSample {
                drift_ppm: Some(node.drift_ppm),
                sigma_ns: node.sigma_ns,
                drift_sigma_ppm: node.drift_sigma_ppm,
                ..OffsetSample::bare(window.reference_time_ns, node.offset_ns)
            };
            offsets.nodes.entry(node.node).or_default().push(sample);
        }
    }
    offsets
}

/// Assigns to a trace without information from collectives the clock of another trace of its host:
/// processes of one boot share its clock. `snapshots` are in the traces' order; if pairs tie a
/// trace to the system clock, its offsets are relative to that.
fn share_boot_clocks(offsets: &mut Offsets, traces: &mut [NodeTrace], snapshots: &[Option<Snapshots>]) {
    let on_boot_clock = |(trace, pairs): (&NodeTrace, &Option<Snapshots>)| {
        let TraceFacts { identity, clock, pairs: own, brackets, span, .. } = &trace.facts;
        let untied = clock.counts_from_boot() && own.is_empty() && brackets.is_empty() && pairs.is_none();
        Some(((identity.hostname.clone()?, *clock), span.filter(|_| untied)?.0))
    };
    let places: Vec<Option<((String, TraceClock), Picoseconds)>> =
        traces.iter().zip(snapshots).map(on_boot_clock).collect();
    let is_known = |part: u32| part == offsets.reference || offsets.nodes.contains_key(&part);
    let known: Vec<bool> = traces.iter().map(|trace| is_known(trace.rank_part)).collect();
    for at in (0..traces.len()).filter(|at| !known[*at]) {
        let Some((host, start)) = &places[at] else { continue };
        let same = |place: &Option<((String, TraceClock), Picoseconds)>| {
            place.as_ref().is_some_and(|(other, first)| other == host && (first - start).abs() < ONE_BOOT_PS)
        };
        let Some(other) = (0..traces.len()).find(|other| known[*other] && same(&places[*other])) else { continue };
        let of_reference = OffsetSample {
            drift_ppm: Some(0.0),
            drift_sigma_ppm: Some(0.0),
            sigma_ns: Some(0.0),
            ..OffsetSample::bare(0, 0.0)
        };
        let samples = offsets.nodes.get(&traces[other].rank_part).cloned().unwrap_or_else(|| vec![of_reference]);
        offsets.nodes.insert(traces[at].rank_part, samples);
        let note = format!(
            "no collective constrains its clock; using the clock of {}, on the same host",
            traces[other].path.display()
        );
        traces[at].facts.notes.push(note);
    }
}

/// No time is further off than this many standard deviations.
const SURE_SIGMAS: f64 = 6.0;
/// In place of a file name.
const OF_COLLECTIVES: &str = "collectives";
const UNUSED_SNAPSHOTS: &str =
    "the given snapshot pairs are for a different clock than the trace's times and have no effect";
const MIXED_TIES: &str = "some traces relate their times to the system clock by markers or snapshots and others do not, so they \
    differ by the tracers' own delay of 10 to 20 µs; --realtime-only treats all traces the same way";

#[cfg(test)]
mod tests;
