//! The interface of every trace format, and the options and statistics that all formats share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use probe_sync_time::Duration;
use serde::Serialize;

use super::keep::EventFilter;
use crate::Error;
use crate::chunk::Chunk;
use crate::model::parts::Spill;
use crate::model::{ClockPair, MergeFacts, Picoseconds, Reach, TraceFacts};

/// One format of trace files.
///
/// Times passed through a map are absolute picoseconds on the trace's own timeline. An output
/// appears under its name when it is complete; after an error there is none.
pub trait TraceFormat: std::fmt::Debug + Sync {
    /// Returns the format's name, for messages and reports.
    fn name(&self) -> &'static str;

    /// Returns the file name endings that profilers use; traces in a folder are found by them.
    fn profiler_endings(&self) -> &'static [&'static str];

    /// Returns the recommended ending of an output, for messages; empty if files of this format are
    /// never written.
    fn output_ending(&self) -> &'static str;

    /// Returns true if an output whose name ends in `.gz` is compressed with gzip.
    fn packs_outputs(&self) -> bool;

    /// Returns true if a file holds what its process knew, and not what a profiler saw: it may cover
    /// the time of another trace of its rank and is no copy of it.
    fn accompanies_traces(&self) -> bool {
        false
    }

    /// Returns true if `evidence` shows that a file is of this format.
    fn detect(&self, evidence: Evidence<'_>) -> bool;

    /// Returns false if a file with one of the format's endings is known to be of another program,
    /// which uses the ending too.
    fn accepts(&self, _path: &Path) -> bool {
        true
    }

    /// Reads what a file states about itself, its clock and its collectives.
    ///
    /// # Errors
    /// Names the file and the byte offset.
    fn read_facts(&self, path: &Path, options: &FactOptions) -> Result<TraceFacts, Error>;

    /// Returns the start of the recording stated in a file, ns on its own timeline, if viewers draw
    /// every node from its own start; such formats need a common base for the aligned files of
    /// several nodes.
    ///
    /// # Errors
    /// Names the file and the byte offset.
    fn session_start_ns(&self, _path: &Path) -> Result<Option<i64>, Error> {
        Ok(None)
    }

    /// Returns true if a file can hold pairs of clock readings ([`RewriteOptions::snapshots`]).
    fn holds_snapshots(&self) -> bool {
        false
    }

    /// Returns true if a merge can filter events ([`MergeOptions::filter`]).
    fn leaves_out_events(&self) -> bool {
        false
    }

    /// Writes `input` to `output` with every time passed through `map`. Everything else is
    /// unchanged, and so are times that the map does not change. The map is called in the order of
    /// the file; a pass that has to be repeated calls it again.
    ///
    /// # Errors
    /// Names the file and the byte offset; [`Self::refusal`] if the format is only read.
    fn rewrite(
        &self,
        input: &Path,
        _output: &Path,
        _options: &RewriteOptions<'_>,
        _map: &mut MapFunction<'_>,
    ) -> Result<RewriteStats, Error> {
        Err(self.refusal(input))
    }

    /// Writes all inputs into one file, each through its own map, and makes names and numbers
    /// unique.
    ///
    /// # Errors
    /// Names the file and the byte offset; [`Self::refusal`] if the format is only read.
    fn merge(
        &self,
        inputs: &mut [MergeInput<'_>],
        output: &Path,
        _options: &MergeOptions,
    ) -> Result<MergeStats, Error> {
        Err(self.refusal(inputs.first().map_or(output, |input| &input.path)))
    }

    /// Returns why a file of a format that is only read is not written, and what to do instead.
    fn refusal(&self, path: &Path) -> Error {
        let problem = format!("{}: probe_sync does not write the format {}", path.display(), self.name());
        Error::Request { problem }
    }

    /// Passes a file's events to `sink` as chunks, with every time mapped by `map`, in the order of
    /// the file. Tracks are numbered from 0 over the chunks of the file; a later chunk may declare
    /// the tracks of earlier events.
    ///
    /// # Errors
    /// Names the file and the byte offset; also returns errors of `sink`.
    fn read_chunks(
        &self,
        path: &Path,
        options: &ChunkOptions,
        map: &mut MapFunction<'_>,
        sink: &mut ChunkSink<'_>,
    ) -> Result<ChunkStats, Error>;
}

/// A consumer of chunks.
pub type ChunkSink<'a> = dyn FnMut(&Chunk) -> Result<(), Error> + 'a;

/// Options of a reader of chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkOptions {
    /// Number that distinguishes the trace from the others in the output; used for ids of flows
    /// within the file.
    pub part: u32,
    /// Host that wrote the file, if known.
    pub host: String,
    /// Rank in the job, if known.
    pub rank: Option<u32>,
    /// Arguments to read.
    pub args: WantedArgs,
    /// True if rows of devices are queues; otherwise they are the streams to which the program
    /// submitted work. Ignored by formats that know only one of the two.
    pub group_by_queue: bool,
    /// Numbering of devices in their names.
    pub agent_index: AgentIndex,
    /// Plausible range of times ([`TraceFacts::reach`]); `None`: all.
    pub reach: Option<Reach>,
    /// Origin of the times in the file ([`TraceFacts::base_ns`]). If `None`, the reader looks for it
    /// in the file before it reads the events.
    pub base_ns: Option<i64>,
}

