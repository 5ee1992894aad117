//! `align`, `merge` and `check`: traces onto one clock, and the proof that causality holds there.
//!
//! All three learn the clocks in the same way ([`calibrate`]): from a run's directory, from a file of offsets, or from the
//! collectives themselves. What it does not do: anything to a trace itself (crate `trace`).

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use probe_sync_estimate::series::{Axis, OffsetSample, Place, TimeMap};
use probe_sync_trace::align::{AlignOptions, AlignmentStats, align};
use probe_sync_trace::clocks::{NodeClock, Offsets, RunDirectory, Tie, Timeline, node_clock, read_snapshots};
use probe_sync_trace::collectives::{CheckOptions, CheckReport, check, table};
use probe_sync_trace::formats::xspace::{self, PlaneLayout};
use probe_sync_trace::formats::{FactOptions, Format};
use probe_sync_trace::merge::{MergeOptions, merge};
use probe_sync_trace::model::ClockPair;
use probe_sync_trace::nodes::{self, KnownNodes, NodeTrace};

use crate::Usage;
use crate::args::{AlignArgs, CheckArgs, MergeArgs, TraceArgs};

/// Violations were found; everything was printed.
#[derive(Copy, Clone, Debug)]
pub struct Violations(pub usize);

impl std::fmt::Display for Violations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} happens-before edges are broken beyond what the clocks' uncertainty explains", self.0)
    }
}

impl std::error::Error for Violations {}

/// Traces with the maps from their timelines to the reference clock.
struct Calibrated {
    traces: Vec<NodeTrace>,
    /// `None` where the node's clock is not known.
    maps: Vec<Option<TimeMap>>,
    /// What the user should know, by trace.
    notes: Vec<Vec<String>>,
    /// How the clocks were learnt.
    method: String,
    /// Which clock the times are on afterwards.
    timeline: String,
}

/// Rewrites every trace in its own format.
///
/// # Errors
/// Names the trace; traces written before stay.
pub fn run_align(arguments: &AlignArgs) -> anyhow::Result<()> {
    let calibrated = calibrate(&arguments.input, &[])?;
    let clocks = calibrated.traces.iter().zip(&calibrated.maps).zip(&calibrated.notes);
    if let Some(((trace, _), notes)) = clocks.clone().find(|((_, map), _)| map.is_none()) {
        let reason = notes.last().map_or("give --run-dir, --offsets or --from-collectives", String::as_str);
        bail!("no clock is known for {}: {reason}", trace.path.display());
    }
    let outputs = outputs(&calibrated.traces, &arguments.output)?;
    refuse_overwriting(&arguments.input, &calibrated.traces, &outputs)?;
    let base_ns = common_base(&calibrated)?;
    for (((trace, map), notes), output) in
        calibrated.traces.iter().zip(&calibrated.maps).zip(&calibrated.notes).zip(&outputs)
    {
        let Some(map) = map else { continue };
        let options = AlignOptions { base_ns, annotate: arguments.annotate };
        let mut stats = align(&trace.path, trace.format, output, map, options)?;
        stats.notes.splice(0..0, notes.iter().cloned());
        let beside = if outputs.len() > 1 { in_folder(output)? } else { beside(output, STATISTICS) };
        probe_sync::files::write_whole(&beside, format!("{}\n", serde_json::to_string_pretty(&stats)?).as_bytes())?;
        crate::print(&summary(trace, output, &stats))?;
    }
    Ok(())
}

/// Puts all traces into one file.
///
/// # Errors
/// Names the trace; [`Violations`] with `--validate`.
pub fn run_merge(arguments: &MergeArgs) -> anyhow::Result<()> {
    let calibrated = calibrate(&arguments.input, std::slice::from_ref(&arguments.output))?;
    refuse_overwriting(&arguments.input, &calibrated.traces, std::slice::from_ref(&arguments.output))?;
    let options = MergeOptions {
        layout: if arguments.plane_layout == "gpu-tracks" { PlaneLayout::GpuTracks } else { PlaneLayout::Xprof },
        allow_uncalibrated: arguments.allow_uncalibrated,
        annotate: arguments.annotate,
        method: calibrated.method.clone(),
        timeline: calibrated.timeline.clone(),
    };
    let mut report = merge(&calibrated.traces, &calibrated.maps, &arguments.output, &options)?;
    for (stats, notes) in report.traces.iter_mut().zip(&calibrated.notes) {
        stats.notes.splice(0..0, notes.iter().cloned());
    }
    let stats = beside(&arguments.output, STATISTICS);
    probe_sync::files::write_whole(&stats, format!("{}\n", serde_json::to_string_pretty(&report)?).as_bytes())?;
    for (trace, stats) in calibrated.traces.iter().zip(&report.traces) {
        crate::print(&summary(trace, &arguments.output, stats))?;
    }
    if arguments.validate { verdict(&calibrated, None) } else { Ok(()) }
}

