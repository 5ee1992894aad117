//! Sorts chunks by time in memory that does not grow with the trace.
//!
//! Readers need it because their files are in no particular order. Events are kept as records;
//! beyond [`MEMORY_BYTES`] they go, sorted, to an unnamed file in the directory for temporary files
//! (`TMPDIR`), and the runs are merged when they are read back. Tracks are collected and come
//! first, because a file may name a thread after its events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::order::in_order;
use super::records::{self, Key};
use crate::Error;
use crate::chunk::{Chunk, Track};
use crate::model::parts::nameless;
use crate::protobuf::{put_varint, varint};

/// Collects chunks for sorting.
#[derive(Debug)]
pub struct Sorter {
    tracks: Vec<Track>,
    records: Vec<u8>,
    /// Keys, with the position ([`Order`]) and length of their records.
    index: Vec<(Key, u64, u32)>,
    spill: Option<File>,
    spilled: u64,
    runs: Vec<(u64, u64)>,
    memory_bytes: usize,
    left_out: u64,
    /// Slices come in the order of their ends.
    by_ends: bool,
}

impl Default for Sorter {
    fn default() -> Self {
        Self::with_memory(MEMORY_BYTES)
    }
}

impl Sorter {
    /// A sorter that keeps this much before it goes to disk.
    fn with_memory(memory_bytes: usize) -> Self {
        let (tracks, records, index, runs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { tracks, records, index, spill: None, spilled: 0, runs, memory_bytes, left_out: 0, by_ends: false }
    }

    /// Creates a sorter for slices that come in the order of their ends, nested ones before their
    /// parents: of slices with the same span the later is the outer one, and comes first.
    pub fn of_ends() -> Self {
        Self { by_ends: true, ..Self::default() }
    }

    /// Adds the events of a chunk that `keep` accepts by their start and end, ns. Tracks are
    /// numbered across all chunks, and a later chunk may declare the tracks of events of an earlier
    /// one.
    ///
    /// # Errors
    /// Returns an error if temporary files cannot be written.
    pub fn push(&mut self, chunk: &Chunk, keep: impl Fn(i64, i64) -> bool) -> Result<(), Error> {
        self.tracks.extend(chunk.tracks.iter().cloned());
        for row in in_order(chunk) {
            let (start, end) = records::span(chunk, row);
            if !keep(start, end) {
                self.left_out += 1;
                continue;
            }
            let at = self.records.len();
            records::put(&mut self.records, chunk, row);
            let order = if self.by_ends && end > start { Order::Later(at as u64) } else { Order::First(at as u64) };
            self.index.push((records::key(chunk, row), order.number(), (self.records.len() - at) as u32));
        }
        let held = self.records.len() + self.index.len() * size_of::<(Key, u64, u32)>();
        if held >= self.memory_bytes { self.spill() } else { Ok(()) }
    }

    /// Number of tracks declared so far.
    pub fn tracks(&self) -> usize {
        self.tracks.len()
    }

    /// Number of events that `keep` rejected.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns everything in order of time, tracks first; tracks are numbered from `first_track`
    /// on.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn finish(mut self, first_track: u32) -> Result<Sorted, Error> {
        if !self.runs.is_empty() && !self.index.is_empty() {
            self.spill()?;
            // What was held is on disk, and its memory is better used by the writers.
            (self.records, self.index) = (Vec::new(), Vec::new());
        }
        let piece_bytes = (MERGE_BYTES / self.runs.len().max(1)).clamp(PIECE_BYTES_MIN, PIECE_BYTES);
        self.index.sort_unstable();
        let mut sorted = Sorted {
            tracks: self.tracks,
            declared: false,
            first_track,
            records: self.records,
            index: self.index,
            next: 0,
            runs: Vec::with_capacity(self.runs.len()),
            by_ends: self.by_ends,
            heads: BinaryHeap::new(),
        };
        for (start, end) in self.runs {
            let file = self.spill.as_ref().map(File::try_clone).transpose().map_err(temporary("read"))?;
            let file = file.expect("runs are in the file");
            sorted.runs.push(Run { file, start, at: start, end, buffer: Vec::new(), taken: 0, piece_bytes });
        }
        sorted.rewind()?;
        Ok(sorted)
    }

