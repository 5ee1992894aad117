//! The location of each thread's records, both in chunks and in the blocks that hold earlier
//! contents of chunks.
//!
//! The index is built once from headers alone; events are then decoded from it one piece at a time.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

use super::decode::{self, Event, What};
use super::definitions::Definitions;
use super::source::Source;
use super::thread::{Loss, Omitted, OpenScope, Thread};
use super::view::View;
use crate::error::Error;
use crate::layout::{Layout, MAGIC, WORD, block, chunk, definition, header, policy, record, slot, state};
use crate::memory::chunk::{Segment, Writer};
use crate::value::ArgumentValue;

/// Records of one thread, one after the other.
#[derive(Copy, Clone, Debug)]
struct Piece {
    /// Grows each time that the thread took part anew.
    part: u64,
    /// Bytes of its thread's records before, since then.
    before: u64,
    /// Position in the file, bytes.
    at: u64,
    bytes: u64,
    /// Start and generation of the chunk, if they are in one.
    chunk: Option<(u64, u64)>,
    /// The file ends within.
    cut: bool,
}

/// The numbers of a chunk.
struct Chunk {
    at: u64,
    words: Vec<u64>,
    committed: u64,
    segments: usize,
}

impl Chunk {
    /// `None` if it was never used, or is just being assigned.
    fn read(source: &Source, layout: &Layout, number: usize) -> Result<Option<Self>, Error> {
        let at = layout.chunk_at(number) as u64;
        let words = source.words(at, chunk::header_words(layout.chunk_bytes))?;
        let generation = words[chunk::GENERATION];
        if generation == 0 || !generation.is_multiple_of(2) || source.words(at, 1)?[0] != generation {
            return Ok(None);
        }
        let committed = words[chunk::COMMITTED];
        let segments = usize::try_from(words[chunk::SEGMENTS]).unwrap_or(usize::MAX);
        let sound = committed <= layout.chunk_bytes as u64
            && committed.is_multiple_of(WORD as u64)
            && (1..=chunk::segments_max(layout.chunk_bytes)).contains(&segments);
        // Where the file was cut there are zeros.
        let whole = at + chunk::header_bytes(layout.chunk_bytes) as u64 <= source.length()?;
        match (sound, whole) {
            (true, true) => Ok(Some(Self { at, words, committed, segments })),
            (false, true) => Err(source.damaged(at, "this chunk has impossible numbers: the file is damaged")),
            _ => Ok(None),
        }
    }

    fn segment(&self, k: usize) -> Segment {
        Segment::of([0, 1, 2].map(|place| self.words[chunk::segment(k) + place]))
    }
}

/// All pieces.
#[derive(Debug, Default)]
pub(super) struct Index {
    pieces: BTreeMap<u32, Vec<Piece>>,
    /// Which events count.
    view: View,
    /// Number of events outside the windows.
    outside: u64,
    overwritten: Cell<u64>,
    /// Behind the last piece that was.
    overwritten_to: Cell<usize>,
    latest: u64,
}

impl Index {
    /// If threads keep writing, the result is what each had written up to some moment, without
    /// gaps: each piece states how much its thread had written before, so missing data is detected.
    /// Blocks are read after chunks, so data that moved from a chunk to a block meanwhile is found.
    pub fn read(source: &Source, layout: &Layout, streams: bool) -> Result<Self, Error> {
        let mut index = Self::default();
        let words = source.words(0, header::WORDS)?;
        let (sequences, is_flight) = (words[header::SEQUENCE], words[header::POLICY] == policy::FLIGHT);
        let mut chunks = Vec::new();
        for number in 0..layout.chunks {
            let chunk = Chunk::read(source, layout, number)?;
            chunks.extend(chunk.filter(|chunk| chunk.words[chunk::SEQUENCE] < sequences));
        }
        let blocks = if streams { source.words((header::BLOCK_BYTES * WORD) as u64, 1)?[0] } else { 0 };
        let drained = index.read_blocks(source, layout.bytes() as u64, blocks)?;
        for chunk in &chunks {
            index.add_chunk(chunk, &drained);
        }
        let length = source.length()?;
        for pieces in index.pieces.values_mut() {
            pieces.sort_by_key(|piece| (piece.part, piece.before));
            let before = pieces.len();
            // What a file lacks that was cut is no gap of those that are read.
            let all_is_there = length >= layout.bytes() as u64;
            leave_out_beyond_gaps(pieces, is_flight, all_is_there);
            index.overwritten.set(index.overwritten.get() + (before - pieces.len()) as u64);
            for piece in pieces {
                let there = length.saturating_sub(piece.at) / WORD as u64 * WORD as u64;
                (piece.cut, piece.bytes) = (there < piece.bytes, piece.bytes.min(there));
            }
        }
        Ok(index)
    }

