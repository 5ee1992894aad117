//! Converts traces of any supported format into files of other formats, in one pass.
//!
//! Each trace is read once, several of them at the same time, and every time passes through its map.
//! The events within the window are sorted by time and passed to all writers chunk by chunk ([`probe_sync_writers`]). Without a
//! clock source times stay as they are, and traces that are not on one clock are refused. Outputs
//! appear once all of them are complete.

#[cfg(feature = "otf2")]
mod archive;
mod each;
mod file;
mod joined;
mod machines;
#[cfg(feature = "otf2")]
mod members;

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};

use crate::Error;
use probe_sync_estimate::series::TimeMap;
use probe_sync_files::{AtomicFile, NewFolders};
use probe_sync_formats::chunk::{Chunk, Sorter};
use probe_sync_formats::{AgentIndex, ChunkOptions, ChunkStats, EventFilter as _, WantedArgs, with_workers, workers};
#[cfg(feature = "otf2")]
use probe_sync_writers::with_path;
use probe_sync_writers::{Machine, Meta, OutputFormat, TraceFile};
use serde::Serialize;

use crate::calibrated::{Calibrated, CalibratedTrace};
use crate::chunk_options::chunk_options;
use crate::counting::{AlignmentStats, Counting};
use crate::filter::{ChunkFilter, JobFilter};
use crate::one_clock::{self, Otherwise};
use crate::outputs;
use crate::provenance;
use crate::window::{self, Window};

use each::Each;
use file::finished;
use joined::Joined;
use machines::Group;

pub use file::Written;
pub(crate) use file::base_ns;
pub use joined::CollectiveFlows;

/// A file or folder to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Path; a file whose name ends in `.gz` is compressed.
    pub path: PathBuf,
    /// Kind of the output.
    pub kind: OutputKind,
}

/// Kind of an output.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputKind {
    /// One file of a streaming writer.
    File(OutputFormat),
    /// One file of a streaming writer for each trace, for formats that describe one process. Names
    /// begin with the output's path: `PATH_TRACE` and the ending.
    FileOfEach {
        /// The writer.
        format: OutputFormat,
        /// Ending of the names, such as `.pt.trace.json.gz`.
        ending: &'static str,
    },
    /// A folder with an OTF2 archive, `traces.otf2`; an existing archive is never replaced.
    #[cfg(feature = "otf2")]
    Otf2,
}

impl Output {
    /// Returns the output of a format of this name in a folder; names of files begin with `name`.
    /// `None` for a name that this build does not know.
    pub fn named(folder: &Path, name: &str, format: &str) -> Option<Self> {
        let of_each = |format, ending| ("", OutputKind::FileOfEach { format, ending });
        let (ending, kind) = match format {
            "pftrace" | "perfetto" => ("_results.pftrace", OutputKind::File(OutputFormat::Perfetto)),
            "json" => ("_results.json", OutputKind::File(OutputFormat::ChromeJson)),
            "json.gz" => ("_results.json.gz", OutputKind::File(OutputFormat::ChromeJson)),
            "kineto" => of_each(OutputFormat::Kineto, ".pt.trace.json"),
            "kineto.gz" => of_each(OutputFormat::Kineto, ".pt.trace.json.gz"),
            "xspace" => of_each(OutputFormat::XSpace, ".xplane.pb"),
            #[cfg(feature = "otf2")]
            "otf2" => ("_otf2", OutputKind::Otf2),
            _ => return None,
        };
        Some(Self { path: folder.join(format!("{name}{ending}")), kind })
    }
}

/// Options of a conversion.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConvertSettings {
    /// Events to write; all by default.
    pub window: Window,
    /// Join the parts of each collective operation on all ranks by flows.
    pub collective_flows: bool,
    /// For Perfetto's protobuf format: keep each host's times on its own clock, and write how the
    /// clocks are related.
    pub machines: bool,
    /// Omit the arguments of events.
    pub without_args: bool,
    /// Write traces of several clocks to one output with unchanged times, although the clocks are
    /// not related.
    pub as_they_are: bool,
    /// For databases: treat rows of devices as queues; otherwise as streams.
    pub group_by_queue: bool,
    /// For databases: numbering of devices in their names.
    pub agent_index: AgentIndex,
}

