//! The probe packet: 80 bytes, big-endian, the same length for all six kinds.
//!
//! Equal lengths matter: a longer packet takes longer to put on the wire, and the two packets of a
//! coded pair, or the two directions, would differ by that serialisation delay. Unknown stamps are
//! therefore sent as zeros, not left out.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | magic `pSyn` |
//! | 4 | version |
//! | 5 | kind: 1–3 = Pt1–Pt3, 4–6 = Pr1–Pr3 |
//! | 6 | source of each stamp, two bits each, lowest bits first: 0 absent, 1 hardware, 2 kernel, 3 user |
//! | 7 | which repetition of a third packet this is, from 0; zero for the others |
//! | 8..16 | run id |
//! | 16..20, 20..24 | source node, destination node of this packet |
//! | 24..28 | sequence number of the exchange on its edge |
//! | 28..32 | incarnation of the node that started the exchange |
//! | 32..64 | four stamps of the SENDER's clock, ns: transmit 1, transmit 2, receive 1, receive 2 |
//! | 64..80 | tag: the first 16 bytes of the keyed BLAKE3 hash of all before; zeros in a run without a key |
//!
//! Which stamps a kind carries is part of the format (`Pt3` both transmit stamps, `Pr3` too, and so
//! on), so a decoded packet needs no further check. There is no checksum: UDP has one.

use probe_sync_time::{NodeId, RunId, SessionKey, Stamp, StampSource, Timestamp};

/// The six packets of an exchange, in the order in which they are sent.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// First packet of the forward coded pair.
    Pt1 = 1,
    /// Second packet of the forward coded pair.
    Pt2 = 2,
    /// Carries the transmit stamps of the forward pair.
    Pt3 = 3,
    /// First packet of the reverse coded pair.
    Pr1 = 4,
    /// Second packet of the reverse coded pair.
    Pr2 = 5,
    /// Carries all four stamps of the responder.
    Pr3 = 6,
}

impl Kind {
    /// All six, in order.
    pub const ALL: [Self; 6] = [Self::Pt1, Self::Pt2, Self::Pt3, Self::Pr1, Self::Pr2, Self::Pr3];

    /// Returns true for the packets that a prober sends.
    pub const fn is_forward(self) -> bool {
        matches!(self, Self::Pt1 | Self::Pt2 | Self::Pt3)
    }

    /// Returns the place within its direction: 0, 1 or 2.
    pub const fn place(self) -> usize {
        (self as usize - 1) % 3
    }

    /// Returns true if the exchange needs this packet's transmit stamp: for the coded pairs, not
    /// the third packets.
    pub const fn needs_tx_stamp(self) -> bool {
        self.place() < 2
    }

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Returns for each stamp slot whether it must be filled (`Some(true)`), empty (`Some(false)`),
    /// or either (`None`).
    const fn slots(self) -> [Option<bool>; 4] {
        const EMPTY: Option<bool> = Some(false);
        const FILLED: Option<bool> = Some(true);
        match self {
            Self::Pt1 => [EMPTY; 4],
            Self::Pt2 => [None, EMPTY, EMPTY, EMPTY],
            Self::Pt3 => [FILLED, FILLED, EMPTY, EMPTY],
            // One receive stamp is missing where a packet was lost.
            Self::Pr1 => [EMPTY, EMPTY, None, None],
            Self::Pr2 => [None, EMPTY, None, None],
            Self::Pr3 => [FILLED, FILLED, None, None],
        }
    }
}

/// A decoded probe packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Kind of packet.
    pub kind: Kind,
    /// Run id.
    pub run: RunId,
    /// Sender.
    pub src: NodeId,
    /// Destination.
    pub dst: NodeId,
    /// Sequence number of the exchange on its edge; equal in all six packets of an exchange.
    pub seq: u32,
    /// Repetition of a third packet, from 0 to `REPETITIONS_MAX`; 0 for the others.
    pub repetition: u8,
    /// Incarnation of the node that started the exchange; a node that restarts takes a greater one.
    pub incarnation: u32,
    /// Transmit stamps of the sender's own packets 1 and 2, if known.
    pub tx: [Option<Stamp>; 2],
    /// Receive stamps of the other side's packets 1 and 2, if known.
    pub rx: [Option<Stamp>; 2],
}

