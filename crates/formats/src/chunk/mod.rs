//! A piece of a trace: columns of events on tracks, with the chunk's own texts.
//!
//! All times are in ns on one clock, usually Unix time of the reference node. Tracks are numbered
//! in the order in which they are declared, over all chunks of a writer; a column refers to its
//! track by that number. The columns of a table have equal lengths ([`Chunk::check`]). Events may
//! be in any order; [`Sorter`] sorts them.

pub mod order;
mod records;
mod retain;
mod sorter;
mod strings;

use crate::Error;

pub use sorter::{Sorted, Sorter};
pub(crate) use strings::lossy;
pub use strings::{StringId, Strings};

/// A track, by the order in which tracks were declared: 0, 1, …
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrackId(pub u32);

/// A row of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    /// Parent track, of the same or of an earlier chunk.
    pub parent: Option<TrackId>,
    /// Kind of the track.
    pub kind: TrackKind,
    /// Name; for a process the name of its program.
    pub name: String,
}

/// What a track stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrackKind {
    /// A process of the job.
    Process(Process),
    /// A thread of the process above it.
    Thread {
        /// Thread ID of the system.
        tid: i64,
    },
    /// A device, or anything else that rows are grouped by.
    Agent,
    /// A queue of a device.
    Queue,
    /// A stream of a device.
    Stream,
    /// Values over time.
    Counter {
        /// Unit; may be empty.
        unit: String,
    },
}

/// Identity of a process: pids repeat across hosts, so none of these fields alone distinguishes
/// processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Process ID on its host; 0: unknown.
    pub pid: i64,
    /// Host, if known.
    pub host: String,
    /// Rank in the job, if known.
    pub rank: Option<u32>,
    /// Its identifier according to the profiler, if any.
    pub guid: String,
}

impl Track {
    /// Label for viewers: `rank 2 · gpu-01 · python 30592` for a process, as far as its rank, host,
    /// name and number are known; for others their name.
    pub fn label(&self) -> String {
        let TrackKind::Process(process) = &self.kind else { return self.name.clone() };
        let host = Some(process.host.clone()).filter(|host| !host.is_empty());
        let rank = process.rank.map(|rank| format!("rank {rank}"));
        let name = Some(self.name.clone()).filter(|name| !name.is_empty());
        let own = match (name, process.pid) {
            (name, 0) => name,
            (Some(name), pid) => Some(format!("{name} {pid}")),
            (None, pid) => Some(format!("pid {pid}")),
        };
        [rank, host, own].into_iter().flatten().collect::<Vec<_>>().join(BETWEEN_NAMES)
    }
}

/// Between the parts of a process's name.
pub const BETWEEN_NAMES: &str = " · ";

/// Value of an argument.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Value {
    /// An integer.
    Integer(i64),
    /// An integer that does not fit an `i64`.
    Unsigned(u64),
    /// Another number.
    Float(f64),
    /// A boolean.
    Boolean(bool),
    /// A text.
    Text(StringId),
    /// An array or an object, as JSON.
    Json(StringId),
}

/// Arguments of one event: `count` entries from `first` on in [`Chunk::args`].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ArgRange {
    /// First entry.
    pub first: u32,
    /// Number of entries.
    pub count: u32,
}

/// One end of a flow, which connects events on different tracks. All ends with the same id are
/// connected in the order of their times.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Shared by all ends of a flow, unique in the whole output; 0: no flow.
    pub id: u64,
    /// Which end, for formats that distinguish them.
    pub end: FlowEnd,
}

/// Which end of a flow.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum FlowEnd {
    /// Start of the flow.
    #[default]
    Out,
    /// Intermediate point.
    Step,
    /// End of the flow.
    In,
}

/// Events with a duration, one column per property.
#[derive(Clone, Debug, Default)]
pub struct Slices {
    /// Tracks.
    pub track: Vec<TrackId>,
    /// Starts, ns.
    pub start_ns: Vec<i64>,
    /// Ends, ns; not before the starts.
    pub end_ns: Vec<i64>,
    /// Names.
    pub name: Vec<StringId>,
    /// Categories; may be empty.
    pub category: Vec<StringId>,
    /// The flow that each is an end of.
    pub flow: Vec<Flow>,
    /// Arguments.
    pub args: Vec<ArgRange>,
}

impl Slices {
    /// Adds a row: track, start and end, name and category, flow, and arguments.
    #[inline]
    pub(crate) fn push(
        &mut self,
        track: TrackId,
        (start_ns, end_ns): (i64, i64),
        (name, category): (StringId, StringId),
        flow: Flow,
        args: ArgRange,
    ) {
        self.track.push(track);
        self.start_ns.push(start_ns);
        self.end_ns.push(end_ns);
        self.name.push(name);
        self.category.push(category);
        self.flow.push(flow);
        self.args.push(args);
    }
}