    /// Writes what is held as a sorted run: key, length and record after each other.
    #[cold]
    fn spill(&mut self) -> Result<(), Error> {
        if self.spill.is_none() {
            self.spill = Some(nameless().map_err(temporary("create"))?);
        }
        let file = self.spill.as_ref().expect("it was made above");
        self.index.sort_unstable();
        let start = self.spilled;
        let mut out = Vec::with_capacity(2 * PIECE_BYTES);
        for ((from, Reverse(until)), order, length) in &self.index {
            let at = Order::place(*order);
            out.extend_from_slice(&from.to_le_bytes());
            out.extend_from_slice(&until.to_le_bytes());
            put_varint(&mut out, u64::from(*length));
            out.extend_from_slice(&self.records[at..at + *length as usize]);
            if out.len() >= PIECE_BYTES {
                file.write_all_at(&out, self.spilled).map_err(temporary("write"))?;
                self.spilled += out.len() as u64;
                out.clear();
            }
        }
        file.write_all_at(&out, self.spilled).map_err(temporary("write"))?;
        self.spilled += out.len() as u64;
        self.runs.push((start, self.spilled));
        self.records.clear();
        self.index.clear();
        Ok(())
    }
}

/// Order of records with equal keys: first come, or last come, first.
enum Order {
    First(u64),
    Later(u64),
}

impl Order {
    /// The number that is sorted by.
    fn number(&self) -> u64 {
        match *self {
            Self::First(place) => place,
            Self::Later(place) => u64::MAX - place,
        }
    }

    /// The place of a number.
    fn place(number: u64) -> usize {
        number.min(u64::MAX - number) as usize
    }
}

/// Events in order of time.
#[derive(Debug)]
pub struct Sorted {
    tracks: Vec<Track>,
    /// The tracks have been returned.
    declared: bool,
    first_track: u32,
    records: Vec<u8>,
    index: Vec<(Key, u64, u32)>,
    next: usize,
    runs: Vec<Run>,
    /// The first key of each run, with the run.
    heads: BinaryHeap<Reverse<(Key, u64)>>,
    by_ends: bool,
}

/// A run on disk.
#[derive(Debug)]
struct Run {
    file: File,
    start: u64,
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    taken: usize,
    /// Size of one read.
    piece_bytes: usize,
}

impl Sorted {
    /// Number of tracks.
    pub fn tracks(&self) -> usize {
        self.tracks.len()
    }

    /// The tracks, numbered from the first of this sorter on.
    pub fn all_tracks(&self) -> &[Track] {
        &self.tracks
    }

