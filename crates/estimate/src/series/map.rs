//! [`TimeMap`]: built from segments of knots, evaluated at single times or along a trace.
//!
//! The arithmetic is in `piece`. Outside a segment's knots the map follows the segment's
//! [`Continuation`]; between two segments it does so up to the boundary, which is half-way between
//! their knots unless stated. The clock step itself was not observed, so the uncertainty there
//! includes the size of the jump.
//!
//! Order: with `raw` the piecewise map, the map is `max over u ≤ t of raw(u)`. Pieces are straight,
//! so that is `max(raw(t), floor)`, one floor per piece. A stateful guard in order of the file
//! would depend on that order.

use super::doubts::{Doubt, with_doubts};
use super::growth::Growth;
use super::piece::{Fast, Piece, Slope};
use super::place::Place;
use crate::Error;

/// A point at which the correction is known.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Knot {
    /// Time to be corrected, ps.
    pub at_ps: i128,
    /// Correction to subtract, ps.
    pub correction_ps: i128,
    /// Standard deviation of the correction, ns.
    pub sigma_ns: f64,
}

/// Continuation of a segment outside its knots.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Continuation {
    /// Slope of the correction, ppm.
    pub slope_ppm: f64,
    /// Growth of the uncertainty.
    pub growth: Growth,
}

/// Knots without a step between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// The knots, times strictly ascending, at least one.
    pub knots: Vec<Knot>,
    /// Continuation before the first knot; by default with the slope of the nearest piece.
    pub before: Option<Continuation>,
    /// Continuation after the last knot; by default with the slope of the nearest piece.
    pub after: Option<Continuation>,
    /// Start of this segment's range, ps; by default half-way from the previous one. Ignored in the
    /// first.
    pub start_ps: Option<i128>,
    /// First and last reading between which the clock is known to have run without a step,
    /// including the knots, ps; by default the first and the last knot. Beyond them, towards
    /// another segment, the size of the step is uncertain too.
    pub reach_ps: [Option<i128>; 2],
}

/// Result of mapping a time.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Mapped {
    /// The corrected time, ps.
    pub time_ps: i128,
    /// Place of the time relative to the knots.
    pub place: Place,
    /// True if the corrected time was adjusted so as not to precede an earlier one's.
    pub clamped: bool,
    /// Standard deviation, ns; it includes the amount of the adjustment.
    pub sigma_ns: f64,
}

/// A break between two segments.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Break {
    /// Last reading known to be before the break, ps: the last knot, unless better known.
    pub last_before_ps: i128,
    /// First reading known to be after the break, ps; smaller than `last_before_ps` if the clock
    /// was set back.
    pub first_after_ps: i128,
    /// Start of the later segment's range, ps.
    pub at_ps: i128,
    /// Jump of the correction at the break, ps.
    pub jump_ps: i128,
}

/// A map from one clock's times to another's.
///
/// ```
/// use probe_sync_estimate::series::{Knot, Place, Segment, TimeMap};
///
/// // A clock that is 1 µs ahead at its time 0 and 3 µs ahead two seconds later, each known to ±50 ns.
/// let knot = |at_s: i128, ahead_us: i128| Knot {
///     at_ps: at_s * 1_000_000_000_000,
///     correction_ps: ahead_us * 1_000_000,
///     sigma_ns: 50.0,
/// };
/// let map = TimeMap::new(&[Segment { knots: vec![knot(0, 1), knot(2, 3)], ..Segment::default() }])?;
///
/// // What it shows minus by how much it is ahead: after one second 2 µs.
/// let mapped = map.map(1_000_000_000_000);
/// assert_eq!(mapped.time_ps, 1_000_000_000_000 - 2_000_000);
/// assert_eq!((mapped.place, mapped.sigma_ns), (Place::Inside, 50.0));
///
/// // Beyond the last knot the map goes on, and is less sure.
/// let later = map.map(12_000_000_000_000);
/// assert_eq!(later.time_ps, 12_000_000_000_000 - 13_000_000);
/// assert!(later.place == Place::After && later.sigma_ns > 500.0);
/// # Ok::<(), probe_sync_estimate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TimeMap {
    /// The segments, each as if there were no other.
    pub(super) segments: Vec<Stretch>,
    /// Start of each segment; the first entry is unused.
    pub(super) starts: Vec<i128>,
    /// All segments cut at the boundaries, ready for use.
    ready: Vec<Ready>,
}