    /// Number of pieces overwritten while they were read.
    pub fn overwritten(&self) -> u64 {
        self.overwritten.get()
    }

    /// Sets which events count; before, all do.
    pub fn see(&mut self, view: View) {
        self.view = view;
    }

    /// Number of events outside all windows.
    pub fn outside(&self) -> u64 {
        self.outside
    }

    /// The end of the last event.
    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// How much of each use of a chunk is in blocks.
    fn read_blocks(&mut self, source: &Source, begin: u64, bytes: u64) -> Result<HashMap<u64, u64>, Error> {
        let mut drained = HashMap::new();
        let end = begin.saturating_add(bytes).min(source.length()?);
        let mut at = begin;
        let head_bytes = (block::WORDS * WORD) as u64;
        while at + head_bytes <= end {
            let words = source.words(at, block::WORDS)?;
            let check = words[..block::WORDS - 1].iter().fold(MAGIC, |check, word| check ^ word);
            let length = words[0] & 0xffff_ffff;
            let sound = length > 0 && length.is_multiple_of(WORD as u64);
            if words[0] >> 32 != block::MARK || check != words[block::WORDS - 1] || !sound {
                return Err(source.damaged(at, "no block of records begins here: the file is damaged"));
            }
            if at + head_bytes + length > end {
                break;
            }
            let (serial, from) = ((words[1] >> 32) as u32, words[1] & 0xffff_ffff);
            let (part, before) = (words[3], words[4]);
            let piece = Piece { part, before, at: at + head_bytes, bytes: length, chunk: None, cut: false };
            self.pieces.entry(serial).or_default().push(piece);
            let reached = drained.entry(words[2]).or_insert(0);
            *reached = from.saturating_add(length).max(*reached);
            at += head_bytes + length;
        }
        Ok(drained)
    }

    fn add_chunk(&mut self, chunk: &Chunk, drained: &HashMap<u64, u64>) {
        let moved =
            drained.get(&chunk.words[chunk::SEQUENCE]).copied().unwrap_or(0).max((chunk.words.len() * WORD) as u64);
        for k in 0..chunk.segments {
            let Segment { writer: Writer { serial, part, written }, from } = chunk.segment(k);
            let begin = from.max(moved);
            let end = if k + 1 < chunk.segments { chunk.segment(k + 1).from } else { chunk.committed };
            let end = end.min(chunk.committed);
            if begin < end && begin.is_multiple_of(WORD as u64) && end.is_multiple_of(WORD as u64) {
                let whole = Some((chunk.at, chunk.words[chunk::GENERATION]));
                let before = written.saturating_add(begin - from);
                let (at, bytes) = (chunk.at + begin, end - begin);
                let piece = Piece { part, before, at, bytes, chunk: whole, cut: false };
                self.pieces.entry(serial).or_default().push(piece);
            }
        }
    }

    /// All threads in the recording, with counts.
    pub fn threads(
        &mut self,
        source: &Source,
        layout: &Layout,
        definitions: &Definitions,
    ) -> Result<Vec<Thread>, Error> {
        let mut threads: BTreeMap<u32, Thread> = BTreeMap::new();
        for serial in self.pieces.keys() {
            threads.entry(*serial).or_default();
        }
        for (serial, counts) in definitions.left() {
            of_left(threads.entry(*serial).or_default(), counts);
        }
        let mut slots = HashMap::new();
        for number in 0..layout.slots {
            let at = layout.slot_at(number) as u64;
            let (before, words) = (source.words(at, slot::WORDS)?, source.words(at, slot::WORDS)?);
            if let Ok(serial @ 1..) = u32::try_from(words[slot::SERIAL])
                && before[slot::SERIAL] == words[slot::SERIAL]
            {
                let thread = threads.entry(serial).or_default();
                of_slot(thread, &before, &words, definitions);
                slots.insert(serial, loss_of(&words));
            }
        }
        for serial in threads.keys() {
            self.leave_out_before_gaps(source, layout, definitions, *serial)?;
        }
        if self.view.must_look() {
            self.look_for_crossing(source, layout, definitions, &mut threads)?;
        }
        let mut latest = 0;
        for (serial, thread) in &mut threads {
            thread.serial = *serial;
            thread.device = definitions.track(*serial).cloned();
            if let Some((tid, name)) = definitions.thread(*serial) {
                (thread.tid, thread.name) = (*tid, name.clone());
            }
            let (mut last, mut is_told) = (None, false);
            let loss = slots.get(serial).copied().unwrap_or_default();
            self.visit(source, layout, definitions, *serial, &mut |event| {
                latest = latest.max(event.what.end());
                match event.what {
                    What::Lost { first, last, events } => {
                        thread.lost.add(Loss { events, span: Some([first, last]) });
                        is_told |= loss.span.is_some_and(|span| first <= span[0] && span[1] <= last);
                    }
                    _ => thread.events += 1,
                }
                last = Some(event.what);
                Ok::<(), Error>(())
            })?;
            // Killed between writing a scope and taking it off the stack.
            if let (Some(What::Scope { start, id, .. }), Some(open)) = (last, thread.open.last())
                && (open.start, open.id) == (start, id)
            {
                thread.open.pop();
            }
            // And between telling of losses and counting anew; or the slot was read before they
            // were told.
            if !is_told {
                thread.lost.add(loss);
            }
        }
        self.latest = latest;
        let counted = threads.values().map(|thread| thread.events).sum();
        self.outside = self.outside.saturating_sub(counted);
        Ok(threads.into_values().collect())
    }