/// Judges happens-before, before and after correction where clocks are known.
///
/// # Errors
/// [`Violations`].
pub fn run_check(arguments: &CheckArgs) -> anyhow::Result<()> {
    let calibrated = calibrate(&arguments.input, &[])?;
    if let Some(json) = &arguments.json {
        refuse_overwriting(&arguments.input, &calibrated.traces, std::slice::from_ref(json))?;
    }
    verdict(&calibrated, arguments.json.as_deref())
}

/// Where the clocks are learnt from.
enum Source {
    Run(Box<RunDirectory>),
    Offsets(Offsets),
    Collectives,
    Nothing,
}

impl Source {
    fn of(arguments: &TraceArgs) -> anyhow::Result<Self> {
        Ok(match (&arguments.run_dir, &arguments.offsets, arguments.from_collectives) {
            (Some(directory), ..) => Self::Run(Box::new(RunDirectory::open(directory)?)),
            (None, Some(file), _) => Self::Offsets(Offsets::read(file, None)?),
            (None, None, true) => Self::Collectives,
            (None, None, false) => Self::Nothing,
        })
    }

    fn offsets(&self) -> Option<&Offsets> {
        match self {
            Self::Run(run) => Some(&run.offsets),
            Self::Offsets(offsets) => Some(offsets),
            Self::Collectives | Self::Nothing => None,
        }
    }

    /// The nodes with offsets, and their hosts.
    fn known(&self) -> KnownNodes {
        let Some(offsets) = self.offsets() else { return KnownNodes::default() };
        // The reference has an offset by definition.
        let nodes = offsets.nodes.keys().copied().chain([REFERENCE]).collect();
        KnownNodes { nodes, hosts: offsets.hostnames.clone() }
    }

    fn method(&self) -> &'static str {
        match self {
            Self::Run(_) => "probes of a run of probe_sync",
            Self::Offsets(_) => "a file of offsets",
            Self::Collectives => "collectives alone",
            Self::Nothing => "nothing",
        }
    }
}

