//! Turns pairs of readings of two clocks into a node's map R → S.
//!
//! The [`ClockPair`]s of a trace or a sampler become a [`PairMap`], the first hop of a node's map.
//! The correction `c = R − S` is smoothed (see `series::smooth`), which distinguishes bends, steps
//! of the system clock and late markers.
//!
//! **What markers cannot say.** A marker reads S and is stamped on R some 5 to 40 µs later. The map
//! sends a typical marker's stamp to the system time it carries, so every event is placed EARLY by
//! the typical overhead. That is not subtracted: its size is in none of the pairs, a figure from
//! elsewhere would be invented, and since all nodes run the same code it cancels between them to a
//! few µs. It is reported, one-sided ([`Residuals::early_by_up_to_ns`]). Where bracketed pairs
//! exist too, the overhead is measured against them and taken out.

use probe_sync_estimate::series::smooth::{Reading, Smoothed, smooth};
use probe_sync_estimate::series::{Break, Continuation, CurvePoint, Growth, Knot, Segment, TimeMap, sample_curve};
use probe_sync_formats::model::{ClockPair, PairKind, Picoseconds};
use serde::Serialize;

/// How well the pairs of a node fit the map made from them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Residuals {
    /// Bracketed pairs used.
    pub bracketed: usize,
    /// Marker pairs used.
    pub markers: usize,
    /// Pairs recognised as delayed and left out.
    pub outliers: usize,
    /// Steps of the system clock that the pairs show.
    pub steps: usize,
    /// Median of |pair minus map|, ns.
    pub median_ns: f64,
    /// 95th percentile of |pair minus map|, ns.
    pub p95_ns: f64,
    /// Map minus the fastest markers, ns: the variable part of the overhead.
    pub above_quickest_ns: f64,
    /// Every time may be early by this much, ns, on all nodes alike, because only markers tie R to
    /// S; 0 with bracketed pairs.
    pub early_by_up_to_ns: f64,
    /// Overhead of the markers, measured against bracketed pairs, ns.
    pub overhead_ns: Option<f64>,
}

/// The map R → S, and how it was made.
#[derive(Clone, Debug, PartialEq)]
pub struct PairMap {
    /// R → S.
    pub map: TimeMap,
    /// How well the pairs fit.
    pub residuals: Residuals,
}

/// Returns the map through pairs of a clock R and the system clock, as every command makes it;
/// `None` without pairs. R must run within about 0.1 % of true time, so that the ticks of a counter
/// must be converted to approximate ps first.
///
/// # Errors
/// Errors of [`TimeMap::new`], for times out of the range of any clock.
pub fn map_of_pairs(pairs: &[ClockPair]) -> Result<Option<PairMap>, probe_sync_estimate::Error> {
    tracer_map(pairs, &[])
}

