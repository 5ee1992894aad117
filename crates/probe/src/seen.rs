//! Which packets of one direction between two nodes have already arrived: the sliding window that
//! tells a duplicate from a late first copy, so that `sent − first copies` is exactly the number of
//! lost packets.
//!
//! Same idea as the anti-replay window of IPsec (RFC 4303, section 3.4.3): a bitmap of the latest
//! [`SPAN`] sequence numbers, one per packet of a direction. What is older than the window cannot
//! be told apart from a replay.
//!
//! A packet that is far ahead of the window moves it only when a second one confirms it: one packet
//! must not be able to make all that follow look old.

use crate::packet::{Packet, REPETITIONS_MAX};

/// Status of a packet in the window.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// First copy.
    First,
    /// Received before.
    Duplicate,
    /// Older than the window: unknown.
    Forgotten,
    /// Far ahead of all before, and not confirmed.
    FarAhead,
}

/// The packets seen in one direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenWindow {
    /// True once any packet has arrived.
    begun: bool,
    highest: u32,
    /// A sequence number far ahead that was received once.
    ahead: Option<u32>,
    /// A ring of bits per packet of a direction, indexed by sequence number modulo [`SPAN`].
    bits: [[u64; WORDS]; PLACES],
}

impl SeenWindow {
    /// Records a packet, and returns whether it is new.
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
            self.make_room(shift);
            self.highest = seq;
        }
        let age = self.highest.wrapping_sub(seq);
        if age >= SPAN {
            return Seen::Forgotten;
        }
        let (word, bit) = place_in_ring(seq);
        let seen = &mut self.bits[place][word];
        let first = *seen & bit == 0;
        *seen |= bit;
        if first { Seen::First } else { Seen::Duplicate }
    }

    /// Makes room for the next `count` sequence numbers.
    fn make_room(&mut self, count: u32) {
        if count >= SPAN {
            self.bits = [[0; WORDS]; PLACES];
            return;
        }
        for ahead in 1..=count {
            let (word, bit) = place_in_ring(self.highest.wrapping_add(ahead));
            self.bits.iter_mut().for_each(|ring| ring[word] &= !bit);
        }
    }

    /// Returns true if `seq` follows soon after another number far ahead; otherwise remembers it.
    fn confirms(&mut self, seq: u32) -> bool {
        let confirmed = self.ahead.is_some_and(|ahead| is_newer(seq, ahead) && seq.wrapping_sub(ahead) < SPAN);
        self.ahead = Some(seq);
        confirmed
    }
}

/// Returns the word and the bit of a sequence number.
fn place_in_ring(seq: u32) -> (usize, u64) {
    let place = seq % SPAN;
    ((place / u64::BITS) as usize, 1 << (place % u64::BITS))
}

/// Returns true if sequence number `a` comes after `b`, on a circle of 2^32 (RFC 1982).
pub(crate) fn is_newer(a: u32, b: u32) -> bool {
    a != b && a.wrapping_sub(b) < 1 << 31
}

/// Number of latest sequence numbers remembered: those of one second at one per millisecond,
/// because a third packet may be requested again for most of an exchange timeout.
pub(crate) const SPAN: u32 = 1024;
const WORDS: usize = (SPAN / u64::BITS) as usize;

/// Largest jump of a sequence number accepted at once. A minute without packets hides less than 50
/// times this at the fastest cadence to a single peer; then the second packet confirms the first.
const JUMP_MAX: u32 = 1 << 16;

/// Packets of a direction that are distinguished: two coded ones and the third with its
/// repetitions.
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
        check(SPAN - 1, 1, Seen::First);
        check(0, 2, Seen::Duplicate);
        check(SPAN, 1, Seen::First);
        check(0, 2, Seen::Forgotten);
        check(4, 0, Seen::Duplicate);
        check(SPAN + 1000, 0, Seen::First);
        check(SPAN + 4, 0, Seen::First);
        check(SPAN, 1, Seen::Duplicate);
        check(3 * SPAN + 1000, 0, Seen::First);
        check(2 * SPAN + 1001, 0, Seen::First);
        check(2 * SPAN + 1000, 0, Seen::Forgotten);
    }

    #[test]
    fn sequence_numbers_wrap() {
        assert!(is_newer(0, u32::MAX) && !is_newer(u32::MAX, 0) && !is_newer(3, 3));
        let mut window = SeenWindow { begun: true, highest: u32::MAX - 1, ..SeenWindow::default() };
        assert_eq!(window.note_at(u32::MAX - 1, 0), Seen::First);
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