    /// Determines which scopes cross the limits of windows; needed before any can be returned by
    /// window.
    fn look_for_crossing(
        &mut self,
        source: &Source,
        layout: &Layout,
        definitions: &Definitions,
        threads: &mut BTreeMap<u32, Thread>,
    ) -> Result<(), Error> {
        let mut view = std::mem::take(&mut self.view);
        let (keep_from, overwritten) = (view.keep_from, self.overwritten.get());
        let mut all = 0;
        for (serial, thread) in threads {
            thread.serial = *serial;
            self.visit(source, layout, definitions, *serial, &mut |event| {
                view.look_at(*serial, event);
                all += u64::from(event.what.end() >= keep_from && !matches!(event.what, What::Lost { .. }));
                Ok::<(), Error>(())
            })?;
            view.look_at_open(thread);
        }
        view.has_looked();
        self.view = view;
        self.outside = all;
        // The same pieces are looked at again.
        self.overwritten.set(overwritten);
        Ok(())
    }

    /// For a flight recorder still running, leaves out what precedes data overwritten while it was
    /// read.
    fn leave_out_before_gaps(
        &mut self,
        source: &Source,
        layout: &Layout,
        definitions: &Definitions,
        serial: u32,
    ) -> Result<(), Error> {
        let is_live = source.words((header::STATE * WORD) as u64, 1)?[0] == state::RECORDING;
        let is_flight = source.words((header::POLICY * WORD) as u64, 1)?[0] == policy::FLIGHT;
        for _ in 0..GAP_ATTEMPTS {
            if !is_live || !is_flight {
                break;
            }
            self.overwritten_to.set(0);
            self.visit(source, layout, definitions, serial, &mut |_| Ok::<(), Error>(()))?;
            let gone = self.overwritten_to.get();
            if gone == 0 {
                break;
            }
            self.pieces.entry(serial).or_default().drain(..gone);
        }
        Ok(())
    }