/// Returns the map through the pairs of a node; `None` without pairs. `steps` are those known from
/// the offsets: pairs too far apart for a wandering clock cannot distinguish a step from a bend, so
/// known steps are taken out before the curve is fitted, and put back.
///
/// # Errors
/// Errors of [`TimeMap::new`], for times out of the range of any clock.
pub(crate) fn tracer_map(pairs: &[ClockPair], steps: &[Break]) -> Result<Option<PairMap>, probe_sync_estimate::Error> {
    let mut sorted: Vec<ClockPair> = pairs.to_vec();
    sorted.sort_by_key(|pair| (pair.tracer_ps, pair.system_ns));
    let Some(base) = sorted.first().map(Base::new) else { return Ok(None) };
    let (markers, bracketed): (Vec<ClockPair>, Vec<ClockPair>) =
        sorted.iter().partition(|p| p.kind == PairKind::Marker);
    let overhead_ns = overhead(&base, &markers, &bracketed, steps);
    let (chosen, late_ns, noise_ns) = match overhead_ns {
        Some((late_ns, noise_ns)) => (&sorted, late_ns, noise_ns),
        None if bracketed.len() >= FEWEST_BRACKETED || markers.is_empty() => (&bracketed, 0.0, 1.0),
        None => (&markers, 0.0, 1.0),
    };
    let known = known_steps(chosen, steps);
    let readings = base.readings(chosen, late_ns, noise_ns, &known);
    let Some(smoothed) = smooth(&readings) else { return Ok(None) };
    let segments = base.segments(&smoothed, &known);
    let map = TimeMap::new(&segments)?;
    let one_sided = readings.iter().filter(|reading| reading.one_sided).count();
    let mut sizes: Vec<f64> = smoothed.residuals_ns.iter().map(|residual| residual.abs()).collect();
    sizes.sort_unstable_by(f64::total_cmp);
    let quantile =
        |percent: usize| sizes.get((sizes.len() * percent / 100).min(sizes.len().saturating_sub(1))).copied();
    let only_markers = one_sided == readings.len();
    let residuals = Residuals {
        bracketed: readings.len() - one_sided,
        markers: one_sided,
        outliers: smoothed.outliers,
        steps: segments.len() - 1,
        median_ns: quantile(50).unwrap_or(0.0),
        p95_ns: quantile(95).unwrap_or(0.0),
        above_quickest_ns: if one_sided > 0 { smoothed.above_lowest_ns } else { 0.0 },
        early_by_up_to_ns: if only_markers { LARGEST_USUAL_OVERHEAD_NS } else { 0.0 },
        overhead_ns: overhead_ns.map(|(late_ns, _)| late_ns),
    };
    Ok(Some(PairMap { map, residuals }))
}

/// Origin of times and corrections.
struct Base {
    at_ps: Picoseconds,
    correction_ps: Picoseconds,
}

impl Base {
    fn new(pair: &ClockPair) -> Self {
        Self { at_ps: pair.tracer_ps, correction_ps: correction(pair) }
    }

    /// Pairs as readings of c, known steps removed; markers shifted by `late_ns`, with their noise
    /// relative to that of bracketed pairs.
    fn readings(&self, pairs: &[ClockPair], late_ns: f64, noise_ns: f64, known: &[KnownStep]) -> Vec<Reading> {
        let mut readings: Vec<Reading> = pairs
            .iter()
            .map(|pair| {
                let value_ns = difference_ns(correction(pair), self.correction_ps);
                let x_ns = difference_ns(pair.tracer_ps, self.at_ps);
                match pair.kind {
                    PairKind::Bracketed(width) => {
                        Reading { x_ns, value_ns, relative_sigma: bracket_sigma(width), one_sided: false }
                    }
                    PairKind::Marker => {
                        Reading { x_ns, value_ns: value_ns - late_ns, relative_sigma: noise_ns, one_sided: true }
                    }
                }
            })
            .collect();
        let mut sigmas: Vec<f64> = readings.iter().map(|reading| reading.relative_sigma).collect();
        sigmas.sort_unstable_by(f64::total_cmp);
        let typical = sigmas.get(sigmas.len() / 2).copied().unwrap_or(1.0);
        for reading in &mut readings {
            reading.relative_sigma /= typical;
        }
        for step in known {
            readings.iter_mut().skip(step.first_after).for_each(|reading| reading.value_ns += step.jump_ns());
        }
        readings
    }

