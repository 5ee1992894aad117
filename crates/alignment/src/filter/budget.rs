//! The minimum length of events that fits an output into a size limit.
//!
//! All events shorter than one length are left out; parts of collectives and steps stay. Events
//! that a viewer shows as bars therefore stay, those that it shows as hairlines go, and no event
//! loses the one it is nested in. Each attempt counts bytes by length during reading; the size of
//! the resulting output then shows how these translate into output bytes. Lengths are resolved to
//! 1/32.

/// Bytes by length.
#[derive(Debug)]
pub(super) struct Budget {
    max: u64,
    /// Events that are shorter are left out, ns.
    pub(super) shortest_ns: i64,
    /// Bytes that may be omitted, by length bucket, as read.
    bytes: Vec<u64>,
    /// Bytes that are always kept.
    protected: u64,
    /// Bytes that went into the output, as read.
    taken: u64,
    /// No more is taken: this attempt only counts.
    pub(super) full: bool,
    /// The first attempt, which has no sizes to go by, stops accepting events once the output would
    /// certainly be too large.
    first: bool,
}

impl Budget {
    pub(super) fn new(max: u64) -> Self {
        Self {
            max,
            shortest_ns: 0,
            bytes: vec![0; bucket(i64::MAX) + 1],
            protected: 0,
            taken: 0,
            full: false,
            first: true,
        }
    }

    /// Begins an attempt.
    pub(super) fn begin(&mut self) {
        self.bytes.fill(0);
        (self.protected, self.taken, self.full) = (0, 0, false);
    }

    /// Counts an event: its length if it may be omitted, and whether it is kept.
    pub(super) fn count(&mut self, may_go_ns: Option<i64>, bytes: u64, stays: bool) {
        match may_go_ns {
            Some(length) => self.bytes[bucket(length)] += bytes,
            None => self.protected += bytes,
        }
        if stays {
            self.taken += bytes;
            self.full |= self.first && self.taken > self.max.saturating_mul(2);
        }
    }

    /// Omits more, after an output of this many bytes; `None` if too much must be kept.
    pub(super) fn narrow(&mut self, written: u64) -> Option<()> {
        // What is in the output of what was read, and a little less than there is room for: names
        // and numbers weigh differently.
        let growth = (written as f64 / self.taken.max(1) as f64).max(f64::MIN_POSITIVE);
        let room = (self.max as f64 / growth * ROOM) as u64;
        let mut all = self.protected;
        let mut least = self.bytes.len();
        for (bucket, bytes) in self.bytes.iter().enumerate().rev() {
            all = all.saturating_add(*bytes);
            if all > room {
                break;
            }
            least = bucket;
        }
        if self.shortest_ns == i64::MAX {
            return None;
        }
        self.first = false;
        // The next attempt has to leave out more than this one, or it would end as this one did.
        let least = least.max(bucket(self.shortest_ns) + usize::from(!self.full || self.shortest_ns > 0));
        self.shortest_ns = if least >= self.bytes.len() { i64::MAX } else { lowest(least) };
        Some(())
    }
}

/// The bucket of a length.
fn bucket(length_ns: i64) -> usize {
    let length = length_ns.max(0) as u64;
    if length < EXACT {
        return length as usize;
    }
    let octave = length.ilog2();
    let part = (length >> (octave - PART_BITS)) as usize - (1 << PART_BITS);
    EXACT as usize + (((octave - EXACT.ilog2()) as usize) << PART_BITS) + part
}

/// The shortest length of a bucket, ns.
fn lowest(bucket: usize) -> i64 {
    let Some(above) = bucket.checked_sub(EXACT as usize) else { return bucket as i64 };
    let octave = EXACT.ilog2() + (above >> PART_BITS) as u32;
    let part = (above & ((1 << PART_BITS) - 1)) as i64;
    ((1 << PART_BITS) + part) << (octave - PART_BITS)
}

/// Lengths below this are distinguished to the nanosecond.
const EXACT: u64 = 64;
/// Parts of an octave, as a power of two.
const PART_BITS: u32 = 5;
/// The share of the room that is planned with.
const ROOM: f64 = 0.98;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_lengths_that_differ_by_a_thirtysecond() {
        let mut last = 0;
        for length in (0..2000).chain([1 << 20, (1 << 20) + (1 << 15), i64::MAX / 2, i64::MAX]) {
            let at = bucket(length);
            assert!(at >= last && lowest(at) <= length, "{length}");
            assert!(length - lowest(at) <= length / 32, "{length}");
            assert_eq!(bucket(lowest(at)), at, "{length}");
            last = at;
        }
    }

    #[test]
    fn the_shortest_go_first_and_what_is_protected_stays() {
        let mut budget = Budget::new(100);
        for length in 1..=30 {
            budget.count(Some(length), 10, true);
        }
        budget.count(None, 20, true);
        // 320 bytes as read became 640: there is room for 49 as read, of which 20 are protected.
        assert_eq!(budget.narrow(640), Some(()));
        assert_eq!(budget.shortest_ns, 29);
        budget.begin();
        budget.count(None, 200, true);
        assert_eq!((budget.narrow(400), budget.shortest_ns), (Some(()), i64::MAX));
        // Nothing is left that could go.
        assert_eq!(budget.narrow(400), None);
    }
}
