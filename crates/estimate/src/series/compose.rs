//! Composition of several consecutive maps into one.
//!
//! A typical chain is tracer clock R → system clock S → reference clock S_0 (→ a tracer clock
//! again). A composed map is exact at its own knots, which are the knots of the first map and the
//! points that the preceding maps send onto knots of the following ones. Between them it differs
//! from hop-by-hop evaluation by the rounding of a hop, one picosecond. The result of each hop
//! brackets the next, which is how the knots are found.
//!
//! Steps: when the system clock is set, R → S jumps by +J and S → S_0 by −J, while R → S_0 is
//! smooth. A time of S alone does not say whether it is before or after a clock was set back. So
//! breaks of both maps that undo each other are matched by size and place; before such a break only
//! the second map's earlier segments apply, after it the later ones; and across it the composed map
//! runs straight from the last knot before to the first knot after, with nothing to clamp.

use super::map::{Break, Cursor, Mapped, Stretch, TimeMap, flatten};
use super::piece::{Piece, Slope};
use super::place::Place;

/// How the breaks of two maps were joined.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Join {
    /// Breaks of both maps that cancel.
    pub matched: usize,
    /// Breaks of the first map only.
    pub only_first: usize,
    /// Breaks of the second map only.
    pub only_second: usize,
}

/// Several maps applied in order.
#[derive(Clone, Debug, PartialEq)]
pub struct MapChain {
    hops: Vec<TimeMap>,
    whole: TimeMap,
    joins: Vec<Join>,
}

impl MapChain {
    /// Creates a chain of one map.
    pub fn new(first: TimeMap) -> Self {
        Self { whole: first.clone(), hops: vec![first], joins: Vec::new() }
    }

    /// Adds a map for the chain's results. Breaks match if their jumps cancel within
    /// `tolerance_ns`.
    #[must_use]
    pub fn then(mut self, next: TimeMap, tolerance_ns: f64) -> Self {
        let (whole, join) = self.whole.then(&next, tolerance_ns);
        self.whole = whole;
        self.hops.push(next);
        self.joins.push(join);
        self
    }

    /// Returns the maps of the chain.
    pub fn hops(&self) -> &[TimeMap] {
        &self.hops
    }

    /// Returns the composition of all maps.
    pub fn whole(&self) -> &TimeMap {
        &self.whole
    }

    /// Returns how breaks were joined, per junction.
    pub fn joins(&self) -> &[Join] {
        &self.joins
    }

    /// Maps one time.
    pub fn map(&self, time_ps: i128) -> Mapped {
        self.whole.map(time_ps)
    }

    /// Returns a cursor, for many times in nearly ascending order.
    pub fn cursor(&self) -> Cursor<'_> {
        self.whole.cursor()
    }
}

impl TimeMap {
    /// Returns the composition of this map and `next`.
    pub fn then(&self, next: &TimeMap, tolerance_ns: f64) -> (TimeMap, Join) {
        let (own, others) = (self.breaks(), next.breaks());
        let matches = matches(self, &own, &others, tolerance_ns);
        let mut segments: Vec<Stretch> = Vec::new();
        let mut starts = vec![i128::MIN];
        let mut first_allowed = 0;
        for (k, Stretch { pieces, reach }) in self.segments.iter().enumerate() {
            // The last of the second map's segments that may apply: the one before the next matched
            // break.
            let last_allowed = matches[k..].iter().flatten().next().copied().unwrap_or(next.segments.len() - 1);
            let allowed = flatten(&next.segments, &next.starts, first_allowed, last_allowed);
            let composed = Stretch { pieces: compose(pieces, &allowed), reach: *reach };
            match k.checked_sub(1).map(|before| (matches[before], &own[before])) {
                None => segments.push(composed),
                Some((matched, broken)) => {
                    let bridged = matched.and_then(|_| bridge(segments.last()?, &composed, broken));
                    if let (Some(bridged), Some(last)) = (bridged, segments.last_mut()) {
                        *last = bridged;
                    } else {
                        starts.push(self.starts[k]);
                        segments.push(composed);
                    }
                }
            }
            if let Some(matched) = matches.get(k).copied().flatten() {
                first_allowed = matched + 1;
            }
        }
        let matched = matches.iter().flatten().count();
        let join = Join { matched, only_first: own.len() - matched, only_second: others.len() - matched };
        (Self::from_pieces(segments, starts), join)
    }
}

