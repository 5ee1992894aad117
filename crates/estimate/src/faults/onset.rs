//! Detection of rate changes too small for any single round, from evidence gathered over several.
//!
//! `clocks` uses this in addition to its test of single rounds. A filter that takes in each round
//! follows a slow ramp before any round deviates much. The generalised likelihood ratio (Willsky
//! and Jones, 1976) tests instead, for each of the last [`CANDIDATES`] rounds, whether a change of
//! rate r that began there explains all innovations ν since then. The change adds r·g to them,
//! where g is the lead over the filter of a clock whose rate is larger by one from then on; the
//! filter follows it with its gains. With S the covariance of the innovations, the best r is d/C,
//!
//! `d = Σ gᵀ·S⁻¹·ν`, `C = Σ gᵀ·S⁻¹·g`, and d/√C is normal with variance 1 where nothing happened.
//!
//! g from round to round: ahead by g before a measurement with noise R, the filter is behind by
//! `R·S⁻¹·g` after it, and `F` times that before the next.
//!
//! A change is sure when |d|/√C exceeds the limit, and when its rounds but the last, and the last
//! alone, both show it: one bad window is none.
//!
//! What most nodes show alike ([`SharedOnsets`]) is their reference's: it is taken away before a
//! node is judged, whichever node's evidence grows first.
//!
//! It does not look for jumps of the offset, which are never small compared with the noise of a
//! round that matters.

use std::collections::BTreeSet;

use probe_sync_time::RoundId;

use super::comparison::is_most;
use crate::graph::linear::{Block, Pair, times};
use crate::kalman::predicted_state;
use crate::statistics::weighted_median;

/// For each of the last rounds, a change of rate that may have begun there.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Onsets {
    candidates: [Option<Candidate>; CANDIDATES],
}

#[derive(Copy, Clone, Debug)]
struct Candidate {
    since: RoundId,
    /// Distance from the filter, after the last round, of a clock whose rate is 1 ns/s higher.
    ahead: Pair,
    /// d and C of the rounds but the last.
    before: Pair,
    /// From the last round.
    last: Pair,
}

/// A change of rate that several rounds show together.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Onset {
    pub(super) since: RoundId,
    pub(super) ns_per_s: f64,
}

/// A round that the filter took in.
#[derive(Copy, Clone, Debug)]
pub(super) struct Taken {
    pub(super) round: RoundId,
    /// Seconds since the round before.
    pub(super) seconds: f64,
    /// ν.
    pub(super) off: Pair,
    /// S⁻¹.
    pub(super) certainty: Block,
    /// R, a diagonal.
    pub(super) noise: Pair,
}

impl Onsets {
    /// Adds a round.
    pub(super) fn take_in(&mut self, taken: &Taken) {
        for candidate in self.candidates.iter_mut().flatten() {
            candidate.add(predicted_state(candidate.ahead, taken.seconds), taken);
        }
        let mut fresh = Candidate { since: taken.round, ahead: [0.0; 2], before: [0.0; 2], last: [0.0; 2] };
        // It began with this window: its middle is half a window later.
        fresh.add([0.5 * taken.seconds, 1.0], taken);
        self.candidates.rotate_left(1);
        self.candidates[CANDIDATES - 1] = Some(fresh);
    }

    /// The most certain change that exceeds `deviations` standard deviations, minus what most nodes
    /// show.
    pub(super) fn surest(&self, deviations: f64, shared: &SharedOnsets) -> Option<Onset> {
        let known = self.candidates.iter().flatten();
        surest(known.map(|candidate| candidate.less(shared.rate(candidate.since))), deviations)
    }

    fn since(&self, round: RoundId) -> Option<&Candidate> {
        self.candidates.iter().flatten().find(|candidate| candidate.since == round && candidate.evidence()[1] > 0.0)
    }
}

