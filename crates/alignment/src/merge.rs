//! Puts the traces of all nodes into one file of their own format, each through its node's map.
//!
//! Nodes without a known clock are refused unless the caller allows them; their traces are then
//! merged unchanged, and the output's metadata names them. The output's extension decides the
//! format: a viewer's file (`.pftrace`, `.json`) accepts traces of any formats and is written as
//! [`convert`](crate::convert()) does; Kineto traces alone stay Kineto in `.json`. A `.tar` takes
//! Perfetto traces unchanged, with the offsets of their clocks next to them (`perfetto_tar`).

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::Error;
use probe_sync_estimate::series::TimeMap;
use probe_sync_formats::Error as TraceError;
use probe_sync_formats::chunk::Chunk;
use probe_sync_formats::model::Picoseconds;
use probe_sync_formats::{
    EventFilter, Kineto, MergeInput, MergeOptions, MergeStats, PlaneLayout, TraceFormat, XSpace, is_chrome_json,
    refuse_other_ending,
};
use probe_sync_writers::OutputFormat;
use serde::Serialize;
use tempfile::TempDir;

use crate::added_track::{self, AddedTrack};
use crate::calibrated::{Calibrated, CalibratedTrace};
use crate::convert::{self, Beside, ConvertSettings, Output, OutputKind};
use crate::counting::{AlignmentStats, Counting};
use crate::filter::{FilterReport, FilterSettings, JobFilter, Ranks};
use crate::one_clock::{self, Otherwise};
use crate::outputs;
use crate::perfetto_tar::{self, TarReport};
use crate::provenance;

/// Options of a merge.
#[derive(Clone, Debug, Default)]
pub struct MergeSettings {
    /// Layout of XSpace planes.
    pub layout: PlaneLayout,
    /// Merge nodes without a map too.
    pub allow_uncalibrated: bool,
    /// Write each event's correction to the output, as `timestamp_correction_ns`.
    pub annotate: bool,
    /// Schema of the databases; `None`: the one that all have in common.
    pub schema: Option<String>,
    /// Omit tables in databases that are not the profiler's, instead of refusing them.
    pub drop_foreign: bool,
    /// Replace invalid JSON values in Kineto traces, such as `NaN`; otherwise they are passed on
    /// and counted.
    pub repair: bool,
    /// A track to add to the traces, such as the one that says who was late to each collective.
    pub track: Option<Arc<dyn AddedTrack>>,
    /// Filter of the output's content.
    pub filter: FilterSettings,
}

/// Results of a merge.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MergeReport {
    /// Statistics of each trace written, in the order of [`Calibrated::traces`].
    pub traces: Vec<AlignmentStats>,
    /// Indices of these traces in [`Calibrated::traces`]: all, unless ranks were selected.
    #[serde(skip)]
    pub written: Vec<usize>,
    /// Common base of the output's times, ns.
    pub base_ns: i64,
    /// Traces with unknown clocks.
    pub uncalibrated: Vec<String>,
    /// Notes for the user on the output.
    pub notes: Vec<String>,
    /// Clock relations that a TAR of traces states; `None` (JSON: null) for any other output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tar: Option<TarReport>,
    /// Events and traces removed by the filter; `None` (JSON: null) if none was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<FilterReport>,
}