impl ConvertSettings {
    /// Returns the options common to all readers.
    fn wanted(&self) -> ChunkOptions {
        let Self { without_args, group_by_queue, agent_index, .. } = *self;
        let args = if without_args { WantedArgs::None } else { WantedArgs::All };
        ChunkOptions { args, group_by_queue, agent_index, ..ChunkOptions::default() }
    }
}

/// Results of a conversion.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConvertReport {
    /// The traces, in the order in which they were read.
    pub traces: Vec<Converted>,
    /// The outputs written.
    pub outputs: Vec<Written>,
    /// The requested window, ns on the clock of the outputs; null if none was requested.
    pub window_ns: Option<[i64; 2]>,
    /// Counts of parts joined by flows; null if not requested.
    pub collective_flows: Option<CollectiveFlows>,
}

/// One trace read.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Converted {
    /// The file.
    pub path: PathBuf,
    /// Statistics of the alignment.
    pub alignment: AlignmentStats,
    /// Statistics of reading.
    pub read: ChunkStats,
    /// Events outside the window.
    pub outside: u64,
}

/// Writes all traces into each of the outputs.
///
/// ```
/// use probe_sync_writers::OutputFormat;
/// use probe_sync_alignment::{ConvertSettings, Output, OutputKind, Request, calibrate, convert};
///
/// let folder = tempfile::tempdir()?;
/// let [trace, path] = ["node1.json", "all.pftrace"].map(|name| folder.path().join(name));
/// let event = r#"{"ph": "X", "pid": 1, "tid": 1, "ts": 10000, "dur": 5, "name": "a"}"#;
/// std::fs::write(&trace, format!(r#"{{"traceEvents": [{event}]}}"#))?;
/// let calibrated = calibrate(&Request { traces: vec![trace], ..Request::default() })?;
/// let outputs = [Output { path, kind: OutputKind::File(OutputFormat::Perfetto) }];
/// let report = convert(&calibrated, &outputs, &ConvertSettings::default())?;
/// assert_eq!(report.outputs[0].report.slices, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Fails if traces on different clocks are to share an output, if a trace has no map although a
/// clock source was named, if an output would overwrite an input, if a window is empty or its
/// markers do not exist, and on errors of reading and writing. No output appears in that case.
pub fn convert(
    calibrated: &Calibrated,
    outputs: &[Output],
    settings: &ConvertSettings,
) -> Result<ConvertReport, Error> {
    if outputs.is_empty() {
        return Err(Error::Request { problem: "no output was given".into() });
    }
    let paths = |output: &Output| match output.kind {
        OutputKind::FileOfEach { ending, .. } => each::paths(&output.path, ending, calibrated),
        _ => vec![output.path.clone()],
    };
    calibrated.refuse_overwriting(&outputs.iter().flat_map(paths).collect::<Vec<_>>())?;
    for output in outputs {
        refuse_two_clocks(&output.path, &calibrated.traces)?;
    }
    let one_for_each = |output: &Output| matches!(output.kind, OutputKind::FileOfEach { .. });
    let together = settings.window != Window::default() || !outputs.iter().all(one_for_each);
    // Machines need a clock each, and say so themselves.
    if !settings.as_they_are && !settings.machines && (together || calibrated.has_source) {
        one_clock::expect(calibrated, "to put the traces side by side", Otherwise::AsTheyAre)?;
    }
    if settings.collective_flows {
        one_clock::expect(calibrated, "--collective-flows", Otherwise::Nothing)?;
        refuse_flows_between_files(outputs)?;
    }
    let report = write_all(calibrated, outputs, settings, &Beside::default())?;
    for written in &report.outputs {
        // Beside the file of all traces; of files of their own in a folder, as those of aligned
        // traces.
        let is_of_all = outputs.iter().any(|output| output.path == written.path);
        outputs::write_statistics(&written.path, !is_of_all, &report)?;
    }
    Ok(report)
}