    /// One segment per stretch without a step, known or found.
    fn segments(&self, smoothed: &Smoothed, known: &[KnownStep]) -> Vec<Segment> {
        let mut segments: Vec<Segment> = Vec::with_capacity(smoothed.stretches.len() + known.len());
        let stretches = smoothed.stretches.iter().zip(&smoothed.growth_ppm);
        let pieces =
            stretches.flat_map(|(points, growth)| self.with_steps(points, known).map(move |piece| (piece, growth)));
        for ((points, stepped_at), growth_ppm) in pieces {
            let knots = sample_curve(&points, self.at_ps, self.correction_ps);
            let outside = |slope: Option<f64>| {
                let growth = Growth::Linear { ppm: growth_ppm.hypot(WANDER_ALLOWANCE_PPM) };
                Some(Continuation { slope_ppm: slope? * 1e6, growth })
            };
            // R runs on while S is set: half-way is as good as any moment.
            let last: Option<&Knot> = segments.last().and_then(|segment| segment.knots.last());
            let halfway = last.zip(knots.first()).map(|(a, b)| a.at_ps + (b.at_ps - a.at_ps) / 2);
            let start_ps = last.and(stepped_at).or(halfway);
            let before = outside(points.first().and_then(|point| point.slope));
            let after = outside(points.last().and_then(|point| point.slope));
            segments.push(Segment { before, after, start_ps, knots, ..Segment::default() });
        }
        segments
    }
}

impl Base {
    /// A stretch cut at the known steps within it, each step put back; and the position on R of the
    /// step before a piece.
    fn with_steps<'a>(
        &'a self,
        points: &'a [CurvePoint],
        known: &'a [KnownStep],
    ) -> impl Iterator<Item = (Vec<CurvePoint>, Option<Picoseconds>)> + 'a {
        let first_x = |step: &KnownStep| difference_ns(step.after_ps, self.at_ps);
        (0..=known.len()).filter_map(move |passed| {
            let taken_out: f64 = known[..passed].iter().map(KnownStep::jump_ns).sum();
            let from = passed.checked_sub(1).map_or(f64::NEG_INFINITY, |at| first_x(&known[at]));
            let until = known.get(passed).map_or(f64::INFINITY, first_x);
            let within = points.iter().filter(|point| from <= point.x_ns && point.x_ns < until);
            let piece: Vec<CurvePoint> =
                within.map(|point| CurvePoint { value_ns: point.value_ns - taken_out, ..*point }).collect();
            let first = piece.first()?;
            let stepped_at = passed.checked_sub(1).map(|at| {
                let correction_ps = self.correction_ps + (first.value_ns * 1e3) as Picoseconds;
                known[at].on_tracer_ps(correction_ps)
            });
            Some((piece, stepped_at))
        })
    }
}

/// A step that the offsets know, between two neighbouring pairs.
struct KnownStep {
    step: Break,
    /// Index of the first pair after it.
    first_after: usize,
    /// Times on R of the pairs before and after it.
    before_ps: Picoseconds,
    after_ps: Picoseconds,
}

impl KnownStep {
    /// Size of the system clock's jump, ns; c jumps by the same amount in the opposite direction.
    fn jump_ns(&self) -> f64 {
        self.step.jump_ps as f64 * 1e-3
    }

    /// When it happened on R, given c after it: the middle of the interval that the offsets allow,
    /// between the two pairs.
    fn on_tracer_ps(&self, correction_after_ps: Picoseconds) -> Picoseconds {
        let before = self.step.last_before_ps + correction_after_ps + self.step.jump_ps;
        let after = self.step.first_after_ps + correction_after_ps;
        i128::midpoint(before, after).clamp(self.before_ps + 1, self.after_ps)
    }
}

/// Positions of the known steps among pairs in order of R: between two neighbours that the offsets
/// allow, where the jump of c is closest to the step. A step before the first or after the last
/// pair changes nothing.
fn known_steps(pairs: &[ClockPair], steps: &[Break]) -> Vec<KnownStep> {
    let system_ps = |pair: &ClockPair| i128::from(pair.system_ns) * 1000;
    let place = |step: &Break| {
        let fits = |at: &usize| {
            system_ps(&pairs[at - 1]) <= step.last_before_ps + step.jump_ps.abs().min(SLACK_PS)
                && system_ps(&pairs[*at]) >= step.first_after_ps - step.jump_ps.abs().min(SLACK_PS)
                && pairs[*at].tracer_ps > pairs[at - 1].tracer_ps
        };
        let misfit = |at: &usize| (correction(&pairs[*at]) - correction(&pairs[at - 1]) + step.jump_ps).abs();
        let first_after = (1..pairs.len()).filter(fits).min_by_key(misfit)?;
        let (before_ps, after_ps) = (pairs[first_after - 1].tracer_ps, pairs[first_after].tracer_ps);
        Some(KnownStep { step: *step, first_after, before_ps, after_ps })
    };
    let mut known: Vec<KnownStep> = steps.iter().filter_map(place).collect();
    known.sort_by_key(|step| step.first_after);
    // Two steps between the same pairs are one to them.
    known.dedup_by(|later, kept| {
        let same = later.first_after == kept.first_after;
        if same {
            kept.step.jump_ps += later.step.jump_ps;
            kept.step.first_after_ps = later.step.first_after_ps;
        }
        same
    });
    known
}