/// Arguments of events that a reader is asked for.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum WantedArgs {
    /// No arguments.
    #[default]
    None,
    /// All arguments.
    All,
    /// Those with these names; a reader may return others as well.
    Named(&'static [&'static str]),
}

impl WantedArgs {
    /// Returns true if any are wanted.
    pub fn any(self) -> bool {
        self != WantedArgs::None
    }

    /// Returns true if an argument with this name is wanted.
    pub fn takes(self, name: &[u8]) -> bool {
        match self {
            WantedArgs::None => false,
            WantedArgs::All => true,
            WantedArgs::Named(names) => names.iter().any(|wanted| wanted.as_bytes() == name),
        }
    }
}

/// Numbering of devices.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum AgentIndex {
    /// Among all devices of the host.
    Absolute,
    /// Among those available to the process.
    #[default]
    Relative,
    /// Among those of the same type.
    TypeRelative,
}

/// Statistics of reading a file in chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChunkStats {
    /// Events passed on.
    pub events: u64,
    /// Events skipped because they have no time.
    pub untimed: u64,
    /// Events skipped because of implausible times; [`TraceFacts::warnings`] describe them.
    #[serde(skip)]
    pub left_out: u64,
    /// Events of unsupported phases, by phase.
    pub other_phases: BTreeMap<char, u64>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl PartialEq for dyn TraceFormat + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

/// Maps absolute picoseconds on a trace's timeline to those on the new one.
pub type MapFunction<'a> = dyn FnMut(Picoseconds) -> Picoseconds + 'a;

/// Evidence of a file's format: its name, or its first bytes if no format recognises the name.
#[derive(Copy, Clone, Debug)]
pub enum Evidence<'a> {
    /// The file's name in lower case, without `.gz`.
    Name(&'a str),
    /// The file's first bytes, decompressed if they are gzip.
    Head(&'a [u8]),
}

/// Options of a reader of facts.
#[derive(Clone, Debug, Default)]
pub struct FactOptions {
    /// Pattern of additional clock markers: matching event names, with the system time, ns, in the
    /// group named `system_ns`.
    pub markers: Option<regex::Regex>,
    /// Check the whole file for damage, not only the parts with facts, so that later reads succeed
    /// as far as the format can tell.
    pub thorough: bool,
    /// Clock of the rows that a profiler of CPU and devices stamped itself; `None`: the clock of
    /// all other rows.
    pub cpu_clock: Option<CpuClock>,
    /// Also read what a merge into a file of the same format needs ([`TraceFacts::merging`]), so
    /// that it need not read the file for that again; ignored by formats other than Kineto.
    pub merging: bool,
    /// Where parts of collectives are stored if they are too many for memory; traces read with
    /// clones of one value share a file.
    pub spill: Spill,
}

/// The CPU's rows are on CLOCK_MONOTONIC, and those of devices on CLOCK_BOOTTIME, which is ahead by
/// the time for which the machine was suspended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuClock {
    /// Suspended time by host: CLOCK_BOOTTIME minus CLOCK_MONOTONIC.
    pub suspended: BTreeMap<String, Duration>,
    /// Suspended time of all other hosts; `None`: traces of other hosts are refused.
    pub elsewhere: Option<Duration>,
}

impl CpuClock {
    /// Sets the suspended time of a host, or of all other hosts.
    ///
    /// # Errors
    /// Returns an error if the time is negative, the host has no name, or it was given another time.
    pub fn add(&mut self, host: Option<&str>, time: Duration) -> Result<(), String> {
        if time.as_ns() < 0 || host == Some("") {
            return Err("give a host and how long it was suspended; CLOCK_MONOTONIC is never ahead".to_owned());
        }
        let before = match host {
            Some(host) => self.suspended.insert(host.to_owned(), time),
            None => self.elsewhere.replace(time),
        };
        match before {
            Some(before) if before != time => Err(format!("{} is given twice", host.unwrap_or("all others"))),
            _ => Ok(()),
        }
    }
}

/// Parses the rank and the number of ranks from an event's name: `probe_sync.rank#3/8`. A program
/// adds such an event to its trace if its profiler does not record the rank.
pub(crate) fn rank_marker(name: &[u8]) -> Option<(u32, u32)> {
    let (rank, world_size) = std::str::from_utf8(name.strip_prefix(RANK_MARKER)?).ok()?.split_once('/')?;
    let (rank, world_size) = (rank.parse().ok()?, world_size.parse().ok()?);
    (rank < world_size).then_some((rank, world_size))
}

