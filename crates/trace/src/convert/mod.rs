//! Traces of any of our formats, in one pass, as files of other formats.
//!
//! Place in the flow: after [`calibrate()`](crate::calibrate()). Each trace is read once, every time goes through its map, and what the
//! window leaves is brought into the order of time and given to all writers chunk by chunk ([`crate::write`]). Without a clock source
//! times stay as they are. Outputs appear when all of them are whole.
//! What it does not do: make maps; print.

mod joined;
mod options;
pub(crate) mod window;

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use probe_sync_estimate::series::TimeMap;
use probe_sync_files::{AtomicFile, NewFolders};
use serde::Serialize;

use crate::Error;
use crate::calibrate::{Calibrated, CalibratedTrace};
use crate::counting::{AlignmentStats, Counting};
use crate::formats::{AgentIndex, ChunkOptions, ChunkStats};
use crate::model::{PS_PER_NS, Picoseconds};
use crate::outputs;
use crate::write::{self, Chunk, Meta, OutputFormat, Sorter, TraceWriter, WriteReport};

use joined::Joined;

pub use joined::CollectiveFlows;
pub use window::{Bound, Window};

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its name; where it ends in `.gz` it is packed.
    pub path: PathBuf,
    /// Its format.
    pub format: OutputFormat,
}

/// What to write of the traces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConvertSettings {
    /// Which events; all by default.
    pub window: Window,
    /// Join the parts of each collective operation on all ranks by flows.
    pub collective_flows: bool,
    /// Leave arguments of events out.
    pub without_args: bool,
    /// Databases: rows of devices are queues; else streams.
    pub group_by_queue: bool,
    /// Databases: how devices are numbered in their names.
    pub agent_index: AgentIndex,
}

impl ConvertSettings {
    /// What all readers are told alike.
    fn wanted(&self) -> ChunkOptions {
        let Self { without_args, group_by_queue, agent_index, .. } = *self;
        ChunkOptions { args: !without_args, group_by_queue, agent_index, ..ChunkOptions::default() }
    }
}

/// What came of a conversion.
#[derive(Clone, Debug, Serialize)]
pub struct ConvertReport {
    /// The traces, in the order in which they were read.
    pub traces: Vec<Converted>,
    /// The outputs.
    pub outputs: Vec<Written>,
    /// The window, ns on the clock of the outputs, where one was asked for.
    pub window_ns: Option<[i64; 2]>,
    /// What was joined by flows, where that was asked for.
    pub collective_flows: Option<CollectiveFlows>,
}

/// One trace that was read.
#[derive(Clone, Debug, Serialize)]
pub struct Converted {
    /// The file.
    pub path: PathBuf,
    /// What was done to its times.
    pub alignment: AlignmentStats,
    /// What was read of it.
    pub read: ChunkStats,
    /// Events outside of the window.
    pub outside: u64,
}

/// One file that was written.
#[derive(Clone, Debug, Serialize)]
pub struct Written {
    /// The file.
    pub path: PathBuf,
    /// What is in it.
    pub report: WriteReport,
}

impl Written {
    /// What the user should know of it.
    pub fn notes(&self) -> Vec<String> {
        let WriteReport { lanes, unbound_flow_ends, .. } = self.report;
        let lanes = (lanes > 0).then(|| format!("{lanes} more tracks for slices that overlap without nesting"));
        let unbound = (unbound_flow_ends > 0)
            .then(|| format!("{unbound_flow_ends} ends of flows begin with no slice, and are left out"));
        lanes.into_iter().chain(unbound).collect()
    }
}

