//! How long what makes a rank late lasts.
//!
//! Lateness of successive steps is seldom independent: a slow input, a hot device or a busy host
//! lasts for a while. Of N steps in which a value keeps a share ρ of itself from each to the next
//! (an autoregression of first order) a mean is known as well as of N/τ independent ones, τ = (1 +
//! ρ)/(1 − ρ).
//!
//! ρ comes from the values' places in order (Spearman), so that a few steps that are far off
//! neither hide nor feign dependence: with the correlation s of the places of neighbours, ρ =
//! 2·sin(π·s/6), exact for normal values. What is fitted before, a mean or a line, takes (p + 4ρ)/N
//! of it away on average, for p fitted numbers, and that is given back.
//!
//! What it does not do: see dependence that one step does not show, such as a small slow swing
//! under large noise.

use std::collections::BTreeMap;

use super::history::Held;

/// How many successive values count as one independent value; at least 1. All series are taken to
/// be alike. `fitted` numbers were learnt from each.
pub(super) fn dependence(series: &[Vec<f64>], fitted: f64) -> f64 {
    let (mut products, mut squares, mut count) = (0.0, 0.0, 0);
    for values in series {
        let places = places(values);
        products += places.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>();
        squares += places.iter().map(|place| place * place).sum::<f64>();
        count += values.len();
    }
    let length = count as f64 / series.len().max(1) as f64;
    if squares <= 0.0 || length < 2.0 {
        return 1.0;
    }
    let correlation = (products / squares * length / (length - 1.0)).clamp(-1.0, 1.0);
    let kept = 2.0 * (std::f64::consts::PI * correlation / 6.0).sin();
    let kept = (kept + (fitted + 4.0 * kept) / length).clamp(0.0, KEPT_MAX);
    (1.0 + kept) / (1.0 - kept)
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
/// over the operations of the step, each of which is a step where steps are not known. `held` is in
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

/// The largest ρ that is distinguished from 1.
const KEPT_MAX: f64 = 0.999;

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
