//! The persistence over time of the causes that make a rank late.
//!
//! Lateness of successive steps is seldom independent: a slow input, a hot device or a busy host
//! lasts for a while. Of N steps in which a value keeps a share ρ of itself from each to the next
//! (an autoregression of first order) a mean is known as well as of N/τ independent ones, τ = (1 +
//! ρ)/(1 − ρ).
//!
//! ρ comes from the values' places in order (Spearman), so that a few steps that are far off
//! neither hide nor feign dependence: with the correlation s of the places of neighbours, ρ =
//! 2·sin(π·s/6), exact for normal values. What is fitted before, a mean or a line, takes (p + 4ρ)/N
//! of it away on average, for p fitted numbers. Half of that is given back: τ is convex in ρ and ρ
//! is at least 0, so scatter alone makes τ too large.
//!
//! One factor ρ does not describe a slow part under values that are new each time: with the share f
//! of the variance in it neighbours agree by f·ρ only, while τ is 1 + 2·f·Σ (1 − k/N)·ρᵏ. So the
//! cosines of the series, which no constant moves, are compared with the spectrum of such a sum
//! (Whittle's likelihood), `1 − f + f·(1 − ρ²)/(1 − 2ρ·cos ω + ρ²)` at ω = π·j/N. Where that
//! explains them clearly better than any single factor up to the one that neighbours show, τ is the
//! largest that explains them nearly as well as the best. (Against larger factors too, the
//! comparison is blind: the slowest cosines alone look alike, and a factor that neighbours deny
//! won.) The sum of the correlations (Geyer's initial sequence) was tried: it names three times as
//! many by chance, since it stops at the first noise.
//!
//! It cannot detect a slow component in a few series that are not much longer than the component
//! lasts. In such a job the component looks constant and cannot be distinguished from a rank that
//! is late.

use std::collections::BTreeMap;

use super::history::Held;

/// How many successive values count as one independent value; at least 1. All series are assumed to
/// have the same statistics. `fitted` numbers were fitted to each.
pub(super) fn dependence(series: &[Vec<f64>], fitted: f64) -> f64 {
    let series: Vec<Vec<f64>> = series.iter().map(|values| places(values)).collect();
    let kept = kept_by_neighbours(&series, fitted);
    let alone = (1.0 + kept) / (1.0 - kept);
    alone.max(by_slow_part(&series, kept))
}

/// The factor ρ that neighbours have in common.
fn kept_by_neighbours(series: &[Vec<f64>], fitted: f64) -> f64 {
    let (mut products, mut squares, mut count) = (0.0, 0.0, 0);
    for places in series {
        products += places.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>();
        squares += places.iter().map(|place| place * place).sum::<f64>();
        count += places.len();
    }
    let length = count as f64 / series.len().max(1) as f64;
    if squares <= 0.0 || length < 2.0 {
        return 0.0;
    }
    let correlation = (products / squares * length / (length - 1.0)).clamp(-1.0, 1.0);
    let kept = 2.0 * (std::f64::consts::PI * correlation / 6.0).sin();
    (kept + GIVEN_BACK * (fitted + 4.0 * kept) / length).clamp(0.0, KEPT_MAX)
}

/// τ from the cosines, if these show what a factor of `kept` or less does not; otherwise 1.
fn by_slow_part(series: &[Vec<f64>], kept: f64) -> f64 {
    let (spectrum, length) = spectrum(series);
    if spectrum.is_empty() {
        return 1.0;
    }
    // Ranks are late against each other, so one of them says nothing new.
    let independent = (series.len() as f64 - 1.0).max(1.0);
    let log_likelihood = |share: f64, kept: f64| {
        let term = |(slow, seen): (usize, &f64)| {
            let turn = std::f64::consts::PI * (slow + 1) as f64 / length;
            let factor = (1.0 - kept * kept) / (1.0 - 2.0 * kept * turn.cos() + kept * kept);
            let expected = 1.0 - share + share * factor;
            expected.ln() + seen / expected
        };
        -0.5 * independent * spectrum.iter().enumerate().map(term).sum::<f64>()
    };
    let usual = ONE_FACTOR.into_iter().filter(|factor| *factor < kept).chain([kept]);
    let usual = usual.map(|kept| log_likelihood(1.0, kept)).fold(f64::NEG_INFINITY, f64::max);
    let larger = ONE_FACTOR.into_iter().filter(|factor| *factor > kept).map(|kept| (1.0, kept));
    let models = SLOW_FACTORS.iter().flat_map(|kept| SLOW_SHARES.map(|share| (share, *kept))).chain(larger);
    let models: Vec<(f64, f64, f64)> = models.map(|(share, kept)| (share, kept, log_likelihood(share, kept))).collect();
    let best = models.iter().map(|model| model.2).fold(f64::NEG_INFINITY, f64::max);
    if best <= usual + CLEARLY_BETTER[usize::from(series.len() > 2)] {
        return 1.0;
    }
    let worth = |(share, kept, _): &(f64, f64, f64)| {
        // Σ (1 − k/N)·ρᵏ over all distances k.
        let power = kept.powf(length);
        let sum = kept / (1.0 - kept) - kept * (1.0 - power) / (length * (1.0 - kept).powi(2));
        1.0 + 2.0 * share * sum
    };
    models.iter().filter(|model| model.2 >= best - NEARLY_BEST).map(worth).fold(1.0, f64::max)
}