/// Facts and maps of all traces. What is going to be written is not taken for a trace of a run's directory.
fn calibrate(arguments: &TraceArgs, outputs: &[PathBuf]) -> anyhow::Result<Calibrated> {
    let source = Source::of(arguments)?;
    let (paths, mut traces) = read_traces(arguments, &source, outputs)?;
    if arguments.realtime_only {
        traces.iter_mut().for_each(|trace| trace.facts.pairs.clear());
    }
    let snapshots = snapshots(arguments, &source, &paths, &traces)?;
    let method = source.method().to_owned();
    let offsets = match source {
        Source::Nothing => {
            let maps = traces.iter().map(|_| None).collect();
            let notes = traces.iter().map(|trace| trace.facts.notes.clone()).collect();
            return Ok(Calibrated { notes, maps, method, timeline: "each node's own clock".into(), traces });
        }
        Source::Collectives => offsets_from_collectives(&traces, &snapshots)?,
        Source::Run(run) => run.offsets,
        Source::Offsets(offsets) => offsets,
    };
    let of_reference = offsets.nodes.get(&REFERENCE).into_iter().flatten();
    if let Some(other) = of_reference.map(|sample| sample.offset_ns).find(|offset| *offset != 0.0) {
        bail!("{}: node {REFERENCE} is the reference, but has an offset of {other} ns", offsets.path.display());
    }
    for note in &offsets.notes {
        tracing::info!("{note}");
    }
    let number = |trace: &NodeTrace| if arguments.from_collectives { trace.part } else { trace.node };
    let clock = |trace: &NodeTrace, snapshots: &Option<Vec<ClockPair>>, timeline: Timeline<'_>| {
        node_clock(&trace.facts, &offsets, number(trace), snapshots.as_deref(), timeline)
    };
    // Back to the reference node's tracer clock, on request.
    let reference = traces.iter().zip(&snapshots).find(|(trace, _)| number(trace) == 0);
    let tracer = match reference.filter(|_| arguments.timeline == "tracer") {
        Some((trace, snapshots)) => clock(trace, snapshots, Timeline::Host)?.tracer,
        None => None,
    };
    if arguments.timeline == "tracer" && tracer.is_none() {
        bail!("--timeline tracer: no pairs tie the reference node's tracer clock to its system clock");
    }
    let timeline = if tracer.is_some() { Timeline::Tracer(tracer.as_ref()) } else { Timeline::Host };
    let clock_name = if tracer.is_some() { "tracer clock" } else { "system clock" };
    let first = if arguments.from_collectives { traces.first().map_or(REFERENCE, number) } else { REFERENCE };
    let timeline_name = format!("{clock_name} of node {first}");
    let mut calibrated =
        Calibrated { maps: Vec::new(), notes: Vec::new(), method, timeline: timeline_name, traces: Vec::new() };
    let mut ties = [false; 2];
    for (trace, snapshots) in traces.iter().zip(&snapshots) {
        let (map, notes) = match clock(trace, snapshots, timeline) {
            Ok(clock) => {
                ties[usize::from(clock.tie == Tie::Assumed)] = true;
                (Some(clock.chain.whole().clone()), notes(&clock))
            }
            // Not an error where the caller can do without: merge asks, check leaves the node as it is.
            Err(error @ probe_sync_trace::Error::NoOffsets { .. }) => (None, vec![error.to_string()]),
            Err(error) => return Err(error.into()),
        };
        calibrated.maps.push(map);
        calibrated.notes.push(trace.facts.notes.iter().cloned().chain(notes).collect());
    }
    if ties == [true; 2] {
        tracing::warn!(
            "some traces tie their times to the system clock by markers or snapshots and others do not: the tracers' own \
             delay, 10 to 20 µs, lies between them; --realtime-only treats all alike"
        );
    }
    calibrated.traces = traces;
    Ok(calibrated)
}

/// The traces that the arguments name, with their facts.
fn read_traces(
    arguments: &TraceArgs,
    source: &Source,
    outputs: &[PathBuf],
) -> anyhow::Result<(Vec<PathBuf>, Vec<NodeTrace>)> {
    let markers = arguments.snapshot_markers.as_deref().map(regex::Regex::new).transpose();
    let markers = markers.map_err(|error| anyhow::anyhow!("--snapshot-markers: {error}").context(Usage))?;
    if markers.as_ref().is_some_and(|regex| !regex.capture_names().flatten().any(|name| name == "system_ns")) {
        bail!("--snapshot-markers: the pattern needs a group named system_ns, as in clk#(?<system_ns>\\d+)");
    }
    let paths = if arguments.traces.is_empty() {
        traces_in(arguments.run_dir.as_deref().context(NO_TRACES).context(Usage)?, outputs)?
    } else {
        arguments.traces.clone()
    };
    let traces = nodes::read(&paths, &arguments.nodes, &source.known(), &FactOptions { markers })?;
    Ok((paths, traces))
}

/// What the user should know of a node's clock.
fn notes(clock: &NodeClock) -> Vec<String> {
    let mut notes = clock.notes.clone();
    if let Some(residuals) = &clock.residuals {
        notes.push(format!(
            "{} pairs tie the trace to the system clock: residual median {}, 95 % below {}, {} outliers, {} steps",
            residuals.bracketed + residuals.markers,
            crate::table::unsigned(residuals.median_ns),
            crate::table::unsigned(residuals.p95_ns),
            residuals.outliers,
            residuals.steps
        ));
    }
    if let Some(early) = clock.uncertainty.map(|uncertainty| uncertainty.early_by_up_to_ns).filter(|early| *early > 0.0)
    {
        notes.push(format!(
            "all times may be early by up to {}, the tracer's own delay, alike on all nodes",
            crate::table::unsigned(early)
        ));
    }
    notes
}

