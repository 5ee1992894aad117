//! Where each thread's records are: in chunks, and in blocks of what chunks held before.
//!
//! Place in the flow: made once from headers alone; events are decoded from it a piece at a time.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

use super::decode::{self, Event, What};
use super::definitions::Definitions;
use super::source::Source;
use super::thread::{Loss, OpenScope, Thread};
use crate::error::Error;
use crate::layout::{Layout, MAGIC, WORD, block, chunk, record, slot};
use crate::value::ArgumentValue;

/// Records of one thread, one after the other.
#[derive(Copy, Clone, Debug)]
struct Piece {
    /// Which use of a chunk.
    sequence: u64,
    /// Where in it, bytes.
    from: u64,
    /// Where they are, bytes.
    at: u64,
    bytes: u64,
    /// Where the chunk begins, and its generation, if they are in one.
    chunk: Option<(u64, u64)>,
}

/// All pieces.
#[derive(Debug)]
pub(super) struct Index {
    pieces: BTreeMap<u32, Vec<Piece>>,
    /// Events that ended before are left out, ticks.
    keep_from: u64,
    overwritten: Cell<u64>,
    latest: u64,
}

impl Index {
    pub fn read(source: &Source, layout: &Layout, blocks: u64, keep_from: u64) -> Result<Self, Error> {
        let mut index = Self { pieces: BTreeMap::new(), keep_from, overwritten: Cell::new(0), latest: 0 };
        let drained = index.read_blocks(source, layout.bytes() as u64, blocks)?;
        for number in 0..layout.chunks {
            index.read_chunk(source, layout, number, &drained)?;
        }
        for pieces in index.pieces.values_mut() {
            pieces.sort_by_key(|piece| (piece.sequence, piece.from));
        }
        Ok(index)
    }

    /// What was read while it was overwritten.
    pub fn overwritten(&self) -> u64 {
        self.overwritten.get()
    }

    /// The end of the last event.
    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// Up to where each use of a chunk is in blocks.
    fn read_blocks(&mut self, source: &Source, begin: u64, bytes: u64) -> Result<HashMap<u64, u64>, Error> {
        let mut drained = HashMap::new();
        let end = begin.saturating_add(bytes).min(source.length()?);
        let mut at = begin;
        let head_bytes = (block::WORDS * WORD) as u64;
        while at + head_bytes <= end {
            let words = source.words(at, block::WORDS)?;
            let check = words[..3].iter().fold(MAGIC, |check, word| check ^ word);
            let length = words[0] & 0xffff_ffff;
            if words[0] >> 32 != block::MARK || check != words[3] || !length.is_multiple_of(WORD as u64) {
                return Err(source.damaged(at, "no block of records begins here: the file is damaged"));
            }
            if at + head_bytes + length > end {
                break;
            }
            let (serial, from) = ((words[1] >> 32) as u32, words[1] & 0xffff_ffff);
            let piece = Piece { sequence: words[2], from, at: at + head_bytes, bytes: length, chunk: None };
            self.pieces.entry(serial).or_default().push(piece);
            let reached = drained.entry(words[2]).or_insert(0);
            *reached = from.saturating_add(length).max(*reached);
            at += head_bytes + length;
        }
        Ok(drained)
    }

    fn read_chunk(
        &mut self,
        source: &Source,
        layout: &Layout,
        number: usize,
        drained: &HashMap<u64, u64>,
    ) -> Result<(), Error> {
        let at = layout.chunk_at(number) as u64;
        let words = source.words(at, chunk::HEADER_WORDS)?;
        let generation = words[chunk::GENERATION];
        if generation == 0 || !generation.is_multiple_of(2) {
            return Ok(());
        }
        let sequence = words[chunk::SEQUENCE];
        let header = (chunk::HEADER_WORDS * WORD) as u64;
        let committed = words[chunk::COMMITTED];
        let segments = words[chunk::SEGMENTS] as usize;
        let sound = committed <= layout.chunk_bytes as u64
            && committed.is_multiple_of(WORD as u64)
            && (1..=chunk::SEGMENTS_MAX).contains(&segments);
        if !sound {
            return Err(source.damaged(at, "the numbers of this chunk cannot be: the file is damaged"));
        }
        let moved = drained.get(&sequence).copied().unwrap_or(0).max(header);
        for k in 0..segments {
            let segment = words[chunk::FIRST_SEGMENT + k];
            let begin = (segment & 0xffff_ffff).max(moved);
            let end = if k + 1 < segments { words[chunk::FIRST_SEGMENT + k + 1] & 0xffff_ffff } else { committed };
            if begin < end && end <= committed && begin.is_multiple_of(WORD as u64) {
                let piece =
                    Piece { sequence, from: begin, at: at + begin, bytes: end - begin, chunk: Some((at, generation)) };
                self.pieces.entry((segment >> 32) as u32).or_default().push(piece);
            }
        }
        Ok(())
    }