/// A segment as straight pieces that cover all times.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stretch {
    pub(super) pieces: Vec<Piece>,
    /// The first and the last reading at which the clock is known to have run without a step.
    pub(super) reach: [i128; 2],
}

impl Stretch {
    pub(super) fn at(&self, t: i128) -> &Piece {
        at(&self.pieces, t)
    }

    fn correction(&self, t: i128) -> i128 {
        self.at(t).correction(t)
    }
}

/// A piece with precomputed values for evaluation.
#[derive(Clone, Debug, PartialEq)]
struct Ready {
    piece: Piece,
    /// The next piece begins here.
    until_ps: i128,
    /// No earlier time was mapped beyond this.
    floor_ps: i128,
    fast: Option<Fast>,
    /// Correction and uncertainty are the same at all its times.
    is_constant: bool,
}

impl Ready {
    /// A time that is held back is wrong by the amount it is held back, and its uncertainty
    /// includes that.
    #[inline]
    fn mapped(&self, raw_ps: i128, sigma_ns: f64) -> Mapped {
        let clamped = raw_ps < self.floor_ps;
        let held_back_ns = if clamped { self.held_back_ns(raw_ps) } else { 0.0 };
        Mapped {
            time_ps: raw_ps.max(self.floor_ps),
            place: self.piece.place,
            clamped,
            sigma_ns: sigma_ns + held_back_ns,
        }
    }

    /// How far a time is held back. Inlined, the compiler converts 128 bits to a float for each
    /// mapped time, and then selects 0.
    #[cold]
    #[inline(never)]
    fn held_back_ns(&self, raw_ps: i128) -> f64 {
        self.floor_ps.abs_diff(raw_ps) as f64 * 1e-3
    }
}

impl TimeMap {
    /// Returns the map that changes nothing.
    pub fn identity() -> Self {
        let everywhere = Stretch { pieces: vec![Piece::IDENTITY], reach: [0, 0] };
        Self::from_pieces(vec![everywhere], vec![i128::MIN])
    }

    /// Creates a map through the knots of the segments.
    ///
    /// # Errors
    /// [`Error::UnusableKnots`] if there are no knots, if knots are out of order or beyond 38,000
    /// years, or if a sigma is not a number.
    pub fn new(segments: &[Segment]) -> Result<Self, Error> {
        if segments.is_empty() {
            return Err(unusable("there are none"));
        }
        let last = segments.len() - 1;
        let stretches: Vec<Stretch> = segments
            .iter()
            .enumerate()
            .map(|(k, segment)| {
                let outer = [
                    if k == 0 { Place::Before } else { Place::Inside },
                    if k == last { Place::After } else { Place::Inside },
                ];
                stretch(segment, outer)
            })
            .collect::<Result<_, _>>()?;
        let mut starts = vec![i128::MIN];
        for (k, segment) in segments.iter().enumerate().skip(1) {
            let start = segment.start_ps.unwrap_or_else(|| boundary(&stretches[k - 1], &stretches[k]));
            // Clocks set back twice within the same stretch of their own time leave no order that a
            // time alone shows.
            let earliest = starts[starts.len() - 1].saturating_add(1);
            starts.push(start.clamp(-(FARTHEST_PS as i128), FARTHEST_PS as i128).max(earliest));
        }
        Ok(Self::from_pieces(stretches, starts))
    }

    pub(super) fn from_pieces(segments: Vec<Stretch>, starts: Vec<i128>) -> Self {
        let ready = ready(&flatten(&segments, &starts, 0, segments.len() - 1));
        Self { segments, starts, ready }
    }

    /// Maps one time.
    pub fn map(&self, time_ps: i128) -> Mapped {
        let ready = &self.ready[self.index(time_ps)];
        ready.mapped(ready.piece.apply(time_ps), ready.piece.sigma(time_ps))
    }

