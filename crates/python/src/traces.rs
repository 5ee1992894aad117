//! `align`, `merge`, `check`, `stragglers` and `solve`: the command line's own library calls, with
//! results as JSON.
//!
//! `probe_sync/traces.py` checks combinations of arguments, calls these functions and turns the
//! text into typed results. Each call runs on its own thread (`waiting`).

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use probe_sync::config::ReferenceChoice;
use probe_sync::solve::{Input, Lines, Solved, recorded_reference, solve_files};
use probe_sync_alignment::{
    AddedTrack, AlignSettings, AlignmentStats, Calibrated, CalibratedTrace, ClockSource, FilterReport, FilterSettings,
    Kinds, MergeSettings, OutputClock, Request, StepNames, Verdict, Window, window,
};
use probe_sync_analysis::LateTrack;
use probe_sync_files::{Draft, NewFolders};
use probe_sync_formats::{CpuClock, PlaneLayout};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::errors::Failure;
use crate::waiting;

/// The traces, and the sources of their clocks.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Asked {
    traces: Vec<PathBuf>,
    nodes: Vec<u32>,
    assume_order: bool,
    run_dir: Option<PathBuf>,
    offsets: Option<PathBuf>,
    extrapolate: Option<String>,
    snapshots: Vec<PathBuf>,
    snapshot_markers: Option<String>,
    realtime_only: bool,
    skip_bad: bool,
    timeline: String,
    from_collectives: bool,
    max_rate_change: Option<f64>,
    /// For the clock of the CPU's rows: hosts (none: all others) and how long they were suspended.
    suspended: Option<Vec<(Option<String>, String)>>,
}

/// Which events are wanted.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Span {
    start: Option<String>,
    end: Option<String>,
    start_marker: Option<String>,
    end_marker: Option<String>,
    inclusive: bool,
}

/// Filters of a file's content, as the texts of the command line.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Kept {
    ranks: Option<String>,
    steps: Option<String>,
    from_: Option<String>,
    to: Option<String>,
    only: Vec<String>,
    max_size: Option<String>,
    step_name: Option<String>,
}

/// Arguments of `solve`; exactly one of the lists has files.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Recording {
    probes: Vec<PathBuf>,
    windows: Vec<PathBuf>,
    packets: Vec<PathBuf>,
    window: Option<String>,
    knots: String,
    reference: Option<String>,
    fit: String,
}

/// Rewrites every trace in its own format; returns the result as JSON.
#[pyfunction]
#[pyo3(signature = (asked, output, *, annotate, embed_snapshots, validate, progress))]
pub fn align(
    py: Python<'_>,
    asked: Asked,
    output: PathBuf,
    annotate: bool,
    embed_snapshots: bool,
    validate: bool,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let settings = AlignSettings { annotate, embed_snapshots, ..AlignSettings::default() };
    let request = asked.request(Vec::new())?;
    let told: Result<String, Failure> = waiting::run(py, progress, move |worker| {
        let calibrated = calibrate(&request)?;
        let mut written = Vec::new();
        let all = calibrated.traces.len() as f64;
        for aligned in probe_sync_alignment::align(&calibrated, &output, settings).map_err(Failure::of_traces)? {
            let aligned = aligned.map_err(Failure::of_traces)?;
            written.push(row(aligned.calibrated, Some(&aligned.output), &aligned.stats));
            worker.share(written.len() as f64 / all);
            if worker.is_left() {
                break;
            }
        }
        Ok(result(&calibrated, &json!({ "traces": written }), validate))
    })?;
    Ok(told?)
}