/// Additional content of outputs of all traces, and the filter.
#[derive(Copy, Clone, Default)]
pub(crate) struct Beside<'a> {
    /// A track that belongs to no trace, on the clock of the outputs.
    pub(crate) track: Option<&'a Chunk>,
    /// Filter of events; `None`: keep all.
    pub(crate) filter: Option<&'a JobFilter>,
}

impl Beside<'_> {
    /// Lets the filter check the sizes of the outputs.
    fn accept(&self, finished: &[Vec<(Unnamed, Written)>]) -> Result<(), Error> {
        let bytes = finished.iter().flatten().map(|(_, written)| written.report.bytes).max();
        Ok(self.filter.map_or(Ok(()), |filter| filter.accept(bytes.unwrap_or(0)))?)
    }
}

/// Writes all outputs, without their statistics; traces without a map keep their own clock.
pub(crate) fn write_all(
    calibrated: &Calibrated,
    outputs: &[Output],
    settings: &ConvertSettings,
    beside: &Beside<'_>,
) -> Result<ConvertReport, Error> {
    let window_ns = window::resolve(&settings.window, &calibrated.traces)?;
    if settings.machines {
        refuse_machines(outputs, settings)?;
    }
    let groups = machines::groups(calibrated, settings.machines)?;
    let paths = outputs.iter().map(|output| output.path.as_path());
    let folders: Vec<NewFolders> = paths.map(folder_of).collect::<Result<_, _>>()?;
    let mut writers: Vec<OpenOutput> =
        outputs.iter().map(|output| OpenOutput::create(output, calibrated)).collect::<Result<_, _>>()?;
    let wants_parts = settings.collective_flows || writers.iter().any(OpenOutput::wants_parts);
    let mut joined = match wants_parts {
        true => Joined::of(calibrated, window_ns, settings.window.inclusive),
        false => Joined::default(),
    };
    let mut report = ConvertReport { traces: Vec::new(), outputs: Vec::new(), window_ns, collective_flows: None };
    let mut tracks = 0;
    let reads = &Reads { calibrated, settings, window_ns };
    std::thread::scope(|scope| -> Result<(), Error> {
        // Parts of collectives are marked in the order of the traces.
        let ahead = if settings.collective_flows { 0 } else { workers().min(AHEAD_MAX) };
        let share = workers() / groups.len().clamp(1, workers());
        let (mut to_read, mut reading) = (groups.iter(), VecDeque::new());
        for group in &groups {
            while reading.len() < ahead
                && let Some(next) = to_read.next()
            {
                reading.push_back(scope.spawn(move || with_workers(share, || reads.group(next, None))));
            }
            let read = match reading.pop_front() {
                Some(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                None => reads.group(group, Some(&mut joined)),
            };
            let (sorter, converted) = read?;
            report.traces.extend(converted);
            let of_group = write_sorted(sorter, tracks, group, beside.filter, &mut joined, &mut writers)?;
            // Where no output has all tracks, each trace's are numbered from 0 on.
            tracks += if writers.iter().any(OpenOutput::is_of_all) { of_group } else { 0 };
        }
        Ok(())
    })?;
    write_beside(beside, tracks, &mut writers)?;
    let finished: Vec<Vec<(Unnamed, Written)>> =
        writers.into_iter().map(OpenOutput::finish).collect::<Result<_, _>>()?;
    beside.accept(&finished)?;
    for (output, written) in finished.into_iter().flatten() {
        output.commit().map_err(Error::io(&written.path, "write"))?;
        report.outputs.push(written);
    }
    drop(folders);
    report.collective_flows = settings.collective_flows.then(|| joined.finish());
    Ok(report)
}

/// Groups that are read ahead; each keeps some 50 MB until it is written.
const AHEAD_MAX: usize = 4;

/// Writes the additional track, after the tracks of all traces.
fn write_beside(beside: &Beside<'_>, tracks: u32, writers: &mut [OpenOutput]) -> Result<(), Error> {
    let Some(track) = beside.track else { return Ok(()) };
    let mut sorter = Sorter::default();
    sorter.push(track, |start, end| beside.filter.is_none_or(|filter| filter.is_within_ns(start, end)))?;
    let of_all = Group { parts: vec![0], machine: None };
    write_sorted(sorter, tracks, &of_all, None, &mut Joined::default(), writers).map(|_| ())
}

/// Passes the sorted content of a group to all writers, with tracks numbered from `first_track`,
/// and returns the number of tracks.
fn write_sorted(
    sorter: Sorter,
    first_track: u32,
    group: &Group,
    filter: Option<&JobFilter>,
    joined: &mut Joined,
    writers: &mut [OpenOutput],
) -> Result<u32, Error> {
    let mut sorted = sorter.finish(first_track)?;
    let tracks = sorted.tracks() as u32;
    for writer in writers.iter_mut() {
        writer.on_machine(group.machine.as_ref())?;
    }
    // Several traces are in one group for machines alone, and the one format that has these does
    // not ask which trace it is.
    let Some(&trace) = group.parts.first() else { return Ok(tracks) };
    let survey = |filter| ChunkFilter::survey(filter, trace, first_track, &mut sorted);
    let filter = filter.map(survey).transpose()?;
    let mut chunk = Chunk::default();
    while sorted.next(&mut chunk)? {
        if let Some(filter) = &filter {
            filter.apply(&mut chunk);
        }
        for writer in writers.iter_mut() {
            writer.write(trace, first_track, &chunk, joined)?;
        }
    }
    for writer in writers.iter_mut() {
        writer.end_trace(trace, joined)?;
    }
    Ok(tracks)
}

/// Refuses rows of two clocks, which only databases convert to one.
pub(crate) fn refuse_two_clocks(output: &Path, traces: &[CalibratedTrace]) -> Result<(), Error> {
    match traces.iter().find(|calibrated| calibrated.trace.facts.cpu_behind_ns.is_some()) {
        None => Ok(()),
        Some(of) => Err(Error::Request {
            problem: format!(
                "--cpu-clock: {} can only be converted to one clock as a database: align it first, and convert the result to {}",
                of.trace.path.display(),
                output.display()
            ),
        }),
    }
}

/// Refuses outputs and settings that need one clock.
fn refuse_machines(outputs: &[Output], settings: &ConvertSettings) -> Result<(), Error> {
    if let Some(other) = outputs.iter().find(|output| output.kind != OutputKind::File(OutputFormat::Perfetto)) {
        let problem = format!(
            "--machines: only Perfetto's protobuf format can describe clocks; write {} without it",
            other.path.display()
        );
        return Err(Error::Request { problem });
    }
    if settings.collective_flows {
        let problem = "--machines: Perfetto's trace processor does not connect flows across machines; omit it or --collective-flows";
        return Err(Error::Request { problem: problem.into() });
    }
    Ok(())
}

/// Refuses flows between separate files.
fn refuse_flows_between_files(outputs: &[Output]) -> Result<(), Error> {
    let each = outputs.iter().find(|output| matches!(output.kind, OutputKind::FileOfEach { .. }));
    match each {
        None => Ok(()),
        Some(_) => {
            let problem = "--collective-flows connects the ranks in one file, but this format has one file per process; omit one of them";
            Err(Error::Request { problem: problem.into() })
        }
    }
}

/// What traces are read with.
struct Reads<'a> {
    calibrated: &'a Calibrated,
    settings: &'a ConvertSettings,
    window_ns: Option<[i64; 2]>,
}