/// How late markers are relative to bracketed pairs, and the scatter of that, ns; `None` if one
/// kind is too rare.
fn overhead(base: &Base, markers: &[ClockPair], bracketed: &[ClockPair], steps: &[Break]) -> Option<(f64, f64)> {
    if markers.len() < FEWEST_MARKERS || bracketed.len() < FEWEST_BRACKETED {
        return None;
    }
    let known = known_steps(bracketed, steps);
    let smoothed = smooth(&base.readings(bracketed, 0.0, 1.0, &known))?;
    let map = TimeMap::new(&base.segments(&smoothed, &known)).ok()?;
    let mut late: Vec<f64> = markers
        .iter()
        .map(|marker| difference_ns(map.map(marker.tracer_ps).time_ps, i128::from(marker.system_ns) * 1000))
        .collect();
    late.sort_unstable_by(f64::total_cmp);
    let middle = late[late.len() / 2];
    let spread = (middle - late[late.len() / 4]).max(SMALLEST_MARKER_NOISE_NS);
    Some((middle, spread))
}

fn correction(pair: &ClockPair) -> Picoseconds {
    pair.tracer_ps.saturating_sub(i128::from(pair.system_ns) * 1000)
}

fn difference_ns(a: Picoseconds, b: Picoseconds) -> f64 {
    a.saturating_sub(b) as f64 * 1e-3
}

/// The moment is anywhere in the bracket.
fn bracket_sigma(width_ns: f64) -> f64 {
    width_ns.max(SMALLEST_BRACKET_NS) / 12f64.sqrt()
}

/// Markers of Python, JAX and torch take this long when nothing interferes.
const LARGEST_USUAL_OVERHEAD_NS: f64 = 40_000.0;
/// The offsets place a step to within their own spacing; readings of S near it may differ by as
/// much, ps.
const SLACK_PS: Picoseconds = 1_000_000_000;
/// Below this a clock's own granularity counts.
pub(super) const SMALLEST_BRACKET_NS: f64 = 20.0;
const SMALLEST_MARKER_NOISE_NS: f64 = 1000.0;
/// Fewer bracketed pairs say nothing of how R runs.
const FEWEST_BRACKETED: usize = 2;
/// Fewer markers may all be late.
pub(super) const FEWEST_MARKERS: usize = 3;
/// Outside the pairs a clock's rate wanders by at least as much.
pub(super) const WANDER_ALLOWANCE_PPM: f64 = 0.1;

#[cfg(test)]
pub(super) mod tests {
    //! Maps R → S from bracketed pairs and from markers, against simulated delays.

    use super::*;

    /// Kineto's timeline of a node whose REALTIME wanders and may step: R is true time, S = R +
    /// error(R).
    pub(in super::super) struct Simulated {
        pub(in super::super) count: u32,
        pub(in super::super) amplitude_ns: f64,
        pub(in super::super) step_ns: f64,
    }

    const EPOCH_NS: i64 = 1_795_187_116_632_205_972;
    const PERIOD_S: f64 = 2.0;