/// Merges all traces, each through its map, into `output`, which appears with its statistics when
/// it is complete.
///
/// ```
/// use probe_sync_alignment::{ClockSource, MergeSettings, Request, calibrate, merge};
///
/// let folder = tempfile::tempdir()?;
/// let at = |name: &str| folder.path().join(name);
/// for (name, ts) in [("node0.json", 7500), ("node1.json", 10000)] {
///     let event = format!(r#"{{"ph": "i", "pid": 1, "tid": 1, "ts": {ts}, "name": "barrier"}}"#);
///     std::fs::write(at(name), format!(r#"{{"traceEvents": [{event}], "baseTimeNanoseconds": 0}}"#))?;
/// }
/// std::fs::write(at("offsets.csv"), "node,node_realtime_ns,offset_vs_node0_ns\n1,0,2500000\n1,90000000,2500000\n")?;
/// let request = Request {
///     traces: vec![at("node0.json"), at("node1.json")],
///     nodes: vec![0, 1],
///     clocks: ClockSource::Offsets(at("offsets.csv")),
///     ..Request::default()
/// };
///
/// let report = merge(&calibrate(&request)?, &at("all.json"), MergeSettings::default())?;
/// // New time minus old, ns: node 1's clock is 2.5 ms ahead, so both events are at 7.5 ms now.
/// assert_eq!(report.traces[1].correction_ns, Some([-2_500_000.0; 3]));
/// assert!(at("all.json.alignment_stats.json").exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Fails if traces of two formats are to be merged into a file of one of them, if a node has no map
/// and that is not allowed, if an output would overwrite an input, and on errors of reading and
/// writing.
pub fn merge(calibrated: &Calibrated, output: &Path, settings: MergeSettings) -> Result<MergeReport, Error> {
    calibrated.refuse_overwriting(&[output.to_owned()])?;
    let all = calibrated;
    let of_ranks = settings.filter.ranks.as_ref().map(|ranks| of_ranks(all, ranks)).transpose()?;
    let calibrated = of_ranks.as_ref().unwrap_or(all);
    let mut report = merge_some(all, calibrated, output, settings)?;
    let is_written = |path: &PathBuf| calibrated.traces.iter().any(|of| of.trace.path == *path);
    report.written = (0..all.traces.len()).filter(|place| is_written(&all.traces[*place].trace.path)).collect();
    Ok(report)
}

/// Merges some of the traces.
fn merge_some(
    all: &Calibrated,
    calibrated: &Calibrated,
    output: &Path,
    settings: MergeSettings,
) -> Result<MergeReport, Error> {
    let traces = &calibrated.traces;
    let unknown = traces.iter().filter(|of| of.map.is_none() && calibrated.common_clock().is_err());
    let uncalibrated: Vec<String> = unknown.map(|calibrated| calibrated.trace.name.clone()).collect();
    let refuse_unknown = || match settings.allow_uncalibrated {
        true => Ok(()),
        false => one_clock::expect(calibrated, "to merge the traces", Otherwise::AsTheyAre).map(drop),
    };
    let filter = || match settings.filter.is_asked() {
        true => JobFilter::new(all, calibrated, &settings.filter).map(|filter| Some(Rc::new(filter))),
        false => Ok(None),
    };
    if perfetto_tar::is_meant(output) {
        refuse_settings(output, &settings)?;
        refuse_track(output, &settings)?;
        refuse_filter(output, &settings, "it contains Perfetto traces unchanged")?;
        return merge_side_by_side(calibrated, output, filter()?.map(|filter| filter.report()));
    }
    if let Some(format) = format_for_viewers(output, all_json(traces.iter().map(|of| of.trace.format))) {
        refuse_settings(output, &settings)?;
        convert::refuse_two_clocks(output, traces)?;
        refuse_unknown()?;
        let track = settings.track.as_ref().map(|track| track.chunk(all, track.name(), 0)).transpose()?;
        let output = Output { path: output.to_owned(), kind: OutputKind::File(format) };
        return merge_for_viewers(calibrated, output, uncalibrated, track.as_ref(), filter()?.as_deref());
    }
    let format = one_format(traces)?;
    refuse_other_ending(format, output, traces.iter().map(|of| of.trace.path.as_path()))?;
    if !format.leaves_out_events() {
        refuse_filter(output, &settings, "rows of databases refer to each other")?;
    }
    refuse_unknown()?;
    let track = settings.track.clone();
    let written = |track: &Arc<dyn AddedTrack>| track_of_format(all, format, output, track.as_ref());
    let written = track.as_ref().map(written).transpose()?;
    let track = track.as_ref().zip(written.as_ref()).map(|(track, (_, path))| (track.name(), path.as_path()));
    let filter = filter()?;
    merge_within(format, calibrated, output, settings, Within { uncalibrated, filter, track })
}