    /// Visits the events of a thread, in order.
    pub fn visit<E: From<Error>>(
        &self,
        source: &Source,
        layout: &Layout,
        definitions: &Definitions,
        serial: u32,
        each: &mut dyn FnMut(&Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let device = definitions.device_of(serial);
        for (at, piece) in self.pieces.get(&serial).into_iter().flatten().enumerate() {
            let most = layout.chunk_bytes as u64;
            if piece.bytes > most {
                return Err(source.damaged(piece.at, "a piece is longer than a chunk: the file is damaged").into());
            }
            let words = source.words(piece.at, piece.bytes as usize / WORD)?;
            if let Some((chunk, generation)) = piece.chunk
                && source.words(chunk, 1)?[0] != generation
            {
                self.overwritten.set(self.overwritten.get() + 1);
                self.overwritten_to.set(at + 1);
                continue;
            }
            let mut rest = &words[..];
            while !rest.is_empty() {
                let Some((mut event, length)) = decode::first(rest, definitions) else {
                    if piece.cut {
                        break;
                    }
                    let at = piece.at + ((words.len() - rest.len()) * WORD) as u64;
                    return Err(source.damaged(at, "no record begins here: the file is damaged").into());
                };
                if let Some(device) = device {
                    event.what.map_times(|time| device.ticks(time));
                }
                if let Some(less) = self.view.depth_less(serial, &event) {
                    event.depth -= less;
                    each(&event)?;
                }
                rest = &rest[length..];
            }
        }
        Ok(())
    }
}

/// How often an active thread is read again.
const GAP_ATTEMPTS: usize = 8;

/// A flight recorder lacks what came before, all others what comes after: it was written, or
/// overwritten, after its position had been read.
fn leave_out_beyond_gaps(pieces: &mut Vec<Piece>, is_flight: bool, all_is_there: bool) {
    let goes_on = |pair: &[Piece]| {
        let [one, next] = pair else { return true };
        let before = if next.part == one.part { one.before.saturating_add(one.bytes) } else { 0 };
        next.before == before
    };
    if is_flight {
        let gap = pieces.windows(2).rposition(|pair| !goes_on(pair));
        pieces.drain(..gap.map_or(0, |at| at + 1));
    } else if all_is_there && pieces.first().is_some_and(|first| first.before > 0) {
        pieces.clear();
    } else if let Some(gap) = pieces.windows(2).position(|pair| !goes_on(pair)) {
        pieces.truncate(gap + 1);
    }
}

/// Adds the counts that were recorded when a thread left its slot.
fn of_left(thread: &mut Thread, counts: &[u64; definition::LEFT_WORDS - 2]) {
    let [events, first, last, interrupted, arguments, deep] = *counts;
    thread.lost.add(Loss { events, span: (events > 0).then_some([first, last]) });
    thread.interrupted = thread.interrupted.saturating_add(interrupted);
    thread.arguments_lost = thread.arguments_lost.saturating_add(arguments);
    thread.too_deep = thread.too_deep.saturating_add(deep);
}

fn loss_of(words: &[u64]) -> Loss {
    let events = words[slot::LOST];
    Loss { events, span: (events > 0).then_some([words[slot::LOST_FIRST], words[slot::LOST_LAST]]) }
}

/// Reads the state of a thread from its slot, read twice: the thread may write it meanwhile.
fn of_slot(thread: &mut Thread, before: &[u64], words: &[u64], definitions: &Definitions) {
    thread.tid = words[slot::TID];
    thread.interrupted = thread.interrupted.saturating_add(words[slot::INTERRUPTED]);
    thread.arguments_lost = thread.arguments_lost.saturating_add(words[slot::ARGUMENTS_LOST]);
    thread.too_deep = thread.too_deep.saturating_add(words[slot::TOO_DEEP]);
    thread.omitted = thread.omitted.with(Omitted::of(&words[slot::OMITTED..]));
    let same = |(a, b): &(usize, usize)| a == b && [1, 3].iter().all(|place| before[a + place] == words[b + place]);
    let both = open_places(before).into_iter().zip(open_places(words)).take_while(same);
    let scope = |(_, at): (usize, usize)| open_scope(&words[at..], definitions);
    thread.open = both.map_while(scope).collect();
}

/// Positions of open scopes in a slot, outermost first. Each names the enclosing one, which ends
/// before it begins.
fn open_places(words: &[u64]) -> Vec<usize> {
    let mut places = Vec::new();
    let (mut at, mut end) = (usize::try_from(words[slot::LAST]).unwrap_or(usize::MAX), slot::WORDS);
    while (slot::STACK..slot::WORDS).contains(&at) {
        let length = record::words(words[at]);
        if length < record::SCOPE_WORDS || at + length > end {
            break;
        }
        places.push(at);
        (at, end) = (usize::try_from(words[at + 2]).unwrap_or(usize::MAX), at);
    }
    places.reverse();
    places
}

/// An open scope's frame.
fn open_scope(words: &[u64], definitions: &Definitions) -> Option<OpenScope> {
    let (event, _) = decode::first(words, definitions)?;
    let What::Scope { start, id, .. } = event.what else { return None };
    let arguments: Vec<(String, ArgumentValue)> =
        event.arguments().map(|(key, value)| (key.to_owned(), value)).collect();
    Some(OpenScope { name: event.name().into(), kind: event.kind(), start, id, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The remaining pieces of a thread: for each its part, the bytes before it, its own bytes.
    fn check(pieces: &[[u64; 3]], is_flight: bool, left: &[[u64; 3]]) {
        let piece = |[part, before, bytes]: &[u64; 3]| {
            let (part, before, bytes) = (*part, *before, *bytes);
            Piece { part, before, at: 0, bytes, chunk: None, cut: false }
        };
        let mut found: Vec<Piece> = pieces.iter().map(piece).collect();
        leave_out_beyond_gaps(&mut found, is_flight, true);
        let found: Vec<[u64; 3]> = found.iter().map(|piece| [piece.part, piece.before, piece.bytes]).collect();
        assert_eq!(found, left, "{pieces:?}");
    }

    #[test]
    fn what_is_missing_between_two_pieces_is_noticed() {
        let whole = [[1, 0, 96], [1, 96, 32], [1, 128, 64], [7, 0, 32]];
        check(&whole, false, &whole);
        check(&whole, true, &whole);
        // The second piece had 32 bytes when it was copied, and 64 when the third was begun.
        let grown = [[1, 0, 96], [1, 96, 32], [1, 160, 64], [7, 0, 32]];
        check(&grown, false, &grown[..2]);
        check(&grown, true, &grown[2..]);
        // The first was overwritten.
        check(&whole[1..], true, &whole[1..]);
        check(&whole[1..], false, &[]);
        // Taken part anew, and the first piece of that is missing.
        check(&[[1, 0, 96], [7, 32, 32]], false, &[[1, 0, 96]]);
    }
}
