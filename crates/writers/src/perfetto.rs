//! Perfetto's protobuf (`.pftrace`), written event by event.
//!
//! Reference: `protos/perfetto/trace` of Perfetto; `perfetto_fields` lists the fields used. The
//! messages are few and flat, and encoding them by hand takes a third of the time of building
//! structs first. Three things make a slice small: names are interned, times count from the
//! previous event (an incremental clock of the sequence), and tracks have small numbers of their
//! own. Perfetto identifies processes by pid: if another process, for example on the next host or
//! in the next container, has the same pid, the process gets a number that no system assigns, and
//! its name keeps the pid. An event that is earlier than the previous one states its time in full;
//! after many of these a new sequence begins. When there are many interned texts, they are
//! forgotten and a new sequence begins. It does not sort; the reader of this format does.

use std::collections::HashSet;
use std::io::Write;

use foldhash::fast::FixedState;
use probe_sync_formats::Error;
use probe_sync_formats::chunk::order::{Row, in_order};
use probe_sync_formats::chunk::{Chunk, Flow, Track, TrackId, TrackKind};
use probe_sync_formats::perfetto::{attributes, fields as field};
use probe_sync_formats::protobuf::{put_bytes, put_number};

use super::flows::Waiting;
use super::lanes::{Lanes, Place};
use super::machine::Machine;
use super::perfetto_sequence::{Event, Sequence};
use super::report::{Meta, WriteReport};
use super::sink::Sink;

/// A trace being written.
#[derive(Debug)]
pub(super) struct Perfetto<W> {
    sink: Sink<W>,
    tracks: Vec<Known>,
    lanes: Lanes,
    /// By lane: the track uuid of its events.
    lane_uuids: Vec<u64>,
    next_uuid: u64,
    /// Processes and tids that have a track: Perfetto takes a second one for the same thread, and
    /// its slices for overlapping ones.
    threads: HashSet<(u64, i64), FixedState>,
    pids: Pids,
    sequence: Sequence,
    waiting: Waiting,
    taken: Vec<Flow>,
    report: WriteReport,
}

/// State of a track.
#[derive(Debug)]
struct Known {
    uuid: u64,
    name: String,
    /// The pid of its process; none if Perfetto cannot hold it.
    pid: Option<u64>,
}

impl<W: Write> Perfetto<W> {
    pub(super) fn open(sink: W, meta: &Meta) -> Self {
        let mut sink = Sink::new(sink);
        if !meta.metadata.is_empty() {
            let mut packet = Vec::new();
            // The number of the first sequence.
            put_number(&mut packet, field::PACKET_SEQUENCE, 1);
            packet.extend(attributes(&meta.metadata));
            put_bytes(sink.buffer(), field::TRACE_PACKET, &packet);
        }
        Self {
            sink,
            tracks: Vec::new(),
            lanes: Lanes::default(),
            lane_uuids: Vec::new(),
            next_uuid: 1,
            threads: HashSet::default(),
            pids: Pids::default(),
            sequence: Sequence::default(),
            waiting: Waiting::default(),
            taken: Vec::new(),
            report: WriteReport::default(),
        }
    }

    pub(super) fn write(&mut self, chunk: &Chunk) -> Result<(), Error> {
        chunk.check(self.tracks.len())?;
        chunk.refuse_negative_times("a Perfetto trace")?;
        self.sequence.refuse_early(chunk)?;
        self.declare(&chunk.tracks)?;
        self.sequence.next_chunk(chunk);
        for row in in_order(chunk) {
            match row {
                Row::Flow(row) => {
                    self.waiting.at(chunk.flows.time_ns[row]);
                    self.waiting.add(chunk, row);
                    self.report.flow_ends += 1;
                }
                Row::Slice(row) => self.slice(chunk, row)?,
                Row::Instant(row) => self.instant(chunk, row)?,
                Row::Counter(row) => self.counter(chunk, row)?,
            }
        }
        Ok(())
    }

