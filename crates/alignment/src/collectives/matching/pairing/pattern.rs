//! The shift that the pattern of ends makes far more likely than any other.
//!
//! All members leave an operation nearly together. With the right shift, the times between
//! successive ends (GAPS) therefore agree on both ranks up to a small scatter, whatever the clocks
//! show; with a wrong shift they differ as the gaps of different operations of the job differ. A
//! job whose steps are all alike has no pattern: its gaps agree with every shift.
//!
//! Let δ(k) be the difference of the k-th gap of the second trace and the gap beside it. Under a
//! shift s each δ has the density f(δ; τ), a Cauchy distribution of the scale τ of all its δ, with
//! a share of gaps of any length. A gap that has none beside it under another shift h would be as
//! well foretold by the trace itself: by the gap that is q places before or after it, whichever is
//! nearer, for that q which foretells all gaps best. So for every h, and for traces that have
//! nothing in common,
//!
//! ```text
//! ln L(s : h) = Σ_k [ ln f(δ_s(k)) − ln f(δ_h(k), or what the trace itself foretells) ]
//! ```
//!
//! with no more than ln 1000 for one gap. Scales are fitted, and of N gaps whose true scales are
//! equal the sum scatters by about 2·√N; so 6·√N is taken off. The shift is taken where what is
//! left is more than ln 10⁶ against every other, with the traces in either order.
//!
//! All this takes the trace to show how unlike different stretches of the job are. A trace of a
//! single step does not: its gaps differ from each other, and may still be those of the next step
//! to the microsecond. So the trace has to repeat itself: its gaps are alike, or some distance of
//! no more than half its length foretells them. It ignores ends of operations in which not all
//! ranks wait.

use super::sequence::{Class, Sequence, overlap};

/// The shift, and the power of ten by which it is more likely than every other.
pub(super) fn likeliest(class: &Class<'_>, windows: [&Sequence<'_>; 2], shifts: &[i64]) -> Option<(i64, f64)> {
    let gaps = windows.map(|window| Gaps::new(class, window));
    let found = best(&gaps[0], &gaps[1], shifts)?;
    let back: Vec<i64> = shifts.iter().rev().map(|shift| -shift).collect();
    let other = best(&gaps[1], &gaps[0], &back)?;
    let margin = found.1.min(other.1) / std::f64::consts::LN_10;
    (found.0 == -other.0 && margin >= MARGIN_MIN).then_some((found.0, margin))
}

/// The times between successive ends of operations in which all wait, ns, by the place of the later
/// one.
struct Gaps {
    gaps: Vec<Option<f64>>,
    /// Number of places that the gap spans.
    spans: Vec<usize>,
    kinds: Vec<usize>,
}

impl Gaps {
    fn new(class: &Class<'_>, window: &Sequence<'_>) -> Self {
        let mut before: Option<(usize, i128)> = None;
        let (mut gaps, mut spans) = (Vec::new(), Vec::new());
        let parts = &window.parts[..window.parts.len().min(GAPS_MAX)];
        for (place, part) in parts.iter().enumerate() {
            let waits = class.all[part.kind];
            let gap = before.filter(|_| waits).map(|(_, end)| (part.end_ps - end) as f64 * 1e-3);
            gaps.push(gap);
            spans.push(before.map_or(0, |(other, _)| place - other));
            if waits {
                before = Some((place, part.end_ps));
            }
        }
        Self { gaps, spans, kinds: parts.iter().map(|part| part.kind).collect() }
    }

    fn len(&self) -> usize {
        self.gaps.len()
    }

    /// How well gaps are predicted by those at a distance, on whichever side is nearer; `None` if
    /// operations of different kinds are that far apart.
    fn at_distance(&self, distance: usize) -> Option<Foretold> {
        let is_alike = self.kinds.iter().zip(&self.kinds[distance..]).all(|(one, other)| one == other);
        let near = |place: usize| {
            let sides = [place as i64 - distance as i64, (place + distance) as i64];
            let left = sides.into_iter().filter_map(|at| self.less(place, self, at));
            left.min_by(|a, b| a.abs().total_cmp(&b.abs()))
        };
        is_alike.then(|| Foretold::new((0..self.len()).map(near).collect()))?
    }

    /// The difference between a gap and one of another sequence, if both span the same number of
    /// operations.
    fn less(&self, place: usize, other: &Self, at: i64) -> Option<f64> {
        let at = usize::try_from(at).ok()?;
        let (own, beside) = (self.gaps[place]?, (*other.gaps.get(at)?)?);
        (self.spans[place] == other.spans[at]).then_some(own - beside)
    }
}

/// Whether a trace shows more than one repetition of what its job repeats.
fn repeats(gaps: &Gaps) -> bool {
    let mut sizes: Vec<f64> = gaps.gaps.iter().flatten().copied().collect();
    sizes.sort_by(f64::total_cmp);
    let Some(middle) = sizes.get(sizes.len() / 2).copied() else { return false };
    let Some(spread) = Foretold::new(sizes.iter().map(|size| Some(size - middle)).collect()) else { return false };
    let foretells = |distance| gaps.at_distance(distance).is_some_and(|left| left.scale <= ALIKE * spread.scale);
    spread.scale <= ALIKE * middle || (1..=gaps.len() / 2).any(foretells)
}