/// For each break of the first map the break of the second that undoes it, ascending.
fn matches(first: &TimeMap, own: &[Break], others: &[Break], tolerance_ns: f64) -> Vec<Option<usize>> {
    let mut free = 0;
    own.iter()
        .enumerate()
        .map(|(k, broken)| {
            let on_second = |t: i128, segment: usize| first.segments[segment].at(t).apply(t);
            let window = [on_second(broken.last_before_ps, k), on_second(broken.first_after_ps, k + 1)];
            let found = (free..others.len()).find(|&m| undoes(broken.jump_ps, window, &others[m], tolerance_ns))?;
            free = found + 1;
            Some(found)
        })
        .collect()
}

fn undoes(jump_ps: i128, window: [i128; 2], other: &Break, tolerance_ns: f64) -> bool {
    let size = jump_ps.unsigned_abs() as f64 * 1e-3;
    let left = jump_ps.saturating_add(other.jump_ps).unsigned_abs() as f64 * 1e-3;
    let slack = jump_ps.saturating_abs();
    let (low, high) = (window[0].min(window[1]).saturating_sub(slack), window[0].max(window[1]).saturating_add(slack));
    let (from, until) =
        (other.last_before_ps.min(other.first_after_ps), other.last_before_ps.max(other.first_after_ps));
    left <= tolerance_ns.max(RELATIVE_TOLERANCE * size).min(LARGEST_SHARE * size) && from <= high && low <= until
}

/// One segment out of two: the pieces of each up to its knots, and a straight piece across the
/// break.
fn bridge(left: &Stretch, right: &Stretch, broken: &Break) -> Option<Stretch> {
    let (from, until) = (broken.last_before_ps, broken.first_after_ps);
    let (a, b) = (left.at(from), right.at(until));
    let (start, end) = (a.correction(from), b.correction(until));
    let slope = Slope::exact(end - start, until.checked_sub(from)?)?;
    if slope.value() >= 1.0 {
        return None;
    }
    let sigma = [a.sigma(from), b.sigma(until)];
    let across = Piece {
        from_ps: from,
        origin_ps: from,
        correction_ps: start,
        slope,
        place: Place::Inside,
        sigma_ns: sigma[0],
        growth: (sigma[1] - sigma[0]) / (until - from) as f64,
    };
    let before = left.pieces.iter().filter(|piece| piece.from_ps < from).copied();
    let after = right.pieces.iter().filter(|piece| piece.from_ps > until).copied();
    let joined = Piece { from_ps: until, ..*b };
    let pieces = before.chain([across, joined]).chain(after).collect();
    Some(Stretch { pieces, reach: [left.reach[0], right.reach[1]] })
}

/// Pieces of the composed map, for pieces that cover all times.
fn compose(first: &[Piece], second: &[Piece]) -> Vec<Piece> {
    let mut cuts = Vec::new();
    for (index, a) in first.iter().enumerate() {
        let until = first.get(index + 1).map_or(i128::MAX, |next| next.from_ps);
        let image = |t: i128| if t == i128::MIN || t == i128::MAX { t } else { a.apply(t) };
        let (low, high) = (image(a.from_ps), image(until));
        let start = second.partition_point(|b| b.from_ps <= low).saturating_sub(1);
        cuts.push(Cut { from: a.from_ps, a, b: &second[start] });
        for b in second[start + 1..].iter().take_while(|b| b.from_ps < high) {
            let from = a.solve(b.from_ps).unwrap_or(a.from_ps);
            if from > cuts[cuts.len() - 1].from && from < until {
                cuts.push(Cut { from, a, b });
            } else if let Some(last) = cuts.last_mut() {
                // Two knots of the second within one picosecond of the first: the later one counts.
                last.b = b;
            }
        }
    }
    let seams = seams(&cuts);
    cuts.iter()
        .enumerate()
        .map(|(index, cut)| cut.piece(seams[index], cuts.get(index + 1).zip(seams.get(index + 1))))
        .collect()
}

/// The corrections at a cut, from the left and from the right; equal if the map is continuous.
#[derive(Copy, Clone)]
struct Seam {
    left: i128,
    right: i128,
}