    /// Assigns the following chunks to this machine.
    pub(super) fn on_machine(&mut self, machine: Option<&Machine>) -> Result<(), Error> {
        if machine.is_none() && !self.sequence.is_on_machine() {
            return Ok(());
        }
        self.end_until(i64::MAX)?;
        if let Some((pairs, off_ns)) = self.sequence.on_machine(machine.cloned()) {
            self.report.clock_pairs += pairs;
            self.report.clock_off_ns = self.report.clock_off_ns.max(off_ns);
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<(WriteReport, W), Error> {
        self.end_until(i64::MAX)?;
        self.on_machine(None)?;
        self.report.unbound_flow_ends = self.waiting.finish();
        let (inner, bytes) = self.sink.finish()?;
        self.report.bytes = bytes;
        self.report.tracks = self.tracks.len() as u64;
        Ok((self.report, inner))
    }

    fn slice(&mut self, chunk: &Chunk, row: usize) -> Result<(), Error> {
        let slices = &chunk.slices;
        let (track, start, end) = (slices.track[row], slices.start_ns[row], slices.end_ns[row]);
        self.end_until(start)?;
        let place = self.lanes.place(track.0, start, end);
        if place.new {
            self.open_lane(track, place)?;
        }
        self.waiting.at(start);
        self.report.flow_ends += u64::from(slices.flow[row].id != 0);
        self.waiting.take(slices, row, &mut self.taken);
        self.report.slices += 1;
        let event = Event {
            kind: field::SLICE_BEGIN,
            track: self.lane_uuids[place.lane as usize],
            time: start,
            name: slices.name[row],
            category: slices.category[row],
            args: slices.args[row],
        };
        self.sequence.event(self.sink.buffer(), chunk, &event, &self.taken);
        self.sink.settle()
    }

    fn instant(&mut self, chunk: &Chunk, row: usize) -> Result<(), Error> {
        let instants = &chunk.instants;
        self.end_until(instants.time_ns[row])?;
        self.report.instants += 1;
        let event = Event {
            kind: field::INSTANT,
            track: self.tracks[instants.track[row].0 as usize].uuid,
            time: instants.time_ns[row],
            name: instants.name[row],
            category: instants.category[row],
            args: instants.args[row],
        };
        self.sequence.event(self.sink.buffer(), chunk, &event, &[]);
        self.sink.settle()
    }

    fn counter(&mut self, chunk: &Chunk, row: usize) -> Result<(), Error> {
        let counters = &chunk.counters;
        self.end_until(counters.time_ns[row])?;
        self.report.counters += 1;
        let track = self.tracks[counters.track[row].0 as usize].uuid;
        self.sequence.value(self.sink.buffer(), track, counters.time_ns[row], counters.value[row]);
        self.sink.settle()
    }

    /// Ends everything that ends until `time`.
    #[inline]
    fn end_until(&mut self, time: i64) -> Result<(), Error> {
        while let Some((end, lane)) = self.lanes.ended(time) {
            self.sequence.end(self.sink.buffer(), self.lane_uuids[lane as usize], end);
            self.sink.settle()?;
        }
        Ok(())
    }

    /// The first lane of a row is the track itself; further ones are tracks below it.
    fn open_lane(&mut self, track: TrackId, place: Place) -> Result<(), Error> {
        debug_assert_eq!(place.lane as usize, self.lane_uuids.len(), "lanes are numbered as they are opened");
        let known = &self.tracks[track.0 as usize];
        if place.of_row == 0 {
            self.lane_uuids.push(known.uuid);
            return Ok(());
        }
        self.report.lanes += 1;
        let mut body = Vec::new();
        put_number(&mut body, field::DESCRIPTOR_UUID, self.next_uuid);
        put_number(&mut body, field::DESCRIPTOR_PARENT, known.uuid);
        let name = format!("{} (lane {})", known.name, place.of_row + 1);
        put_bytes(&mut body, field::DESCRIPTOR_NAME, name.as_bytes());
        put_number(&mut body, field::DESCRIPTOR_RANK, u64::from(place.of_row));
        put_number(&mut body, field::DESCRIPTOR_MERGE, field::NEVER_MERGE);
        self.lane_uuids.push(self.next_uuid);
        self.next_uuid += 1;
        self.sequence.descriptor(self.sink.buffer(), &body);
        self.sink.settle()
    }

    fn declare(&mut self, tracks: &[Track]) -> Result<(), Error> {
        let before = self.tracks.len();
        if before == 0 && !tracks.is_empty() {
            self.sequence.descriptor(self.sink.buffer(), &ordered_processes());
        }
        for track in tracks {
            self.tracks.push(Known { uuid: self.next_uuid, name: track.label(), pid: None });
            self.next_uuid += 1;
        }
        self.lanes.add_rows(tracks.len());
        for (known, track) in self.tracks[before..].iter_mut().zip(tracks) {
            if let TrackKind::Process(process) = &track.kind {
                known.pid = self.pids.number(process.pid);
            }
        }
        // Tracks may stand before the tracks that they are below: one pass per level.
        for _ in 0..tracks.len() {
            let mut changed = false;
            for (index, track) in tracks.iter().enumerate() {
                let pid = match (&track.kind, track.parent) {
                    (TrackKind::Process(_), _) => self.tracks[before + index].pid,
                    (_, Some(parent)) => self.tracks[parent.0 as usize].pid,
                    (_, None) => None,
                };
                changed |= self.tracks[before + index].pid != pid;
                self.tracks[before + index].pid = pid;
            }
            if !changed {
                break;
            }
        }
        // Perfetto takes a thread for one of the process of its pid that was described last: each
        // process with all below it, then.
        let root = |mut track: TrackId| {
            for _ in 0..TREE_DEPTH_MAX {
                match track.0.checked_sub(before as u32).and_then(|index| tracks[index as usize].parent) {
                    Some(parent) => track = parent,
                    None => break,
                }
            }
            track
        };
        let mut order: Vec<(TrackId, usize)> =
            (0..tracks.len()).map(|index| (root(TrackId((before + index) as u32)), index)).collect();
        order.sort_by_key(|(root, index)| (*root, *root != TrackId((before + index) as u32), *index));
        for (_, index) in order {
            let body = self.described(before + index, &tracks[index]);
            self.sequence.descriptor(self.sink.buffer(), &body);
            self.sink.settle()?;
        }
        Ok(())
    }

    /// A TrackDescriptor. Numbers of processes and threads that Perfetto cannot hold make a plain
    /// track of its name.
    fn described(&mut self, index: usize, track: &Track) -> Vec<u8> {
        let process = track.parent.map_or(0, |parent| self.tracks[parent.0 as usize].uuid);
        let is_first = !matches!(track.kind, TrackKind::Thread { tid } if !self.threads.insert((process, tid)));
        let known = &self.tracks[index];
        let mut body = Vec::new();
        put_number(&mut body, field::DESCRIPTOR_UUID, known.uuid);
        if let Some(parent) = track.parent {
            put_number(&mut body, field::DESCRIPTOR_PARENT, self.tracks[parent.0 as usize].uuid);
        }
        let mut inner = Vec::new();
        match &track.kind {
            TrackKind::Process(_) => match known.pid {
                Some(pid) => {
                    put_number(&mut inner, field::PROCESS_PID, pid);
                    put_bytes(&mut inner, field::PROCESS_NAME, known.name.as_bytes());
                    put_bytes(&mut body, field::DESCRIPTOR_PROCESS, &inner);
                }
                // Number 0 is one process to Perfetto, however many have it.
                None => put_bytes(&mut body, field::DESCRIPTOR_NAME, known.name.as_bytes()),
            },
            TrackKind::Thread { tid } => match (known.pid, system_number(*tid)) {
                (Some(pid), Some(tid)) if is_first => {
                    put_number(&mut inner, field::THREAD_PID, pid);
                    put_number(&mut inner, field::THREAD_TID, tid);
                    put_bytes(&mut inner, field::THREAD_NAME, known.name.as_bytes());
                    put_bytes(&mut body, field::DESCRIPTOR_THREAD, &inner);
                }
                _ => put_bytes(&mut body, field::DESCRIPTOR_NAME, known.name.as_bytes()),
            },
            TrackKind::Counter { unit } => {
                put_bytes(&mut body, field::DESCRIPTOR_NAME, known.name.as_bytes());
                put_bytes(&mut inner, field::COUNTER_UNIT_NAME, unit.as_bytes());
                put_bytes(&mut body, field::DESCRIPTOR_COUNTER, &inner);
            }
            TrackKind::Agent | TrackKind::Queue | TrackKind::Stream => {
                put_bytes(&mut body, field::DESCRIPTOR_NAME, known.name.as_bytes());
            }
        }
        put_number(&mut body, field::DESCRIPTOR_CHILD_ORDER, field::BY_RANK);
        put_number(&mut body, field::DESCRIPTOR_RANK, place(&track.kind, index));
        put_number(&mut body, field::DESCRIPTOR_MERGE, field::NEVER_MERGE);
        body
    }
}

/// Unique numbers of processes.
#[derive(Debug)]
struct Pids {
    taken: HashSet<u64, FixedState>,
    next: i64,
}

impl Default for Pids {
    fn default() -> Self {
        Self { taken: HashSet::default(), next: FREE_FROM }
    }
}

impl Pids {
    /// The number that a process wants, or another if that is taken. `None` for number 0, which
    /// Perfetto takes for one process, however many have it.
    fn number(&mut self, wanted: i64) -> Option<u64> {
        let wanted = system_number(wanted)?;
        if self.taken.insert(wanted) {
            return Some(wanted);
        }
        // Ends: a number of it is passed each time.
        loop {
            let free = system_number(self.next)?;
            self.next += 1;
            if self.taken.insert(free) {
                return Some(free);
            }
        }
    }
}

/// A number of a process or thread that Perfetto can hold.
fn system_number(number: i64) -> Option<u64> {
    i32::try_from(number).ok().filter(|number| *number > 0).map(|number| number as u64)
}

/// The first number that Linux gives no process.
const FREE_FROM: i64 = 1 << 22;

/// The track above all: processes are shown in the order of their places. Perfetto knows it from
/// version 57 on; before, the busiest process is shown first.
fn ordered_processes() -> Vec<u8> {
    let mut body = Vec::new();
    put_number(&mut body, field::DESCRIPTOR_UUID, 0);
    put_number(&mut body, field::DESCRIPTOR_PROCESS_ORDER, field::PROCESSES_BY_RANK);
    body
}

/// Position of a track among its siblings: processes in the order of ranks, those without a rank
/// last; all others, and processes of one rank, in the order of description.
fn place(kind: &TrackKind, index: usize) -> u64 {
    let rank = match kind {
        TrackKind::Process(process) => process.rank.map_or(RANKS, |rank| u64::from(rank).min(RANKS)),
        _ => return index as u64,
    };
    rank * TRACKS_OF_RANK + (index as u64).min(TRACKS_OF_RANK - 1)
}

/// Largest number of distinct ranks, and of tracks; together they fill the 31 bits that Perfetto
/// has for a position.
const RANKS: u64 = (1 << 16) - 1;
const TRACKS_OF_RANK: u64 = 1 << 15;

/// Most levels of tracks; deeper ones are described all the same, in another order.
const TREE_DEPTH_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use probe_sync_formats::chunk::Process;

    #[test]
    fn no_two_processes_have_one_number() {
        let mut pids = Pids::default();
        let found: Vec<_> = [7, 8, 7, FREE_FROM, 7, 0, -1, i64::MAX].map(|pid| pids.number(pid)).to_vec();
        let free = FREE_FROM as u64;
        let expected = [Some(7), Some(8), Some(free), Some(free + 1), Some(free + 2), None, None, None];
        assert_eq!(found, expected);
        pids.next = i64::from(i32::MAX);
        assert_eq!([pids.number(8), pids.number(8)], [Some(i32::MAX as u64), None]);
    }

    #[test]
    fn processes_stand_in_the_order_of_ranks() {
        let process = |rank| TrackKind::Process(Process { rank, ..Process::default() });
        let mut described = [(Some(10), 0), (None, 1), (Some(2), 2), (Some(2), 3)];
        described.sort_by_key(|(rank, index)| place(&process(*rank), *index));
        assert_eq!(described, [(Some(2), 2), (Some(2), 3), (Some(10), 0), (None, 1)]);
        assert_eq!(place(&process(Some(u32::MAX)), usize::MAX), i32::MAX as u64);
        // TrackDescriptor { uuid: 0, process_ordering: PROCESS_ORDERING_EXPLICIT }
        assert_eq!(ordered_processes(), [0x08, 0, 0x98, 0x01, 1]);
    }
}