/// Additional content of a merge into the inputs' own format.
struct Within<'a> {
    uncalibrated: Vec<String>,
    filter: Option<Rc<JobFilter>>,
    /// The name of an added track, and the trace that holds it.
    track: Option<(&'a str, &'a Path)>,
}

/// Writes traces of one format into a file of it.
fn merge_within(
    format: &dyn TraceFormat,
    calibrated: &Calibrated,
    output: &Path,
    settings: MergeSettings,
    within: Within<'_>,
) -> Result<MergeReport, Error> {
    let Within { uncalibrated, filter, track } = within;
    let options = MergeOptions {
        base_ns: None,
        annotate: settings.annotate,
        layout: settings.layout,
        metadata: provenance::of_job(calibrated, &uncalibrated),
        schema: settings.schema,
        drop_foreign: settings.drop_foreign,
        repair: settings.repair,
        cpu_behind_ns: calibrated.traces.iter().map(|calibrated| calibrated.trace.facts.cpu_behind_ns).collect(),
        filter: filter.clone().map(|filter| filter as Rc<dyn EventFilter>),
    };
    let (merged, stats) = attempts(filter.as_deref(), output, || write(format, calibrated, output, &options, track))?;
    let report = MergeReport {
        traces: stats,
        written: Vec::new(),
        base_ns: merged.base_ns,
        uncalibrated,
        notes: merged.notes,
        tar: None,
        filter: filter.map(|filter| filter.report()),
    };
    outputs::write_statistics(output, false, &report)?;
    Ok(report)
}

/// Selects the traces of some ranks; a trace without a rank counts by its node, and a record that
/// accompanies a rank's traces by that rank.
fn of_ranks(calibrated: &Calibrated, ranks: &Ranks) -> Result<Calibrated, Error> {
    let rank = |of: &CalibratedTrace| {
        let accompanied = of.trace.facts.identity.rank.filter(|_| of.trace.format.accompanies_traces());
        accompanied.unwrap_or(of.trace.rank_part)
    };
    let known: Vec<u32> = calibrated.traces.iter().map(rank).collect();
    let absent = ranks.without_any(&known);
    if !absent.is_empty() {
        let known: Vec<String> = known.iter().map(u32::to_string).collect();
        let problem = format!(
            "--ranks {ranks}: no trace is from {}; the traces are from {}",
            absent.join(", "),
            known.join(", ")
        );
        return Err(Error::Request { problem });
    }
    let mut some = calibrated.clone();
    some.traces.retain(|of| ranks.contains(rank(of)));
    Ok(some)
}

/// Writes an output repeatedly until it is within the size limit.
fn attempts<T>(
    filter: Option<&JobFilter>,
    output: &Path,
    mut write: impl FnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    let Some(filter) = filter else { return write() };
    if filter.may_repeat() && probe_sync_files::is_stream(output) {
        let problem = format!(
            "--max-size: {} is not a file, and the size of an output is only known once it is written; give a file",
            output.display()
        );
        return Err(Error::Request { problem });
    }
    loop {
        filter.begin();
        match write() {
            Err(Error::Trace(TraceError::OverBudget { bytes })) => filter.narrow(bytes)?,
            done => return done,
        }
    }
}

/// Refuses filters of events for outputs that take whole traces only.
fn refuse_filter(output: &Path, settings: &MergeSettings, reason: &str) -> Result<(), Error> {
    match settings.filter.flag() {
        None => Ok(()),
        Some(flag) => {
            let output = output.display();
            let problem = format!(
                "{flag}: {output} can only contain whole traces ({reason}); use --ranks to select traces, or merge into .pftrace or .json"
            );
            Err(Error::Request { problem })
        }
    }
}