    /// Returns a cursor, for many times in nearly ascending order.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { map: self, current: &self.ready[0], index: 0 }
    }

    /// Returns the inverse map. Where this map goes back in time, the inverse has a break.
    ///
    /// # Errors
    /// [`Error::UnusableKnots`] if the corrected time does not increase along some piece.
    pub fn inverse(&self) -> Result<Self, Error> {
        let invert = |stretch: &Stretch| {
            let pieces = stretch.pieces.iter().map(Piece::inverse).collect::<Option<Vec<Piece>>>()?;
            Some(Stretch { pieces, reach: stretch.reach.map(|t| stretch.at(t).apply(t)) })
        };
        let segments: Option<Vec<Stretch>> = self.segments.iter().map(invert).collect();
        let segments = segments.ok_or_else(|| unusable("the corrected time does not increase between them"))?;
        let mut starts = vec![i128::MIN];
        for (k, &start) in self.starts.iter().enumerate().skip(1) {
            let ends = [k - 1, k].map(|k| self.segments[k].at(start).apply(start));
            let middle = ends[0] + (ends[1] - ends[0]).div_euclid(2);
            starts.push(middle.max(starts[k - 1].saturating_add(1)));
        }
        Ok(Self::from_pieces(segments, starts))
    }

    /// Returns the breaks between segments.
    pub fn breaks(&self) -> Vec<Break> {
        (1..self.segments.len())
            .map(|k| {
                let (left, right) = (&self.segments[k - 1], &self.segments[k]);
                let start = self.starts[k];
                Break {
                    last_before_ps: left.reach[1],
                    first_after_ps: right.reach[0],
                    at_ps: start,
                    jump_ps: right.correction(start).saturating_sub(left.correction(start)),
                }
            })
            .collect()
    }

    /// Returns the times between `first_ps` and `last_ps`, both included, at which the map bends or
    /// jumps. Between two of them it is straight, so that its effect is largest and smallest at one
    /// of them. The last picosecond before a jump is also included.
    pub fn corners(&self, first_ps: i128, last_ps: i128) -> impl Iterator<Item = i128> + '_ {
        let starts = self.ready.iter().map(|ready| ready.piece.from_ps);
        let around = starts.flat_map(|start| [start.saturating_sub(1), start]);
        let inside = around.filter(move |at| (first_ps..=last_ps).contains(at));
        [first_ps, last_ps].into_iter().chain(inside)
    }

    /// Returns the number of straight pieces, for estimating memory.
    pub fn pieces(&self) -> usize {
        self.ready.len()
    }

    fn index(&self, time_ps: i128) -> usize {
        // The first piece begins at the beginning of time.
        self.ready.partition_point(|ready| ready.piece.from_ps <= time_ps).saturating_sub(1)
    }
}

/// Maps a sequence of times; fast if they are nearly sorted.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    map: &'a TimeMap,
    current: &'a Ready,
    index: usize,
}

impl Cursor<'_> {
    /// Maps a time to the same bits as [`TimeMap::map`].
    #[inline]
    pub fn map(&mut self, time_ps: i128) -> Mapped {
        if time_ps < self.current.piece.from_ps || time_ps >= self.current.until_ps {
            self.seek(time_ps);
        }
        let ready = self.current;
        if ready.is_constant {
            return ready.mapped(time_ps.saturating_sub(ready.piece.correction_ps), ready.piece.sigma_ns.abs());
        }
        let d = time_ps.wrapping_sub(ready.piece.origin_ps);
        let Some(slope) = ready.fast.and_then(|fast| fast.times(d)) else {
            return self.map.map(time_ps);
        };
        let raw = time_ps - (ready.piece.correction_ps + i128::from(slope));
        ready.mapped(raw, ready.piece.sigma_after(d as i64 as f64))
    }

    #[cold]
    fn seek(&mut self, time_ps: i128) {
        let next = self.index + 1;
        let is_next = self.map.ready.get(next).is_some_and(|r| r.piece.from_ps <= time_ps && time_ps < r.until_ps);
        self.index = if is_next { next } else { self.map.index(time_ps) };
        self.current = &self.map.ready[self.index];
    }
}

