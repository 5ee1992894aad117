//! The format of a frame.
//!
//! A frame is a header of 80 bytes followed by its payload:
//!
//! | bytes | field, little-endian |
//! |---|---|
//! | 0..4 | bytes of the payload |
//! | 4..8 | kind |
//! | 8..16 | sequence: counts the group's operations, so that ranks that run different programs are found out; 0 for a word |
//! | 16..48 | hash of the payload |
//! | 48..80 | tag: keyed hash of those 48 bytes and of how many frames went before in this direction |
//!
//! On a Unix-domain socket (`local`) the first 16 bytes are all: only the kernel is between the
//! ranks.
//!
//! Each direction of each connection has a key of its own, made in the greeting. So a frame that
//! was changed, left out, repeated, or put in by somebody else is found, and what a header claims
//! is believed only after its tag. A broadcast's payload is hashed once for all ranks. Frames are
//! not encrypted.

use blake3::Hash;

use super::local::LOCAL_MAX;
use crate::{Error, WORD_MAX};

/// Purpose of a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Gather = 1,
    Broadcast = 2,
    Abort = 3,
    /// Between the root and a returning rank; the sequence counts their messages ([`super::door`]).
    Back = 4,
    /// The root continues without the receiver.
    Dismissal = 5,
    Scatter = 6,
    /// A message outside of the operations; it may be between any two other frames.
    Word = 7,
    /// In a tree: the root asks a rank for its frame of this gather, or a rank asks the root for
    /// what it has not received.
    Ask = 8,
    /// In a tree: the first shape of it.
    Tree = 9,
    /// The other connection for frames between ranks of one host ([`super::local`]).
    Local = 10,
}

impl Kind {
    /// Returns true if nothing follows on the connection.
    pub fn is_last(self) -> bool {
        matches!(self, Self::Abort | Self::Dismissal)
    }

    /// Returns the kind with this number, modulo the number of kinds.
    #[cfg(any(test, feature = "suite"))]
    pub fn any(number: u8) -> Self {
        Self::from_wire(1 + u32::from(number) % 10).unwrap_or(Self::Tree)
    }

    /// Returns the longest payload of such a frame, bytes.
    fn longest(self) -> usize {
        match self {
            Self::Word => WORD_MAX,
            Self::Local => LOCAL_MAX,
            _ => FRAME_MAX,
        }
    }

    fn from_wire(number: u32) -> Option<Self> {
        let all = [
            Self::Gather,
            Self::Broadcast,
            Self::Abort,
            Self::Back,
            Self::Dismissal,
            Self::Scatter,
            Self::Word,
            Self::Ask,
            Self::Tree,
            Self::Local,
        ];
        all.into_iter().find(|&kind| kind as u32 == number)
    }
}

/// Header of a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub kind: Kind,
    pub sequence: u64,
    /// Length of the payload, bytes.
    pub length: usize,
    /// Hash of the payload, if frames have tags.
    pub digest: Option<Hash>,
}

/// Hash of the last payload sent: a payload for several receivers is hashed once.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Hashed<'a>(Option<(&'a [u8], Hash)>);

impl<'a> Hashed<'a> {
    fn of(&mut self, payload: &'a [u8]) -> Hash {
        match self.0 {
            Some((before, hash)) if std::ptr::eq(before, payload) => hash,
            _ => self.0.insert((payload, blake3::hash(payload))).1,
        }
    }
}

/// Bytes of one header.
#[derive(Copy, Clone, Debug)]
pub(super) struct HeaderBytes {
    bytes: [u8; HEADER],
    length: usize,
}

impl HeaderBytes {
    /// No bytes yet.
    pub const NONE: Self = Self { bytes: [0; HEADER], length: 0 };
}

impl std::ops::Deref for HeaderBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// One direction of a connection: its key, if frames have tags, and the number of frames so far.
#[derive(Clone)]
pub(super) struct Seal {
    key: Option<[u8; 32]>,
    frames: u64,
}

impl Seal {
    pub fn new(key: Hash) -> Self {
        Self { key: Some(key.into()), frames: 0 }
    }

    /// Returns a seal without tags, for connections within the kernel.
    pub fn none() -> Self {
        Self { key: None, frames: 0 }
    }

    /// Returns true if frames have tags.
    pub fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Counts a frame that has passed.
    pub fn pass(&mut self) {
        self.frames += 1;
    }

    /// Returns the length of a header, bytes.
    pub fn header(&self) -> usize {
        if self.has_key() { HEADER } else { PLAIN }
    }

