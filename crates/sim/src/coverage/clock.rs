//! The clocks of `coverage`, whose rates are piecewise constant in pieces of a tenth of a second.
//!
//! They do not step.

use super::cell::ClockKind;
use crate::world::random::Draws;

/// One node's clock.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    /// At the start of each piece: the clock's error, ns, and its rate from there on, ns/s.
    pieces: Vec<[f64; 2]>,
}

impl Clock {
    pub(super) fn new(kind: ClockKind, seconds: f64, draws: &mut Draws) -> Self {
        let base = draws.symmetric(BASE_NS_PER_S);
        let (onset_s, phase) = (draws.unit() * seconds, draws.unit());
        let (mut error, mut walked, mut set) = (draws.symmetric(START_NS), 0.0, 0.0);
        let mut second = None;
        let mut pieces = Vec::new();
        // Runs are read a little beyond their ends.
        for piece in 0..((seconds + BEYOND_S) / PIECE_S).ceil() as usize {
            let at_s = piece as f64 * PIECE_S;
            walked += draws.normal(WALK_NS_PER_S * PIECE_S.sqrt());
            let now = (at_s + phase).floor() as i64;
            let warmed = match kind {
                ClockKind::Onset(ppm) => 1e3 * ppm * (1.0 - (-(at_s - onset_s).max(0.0) / WARMING_S).exp()),
                ClockKind::Quiet | ClockKind::Steered(_) => 0.0,
            };
            if let ClockKind::Steered(ppm) = kind
                && second != Some(now)
            {
                (set, second) = (draws.normal(1e3 * ppm), Some(now));
            }
            let rate = base + walked + set + warmed;
            pieces.push([error, rate]);
            error += rate * PIECE_S;
        }
        Self { pieces }
    }

    /// Clock minus true time, ns, `at_s` seconds after the start.
    pub(super) fn error_ns(&self, at_s: f64) -> f64 {
        let piece = ((at_s / PIECE_S).max(0.0) as usize).min(self.pieces.len() - 1);
        let [error, rate] = self.pieces[piece];
        error + rate * (at_s - piece as f64 * PIECE_S)
    }

    /// Reading of the clock, ns after the start.
    pub(super) fn shows_ns(&self, at_s: f64) -> f64 {
        at_s * 1e9 + self.error_ns(at_s)
    }

    /// The true time at which the clock shows `shown_ns`, s.
    pub(super) fn true_s(&self, shown_ns: f64) -> f64 {
        // Rates are below 40 ppm: each turn makes the error 25 000 times smaller.
        (0..INVERSE_TURNS).fold(shown_ns * 1e-9, |at_s, _| (shown_ns - self.error_ns(at_s)) * 1e-9)
    }
}

const BASE_NS_PER_S: f64 = 20_000.0;
const START_NS: f64 = 1e6;
const WALK_NS_PER_S: f64 = 2.0;
const WARMING_S: f64 = 5.0;
const PIECE_S: f64 = 0.1;
const BEYOND_S: f64 = 10.0;
const INVERSE_TURNS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::random::Purpose;

    #[test]
    fn a_steered_clock_has_one_rate_a_second_and_the_inverse_is_one() {
        let clock = Clock::new(ClockKind::Steered(0.2), 20.0, &mut Draws::new(3, Purpose::CoverageClock, 0));
        let rate = |at: f64| (clock.error_ns(at + 0.01) - clock.error_ns(at)) / 0.01;
        let rates: Vec<f64> = (0..200).map(|k| rate(0.1 * f64::from(k) + 0.02)).collect();
        let turns = rates.windows(2).filter(|pair| (pair[1] - pair[0]).abs() > 20.0).count();
        assert!((12..=20).contains(&turns), "{turns} changes of rate in 20 s");
        let at = 7.77;
        assert!((clock.true_s(clock.shows_ns(at)) - at).abs() < 1e-12);
    }
}