/// The pieces of one segment: outside before, between the knots, outside after.
fn stretch(segment: &Segment, outer: [Place; 2]) -> Result<Stretch, Error> {
    check(&segment.knots)?;
    let (Some(first), Some(last)) = (segment.knots.first(), segment.knots.last()) else {
        return Err(unusable("a segment has none"));
    };
    let mut inner: Vec<Piece> = Vec::with_capacity(segment.knots.len() + 2);
    for pair in segment.knots.windows(2) {
        let run = pair[1].at_ps - pair[0].at_ps;
        let slope = Slope::exact(pair[1].correction_ps - pair[0].correction_ps, run)
            .ok_or_else(|| unusable("two of them are too far apart"))?;
        let growth = (pair[1].sigma_ns - pair[0].sigma_ns) / run as f64;
        inner.push(Piece { slope, growth, ..anchored(&pair[0], Place::Inside) });
    }
    if inner.is_empty() {
        inner.push(anchored(first, Place::Inside));
    }
    let slopes = [inner[0].slope, inner[inner.len() - 1].slope];
    let outside = |knot: &Knot, given: Option<Continuation>, near: usize| {
        let growth = given.map_or_else(|| default_growth(&segment.knots, near), |continuation| continuation.growth);
        let slope = given.map_or(slopes[near], |continuation| Slope::from_ppm(continuation.slope_ppm));
        let piece = Piece { slope: slope.limited(STEEPEST_OUTSIDE), ..anchored(knot, outer[near]) };
        (piece, growth.chords(knot.sigma_ns))
    };
    let (before, chords) = outside(first, segment.before, 0);
    let mut pieces = Vec::with_capacity(inner.len() + 2 * chords.len());
    for (index, chord) in chords.iter().enumerate().rev() {
        let from_ps = chords.get(index + 1).map_or(i128::MIN, |next| first.at_ps.saturating_sub(next.from_ps));
        pieces.push(Piece { from_ps, sigma_ns: chord.sigma_ns, growth: -chord.growth, ..before });
    }
    pieces.append(&mut inner);
    let (after, chords) = outside(last, segment.after, 1);
    // The last knot itself is inside.
    pieces.extend(chords.iter().map(|chord| Piece {
        from_ps: last.at_ps.saturating_add(chord.from_ps.max(1)),
        sigma_ns: chord.sigma_ns,
        growth: chord.growth,
        ..after
    }));
    let [begin, end] = segment.reach_ps;
    let reach = [begin.map_or(first.at_ps, |ps| ps.min(first.at_ps)), end.map_or(last.at_ps, |ps| ps.max(last.at_ps))];
    Ok(Stretch { pieces, reach })
}

/// Half-way between two segments. A clock set forward by J skipped J of its own time, so it was set
/// before `first − J`: a later boundary would hold back times that are known.
fn boundary(left: &Stretch, right: &Stretch) -> i128 {
    let (last, first) = (left.reach[1], right.reach[0]);
    let forward = right.correction(first).saturating_sub(left.correction(last)).max(0);
    let until = first.saturating_sub(forward).max(last.min(first));
    last + (until - last).div_euclid(2) + 1
}

fn anchored(knot: &Knot, place: Place) -> Piece {
    Piece {
        from_ps: knot.at_ps,
        origin_ps: knot.at_ps,
        correction_ps: knot.correction_ps,
        slope: Slope::FLAT,
        place,
        sigma_ns: knot.sigma_ns,
        growth: 0.0,
    }
}

fn check(knots: &[Knot]) -> Result<(), Error> {
    let far = |ps: i128| ps.unsigned_abs() > FARTHEST_PS;
    if knots.iter().any(|knot| far(knot.at_ps) || far(knot.correction_ps)) {
        return Err(unusable("one is beyond 38,000 years"));
    }
    if knots.iter().any(|knot| !knot.sigma_ns.is_finite() || knot.sigma_ns < 0.0) {
        return Err(unusable("the uncertainty of one is not a number"));
    }
    if knots.windows(2).any(|pair| pair[0].at_ps >= pair[1].at_ps) {
        return Err(unusable("they are out of order"));
    }
    Ok(())
}

/// The nearest piece's slope is as uncertain as its ends, and the clock wanders on top.
fn default_growth(knots: &[Knot], near: usize) -> Growth {
    let pair = if near == 0 { knots.get(..2) } else { knots.get(knots.len().wrapping_sub(2)..) };
    let slope = pair.and_then(|pair| {
        let [a, b] = pair else { return None };
        Some(a.sigma_ns.hypot(b.sigma_ns) / ((b.at_ps - a.at_ps) as f64 * NS_PER_PS_AND_PPM))
    });
    Growth::Linear { ppm: slope.unwrap_or(0.0).hypot(WANDER_ALLOWANCE_PPM) }
}