/// Writes all traces into each of the outputs.
///
/// ```
/// use probe_sync_trace::write::OutputFormat;
/// use probe_sync_trace::{ConvertSettings, Output, Request, calibrate, convert};
///
/// let folder = tempfile::tempdir()?;
/// let [trace, path] = ["node1.json", "all.pftrace"].map(|name| folder.path().join(name));
/// let event = r#"{"ph": "X", "pid": 1, "tid": 1, "ts": 10000, "dur": 5, "name": "a"}"#;
/// std::fs::write(&trace, format!(r#"{{"traceEvents": [{event}]}}"#))?;
/// let calibrated = calibrate(&Request { traces: vec![trace], ..Request::default() })?;
/// let outputs = [Output { path, format: OutputFormat::Perfetto }];
/// let report = convert(&calibrated, &outputs, &ConvertSettings::default())?;
/// assert_eq!(report.outputs[0].report.slices, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A trace without a map where a clock source was named, an output that would overwrite an input, a window that is empty or whose
/// markers are not there, and whatever reading and writing meet. No output appears then.
pub fn convert(
    calibrated: &Calibrated,
    outputs: &[Output],
    settings: &ConvertSettings,
) -> Result<ConvertReport, Error> {
    if outputs.is_empty() {
        return Err(Error::Request { problem: "no output was named".into() });
    }
    let paths: Vec<PathBuf> = outputs.iter().map(|output| output.path.clone()).collect();
    calibrated.refuse_overwriting(&paths)?;
    let unknown = calibrated.traces.iter().find(|trace| trace.map.is_none()).filter(|_| calibrated.has_source);
    if let Some(unknown) = unknown {
        let reason = unknown.notes.last().map_or("its node has no offsets", String::as_str);
        return Err(calibrated.no_clock(format!("no clock is known for {}: {reason}", unknown.trace.path.display())));
    }
    if settings.collective_flows {
        joined::expect_one_clock(calibrated)?;
    }
    let report = write_all(calibrated, outputs, settings)?;
    for written in &report.outputs {
        outputs::write_statistics(&written.path, false, &report)?;
    }
    Ok(report)
}

/// Writes all outputs, without their statistics; traces without a map keep their own clock.
pub(crate) fn write_all(
    calibrated: &Calibrated,
    outputs: &[Output],
    settings: &ConvertSettings,
) -> Result<ConvertReport, Error> {
    let window_ns = window::resolve(&settings.window, &calibrated.traces)?;
    let paths = outputs.iter().map(|output| output.path.as_path());
    let folders: Vec<NewFolders> = paths.map(folder_of).collect::<Result<_, _>>()?;
    let mut writers: Vec<OpenOutput> =
        outputs.iter().map(|output| OpenOutput::create(output, calibrated)).collect::<Result<_, _>>()?;
    let mut joined =
        settings.collective_flows.then(|| Joined::of(&calibrated.traces, window_ns, settings.window.inclusive));
    let mut report = ConvertReport { traces: Vec::new(), outputs: Vec::new(), window_ns, collective_flows: None };
    let mut tracks = 0;
    for (part, trace) in calibrated.traces.iter().enumerate() {
        let mut sorter = Sorter::default();
        let converted = read(trace, part, settings, window_ns, joined.as_mut(), &mut sorter)?;
        let mut sorted = sorter.finish(tracks)?;
        tracks += sorted.tracks() as u32;
        let mut chunk = Chunk::default();
        while sorted.next(&mut chunk)? {
            for writer in &mut writers {
                writer.write(&chunk)?;
            }
        }
        report.traces.push(converted);
    }
    let finished: Vec<(AtomicFile, Written)> = writers.into_iter().map(OpenOutput::finish).collect::<Result<_, _>>()?;
    for (file, written) in finished {
        file.commit().map_err(Error::io(&written.path, "write"))?;
        report.outputs.push(written);
    }
    drop(folders);
    report.collective_flows = joined.map(Joined::finish);
    Ok(report)
}

/// Reads one trace into the sorter.
fn read(
    calibrated: &CalibratedTrace,
    part: usize,
    settings: &ConvertSettings,
    window_ns: Option<[i64; 2]>,
    mut joined: Option<&mut Joined>,
    sorter: &mut Sorter,
) -> Result<Converted, Error> {
    let CalibratedTrace { trace, map, notes, clock, measured, .. } = calibrated;
    let identity = TimeMap::identity();
    let mut counting = Counting::new(trace.facts.clock, map.as_ref().unwrap_or(&identity), clock.as_ref(), *measured);
    let options = options::of(calibrated, part, &settings.wanted());
    let inclusive = settings.window.inclusive;
    let keep = |start, end| window_ns.is_none_or(|window| window::keeps(window, inclusive, start, end));
    let mut push = |chunk: &Chunk| {
        let marked = joined.as_mut().and_then(|joined| joined.mark(part, chunk));
        sorter.push(marked.as_ref().unwrap_or(chunk), keep)
    };
    let read = trace.format.read_chunks(&trace.path, &options, &mut |time| counting.map(time), &mut push)?;
    let mut alignment = AlignmentStats { events: read.events, ..counting.stats(trace) };
    alignment.notes.splice(0..0, notes.iter().cloned());
    alignment.notes.extend(not_carried(&read));
    if map.is_none() {
        // Unchanged times on an unknown clock: zero would be a claim.
        alignment.uncertainty_ns = f64::INFINITY;
    }
    Ok(Converted { path: trace.path.clone(), alignment, read, outside: sorter.left_out() })
}