/// Mean squares of the slowest cosines of the series in units of the variance, and the mean length.
fn spectrum(series: &[Vec<f64>]) -> (Vec<f64>, f64) {
    let taken = series.iter().step_by(series.len().div_ceil(SERIES_MAX).max(1));
    let (mut sums, mut squares, mut values, mut count) = ([0.0; COSINES], 0.0, 0, 0);
    for places in taken {
        for (slow, sum) in sums.iter_mut().enumerate() {
            let cosine = cosine(places, std::f64::consts::PI * (slow + 1) as f64 / places.len() as f64);
            *sum += 2.0 / places.len() as f64 * cosine * cosine;
        }
        squares += places.iter().map(|place| place * place).sum::<f64>();
        (values, count) = (values + places.len(), count + 1);
    }
    let length = values as f64 / f64::from(count.max(1));
    if squares <= 0.0 || length < SHORTEST {
        return (Vec::new(), length);
    }
    let most = COSINES.min(length as usize - 1);
    let unit = f64::from(count) * squares / values as f64;
    (sums[..most].iter().map(|sum| sum / unit).collect(), length)
}

/// Σ x_k·cos(turn·(k + ½)); each cosine is the previous one, rotated.
fn cosine(values: &[f64], turn: f64) -> f64 {
    let [[mut real, mut imaginary], [forward, across]] = [0.5 * turn, turn].map(|angle| [angle.cos(), angle.sin()]);
    let mut sum = 0.0;
    for value in values {
        sum += value * real;
        (real, imaginary) = (real * forward - imaginary * across, real * across + imaginary * forward);
    }
    sum
}

/// The place of each value in order, counted from the middle; equal values share theirs.
pub(super) fn places(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut places = vec![0.0; values.len()];
    let mut first = 0;
    for equal in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let place = first as f64 + (equal.len() as f64 - 1.0) / 2.0 - (values.len() as f64 - 1.0) / 2.0;
        equal.iter().for_each(|at| places[*at] = place);
        first += equal.len();
    }
    places
}

/// The median, of an even number of times the mean of the two in the middle.
pub(super) fn middle(mut times: Vec<i64>) -> i64 {
    times.sort_unstable();
    let upper = times.len() / 2;
    let (Some(high), Some(low)) = (times.get(upper), times.get(times.len().saturating_sub(1) / 2)) else { return 0 };
    low + (high - low) / 2
}

/// For each rank how late it was in each step that it took part in, ns, in order of time: the mean
/// over the operations of the step; if steps are unknown, each operation is a step. `held` is in
/// order of time.
pub(super) fn lateness(held: &[Held], ranks: usize) -> Vec<BTreeMap<usize, f64>> {
    let mut units: BTreeMap<i64, usize> = BTreeMap::new();
    let mut count = 0;
    let mut sums: Vec<BTreeMap<usize, (f64, f64)>> = vec![BTreeMap::new(); ranks];
    for Held { step, arrivals, waits, judged, .. } in held {
        let unit = step.map_or(count, |step| *units.entry(step).or_insert(count));
        count += usize::from(unit == count);
        let middle = middle(arrivals.iter().map(|arrival| arrival.start_ns).collect());
        for (arrival, wait_ns) in arrivals.iter().zip(&judged.waits_ns) {
            let late_ns = if waits.is_all() { arrival.start_ns - middle } else { -wait_ns };
            let (sum, times) = sums[arrival.rank].entry(unit).or_default();
            (*sum, *times) = (*sum + late_ns as f64, *times + 1.0);
        }
    }
    let mean = |sums: BTreeMap<usize, (f64, f64)>| sums.into_iter().map(|(unit, (sum, times))| (unit, sum / times));
    sums.into_iter().map(|sums| mean(sums).collect()).collect()
}

/// Share of the bias of ρ due to fitted numbers that is corrected.
const GIVEN_BACK: f64 = 0.5;
/// The largest ρ that is distinguished from 1.
const KEPT_MAX: f64 = 0.999;

/// Number of cosines and series that are examined, and the fewest values.
const COSINES: usize = 256;
const SERIES_MAX: usize = 64;
const SHORTEST: f64 = 16.0;

/// Factors of values without a slow part (below zero they take turns), and factors and shares of
/// slow parts.
const ONE_FACTOR: [f64; 15] = [-0.9, -0.6, -0.3, 0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];
const SLOW_FACTORS: [f64; 6] = [0.6, 0.8, 0.9, 0.95, 0.98, 0.99];
const SLOW_SHARES: [f64; 9] = [0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7];

/// How much the log likelihood of a slow part must exceed that of the neighbours' correlation: for
/// two ranks, whose lateness is one series, and for more. With less, independent steps lose more
/// than a fifth of their power. And how far below the best a slow part still counts.
const CLEARLY_BETTER: [f64; 2] = [1.5, 1.0];
const NEARLY_BEST: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_a_place() {
        assert_eq!(places(&[5.0, 1.0, 5.0, 9.0]), [0.0, -1.5, 0.0, 1.5]);
        assert_eq!(places(&[]), Vec::<f64>::new());
    }

    #[test]
    fn what_lasts_counts_less() {
        let check = |values: &[f64], expected: [f64; 2]| {
            let found = dependence(&[values.to_vec()], 1.0);
            assert!(expected[0] <= found && found <= expected[1], "{found}");
        };
        // In turn, and all the same: nothing lasts.
        let turns: Vec<f64> = (0..100).map(|k| f64::from(k % 2)).collect();
        check(&turns, [1.0, 1.0]);
        check(&[3.0; 50], [1.0, 1.0]);
        check(&[3.0], [1.0, 1.0]);
        // Two halves.
        let halves: Vec<f64> = (0..100).map(|k| f64::from(k / 50)).collect();
        check(&halves, [30.0, 2000.0]);
        // Runs of five, as if each value stood five times: ρ = 0.8.
        let runs: Vec<f64> = (0..500).map(|k| f64::from(((k / 5) * 7919) % 503)).collect();
        check(&runs, [6.0, 13.0]);
    }
}