/// Returns the viewer format that an output's ending selects; `None` if the output is a trace in
/// the inputs' own format.
pub(crate) fn format_for_viewers(output: &Path, all_json: bool) -> Option<OutputFormat> {
    let name = output.file_name()?.to_string_lossy().to_lowercase();
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    match plain.rsplit_once('.')?.1 {
        "pftrace" => Some(OutputFormat::Perfetto),
        "json" if !all_json => Some(OutputFormat::ChromeJson),
        _ => None,
    }
}

fn all_json<'a>(formats: impl IntoIterator<Item = &'a dyn TraceFormat>) -> bool {
    formats.into_iter().all(is_chrome_json)
}

/// Refuses settings that only merges within one format support.
fn refuse_settings(output: &Path, settings: &MergeSettings) -> Result<(), Error> {
    let MergeSettings { layout, annotate, schema, .. } = settings;
    let asked = [
        (*annotate, "--annotate"),
        (schema.is_some(), "--schema"),
        (*layout != PlaneLayout::default(), "--plane-layout"),
    ];
    match asked.into_iter().find(|(asked, _)| *asked) {
        None => Ok(()),
        Some((_, flag)) => Err(Error::Request {
            problem: format!(
                "{flag} only applies to a merge into the traces' own format, but {} has another format",
                output.display()
            ),
        }),
    }
}

/// An added track, as a trace of the inputs' format.
fn track_of_format(
    calibrated: &Calibrated,
    format: &dyn TraceFormat,
    output: &Path,
    track: &dyn AddedTrack,
) -> Result<(TempDir, PathBuf), Error> {
    let xspace: &dyn TraceFormat = &XSpace;
    let written = |format: OutputFormat, ending: &str| {
        added_track::write(track, calibrated, format, convert::base_ns(calibrated), ending)
    };
    if is_chrome_json(format) {
        written(OutputFormat::Kineto, ".json")
    } else if format == xspace {
        written(OutputFormat::XSpace, ".xplane.pb")
    } else {
        Err(no_place_for_a_track(output))
    }
}

/// Refuses a track of late ranks for outputs without such tracks.
fn refuse_track(output: &Path, settings: &MergeSettings) -> Result<(), Error> {
    match settings.track {
        None => Ok(()),
        Some(_) => Err(no_place_for_a_track(output)),
    }
}

fn no_place_for_a_track(output: &Path) -> Error {
    let output = output.display();
    let problem = format!("--mark-late adds a track, which {output} cannot contain; merge into .pftrace or .json");
    Error::Request { problem }
}

/// Writes traces of any formats into a file for viewers.
fn merge_for_viewers(
    calibrated: &Calibrated,
    output: Output,
    uncalibrated: Vec<String>,
    track: Option<&Chunk>,
    filter: Option<&JobFilter>,
) -> Result<MergeReport, Error> {
    let path = output.path.clone();
    let (outputs, settings) = ([output], ConvertSettings::default());
    let beside = Beside { track, filter };
    let converted = attempts(filter, &path, || convert::write_all(calibrated, &outputs, &settings, &beside))?;
    let traces: Vec<AlignmentStats> = converted.traces.into_iter().map(|trace| trace.alignment).collect();
    let notes = converted.outputs.iter().flat_map(|written| written.notes()).collect();
    let filter = filter.map(JobFilter::report);
    let base_ns = convert::base_ns(calibrated);
    let report = MergeReport { traces, written: Vec::new(), base_ns, uncalibrated, notes, tar: None, filter };
    outputs::write_statistics(&path, false, &report)?;
    Ok(report)
}

