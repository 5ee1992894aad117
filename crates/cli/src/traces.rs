//! `align`, `merge` and `check`: traces onto one clock, and the proof that causality holds there.
//!
//! All three learn the clocks in the same way ([`calibrate`]): from a run's directory, from a file of offsets, or from the
//! collectives themselves. What it does not do: anything to a trace itself (crate `trace`).

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use probe_sync_estimate::series::{Axis, OffsetSample, TimeMap};
use probe_sync_trace::align::{AlignOptions, AlignmentStats, align};
use probe_sync_trace::clocks::{NodeClock, Offsets, RunDirectory, Tie, Timeline, node_clock, read_snapshots};
use probe_sync_trace::collectives::{CheckOptions, CheckReport, check, table};
use probe_sync_trace::formats::FactOptions;
use probe_sync_trace::formats::xspace::PlaneLayout;
use probe_sync_trace::merge::{MergeOptions, merge};
use probe_sync_trace::model::ClockPair;
use probe_sync_trace::nodes::{self, NodeTrace};

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
}

/// Rewrites every trace in its own format.
///
/// # Errors
/// Names the trace; traces written before stay.
pub fn run_align(arguments: &AlignArgs) -> anyhow::Result<()> {
    let calibrated = calibrate(&arguments.input)?;
    if let Some(trace) = calibrated.traces.iter().zip(&calibrated.maps).find(|(_, map)| map.is_none()) {
        bail!("no clock is known for {}; give --run-dir, --offsets or --from-collectives", trace.0.path.display());
    }
    let outputs = outputs(&calibrated.traces, &arguments.output)?;
    let base_ns = common_base(&calibrated);
    for (((trace, map), notes), output) in
        calibrated.traces.iter().zip(&calibrated.maps).zip(&calibrated.notes).zip(&outputs)
    {
        let Some(map) = map else { continue };
        let options = AlignOptions { base_ns, annotate: arguments.annotate };
        let mut stats = align(&trace.path, trace.format, output, map, options)?;
        stats.notes.splice(0..0, notes.iter().cloned());
        let beside = beside(output, "alignment_stats.json");
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
    let calibrated = calibrate(&arguments.input)?;
    let options = MergeOptions {
        layout: if arguments.plane_layout == "gpu-tracks" { PlaneLayout::GpuTracks } else { PlaneLayout::Xprof },
        allow_uncalibrated: arguments.allow_uncalibrated,
        annotate: arguments.annotate,
        method: calibrated.method.clone(),
    };
    let report = merge(&calibrated.traces, &calibrated.maps, &arguments.output, &options)?;
    let stats = beside(&arguments.output, "alignment_stats.json");
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
    verdict(&calibrate(&arguments.input)?, arguments.json.as_deref())
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

    /// The hosts of the run's nodes, by node.
    fn hosts(&self) -> Vec<Option<String>> {
        let Some(offsets) = self.offsets() else { return Vec::new() };
        let nodes = offsets.hostnames.keys().next_back().map_or(0, |node| node + 1);
        (0..nodes).map(|node| offsets.hostnames.get(&node).cloned()).collect()
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

/// Facts and maps of all traces.
fn calibrate(arguments: &TraceArgs) -> anyhow::Result<Calibrated> {
    let markers = arguments.snapshot_markers.as_deref().map(regex::Regex::new).transpose();
    let markers = markers.context("--snapshot-markers")?;
    if markers.as_ref().is_some_and(|regex| !regex.capture_names().flatten().any(|name| name == "system_ns")) {
        bail!("--snapshot-markers: the pattern needs a group named system_ns, as in clk#(?<system_ns>\\d+)");
    }
    let paths = if arguments.traces.is_empty() {
        traces_in(arguments.run_dir.as_deref().context("no traces: give --traces, or --run-dir with traces in it")?)?
    } else {
        arguments.traces.clone()
    };
    let source = Source::of(arguments)?;
    let mut traces = nodes::read(&paths, &arguments.nodes, &source.hosts(), &FactOptions { markers })?;
    if arguments.realtime_only {
        traces.iter_mut().for_each(|trace| trace.facts.pairs.clear());
    }
    let snapshots = snapshots(arguments, &source, &paths, &traces)?;
    let method = source.method().to_owned();
    let offsets = match source {
        Source::Nothing => {
            let maps = traces.iter().map(|_| None).collect();
            return Ok(Calibrated { notes: vec![Vec::new(); traces.len()], maps, method, traces });
        }
        Source::Collectives => offsets_from_collectives(&traces, &snapshots)?,
        Source::Run(run) => run.offsets,
        Source::Offsets(offsets) => offsets,
    };
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
    let mut calibrated = Calibrated { maps: Vec::new(), notes: Vec::new(), method, traces: Vec::new() };
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
        calibrated.notes.push(notes);
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

/// Traces that lie in a run's directory or in its `traces` folder.
fn traces_in(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in [directory.to_owned(), directory.join("traces")] {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        found.extend(entries.flatten().map(|entry| entry.path()).filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(".xplane.pb") || name.ends_with(".pt.trace.json") || name.ends_with(".pt.trace.json.gz")
        }));
    }
    found.sort();
    if found.is_empty() {
        bail!("no *.xplane.pb or *.pt.trace.json[.gz] in {} or its traces folder; give --traces", directory.display());
    }
    Ok(found)
}

/// One base for the XSpaces of several nodes, because viewers draw each host from its own session start.
fn common_base(calibrated: &Calibrated) -> Option<i64> {
    use probe_sync_trace::formats::Format;
    if calibrated.traces.len() < 2 || calibrated.traces.iter().any(|trace| trace.format != Format::XSpace) {
        return None;
    }
    let starts = calibrated.traces.iter().zip(&calibrated.maps).filter_map(|(trace, map)| {
        let (first, _) = trace.facts.span?;
        Some(map.as_ref()?.map(first).time_ps)
    });
    starts.min().map(|first| i64::try_from(first.div_euclid(1000)).unwrap_or(0))
}

fn outputs(traces: &[NodeTrace], output: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if traces.len() == 1 && !output.is_dir() {
        return Ok(vec![output.to_owned()]);
    }
    std::fs::create_dir_all(output).with_context(|| format!("cannot create {}", output.display()))?;
    let mut all: Vec<PathBuf> = Vec::new();
    for trace in traces {
        let path = output.join(trace.path.file_name().unwrap_or_default());
        if all.contains(&path) || path == trace.path {
            bail!("two outputs would be {}; give the traces different names or another --output", path.display());
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