/// Options of rewriting a trace.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct RewriteOptions<'a> {
    /// Base of the output's times, ns. `None`: the format's own choice, which is the input's base
    /// if the format can keep it, otherwise the input's start after mapping.
    pub base_ns: Option<i64>,
    /// Write to each event how far its start was moved, new minus old, as
    /// `timestamp_correction_ns`.
    pub annotate: bool,
    /// Pairs of readings of the node's tracer and system clocks to write to the output, if the
    /// format supports them and the input has none. They are not mapped, because programs that read
    /// them expect the node's own clocks.
    pub snapshots: &'a [ClockPair],
    /// Amount by which the CPU's rows are behind the others, ns ([`TraceFacts::cpu_behind_ns`]);
    /// ignored by formats without such rows.
    pub cpu_behind_ns: Option<i64>,
    /// Metadata written to the output as text, if the format supports it: method, clock,
    /// uncertainty, versions.
    pub metadata: &'a [(String, String)],
    /// Plausible range of times ([`TraceFacts::reach`]); `None`: all.
    pub reach: Option<Reach>,
    /// Write valid JSON even if the input is invalid; ignored by formats other than JSON.
    pub repair: bool,
}

/// Statistics of rewriting one trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RewriteStats {
    /// Events as the format counts them: in Kineto all, in XSpace those with a time.
    pub events: u64,
    /// Events without a time of their own, which are unchanged.
    pub untimed: u64,
    /// Events omitted from the output because of implausible times.
    pub left_out: u64,
    /// Events that lost digits below the picosecond; events that the map does not change lose none.
    pub rounded: u64,
    /// Events (XSpace: lines of events) that begin before the output's base; some viewers drop
    /// them.
    pub before_base: u64,
    /// Metadata events before the output's base, moved to it.
    pub metadata_clamped: u64,
    /// Base of the output's times, ns, if it has one.
    pub base_ns: Option<i64>,
    /// Bytes read, after decompression.
    pub bytes_read: u64,
    /// Bytes written, before compression; 0 for one of several inputs of a merge.
    pub bytes_written: u64,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// One input trace of a merge.
pub struct MergeInput<'a> {
    /// The file.
    pub path: PathBuf,
    /// Number that distinguishes it from the others: its rank, otherwise its node.
    pub part: u32,
    /// Display name, such as `rank 2 · gpu-01`; empty: its number is used.
    pub name: String,
    /// Map from the trace's timeline to the common one.
    pub map: &'a mut MapFunction<'a>,
    /// Metadata written as text to its part of the output, if the format supports that; common
    /// metadata is in [`MergeOptions`].
    pub metadata: Vec<(String, String)>,
    /// Plausible range of times ([`TraceFacts::reach`]); `None`: all.
    pub reach: Option<Reach>,
    /// What the reader of facts has found for a merge ([`TraceFacts::merging`]); `None`: the merge
    /// reads the file for it.
    pub known: Option<MergeFacts>,
}

impl MergeInput<'_> {
    /// Returns the label added to names from this trace.
    pub(crate) fn label(&self) -> String {
        if self.name.is_empty() { format!("trace {}", self.part) } else { self.name.clone() }
    }
}

/// Options of a merge.
#[derive(Clone, Debug, Default)]
pub struct MergeOptions {
    /// Base of all times, ns. `None`: the format's own choice.
    pub base_ns: Option<i64>,
    /// See [`RewriteOptions`].
    pub annotate: bool,
    /// Layout of the planes; ignored by formats without planes.
    pub layout: PlaneLayout,
    /// Metadata written to the output as text: method, uncertainty, versions.
    pub metadata: Vec<(String, String)>,
    /// Schema of the databases; `None`: the one that all have in common.
    pub schema: Option<String>,
    /// Omit tables in databases that are not the profiler's, instead of refusing them.
    pub drop_foreign: bool,
    /// See [`RewriteOptions`]; one value for each input, in order, and `None` for those beyond the
    /// end.
    pub cpu_behind_ns: Vec<Option<i64>>,
    /// See [`RewriteOptions`].
    pub repair: bool,
    /// Filter of events; `None`: keep all. Not used by formats that cannot filter.
    pub filter: Option<Rc<dyn EventFilter>>,
}

/// Layout of the planes of an XSpace.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum PlaneLayout {
    /// `/host:CPU`, `/host:CPU rank 1 (node 1)`…, devices `/device:GPU:<part·stride+local>`: for
    /// xprof.
    #[default]
    Xprof,
    /// Host planes of other nodes become device tracks above all devices, for viewers that know
    /// only standard names.
    GpuTracks,
}

/// Statistics of a merge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MergeStats {
    /// Statistics of each input, in the order given.
    pub inputs: Vec<RewriteStats>,
    /// Common base of the output's times, ns.
    pub base_ns: i64,
    /// Distance between the numbers of consecutive nodes (XSpace: of devices; Kineto: of links).
    pub stride: u64,
    /// Header entries of the inputs that the output does not contain.
    pub headers_left_out: u64,
    /// Bytes written, before compression.
    pub bytes_written: u64,
    /// Notes for the user.
    pub notes: Vec<String>,
}

const RANK_MARKER: &[u8] = b"probe_sync.rank#";
/// Optional first bytes of a text file.
pub(crate) const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
