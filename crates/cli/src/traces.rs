//! `align`, `merge` and `check`, which turn arguments into a library request and print its results
//! as text.
//!
//! All three learn the clocks in the same way (`probe_sync_alignment::calibrate`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use probe_sync_alignment::Error;
use probe_sync_alignment::{
    AddedTrack, AlignDocument, AlignSettings, AlignedTrace, Calibrated, ClockSource, MergeDocument, MergeReport,
    MergeSettings, Outcome, OutputClock, Request, Verdict, align, check, merge,
};
use probe_sync_analysis::LateTrack;
use probe_sync_formats::{Error as TraceError, PlaneLayout};

use crate::output::{Usage, is_standard_output, keep_apart, refuse_trace};
use crate::progress::Reading;
use crate::status::{Unjudged, Violations};
use crate::trace_args::{AlignArgs, AsTheyAreArgs, CheckArgs, MergeArgs, TraceArgs};
use crate::trace_notes::TraceNotes;
use crate::trace_table::TraceTable;

/// Rewrites every trace in its own format.
///
/// # Errors
/// Names the trace; traces already written are kept. With `--validate` also the errors of
/// [`run_check`], and nothing is written if causality is violated.
pub fn run_align(arguments: &AlignArgs) -> anyhow::Result<()> {
    keep_apart(&arguments.output, arguments.json)?;
    let request = request(&arguments.input, &[])?;
    let _progress = Reading::begin("align", &request);
    let calibrated = calibrate_for(&request, arguments.json)?;
    let AlignArgs { annotate, embed_snapshots, repair, .. } = *arguments;
    let settings = AlignSettings { annotate, embed_snapshots, repair };
    let verdict = arguments.validate.then(|| check(&calibrated));
    if let Some(verdict) = verdict.as_ref().filter(|verdict| verdict.outcome() == Outcome::Violated) {
        if arguments.json {
            crate::output::json(&AlignDocument::new(Vec::new(), &calibrated, Some(verdict)))?;
        }
        return not_written(verdict, &arguments.output, arguments.json);
    }
    let mut traces = Vec::new();
    let mut table = TraceTable::default();
    for aligned in align(&calibrated, &arguments.output, settings)? {
        let aligned = aligned?;
        if !arguments.json {
            table.add(aligned.calibrated, &aligned.output, &aligned.stats);
        }
        traces.push(AlignedTrace::from(aligned));
    }
    if arguments.json {
        crate::output::json(&AlignDocument::new(traces, &calibrated, verdict.as_ref()))?;
        return verdict.as_ref().map_or(Ok(()), ended);
    }
    verdict.as_ref().map_or(Ok(()), tell_verdict)?;
    table.tell(&arguments.output)?;
    verdict.as_ref().map_or(Ok(()), ended)
}