impl Reads<'_> {
    /// Reads the traces of a group into a sorter.
    fn group(&self, group: &Group, mut joined: Option<&mut Joined>) -> Result<(Sorter, Vec<Converted>), Error> {
        let Self { calibrated, settings, window_ns } = *self;
        let mut sorter = Sorter::default();
        let mut all = Vec::with_capacity(group.parts.len());
        for &part in &group.parts {
            let of = &calibrated.traces[part];
            let flows = joined.as_deref_mut().filter(|_| settings.collective_flows);
            let mut converted = read(of, part, settings, window_ns, group.machine.as_ref(), flows, &mut sorter)?;
            one_clock::note_unchanged(calibrated, of, &mut converted.alignment);
            all.push(converted);
        }
        Ok((sorter, all))
    }
}

/// Reads one trace into the sorter, with times mapped, or unchanged on the clock of `machine`.
fn read(
    calibrated: &CalibratedTrace,
    part: usize,
    settings: &ConvertSettings,
    window_ns: Option<[i64; 2]>,
    machine: Option<&Machine>,
    mut joined: Option<&mut Joined>,
    sorter: &mut Sorter,
) -> Result<Converted, Error> {
    let CalibratedTrace { trace, map, clock, measured, .. } = calibrated;
    let identity = TimeMap::identity();
    let mut counting = Counting::new(trace.facts.clock, map.as_ref().unwrap_or(&identity), clock.as_ref(), *measured);
    let options = chunk_options(calibrated, part, &settings.wanted());
    let inclusive = settings.window.inclusive;
    let on_one_clock = |ns: i64| machine.map_or(ns, |machine| machines::on_reference(machine, ns));
    let keep = |start, end| {
        window_ns.is_none_or(|window| window::keeps(window, inclusive, on_one_clock(start), on_one_clock(end)))
    };
    let (before, first_track) = (sorter.left_out(), sorter.tracks() as u32);
    let mut push = |chunk: &Chunk| {
        let marked = joined.as_mut().and_then(|joined| joined.mark(part, chunk));
        let chunk = marked.as_ref().unwrap_or(chunk);
        let shifted = (first_track > 0).then(|| machines::shifted(chunk, first_track));
        sorter.push(shifted.as_ref().unwrap_or(chunk), keep)
    };
    let mut map_time = |time| {
        let mapped = counting.map(time);
        if machine.is_some() { time } else { mapped }
    };
    let read = trace.format.read_chunks(&trace.path, &options, &mut map_time, &mut push)?;
    Ok(converted(calibrated, counting, read, sorter.left_out() - before))
}