/// Merges all traces into one file; returns the result as JSON.
#[pyfunction]
#[pyo3(signature = (asked, output, *, kept, allow_uncalibrated, plane_layout, annotate, schema, drop_foreign, mark_late, validate))]
#[expect(clippy::too_many_arguments, reason = "the keywords of the Python function")]
pub fn merge(
    py: Python<'_>,
    asked: Asked,
    output: PathBuf,
    kept: Kept,
    allow_uncalibrated: bool,
    plane_layout: &str,
    annotate: bool,
    schema: Option<String>,
    drop_foreign: bool,
    mark_late: bool,
    validate: bool,
) -> PyResult<String> {
    let layout = match plane_layout {
        "xprof" => PlaneLayout::Xprof,
        "gpu-tracks" => PlaneLayout::GpuTracks,
        other => {
            return Err(Failure::config(format!("plane_layout={other:?}: give \"xprof\" or \"gpu-tracks\"")).into());
        }
    };
    let filter = kept.settings()?;
    let track = || Arc::new(LateTrack { steps: filter.step_names.clone() }) as Arc<dyn AddedTrack>;
    let track = mark_late.then(track);
    let settings = MergeSettings {
        layout,
        allow_uncalibrated,
        annotate,
        schema,
        drop_foreign,
        track,
        filter,
        ..MergeSettings::default()
    };
    let merging = !settings.filter.is_asked();
    let request = Request { merging, ..asked.request(vec![output.clone()])? };
    let told: Result<String, Failure> = waiting::run(py, None, move |_| {
        let mut calibrated = calibrate(&request)?;
        let report = probe_sync_alignment::merge(&calibrated, &output, settings).map_err(Failure::of_traces)?;
        calibrated.notes.extend(report.notes);
        let rows = report.written.iter().zip(&report.traces);
        let rows: Vec<Value> = rows.map(|(place, stats)| row(&calibrated.traces[*place], None, stats)).collect();
        let own = json!({
            "traces": rows,
            "base_ns": report.base_ns,
            "uncalibrated": report.uncalibrated,
            "filter": report.filter,
            "filter_text": report.filter.as_ref().map(FilterReport::text),
        });
        Ok(result(&calibrated, &own, validate))
    })?;
    Ok(told?)
}

/// Checks happens-before order; returns the result as JSON.
#[pyfunction]
#[pyo3(signature = (asked, *, report))]
pub fn check(py: Python<'_>, asked: Asked, report: Option<PathBuf>) -> PyResult<String> {
    let request = asked.request(Vec::new())?;
    let told: Result<String, Failure> = waiting::run(py, None, move |_| {
        let calibrated = calibrate(&request)?;
        if let Some(report) = &report {
            probe_sync_alignment::check(&calibrated).write(report).map_err(Failure::of_traces)?;
        }
        Ok(result(&calibrated, &json!({}), true))
    })?;
    Ok(told?)
}

/// Finds late ranks; returns the result as JSON.
#[pyfunction]
#[pyo3(signature = (asked, *, step_name, json, csv))]
pub fn stragglers(
    py: Python<'_>,
    asked: Asked,
    step_name: Option<&str>,
    json: Option<PathBuf>,
    csv: Option<PathBuf>,
) -> PyResult<String> {
    let settings = steps(step_name)?;
    if json.is_some() && json == csv {
        return Err(Failure::config("json and csv must be different files").into());
    }
    let files: Vec<PathBuf> = json.iter().chain(&csv).cloned().collect();
    let request = asked.request(files.clone())?;
    let told: Result<String, Failure> = waiting::run(py, None, move |_| {
        let mut calibrated = calibrate(&request)?;
        calibrated.refuse_overwriting(&files).map_err(Failure::of_traces)?;
        let found = probe_sync_analysis::lateness(&calibrated, &settings).map_err(Failure::of_traces)?;
        calibrated.warnings.extend(found.warnings.iter().cloned());
        if let Some(path) = &json {
            let document = serde_json::to_string_pretty(&found).map_err(|error| not_written(path, &error))?;
            write(path, format!("{document}\n").as_bytes())?;
        }
        if let Some(path) = &csv {
            let mut bytes = Vec::new();
            found.write_csv(&mut bytes).map_err(|error| not_written(path, &error))?;
            write(path, &bytes)?;
        }
        Ok(result(&calibrated, &json!({"found": found, "text": found.text()}), false))
    })?;
    Ok(told?)
}

/// Recomputes a run from its recording; returns the result as JSON.
#[pyfunction]
pub fn solve(py: Python<'_>, recording: Recording, out: PathBuf) -> PyResult<String> {
    let solved = waiting::run(py, None, move |_| recording.solve(&out).map(|solved| told(&solved)))?;
    Ok(solved?)
}

