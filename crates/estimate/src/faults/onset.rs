//! Changes of rate too small for any one round: evidence gathered over several.
//!
//! Place in the flow: under `clocks`, beside its test of single rounds. A filter that takes each round in follows a slow ramp before any round
//! is far off. The generalised likelihood ratio (Willsky and Jones, 1976) asks instead, for each of the last [`CANDIDATES`] rounds, whether a
//! change of rate r that began there explains all innovations ν since then. It adds r·g to them: g is how far a clock whose rate is larger by
//! one from then on runs ahead of the filter, which follows it with its gains. With S the innovations' covariance the best r is d/C,
//!
//! `d = Σ gᵀ·S⁻¹·ν`, `C = Σ gᵀ·S⁻¹·g`, and d/√C is normal with variance 1 where nothing happened.
//!
//! g from round to round: ahead by g before a measurement with noise R, the filter is behind by `R·S⁻¹·g` after it, and `F` times that
//! before the next.
//!
//! A change is sure when |d|/√C exceeds the limit, and when its rounds but the last, and the last alone, both show it: one bad window is none.
//!
//! What it does not do: look for jumps of the offset; those are never small against the noise of a round that matters.

use probe_sync_time::RoundId;

use crate::graph::linear::{Block, Pair, times};
use crate::kalman::predicted_state;

/// For each of the last rounds, a change of rate that may have begun there.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Onsets {
    candidates: [Option<Candidate>; CANDIDATES],
}

#[derive(Copy, Clone, Debug)]
struct Candidate {
    since: RoundId,
    /// How far a clock with one ns/s more is ahead of the filter, after the last round.
    ahead: Pair,
    /// d and C.
    evidence: Pair,
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
    /// Adds a round; the surest change that is `deviations` standard deviations clear.
    pub(super) fn take_in(&mut self, taken: &Taken, deviations: f64) -> Option<Onset> {
        let mut surest: Option<(f64, Onset)> = None;
        for candidate in self.candidates.iter_mut().flatten() {
            let before = candidate.evidence;
            let ahead = predicted_state(candidate.ahead, taken.seconds);
            let last = candidate.add(ahead, taken);
            let [d, c] = candidate.evidence;
            let sure = |[d, c]: Pair, limit: f64| c > 0.0 && d.abs() > limit * c.sqrt();
            let alike = before[0] * last[0] > 0.0 && sure(before, EACH) && sure(last, EACH);
            let onset = Onset { since: candidate.since, ns_per_s: d / c };
            if alike && sure([d, c], deviations) && onset.ns_per_s.abs() > ONSET_MIN_NS_PER_S {
                let likelihood = d * d / c;
                if surest.is_none_or(|(most, _)| likelihood > most) {
                    surest = Some((likelihood, onset));
                }
            }
        }
        let mut fresh = Candidate { since: taken.round, ahead: [0.0; 2], evidence: [0.0; 2] };
        // It began with this window: its middle is half a window later.
        fresh.add([0.5 * taken.seconds, 1.0], taken);
        self.candidates.rotate_left(1);
        self.candidates[CANDIDATES - 1] = Some(fresh);
        surest.map(|(_, onset)| onset)
    }
}

impl Candidate {
    /// Adds what a round says of a clock that is ahead of the filter by `ahead` times the change; returns that alone.
    fn add(&mut self, ahead: Pair, taken: &Taken) -> Pair {
        let weighted = times(taken.certainty, ahead);
        let own = [0, 1].map(|k| weighted[k]);
        let last = [own[0] * taken.off[0] + own[1] * taken.off[1], own[0] * ahead[0] + own[1] * ahead[1]];
        self.evidence = [self.evidence[0] + last[0], self.evidence[1] + last[1]];
        self.ahead = [taken.noise[0] * weighted[0], taken.noise[1] * weighted[1]];
        last
    }
}

/// Rounds in which a change may have begun.
const CANDIDATES: usize = 6;

/// The rounds but the last, and the last alone: so many standard deviations each.
const EACH: f64 = 3.0;

/// A smaller change of rate is what clocks do.
const ONSET_MIN_NS_PER_S: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kalman::Belief;

    const WINDOW_S: f64 = 4.0;
    const NOISE: Pair = [50.0 * 50.0, 30.0 * 30.0];
    const WALK: f64 = 9.0;

    /// Follows a clock whose rate changes by `change` in the middle of window 8; the errors are ±1 standard deviation in turn.
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
            if let Some(onset) = onsets.take_in(&taken, 8.0) {
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
}