/// Writes unchanged Perfetto traces into one TAR, with the relations of their clocks.
fn merge_side_by_side(
    calibrated: &Calibrated,
    output: &Path,
    filter: Option<FilterReport>,
) -> Result<MergeReport, Error> {
    let tar = perfetto_tar::write(calibrated, output)?;
    let identity = TimeMap::identity();
    let traces = calibrated.traces.iter().zip(&tar.files).map(|(of, file)| {
        let map = of.map.as_ref().unwrap_or(&identity);
        let mut counting = Counting::new(of.trace.facts.clock, map, of.clock.as_ref(), of.measured);
        // No time is mapped; how sure the offset is shows at both ends.
        for end in of.trace.facts.span.into_iter().flat_map(|(first, last)| [first, last]) {
            counting.map(end);
        }
        let mut stats = AlignmentStats { events: of.trace.facts.events, ..counting.stats(&of.trace) };
        stats.notes.extend(of.notes.iter().cloned().chain([file.note(&tar.files[0].member)]));
        stats
    });
    let traces = traces.collect();
    let report = MergeReport { traces, tar: Some(tar), filter, ..MergeReport::default() };
    outputs::write_statistics(output, false, &report)?;
    Ok(report)
}

fn one_format(traces: &[CalibratedTrace]) -> Result<&'static dyn TraceFormat, Error> {
    let mut all = traces.iter().map(|calibrated| &calibrated.trace);
    let first = all.next().ok_or_else(|| Error::Request { problem: "there are no traces to merge".into() })?;
    match all.find(|trace| trace.format != first.format) {
        None => Ok(first.format),
        Some(_) if all_json(traces.iter().map(|of| of.trace.format)) => Ok(&Kineto),
        Some(other) => Err(Error::Request {
            problem: format!(
                "{} and {} have different formats; only an output that ends in .pftrace, .json or .json.gz accepts both",
                first.path.display(),
                other.path.display()
            ),
        }),
    }
}

/// Writes the output, with a trace of an added track that is on the common clock already; what the
/// format says of it, and what was done to each trace.
fn write(
    format: &dyn TraceFormat,
    calibrated: &Calibrated,
    output: &Path,
    options: &MergeOptions,
    track: Option<(&str, &Path)>,
) -> Result<(MergeStats, Vec<AlignmentStats>), Error> {
    let traces = &calibrated.traces;
    let identity = TimeMap::identity();
    let mut counts: Vec<Counting<'_>> = Vec::with_capacity(traces.len());
    for calibrated in traces {
        let CalibratedTrace { map, clock, measured, .. } = calibrated;
        counts.push(Counting::new(
            calibrated.trace.facts.clock,
            map.as_ref().unwrap_or(&identity),
            clock.as_ref(),
            *measured,
        ));
    }
    let mut maps: Vec<_> = counts.iter_mut().map(|count| |time: Picoseconds| count.map(time)).collect();
    let mut inputs: Vec<MergeInput<'_>> = traces
        .iter()
        .zip(&mut maps)
        .map(|(of_trace, map)| MergeInput {
            path: of_trace.trace.path.clone(),
            part: of_trace.trace.part,
            name: of_trace.trace.title(),
            map,
            metadata: provenance::of_trace(calibrated, of_trace),
            reach: of_trace.trace.facts.reach,
            known: of_trace.trace.facts.merging.clone(),
        })
        .collect();
    let mut as_is = |time: Picoseconds| time;
    let part = traces.iter().map(|of| of.trace.part).max().map_or(0, |last| last.saturating_add(1));
    if let Some((name, path)) = track {
        let name = name.to_owned();
        inputs.push(MergeInput {
            path: path.to_owned(),
            part,
            name,
            map: &mut as_is,
            metadata: Vec::new(),
            reach: None,
            known: None,
        });
    }
    let merged = format.merge(&mut inputs, output, options)?;
    let all = calibrated;
    let stats = counts.into_iter().zip(&merged.inputs).zip(traces).map(|((count, input), calibrated)| {
        let (events, left_out, base_ns) = (input.events, input.left_out, Some(merged.base_ns));
        let mut stats = AlignmentStats { events, left_out, base_ns, ..count.stats(&calibrated.trace) };
        stats.notes.splice(0..0, calibrated.notes.iter().chain(&input.notes).cloned());
        one_clock::note_unchanged(all, calibrated, &mut stats);
        stats
    });
    let stats = stats.collect();
    Ok((merged, stats))
}