/// Why a datagram is not a probe packet for this node.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Reject {
    /// Not [`PACKET_BYTES`] long.
    #[error("wrong length")]
    Length,
    /// Traffic of another program.
    #[error("not a probe packet")]
    Magic,
    /// Another release.
    #[error("another version of the packet format")]
    Version,
    /// Unknown kind, or a nonzero reserved byte.
    #[error("unknown kind of packet")]
    Kind,
    /// Another run on the same port.
    #[error("another run")]
    Run,
    /// Address that is not of a node of the run.
    #[error("unknown address")]
    Address,
    /// Tag not made with this run's key: forged, or of another session.
    #[error("wrong tag")]
    Tag,
    /// For another node.
    #[error("another destination")]
    Destination,
    /// From a node that is not in the run, or from this node itself.
    #[error("unknown source")]
    Source,
    /// Other stamps than the kind carries.
    #[error("stamps do not fit the kind")]
    Stamps,
}

impl Packet {
    /// Returns the bytes to send. Stamps that the kind does not carry must be `None`, as the
    /// decoder enforces.
    pub fn encode(&self, key: Option<&SessionKey>) -> [u8; PACKET_BYTES] {
        let mut bytes = [0; PACKET_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = PACKET_VERSION;
        bytes[5] = self.kind as u8;
        bytes[7] = self.repetition;
        bytes[8..16].copy_from_slice(&self.run.0.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.src.0.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.dst.0.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.seq.to_be_bytes());
        bytes[28..32].copy_from_slice(&self.incarnation.to_be_bytes());
        for (slot, stamp) in self.tx.iter().chain(&self.rx).enumerate() {
            if let Some(stamp) = stamp {
                bytes[6] |= source_code(stamp.source) << (2 * slot);
                let start = STAMPS_START + 8 * slot;
                bytes[start..start + 8].copy_from_slice(&stamp.at.as_ns().to_be_bytes());
            }
        }
        if let Some(key) = key {
            let tag = tag(&bytes, key);
            bytes[TAG_START..].copy_from_slice(&tag);
        }
        bytes
    }

    /// Checks whether a datagram's tag was made with `key`; always succeeds in a run without a key.
    ///
    /// # Errors
    /// [`Reject::Tag`], or [`Reject::Length`] for a datagram of the wrong length.
    pub(crate) fn authenticate(datagram: &[u8], key: Option<&SessionKey>) -> Result<(), Reject> {
        let bytes: &[u8; PACKET_BYTES] = datagram.try_into().map_err(|_| Reject::Length)?;
        let Some(key) = key else { return Ok(()) };
        // As long for any wrong tag: the time must not say how much of it was right.
        let differing = tag(bytes, key).iter().zip(&bytes[TAG_START..]).fold(0, |all, (a, b)| all | (a ^ b));
        if differing == 0 { Ok(()) } else { Err(Reject::Tag) }
    }

    /// Decodes a datagram. Checks only the format; the endpoint checks the run, the nodes and the
    /// tag.
    ///
    /// # Errors
    /// The first reason, in the order of the fields, why these bytes are not a probe packet.
    pub fn decode(datagram: &[u8]) -> Result<Self, Reject> {
        let bytes: &[u8; PACKET_BYTES] = datagram.try_into().map_err(|_| Reject::Length)?;
        if bytes[0..4] != MAGIC {
            return Err(Reject::Magic);
        }
        if bytes[4] != PACKET_VERSION {
            return Err(Reject::Version);
        }
        let repetitions = |kind: &Kind| if kind.place() == 2 { REPETITIONS_MAX } else { 0 };
        let kind = Kind::from_byte(bytes[5]).filter(|kind| bytes[7] <= repetitions(kind)).ok_or(Reject::Kind)?;
        let mut stamps = [None; 4];
        for (slot, (stamp, rule)) in stamps.iter_mut().zip(kind.slots()).enumerate() {
            let at = Timestamp::from_ns(u64_at(bytes, STAMPS_START + 8 * slot) as i64);
            *stamp = source_from_code(bytes[6] >> (2 * slot) & 3).map(|source| Stamp { at, source });
            let zero_if_absent = stamp.is_some() || at.as_ns() == 0;
            if rule.is_some_and(|filled| filled != stamp.is_some()) || !zero_if_absent {
                return Err(Reject::Stamps);
            }
        }
        if !kind.is_forward() && stamps[2].or(stamps[3]).is_none() {
            return Err(Reject::Stamps);
        }
        Ok(Self {
            kind,
            run: RunId(u64_at(bytes, 8)),
            src: NodeId(u32_at(bytes, 16)),
            dst: NodeId(u32_at(bytes, 20)),
            seq: u32_at(bytes, 24),
            repetition: bytes[7],
            incarnation: u32_at(bytes, 28),
            tx: [stamps[0], stamps[1]],
            rx: [stamps[2], stamps[3]],
        })
    }

    /// Checks that this packet is for node `node` of a run of `nodes` nodes.
    ///
    /// # Errors
    /// The reason why not: another run, another destination, or an impossible source.
    pub(crate) fn check_addressee(&self, run: RunId, node: NodeId, nodes: u32) -> Result<(), Reject> {
        if self.run != run {
            Err(Reject::Run)
        } else if self.dst != node {
            Err(Reject::Destination)
        } else if self.src == node || self.src.0 >= nodes {
            Err(Reject::Source)
        } else {
            Ok(())
        }
    }
}

/// Returns the tag of a packet, made from all bytes before it with the key.
fn tag(bytes: &[u8; PACKET_BYTES], key: &SessionKey) -> [u8; TAG_BYTES] {
    let hash = blake3::keyed_hash(&key.0, &bytes[..TAG_START]);
    let mut tag = [0; TAG_BYTES];
    tag.copy_from_slice(&hash.as_bytes()[..TAG_BYTES]);
    tag
}

/// Returns the less accurate of two sources: an exchange with two kinds of stamps is only as good
/// as that.
pub(crate) fn poorer(a: StampSource, b: StampSource) -> StampSource {
    a.max(b)
}

fn source_code(source: StampSource) -> u8 {
    match source {
        StampSource::Hardware => 1,
        StampSource::Kernel => 2,
        StampSource::User => 3,
    }
}

fn source_from_code(code: u8) -> Option<StampSource> {
    match code {
        1 => Some(StampSource::Hardware),
        2 => Some(StampSource::Kernel),
        3 => Some(StampSource::User),
        _ => None,
    }
}

fn u32_at(bytes: &[u8; PACKET_BYTES], start: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[start..start + 4]);
    u32::from_be_bytes(field)
}