/// What was in a trace and is not in the outputs.
fn not_carried(read: &ChunkStats) -> impl Iterator<Item = String> + '_ {
    let phases =
        read.other_phases.iter().map(|(phase, count)| format!("{count} events of phase {phase} are not carried"));
    let untimed = (read.untimed > 0).then(|| format!("{} events have no time", read.untimed));
    phases.chain(untimed).chain(read.notes.iter().cloned())
}

/// Makes the folder of an output; it vanishes if nothing comes into it.
fn folder_of(path: &Path) -> Result<NewFolders, Error> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => NewFolders::create(folder).map_err(Error::io(folder, "create")),
        None => Ok(NewFolders::default()),
    }
}

/// A file that is being written.
struct OpenOutput {
    path: PathBuf,
    writer: TraceWriter<Packer>,
}

impl OpenOutput {
    fn create(output: &Output, calibrated: &Calibrated) -> Result<Self, Error> {
        let file = AtomicFile::create(&output.path).map_err(Error::io(&output.path, "create"))?;
        let packed = output.path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
        let sink = if packed {
            Packer::Gzip(Box::new(BufWriter::new(GzEncoder::new(file, Compression::fast()))))
        } else {
            Packer::Plain(file)
        };
        let metadata = vec![
            ("probe_sync_version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            ("probe_sync_method".to_owned(), calibrated.method.to_owned()),
            ("probe_sync_timeline".to_owned(), calibrated.timeline.clone()),
        ];
        let meta = Meta { base_ns: base_ns(calibrated), metadata };
        Ok(Self { path: output.path.clone(), writer: write::open(output.format, sink, &meta) })
    }

    fn write(&mut self, chunk: &Chunk) -> Result<(), Error> {
        self.writer.write(chunk).map_err(|error| with_path(&self.path, error))
    }

    fn finish(self) -> Result<(AtomicFile, Written), Error> {
        let Self { path, writer } = self;
        let (report, sink) = writer.finish().map_err(|error| with_path(&path, error))?;
        let file = match sink {
            Packer::Plain(file) => file,
            Packer::Gzip(packer) => {
                let encoder = packer.into_inner().map_err(|error| Error::io(&path, "write")(error.into_error()))?;
                encoder.finish().map_err(Error::io(&path, "write"))?
            }
        };
        Ok((file, Written { path, report }))
    }
}

/// A writer's refusals, with the file's name.
fn with_path(path: &Path, error: Error) -> Error {
    match error {
        Error::Sink { source } => Error::io(path, "write")(source),
        Error::Chunk { problem } => Error::Chunk { problem: format!("for {}: {problem}", path.display()) },
        other => other,
    }
}

/// A file, packed where its name says so.
enum Packer {
    Plain(AtomicFile),
    Gzip(Box<BufWriter<GzEncoder<AtomicFile>>>),
}

impl Write for Packer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Gzip(packer) => packer.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Gzip(packer) => packer.flush(),
        }
    }
}

/// A base for formats that count from one: a whole second before the first event, so that no time is negative.
pub(crate) fn base_ns(calibrated: &Calibrated) -> i64 {
    let starts = calibrated.traces.iter().filter_map(window::mapped_span).map(|(first, _)| first);
    let first = starts.min().unwrap_or(0) / PS_PER_NS;
    let whole = (first - NS_PER_S).div_euclid(NS_PER_S) * NS_PER_S;
    i64::try_from(whole.max(0)).unwrap_or(0)
}

const NS_PER_S: Picoseconds = 1_000_000_000;