    impl Simulated {
        pub(in super::super) fn error_ns(&self, seconds: f64) -> f64 {
            let wander = self.amplitude_ns * (std::f64::consts::TAU * seconds / PERIOD_S).sin();
            wander + if seconds < 0.93 { 0.0 } else { self.step_ns }
        }

        fn at(&self, seconds: f64, late_ns: i64, kind: PairKind) -> ClockPair {
            let since_ns = (seconds * 1e9) as i64;
            let system_ns = EPOCH_NS + since_ns + self.error_ns(seconds) as i64;
            ClockPair { tracer_ps: i128::from(EPOCH_NS + since_ns + late_ns) * 1000, system_ns, kind }
        }

        /// Markers over 1.8 s, 9 to 14 µs late, every eleventh by another 400 µs.
        pub(in super::super) fn markers(&self) -> Vec<ClockPair> {
            (0..self.count)
                .map(|k| {
                    let late = 9_000 + i64::from(k * 7919 % 5000) + if k % 11 == 5 { 400_000 } else { 0 };
                    self.at(1.8 * f64::from(k) / f64::from(self.count), late, PairKind::Marker)
                })
                .collect()
        }

        /// The largest error of the map against truth, `late_ns` taken out, over all of the
        /// markers' time except around the step, ns.
        fn worst(&self, map: &TimeMap, late_ns: f64) -> f64 {
            (0..170)
                .map(|k| f64::from(k) * 0.01)
                .filter(|seconds| self.step_ns == 0.0 || (seconds - 0.93).abs() > 0.05)
                .map(|seconds| {
                    let pair = self.at(seconds, 0, PairKind::Marker);
                    (difference_ns(map.map(pair.tracer_ps).time_ps, i128::from(pair.system_ns) * 1000) + late_ns).abs()
                })
                .fold(0.0, f64::max)
        }
    }

    fn check(simulated: &Simulated, pairs: &[ClockPair], late_ns: f64, most_ns: f64) -> Residuals {
        let found = tracer_map(pairs, &[]).expect("times are sane").expect("pairs");
        let worst = simulated.worst(&found.map, late_ns);
        assert!(worst < most_ns, "{worst} {:?}", found.residuals);
        found.residuals
    }

    #[test]
    fn markers_follow_wander_and_steps_and_leave_their_overhead() {
        for (amplitude_ns, step_ns) in [(0.0, 0.0), (1e5, 0.0), (0.0, 2e6), (1e5, -2e6), (1e5, 2e6)] {
            let simulated = Simulated { count: 40, amplitude_ns, step_ns };
            let found = check(&simulated, &simulated.markers(), 11_500.0, 6_000.0);
            assert_eq!((found.steps, found.markers), (usize::from(step_ns != 0.0), 40), "{found:?}");
            assert!(
                found.outliers >= 3 && found.median_ns < 4_000.0 && found.early_by_up_to_ns > 14_000.0,
                "{found:?}"
            );
        }
    }

    #[test]
    fn bracketed_pairs_say_what_markers_cannot() {
        let simulated = Simulated { count: 40, amplitude_ns: 1e5, step_ns: 0.0 };
        let mut pairs: Vec<ClockPair> = (0..30)
            .map(|k| simulated.at(f64::from(k) * 0.06, i64::from(k % 3) * 100 - 100, PairKind::Bracketed(900.0)))
            .collect();
        let alone = check(&simulated, &pairs, 0.0, 1_000.0);
        assert_eq!((alone.bracketed, alone.markers, alone.early_by_up_to_ns), (30, 0, 0.0));
        pairs.extend(simulated.markers());
        let both = check(&simulated, &pairs, 0.0, 1_500.0);
        let overhead = both.overhead_ns.expect("measured");
        assert!((9_000.0..14_000.0).contains(&overhead), "{overhead}");
        // Delays are even over 5 µs: from the lower quarter to the middle it is 1.25 µs.
        let (bracketed, markers) = pairs.split_at(30);
        let (_, spread) =
            super::overhead(&Base::new(&pairs[0]), markers, bracketed, &[]).expect("pairs enough of both kinds");
        assert!((900.0..1_800.0).contains(&spread), "{spread}");
        assert_eq!((both.bracketed, both.markers, both.early_by_up_to_ns), (30, 40, 0.0));
    }