/// Returns the results of reading a trace.
fn converted(calibrated: &CalibratedTrace, counting: Counting<'_>, read: ChunkStats, outside: u64) -> Converted {
    let CalibratedTrace { trace, notes, .. } = calibrated;
    let mut alignment = AlignmentStats { events: read.events, left_out: read.left_out, ..counting.stats(trace) };
    alignment.notes.splice(0..0, notes.iter().cloned());
    alignment.notes.extend(not_carried(&read));
    Converted { path: trace.path.clone(), alignment, read, outside }
}

/// Lists what a trace contained but the outputs do not.
fn not_carried(read: &ChunkStats) -> impl Iterator<Item = String> + '_ {
    let phases =
        read.other_phases.iter().map(|(phase, count)| format!("{count} events of phase {phase} are not converted"));
    let untimed = (read.untimed > 0).then(|| format!("{} events have no time", read.untimed));
    phases.chain(untimed).chain(read.notes.iter().cloned())
}

/// Creates the folder of an output; it is removed again if it stays empty.
fn folder_of(path: &Path) -> Result<NewFolders, Error> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => NewFolders::create(folder).map_err(Error::io(folder, "create")),
        None => Ok(NewFolders::default()),
    }
}

/// An output being written.
enum OpenOutput {
    File(TraceFile),
    Each(Each),
    #[cfg(feature = "otf2")]
    Otf2(Box<archive::OpenArchive>),
}

