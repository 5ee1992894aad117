//! The single offset that represents a time map over a span, and its remaining error.
//!
//! A map adds `map(t) − t` to a time. Of all constants, the middle between the smallest and the
//! largest value over the span has the smallest worst-case error, half of their difference. Both
//! extremes are at a corner of the map or an end of the span, because the map is straight between
//! corners.

use probe_sync_estimate::series::TimeMap;
use probe_sync_formats::model::{PS_PER_NS, Picoseconds, nearest_ns};

/// An offset, and how far it is from the map.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Constant {
    /// Added to a time.
    pub(super) offset_ns: i64,
    /// Largest difference from what the map adds.
    pub(super) left_ns: u64,
}

/// The constant with the smallest error from `first` to `last`; `None` beyond 64 bits of
/// nanoseconds.
pub(super) fn constant(map: &TimeMap, first: Picoseconds, last: Picoseconds) -> Option<Constant> {
    let added = |time: Picoseconds| map.map(time).time_ps - time;
    let (mut least, mut most) = (added(first), added(first));
    for time in map.corners(first, last) {
        let added = added(time);
        (least, most) = (least.min(added), most.max(added));
    }
    let offset_ns = nearest_ns(least + (most - least) / 2)?;
    let offset = Picoseconds::from(offset_ns) * PS_PER_NS;
    let left_ps = (most - offset).max(offset - least);
    let left_ns = u64::try_from((left_ps + PS_PER_NS - 1) / PS_PER_NS).ok()?;
    Some(Constant { offset_ns, left_ns })
}

#[cfg(test)]
mod tests {
    use probe_sync_estimate::series::{Knot, Segment};

    use super::*;

    /// A map through these knots: at ms, the amount subtracted from the time, ns.
    fn map(segments: &[&[(i128, i128)]]) -> TimeMap {
        let knot =
            |&(ms, ns): &(i128, i128)| Knot { at_ps: ms * 1_000_000_000, correction_ps: ns * 1000, sigma_ns: 1.0 };
        let segments =
            segments.iter().map(|knots| Segment { knots: knots.iter().map(knot).collect(), ..Segment::default() });
        TimeMap::new(&segments.collect::<Vec<_>>()).expect("usable knots")
    }

    #[test]
    fn the_middle_of_what_a_map_adds_is_off_by_half_of_its_range() {
        let check = |segments: &[&[(i128, i128)]], span_ms: (i128, i128), expected: (i64, u64)| {
            let found = constant(&map(segments), span_ms.0 * 1_000_000_000, span_ms.1 * 1_000_000_000);
            let (offset_ns, left_ns) = expected;
            assert_eq!(found, Some(Constant { offset_ns, left_ns }), "{segments:?} {span_ms:?}");
        };
        let line: &[(i128, i128)] = &[(0, 1_000), (1_000, 21_000)];
        check(&[line], (0, 1_000), (-11_000, 10_000));
        check(&[line], (500, 500), (-11_000, 0));
        check(&[line], (250, 500), (-8_500, 2_500));
        // The extreme is in the middle.
        check(&[&[(0, 0), (400, 8_001), (1_000, 0)]], (0, 1_000), (-4_000, 4_001));
        // A clock set on by 1 ms: before, nothing was to be taken away.
        check(&[&[(0, 0), (400, 0)], &[(401, 1_000_000), (1_000, 1_000_000)]], (0, 300), (0, 0));
        check(&[&[(0, 0), (400, 0)], &[(401, -1_000_000), (1_000, -1_000_000)]], (0, 1_000), (500_000, 500_000));
    }
}