    /// The system clock when R shows `ms`: 5 s ahead, plus the steps before.
    fn system_ns(ms: i64, steps: &[(i64, i64)]) -> i64 {
        let stepped: i64 = steps.iter().filter(|(at_ms, _)| *at_ms <= ms).map(|(_, jump_ns)| jump_ns).sum();
        EPOCH_NS + (ms + 5_000) * 1_000_000 + stepped
    }

    fn tracer_ps(ms: i64) -> Picoseconds {
        i128::from(EPOCH_NS + ms * 1_000_000) * 1000
    }

    /// Pairs every 4 s of R, through steps (ms, ns) that the offsets know to within 100 ms; the
    /// largest error of the map up to 10 ms from a step, ns, and the number of its steps.
    fn through_steps(steps: &[(i64, i64)]) -> (f64, usize) {
        let kind = PairKind::Bracketed(100.0);
        let pair = |k: i64| ClockPair { tracer_ps: tracer_ps(4000 * k), system_ns: system_ns(4000 * k, steps), kind };
        let pairs: Vec<ClockPair> = (0..20).map(pair).collect();
        let known: Vec<Break> = steps
            .iter()
            .map(|(at_ms, jump_ns)| Break {
                last_before_ps: i128::from(system_ns(at_ms - 100, steps)) * 1000,
                first_after_ps: i128::from(system_ns(at_ms + 100, steps)) * 1000,
                at_ps: 0,
                jump_ps: i128::from(*jump_ns) * 1000,
            })
            .collect();
        let found = tracer_map(&pairs, &known).expect("times are sane").expect("pairs");
        let error =
            |ms: i64| difference_ns(found.map.map(tracer_ps(ms)).time_ps, i128::from(system_ns(ms, steps)) * 1000);
        // A map never goes back: after a clock was set back it waits until the clock is there
        // again.
        let near = |ms: &i64| {
            steps.iter().any(|(at_ms, jump)| (at_ms - 10..at_ms + 10 - (*jump).min(0) / 1_000_000).contains(ms))
        };
        let worst = (0..7600).map(|k| k * 10 + 5).filter(|ms| !near(ms)).map(|ms| error(ms).abs()).fold(0.0, f64::max);
        (worst, found.residuals.steps)
    }

    #[test]
    fn steps_that_offsets_know_are_kept_out_of_the_curve_and_placed_where_they_were() {
        // 40 µs in 4 s are 10 ppm: to pairs alone a bend. S is set ahead and back, once and twice,
        // in one gap and in two.
        for steps in [
            &[][..],
            &[(33_000, 40_000)],
            &[(33_000, -40_000)],
            &[(33_000, 40_000), (53_000, -25_000)],
            &[(13_000, -30_000), (33_000, 40_000), (53_000, -25_000)],
            &[(33_000, -10_000_000_000)],
            &[(33_000, 3_600_000_000_000)],
        ] {
            let (worst, count) = through_steps(steps);
            assert!(worst < 1.0 && count == steps.len(), "{worst} ns, {count} steps of {steps:?}");
        }
    }