/// A complete output without a name.
enum Unnamed {
    File(AtomicFile),
    #[cfg(feature = "otf2")]
    Folder(probe_sync_files::AtomicFolder),
}

impl OpenOutput {
    fn create(output: &Output, calibrated: &Calibrated) -> Result<Self, Error> {
        let metadata = provenance::of_calibration(calibrated);
        let meta = Meta { base_ns: base_ns(calibrated), metadata, ..Meta::default() };
        match output.kind {
            OutputKind::File(format) => Ok(Self::File(TraceFile::create(&output.path, format, &meta)?)),
            OutputKind::FileOfEach { format, ending } => {
                Each::new(&output.path, format, ending, calibrated).map(Self::Each)
            }
            #[cfg(feature = "otf2")]
            OutputKind::Otf2 => {
                let archive = archive::OpenArchive::create(&output.path, &meta);
                let archive = archive.map_err(|error| with_path(&output.path, error))?;
                Ok(Self::Otf2(Box::new(archive)))
            }
        }
    }

    /// Returns true if the output distinguishes parts of collectives from other slices.
    fn wants_parts(&self) -> bool {
        match self {
            Self::File(_) | Self::Each(_) => false,
            #[cfg(feature = "otf2")]
            Self::Otf2(_) => true,
        }
    }

    /// Returns true if the output contains all traces.
    fn is_of_all(&self) -> bool {
        !matches!(self, Self::Each(_))
    }

    fn on_machine(&mut self, machine: Option<&Machine>) -> Result<(), Error> {
        match self {
            Self::File(file) => Ok(file.on_machine(machine)?),
            // With machines there are no such files.
            Self::Each(_) => Ok(()),
            #[cfg(feature = "otf2")]
            Self::Otf2(_) => Ok(()),
        }
    }

    #[cfg_attr(not(feature = "otf2"), expect(unused_variables, reason = "files have no parts of collectives"))]
    fn write(&mut self, trace: usize, first_track: u32, chunk: &Chunk, joined: &mut Joined) -> Result<(), Error> {
        match self {
            Self::File(file) => Ok(file.write(chunk)?),
            Self::Each(each) if first_track == 0 => each.write(trace, chunk),
            Self::Each(each) => each.write(trace, &machines::shifted(chunk, first_track.wrapping_neg())),
            #[cfg(feature = "otf2")]
            Self::Otf2(archive) => {
                Ok(archive.write(trace, chunk, joined).map_err(|error| with_path(archive.path(), error))?)
            }
        }
    }

    #[cfg_attr(not(feature = "otf2"), expect(unused_variables, reason = "files have no parts of collectives"))]
    fn end_trace(&mut self, trace: usize, joined: &Joined) -> Result<(), Error> {
        match self {
            Self::File(_) => Ok(()),
            Self::Each(each) => each.end(trace),
            #[cfg(feature = "otf2")]
            Self::Otf2(archive) => Ok(archive.end(trace, joined).map_err(|error| with_path(archive.path(), error))?),
        }
    }

    fn finish(self) -> Result<Vec<(Unnamed, Written)>, Error> {
        let unnamed = |(file, written)| (Unnamed::File(file), written);
        match self {
            Self::File(file) => Ok(vec![unnamed(finished(file)?)]),
            Self::Each(each) => Ok(each.finish().into_iter().map(unnamed).collect()),
            #[cfg(feature = "otf2")]
            Self::Otf2(archive) => {
                let path = archive.path().to_owned();
                let (folder, report) = archive.finish().map_err(|error| with_path(&path, error))?;
                Ok(vec![(Unnamed::Folder(folder), Written { path, report })])
            }
        }
    }
}

impl Unnamed {
    fn commit(self) -> std::io::Result<()> {
        match self {
            Self::File(file) => file.commit(),
            #[cfg(feature = "otf2")]
            Self::Folder(folder) => folder.commit(),
        }
    }
}
