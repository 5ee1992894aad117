//! The counter that a map uses, and the conversion of its ticks into ns.
//!
//! The session that writes a page chooses the counter, and readers follow the page.
//!
//! The time-stamp counter is multiplied by a constant, a whole number of 2⁻⁶² ns per tick, so that
//! every process gets the same ns of the same count. The constant need not be exact: a map holds
//! from this counter to the reference, and what the constant is wrong by is in its rates.
//!
//! By hand. At 2.5 GHz a tick is 0.4 ns: 1 844 674 407 370 955 161 parts. 1 000 000 ticks are 399
//! 999 ns, rounded down. The count is taken four times and the product's upper half is the answer:
//! a shift of 128 bits would cost a reader 1 ns. So a count may reach 2⁶², 36 years at 4 GHz.

/// Source of a map's counter.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// `CLOCK_MONOTONIC_RAW`, ns.
    #[default]
    Raw,
    /// The processor's time-stamp counter, with the length of its ticks.
    Tsc(Scale),
}

/// Length of a tick in ns, in units of 2⁻⁶².
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Scale(u64);

impl Scale {
    /// A tick of 1 ns.
    pub const ONE: Self = Self(1 << PARTS);

    /// Returns the scale from a span in ns and in ticks; `None` if no counter can have it.
    pub fn of(ns: i64, ticks: i64) -> Option<Self> {
        let (ns, ticks) = (u64::try_from(ns).ok()?, u64::try_from(ticks).ok()?);
        let parts = (u128::from(ns) << PARTS).checked_div(ticks.into())?;
        let parts = u64::try_from(parts).ok()?;
        POSSIBLE.contains(&parts).then_some(Self(parts))
    }

    /// Converts ticks to ns, rounded down. Wraps on overflow, because a page may contain anything.
    #[inline]
    pub const fn ns(self, ticks: u64) -> i64 {
        ((ticks.wrapping_shl(u64::BITS - PARTS) as u128 * self.0 as u128) >> u64::BITS) as i64
    }
}

impl Source {
    /// Encodes the source as a word of a page; 0 is the raw clock.
    pub(crate) fn word(self) -> u64 {
        match self {
            Self::Raw => 0,
            Self::Tsc(Scale(parts)) => parts,
        }
    }

    #[inline]
    pub(crate) fn of_word(word: u64) -> Self {
        if word == 0 { Self::Raw } else { Self::Tsc(Scale(word)) }
    }
}

const PARTS: u32 = 62;
/// Plausible scales: from 100 GHz to 500 MHz.
const POSSIBLE: std::ops::RangeInclusive<u64> = (1 << PARTS) / 100..=2 << PARTS;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ticks_by_hand() {
        let scale = Scale::of(20_000_000, 50_000_000).expect("2.5 GHz");
        assert_eq!((scale, scale.ns(1_000_000)), (Scale(1_844_674_407_370_955_161), 399_999));
        assert_eq!(Scale::ONE.ns(77), 77);
        for (ns, ticks) in [(1, 0), (0, 1), (-5, 2), (5, -2), (1, 1_000), (1_000_000_000, 1), (i64::MAX, 1)] {
            assert_eq!(Scale::of(ns, ticks), None, "{ns} ns in {ticks} ticks");
        }
        for source in [Source::Raw, Source::Tsc(scale)] {
            assert_eq!(Source::of_word(source.word()), source);
        }
    }

    proptest! {
        #[test]
        fn ticks_never_go_back(ticks in 0_u64..1 << 61, more in 0_u64..1 << 40, ns in 1_000_i64..1 << 39) {
            let scale = Scale::of(ns, 1 << 38);
            prop_assume!(scale.is_some());
            let scale = scale.expect("assumed");
            prop_assert!(scale.ns(ticks + more) >= scale.ns(ticks));
        }

        #[test]
        fn any_word_is_taken(word: u64, ticks: u64) {
            if let Source::Tsc(scale) = Source::of_word(word) {
                let _ = scale.ns(ticks);
            }
        }
    }
}
