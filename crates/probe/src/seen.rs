//! Which packets of one direction between two nodes have come already: the sliding window that tells a duplicate from
//! a late first copy, so that `sent − first copies` is exactly what was lost.
//!
//! Same idea as the anti-replay window of IPsec (RFC 4303, section 3.4.3): a bitmap of the latest [`SPAN`] sequence
//! numbers, one per packet of a direction. What is older than the window cannot be told apart.
//!
//! What it does not do: decide what happens to the packet.

/// What the window says about a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Its first copy.
    First,
    /// It has come before.
    Duplicate,
    /// Older than the window: unknown.
    Forgotten,
}

/// The packets seen of one direction.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct SeenWindow {
    highest: u32,
    /// Per place within the direction: bit b is the packet of sequence number `highest − b`.
    bits: [u128; 3],
}

impl SeenWindow {
    /// Notes the packet of `seq` and `place` (0 to 2), and says whether it is new.
    pub(crate) fn note(&mut self, seq: u32, place: usize) -> Seen {
        if is_newer(seq, self.highest) {
            let shift = seq.wrapping_sub(self.highest);
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
}

/// True when sequence number `a` comes after `b`, on a circle of 2^32 (RFC 1982).
pub(crate) fn is_newer(a: u32, b: u32) -> bool {
    a != b && a.wrapping_sub(b) < 1 << 31
}

/// How many of the latest sequence numbers are remembered. At the default gap of 800 µs towards a single peer this
/// covers the default exchange timeout of 100 ms.
pub(crate) const SPAN: u32 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_by_hand() {
        let mut window = SeenWindow::default();
        let mut check = |seq: u32, place, expected| assert_eq!(window.note(seq, place), expected, "{seq} {place}");
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
        let mut window = SeenWindow { highest: u32::MAX - 1, bits: [1; 3] };
        assert_eq!(window.note(2, 0), Seen::First);
        assert_eq!(window.note(u32::MAX - 1, 0), Seen::Duplicate);
        assert_eq!(window.note(u32::MAX, 0), Seen::First);
    }
}