/// Merges all traces into one file.
///
/// # Errors
/// Names the trace. With `--validate` also the errors of [`run_check`], and nothing is written if
/// causality is violated.
pub fn run_merge(arguments: &MergeArgs) -> anyhow::Result<()> {
    keep_apart(&arguments.output, arguments.json)?;
    let request = request(&arguments.input, std::slice::from_ref(&arguments.output))?;
    let step_names = arguments.step_names.settings()?;
    let track = || Arc::new(LateTrack { steps: step_names.clone() }) as Arc<dyn AddedTrack>;
    let track = arguments.mark_late.then(track);
    let filter = arguments.filter.settings(step_names)?;
    let request = Request { merging: !filter.is_asked(), ..as_they_are(request, &arguments.as_they_are) };
    let _progress = Reading::begin("merge", &request);
    let calibrated = calibrate_for(&request, arguments.json)?;
    let settings = MergeSettings {
        layout: if arguments.plane_layout == "gpu-tracks" { PlaneLayout::GpuTracks } else { PlaneLayout::Xprof },
        allow_uncalibrated: arguments.allow_uncalibrated || arguments.as_they_are.no_correction,
        annotate: arguments.annotate,
        schema: arguments.schema.clone(),
        drop_foreign: arguments.drop_foreign,
        repair: arguments.repair,
        track,
        filter,
    };
    let verdict = arguments.validate.then(|| check(&calibrated));
    let output = arguments.output.clone();
    if let Some(verdict) = verdict.as_ref().filter(|verdict| verdict.outcome() == Outcome::Violated) {
        if arguments.json {
            let none = MergeReport::default();
            crate::output::json(&MergeDocument::new(output, &calibrated, &none, Some(verdict)))?;
        }
        return not_written(verdict, &arguments.output, arguments.json);
    }
    let report = merge(&calibrated, &arguments.output, settings)?;
    if arguments.json {
        crate::output::json(&MergeDocument::new(output, &calibrated, &report, verdict.as_ref()))?;
        return verdict.as_ref().map_or(Ok(()), ended);
    }
    verdict.as_ref().map_or(Ok(()), tell_verdict)?;
    let mut table = TraceTable::default();
    for (place, stats) in report.written.iter().zip(&report.traces) {
        table.add(&calibrated.traces[*place], &arguments.output, stats);
    }
    table.tell(&arguments.output)?;
    for note in &report.notes {
        crate::output::tell_note(&format!("{note}\n"))?;
    }
    if let Some(filter) = &report.filter {
        crate::output::tell(&filter.text())?;
    }
    verdict.as_ref().map_or(Ok(()), ended)
}

/// Fails with the violations that --validate found before anything was written; with JSON the
/// document contains them.
fn not_written(verdict: &Verdict<'_>, output: &Path, json: bool) -> anyhow::Result<()> {
    tracing::warn!("--validate: causality is violated; {} was not written", output.display());
    if json { ended(verdict) } else { print_verdict(verdict) }
}

/// Checks happens-before, before and after correction if clocks are known.
///
/// # Errors
/// [`Violations`]; [`Unjudged`] if nothing was violated and not everything was judged.
pub fn run_check(arguments: &CheckArgs) -> anyhow::Result<()> {
    let on_stdout = arguments.json.as_deref().is_some_and(is_standard_output);
    if let Some(path) = arguments.json.as_ref().filter(|_| !on_stdout && arguments.input.are_positional()) {
        refuse_trace(path, "--json")?;
    }
    let request = request(&arguments.input, &[])?;
    let _progress = Reading::begin("check", &request);
    let calibrated = calibrate_for(&request, on_stdout)?;
    let verdict = check(&calibrated);
    match &arguments.json {
        Some(_) if on_stdout => {
            crate::output::json(&verdict.document())?;
            return ended(&verdict);
        }
        Some(path) => verdict.write(path)?,
        None => {}
    }
    let mut notes = TraceNotes::default();
    for calibrated in &calibrated.traces {
        let path = &calibrated.trace.path;
        let of_it = notes.take(path, Some(&calibrated.trace), &calibrated.notes);
        of_it.lines().for_each(|note| tracing::info!("{}: {}", path.display(), note.trim_start()));
    }
    notes.text().lines().for_each(|note| tracing::info!("{note}"));
    print_verdict(&verdict)
}

/// Calls the library and prints its notes on no trace in particular.
pub(crate) fn calibrate_for(request: &Request, json: bool) -> anyhow::Result<Calibrated> {
    let calibrated = calibrated(request)?;
    if let Some(found) = calibrated.collectives.as_ref().filter(|_| !json) {
        crate::output::tell(&found.text())?;
    }
    tell(&calibrated);
    Ok(calibrated)
}

/// Calls the library. A trace that cannot be read fails the call, unless it may be skipped: the
/// message says how.
pub(crate) fn calibrated(request: &Request) -> anyhow::Result<Calibrated> {
    probe_sync_alignment::calibrate(request).map_err(|error| {
        let path = match &error {
            Error::Trace(
                TraceError::Io { path, .. } | TraceError::Malformed { path, .. } | TraceError::Database { path, .. },
            ) => path,
            _ => return error.into(),
        };
        let is_trace = request.traces.iter().any(|trace| path.starts_with(trace));
        let is_alone = request.traces.iter().all(|trace| trace == path);
        if is_trace && !is_alone && !request.skip_bad {
            anyhow::anyhow!("{error}; use --skip-bad to continue without it")
        } else {
            error.into()
        }
    })
}

