//! Three knots per window instead of one, for the second analysis of the packets.
//!
//! It runs between the solution from the windows' lines and `packets`, which can measure the clocks
//! in each third of a window. A clock that warms up bends within a window, and the first and last
//! packets of a run are half a window away from the outermost midpoints, so a rate alone would have
//! to extrapolate from there.
//!
//! The motion found so far stays as it is: the states at the new knots are those of the cubic
//! between the old ones. Old knot k becomes 3·k + 1, and every span reaches to the outer thirds of
//! its first and last window.
//!
//! The windows' own lines stay at their midpoints.

use super::fit::Fit;
use super::layout::{PARTS, Span};
use crate::graph::linear::Pair;
use crate::motion::hermite;

/// The middle one of the knots of a window.
pub(super) fn middle(knot: usize) -> usize {
    knot / PARTS * PARTS + 1
}

/// Refines the knots; returns whether it did: too many states would take too much memory.
pub(super) fn refine(fit: &mut Fit) -> bool {
    if fit.layout.states * PARTS > STATES_MAX || fit.layout.knots.len() < 2 {
        return false;
    }
    let old = fit.layout.knots.clone();
    let window = fit.layout.window;
    fit.layout.knots = (0..old.len()).flat_map(|k| thirds(&old, k, window)).collect();
    let (mut states, mut walks, mut shared) = (Vec::new(), Vec::new(), Vec::new());
    let mut spans = Vec::with_capacity(fit.layout.spans.len());
    for span in &fit.layout.spans {
        let times = &old[span.first..=span.last];
        let own = &fit.states[span.base..span.base + span.len()];
        let finer =
            Span { first: span.first * PARTS, last: middle(span.last * PARTS) + 1, base: states.len(), ..span.clone() };
        states.extend(fit.layout.knots[finer.first..=finer.last].iter().map(|at| at_time(times, own, *at)));
        walks.extend((0..finer.len()).map(|k| fit.walks[span.base + k.saturating_sub(1) / PARTS]));
        shared.extend((0..finer.len()).map(|k| fit.shared[span.base + k / PARTS]));
        spans.push(finer);
    }
    fit.layout.measures.iter_mut().for_each(|measure| measure.knot = middle(measure.knot * PARTS));
    (fit.layout.states, fit.layout.spans) = (states.len(), spans);
    (fit.layout.start, fit.states, fit.walks, fit.shared) = (states.clone(), states, walks, shared);
    true
}

/// A knot, and a third of the way to its neighbours; if rounds are missing, and at the ends, a
/// third of a window.
fn thirds(knots: &[f64], k: usize, window: f64) -> [f64; PARTS] {
    let part = |apart: f64| apart.min(window) / PARTS as f64;
    let before = k.checked_sub(1).map_or(window, |before| knots[k] - knots[before]);
    let after = knots.get(k + 1).map_or(window, |after| after - knots[k]);
    [knots[k] - part(before), knots[k], knots[k] + part(after)]
}

/// The offset alone of [`at_time`], for every packet of a run.
pub(super) fn offset_at_time(times: &[f64], states: &[Pair], t: f64) -> f64 {
    // Inlined there, what makes the rate is left out.
    at_time(times, states, t)[0]
}

/// The state of a clock with `states` at `times`: on the cubic between them; beyond, the rate
/// continues to change as it did.
#[inline(always)]
pub(super) fn at_time(times: &[f64], states: &[Pair], t: f64) -> Pair {
    let next = times.partition_point(|knot| *knot <= t);
    if next > 0 && next < times.len() {
        let delta = times[next] - times[next - 1];
        let weights = hermite((t - times[next - 1]) / delta, delta);
        let (here, there) = (states[next - 1], states[next]);
        return weights.map(|[a, b]| a[0] * here[0] + a[1] * here[1] + b[0] * there[0] + b[1] * there[1]);
    }
    let at = next.saturating_sub(1);
    let beyond = t - times[at];
    let inner = if next == 0 { 1 } else { at.saturating_sub(1) };
    let turn = match (states.get(inner), times.get(inner)) {
        (Some(state), Some(time)) if inner != at && beyond.abs() <= (time - times[at]).abs() => {
            (state[1] - states[at][1]) / (time - times[at])
        }
        _ => 0.0,
    };
    [states[at][0] + beyond * (states[at][1] + 0.5 * turn * beyond), states[at][1] + turn * beyond]
}

/// States up to which there are three knots per window: 500 MB for all that belongs to a state.
const STATES_MAX: usize = 1_500_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirds_lie_on_both_sides_of_their_knot() {
        let knots = [0.0, 3.0, 6.0, 18.0];
        assert_eq!(thirds(&knots, 0, 3.0), [-1.0, 0.0, 1.0]);
        assert_eq!(thirds(&knots, 1, 3.0), [2.0, 3.0, 4.0]);
        assert_eq!(thirds(&knots, 2, 3.0), [5.0, 6.0, 7.0], "rounds are missing after it");
        assert_eq!([0, 1, 2, 3, 4, 5].map(middle), [1, 1, 1, 4, 4, 4]);
    }

    #[test]
    fn between_knots_the_clock_is_on_the_cubic_and_beyond_it_goes_on_turning() {
        // x = t³ between 0 and 2 s; beyond, the rate 3·t² goes on by (12 − 0)/2 per second.
        let (times, states) = ([0.0, 2.0], [[0.0, 0.0], [8.0, 12.0]]);
        assert_eq!(at_time(&times, &states, 1.0), [1.0, 3.0]);
        assert_eq!(at_time(&times, &states, 2.0), [8.0, 12.0]);
        assert_eq!(at_time(&times, &states, 3.0), [8.0 + 12.0 + 3.0, 18.0]);
        assert_eq!(at_time(&times, &states, -1.0), [3.0, -6.0]);
        // Farther out than the knots are apart nobody knows how it turns, nor from one knot alone.
        assert_eq!(at_time(&times, &states, 5.0), [8.0 + 36.0, 12.0]);
        assert_eq!(at_time(&times[1..], &states[1..], 3.0), [20.0, 12.0]);
    }
}