/// If the maps are continuous, rounding errors of up to two picoseconds are removed from the seams,
/// so that the composed map neither jumps nor goes back there.
fn seams(cuts: &[Cut<'_>]) -> Vec<Seam> {
    let mut seams: Vec<Seam> = Vec::with_capacity(cuts.len());
    let mut before = None;
    for (index, cut) in cuts.iter().enumerate() {
        if cut.from == i128::MIN {
            seams.push(Seam { left: 0, right: 0 });
            continue;
        }
        let mut right = cut.correction(cut.from);
        let left = if index == 0 { right } else { cuts[index - 1].correction(cut.from) };
        let continuous = left.saturating_sub(right).unsigned_abs() <= SEAM_PS;
        if let Some(before) = before.filter(|_| continuous) {
            let back = right.saturating_sub(cut.from.saturating_sub(before));
            right -= if (0..=2 * SEAM_PS as i128).contains(&back) { back } else { 0 };
        }
        before = Some(cut.from.saturating_sub(right));
        seams.push(Seam { left: if continuous { right } else { left }, right });
    }
    seams
}

/// From here on piece `a` of the first map and then piece `b` of the second apply.
struct Cut<'a> {
    from: i128,
    a: &'a Piece,
    b: &'a Piece,
}

impl Cut<'_> {
    fn correction(&self, t: i128) -> i128 {
        t.saturating_sub(self.b.apply(self.a.apply(t)))
    }

    fn sigma(&self, t: i128) -> f64 {
        self.a.sigma(t).hypot(self.b.sigma(self.a.apply(t)))
    }

    /// The straight piece from this cut's seam to the next one's.
    fn piece(&self, seam: Seam, next: Option<(&Cut<'_>, &Seam)>) -> Piece {
        let place = self.a.place.and(self.b.place);
        let growth = self.a.growth.hypot(self.b.growth);
        let (origin_ps, correction_ps, slope, growth) = match next {
            Some((next, end)) if self.from != i128::MIN => {
                // Pieces too long to be exact keep the product of the slopes.
                let slope = end.left.checked_sub(seam.right).and_then(|rise| Slope::exact(rise, next.from - self.from));
                let growth = (self.sigma(next.from) - self.sigma(self.from)) / (next.from - self.from) as f64;
                (self.from, seam.right, slope.unwrap_or_else(|| self.a.slope.then(self.b.slope)), growth)
            }
            Some((next, end)) => (next.from, end.left, self.a.slope.then(self.b.slope), -growth),
            None if self.from != i128::MIN => (self.from, seam.right, self.a.slope.then(self.b.slope), growth),
            None => {
                let origin = self.a.origin_ps;
                (origin, self.correction(origin), self.a.slope.then(self.b.slope), growth)
            }
        };
        let sigma_ns = self.sigma(origin_ps);
        Piece { from_ps: self.from, origin_ps, correction_ps, slope, place, sigma_ns, growth }
    }
}

/// Jumps cancel if the remainder is below this share of them, or below the caller's tolerance,
const RELATIVE_TOLERANCE: f64 = 0.2;
/// but never when more than this share is left.
const LARGEST_SHARE: f64 = 0.5;
/// Two roundings.
const SEAM_PS: u128 = 2;

/// Chains of maps against mapping hop by hop, and steps that both hops saw.
#[cfg(test)]
mod tests {
    use super::super::map::Knot;
    use super::super::map::tests::{EPOCH_PS, map, tame_knots};
    use super::*;
    use proptest::prelude::*;

    const SECOND: i128 = 1_000_000_000_000;

    proptest! {
        #[test]
        fn one_map_equals_hop_after_hop(
            first in tame_knots(),
            second in tame_knots(),
            times in prop::collection::vec(-20_000_000_000_000..120_000_000_000_000i64, 1..60),
        ) {
            let (first, second) = (map(&[&first]), map(&[&second]));
            let chain = MapChain::new(first.clone()).then(second.clone(), 0.0);
            for t in times.into_iter().map(|t| EPOCH_PS + i128::from(t)) {
                let hop = first.map(t);
                let hop2 = second.map(hop.time_ps);
                let found = chain.map(t);
                prop_assert!(!found.clamped);
                prop_assert!((found.time_ps - hop2.time_ps).abs() <= 6, "{} {:?} {:?}", t, found, hop2);
                let at_edge = found.place != hop.place.and(hop2.place);
                prop_assert!(!at_edge || chain.map(t + 4).place != chain.map(t - 4).place);
            }
        }
    }