/// Prediction of each gap by a shift or by the trace itself: the residual, and its scale.
struct Foretold {
    left: Vec<Option<f64>>,
    scale: f64,
}

impl Foretold {
    fn new(left: Vec<Option<f64>>) -> Option<Self> {
        let mut sizes: Vec<f64> = left.iter().flatten().map(|left| left.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let scale = sizes.get(sizes.len() / 2)?.max(SCALE_MIN_NS);
        Some(Self { left, scale })
    }

    /// The logarithm of the density of a gap's residual.
    fn density(&self, place: usize) -> Option<f64> {
        self.left[place].map(|left| density(left, self.scale))
    }
}

/// The logarithm of f.
fn density(left: f64, scale: f64) -> f64 {
    let core = scale / (std::f64::consts::PI * (scale * scale + left * left));
    let any = 1.0 / (2.0 * LOGARITHMS * (left.abs() + scale));
    ((1.0 - ANY_SHARE) * core + ANY_SHARE * any).ln()
}

/// The likeliest shift of two sequences, and the logarithm of by how much.
fn best(one: &Gaps, other: &Gaps, shifts: &[i64]) -> Option<(i64, f64)> {
    let of_shift = |shift: i64| {
        let places = overlap([one.len(), other.len()], shift);
        let mut left = vec![None; other.len()];
        let inner = places.clone().filter(|place| place - places.start >= one.spans[*place]);
        for place in inner {
            let at = (place as i64 + shift) as usize;
            left[at] = other.less(at, one, place as i64);
        }
        Foretold::new(left)
    };
    let all: Vec<(i64, Foretold)> = shifts.iter().filter_map(|shift| Some((*shift, of_shift(*shift)?))).collect();
    let own = by_itself(other).filter(|_| repeats(one) && repeats(other))?;
    let sum = |foretold: &Foretold| -> f64 {
        let places = 0..other.len();
        places.filter_map(|place| Some(foretold.density(place)? - own[place]?)).sum()
    };
    let (shift, taken) = all.iter().max_by(|a, b| sum(&a.1).total_cmp(&sum(&b.1)))?;
    let against = |rival: Option<&Foretold>| -> f64 {
        let more = |place: usize| {
            let rival = rival.and_then(|rival| rival.density(place)).or(own[place])?;
            Some((taken.density(place)? - rival).min(MOST_OF_ONE))
        };
        (0..other.len()).filter_map(more).sum()
    };
    let rivals = all.iter().filter(|(rival, _)| rival != shift).map(|(_, foretold)| against(Some(foretold)));
    let least = rivals.fold(against(None), f64::min);
    let count = (0..other.len()).filter(|place| taken.left[*place].is_some() && own[*place].is_some()).count();
    Some((*shift, least - SCATTER * (count as f64).sqrt()))
}

/// How well a trace predicts its own gaps: the logarithm of the density of each, for the distance
/// that predicts best. A gap out of its reach counts as predicted as well as the median one.
fn by_itself(gaps: &Gaps) -> Option<Vec<Option<f64>>> {
    let at_distance = |distance: usize| {
        let foretold = gaps.at_distance(distance)?;
        let known: Vec<Option<f64>> = (0..gaps.len()).map(|place| foretold.density(place)).collect();
        let mut sorted: Vec<f64> = known.iter().flatten().copied().collect();
        // What reaches few gaps may foretell those by chance.
        if 2 * sorted.len() < gaps.gaps.iter().flatten().count() {
            return None;
        }
        sorted.sort_by(f64::total_cmp);
        let median = sorted[sorted.len() / 2];
        let all = known.iter().zip(&gaps.gaps).map(|(known, gap)| gap.and(known.or(Some(median))));
        Some(all.collect::<Vec<_>>())
    };
    let sum = |densities: &Vec<Option<f64>>| densities.iter().flatten().sum::<f64>();
    (1..gaps.len()).filter_map(at_distance).max_by(|a, b| sum(a).total_cmp(&sum(b)))
}

/// A shift has to be likelier by this power of ten.
const MARGIN_MIN: f64 = 6.0;
/// Differences within this many times the root of the number of gaps are not evidence.
const SCATTER: f64 = 6.0;
/// No gap says more than this: ln 1000.
const MOST_OF_ONE: f64 = 6.907_755_278_982_137;
/// Ends agree no better than this, ns.
const SCALE_MIN_NS: f64 = 100.0;
/// The share of gaps that differ by anything.
const ANY_SHARE: f64 = 0.02;
/// Natural logarithms of lengths that may occur: 1 ns to a minute.
const LOGARITHMS: f64 = 25.0;
/// Residual of predicted gaps, as a share of their differences.
const ALIKE: f64 = 0.2;
/// Operations whose gaps are compared.
const GAPS_MAX: usize = 256;
