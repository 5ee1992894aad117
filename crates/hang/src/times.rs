//! Who stopped first, by the times of the last enqueues.

use std::collections::BTreeSet;

use crate::judge::Judge;
use crate::verdict::{Cause, Certainty, Fault, time};

impl Judge<'_> {
    /// Names the member of a stalled operation that stopped first, if the times of the last
    /// enqueues show it.
    pub fn by_time(&self, candidates: Vec<u32>, why: String) -> Cause {
        match self.first_to_stop(&candidates) {
            None => self.cause(candidates, Fault::Stalled, why, Certainty::Undecided),
            Some((rank, lead_ns, ratio)) => {
                let why = format!("{why}; its last enqueue came {} before the others'", time(lead_ns));
                Cause {
                    likelihood_ratio: Some(ratio),
                    ..self.cause(vec![rank], Fault::Stalled, why, Certainty::Likely)
                }
            }
        }
    }

    /// Returns the candidate whose last enqueue came first, by how much, and the ratio of
    /// likelihoods against the next: differences among the other candidates are taken as Laplace
    /// distributed with their mean absolute deviation, so a lead of t is exp(t / deviation) times
    /// as likely for a rank that stopped as for one that waits.
    fn first_to_stop(&self, candidates: &[u32]) -> Option<(u32, i64, f64)> {
        let mut times: Vec<(u32, i64)> = Vec::new();
        for rank in candidates {
            times.push((*rank, self.job.ranks.get(rank)?.last_enqueue_ns?));
        }
        let reference = *times.first()?;
        let mut later: Vec<(i64, i64, u32)> = Vec::new();
        for candidate in &times {
            let (difference, bound) = self.clocks.difference(reference, *candidate)?;
            later.push((difference, bound, candidate.0));
        }
        later.sort_unstable();
        let [first, next, ..] = later.as_slice() else { return None };
        let bound = later.iter().map(|(_, bound, _)| *bound).max()?;
        let lead_ns = (next.0 - first.0).checked_sub(bound.saturating_mul(2))?;
        let others = &later[1..];
        let mean = others.iter().map(|(at, ..)| *at as f64).sum::<f64>() / others.len() as f64;
        let deviation = others.iter().map(|(at, ..)| (*at as f64 - mean).abs()).sum::<f64>() / others.len() as f64;
        let ratio = (lead_ns as f64 / deviation.max(LEAST_DEVIATION_NS)).min(LARGEST_LOGARITHM).exp();
        (ratio >= RATIO_TO_NAME).then_some((first.2, next.0 - first.0, ratio))
    }

    /// Returns how long before the last enqueue of any innocent rank this cause's came, and the
    /// bound of that.
    pub fn stopped_before(&self, cause: &Cause, guilty: &BTreeSet<u32>) -> Option<(i64, i64)> {
        let [rank] = cause.ranks.as_slice() else { return None };
        let own = (*rank, self.job.ranks.get(rank)?.last_enqueue_ns?);
        let innocent = self.job.ranks.iter().filter(|(other, _)| !guilty.contains(other));
        let others = innocent.filter_map(|(other, state)| Some((*other, state.last_enqueue_ns?)));
        let differences: Option<Vec<(i64, i64)>> = others.map(|other| self.clocks.difference(own, other)).collect();
        differences?.into_iter().min_by_key(|(difference, bound)| difference.saturating_sub(*bound))
    }
}

/// Typical jitter of a scheduler waking threads.
const LEAST_DEVIATION_NS: f64 = 50_000.0;

/// Larger ratios are not distinguished.
const LARGEST_LOGARITHM: f64 = 20.0;

const RATIO_TO_NAME: f64 = 100.0;