    /// Returns the tag of a header, if there are tags.
    fn tag(&self, header: &[u8]) -> Option<Hash> {
        let mut said = [0; UNSEALED + 8];
        said[..UNSEALED].copy_from_slice(header.get(..UNSEALED)?);
        said[UNSEALED..].copy_from_slice(&self.frames.to_le_bytes());
        Some(blake3::keyed_hash(self.key.as_ref()?, &said))
    }
}

/// Hides the key.
impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Seal({} frames)", self.frames)
    }
}

/// An outgoing frame on one connection.
#[derive(Debug)]
pub(super) struct Leaving {
    pub header: Header,
    /// The header, once a byte of it has been sent.
    pub bytes: HeaderBytes,
    /// Bytes of both sent so far.
    pub sent: usize,
}

/// Seals of a connection's two directions, seen from this side.
#[derive(Debug)]
pub(super) struct Seals {
    /// Seal of outgoing frames.
    pub own: Seal,
    /// Seal of incoming frames.
    pub peers: Seal,
}

impl Header {
    /// Returns the header of `payload` in this direction.
    ///
    /// # Errors
    /// [`Error::Backend`] if it is longer than such a frame may be.
    pub fn of<'a>(
        kind: Kind,
        sequence: u64,
        (payload, hashed): (&'a [u8], &mut Hashed<'a>),
        seal: &Seal,
        operation: &'static str,
    ) -> Result<Self, Error> {
        let length = payload.len();
        let longest = kind.longest();
        if length > longest {
            let reason = format!("a payload of {length} bytes; at most {longest} are allowed");
            return Err(Error::Backend { operation, reason });
        }
        Ok(Self { kind, sequence, length, digest: seal.has_key().then(|| hashed.of(payload)) })
    }

    /// Encodes the header as that of the next frame in this direction.
    pub fn encode(self, seal: &Seal) -> HeaderBytes {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&(self.length as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes[8..PLAIN].copy_from_slice(&self.sequence.to_le_bytes());
        if let Some(digest) = self.digest {
            bytes[PLAIN..UNSEALED].copy_from_slice(digest.as_bytes());
        }
        if let Some(tag) = seal.tag(&bytes) {
            bytes[UNSEALED..].copy_from_slice(tag.as_bytes());
        }
        HeaderBytes { bytes, length: seal.header() }
    }

    /// Decodes the header at the beginning of `bytes`, if it is that of the next frame in this
    /// direction; `None` while it is incomplete.
    ///
    /// # Errors
    /// States what is wrong with it.
    pub fn decode(bytes: &[u8], seal: &Seal) -> Result<Option<Self>, String> {
        let Some(header) = bytes.get(..seal.header()) else { return Ok(None) };
        let mut digest = None;
        if let Some(right) = seal.tag(header) {
            // Comparing two hashes takes the same time wherever they differ.
            if !header[UNSEALED..].first_chunk::<32>().is_some_and(|tag| right == *tag) {
                return Err(CHANGED.to_owned());
            }
            digest = header[PLAIN..UNSEALED].first_chunk::<32>().map(|digest| Hash::from(*digest));
        }
        let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (length, number) = (number(0) as usize, number(4));
        let Some(kind) = Kind::from_wire(number) else { return Err(format!("a frame of unknown kind {number}")) };
        let longest = kind.longest();
        if length > longest {
            return Err(format!("a frame of {length} bytes; at most {longest} are allowed"));
        }
        let sequence = header[8..PLAIN].iter().rev().fold(0, |sequence, byte| sequence << 8 | u64::from(*byte));
        Ok(Some(Self { kind, sequence, length, digest }))
    }

    /// Checks that the payload is the one that was sent.
    ///
    /// # Errors
    /// States that it is not.
    pub fn check(self, payload: &[u8]) -> Result<(), String> {
        let right = self.digest.is_none_or(|digest| blake3::hash(payload) == digest);
        if right { Ok(()) } else { Err(CHANGED.to_owned()) }
    }
}

/// Message for a frame with wrong hashes.
const CHANGED: &str =
    "a frame that was modified in transit or is not from a rank of this run; something between the ranks corrupts data";

/// Longest payload of a frame, bytes. A round of 10 240 nodes is 2 MB; a longer length means a
/// corrupt stream.
pub(super) const FRAME_MAX: usize = 256 << 20;

/// Length of a frame's header with its tag, bytes.
const HEADER: usize = UNSEALED + 32;

/// Length of the header before the tag, bytes.
const UNSEALED: usize = PLAIN + 32;

/// Length of the header before the hash, bytes.
const PLAIN: usize = 16;
