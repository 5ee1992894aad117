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
use crate::model::{ClockPair, Picoseconds, Reach, TraceFacts};

/// How often a file is read from one end to the other, for whoever shows how far long work is.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Readings {
    /// For its facts.
    pub facts: Passes,
    /// For what else is asked of its events.
    pub look: Passes,
    /// To be written anew.
    pub rewritten: Passes,
    /// To be merged; once more where something may be left out.
    pub merged: Passes,
    /// To be written for viewers.
    pub shown: Passes,
    /// SQLite reads it, on average so often: a table and an index are different pages of one file.
    pub by_sqlite: bool,
}

/// Passes over a file.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Passes {
    /// How many.
    pub times: f64,
    /// What a byte costs each time, with what is done beside reading it: on two cores in 2026, to
    /// be compared with each other alone.
    pub ns_per_byte: f64,
}

impl Passes {
    pub(super) const fn new(times: f64, ns_per_byte: f64) -> Self {
        Self { times, ns_per_byte }
    }
}

/// One format of trace files.
///
/// Times that go through a map are absolute picoseconds on the trace's own timeline. An output
/// appears under its name when it is whole; after an error there is none.
pub trait TraceFormat: std::fmt::Debug + Sync {
    /// The format's name, for messages and reports.
    fn name(&self) -> &'static str;

    /// Endings of the names that profilers give their files: how traces are found in a folder.
    fn profiler_endings(&self) -> &'static [&'static str];

    /// The ending that an output should have, for people.
    fn output_ending(&self) -> &'static str;

    /// Whether an output whose name ends in `.gz` is packed with gzip.
    fn packs_outputs(&self) -> bool;

    /// Whether a file is of this format, as far as `evidence` tells.
    fn detect(&self, evidence: Evidence<'_>) -> bool;

    /// How often a file is read for what; one that is `packed` cannot be read from its end.
    fn readings(&self, packed: bool) -> Readings;

    /// What a file says of itself, its clock and its collectives.
    ///
    /// # Errors
    /// Names file and byte.
    fn read_facts(&self, path: &Path, options: &FactOptions) -> Result<TraceFacts, Error>;

    /// The start of the recording that a file states, ns on its own timeline, where viewers draw
    /// every node from its own start; such formats need one base for the aligned files of several
    /// nodes.
    ///
    /// # Errors
    /// Names file and byte.
    fn session_start_ns(&self, _path: &Path) -> Result<Option<i64>, Error> {
        Ok(None)
    }

    /// Whether a file can hold pairs of clock readings ([`RewriteOptions::snapshots`]).
    fn holds_snapshots(&self) -> bool {
        false
    }

    /// Whether a merge leaves out events ([`MergeOptions::filter`]).
    fn leaves_out_events(&self) -> bool {
        false
    }

    /// Writes `input` to `output` with every time sent through `map`. What is not a time stays as
    /// it is, and so does a time that the map leaves alone. The map is asked in the order of the
    /// file; a pass that has to be repeated asks again.
    ///
    /// # Errors
    /// Names file and byte.
    fn rewrite(
        &self,
        input: &Path,
        output: &Path,
        options: &RewriteOptions<'_>,
        map: &mut MapFunction<'_>,
    ) -> Result<RewriteStats, Error>;

    /// Writes all inputs into one file, each through its own map, with no name or number used for
    /// two things.
    ///
    /// # Errors
    /// Names file and byte.
    fn merge(&self, inputs: &mut [MergeInput<'_>], output: &Path, options: &MergeOptions) -> Result<MergeStats, Error>;

    /// Gives a file's events as chunks, every time through `map`, in the order of the file. Tracks
    /// are numbered from 0 on over the chunks of the file; a later chunk may declare the tracks of
    /// an earlier one's events.
    ///
    /// # Errors
    /// Names file and byte; what `sink` refuses.
    fn read_chunks(
        &self,
        path: &Path,
        options: &ChunkOptions,
        map: &mut MapFunction<'_>,
        sink: &mut ChunkSink<'_>,
    ) -> Result<ChunkStats, Error>;
}

/// Where chunks go.
pub type ChunkSink<'a> = dyn FnMut(&Chunk) -> Result<(), Error> + 'a;

/// What a reader of chunks is told beyond the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkOptions {
    /// What tells the trace from the others of the output: ids of flows that belong to the file are
    /// made with it.
    pub part: u32,
    /// The host that wrote it, where known.
    pub host: String,
    /// Its rank in the job, where known.
    pub rank: Option<u32>,
    /// Whether arguments are wanted.
    pub args: bool,
    /// Rows of devices are queues; else they are the streams that the program submitted to. Formats
    /// that know one of the two do not look at it.
    pub group_by_queue: bool,
    /// How devices are numbered in their names.
    pub agent_index: AgentIndex,
    /// Which times are believed ([`TraceFacts::reach`]); None: all.
    pub reach: Option<Reach>,
}

/// How devices are numbered.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum AgentIndex {
    /// Among all of the host.
    Absolute,
    /// Among those that the process may use.
    #[default]
    Relative,
    /// Among those of its type.
    TypeRelative,
}