/// Offsets by place in the list of traces, from their collectives; says how wide the bounds are.
fn offsets_from_collectives(traces: &[NodeTrace], snapshots: &[Option<Vec<ClockPair>>]) -> anyhow::Result<Offsets> {
    let none = Offsets::new("collectives", Axis::Reference);
    let own = traces.iter().zip(snapshots).map(|(trace, snapshots)| {
        // Node 0 is its own reference: the map ends at the node's own system clock.
        let clock = node_clock(&trace.facts, &none, 0, snapshots.as_deref(), Timeline::Host)?;
        Ok(Some(clock.chain.whole().clone()))
    });
    let own: Vec<Option<TimeMap>> = own.collect::<anyhow::Result<_>>()?;
    let found = nodes::offsets_from_collectives(traces, &own)?;
    crate::print(&found.text())?;
    let mut offsets = none;
    for node in found.nodes.iter().filter(|node| node.reachable) {
        let sample = OffsetSample {
            at_ns: found.reference_time_ns,
            offset_ns: node.offset_ns,
            drift_ppm: Some(node.drift_ppm),
            sigma_ns: node.sigma_ns,
            drift_sigma_ppm: node.drift_sigma_ppm,
        };
        offsets.nodes.insert(node.node, vec![sample]);
    }
    Ok(offsets)
}

/// The snapshot pairs of each trace, in the traces' sorted order: from the files given, else from the run.
fn snapshots(
    arguments: &TraceArgs,
    source: &Source,
    paths: &[PathBuf],
    traces: &[NodeTrace],
) -> anyhow::Result<Vec<Option<Vec<ClockPair>>>> {
    let files = &arguments.snapshots;
    if !(files.is_empty() || files.len() == paths.len()) {
        bail!("{} traces, but {} snapshot files", paths.len(), files.len());
    }
    let of = |trace: &NodeTrace| -> anyhow::Result<Option<Vec<ClockPair>>> {
        let given = paths.iter().position(|path| *path == trace.path).and_then(|at| files.get(at));
        match (given, source) {
            (Some(file), _) => Ok(Some(read_snapshots(file)?)),
            (None, Source::Run(run)) if !arguments.realtime_only => Ok(run.snapshots(trace.node)?),
            (None, _) => Ok(None),
        }
    };
    traces.iter().map(of).collect()
}

/// Traces that lie in a run's directory or in its `traces` folder; not what this program wrote, which has its statistics
/// beside it.
fn traces_in(directory: &Path, outputs: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in [directory.to_owned(), directory.join("traces")] {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        found.extend(entries.flatten().map(|entry| entry.path()).filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let trace =
                [".xplane.pb", ".pt.trace.json", ".pt.trace.json.gz"].iter().any(|ending| name.ends_with(ending));
            let ours = beside(path, STATISTICS).exists() || outputs.iter().any(|output| same_file(output, path));
            trace && !ours
        }));
    }
    found.sort();
    if found.is_empty() {
        bail!("no *.xplane.pb or *.pt.trace.json[.gz] in {} or its traces folder; give --traces", directory.display());
    }
    Ok(found)
}

/// An output that is an input under any name would destroy it.
fn refuse_overwriting(arguments: &TraceArgs, traces: &[NodeTrace], outputs: &[PathBuf]) -> anyhow::Result<()> {
    let files = arguments.snapshots.iter().chain(&arguments.offsets).map(PathBuf::as_path);
    let inputs: Vec<&Path> = files.chain(traces.iter().map(|trace| trace.path.as_path())).collect();
    for output in outputs {
        let statistics = beside(output, STATISTICS);
        if let Some(input) = inputs.iter().find(|input| same_file(input, output) || same_file(input, &statistics)) {
            bail!("the output {} would overwrite the input {}", output.display(), input.display());
        }
    }
    Ok(())
}

/// One file under two names; a file that does not exist is nobody's.
fn same_file(one: &Path, other: &Path) -> bool {
    matches!((std::fs::canonicalize(one), std::fs::canonicalize(other)), (Ok(one), Ok(other)) if one == other)
}

/// One base for the XSpaces of several nodes, because viewers draw each host from its own session start.
fn common_base(calibrated: &Calibrated) -> anyhow::Result<Option<i64>> {
    if calibrated.traces.len() < 2 || calibrated.traces.iter().any(|trace| trace.format != Format::XSpace) {
        return Ok(None);
    }
    let mut earliest: Option<i64> = None;
    for (trace, map) in calibrated.traces.iter().zip(&calibrated.maps) {
        if let Some((start_ns, map)) = xspace::session_start_ns(&trace.path)?.zip(map.as_ref()) {
            let mapped = map.map(i128::from(start_ns) * 1000).time_ps.div_euclid(1000);
            let mapped = i64::try_from(mapped).context("a session start leaves the range of the clock")?;
            earliest = Some(earliest.map_or(mapped, |earliest| earliest.min(mapped)));
        }
    }
    Ok(earliest)
}