impl Asked {
    pub(crate) fn request(self, outputs: Vec<PathBuf>) -> Result<Request, Failure> {
        let markers = self.snapshot_markers.as_deref().map(regex::Regex::new).transpose();
        let markers = markers.map_err(|error| Failure::config(format!("snapshot_markers: {error}")))?;
        let clocks = match (self.run_dir, self.offsets) {
            (Some(directory), _) => ClockSource::Run(directory),
            (None, Some(file)) => ClockSource::Offsets(file),
            (None, None) if self.from_collectives => ClockSource::Collectives,
            (None, None) => ClockSource::Nothing,
        };
        let timeline = match self.timeline.as_str() {
            "host" => OutputClock::System,
            "tracer" => OutputClock::Tracer,
            other => return Err(Failure::config(format!("timeline={other:?}: give \"host\" or \"tracer\""))),
        };
        Ok(Request {
            traces: self.traces,
            nodes: self.nodes,
            assume_order: self.assume_order,
            clocks,
            extrapolate: duration("extrapolate", self.extrapolate.as_deref())?.unwrap_or_default(),
            snapshots: self.snapshots,
            markers,
            realtime_only: self.realtime_only,
            timeline,
            max_rate_change_ppm: self.max_rate_change,
            skip_bad: self.skip_bad,
            cpu_clock: self.suspended.map(cpu_clock).transpose()?,
            outputs,
            merging: false,
        })
    }
}

impl Kept {
    fn settings(self) -> Result<FilterSettings, Failure> {
        let mut only = Kinds::default();
        for kind in &self.only {
            only.add(kind).map_err(|reason| Failure::config(format!("only={kind:?}: {reason}")))?;
        }
        let bytes = |text: &str| match probe_sync::config::bytes(text)? {
            0 => Err("must be at least 1".to_owned()),
            bytes => Ok(bytes),
        };
        Ok(FilterSettings {
            ranks: read("ranks", self.ranks.as_deref(), str::parse)?,
            from: read("from_", self.from_.as_deref(), str::parse)?.unwrap_or_default(),
            to: read("to", self.to.as_deref(), str::parse)?.unwrap_or_default(),
            steps: read("steps", self.steps.as_deref(), str::parse)?,
            step_names: steps(self.step_name.as_deref())?,
            only,
            bytes_max: read("max_size", self.max_size.as_deref(), bytes)?,
        })
    }
}

impl Recording {
    fn solve(&self, out: &Path) -> Result<Solved, Failure> {
        let wrong = |error: probe_sync::Error| Failure::of_session(&error, true);
        let mut config = probe_sync::Config::default();
        config.set("fit", &self.fit, "solve").map_err(wrong)?;
        match &self.reference {
            Some(node) => config.set("reference", node, "solve").map_err(wrong)?,
            None => {
                let files = [&self.probes[..], &self.windows].concat();
                if let Some(node) = recorded_reference(&files).map_err(wrong)? {
                    config.reference = ReferenceChoice::Node(node);
                }
            }
        }
        let window = duration("window", self.window.as_deref())?;
        let input = match (self.windows.as_slice(), self.packets.as_slice()) {
            ([], []) => Input::Probes(&self.probes),
            ([], files) => Input::Packets { files, window },
            (windows, _) => Input::Windows(windows),
        };
        let lines: Lines = self.knots.parse().map_err(|problem| Failure::config(format!("knots: {problem}")))?;
        solve_files(input, out, lines, &config).map_err(wrong)
    }
}

impl Span {
    /// Parses the start and the end.
    pub(crate) fn window(&self) -> Result<Window, Failure> {
        let bound = |name: &str, time: &Option<String>, marker: &Option<String>| match (time, marker) {
            (Some(_), Some(_)) => Err(Failure::config(format!("{name} and {name}_marker exclude each other"))),
            (_, Some(marker)) => Ok(window::Bound::Marker(marker.clone())),
            (time, None) => Ok(read(name, time.as_deref(), str::parse)?.unwrap_or_default()),
        };
        Ok(Window {
            start: bound("start", &self.start, &self.start_marker)?,
            end: bound("end", &self.end, &self.end_marker)?,
            inclusive: self.inclusive,
        })
    }
}

