//! Writes streams of event tables as traces in viewers' formats: [`open`] → any number of
//! [`TraceWriter::write`] → [`TraceWriter::finish`].
//!
//! Readers ([`TraceFormat::read_chunks`](probe_sync_formats::TraceFormat::read_chunks)) supply
//! chunks in file order, [`Sorter`](probe_sync_formats::chunk::Sorter) sorts them by time in
//! bounded memory, and any number of writers take each chunk. A writer is pure except for its
//! output, which is anything that accepts bytes. Memory is bounded by the chunk and by the number
//! of tracks. Only [`TraceFile`] opens files.
//!
//! The formats are Perfetto, Chrome's JSON, Kineto and XSpace, and OTF2 with the feature `otf2`.
//! Rewriting a trace within its own format is the task of `formats`, not of this crate. It uses
//! `formats` (tables, protobuf, field numbers), `files`, `estimate` (the maps of machines' clocks)
//! and `otf2`.
#![forbid(unsafe_code)]

mod chrome;
mod file;
mod flows;
mod json;
mod kineto;
mod kineto_categories;
mod kineto_flows;
mod kineto_rows;
mod lanes;
mod machine;
#[cfg(feature = "otf2")]
mod otf2;
mod perfetto;
mod perfetto_clock;
mod perfetto_sequence;
mod remembered;
mod report;
mod sink;
mod spool;
mod xspace;
mod xspace_names;
mod xspace_planes;

#[cfg(test)]
mod tests;

use std::io::Write;

use probe_sync_formats::Error;
use probe_sync_formats::chunk::Chunk;

pub use file::TraceFile;
#[cfg(feature = "otf2")]
pub use file::with_path;
pub use machine::Machine;
#[cfg(feature = "otf2")]
pub use otf2::{CollectivePart, Otf2};
pub use report::{Meta, WriteReport};

/// Formats of streaming writers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// Perfetto protobuf.
    Perfetto,
    /// Chrome JSON, with times in microseconds since `baseTimeNanoseconds`.
    ChromeJson,
    /// PyTorch Kineto JSON, of one process with its devices, as read by HolisticTraceAnalysis and
    /// TensorBoard.
    Kineto,
    /// XSpace protobuf, as read by xprof and TensorBoard's profiler. The data goes to an unnamed
    /// file until the trace is finished.
    XSpace,
}

/// A trace being written. Dropped without [`TraceWriter::finish`] it leaves an incomplete output.
#[derive(Debug)]
#[must_use = "an output is whole only when it was finished"]
pub struct TraceWriter<W: Write>(Format<W>);

#[derive(Debug)]
enum Format<W> {
    Perfetto(Box<perfetto::Perfetto<W>>),
    Chrome(Box<chrome::Chrome<W>>),
    Kineto(Box<kineto::Kineto<W>>),
    XSpace(Box<xspace::XSpace<W>>),
}

/// Begins a trace.
///
/// ```
/// use probe_sync_formats::chunk::{ArgRange, Chunk, Flow, Process, Track, TrackId, TrackKind};
/// use probe_sync_writers::{Meta, OutputFormat};
///
/// let mut chunk = Chunk::default();
/// let process = Process { pid: 4711, host: "gpu-07".into(), rank: Some(3), ..Process::default() };
/// chunk.tracks.push(Track { parent: None, kind: TrackKind::Process(process), name: "train".into()
/// }); chunk.tracks.push(Track { parent: Some(TrackId(0)), kind: TrackKind::Thread { tid: 4711 },
/// name: "main".into() }); let (name, category) = (chunk.strings.intern("all_reduce"),
/// chunk.strings.intern("nccl")); chunk.slices.track.push(TrackId(1));
/// chunk.slices.start_ns.push(1_795_187_183_203_286_272);
/// chunk.slices.end_ns.push(1_795_187_183_203_291_272); chunk.slices.name.push(name);
/// chunk.slices.category.push(category); chunk.slices.flow.push(Flow::default());
/// chunk.slices.args.push(ArgRange::default());
///
/// let mut writer = probe_sync_writers::open(OutputFormat::Perfetto, Vec::new(), &Meta::default());
/// writer.write(&chunk)?;
/// let (report, bytes) = writer.finish()?;
/// assert_eq!((report.slices, report.bytes), (1, bytes.len() as u64));
/// # Ok::<(), probe_sync_formats::Error>(())
/// ```
pub fn open<W: Write>(format: OutputFormat, sink: W, meta: &Meta) -> TraceWriter<W> {
    TraceWriter(match format {
        OutputFormat::Perfetto => Format::Perfetto(Box::new(perfetto::Perfetto::open(sink, meta))),
        OutputFormat::ChromeJson => Format::Chrome(Box::new(chrome::Chrome::open(sink, meta))),
        OutputFormat::Kineto => Format::Kineto(Box::new(kineto::Kineto::open(sink, meta))),
        OutputFormat::XSpace => Format::XSpace(Box::new(xspace::XSpace::open(sink, meta))),
    })
}

impl<W: Write> TraceWriter<W> {
    /// Writes a chunk. Chunks sorted by time, longer slices first, give the smallest output with
    /// the fewest lanes; any order is written completely.
    ///
    /// # Errors
    /// [`Error::Chunk`] if the chunk is inconsistent, with table and row; [`Error::Sink`] if the
    /// output fails. The output is incomplete after that.
    pub fn write(&mut self, chunk: &Chunk) -> Result<(), Error> {
        match &mut self.0 {
            Format::Perfetto(writer) => writer.write(chunk),
            Format::Chrome(writer) => writer.write(chunk),
            Format::Kineto(writer) => writer.write(chunk),
            Format::XSpace(writer) => writer.write(chunk),
        }
    }

    /// Assigns the following chunks to this machine, on its own clock; with `None` they are on that
    /// of the trace, as at the beginning. Tracks belong to the machine they were declared on.
    ///
    /// # Errors
    /// [`Error::Chunk`]: only Perfetto's format has machines; number 0 is not one with a clock of
    /// its own. [`Error::Sink`].
    pub fn on_machine(&mut self, machine: Option<&Machine>) -> Result<(), Error> {
        let refuse = |problem: &str| Err(Error::Chunk { problem: problem.to_owned() });
        match &mut self.0 {
            Format::Perfetto(_) if machine.is_some_and(|machine| machine.id == 0) => {
                refuse("machine 0 is the one whose clock the trace uses; number the others from 1")
            }
            Format::Perfetto(writer) => writer.on_machine(machine),
            _ if machine.is_none() => Ok(()),
            Format::Chrome(_) | Format::Kineto(_) => {
                refuse("JSON supports only one clock; map the times, or write Perfetto's protobuf")
            }
            Format::XSpace(_) => {
                refuse("an XSpace supports only one clock; map the times, or write Perfetto's protobuf")
            }
        }
    }

    /// Ends the trace. Returns what was written, and the output.
    ///
    /// # Errors
    /// [`Error::Sink`].
    pub fn finish(self) -> Result<(WriteReport, W), Error> {
        match self.0 {
            Format::Perfetto(writer) => writer.finish(),
            Format::Chrome(writer) => writer.finish(),
            Format::Kineto(writer) => writer.finish(),
            Format::XSpace(writer) => writer.finish(),
        }
    }
}