    /// Goes back to the first event.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn rewind(&mut self) -> Result<(), Error> {
        (self.declared, self.next) = (false, 0);
        self.heads.clear();
        for run in 0..self.runs.len() {
            let reader = &mut self.runs[run];
            (reader.at, reader.taken) = (reader.start, 0);
            reader.buffer.clear();
            self.advance(run)?;
        }
        Ok(())
    }

    /// Fills `chunk` with the next events; returns false if none are left. Events with the same
    /// start stay together.
    ///
    /// # Errors
    /// Returns an error if temporary files cannot be read back.
    pub fn next(&mut self, chunk: &mut Chunk) -> Result<bool, Error> {
        chunk.clear();
        if !std::mem::replace(&mut self.declared, true) {
            chunk.tracks.clone_from(&self.tracks);
            for track in &mut chunk.tracks {
                if let Some(parent) = &mut track.parent {
                    parent.0 += self.first_track;
                }
            }
        }
        let mut last = None;
        while let Some(time) = self.next_time() {
            if chunk.is_full() && last != Some(time) {
                return Ok(true);
            }
            last = Some(time);
            self.take(chunk)?;
        }
        Ok(chunk.events() > 0 || !chunk.tracks.is_empty())
    }

    fn next_time(&self) -> Option<i64> {
        let held = self.index.get(self.next).map(|(key, ..)| key.0);
        held.or_else(|| self.heads.peek().map(|Reverse((key, _))| key.0))
    }

    fn take(&mut self, chunk: &mut Chunk) -> Result<(), Error> {
        if let Some((_, order, length)) = self.index.get(self.next) {
            let at = Order::place(*order);
            records::take(&self.records[at..at + *length as usize], chunk, self.first_track);
            self.next += 1;
            return Ok(());
        }
        let Reverse((_, order)) = self.heads.pop().expect("the caller has asked for the next time");
        let run = Order::place(order);
        let reader = &mut self.runs[run];
        let rest = &reader.buffer[reader.taken + KEY_BYTES..];
        let (length, width) = varint(rest).expect("advance has the whole record in the buffer");
        records::take(&rest[width..width + length as usize], chunk, self.first_track);
        reader.taken += KEY_BYTES + width + length as usize;
        self.advance(run)
    }

    /// Makes the next record of a run complete in its buffer, and puts its key among the heads.
    fn advance(&mut self, run: usize) -> Result<(), Error> {
        let reader = &mut self.runs[run];
        let available = |reader: &Run| -> Option<usize> {
            let rest = reader.buffer.get(reader.taken + KEY_BYTES..)?;
            let (length, width) = varint(rest)?;
            Some(KEY_BYTES + width + length as usize).filter(|whole| reader.buffer.len() - reader.taken >= *whole)
        };
        while available(reader).is_none() {
            if reader.at == reader.end {
                return Ok(());
            }
            reader.buffer.drain(..reader.taken);
            reader.taken = 0;
            let more = (reader.end - reader.at).min(reader.piece_bytes as u64) as usize;
            let filled = reader.buffer.len();
            reader.buffer.resize(filled + more, 0);
            reader.file.read_exact_at(&mut reader.buffer[filled..], reader.at).map_err(temporary("read"))?;
            reader.at += more as u64;
        }
        let fixed =
            |at: usize| reader.buffer[reader.taken + at..].first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
        let (start, end) = (fixed(0), fixed(8));
        let order = if self.by_ends && end > start { Order::Later(run as u64) } else { Order::First(run as u64) };
        self.heads.push(Reverse(((start, Reverse(end)), order.number())));
        Ok(())
    }
}

fn temporary(action: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::io(&std::env::temp_dir(), action)(source)
}

