//! Reads a trace ahead of its consumer, on other threads, which also find the members of its
//! events.
//!
//! One thread reads the file and cuts it into blocks, each at a place that looks like the boundary
//! between two events; workers find the events of one block each. Whether a block really begins at
//! a boundary is known only to the consumer, which has read everything before it: if it has arrived
//! there exactly, between two events, what the worker found is what it would have found itself;
//! otherwise it takes the bytes alone. So guesses cost time at worst. At most [`AHEAD`] blocks wait
//! for each worker, and as many of its results. Threads whose consumer has ended stop by
//! themselves, when they pass on their next block.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use super::event::{Separator, find_event};
use super::layout::Layouts;
use super::scan::EventSpans;
use super::source::Source;
use super::structure::{Structure, StructureView};

/// Part of a file.
#[derive(Default)]
pub(super) struct Block {
    pub(super) bytes: Vec<u8>,
    pub(super) structure: Structure,
    /// Events that follow each other from the first byte on, if that is between two events.
    pub(super) events: Vec<FoundEvent>,
}

/// An event of a block.
pub(super) struct FoundEvent {
    /// Bytes before it.
    pub(super) lead: usize,
    pub(super) spans: EventSpans,
}

/// What the reading thread passes on.
enum Message {
    Block(Block),
    Failed(std::io::Error),
    End,
}

/// Blocks of a file, in its order.
pub(super) struct Ahead {
    workers: Vec<Receiver<Message>>,
    next: usize,
    /// Blocks that are no longer used.
    used: Sender<Block>,
    /// A block that was begun to be read as bytes, and how far.
    begun: Option<(Block, usize)>,
    ended: bool,
}

impl Ahead {
    /// Continues reading where `source` stands; `judge`: also finds what may not be valid.
    pub(super) fn start(source: Source, workers: usize, judge: bool) -> std::io::Result<Ahead> {
        let (used, reusable) = channel();
        let (mut to_workers, mut from_workers) = (Vec::new(), Vec::new());
        for _ in 0..workers {
            let (to_do, blocks) = sync_channel(AHEAD);
            let (results, done) = sync_channel(AHEAD);
            let work = move || find_events(&blocks, &results, judge);
            std::thread::Builder::new().name("scan".into()).spawn(work)?;
            to_workers.push(to_do);
            from_workers.push(done);
        }
        let read = move || read_blocks(source, &to_workers, &reusable);
        std::thread::Builder::new().name("read".into()).spawn(read)?;
        Ok(Ahead { workers: from_workers, next: 0, used, begun: None, ended: false })
    }

    /// The next block, unless part of it has been read as bytes; `None` also at the end.
    pub(super) fn block(&mut self) -> std::io::Result<Option<Block>> {
        if self.begun.is_some() || self.ended {
            return Ok(None);
        }
        let given = self.workers[self.next % self.workers.len()].recv();
        self.next += 1;
        match given {
            Ok(Message::Block(block)) => return Ok(Some(block)),
            Ok(Message::End) => {}
            Ok(Message::Failed(error)) => return Err(error),
            Err(_) => return Err(std::io::Error::other("a reading thread ended early")),
        }
        self.ended = true;
        Ok(None)
    }

    /// Takes a block back for its memory, unless something long made it large.
    pub(super) fn give_back(&self, block: Block) {
        if block.bytes.capacity() <= BYTES_REUSED_MAX {
            // Once everything is read the block is simply dropped.
            let _ = self.used.send(block);
        }
    }

    /// Fills the front of `buffer`, up to the end of a block; returns 0 only at the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let (block, taken) = match self.begun.take() {
            Some(begun) => begun,
            None => match self.block()? {
                Some(block) => (block, 0),
                None => return Ok(0),
            },
        };
        let count = buffer.len().min(block.bytes.len() - taken);
        buffer[..count].copy_from_slice(&block.bytes[taken..taken + count]);
        match taken + count < block.bytes.len() {
            true => self.begun = Some((block, taken + count)),
            false => self.give_back(block),
        }
        Ok(count)
    }
}

