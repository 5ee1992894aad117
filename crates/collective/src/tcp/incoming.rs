//! The incoming side of a connection, which turns bytes into frames and words.
//!
//! `connection` reads into [`Incoming::room`]; whatever has arrived completely is then available as
//! a frame or a word. Memory grows with the bytes received, whatever a header claims.

use std::collections::VecDeque;
use std::ops::Range;

use super::frame::{Header, Kind, Seal};

/// Bytes that have arrived and have not been consumed.
#[derive(Debug)]
pub(super) struct Incoming {
    seal: Seal,
    /// Bytes before `filled` have arrived; the rest is free.
    bytes: Vec<u8>,
    filled: usize,
    /// Start of the first incomplete frame.
    parsed: usize,
    /// Complete frames, without messages.
    frames: VecDeque<Found>,
    words: Vec<Vec<u8>>,
    /// Latest message about the other connection for frames: sequence and content.
    local: Option<(u64, Vec<u8>)>,
    /// Header of the incomplete frame, once its tag was verified.
    coming: Option<Header>,
}

/// A complete frame.
#[derive(Debug)]
struct Found {
    header: Header,
    /// Start of its header.
    start: usize,
    payload: Range<usize>,
}

impl Incoming {
    /// Creates an empty buffer for frames with this seal.
    pub fn new(seal: Seal) -> Self {
        let (frames, words) = (VecDeque::new(), Vec::new());
        Self { seal, bytes: Vec::new(), filled: 0, parsed: 0, frames, words, local: None, coming: None }
    }

    /// Returns the space for the next bytes; never empty.
    pub fn room(&mut self) -> &mut [u8] {
        let taken = self.taken();
        if taken == self.filled || taken > self.bytes.len() / 2 {
            self.bytes.copy_within(taken..self.filled, 0);
            self.filled -= taken;
            self.parsed -= taken;
            for found in &mut self.frames {
                found.start -= taken;
                found.payload = found.payload.start - taken..found.payload.end - taken;
            }
            if self.filled == 0 && self.bytes.len() > KEPT {
                self.bytes = Vec::new();
            }
        }
        if self.bytes.len() - self.filled < ROOM {
            self.bytes.resize((2 * self.filled).max(ROOM), 0);
        }
        &mut self.bytes[self.filled..]
    }

    /// Records that this many bytes have arrived; returns how many frames and messages are
    /// completed by them.
    ///
    /// # Errors
    /// Describes what no rank would send; nothing after it can be interpreted.
    pub fn came(&mut self, count: usize) -> Result<u64, String> {
        self.filled += count;
        let mut whole = 0;
        while let Some(header) = self.next_header()? {
            let (start, content) = (self.parsed, self.parsed + self.seal.header());
            let payload = content..content + header.length;
            if payload.end > self.filled {
                self.coming = Some(header);
                break;
            }
            header.check(&self.bytes[payload.clone()])?;
            self.coming = None;
            self.seal.pass();
            self.parsed = payload.end;
            whole += 1;
            if header.kind == Kind::Local {
                self.local = Some((header.sequence, self.bytes[payload].to_vec()));
            } else if header.kind != Kind::Word {
                self.frames.push_back(Found { header, start, payload });
            } else if self.words.len() < WORDS {
                self.words.push(self.bytes[payload].to_vec());
            } else {
                return Err(format!("more than {WORDS} unsolicited words"));
            }
        }
        Ok(whole)
    }

    /// Returns the header of the next frame, whose tag is verified at once.
    fn next_header(&self) -> Result<Option<Header>, String> {
        match self.coming {
            Some(header) => Ok(Some(header)),
            None => Header::decode(&self.bytes[self.parsed..self.filled], &self.seal),
        }
    }

    /// Returns the first complete frame and its payload.
    pub fn first(&self) -> Option<(Header, &[u8])> {
        self.frames.front().map(|found| (found.header, &self.bytes[found.payload.clone()]))
    }

    /// Discards that frame.
    pub fn consume(&mut self) {
        self.frames.pop_front();
    }

    /// Removes and returns the latest message about the other connection for frames.
    pub fn local(&mut self) -> Option<(u64, Vec<u8>)> {
        self.local.take()
    }

    /// Switches to the other connection, without tags.
    ///
    /// # Errors
    /// Returns an error if something arrived after the end of the first connection.
    pub fn moved(&mut self) -> Result<(), String> {
        self.seal = Seal::none();
        let nothing = self.filled == self.parsed;
        if nothing { Ok(()) } else { Err("data after it had moved to another connection".to_owned()) }
    }

    /// Returns true if incoming frames have moved to the other connection.
    pub fn has_moved(&self) -> bool {
        !self.seal.has_key()
    }

    /// Returns the number of bytes in frames that were not consumed yet.
    pub fn waiting(&self) -> usize {
        self.filled - self.taken()
    }

    /// Returns the number of bytes at the beginning that are no longer needed.
    fn taken(&self) -> usize {
        self.frames.front().map_or(self.parsed, |found| found.start)
    }

    /// Removes and returns the messages received since the previous call.
    pub fn words(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.words)
    }
}