/// Memory for records before they go to disk, including their index.
const MEMORY_BYTES: usize = 48 << 20;
/// Bytes read or written at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Fewer are not worth a call.
const PIECE_BYTES_MIN: usize = 16 << 10;
/// Bytes of all runs' buffers together while they are merged.
const MERGE_BYTES: usize = 16 << 20;
/// Two times.
const KEY_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chunk::{ArgRange, Flow, FlowEnd, StringId, TrackId, TrackKind, Value};

    /// Start, end, name and arguments of a slice.
    type Found = (i64, i64, String, Vec<String>);

    /// Chunks of slices (start, length, name), each with an argument of every kind, an instant, a
    /// value and an end of a flow.
    fn chunks(slices: &[(i64, i64, String)]) -> Vec<Chunk> {
        let make = |part: &[(i64, i64, String)]| {
            let mut chunk = Chunk::default();
            for (start, length, name) in part {
                let name_id = chunk.strings.intern(name);
                let (key, text) = (chunk.strings.intern("key"), chunk.strings.push(name));
                let values = [
                    Value::Integer(*start),
                    Value::Float(0.5),
                    Value::Boolean(true),
                    Value::Text(text),
                    Value::Json(text),
                ];
                let range = ArgRange { first: chunk.args.key.len() as u32, count: values.len() as u32 };
                chunk.args.key.extend([key; 5]);
                chunk.args.value.extend(values);
                let flow = Flow { id: start.unsigned_abs(), end: FlowEnd::In };
                chunk.slices.track.push(TrackId(1));
                chunk.slices.start_ns.push(*start);
                chunk.slices.end_ns.push(start + length);
                chunk.slices.name.push(name_id);
                chunk.slices.category.push(StringId::EMPTY);
                chunk.slices.flow.push(flow);
                chunk.slices.args.push(range);
                chunk.instants.track.push(TrackId(0));
                chunk.instants.time_ns.push(*start);
                chunk.instants.name.push(name_id);
                chunk.instants.category.push(name_id);
                chunk.instants.args.push(range);
                chunk.counters.track.push(TrackId(2));
                chunk.counters.time_ns.push(*start);
                chunk.counters.value.push(*length as f64);
                chunk.flows.track.push(TrackId(1));
                chunk.flows.time_ns.push(*start);
                chunk.flows.flow.push(Flow { id: 7, end: FlowEnd::Out });
            }
            let track = Track { parent: Some(TrackId(0)), kind: TrackKind::Agent, name: "t".into() };
            chunk.tracks = vec![track; 3];
            chunk
        };
        slices.chunks(7).map(make).collect()
    }

    fn sorted(slices: &[(i64, i64, String)], memory: usize) -> (Vec<Found>, [usize; 4]) {
        let mut sorter = Sorter::with_memory(memory);
        chunks(slices).iter().for_each(|chunk| sorter.push(chunk, |_, _| true).expect("pushed"));
        let mut sorted = sorter.finish(10).expect("finished");
        // Whoever has seen some of it may begin anew.
        sorted.next(&mut Chunk::default()).expect("read back");
        sorted.rewind().expect("read back");
        let (mut chunk, mut found, mut counts, mut tracks) = (Chunk::default(), Vec::new(), [0; 4], 10);
        while sorted.next(&mut chunk).expect("read back") {
            chunk.check(tracks).expect("a sound chunk");
            tracks += chunk.tracks.len();
            let Chunk { strings, slices, args, instants, counters, flows, .. } = &chunk;
            for row in 0..slices.track.len() {
                let range = slices.args[row];
                let value = |index: u32| match args.value[index as usize] {
                    Value::Text(id) | Value::Json(id) => strings.text(id).to_owned(),
                    other => format!("{other:?}"),
                };
                let values = (range.first..range.first + range.count).map(value).collect();
                found.push((
                    slices.start_ns[row],
                    slices.end_ns[row],
                    strings.text(slices.name[row]).to_owned(),
                    values,
                ));
                assert_eq!(
                    (slices.track[row], slices.flow[row].id),
                    (TrackId(11), slices.start_ns[row].unsigned_abs())
                );
            }
            let tables = [slices.track.len(), instants.track.len(), counters.track.len(), flows.track.len()];
            counts.iter_mut().zip(tables).for_each(|(count, more)| *count += more);
        }
        (found, counts)
    }

    proptest! {
        #[test]
        fn runs_on_disk_and_records_in_memory_give_the_same(
            slices in proptest::collection::vec((-50_i64..50, 0_i64..9, "[a-z\u{e9}]{0,5}"), 0..80),
        ) {
            let (found, counts) = sorted(&slices, usize::MAX);
            let (spilled, spilled_counts) = sorted(&slices, 900);
            prop_assert_eq!(counts, [slices.len(); 4]);
            prop_assert_eq!(counts, spilled_counts);
            prop_assert!(found.is_sorted_by_key(|slice| (slice.0, Reverse(slice.1))));
            prop_assert!(spilled.is_sorted_by_key(|slice| (slice.0, Reverse(slice.1))));
            let order = |mut all: Vec<Found>| { all.sort(); all };
            prop_assert_eq!(order(found.clone()), order(spilled));
            let expected = slices.iter().map(|(start, length, name)| {
                let integer = format!("{:?}", Value::Integer(*start));
                let values = vec![integer, "Float(0.5)".into(), "Boolean(true)".into(), name.clone(), name.clone()];
                (*start, start + length, name.clone(), values)
            });
            prop_assert_eq!(order(found), order(expected.collect()));
        }
    }
}