fn outputs(traces: &[NodeTrace], output: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if traces.len() == 1 && !output.is_dir() {
        return Ok(vec![output.to_owned()]);
    }
    std::fs::create_dir_all(output).with_context(|| format!("cannot create {}", output.display()))?;
    let mut all: Vec<PathBuf> = Vec::new();
    for trace in traces {
        let path = output.join(trace.path.file_name().unwrap_or_default());
        if all.contains(&path) {
            bail!("two outputs would be {}; align them one by one", path.display());
        }
        all.push(path);
    }
    Ok(all)
}

fn verdict(calibrated: &Calibrated, json: Option<&Path>) -> anyhow::Result<()> {
    let judge = |maps: &[Option<TimeMap>]| {
        nodes::with_collectives(&calibrated.traces, maps, |nodes| check(nodes, &CheckOptions::default()))
    };
    let raw: Vec<Option<TimeMap>> = calibrated.maps.iter().map(|_| None).collect();
    let before = judge(&raw);
    let known = calibrated.maps.iter().any(Option::is_some);
    let after = if known { Some(judge(&calibrated.maps)) } else { None };
    let last = after.as_ref().unwrap_or(&before);
    if let Some(path) = json {
        let document = serde_json::json!({"before": after.as_ref().map(|_| &before), "result": last});
        probe_sync::files::write_whole(path, format!("{document:#}\n").as_bytes())?;
    }
    crate::print(&table(after.as_ref().map(|_| &before), last))?;
    for (trace, map) in calibrated.traces.iter().zip(&calibrated.maps).filter(|_| known) {
        let beyond = |map: &TimeMap, time: i128| map.map(time).place != Place::Inside;
        let text = match (map, trace.facts.span) {
            (None, _) => "left out: its clock is not known",
            (Some(map), Some((first, last))) if beyond(map, first) && beyond(map, last) => {
                "lies beyond the measured offsets: its times are extrapolated"
            }
            _ => continue,
        };
        crate::print(&format!("{} {text}\n", trace.path.display()))?;
    }
    for (trace, notes) in calibrated.traces.iter().zip(&calibrated.notes) {
        for note in notes {
            tracing::info!("{}: {note}", trace.path.display());
        }
    }
    violations(last)
}

fn violations(report: &CheckReport) -> anyhow::Result<()> {
    match report.violations() {
        0 => Ok(()),
        count => Err(Violations(count).into()),
    }
}

/// The statistics of one of several aligned traces: in a folder of their own, because HTA takes every JSON file beside the
/// traces for another trace.
fn in_folder(output: &Path) -> anyhow::Result<PathBuf> {
    let folder = output.with_file_name(STATISTICS_FOLDER);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(".json");
    Ok(folder.join(name))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}

fn summary(trace: &NodeTrace, output: &Path, stats: &AlignmentStats) -> String {
    let correction = stats.correction_ns.map_or_else(
        || "no times".to_owned(),
        |[least, median, most]| {
            let text = crate::table::signed;
            format!("moved by {} (median {}, to {})", text(least), text(median), text(most))
        },
    );
    let mut text = format!(
        "{} → {}: {} events, {correction}, uncertainty up to {}",
        trace.path.display(),
        output.display(),
        stats.events,
        crate::table::unsigned(stats.uncertainty_ns)
    );
    let beyond = stats.extrapolated_before + stats.extrapolated_after;
    if stats.clamped + beyond > 0 {
        text.push_str(&format!("; {} times held back, {beyond} of {} extrapolated", stats.clamped, stats.times));
    }
    text.push('\n');
    for note in &stats.notes {
        text.push_str(&format!("  {note}\n"));
    }
    text
}

/// What lies beside every file that this program wrote.
const STATISTICS: &str = "alignment_stats.json";
const STATISTICS_FOLDER: &str = "alignment_stats";
const NO_TRACES: &str = "no traces: give --traces, or --run-dir with traces in it";
const REFERENCE: u32 = 0;