impl Candidate {
    /// Adds the evidence of a round about a clock that is ahead of the filter by `ahead` times the
    /// change.
    fn add(&mut self, ahead: Pair, taken: &Taken) {
        let weighted = times(taken.certainty, ahead);
        self.before = self.evidence();
        self.last =
            [weighted[0] * taken.off[0] + weighted[1] * taken.off[1], weighted[0] * ahead[0] + weighted[1] * ahead[1]];
        self.ahead = [taken.noise[0] * weighted[0], taken.noise[1] * weighted[1]];
    }

    fn evidence(&self) -> Pair {
        [self.before[0] + self.last[0], self.before[1] + self.last[1]]
    }

    /// ns/s.
    fn rate(&self) -> f64 {
        let [d, c] = self.evidence();
        d / c
    }

    /// The remainder after subtracting a change common to all, which is subtracted less the less
    /// certain it is.
    fn less(&self, shared: Rate) -> Self {
        let less = |[d, c]: Pair| {
            let known = 1.0 / (1.0 + c * shared.variance);
            [(d - shared.ns_per_s * c) * known, c * known]
        };
        Self { before: less(self.before), last: less(self.last), ..*self }
    }

    /// All rounds together show it, and so do all but the last, and the last alone.
    fn is_sure(&self, deviations: f64) -> bool {
        let sure = |[d, c]: Pair, limit: f64| c > 0.0 && d.abs() > limit * c.sqrt();
        let alike = self.before[0] * self.last[0] > 0.0 && sure(self.before, EACH) && sure(self.last, EACH);
        alike && sure(self.evidence(), deviations) && self.rate().abs() > ONSET_MIN_NS_PER_S
    }
}

fn surest(candidates: impl Iterator<Item = Candidate>, deviations: f64) -> Option<Onset> {
    let likelihood = |candidate: &Candidate| candidate.evidence()[0] * candidate.rate();
    let sure = candidates.filter(|candidate| candidate.is_sure(deviations));
    let best = sure.max_by(|a, b| likelihood(a).total_cmp(&likelihood(b)))?;
    Some(Onset { since: best.since, ns_per_s: best.rate() })
}

/// A change of rate with its variance.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
struct Rate {
    ns_per_s: f64,
    variance: f64,
}

/// Changes common to most nodes: rate changes of their reference, with the opposite sign.
#[derive(Clone, Debug)]
pub(super) struct SharedOnsets {
    /// That of the typical node, if most nodes resemble it, and the uncertainty of its rate.
    typical: Vec<(Candidate, Rate)>,
}

impl SharedOnsets {
    /// From all nodes that contributed to the round.
    pub(super) fn of<'a>(nodes: &(impl Iterator<Item = &'a Onsets> + Clone)) -> Self {
        let count = nodes.clone().count();
        let all = || nodes.clone().flat_map(|onsets| onsets.candidates.iter().flatten());
        let rounds: BTreeSet<RoundId> = all().map(|candidate| candidate.since).collect();
        let typical = |since: RoundId| {
            let known: Vec<&Candidate> = nodes.clone().filter_map(|onsets| onsets.since(since)).collect();
            let of = |pair: fn(&Candidate) -> Pair| typical_evidence(known.iter().map(|candidate| pair(candidate)));
            let (_, rate) = of(|candidate| candidate.evidence());
            let near = |candidate: &Candidate| {
                let noise = EACH / candidate.evidence()[1].sqrt();
                (candidate.rate() - rate.ns_per_s).abs() <= noise.max(0.5 * rate.ns_per_s.abs())
            };
            let alike = known.iter().filter(|candidate| near(candidate)).count();
            // A node that missed rounds has candidates that the others have forgotten: a few such
            // nodes are not most.
            let most = known.len() > 1 && is_most(alike, count);
            let [(before, _), (last, _)] = [of(|candidate| candidate.before), of(|candidate| candidate.last)];
            most.then_some((Candidate { since, ahead: [0.0; 2], before, last }, rate))
        };
        Self { typical: rounds.into_iter().filter_map(typical).collect() }
    }

    /// Rate of a change that began in a round; 0 if the nodes differ.
    fn rate(&self, since: RoundId) -> Rate {
        self.typical
            .iter()
            .find(|(candidate, _)| candidate.since == since)
            .map_or_else(Rate::default, |(_, rate)| *rate)
    }

    /// The most certain one that exceeds `deviations` standard deviations of one node.
    pub(super) fn surest(&self, deviations: f64) -> Option<Onset> {
        surest(self.typical.iter().map(|(candidate, _)| *candidate), deviations)
    }
}

