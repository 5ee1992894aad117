//! Which packets of one direction between two nodes have come already: the sliding window that tells a duplicate from
//! a late first copy, so that `sent − first copies` is exactly what was lost.
//!
//! Same idea as the anti-replay window of IPsec (RFC 4303, section 3.4.3): a bitmap of the latest [`SPAN`] sequence
//! numbers, one per packet of a direction. What is older than the window cannot be told apart from a replay.
//!
//! A packet that is far ahead of the window moves it only when a second one confirms it: one packet must not be able to make all that
//! follow look old.
//!
//! What it does not do: decide what happens to the packet.

use crate::packet::{Packet, REPETITIONS_MAX};

/// What the window says about a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Its first copy.
    First,
    /// It has come before.
    Duplicate,
    /// Older than the window: unknown.
    Forgotten,
    /// Far ahead of all before it, and not confirmed.
    FarAhead,
}

/// The packets seen of one direction.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct SeenWindow {
    /// Any packet has come.
    begun: bool,
    highest: u32,
    /// A sequence number far ahead that came once.
    ahead: Option<u32>,
    /// Per packet of a direction: bit b is the packet of sequence number `highest − b`.
    bits: [u128; PLACES],
}

impl SeenWindow {
    /// Notes a packet, and says whether it is new.
    pub(crate) fn note(&mut self, packet: &Packet) -> Seen {
        self.note_at(packet.seq, packet.kind.place() + usize::from(packet.repetition.min(REPETITIONS_MAX)))
    }

    fn note_at(&mut self, seq: u32, place: usize) -> Seen {
        if !self.begun {
            (self.begun, self.highest) = (true, seq);
        }
        if is_newer(seq, self.highest) {
            let shift = seq.wrapping_sub(self.highest);
            if shift > JUMP_MAX && !self.confirms(seq) {
                return Seen::FarAhead;
            }
            self.ahead = None;
            for bits in &mut self.bits {
                *bits = bits.checked_shl(shift).unwrap_or(0);
            }
            self.highest = seq;
        }
        let age = self.highest.wrapping_sub(seq);
        if age >= SPAN {
            return Seen::Forgotten;
        }
        let bit = 1u128 << age;
        let before = self.bits[place];
        self.bits[place] |= bit;
        if before & bit == 0 { Seen::First } else { Seen::Duplicate }
    }

    /// Whether `seq` is soon after another number far ahead. Remembers it where it is not.
    fn confirms(&mut self, seq: u32) -> bool {
        let confirmed = self.ahead.is_some_and(|ahead| is_newer(seq, ahead) && seq.wrapping_sub(ahead) < SPAN);
        self.ahead = Some(seq);
        confirmed
    }
}

/// True when sequence number `a` comes after `b`, on a circle of 2^32 (RFC 1982).
pub(crate) fn is_newer(a: u32, b: u32) -> bool {
    a != b && a.wrapping_sub(b) < 1 << 31
}

/// How many of the latest sequence numbers are remembered: more than a prober has in flight to one peer.
pub(crate) const SPAN: u32 = 128;

/// Sequence numbers by which a packet may be ahead of all before it: what a minute without packets hides at the fastest cadence to a single
/// peer is less than 50 times that, and then the second packet confirms the first.
const JUMP_MAX: u32 = 1 << 16;

/// Packets of a direction that are told apart: two coded ones and the third with its repetitions.
const PLACES: usize = 3 + REPETITIONS_MAX as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_by_hand() {
        let mut window = SeenWindow::default();
        let mut check = |seq: u32, place, expected| assert_eq!(window.note_at(seq, place), expected, "{seq} {place}");
        check(0, 0, Seen::First);
        check(0, 0, Seen::Duplicate);
        check(0, 2, Seen::First);
        check(5, 0, Seen::First);
        check(4, 0, Seen::First);
        check(4, 0, Seen::Duplicate);
        check(0, 0, Seen::Duplicate);
        check(127, 1, Seen::First);
        check(0, 2, Seen::Duplicate);
        check(128, 1, Seen::First);
        check(0, 2, Seen::Forgotten);
        check(4, 0, Seen::Duplicate);
        check(128 + 1000, 0, Seen::First);
        check(128, 1, Seen::Forgotten);
        check(128 + 999, 0, Seen::First);
    }

    #[test]
    fn sequence_numbers_wrap() {
        assert!(is_newer(0, u32::MAX) && !is_newer(u32::MAX, 0) && !is_newer(3, 3));
        let mut window = SeenWindow { begun: true, highest: u32::MAX - 1, ahead: None, bits: [1; PLACES] };
        assert_eq!(window.note_at(2, 0), Seen::First);
        assert_eq!(window.note_at(u32::MAX - 1, 0), Seen::Duplicate);
        assert_eq!(window.note_at(u32::MAX, 0), Seen::First);
    }

    #[test]
    fn one_packet_far_ahead_moves_nothing_and_two_do() {
        let mut window = SeenWindow::default();
        let mut check = |seq: u32, expected| assert_eq!(window.note_at(seq, 0), expected, "{seq}");
        check(1_000_000, Seen::First);
        check(1_000_001 + JUMP_MAX, Seen::FarAhead);
        check(1_000_001 + JUMP_MAX, Seen::FarAhead);
        check(1_000_001, Seen::First);
        check(i32::MAX as u32, Seen::FarAhead);
        check(1_000_002, Seen::First);
        // After a long silence of the network.
        check(5_000_000, Seen::FarAhead);
        check(5_000_001, Seen::First);
        check(5_000_000, Seen::First);
    }
}