/// Events without a duration, one column per property.
#[derive(Clone, Debug, Default)]
pub struct Instants {
    /// Tracks.
    pub track: Vec<TrackId>,
    /// Times, ns.
    pub time_ns: Vec<i64>,
    /// Names.
    pub name: Vec<StringId>,
    /// Categories; may be empty.
    pub category: Vec<StringId>,
    /// Arguments.
    pub args: Vec<ArgRange>,
}

impl Instants {
    /// Adds a row: track, time, name and category, and arguments.
    #[inline]
    pub(crate) fn push(
        &mut self,
        track: TrackId,
        time_ns: i64,
        (name, category): (StringId, StringId),
        args: ArgRange,
    ) {
        self.track.push(track);
        self.time_ns.push(time_ns);
        self.name.push(name);
        self.category.push(category);
        self.args.push(args);
    }
}

/// Values on counter tracks, one column per property.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Counter tracks.
    pub track: Vec<TrackId>,
    /// Times from which the values hold, ns.
    pub time_ns: Vec<i64>,
    /// Values from those times on.
    pub value: Vec<f64>,
}

impl Counters {
    /// Adds a row.
    #[inline]
    pub(crate) fn push(&mut self, track: TrackId, time_ns: i64, value: f64) {
        self.track.push(track);
        self.time_ns.push(time_ns);
        self.value.push(value);
    }
}

/// Ends of flows that were recorded separately from their slices. Each belongs to the innermost
/// slice that begins on the track at that time; if there is none, the end is counted and not
/// written.
#[derive(Clone, Debug, Default)]
pub struct FlowPoints {
    /// Tracks.
    pub track: Vec<TrackId>,
    /// Times, ns.
    pub time_ns: Vec<i64>,
    /// The flow and which end of it.
    pub flow: Vec<Flow>,
}

impl FlowPoints {
    /// Adds a row.
    #[inline]
    pub(crate) fn push(&mut self, track: TrackId, time_ns: i64, flow: Flow) {
        self.track.push(track);
        self.time_ns.push(time_ns);
        self.flow.push(flow);
    }
}

/// Arguments of slices and instants.
#[derive(Clone, Debug, Default)]
pub struct Args {
    /// Keys.
    pub key: Vec<StringId>,
    /// Values.
    pub value: Vec<Value>,
}

/// A piece of a trace.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// Its texts.
    pub strings: Strings,
    /// Tracks declared with it.
    pub tracks: Vec<Track>,
    /// Events with a duration.
    pub slices: Slices,
    /// Events without a duration.
    pub instants: Instants,
    /// Counter values.
    pub counters: Counters,
    /// Ends of flows.
    pub flows: FlowPoints,
    /// Arguments of slices and instants.
    pub args: Args,
}

impl Chunk {
    /// Number of events in all tables.
    pub fn events(&self) -> usize {
        self.slices.track.len() + self.instants.track.len() + self.counters.track.len() + self.flows.track.len()
    }

    /// Whether the chunk has reached its intended size.
    pub fn is_full(&self) -> bool {
        self.events() >= CHUNK_EVENTS || self.strings.bytes() >= CHUNK_BYTES || self.args.key.len() >= CHUNK_ARGS
    }

    /// Empties the chunk and keeps its memory.
    pub fn clear(&mut self) {
        let Self { strings, tracks, slices, instants, counters, flows, args } = self;
        strings.clear();
        tracks.clear();
        for column in [&mut slices.track, &mut instants.track, &mut counters.track, &mut flows.track] {
            column.clear();
        }
        for column in
            [&mut slices.start_ns, &mut slices.end_ns, &mut instants.time_ns, &mut counters.time_ns, &mut flows.time_ns]
        {
            column.clear();
        }
        for column in
            [&mut slices.name, &mut slices.category, &mut instants.name, &mut instants.category, &mut args.key]
        {
            column.clear();
        }
        slices.args.clear();
        instants.args.clear();
        slices.flow.clear();
        flows.flow.clear();
        counters.value.clear();
        args.value.clear();
    }