/// The pieces of segments `first..=last`, cut at their boundaries. Around an inner boundary, as far
/// as a reading may be of either side, the uncertainty includes the jump.
pub(super) fn flatten(segments: &[Stretch], starts: &[i128], first: usize, last: usize) -> Vec<Piece> {
    let mut flat: Vec<Piece> = Vec::new();
    for k in first..=last {
        let from = if k == first { i128::MIN } else { starts[k] };
        let until = if k == last { i128::MAX } else { starts[k + 1] };
        let pieces = &segments[k].pieces;
        for (index, piece) in pieces.iter().enumerate() {
            let end = pieces.get(index + 1).map_or(i128::MAX, |next| next.from_ps);
            if end > from && piece.from_ps < until {
                flat.push(Piece { from_ps: piece.from_ps.max(from), ..*piece });
            }
        }
    }
    let doubt = |k: usize| {
        let (left, right, start) = (&segments[k - 1], &segments[k], starts[k]);
        Doubt::between(left.reach[1], right.reach[0], right.correction(start).saturating_sub(left.correction(start)))
    };
    with_doubts(&flat, &(first + 1..=last).map(doubt).collect::<Vec<_>>())
}

/// The piece of a segment that applies at t.
fn at(pieces: &[Piece], t: i128) -> &Piece {
    &pieces[pieces.partition_point(|piece| piece.from_ps <= t).saturating_sub(1)]
}

fn ready(pieces: &[Piece]) -> Vec<Ready> {
    let mut floor = i128::MIN;
    let mut ready = Vec::with_capacity(pieces.len());
    for (index, piece) in pieces.iter().enumerate() {
        let until_ps = pieces.get(index + 1).map_or(i128::MAX, |next| next.from_ps);
        let begins = if index == 0 { i128::MIN } else { piece.apply(piece.from_ps) };
        // Nothing holds a time back where the raw map starts above all that came before.
        let floor_ps = if begins >= floor && piece.slope.value() <= 1.0 { i128::MIN } else { floor.max(begins) };
        let is_constant = piece.slope.is_flat() && piece.growth == 0.0;
        ready.push(Ready { piece: *piece, until_ps, floor_ps, fast: Fast::new(piece.slope), is_constant });
        floor = floor.max(begins).max(if until_ps == i128::MAX { begins } else { piece.apply(until_ps - 1) });
    }
    ready
}

pub(super) fn unusable(reason: &'static str) -> Error {
    Error::UnusableKnots { reason }
}

/// 2^80 ps, 38,000 years.
const FARTHEST_PS: u128 = 1 << 80;
/// No clock runs at half speed; a steeper slope comes from knots that are close together.
const STEEPEST_OUTSIDE: f64 = 0.5;
/// Rate change of a quartz within minutes when its temperature changes, beyond its last slope.
const WANDER_ALLOWANCE_PPM: f64 = 0.1;
/// 1 ppm of a picosecond, in ns.
const NS_PER_PS_AND_PPM: f64 = 1e-9;