/// From each node's d and C: the evidence of an average node, and the common rate of the nodes.
///
/// A node with few packets per window may show any rate, so its rate is weighted by its certainty;
/// no weight exceeds that of the least certain of the best third, because one node alone says
/// nothing about most.
fn typical_evidence(nodes: impl Iterator<Item = Pair> + Clone) -> (Pair, Rate) {
    let mut certainties: Vec<f64> = nodes.clone().map(|[_, c]| c).collect();
    certainties.sort_unstable_by(f64::total_cmp);
    let count = certainties.len();
    let Some(limit) = certainties.get(2 * count / 3) else { return ([0.0; 2], Rate::default()) };
    let weight = |c: f64| c.min(*limit);
    let total: f64 = certainties.iter().map(|c| weight(*c)).sum();
    if total <= 0.0 {
        return ([0.0; 2], Rate::default());
    }
    let ns_per_s = weighted_median(nodes.filter(|[_, c]| *c > 0.0).map(|[d, c]| (d / c, weight(c))));
    let c = total / count as f64;
    ([ns_per_s * c, c], Rate { ns_per_s, variance: MEDIAN_VARIANCE / total })
}

/// Variance of a median over that of a mean, of many values with a normal distribution: π/2.
const MEDIAN_VARIANCE: f64 = std::f64::consts::FRAC_PI_2;

/// Rounds in which a change may have begun.
const CANDIDATES: usize = 6;

/// Standard deviations required of the rounds before the last, and of the last alone.
const EACH: f64 = 3.0;