    #[test]
    fn two_steps_between_the_same_pairs_are_one_to_them() {
        let steps = [(33_000, 40_000), (34_000, -15_000)];
        let (worst, count) = through_steps(&steps);
        // In between them the map cannot know.
        assert!(worst < 40_001.0 && count == 1, "{worst} ns, {count} steps");
        let kind = PairKind::Bracketed(100.0);
        let pair = |system_ns: i64| ClockPair { tracer_ps: i128::from(system_ns) * 1000, system_ns, kind };
        let step =
            |from: i128, until: i128, jump_ps| Break { last_before_ps: from, first_after_ps: until, at_ps: 0, jump_ps };
        let known = known_steps(&[pair(10), pair(90)], &[step(20_000, 30_000, 7_000), step(50_000, 60_000, -2_000)]);
        assert_eq!(known.len(), 1);
        let one = &known[0];
        assert_eq!((one.step.jump_ps, one.step.last_before_ps, one.step.first_after_ps), (5_000, 20_000, 60_000));
        assert_eq!((one.first_after, one.before_ps, one.after_ps), (1, 10_000, 90_000));
        // Before and after: 20 and 60 ns of S less what S jumped meanwhile, which R does not.
        assert_eq!(one.on_tracer_ps(-1_000_000), 10_001, "not before the pair before it");
        assert_eq!(one.on_tracer_ps(0), (20_000 + 5_000 + 60_000) / 2);
        assert_eq!(one.on_tracer_ps(1_000_000), 90_000, "not after the pair after it");
    }

    #[test]
    fn a_step_is_between_the_pairs_that_its_offsets_allow() {
        let kind = PairKind::Bracketed(100.0);
        // Of 1 s of S each; R goes on alike.
        let at = |second: i64| ClockPair {
            tracer_ps: i128::from(second) * SECOND_PS,
            system_ns: second * 1_000_000_000,
            kind,
        };
        let pairs: Vec<ClockPair> = (1..=5).map(at).collect();
        let check = |from_ps: i128, until_ps: i128, jump_ps: i128, expected: Option<usize>| {
            let step = Break { last_before_ps: from_ps, first_after_ps: until_ps, at_ps: 0, jump_ps };
            let found = known_steps(&pairs, &[step]).first().map(|known| known.first_after);
            assert_eq!(found, expected, "{from_ps} to {until_ps}, {jump_ps}");
        };
        check(2 * SECOND_PS, 3 * SECOND_PS, 0, Some(2));
        check(2 * SECOND_PS - 1, 3 * SECOND_PS, 0, None);
        check(2 * SECOND_PS, 3 * SECOND_PS + 1, 0, None);
        for jump_ps in [500, -500] {
            check(2 * SECOND_PS - 500, 3 * SECOND_PS + 500, jump_ps, Some(2));
            check(2 * SECOND_PS - 501, 3 * SECOND_PS, jump_ps, None);
            check(2 * SECOND_PS, 3 * SECOND_PS + 501, jump_ps, None);
        }
        for jump_ps in [7 * SLACK_PS, -7 * SLACK_PS] {
            check(2 * SECOND_PS - SLACK_PS, 3 * SECOND_PS + SLACK_PS, jump_ps, Some(2));
            check(2 * SECOND_PS - SLACK_PS - 1, 3 * SECOND_PS, jump_ps, None);
            check(2 * SECOND_PS, 3 * SECOND_PS + SLACK_PS + 1, jump_ps, None);
        }
        // Before the first and after the last pair it changes nothing.
        check(0, SECOND_PS / 2, 0, None);
        check(6 * SECOND_PS, 7 * SECOND_PS, 0, None);
        // S was set back by 2 s between the third and the fourth: where c jumps as the step says.
        let mut back = pairs.clone();
        back.iter_mut().skip(3).for_each(|pair| pair.system_ns -= 2_000_000_000);
        let step = Break {
            last_before_ps: 3 * SECOND_PS + SECOND_PS / 2,
            first_after_ps: SECOND_PS + SECOND_PS / 2,
            at_ps: 0,
            jump_ps: -2 * SECOND_PS,
        };
        assert_eq!(known_steps(&back, &[step]).first().map(|known| known.first_after), Some(3));
        // Two readings at one moment of R have no step between them.
        let twice = [at(1), ClockPair { tracer_ps: SECOND_PS, ..at(3) }];
        let step = Break { last_before_ps: SECOND_PS, first_after_ps: 3 * SECOND_PS, at_ps: 0, jump_ps: 2 * SECOND_PS };
        assert_eq!(known_steps(&twice, &[step]).len(), 0);
        // In the order of the pairs, whatever the order of the steps.
        let step = |second: i128| Break {
            last_before_ps: second * SECOND_PS + 1,
            first_after_ps: (second + 1) * SECOND_PS - 1,
            at_ps: 0,
            jump_ps: 0,
        };
        let known = known_steps(&pairs, &[step(4), step(1)]);
        assert_eq!(known.iter().map(|known| known.first_after).collect::<Vec<_>>(), [1, 4]);
    }