/// What reading a file's chunks came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChunkStats {
    /// Events that were given.
    pub events: u64,
    /// Events without a time, which were left out.
    pub untimed: u64,
    /// Events whose times cannot be believed, which were left out; [`TraceFacts::warnings`] say
    /// why.
    #[serde(skip)]
    pub left_out: u64,
    /// Events of phases that are not carried, by phase.
    pub other_phases: BTreeMap<char, u64>,
    /// What the user should know of what was read.
    pub notes: Vec<String>,
}

impl PartialEq for dyn TraceFormat + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

/// Where a time goes: absolute picoseconds on a trace's timeline to those on the new one.
pub type MapFunction<'a> = dyn FnMut(Picoseconds) -> Picoseconds + 'a;

/// What tells a file's format: its name; its first bytes only where no format knows the name.
#[derive(Copy, Clone, Debug)]
pub enum Evidence<'a> {
    /// The file's name in lower case, without `.gz`.
    Name(&'a str),
    /// The file's first bytes, unpacked where they are gzip.
    Head(&'a [u8]),
}

/// What a reader of facts is told beyond the file.
#[derive(Clone, Debug, Default)]
pub struct FactOptions {
    /// Further clock markers: event names that match, with the system time, ns, in the group named
    /// `system_ns`.
    pub markers: Option<regex::Regex>,
    /// Look for damage everywhere, not only where facts are: what is read later is then whole, as
    /// far as the format can tell.
    pub thorough: bool,
    /// On which clock rows are that a profiler of CPU and devices stamped itself; None: on that of
    /// all others.
    pub cpu_clock: Option<CpuClock>,
    /// Where parts of collectives go that are too many for memory; traces that are read with clones
    /// of one value share a file.
    pub spill: Spill,
}

/// Rows of the CPU are on CLOCK_MONOTONIC, and those of devices on CLOCK_BOOTTIME, which is ahead
/// by the time that the machine was suspended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuClock {
    /// By host: for how long it was suspended, CLOCK_BOOTTIME minus CLOCK_MONOTONIC.
    pub suspended: BTreeMap<String, Duration>,
    /// The same of all other hosts; None: they are refused.
    pub elsewhere: Option<Duration>,
}

/// The rank and the number of ranks that an event's name states: `probe_sync.rank#3/8`. A program
/// puts such an event into its trace where its profiler writes no rank.
pub(crate) fn rank_marker(name: &[u8]) -> Option<(u32, u32)> {
    let (rank, world_size) = std::str::from_utf8(name.strip_prefix(RANK_MARKER)?).ok()?.split_once('/')?;
    let (rank, world_size) = (rank.parse().ok()?, world_size.parse().ok()?);
    (rank < world_size).then_some((rank, world_size))
}

