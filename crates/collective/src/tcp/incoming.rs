//! What has come on a connection: bytes in, frames and words out.
//!
//! Place in the flow: `connection` reads into [`Incoming::room`]; whatever came whole is a frame or a word afterwards. The memory grows with the bytes
//! that came, whatever a header claims.
//! What it does not do: read, or know which frame is due.

use std::collections::VecDeque;
use std::ops::Range;

use super::frame::{HEADER, Header, Kind};

/// Bytes that have come and have not been handed out.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Those before `filled` have come, the others are room.
    bytes: Vec<u8>,
    filled: usize,
    /// Where the first frame begins that has not come whole.
    parsed: usize,
    /// Frames that have come whole, words left out.
    frames: VecDeque<Found>,
    words: Vec<Vec<u8>>,
}

/// A frame that has come whole.
#[derive(Debug)]
struct Found {
    header: Header,
    payload: Range<usize>,
}

impl Incoming {
    /// Where the next bytes go; never empty.
    pub fn room(&mut self) -> &mut [u8] {
        let taken = self.taken();
        if taken == self.filled || taken > self.bytes.len() / 2 {
            self.bytes.copy_within(taken..self.filled, 0);
            self.filled -= taken;
            self.parsed -= taken;
            for found in &mut self.frames {
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

    /// So many bytes have come into the room; how many frames and words are whole by them.
    ///
    /// # Errors
    /// What no rank would send; nothing after it is understood.
    pub fn came(&mut self, count: usize) -> Result<u64, String> {
        self.filled += count;
        let mut whole = 0;
        while let Some(header) = Header::decode(&self.bytes[self.parsed..self.filled])? {
            let start = self.parsed + HEADER;
            let payload = start..start + header.length;
            if payload.end > self.filled {
                break;
            }
            self.parsed = payload.end;
            whole += 1;
            if header.kind != Kind::Word {
                self.frames.push_back(Found { header, payload });
            } else if self.words.len() < WORDS {
                self.words.push(self.bytes[payload].to_vec());
            } else {
                return Err(format!("more than {WORDS} words that nobody has asked for"));
            }
        }
        Ok(whole)
    }

    /// The first frame that has come whole, and its payload.
    pub fn first(&self) -> Option<(Header, &[u8])> {
        self.frames.front().map(|found| (found.header, &self.bytes[found.payload.clone()]))
    }

    /// Forgets that frame.
    pub fn consume(&mut self) {
        self.frames.pop_front();
    }

    /// Bytes of frames that nobody has taken yet.
    pub fn waiting(&self) -> usize {
        self.filled - self.taken()
    }

    /// Bytes at the beginning that nobody needs any more.
    fn taken(&self) -> usize {
        self.frames.front().map_or(self.parsed, |found| found.payload.start - HEADER)
    }

    /// The words that came since this was last asked.
    pub fn words(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.words)
    }
}

/// The least that is read at once.
const ROOM: usize = 4 << 10;

/// Memory that is kept for the next frames.
const KEPT: usize = 1 << 20;

/// Words that may wait to be asked for.
const WORDS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: Kind, sequence: u64, payload: &[u8]) -> Vec<u8> {
        let header = Header::of(kind, sequence, payload, "test").expect("short");
        [&header.encode(), payload].concat()
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
        let all = [
            frame(Kind::Gather, 1, b"first"),
            frame(Kind::Word, 0, b"between"),
            frame(Kind::Broadcast, 2, &long),
            frame(Kind::Word, 0, b""),
            frame(Kind::Gather, 3, b""),
        ]
        .concat();
        for pieces in [1, 3, 17, 4096, usize::MAX] {
            let mut incoming = Incoming::default();
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
        let mut incoming = Incoming::default();
        let next = frame(Kind::Gather, 1, &[7; 1000]);
        feed(&mut incoming, &next, usize::MAX).expect("our own");
        for _ in 0..1000 {
            feed(&mut incoming, &next, usize::MAX).expect("our own");
            incoming.consume();
            assert_eq!(incoming.first().map(|(_, payload)| payload), Some(&[7; 1000][..]));
        }
        assert!(incoming.bytes.len() <= 4 * ROOM, "{}", incoming.bytes.len());
    }

    #[test]
    fn a_claimed_length_takes_no_memory() {
        let mut incoming = Incoming::default();
        let mut claimed = frame(Kind::Gather, 1, b"few bytes");
        claimed[..4].copy_from_slice(&(200u32 << 20).to_le_bytes());
        feed(&mut incoming, &claimed, usize::MAX).expect("it may still come");
        assert!(incoming.first().is_none() && incoming.bytes.len() <= 2 * ROOM, "{}", incoming.bytes.len());
    }

    #[test]
    fn what_no_rank_would_send_is_refused() {
        let check = |bytes: &[u8], part: &str| {
            let reason = feed(&mut Incoming::default(), bytes, usize::MAX).expect_err(part);
            assert!(reason.contains(part), "{reason}");
        };
        let mut long = frame(Kind::Gather, 1, b"");
        long[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        check(&long, "at most");
        let mut word = frame(Kind::Word, 0, b"");
        word[..4].copy_from_slice(&4097u32.to_le_bytes());
        check(&word, "at most 4096");
        let mut unknown = frame(Kind::Gather, 1, b"");
        unknown[4] = 99;
        check(&unknown, "unknown kind 99");
        check(&frame(Kind::Word, 0, b"again").repeat(WORDS + 1), "nobody has asked for");
    }
}