/// Smallest amount of space for reading.
const ROOM: usize = 4 << 10;

/// Memory kept for the next frames, bytes.
const KEPT: usize = 1 << 20;

/// Most messages waiting to be requested.
const WORDS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::super::frame::{FRAME_MAX, Hashed};
    use super::*;

    fn seal() -> Seal {
        Seal::new(blake3::hash(b"test"))
    }

    /// These frames one after the other.
    fn frames(all: &[(Kind, u64, &[u8])]) -> Vec<u8> {
        let (mut seal, mut bytes) = (seal(), Vec::new());
        for (kind, sequence, payload) in all {
            let header = Header::of(*kind, *sequence, (payload, &mut Hashed::default()), &seal, "test").expect("short");
            bytes.extend_from_slice(&header.encode(&seal));
            bytes.extend_from_slice(payload);
            seal.pass();
        }
        bytes
    }

    /// A frame whose header has a right tag, and this length and kind.
    fn claimed(length: usize, kind: Kind) -> Vec<u8> {
        let header =
            Header { length, ..Header::of(kind, 1, (b"", &mut Hashed::default()), &seal(), "test").expect("short") };
        header.encode(&seal()).to_vec()
    }

    fn feed(incoming: &mut Incoming, mut bytes: &[u8], pieces: usize) -> Result<(), String> {
        while !bytes.is_empty() {
            let room = incoming.room();
            let count = bytes.len().min(pieces).min(room.len());
            room[..count].copy_from_slice(&bytes[..count]);
            incoming.came(count)?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    #[test]
    fn frames_and_words_come_whole_however_they_are_cut() {
        let long: Vec<u8> = (0..20_000u32).map(|at| at as u8).collect();
        let all = frames(&[
            (Kind::Gather, 1, b"first"),
            (Kind::Word, 0, b"between"),
            (Kind::Broadcast, 2, &long),
            (Kind::Word, 0, b""),
            (Kind::Gather, 3, b""),
        ]);
        for pieces in [1, 3, 17, 4096, usize::MAX] {
            let mut incoming = Incoming::new(seal());
            feed(&mut incoming, &all, pieces).expect("our own");
            assert_eq!(incoming.words(), [b"between".to_vec(), Vec::new()]);
            for (kind, sequence, payload) in
                [(Kind::Gather, 1, &b"first"[..]), (Kind::Broadcast, 2, &long), (Kind::Gather, 3, b"")]
            {
                let (header, found) = incoming.first().expect("a frame");
                assert_eq!((header.kind, header.sequence, found), (kind, sequence, payload), "in pieces of {pieces}");
                incoming.consume();
            }
            assert!(incoming.first().is_none() && incoming.waiting() == 0 && incoming.words().is_empty());
        }
    }

    #[test]
    fn a_peer_that_is_always_ahead_costs_no_memory() {
        let mut incoming = Incoming::new(seal());
        let all = frames(&[(Kind::Gather, 1, &[7; 1000][..]); 1001]);
        let (first, others) = all.split_at(all.len() / 1001);
        feed(&mut incoming, first, usize::MAX).expect("our own");
        for next in others.chunks(first.len()) {
            feed(&mut incoming, next, usize::MAX).expect("our own");
            incoming.consume();
            assert_eq!(incoming.first().map(|(_, payload)| payload), Some(&[7; 1000][..]));
        }
        assert!(incoming.bytes.len() <= 4 * ROOM, "{}", incoming.bytes.len());
    }

    #[test]
    fn a_claimed_length_takes_no_memory() {
        let mut incoming = Incoming::new(seal());
        let few = [claimed(200 << 20, Kind::Gather), b"few bytes".to_vec()].concat();
        feed(&mut incoming, &few, usize::MAX).expect("it may still come");
        assert!(incoming.first().is_none() && incoming.bytes.len() <= 2 * ROOM, "{}", incoming.bytes.len());
    }

    #[test]
    fn what_no_rank_would_send_is_refused() {
        let check = |bytes: &[u8], part: &str| {
            let reason = feed(&mut Incoming::new(seal()), bytes, usize::MAX).expect_err(part);
            assert!(reason.contains(part), "{reason}");
        };
        check(&claimed(FRAME_MAX + 1, Kind::Gather), "at most");
        check(&claimed(4097, Kind::Word), "at most 4096");
        check(&frames(&[(Kind::Word, 0, &b"again"[..]); WORDS + 1]), "unsolicited");
    }

    #[test]
    fn a_frame_that_was_changed_left_out_or_repeated_is_refused() {
        let all = frames(&[(Kind::Gather, 1, b"payload"), (Kind::Gather, 2, b"another")]);
        let check = |bytes: &[u8]| {
            let reason = feed(&mut Incoming::new(seal()), bytes, usize::MAX).expect_err("changed");
            assert!(reason.contains("modified in transit"), "{reason}");
        };
        for bit in 0..8 * all.len() {
            let mut changed = all.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            check(&changed);
        }
        let (first, second) = all.split_at(all.len() / 2);
        check(second);
        check(&[first, first].concat());
        check(&[second, first].concat());
    }
}