/// What to do beside mapping.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct RewriteOptions<'a> {
    /// What the output's times count from, ns. `None`: the format's own choice, which is the
    /// input's base where the format can keep it, else where the map puts the input's start.
    pub base_ns: Option<i64>,
    /// Whether each event keeps how far its start was moved, new minus old, under the name
    /// `timestamp_correction_ns`.
    pub annotate: bool,
    /// Pairs of readings of the node's tracer clock and system clock that the output keeps, where
    /// the format can and the input has none: on the node's own clocks, not mapped, as programs
    /// expect that read such pairs.
    pub snapshots: &'a [ClockPair],
    /// How far the CPU's rows are behind the others, ns ([`TraceFacts::cpu_behind_ns`]); formats
    /// without such rows do not look at it.
    pub cpu_behind_ns: Option<i64>,
    /// Written into the output as text, where the format has a place for it: method, clock,
    /// uncertainty, versions.
    pub metadata: &'a [(String, String)],
    /// Which times are believed ([`TraceFacts::reach`]); None: all.
    pub reach: Option<Reach>,
    /// Write valid JSON where the input is not; formats that are not JSON do not look at it.
    pub repair: bool,
}

/// What rewriting one trace did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RewriteStats {
    /// Events, as the format counts them: in Kineto all, in XSpace those with a time.
    pub events: u64,
    /// Events without a time of their own, which stay as they are.
    pub untimed: u64,
    /// Events whose times cannot be believed, which are not in the output.
    pub left_out: u64,
    /// Events whose digits below the picosecond were lost; an event that the map leaves alone loses
    /// none.
    pub rounded: u64,
    /// Events (XSpace: lines of events) that begin before the output's base; some viewers drop
    /// them.
    pub before_base: u64,
    /// Metadata events before the output's base, put at it.
    pub metadata_clamped: u64,
    /// The base of the output's times, ns, where it has one.
    pub base_ns: Option<i64>,
    /// Bytes read, after unpacking.
    pub bytes_read: u64,
    /// Bytes written, before packing; 0 for one of several inputs of a merge.
    pub bytes_written: u64,
    /// What the user should know of the output.
    pub notes: Vec<String>,
}

/// One trace of a merge.
pub struct MergeInput<'a> {
    /// The file.
    pub path: PathBuf,
    /// What tells it from the others: its rank, else its node.
    pub part: u32,
    /// For people, as in `rank 2 · gpu-01`; empty: its number.
    pub name: String,
    /// From the trace's timeline to the one that all share.
    pub map: &'a mut MapFunction<'a>,
    /// Written into its part of the output as text, where parts have a place for it; what is said
    /// of all of them is in [`MergeOptions`].
    pub metadata: Vec<(String, String)>,
    /// Which times are believed ([`TraceFacts::reach`]); None: all.
    pub reach: Option<Reach>,
}

impl MergeInput<'_> {
    /// What stands beside names that come from this trace.
    pub(crate) fn label(&self) -> String {
        if self.name.is_empty() { format!("trace {}", self.part) } else { self.name.clone() }
    }
}

/// What to do beside mapping and joining.
#[derive(Clone, Debug, Default)]
pub struct MergeOptions {
    /// What all times count from, ns. `None`: the format's own choice.
    pub base_ns: Option<i64>,
    /// As in [`RewriteOptions`].
    pub annotate: bool,
    /// How planes are laid out; formats without planes do not look at it.
    pub layout: PlaneLayout,
    /// Written into the output as text: method, uncertainty, versions.
    pub metadata: Vec<(String, String)>,
    /// The schema that databases are to have; None: that which all have.
    pub schema: Option<String>,
    /// Leave out what databases hold beside the profiler's tables, instead of refusing it.
    pub drop_foreign: bool,
    /// As in [`RewriteOptions`], of each input in order; none where it is shorter.
    pub cpu_behind_ns: Vec<Option<i64>>,
    /// As in [`RewriteOptions`].
    pub repair: bool,
    /// Which events go into the output; None: all. Formats that leave out none are not asked to.
    pub filter: Option<Rc<dyn EventFilter>>,
}

/// How the planes of an XSpace are laid out.
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

/// What merging did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MergeStats {
    /// Per input, in the order given.
    pub inputs: Vec<RewriteStats>,
    /// The common base, ns.
    pub base_ns: i64,
    /// By how much the numbers of a node (XSpace: of devices; Kineto: of links) are above those of
    /// the one before.
    pub stride: u64,
    /// What the inputs say beside their events and the output does not.
    pub headers_left_out: u64,
    /// Bytes written, before packing.
    pub bytes_written: u64,
    /// What the user should know of the output.
    pub notes: Vec<String>,
}

const RANK_MARKER: &[u8] = b"probe_sync.rank#";
/// What a text file may begin with.
pub(crate) const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
