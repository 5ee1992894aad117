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

/// What a frame is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Gather = 1,
    Broadcast = 2,
    Abort = 3,
    /// Between the root and a rank that comes back; the sequence counts what the two say
    /// ([`super::door`]).
    Back = 4,
    /// The root goes on without the rank that gets it.
    Dismissal = 5,
    Scatter = 6,
    /// A word beside the operations; it may lie between any two other frames.
    Word = 7,
    /// In a tree: the root asks a rank for its frame of this gather, or a rank asks the root for
    /// what it has not heard.
    Ask = 8,
    /// In a tree: the first shape of it.
    Tree = 9,
    /// The other way for frames of ranks of one host ([`super::local`]).
    Local = 10,
}

impl Kind {
    /// Nothing follows on the connection.
    pub fn is_last(self) -> bool {
        matches!(self, Self::Abort | Self::Dismissal)
    }

    /// One of all kinds.
    #[cfg(any(test, feature = "suite"))]
    pub fn any(number: u8) -> Self {
        Self::from_wire(1 + u32::from(number) % 10).unwrap_or(Self::Tree)
    }

    /// The longest payload of such a frame, in bytes.
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

/// What precedes a payload.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub kind: Kind,
    pub sequence: u64,
    /// Bytes of the payload.
    pub length: usize,
    /// The payload's hash, where it goes under a tag.
    pub digest: Option<Hash>,
}

/// The hash of the payload that left last: what goes to many is hashed once.
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

/// The bytes of one header.
#[derive(Copy, Clone, Debug)]
pub(super) struct HeaderBytes {
    bytes: [u8; HEADER],
    length: usize,
}

impl HeaderBytes {
    /// None yet.
    pub const NONE: Self = Self { bytes: [0; HEADER], length: 0 };
}

impl std::ops::Deref for HeaderBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// One direction of a connection: its key, if frames have tags there, and how many frames went
/// before.
#[derive(Clone)]
pub(super) struct Seal {
    key: Option<[u8; 32]>,
    frames: u64,
}

impl Seal {
    pub fn new(key: Hash) -> Self {
        Self { key: Some(key.into()), frames: 0 }
    }

    /// Where only the kernel is between the ranks.
    pub fn none() -> Self {
        Self { key: None, frames: 0 }
    }

    /// Whether frames have tags.
    pub fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// The next frame has passed.
    pub fn pass(&mut self) {
        self.frames += 1;
    }

    /// Bytes of a header.
    pub fn header(&self) -> usize {
        if self.has_key() { HEADER } else { PLAIN }
    }

    /// The tag of a header; none where there are no tags.
    fn tag(&self, header: &[u8]) -> Option<Hash> {
        let mut said = [0; UNSEALED + 8];
        said[..UNSEALED].copy_from_slice(header.get(..UNSEALED)?);
        said[UNSEALED..].copy_from_slice(&self.frames.to_le_bytes());
        Some(blake3::keyed_hash(self.key.as_ref()?, &said))
    }
}

/// It holds a key.
impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Seal({} frames)", self.frames)
    }
}

/// A frame that leaves on one connection.
#[derive(Debug)]
pub(super) struct Leaving {
    pub header: Header,
    /// The header, once a byte of it has left.
    pub bytes: HeaderBytes,
    /// How many bytes of both have left.
    pub sent: usize,
}

/// The keys of a connection's two directions, seen from this side.
#[derive(Debug)]
pub(super) struct Seals {
    /// Of what is said here.
    pub own: Seal,
    /// Of what is heard here.
    pub peers: Seal,
}

impl Header {
    /// What precedes `payload` in this direction.
    ///
    /// # Errors
    /// [`Error::Backend`] when it is longer than such a frame may be.
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

    /// The header's bytes as the next frame of this direction.
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

    /// The header at the beginning of `bytes`, if it is the next of this direction; none while it
    /// is not there.
    ///
    /// # Errors
    /// What is wrong with it.
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
    /// That it is not.
    pub fn check(self, payload: &[u8]) -> Result<(), String> {
        let right = self.digest.is_none_or(|digest| blake3::hash(payload) == digest);
        if right { Ok(()) } else { Err(CHANGED.to_owned()) }
    }
}

/// Said of a frame whose hashes are wrong.
const CHANGED: &str =
    "a frame that was modified in transit or is not from a rank of this run; something between the ranks corrupts data";

/// The longest payload of a frame. A round of 10 240 nodes is 2 MB; a length beyond this one is a
/// broken stream.
pub(super) const FRAME_MAX: usize = 256 << 20;

/// Bytes of a frame's header with its tag.
const HEADER: usize = UNSEALED + 32;

/// Those before the tag.
const UNSEALED: usize = PLAIN + 32;

/// Those before the hash.
const PLAIN: usize = 16;