    #[test]
    fn identity_is_neutral() {
        let some = map(&[&[(0, 7), (SECOND, -9)]]);
        let before = MapChain::new(TimeMap::identity()).then(some.clone(), 0.0);
        let after = MapChain::new(some.clone()).then(TimeMap::identity(), 0.0);
        for t in (-5..25).map(|k| EPOCH_PS + k * SECOND / 13) {
            assert_eq!(before.map(t).time_ps, some.map(t).time_ps);
            assert_eq!(after.map(t).time_ps, some.map(t).time_ps);
            assert_eq!(after.map(t).place, some.map(t).place);
        }
        let nothing = MapChain::new(TimeMap::identity()).then(TimeMap::identity(), 0.0);
        assert_eq!(nothing.map(EPOCH_PS).time_ps, EPOCH_PS);
        assert_eq!((nothing.hops().len(), nothing.joins()), (2, &[Join::default()][..]));
    }

    /// R runs evenly; S = R, but is set by `step` at R = 5 s; S_0 = R. Knots every second, those of
    /// the second map at its own.
    fn stepped(step: i128) -> MapChain {
        let knots = |range: std::ops::Range<i128>, shift: i128, correction: i128| -> Vec<(i128, i128)> {
            range.map(|k| (k * SECOND + shift, correction)).collect()
        };
        let to_system = map(&[&knots(0..5, 0, 0), &knots(6..10, 0, -step)]);
        let half = SECOND / 2;
        let to_reference = map(&[&knots(-3..4, half, 0), &knots(7..12, half + step, step)]);
        MapChain::new(to_system).then(to_reference, 100.0)
    }

    #[test]
    fn a_step_seen_by_both_maps_leaves_no_trace() {
        for step in [SECOND / 100, -SECOND / 100, 40 * SECOND, -40 * SECOND] {
            let chain = stepped(step);
            assert_eq!(chain.joins(), [Join { matched: 1, ..Join::default() }]);
            assert_eq!(chain.whole().breaks(), []);
            for t in (-30..150).map(|k| EPOCH_PS + k * SECOND / 10) {
                let found = chain.map(t);
                assert_eq!((found.time_ps, found.clamped), (t, false), "step {step} at {}", t - EPOCH_PS);
                assert!(found.sigma_ns < 1e6);
            }
        }
    }

    #[test]
    fn breaks_that_differ_stay() {
        let seconds = |step: i128| map(&[&[(0, 0), (2 * SECOND, 0)], &[(4 * SECOND, step), (9 * SECOND, step)]]);
        let milli = SECOND / 1000;
        for (first, second, expected) in [
            (milli, 2 * milli, Join { matched: 0, only_first: 1, only_second: 1 }),
            (milli, -3 * milli, Join { matched: 0, only_first: 1, only_second: 1 }),
            (milli, -milli - milli / 10, Join { matched: 1, only_first: 0, only_second: 0 }),
        ] {
            assert_eq!(seconds(first).then(&seconds(second), 100.0).1, expected, "{first} {second}");
        }
        // Far apart in time: not the same step.
        let late = map(&[
            &[(0, 0), (SECOND, 0), (20 * SECOND, 0)],
            &[(21 * SECOND, -milli), (22 * SECOND, -milli), (29 * SECOND, -milli)],
        ]);
        assert_eq!(seconds(milli).then(&late, 100.0).1.matched, 0);
    }

    #[test]
    fn uncertainties_add_in_quadrature() {
        let with = |sigma_ns| {
            let knot = |at_ps| Knot { at_ps, correction_ps: 0, sigma_ns };
            TimeMap::new(&[crate::series::Segment { knots: vec![knot(0), knot(SECOND)], ..Default::default() }])
                .expect("usable knots")
        };
        let both = with(30.0).then(&with(40.0), 0.0).0;
        assert!((both.map(SECOND / 3).sigma_ns - 50.0).abs() < 1e-9);
        assert_eq!(both.map(2 * SECOND).place, Place::After);
        assert!(both.map(2 * SECOND).sigma_ns > 150.0);
    }
}