    /// Refuses columns of different lengths, references to nonexistent texts, arguments and tracks,
    /// and slices that end before they begin. `tracks` is the number of tracks declared before.
    ///
    /// # Errors
    /// [`Error::Chunk`] naming table and row.
    pub fn check(&self, tracks: usize) -> Result<(), Error> {
        self.check_lengths()?;
        let Self { slices, instants, counters, flows, args, .. } = self;
        let known = tracks + self.tracks.len();
        let parent = |track: &Track| track.parent.is_some_and(|parent| parent.0 as usize >= known);
        refuse("tracks", "the parent track was never declared", self.tracks.iter().position(parent))?;
        for (table, column) in [
            ("slices", &slices.track),
            ("instants", &instants.track),
            ("counters", &counters.track),
            ("flows", &flows.track),
        ] {
            let wrong = column.iter().position(|track| track.0 as usize >= known);
            refuse(table, "its track was never declared", wrong)?;
        }
        for (table, column) in [
            ("slices", &slices.name),
            ("slices", &slices.category),
            ("instants", &instants.name),
            ("instants", &instants.category),
            ("args", &args.key),
        ] {
            let wrong = column.iter().position(|id| id.0 as usize >= self.strings.count());
            refuse(table, "it refers to text that the chunk does not contain", wrong)?;
        }
        for (table, column) in [("slices", &slices.args), ("instants", &instants.args)] {
            let beyond = |range: &ArgRange| range.first as usize + range.count as usize > args.key.len();
            refuse(table, "it refers to arguments that the chunk does not contain", column.iter().position(beyond))?;
        }
        let backwards = slices.start_ns.iter().zip(&slices.end_ns).position(|(start, end)| end < start);
        refuse("slices", "it ends before it begins", backwards)
    }

    /// Start times of events, by table.
    pub fn times(&self) -> [(&'static str, &[i64]); 3] {
        [("slices", &self.slices.start_ns), ("instants", &self.instants.time_ns), ("counters", &self.counters.time_ns)]
    }

    /// Refuses times before the zero of the clock, for formats with unsigned times.
    ///
    /// # Errors
    /// [`Error::Chunk`] names table, row and the output, as "a Perfetto trace".
    pub fn refuse_negative_times(&self, output: &str) -> Result<(), Error> {
        for (table, column) in self.times() {
            let problem = format!("{output} cannot contain a time before the clock's zero");
            refuse(table, &problem, column.iter().position(|time| *time < 0))?;
        }
        Ok(())
    }

    fn check_lengths(&self) -> Result<(), Error> {
        let Self { slices, instants, counters, flows, args, .. } = self;
        let count = slices.track.len();
        let of_slices = [
            slices.start_ns.len(),
            slices.end_ns.len(),
            slices.name.len(),
            slices.category.len(),
            slices.flow.len(),
            slices.args.len(),
        ];
        same_length("slices", count, &of_slices)?;
        let of_instants = [instants.time_ns.len(), instants.name.len(), instants.category.len(), instants.args.len()];
        same_length("instants", instants.track.len(), &of_instants)?;
        same_length("counters", counters.track.len(), &[counters.time_ns.len(), counters.value.len()])?;
        same_length("flows", flows.track.len(), &[flows.time_ns.len(), flows.flow.len()])?;
        same_length("args", args.key.len(), &[args.value.len()])
    }
}

fn same_length(table: &str, expected: usize, lengths: &[usize]) -> Result<(), Error> {
    match lengths.iter().find(|length| **length != expected) {
        None => Ok(()),
        Some(other) => Err(Error::Chunk {
            problem: format!("{table}: columns of {expected} and of {other} rows; give all one length"),
        }),
    }
}

fn refuse(table: &str, problem: &str, row: Option<usize>) -> Result<(), Error> {
    row.map_or(Ok(()), |row| Err(Error::Chunk { problem: format!("{table}: row {row}: {problem}") }))
}

/// Events of a chunk, about.
const CHUNK_EVENTS: usize = 16 << 10;
/// Text of a chunk, about.
const CHUNK_BYTES: usize = 4 << 20;
/// Arguments of a chunk, about.
const CHUNK_ARGS: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_that_do_not_hold_together_are_refused() {
        let check = |change: &dyn Fn(&mut Chunk), part: &str| {
            let mut chunk = Chunk::default();
            chunk.tracks.push(Track { parent: None, kind: TrackKind::Agent, name: "a".into() });
            chunk.slices.track.push(TrackId(0));
            chunk.slices.start_ns.push(5);
            chunk.slices.end_ns.push(6);
            chunk.slices.name.push(StringId::EMPTY);
            chunk.slices.category.push(StringId::EMPTY);
            chunk.slices.flow.push(Flow::default());
            chunk.slices.args.push(ArgRange::default());
            chunk.check(0).expect("a sound chunk");
            change(&mut chunk);
            let said = chunk.check(0).expect_err(part).to_string();
            assert!(said.contains(part), "{said}");
        };
        check(&|chunk| chunk.slices.end_ns.clear(), "slices: columns of 1 and of 0 rows");
        check(&|chunk| chunk.counters.value.push(1.0), "counters: columns of 0 and of 1 rows");
        check(&|chunk| chunk.slices.track[0] = TrackId(1), "slices: row 0: its track was never declared");
        check(&|chunk| chunk.tracks[0].parent = Some(TrackId(1)), "tracks: row 0");
        check(&|chunk| chunk.slices.name[0] = StringId(9), "slices: row 0: it refers to text");
        check(&|chunk| chunk.slices.args[0].count = 1, "slices: row 0: it refers to arguments");
        check(&|chunk| chunk.slices.end_ns[0] = 4, "slices: row 0: it ends before it begins");
    }
}