    const SECOND_PS: Picoseconds = 1_000_000_000_000;

    #[test]
    fn before_and_after_the_pairs_a_clock_goes_on_as_it_ran() {
        // S gains 10 ppm on R for 100 s.
        let system_ns = |second: i64| EPOCH_NS + second * 1_000_010_000;
        let kind = PairKind::Bracketed(100.0);
        let pair = |second: i64| ClockPair { tracer_ps: tracer_ps(second * 1000), system_ns: system_ns(second), kind };
        let pairs: Vec<ClockPair> = (0..=25).map(|k| pair(k * 4)).collect();
        let found = tracer_map(&pairs, &[]).expect("times are sane").expect("pairs");
        let inside = found.map.map(tracer_ps(50_000)).sigma_ns;
        for second in [-50, 150] {
            let mapped = found.map.map(tracer_ps(second * 1000));
            let error = difference_ns(mapped.time_ps, i128::from(system_ns(second)) * 1000);
            // A flat continuation would be off by half a millisecond.
            assert!(error.abs() < 100.0, "{error} ns at {second} s");
            // The rate may wander by 0.1 ppm: 5 µs in 50 s.
            assert!(mapped.sigma_ns > 4_000.0 + inside && mapped.sigma_ns < 50_000.0, "{mapped:?}");
        }
    }

    #[test]
    fn as_many_markers_as_suffice_are_measured_against_bracketed_pairs() {
        let simulated = Simulated { count: 40, amplitude_ns: 0.0, step_ns: 0.0 };
        let late = |markers: usize, bracketed: u32| {
            let mut pairs: Vec<ClockPair> =
                (0..bracketed).map(|k| simulated.at(f64::from(k), 0, PairKind::Bracketed(900.0))).collect();
            pairs.extend(&simulated.markers()[..markers]);
            tracer_map(&pairs, &[]).expect("times are sane").expect("pairs").residuals.overhead_ns
        };
        assert!(late(3, 2).is_some_and(|late| (9_000.0..14_000.0).contains(&late)), "{:?}", late(3, 2));
        assert_eq!([late(2, 2), late(3, 1)], [None, None]);
    }

    #[test]
    fn odd_pairs_do_not_panic() {
        assert_eq!(tracer_map(&[], &[]).expect("no pairs are no error"), None);
        let pair = |tracer_ps, system_ns, kind| ClockPair { tracer_ps, system_ns, kind };
        let kinds =
            [PairKind::Marker, PairKind::Bracketed(f64::NAN), PairKind::Bracketed(0.0), PairKind::Bracketed(1e300)];
        for kind in kinds {
            let one = tracer_map(&[pair(5_000, 3, kind)], &[]).expect("one pair").expect("a map");
            assert_eq!(one.map.map(9_000).time_ps, 7_000);
            let far =
                [pair(0, i64::MAX, kind), pair(1, i64::MIN, kind), pair(i128::MAX, 0, kind), pair(i128::MIN, 0, kind)];
            let _ = tracer_map(&far, &[]);
        }
    }

    #[test]
    fn a_moment_is_anywhere_in_its_bracket() {
        assert!((bracket_sigma(120.0) - 34.641).abs() < 0.001);
        assert!((bracket_sigma(1.0) - 5.7735).abs() < 0.001, "a clock's granularity counts below 20 ns");
    }
}