/// Maps by hand, order under steps, and the cursor against the slow path bit for bit.
#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// About now, in ps since 1970.
    pub(in super::super) const EPOCH_PS: i128 = 1_795_187_116_632_205_972_000;

    pub(in super::super) fn segment(knots: &[(i128, i128)]) -> Segment {
        let knots =
            knots.iter().map(|&(at, c)| Knot { at_ps: EPOCH_PS + at, correction_ps: c, sigma_ns: 10.0 }).collect();
        Segment { knots, ..Segment::default() }
    }

    pub(in super::super) fn map(segments: &[&[(i128, i128)]]) -> TimeMap {
        let segments: Vec<Segment> = segments.iter().map(|knots| segment(knots)).collect();
        TimeMap::new(&segments).expect("usable knots")
    }

    /// Times from the epoch, mapped, and taken back to it.
    fn check(map: &TimeMap, expected: &[(i128, i128, Place)]) {
        for &(at, corrected, place) in expected {
            let found = map.map(EPOCH_PS + at);
            assert_eq!((found.time_ps - EPOCH_PS, found.place), (corrected, place), "at {at}: {found:?}");
        }
    }

    /// Knots with steps of time and of correction for which the corrected time never goes back.
    pub(in super::super) fn tame_knots() -> impl Strategy<Value = Vec<(i128, i128)>> {
        prop::collection::vec((1..10_000_000_000_000i64, -0.4..0.4f64), 1..12).prop_map(|steps| {
            let mut at = (0i128, 0i128);
            let next = |(run, share): (i64, f64)| {
                at = (at.0 + i128::from(run), at.1 + (run as f64 * share) as i128);
                at
            };
            steps.into_iter().map(next).collect()
        })
    }

    /// Segments of knots with jumps between them, up and down, back in time too.
    fn wild_segments() -> impl Strategy<Value = Vec<Segment>> {
        let knots = prop::collection::vec((1..1_000_000_000i64, -3_000_000_000..3_000_000_000i64), 1..6);
        prop::collection::vec((knots, -2_000_000_000..2_000_000_000i64), 1..5).prop_map(|list| {
            let mut start = 0i128;
            list.into_iter()
                .map(|(steps, gap)| {
                    let mut at = start + i128::from(gap);
                    let knots: Vec<(i128, i128)> = steps
                        .into_iter()
                        .map(|(run, correction)| {
                            at += i128::from(run);
                            (at, i128::from(correction))
                        })
                        .collect();
                    start = at;
                    segment(&knots)
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn no_correction_changes_no_digit(t in -(1i128 << 90)..(1i128 << 90)) {
            prop_assert_eq!(TimeMap::identity().map(t).time_ps, t);
            let flat = map(&[&[(0, 0), (5, 0)], &[(1 << 70, 0)]]);
            prop_assert_eq!(flat.map(t).time_ps, t);
            prop_assert_eq!(flat.cursor().map(t).time_ps, t);
        }

        #[test]
        fn the_cursor_gives_the_same_bits(
            segments in wild_segments(),
            times in prop::collection::vec(-4_000_000_000..12_000_000_000i64, 1..60),
            far in any::<i128>(),
        ) {
            let map = TimeMap::new(&segments).expect("usable knots");
            let mut cursor = map.cursor();
            for t in times.into_iter().map(|t| EPOCH_PS + i128::from(t)).chain([far, i128::MIN, i128::MAX]) {
                prop_assert_eq!(cursor.map(t), map.map(t));
            }
        }

        #[test]
        fn order_is_kept_whatever_the_knots(
            segments in wild_segments(),
            mut times in prop::collection::vec(-4_000_000_000..12_000_000_000i64, 2..80),
        ) {
            let map = TimeMap::new(&segments).expect("usable knots");
            times.sort_unstable();
            let mapped: Vec<i128> = times.iter().map(|&t| map.map(EPOCH_PS + i128::from(t)).time_ps).collect();
            prop_assert!(mapped.is_sorted(), "{:?}", mapped);
        }

        #[test]
        fn a_continuous_map_clamps_nothing_and_can_be_undone(
            knots in tame_knots(),
            times in prop::collection::vec(-20_000_000_000_000..120_000_000_000_000i64, 1..60),
        ) {
            let map = map(&[&knots]);
            let back = map.inverse().expect("a rising map");
            for t in times.into_iter().map(|t| EPOCH_PS + i128::from(t)).chain(knots.iter().map(|k| EPOCH_PS + k.0)) {
                let there = map.map(t);
                prop_assert!(!there.clamped);
                let again = back.map(there.time_ps);
                // A slope of 0.4 shrinks a picosecond of rounding by at most 0.6 on the way and
                // stretches it on the way back.
                prop_assert!((again.time_ps - t).abs() <= 2, "{} {:?}", t, again);
                prop_assert!(!again.clamped);
            }
            for (at, correction) in knots {
                prop_assert_eq!(map.map(EPOCH_PS + at).time_ps, EPOCH_PS + at - correction);
            }
        }
    }

    #[test]
    fn between_and_outside_knots() {
        use Place::{After, Before, Inside};
        let found = map(&[&[(1000, 100), (2000, 300), (3000, 300)]]);
        check(
            &found,
            &[
                (1000, 900, Inside),
                (1500, 1300, Inside),
                (2000, 1700, Inside),
                (3000, 2700, Inside),
                (3001, 2701, After),
                (9000, 8700, After),
                (999, 899, Before),
                // The nearest slope, one fifth, goes on.
                (0, 100, Before),
            ],
        );
    }

    #[test]
    fn uncertainty_grows_outside() {
        let second = 1_000_000_000_000;
        let knots = segment(&[(0, 0), (second, 0)]);
        let outside = |ppm| Some(Continuation { slope_ppm: 0.0, growth: Growth::Linear { ppm } });
        let given = Segment { before: outside(1.0), after: outside(2.0), ..knots.clone() };
        let given = TimeMap::new(&[given]).expect("usable knots");
        let sigma = |map: &TimeMap, at: i128| map.map(EPOCH_PS + at).sigma_ns;
        assert!((sigma(&given, second / 2) - 10.0).abs() < 1e-9);
        assert!((sigma(&given, 3 * second) - 4010.0).abs() < 1e-6);
        assert!((sigma(&given, -3 * second) - 3010.0).abs() < 1e-6);
        let default = TimeMap::new(&[knots]).expect("usable knots");
        // √2 · 10 ns per second of slope error and 100 ns per second of wander.
        assert!((sigma(&default, 2 * second) - 10.0 - 100.0f64.hypot(200f64.sqrt())).abs() < 1e-6);
    }

    #[test]
    fn a_step_is_a_break() {
        use Place::{After, Inside};
        // The clock is set forward by 500 somewhere between its own 2000 and 2600.
        let forward = map(&[&[(1000, 0), (2000, 0)], &[(2600, 500), (4000, 500)]]);
        check(
            &forward,
            &[
                (2000, 2000, Inside),
                (2050, 2050, Inside),
                (2051, 2050, Inside),
                (2560, 2060, Inside),
                (5000, 4500, After),
            ],
        );
        let broken = forward.breaks();
        assert_eq!(broken.len(), 1);
        assert_eq!((broken[0].last_before_ps, broken[0].first_after_ps), (EPOCH_PS + 2000, EPOCH_PS + 2600));
        assert_eq!((broken[0].at_ps, broken[0].jump_ps), (EPOCH_PS + 2051, 500));
        // Nobody knows where it stepped: the jump counts as uncertainty from the last knot to the
        // first.
        assert!(forward.map(EPOCH_PS + 2050).sigma_ns > 10.5);
        assert!((forward.map(EPOCH_PS + 2600).sigma_ns - 10.0).abs() < 1e-3);
        // The clock never showed what lies between.
        assert!(forward.map(EPOCH_PS + 2400).clamped, "raw 1900 after 2050");
        let given =
            Segment { reach_ps: [Some(EPOCH_PS + 2100), None], ..segment(&[(2600, 500_000), (900_000, 500_000)]) };
        let held =
            TimeMap::new(&[segment(&[(1000, 0), (2000, 0)]), given]).expect("usable knots").map(EPOCH_PS + 200_000);
        assert!(held.clamped, "{held:?}");
        assert!((held.sigma_ns - 10.0 - (2000.0 + 300_000.0) * 1e-3).abs() < 1.0, "held back by 302 ns: {held:?}");
        assert!(!forward.map(EPOCH_PS + 2600).clamped);
        // Set back by 500: no time is held back, a stretch of reference time is left empty.
        let back = map(&[&[(1000, 0), (2000, 0)], &[(1700, -500), (4000, -500)]]);
        check(&back, &[(1850, 1850, Inside), (1851, 2351, Inside), (4000, 4500, Inside)]);
        assert!(!back.map(EPOCH_PS + 1851).clamped);
        let given = Segment { start_ps: Some(EPOCH_PS + 2100), ..segment(&[(2600, 500), (4000, 500)]) };
        let stated = TimeMap::new(&[segment(&[(1000, 0), (2000, 0)]), given]).expect("usable knots");
        check(&stated, &[(2099, 2099, Inside), (2600, 2100, Inside)]);
    }

    #[test]
    fn unusable_knots_are_refused() {
        let knot = |at_ps, sigma_ns| Knot { at_ps, correction_ps: 0, sigma_ns };
        let cases: [(&str, Vec<Knot>); 5] = [
            ("a segment has none", vec![]),
            ("out of order", vec![knot(5, 0.0), knot(5, 0.0)]),
            ("38,000 years", vec![knot(i128::MAX, 0.0)]),
            ("not a number", vec![knot(0, f64::NAN)]),
            ("too far apart", vec![knot(-(1 << 79), 0.0), Knot { correction_ps: 1 << 79, ..knot(1 << 79, 0.0) }]),
        ];
        for (expected, knots) in cases {
            let error = TimeMap::new(&[Segment { knots, ..Segment::default() }]).expect_err(expected);
            assert!(error.to_string().contains(expected), "{error}");
        }
        assert!(TimeMap::new(&[]).is_err());
    }
}