/// Smaller changes of rate are normal for clocks.
const ONSET_MIN_NS_PER_S: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kalman::Belief;

    const WINDOW_S: f64 = 4.0;
    const NOISE: Pair = [50.0 * 50.0, 30.0 * 30.0];
    const WALK: f64 = 9.0;

    /// Follows a clock whose rate changes by `change` in the middle of window 8; the errors are ±1
    /// standard deviation in turn.
    fn followed(change: f64, spoil: impl Fn(u64) -> f64) -> Option<(u64, Onset)> {
        let mut onsets = Onsets::default();
        let mut belief = Belief { state: [0.0; 2], covariance: [NOISE[0], 0.0, NOISE[1]] };
        for round in 1..20 {
            let since_s = (round as f64 - 8.0) * WINDOW_S;
            let error = if round % 2 == 0 { 1.0 } else { -1.0 };
            let late = since_s.max(0.0);
            let measured =
                [change * late + 50.0 * error, 30.0 * error + if since_s > 0.0 { change } else { 0.0 } + spoil(round)];
            belief = belief.predicted(WINDOW_S, WALK);
            let noise = [NOISE[0], 0.0, NOISE[1]];
            let innovation = belief.innovation(measured, noise).expect("positive");
            let off = [measured[0] - belief.state[0], measured[1] - belief.state[1]];
            belief = belief.updated(&innovation, noise);
            let certainty = innovation.certainty;
            let taken = Taken { round: RoundId(round), seconds: WINDOW_S, off, certainty, noise: NOISE };
            onsets.take_in(&taken);
            let nobody = SharedOnsets::of(&std::iter::empty());
            if let Some(onset) = onsets.surest(8.0, &nobody) {
                return Some((round, onset));
            }
        }
        None
    }

    #[test]
    fn two_hundred_ns_per_s_are_found_within_two_rounds() {
        for change in [200.0, -200.0] {
            let (round, onset) = followed(change, |_| 0.0).expect("found");
            assert!(round <= 10, "{round} {onset:?}");
            assert!((onset.ns_per_s / change - 1.0).abs() < 0.3, "{onset:?}");
            assert!((8..=10).contains(&onset.since.0), "{onset:?}");
        }
    }

    #[test]
    fn noise_and_one_bad_window_are_no_change() {
        assert_eq!(followed(0.0, |_| 0.0), None);
        assert_eq!(followed(0.0, |round| if round == 9 { 500.0 } else { 0.0 }), None);
        // Below the limit, however sure.
        assert_eq!(followed(60.0, |_| 0.0), None);
    }

    fn shown(nodes: &[Onsets]) -> SharedOnsets {
        SharedOnsets::of(&nodes.iter())
    }

    /// A node that processed the rounds with these rates, measured `worse` times less precisely
    /// than [`NOISE`]; each starts with the filter in the right place.
    fn seen(rounds: impl Iterator<Item = u64>, worse: f64, rate: impl Fn(u64) -> f64) -> Onsets {
        let mut onsets = Onsets::default();
        let noise = NOISE.map(|variance| variance * worse * worse);
        for round in rounds {
            let off = [0.5 * WINDOW_S * rate(round), rate(round)];
            let certainty = [1.0 / noise[0], 0.0, 1.0 / noise[1]];
            onsets.take_in(&Taken { round: RoundId(round), seconds: WINDOW_S, off, certainty, noise });
        }
        onsets
    }

    #[test]
    fn what_nodes_show_that_missed_rounds_is_not_what_most_show() {
        // Thirty went through rounds 1 to 12; two hung in 7 to 11 and still know candidates that
        // the thirty have forgotten.
        let mut nodes = vec![seen(1..13, 1.0, |_| 0.0); 30];
        nodes.extend(vec![seen((1..7).chain([12]), 1.0, |round| if round >= 6 { 400.0 } else { 0.0 }); 2]);
        let shared = shown(&nodes);
        assert_eq!(shared.rate(RoundId(5)), Rate::default(), "{shared:?}");
        assert_eq!(shared.surest(6.5), None);
        assert_eq!(nodes[0].surest(6.5, &shared), None);
    }

    #[test]
    fn nodes_with_thin_windows_show_nothing_of_the_reference() {
        // A third with good windows; the rest may show anything, more of it on one side.
        let mut nodes = vec![seen(1..9, 1.0, |_| 0.0); 10];
        nodes.extend((0..20).map(|node| seen(1..9, 50.0, move |_| if node < 15 { 900.0 } else { -900.0 })));
        let shared = shown(&nodes);
        assert_eq!(shared.surest(6.5), None, "{shared:?}");
        assert!(nodes.iter().all(|node| node.surest(6.5, &shared).is_none()));
        // One that is sure of itself is not most; and nobody knows whether it was the reference
        // where all others are unsure.
        let mut nodes = vec![seen(1..9, 1.0, |round| if round > 4 { 500.0 } else { 0.0 }); 1];
        nodes.extend(vec![seen(1..9, 50.0, |_| 0.0); 20]);
        let shared = shown(&nodes);
        assert_eq!((shared.surest(6.5), nodes[0].surest(6.5, &shared)), (None, None), "{shared:?}");
        nodes.truncate(1);
        nodes.extend(vec![seen(1..9, 1.0, |_| 0.0); 20]);
        let shared = shown(&nodes);
        assert_eq!(shared.surest(6.5), None, "{shared:?}");
        assert!(nodes[0].surest(6.5, &shared).is_some(), "{:?}", nodes[0]);
        // What all show is their reference's.
        let nodes = vec![seen(1..9, 1.0, |round| if round > 4 { 500.0 } else { 0.0 }); 12];
        let shared = shown(&nodes);
        assert!(shared.surest(6.5).is_some_and(|onset| onset.ns_per_s > 100.0), "{shared:?}");
        assert!(nodes.iter().all(|node| node.surest(6.5, &shared).is_none()));
    }
}