/// Logs the notes on no trace in particular.
pub(crate) fn tell(calibrated: &Calibrated) {
    for note in &calibrated.notes {
        tracing::info!("{note}");
    }
    for warning in &calibrated.warnings {
        tracing::warn!("{warning}");
    }
}

pub(crate) fn request(arguments: &TraceArgs, outputs: &[PathBuf]) -> anyhow::Result<Request> {
    if let Some(jobs) = arguments.jobs {
        probe_sync_formats::limit_workers(jobs);
    }
    let traces = arguments.named();
    if traces.is_empty() && arguments.run_dir.is_none() {
        return Err(anyhow::anyhow!(NO_TRACES).context(Usage));
    }
    let markers = arguments.snapshot_markers.as_deref().map(regex::Regex::new).transpose();
    let markers = markers.map_err(|error| anyhow::anyhow!("--snapshot-markers: {error}").context(Usage))?;
    let clocks = match (&arguments.run_dir, &arguments.offsets) {
        (Some(directory), _) => ClockSource::Run(directory.clone()),
        (None, Some(file)) => ClockSource::Offsets(file.clone()),
        (None, None) if arguments.from_collectives => ClockSource::Collectives,
        (None, None) => ClockSource::Nothing,
    };
    Ok(Request {
        traces,
        nodes: arguments.node_list(),
        assume_order: arguments.assume_order,
        clocks,
        extrapolate: arguments.extrapolate.unwrap_or_default(),
        snapshots: arguments.snapshots.clone(),
        markers,
        realtime_only: arguments.realtime_only,
        timeline: if arguments.timeline == "tracer" { OutputClock::Tracer } else { OutputClock::System },
        max_rate_change_ppm: Some(arguments.max_rate_change),
        skip_bad: arguments.skip_bad,
        cpu_clock: arguments.cpu_clock.named()?,
        outputs: outputs.to_vec(),
        merging: false,
    })
}

/// The request without anything that would shift a time, if that is requested.
pub(crate) fn as_they_are(request: Request, asked: &AsTheyAreArgs) -> Request {
    if !asked.no_correction {
        return request;
    }
    Request { clocks: ClockSource::Nothing, snapshots: Vec::new(), markers: None, ..request }
}

fn print_verdict(verdict: &Verdict<'_>) -> anyhow::Result<()> {
    tell_verdict(verdict)?;
    ended(verdict)
}

fn tell_verdict(verdict: &Verdict<'_>) -> anyhow::Result<()> {
    let text = match crate::telling::telling().verbose {
        true => verdict.text() + &verdict.details(),
        false => verdict.brief(),
    };
    let remarks: String = verdict.remarks().iter().map(|remark| format!("{remark}\n")).collect();
    crate::output::tell(&text)?;
    crate::output::tell_note(&remarks)
}

/// The exit status of a verdict.
fn ended(verdict: &Verdict<'_>) -> anyhow::Result<()> {
    match verdict.outcome() {
        Outcome::Holds => Ok(()),
        Outcome::Violated => Err(Violations(verdict.result.violations()).into()),
        Outcome::Nothing => Err(Unjudged(NOTHING_TO_JUDGE.to_owned()).into()),
        Outcome::Incomplete => {
            let rest =
                if verdict.result.edges > 0 { "everything that was checked holds" } else { "nothing was checked" };
            Err(Unjudged(format!("{} could not be checked; {rest}", verdict.result.unjudged())).into())
        }
    }
}

pub(crate) const NOTHING_TO_JUDGE: &str =
    "nothing to check: the traces share no collective whose parts can be matched with certainty";
const NO_TRACES: &str = "no traces: name files or folders (--traces), or give a --run-dir that contains traces";
