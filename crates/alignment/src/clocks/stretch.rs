//! The span that a line of offsets covers, and the span that all lines of a node cover together.
//!
//! [`Ends`] collects the spans without storing the lines; the result tells which events lie within
//! the measurement. A window's limits are on the reference clock but an event is on its node's own
//! clock, so both are kept: own = reference + offset.
//!
//! Lines that lie more than a day away from all others, at most three at either end, are not
//! believed: one wrong digit would stretch the measured time to another century.

use probe_sync_estimate::series::OffsetSample;
use probe_sync_formats::model::{PS_PER_NS, Picoseconds};

/// First and last instant of something, ns.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// First instant.
    pub first_ns: i128,
    /// Last instant.
    pub last_ns: i128,
}

impl Span {
    /// Returns how far an instant lies outside the span; 0 inside.
    pub fn beyond_ns(&self, at_ns: i128) -> i128 {
        (self.first_ns - at_ns).max(at_ns - self.last_ns).max(0)
    }

    /// Whether the nanosecond that contains an instant, given in ps, is inside. It is called once
    /// per time of a trace outside the offsets' knots, and dividing 128 bits is expensive.
    pub(crate) fn covers_ps(&self, at_ps: Picoseconds) -> bool {
        at_ps >= self.first_ns.saturating_mul(PS_PER_NS)
            && at_ps < self.last_ns.saturating_add(1).saturating_mul(PS_PER_NS)
    }

    /// The span that contains both.
    pub(super) fn with(self, other: Self) -> Self {
        Self { first_ns: self.first_ns.min(other.first_ns), last_ns: self.last_ns.max(other.last_ns) }
    }
}

/// The times that one line covers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// On the node's own clock.
    pub(super) own: Span,
    /// On the reference clock.
    pub(super) reference: Span,
    /// The offset's own instant on the node's own clock, ns.
    pub(super) own_ns: i128,
}

impl Stretch {
    /// A window on the reference clock; its limits are moved to the node's own with the offset and
    /// the rate of its middle.
    pub(super) fn on_reference_clock(sample: &OffsetSample, (start_ns, end_ns): (i64, i64)) -> Self {
        let at_ns = i128::from(sample.at_ns);
        // A clock that is set back ends its window before it started it.
        let [start, end] = [start_ns.min(end_ns), start_ns.max(end_ns)].map(i128::from);
        let rate = sample.drift_ppm.filter(|ppm| ppm.abs() <= STEEPEST_PPM).unwrap_or(0.0) * 1e-6;
        let own = |reference_ns: i128| {
            let offset_ns = sample.offset_ns + rate * (reference_ns - at_ns) as f64;
            // What no clock can be off by says nothing of its window, and must not overflow.
            reference_ns.saturating_add(offset_ns.round() as i128).clamp(-FARTHEST_NS, FARTHEST_NS)
        };
        Self {
            own: Span { first_ns: own(start), last_ns: own(end) },
            reference: Span { first_ns: start, last_ns: end },
            own_ns: own(at_ns),
        }
    }

    /// A row of a table: an instant on the node's own clock.
    pub(super) fn on_own_clock(sample: &OffsetSample) -> Self {
        let own = i128::from(sample.at_ns);
        let reference = own.saturating_sub(sample.offset_ns.round() as i128).clamp(-FARTHEST_NS, FARTHEST_NS);
        let at = |at_ns| Span { first_ns: at_ns, last_ns: at_ns };
        Self { own: at(own), reference: at(reference), own_ns: own }
    }
}

/// The outermost spans of many.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    /// The earliest spans by first instant, ascending.
    earliest: Vec<Span>,
    /// The latest spans by last instant, descending.
    latest: Vec<Span>,
}

impl Ends {
    /// Takes one more.
    pub(super) fn add(&mut self, span: Span) {
        keep(&mut self.earliest, span, |span| span.first_ns);
        keep(&mut self.latest, span, |span| -span.last_ns);
    }

    /// From the first to the last, without outliers far from all others; `None` if empty.
    pub(super) fn span(&self) -> Option<Span> {
        let gaps = |ends: &[Span], far: fn(&Span, &Span) -> i128| -> Vec<i128> {
            ends.windows(2).map(|pair| far(&pair[0], &pair[1])).collect()
        };
        let early = lone(&gaps(&self.earliest, |one, next| next.first_ns - one.last_ns));
        let late = lone(&gaps(&self.latest, |one, next| one.first_ns - next.last_ns));
        Some(Span { first_ns: self.earliest.get(early)?.first_ns, last_ns: self.latest.get(late)?.last_ns })
    }
}

fn keep(ends: &mut Vec<Span>, span: Span, order: impl Fn(&Span) -> i128) {
    let place = ends.partition_point(|other| order(other) <= order(&span));
    if place < ENDS {
        ends.insert(place, span);
        ends.truncate(ENDS);
    }
}

/// Number of outermost values that are isolated, given the gaps from the outermost inwards: those
/// beyond the innermost gap that is longer than a day and a hundred times the typical one.
fn lone(gaps: &[i128]) -> usize {
    let mut sorted = gaps.to_vec();
    sorted.sort_unstable();
    if sorted.len() < FEWEST_GAPS {
        return 0;
    }
    let usual = sorted[(sorted.len() - 1) / 2];
    let far = |gap: &i128| *gap > DAY_NS && *gap > USUAL_GAPS * usual;
    // With few lines those that are left must be more than those that go.
    let most = MOST_LONE.min(gaps.len() / 2);
    gaps[..most].iter().rposition(far).map_or(0, |place| place + 1)
}