fn u64_at(bytes: &[u8; PACKET_BYTES], start: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[start..start + 8]);
    u64::from_be_bytes(field)
}

/// Length of every probe packet on the wire, bytes.
pub const PACKET_BYTES: usize = 80;

/// Most repetitions of a third packet.
pub const REPETITIONS_MAX: u8 = 3;

/// Version of the format. Other versions are refused.
pub(crate) const PACKET_VERSION: u8 = 2;

const MAGIC: [u8; 4] = *b"pSyn";
const STAMPS_START: usize = 32;
const TAG_START: usize = 64;
const TAG_BYTES: usize = PACKET_BYTES - TAG_START;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stamp(ns: i64, source: StampSource) -> Stamp {
        Stamp { at: Timestamp::from_ns(ns), source }
    }

    fn full() -> Packet {
        let tx = [Some(stamp(-1, StampSource::Hardware)), Some(stamp(i64::MAX, StampSource::Kernel))];
        let rx = [Some(stamp(0, StampSource::User)), Some(stamp(1_795_187_183_227_565_825, StampSource::Kernel))];
        Packet {
            kind: Kind::Pr3,
            run: RunId(7),
            src: NodeId(3),
            dst: NodeId(4),
            seq: 9,
            repetition: 1,
            incarnation: 5,
            tx,
            rx,
        }
    }

    /// Overwrites one byte of a good packet and expects `expected` from the decoder.
    fn check_patched(at: usize, value: u8, expected: Result<(), Reject>) {
        let mut bytes = full().encode(None);
        bytes[at] = value;
        assert_eq!(Packet::decode(&bytes).map(|_| ()), expected, "byte {at} = {value}");
    }

    #[test]
    fn each_defect_has_its_own_reason() {
        check_patched(0, b'P', Err(Reject::Magic));
        check_patched(4, PACKET_VERSION + 1, Err(Reject::Version));
        check_patched(5, 0, Err(Reject::Kind));
        check_patched(5, 7, Err(Reject::Kind));
        check_patched(7, REPETITIONS_MAX + 1, Err(Reject::Kind));
        check_patched(5, Kind::Pt3 as u8, Err(Reject::Stamps));
        check_patched(6, 0b1011_1000, Err(Reject::Stamps));
        check_patched(6, 0b0000_1001, Err(Reject::Stamps));
        check_patched(24, 1, Ok(()));
        assert_eq!(Packet::decode(&[]), Err(Reject::Length));
        assert_eq!(Packet::decode(&[0; PACKET_BYTES + 1]), Err(Reject::Length));
    }

    #[test]
    fn addressee_by_hand() {
        let check = |run, node, nodes, expected| {
            assert_eq!(full().check_addressee(RunId(run), NodeId(node), nodes), expected);
        };
        check(7, 4, 5, Ok(()));
        check(8, 4, 5, Err(Reject::Run));
        check(7, 3, 5, Err(Reject::Destination));
        check(7, 4, 3, Err(Reject::Source));
        let echo = Packet { src: NodeId(4), ..full() };
        assert_eq!(echo.check_addressee(RunId(7), NodeId(4), 5), Err(Reject::Source));
    }

    #[test]
    fn an_absent_stamp_is_zero_on_the_wire() {
        let packet = Packet { kind: Kind::Pt1, repetition: 0, tx: [None; 2], rx: [None; 2], ..full() };
        let mut bytes = packet.encode(None);
        assert_eq!(Packet::decode(&bytes), Ok(packet));
        bytes[TAG_START - 1] = 1;
        assert_eq!(Packet::decode(&bytes), Err(Reject::Stamps));
    }

    #[test]
    fn a_tag_is_of_one_key_and_of_every_byte() {
        let (key, other) = (SessionKey([1; 32]), SessionKey([2; 32]));
        let bytes = full().encode(Some(&key));
        assert_eq!(Packet::authenticate(&bytes, Some(&key)), Ok(()));
        assert_eq!(Packet::authenticate(&bytes, Some(&other)), Err(Reject::Tag));
        assert_eq!(Packet::authenticate(&bytes, None), Ok(()), "a run without a key asks for none");
        assert_eq!(Packet::authenticate(&full().encode(None), Some(&key)), Err(Reject::Tag));
        for at in 0..PACKET_BYTES {
            let mut bytes = bytes;
            bytes[at] ^= 1;
            assert_eq!(Packet::authenticate(&bytes, Some(&key)), Err(Reject::Tag), "byte {at}");
        }
    }

    #[test]
    fn places_and_directions() {
        assert_eq!(Kind::ALL.map(Kind::place), [0, 1, 2, 0, 1, 2]);
        assert_eq!(Kind::ALL.map(Kind::is_forward), [true, true, true, false, false, false]);
        assert_eq!(Kind::ALL.map(Kind::needs_tx_stamp), [true, true, false, true, true, false]);
    }

    fn any_stamp(rule: Option<bool>) -> impl Strategy<Value = Option<Stamp>> {
        let sources = prop::sample::select(vec![StampSource::Hardware, StampSource::Kernel, StampSource::User]);
        (any::<i64>(), sources, any::<bool>())
            .prop_map(move |(ns, source, coin)| rule.unwrap_or(coin).then_some(stamp(ns, source)))
    }

    fn any_packet() -> impl Strategy<Value = Packet> {
        prop::sample::select(Kind::ALL.to_vec()).prop_flat_map(|kind| {
            let stamps = kind.slots().map(any_stamp);
            let repetitions = if kind.place() == 2 { REPETITIONS_MAX } else { 0 };
            let header = any::<(u64, u32, u32, u32, u32)>();
            (header, 0..=repetitions, stamps).prop_map(move |((run, src, dst, seq, incarnation), repetition, s)| {
                Packet {
                    kind,
                    run: RunId(run),
                    src: NodeId(src),
                    dst: NodeId(dst),
                    seq,
                    repetition,
                    incarnation,
                    tx: [s[0], s[1]],
                    // An answer has at least one receive stamp.
                    rx: [
                        s[2],
                        s[3].or_else(|| (!kind.is_forward()).then(|| s[2].unwrap_or(stamp(1, StampSource::User)))),
                    ],
                }
            })
        })
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_the_same(packet in any_packet()) {
            prop_assert_eq!(Packet::decode(&packet.encode(None)), Ok(packet));
        }

        #[test]
        fn arbitrary_bytes_never_panic_and_accepted_bytes_are_canonical(
            noise in prop::collection::vec(any::<u8>(), 0..2 * PACKET_BYTES),
            head in any::<bool>(),
        ) {
            let mut bytes = noise;
            if head && bytes.len() >= 8 {
                bytes.resize(PACKET_BYTES, 0);
                bytes[0..4].copy_from_slice(&MAGIC);
                bytes[4] = PACKET_VERSION;
                bytes[5] %= 8;
                bytes[7] = 0;
            }
            if let Ok(packet) = Packet::decode(&bytes) {
                prop_assert_eq!(&packet.encode(None)[..TAG_START], &bytes[..TAG_START]);
            }
        }
    }
}