    /// Everybody who is in the recording, with counts.
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
        for number in 0..layout.slots {
            let words = source.words(layout.slot_at(number) as u64, slot::WORDS)?;
            if let Ok(serial @ 1..) = u32::try_from(words[slot::SERIAL]) {
                let thread = threads.entry(serial).or_default();
                of_slot(thread, &words, definitions);
            }
        }
        let mut latest = 0;
        for (serial, thread) in &mut threads {
            thread.serial = *serial;
            thread.device = definitions.track(*serial).cloned();
            if let Some((tid, name)) = definitions.thread(*serial) {
                (thread.tid, thread.name) = (*tid, name.clone());
            }
            let mut last = None;
            self.visit(source, layout, definitions, *serial, &mut |event| {
                latest = latest.max(event.what.end());
                match event.what {
                    What::Lost { first, last, events } => thread.lost.add(Loss { events, span: Some([first, last]) }),
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
        }
        self.latest = latest;
        Ok(threads.into_values().collect())
    }

    /// Events of a thread, in their order.
    pub fn visit<E: From<Error>>(
        &self,
        source: &Source,
        layout: &Layout,
        definitions: &Definitions,
        serial: u32,
        each: &mut dyn FnMut(&Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let device = definitions.device_of(serial);
        for piece in self.pieces.get(&serial).into_iter().flatten() {
            let most = layout.chunk_bytes as u64;
            if piece.bytes > most {
                return Err(source.damaged(piece.at, "a piece is longer than a chunk: the file is damaged").into());
            }
            let words = source.words(piece.at, piece.bytes as usize / WORD)?;
            if let Some((chunk, generation)) = piece.chunk
                && source.words(chunk, 1)?[0] != generation
            {
                self.overwritten.set(self.overwritten.get() + 1);
                continue;
            }
            let mut rest = &words[..];
            while !rest.is_empty() {
                let Some((mut event, length)) = decode::first(rest, definitions) else {
                    let at = piece.at + ((words.len() - rest.len()) * WORD) as u64;
                    return Err(source.damaged(at, "no record begins here: the file is damaged").into());
                };
                if let Some(device) = device {
                    event.what.map_times(|time| device.ticks(time));
                }
                if event.what.end() >= self.keep_from {
                    each(&event)?;
                }
                rest = &rest[length..];
            }
        }
        Ok(())
    }
}

/// What a slot says of its thread.
fn of_slot(thread: &mut Thread, words: &[u64], definitions: &Definitions) {
    thread.tid = words[slot::TID];
    thread.interrupted = words[slot::INTERRUPTED];
    thread.arguments_lost = words[slot::ARGUMENTS_LOST];
    thread.too_deep = words[slot::TOO_DEEP];
    let events = words[slot::LOST];
    let span = (events > 0).then_some([words[slot::LOST_FIRST], words[slot::LOST_LAST]]);
    thread.lost.add(Loss { events, span });
    let mut at = usize::try_from(words[slot::LAST]).unwrap_or(usize::MAX);
    let mut open = Vec::new();
    // Frames name the one around them, which lies before.
    while (slot::STACK..slot::WORDS).contains(&at) {
        let Some((scope, around)) = open_scope(&words[at..], definitions) else { break };
        open.push(scope);
        if around >= at {
            break;
        }
        at = around;
    }
    open.reverse();
    thread.open = open;
}

/// An open scope's frame, and where the one around it lies.
fn open_scope(words: &[u64], definitions: &Definitions) -> Option<(OpenScope, usize)> {
    let length = record::words(*words.first()?);
    let frame = words.get(..length)?;
    let (event, _) = decode::first(frame, definitions)?;
    // The second time of a frame is the place of the scope around it.
    let What::Scope { start, end: around, id, .. } = event.what else { return None };
    let arguments: Vec<(String, ArgumentValue)> =
        event.arguments().map(|(key, value)| (key.to_owned(), value)).collect();
    let scope = OpenScope { name: event.name().into(), kind: event.kind(), start, id, arguments };
    Some((scope, usize::try_from(around).unwrap_or(usize::MAX)))
}
