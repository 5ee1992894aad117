//! The bytes of a frame.
//!
//! Place in the flow: `connection` writes frames, `incoming` finds them in what has come. A frame is a header of 16 bytes, `length: u32, kind: u32,
//! sequence: u64`, little-endian, and `length` bytes. The sequence counts the group's operations, so that ranks that run different programs are found
//! out; that of a word is zero.
//! What it does not do: read or write.

use crate::{Error, WORD_MAX};

/// What a frame is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Gather = 1,
    Broadcast = 2,
    Abort = 3,
    /// Between the root and a rank that comes back; the sequence counts what the two say ([`super::door`]).
    Back = 4,
    /// The root goes on without the rank that gets it.
    Dismissal = 5,
    Scatter = 6,
    /// A word beside the operations; it may lie between any two other frames.
    Word = 7,
}

impl Kind {
    /// Nothing follows on the connection.
    pub fn is_last(self) -> bool {
        matches!(self, Self::Abort | Self::Dismissal)
    }

    fn from_wire(number: u32) -> Option<Self> {
        let all = [Self::Gather, Self::Broadcast, Self::Abort, Self::Back, Self::Dismissal, Self::Scatter, Self::Word];
        all.into_iter().find(|&kind| kind as u32 == number)
    }
}

/// What precedes a payload.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub kind: Kind,
    pub sequence: u64,
    /// Bytes of the payload.
    pub length: usize,
}

impl Header {
    /// What precedes `payload`.
    ///
    /// # Errors
    /// [`Error::Backend`] when it is longer than [`FRAME_MAX`].
    pub fn of(kind: Kind, sequence: u64, payload: &[u8], operation: &'static str) -> Result<Self, Error> {
        if payload.len() > FRAME_MAX {
            let reason = format!("a payload of {} bytes; at most {FRAME_MAX} are allowed", payload.len());
            return Err(Error::Backend { operation, reason });
        }
        Ok(Self { kind, sequence, length: payload.len() })
    }

    pub fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&(self.length as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes[8..].copy_from_slice(&self.sequence.to_le_bytes());
        bytes
    }

    /// The header at the beginning of `bytes`; none while it is not there.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, String> {
        let Some((header, _)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
        let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (length, number) = (number(0) as usize, number(4));
        let Some(kind) = Kind::from_wire(number) else { return Err(format!("a frame of unknown kind {number}")) };
        let longest = if kind == Kind::Word { WORD_MAX } else { FRAME_MAX };
        if length > longest {
            return Err(format!("a frame of {length} bytes; at most {longest} are allowed"));
        }
        let (_, sequence) = header.split_at(8);
        let sequence = sequence.iter().rev().fold(0, |sequence, byte| sequence << 8 | u64::from(*byte));
        Ok(Some(Self { kind, sequence, length }))
    }
}

/// The longest payload of a frame. A round of 10 240 nodes is 2 MB; a length beyond this one is a broken stream.
pub(super) const FRAME_MAX: usize = 256 << 20;

/// Bytes of a frame's header.
pub(super) const HEADER: usize = 16;