/// Ends kept: enough to determine typical gaps besides the isolated values.
const ENDS: usize = 8;
const MOST_LONE: usize = 3;
/// With fewer gaps the typical one is unknown.
const FEWEST_GAPS: usize = 3;
const DAY_NS: i128 = 86_400_000_000_000;
const USUAL_GAPS: i128 = 100;
/// Clocks that run off faster than 10 % are not clocks.
const STEEPEST_PPM: f64 = 1e5;

/// Beyond 600 years of nanoseconds there are no times.
const FARTHEST_NS: i128 = 1 << 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ns: i64, offset_ns: f64, drift_ppm: Option<f64>) -> OffsetSample {
        OffsetSample { drift_ppm, ..OffsetSample::bare(at_ns, offset_ns) }
    }

    fn span(first_ns: i128, last_ns: i128) -> Span {
        Span { first_ns, last_ns }
    }

    #[test]
    fn offsets_that_no_clock_has_do_not_overflow() {
        for offset_ns in [1e300, -1e300, f64::INFINITY, f64::NEG_INFINITY] {
            for at_ns in [i64::MIN, 0, i64::MAX] {
                let sample = OffsetSample::bare(at_ns, offset_ns);
                for stretch in
                    [Stretch::on_own_clock(&sample), Stretch::on_reference_clock(&sample, (i64::MIN, i64::MAX))]
                {
                    let mut ends = Ends::default();
                    ends.add(stretch.own);
                    ends.add(stretch.reference);
                    assert!(ends.span().is_some_and(|span| span.beyond_ns(stretch.own_ns) >= 0), "{offset_ns} {at_ns}");
                }
            }
        }
    }

    #[test]
    fn a_window_is_moved_to_the_nodes_own_clock() {
        // Two nodes by hand: node 1 is 1000 ns ahead, and gains 1 ppm. A window of 2 ms about 5 ms
        // of the reference.
        let (window, ahead) = ((4_000_000, 6_000_000), sample(5_000_000, 1000.0, Some(1.0)));
        let found = Stretch::on_reference_clock(&ahead, window);
        assert_eq!((found.own, found.own_ns), (span(4_000_999, 6_001_001), 5_001_000));
        assert_eq!(found.reference, span(4_000_000, 6_000_000));
        let set_back = Stretch::on_reference_clock(&sample(5, 0.0, Some(1e9)), (6, 4));
        assert_eq!(set_back.own, span(4, 6), "no such rate, and no end before its start");
        let row = Stretch::on_own_clock(&sample(5_000, 1000.0, None));
        assert_eq!((row.own, row.reference, row.own_ns), (span(5_000, 5_000), span(4_000, 4_000), 5_000));
    }

    #[test]
    fn beyond_is_how_far_outside() {
        let measured = span(10, 20);
        assert_eq!([7, 10, 15, 20, 24].map(|at| measured.beyond_ns(at)), [3, 0, 0, 0, 4]);
        assert_eq!(span(1, 5).with(span(3, 9)), span(1, 9));
        assert_eq!(span(3, 9).with(span(1, 5)), span(1, 9));
    }

    #[test]
    fn picoseconds_lie_where_their_nanosecond_lies() {
        for measured in [span(10, 20), span(-3, -1), span(5, 5), span(i128::MIN, i128::MAX)] {
            for at_ps in (-4_001_i128..21_002).filter(|at| matches!(at.rem_euclid(1000), 0 | 1 | 999)) {
                let inside = measured.first_ns <= at_ps.div_euclid(1000) && at_ps.div_euclid(1000) <= measured.last_ns;
                assert_eq!(measured.covers_ps(at_ps), inside, "{at_ps} in {measured:?}");
            }
        }
    }

    fn check(spans: &[(i128, i128)], expected: Option<(i128, i128)>) {
        let mut orders = [spans.to_vec(), spans.to_vec()];
        orders[1].reverse();
        for order in orders {
            let mut ends = Ends::default();
            order.iter().for_each(|(first, last)| ends.add(span(*first, *last)));
            assert_eq!(ends.span(), expected.map(|(first, last)| span(first, last)), "{order:?}");
        }
    }

    #[test]
    fn lines_far_from_all_others_are_not_believed() {
        let rounds: Vec<(i128, i128)> = (0..40).map(|k| (k * 4, k * 4 + 4)).collect();
        let with = |more: &[(i128, i128)]| [&rounds[..], more].concat();
        let far = |days: i128| (days * DAY_NS, days * DAY_NS + 4);
        check(&[], None);
        check(&[(5, 9)], Some((5, 9)));
        check(&rounds, Some((0, 160)));
        check(&with(&[far(30_000)]), Some((0, 160)));
        check(&with(&[far(-9), far(30_000), far(30_001), far(40_000)]), Some((0, 160)));
        // Four are too many to be wrong digits, and a day exactly is not far.
        check(&with(&[far(9), far(10), far(11), far(12)]), Some((0, far(12).1)));
        check(&with(&[(160 + DAY_NS, 170 + DAY_NS)]), Some((0, 170 + DAY_NS)));
        check(&with(&[(161 + DAY_NS, 170 + DAY_NS)]), Some((0, 160)));
        // A table with a row every two days, and one with two rows only, have no lone ones.
        let rare: Vec<(i128, i128)> = (0..20).map(|k| far(2 * k)).collect();
        check(&rare, Some((0, far(38).1)));
        check(&[far(0), far(9)], Some((0, far(9).1)));
        check(&[far(0), far(1), far(300)], Some((0, far(300).1)));
        // Three rounds and a line far away: four lines tell what is usual, and no more than one
        // goes.
        check(&[(0, 4), (4, 8), (8, 12), far(300)], Some((0, 12)));
        check(&[far(-300), (0, 4), (4, 8), (8, 12)], Some((0, 12)));
        check(&[(0, 4), (4, 8), far(300), far(301)], Some((0, far(301).1)));
    }
}