/// Main function of the thread that reads.
fn read_blocks(mut source: Source, workers: &[SyncSender<Message>], reusable: &Receiver<Block>) {
    let (mut rest, mut next) = (Vec::new(), 0);
    let mut give = |given| {
        next += 1;
        // A consumer that has gone needs nothing more.
        workers[(next - 1) % workers.len()].send(given).is_ok()
    };
    loop {
        let mut block = reusable.try_recv().unwrap_or_default();
        let more = fill(&mut source, &rest, &mut block.bytes);
        rest.clear();
        if let Ok(true) = more
            && let Some(cut) = boundary(&block.bytes)
        {
            rest.extend_from_slice(&block.bytes[cut..]);
            block.bytes.truncate(cut);
        }
        if !block.bytes.is_empty() && !give(Message::Block(block)) {
            return;
        }
        match more {
            Ok(true) => {}
            Ok(false) => {
                give(Message::End);
                return;
            }
            Err(error) => {
                give(Message::Failed(error));
                return;
            }
        }
    }
}

/// Makes a block of the rest of the last one and what follows; returns whether there may be more.
fn fill(source: &mut Source, rest: &[u8], bytes: &mut Vec<u8>) -> std::io::Result<bool> {
    let mut filled = rest.len();
    bytes.resize(filled + BLOCK_BYTES, 0);
    bytes[..filled].copy_from_slice(rest);
    let outcome = loop {
        match source.read(&mut bytes[filled..]) {
            Ok(0) => break Ok(false),
            Ok(count) => filled += count,
            Err(error) => break Err(error),
        }
        if filled == bytes.len() {
            break Ok(true);
        }
    };
    bytes.truncate(filled);
    outcome
}

/// The last place that looks like the end of an event with another behind it.
fn boundary(bytes: &[u8]) -> Option<usize> {
    let mut end = bytes.len();
    while let Some(open) = memchr::memrchr(b'{', &bytes[..end]) {
        let before = bytes[..open].trim_ascii_end();
        if let [before @ .., b','] = before
            && let before = before.trim_ascii_end()
            && before.ends_with(b"}")
        {
            return Some(before.len());
        }
        end = open;
    }
    None
}

/// Main function of a worker.
fn find_events(blocks: &Receiver<Message>, results: &SyncSender<Message>, judge: bool) {
    let mut layouts = Layouts::default();
    while let Ok(mut given) = blocks.recv() {
        if let Message::Block(Block { bytes, structure, events }) = &mut given {
            structure.index(bytes, judge);
            events.clear();
            let mut at = 0;
            // The consumer finds the rest itself.
            while events.len() < EVENTS_MAX
                && let Ok(Some((lead, Some(spans)))) =
                    find_event(&bytes[at..], Separator::Comma, StructureView::new(structure, at), &mut layouts)
            {
                at += lead + spans.end;
                events.push(FoundEvent { lead, spans });
            }
        }
        if results.send(given).is_err() {
            return;
        }
    }
}

/// Bytes of a block: small enough for a core's own cache, with what is found in it.
const BLOCK_BYTES: usize = 256 << 10;
/// Events of a block that are found ahead; PyTorch writes a tenth of that into a block. Limits the
/// memory that tiny events take.
const EVENTS_MAX: usize = 8192;
/// Larger buffers are not used again.
const BYTES_REUSED_MAX: usize = 2 << 20;
/// Blocks that wait for each worker, and results that wait for the consumer.
const AHEAD: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_cut_between_events() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(boundary(text.as_bytes()).map(|cut| &text[..cut]), expected, "{text}");
        };
        check(r#"{"a": 1} , {"b": {"c": 2}, "d": 3"#, Some(r#"{"a": 1}"#));
        check("{\"a\": 1},\n  {\"b\": 2}\n, {", Some("{\"a\": 1},\n  {\"b\": 2}"));
        check(r#"{"a": 1}"#, None);
        check(r#"{"a": {"b": 1"#, None);
        check("", None);
    }
}