/// Returns the clock of the CPU's rows.
fn cpu_clock(suspended: Vec<(Option<String>, String)>) -> Result<CpuClock, Failure> {
    let mut clock = CpuClock::default();
    for (host, time) in suspended {
        let time = duration("suspended", Some(&time))?.unwrap_or_default();
        clock.add(host.as_deref(), time).map_err(|problem| Failure::config(format!("suspended: {problem}")))?;
    }
    Ok(clock)
}

pub(crate) fn duration(name: &str, text: Option<&str>) -> Result<Option<probe_sync_time::Duration>, Failure> {
    read(name, text, probe_sync::config::duration)
}

/// Returns the pattern of step events.
fn steps(pattern: Option<&str>) -> Result<StepNames, Failure> {
    Ok(read("step_name", pattern, str::parse)?.unwrap_or_default())
}

/// Parses a keyword's text.
fn read<T, P: Display>(
    name: &str,
    text: Option<&str>,
    parse: impl FnOnce(&str) -> Result<T, P>,
) -> Result<Option<T>, Failure> {
    text.map(parse).transpose().map_err(|problem| Failure::config(format!("{name}: {problem}")))
}

fn not_written(path: &Path, error: &dyn Display) -> Failure {
    Failure::file(format!("cannot write {}: {error}", path.display()))
}

/// Lets `write` create a file under a temporary name, and renames it when it is complete. The
/// temporary file is in a private folder.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "what Python hands over is owned")]
pub fn write_whole(path: PathBuf, write: &Bound<'_, PyAny>) -> PyResult<()> {
    let failed = |error: std::io::Error| PyErr::from(not_written(&path, &error));
    if let Some(folder) = path.parent() {
        NewFolders::create(folder).map_err(failed)?.keep();
    }
    let draft = Draft::create(&path).map_err(failed)?;
    write.call1((draft.path().as_os_str(),))?;
    write.py().detach(|| draft.commit()).map_err(failed)
}

/// Writes a file atomically.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    probe_sync_files::write_whole(path, bytes).map_err(|error| not_written(path, &error))
}

pub(crate) fn calibrate(request: &Request) -> Result<Calibrated, Failure> {
    probe_sync_alignment::calibrate(request).map_err(Failure::of_traces)
}

fn row(calibrated: &CalibratedTrace, output: Option<&PathBuf>, stats: &AlignmentStats) -> Value {
    let path = calibrated.trace.path.display().to_string();
    let output = output.map(|output| output.display().to_string());
    json!({"path": path, "output": output, "stats": stats})
}

/// Returns the fields that all results have together with those in `own`, and with the verdict if
/// requested.
pub(crate) fn result(calibrated: &Calibrated, own: &Value, validate: bool) -> String {
    let verdict = validate.then(|| judged(&probe_sync_alignment::check(calibrated)));
    let notes = calibrated.traces.iter().flat_map(|calibrated| {
        let path = calibrated.trace.path.display().to_string();
        calibrated.notes.iter().map(move |note| format!("{path}: {note}"))
    });
    let notes: Vec<String> = calibrated.notes.iter().cloned().chain(notes).collect();
    let collectives = calibrated.collectives.as_ref().map(|found| json!({"offsets": found, "text": found.text()}));
    let common = json!({
        "method": calibrated.method,
        "timeline": calibrated.timeline,
        "notes": notes,
        "warnings": calibrated.warnings,
        "omitted": calibrated.omitted(),
        "collectives": collectives,
        "verdict": verdict,
        "own": own,
    });
    common.to_string()
}

fn judged(verdict: &Verdict<'_>) -> Value {
    json!({
        "outcome": verdict.outcome(),
        "before": verdict.before,
        "result": verdict.result,
        "text": verdict.text(),
        "remarks": verdict.remarks(),
    })
}

fn told(solved: &Solved) -> String {
    json!({
        "exchanges": solved.exchanges,
        "nodes": solved.nodes,
        "rounds": solved.rounds,
        "lines": solved.lines,
        "skipped_lines": solved.skipped_lines,
        "left_out_exchanges": solved.left_out_exchanges,
        "skipped_rounds": solved.skipped_rounds,
        "carried_rounds": solved.carried_rounds,
        "notes": solved.notes,
        "asymmetry_sd_ns": solved.asymmetry_sd_ns,
        "half_width_95_ns": solved.half_width_95_ns,
        "breaks": solved.breaks,
        "faults": solved.faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
    .to_string()
}
