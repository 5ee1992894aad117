//! Extrapolation of a clock beyond the smoother's first and last knots, to the first and last
//! packets.
//!
//! [`super`] uses it because half a window lies beyond the smoother's outermost knots. The mean of
//! a random walk continues straight. A clock that swings continues to bend, and a straight line
//! over half a window is then wrong by up to microseconds. The clock's history shows which applies:
//! from every three consecutive rounds the adjacent round is predicted in a straight line, with the
//! bend of two rates and with that of three. The order that predicted best is used; a higher one
//! must be better by a fifth. Its prediction error, scaled to the square of the distance because
//! rates are exact at the end itself, is added to the uncertainty.
//!
//! By hand: rates of 0, 10 and 20 ns/s at 0, 1 and 2 s. Half a second before, the straight line
//! says x₀, the bend `x₀ + ½·10·0.25` = x₀ + 1.25 ns. It does not extrapolate further than the
//! distance of one round.

/// A round's state: time in s, offset in ns above anything, rate in ns/s.
#[derive(Copy, Clone, Debug)]
pub(super) struct State {
    pub(super) t: f64,
    pub(super) offset_ns: f64,
    pub(super) rate: f64,
}

/// Extrapolation of a clock beyond one end of its rounds.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct End {
    /// Time of the outermost round, s.
    t: f64,
    /// ns/s².
    bend: f64,
    /// ns/s³.
    jerk: f64,
    /// Error of predictions over a distance of `reach` s, ns.
    error_ns: f64,
    reach: f64,
}

impl End {
    /// `states` begin at the outermost round. `None` if there are too few rounds.
    pub(super) fn of(states: &[State]) -> Option<Self> {
        let states = &states[..states.len().min(MOST_ROUNDS)];
        let mut best: Option<(usize, f64)> = None;
        for order in 0..=2 {
            let errors =
                states.windows(order + 2).map(|w| predicted(&w[1..], order, w[0].t - w[1].t) - above(&w[0], &w[1]));
            let squares: Vec<f64> = errors.map(|error| error * error).collect();
            if squares.len() < FEWEST_TESTS {
                break;
            }
            let error_ns = (squares.iter().sum::<f64>() / squares.len() as f64).sqrt();
            if best.is_none_or(|(_, so_far)| error_ns < CLEARLY * so_far) {
                best = Some((order, error_ns));
            }
        }
        let (order, error_ns) = best?;
        let [bend, jerk] = bends(states, order);
        let reach = (states[1].t - states[0].t).abs();
        (reach > 0.0).then_some(Self { t: states[0].t, bend, jerk, error_ns, reach })
    }

    /// Corrections of a straight line at `t` beyond the end, of its rate, and of its standard
    /// deviation (added in squares): ns, ns/s, ns.
    pub(super) fn beyond(&self, t: f64) -> Option<[f64; 3]> {
        let d = t - self.t;
        let share = d.abs() / self.reach;
        (share <= 1.0).then(|| {
            let offset = d * d * (0.5 * self.bend + d * self.jerk / 6.0);
            [offset, d * (self.bend + 0.5 * d * self.jerk), self.error_ns * share * share]
        })
    }
}

/// Offset of one state above another's, ns.
fn above(state: &State, other: &State) -> f64 {
    state.offset_ns - other.offset_ns
}

/// The offset `d` seconds beyond the first of the states, above its own.
fn predicted(states: &[State], order: usize, d: f64) -> f64 {
    let [bend, jerk] = bends(states, order);
    d * (states[0].rate + d * (0.5 * bend + d * jerk / 6.0))
}

/// Bend and its change at the first state: of the polynomial through the rates of the first
/// `order + 1` states.
fn bends(states: &[State], order: usize) -> [f64; 2] {
    let slope = |a: &State, b: &State| (b.rate - a.rate) / (b.t - a.t);
    match states {
        [a, b, ..] if order == 1 => [slope(a, b), 0.0],
        [a, b, c, ..] if order == 2 => {
            let (first, second) = (slope(a, b), slope(b, c));
            let jerk = 2.0 * (second - first) / (c.t - a.t);
            [first - 0.5 * jerk * (b.t - a.t), jerk]
        }
        _ => [0.0; 2],
    }
}

/// Number of rounds from the end that determine the extrapolation.
const MOST_ROUNDS: usize = 16;
/// Predictions that must have been possible before one is relied on.
const FEWEST_TESTS: usize = 2;
/// A higher order must beat a lower one by a fifth.
const CLEARLY: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::*;

    fn states(count: u32, offset: impl Fn(f64) -> f64) -> Vec<State> {
        let state = |k: u32| {
            let t = 2.0 * f64::from(k);
            State { t, offset_ns: offset(t), rate: (offset(t + 1e-3) - offset(t - 1e-3)) / 2e-3 }
        };
        (0..count).map(state).collect()
    }

    #[test]
    fn a_clock_that_swings_goes_on_swinging() {
        // 20 µs, 30 s: the straight line misses half a window of 2 s by up to 440 ns.
        let turn = std::f64::consts::TAU / 30.0;
        for phase in [0.0, 0.9, 2.1, 4.0] {
            let swing = |t: f64| 20e3 * (turn * t + phase).sin();
            let all = states(6, swing);
            let end = End::of(&all).expect("six rounds");
            let straight = |t: f64| all[0].offset_ns + all[0].rate * t;
            for t in [-0.3, -0.7, -1.0] {
                let [offset, rate, sigma] = end.beyond(t).expect("near");
                let wrong = straight(t) + offset - swing(t);
                assert!(wrong.abs() < 60.0 && wrong.abs() < 4.0 * sigma + 2.0, "{phase} {t}: {wrong} under {sigma}");
                let slope = (swing(t + 1e-3) - swing(t - 1e-3)) / 2e-3;
                assert!((all[0].rate + rate - slope).abs() < 150.0, "{phase} {t}");
            }
            assert_eq!(end.beyond(-2.1), None, "further than a round's distance");
        }
    }

    #[test]
    fn a_clock_that_runs_straight_goes_on_straight() {
        let mut all = states(8, |t| 700.0 * t);
        // Rates scatter by 3 ns/s: a bend made of that would be worse than none.
        for (k, state) in all.iter_mut().enumerate() {
            state.rate += [3.0, -3.0, 1.0, -2.0][k % 4];
        }
        let end = End::of(&all).expect("eight rounds");
        assert_eq!((end.bend, end.jerk), (0.0, 0.0));
        assert_eq!(End::of(&all[..2]), None);
        let parabola = End::of(&states(5, |t| 30.0 * t * t)).expect("five rounds");
        assert!((parabola.bend - 60.0).abs() < 1e-3 && parabola.error_ns < 0.1, "{parabola:?}");
    }
}
