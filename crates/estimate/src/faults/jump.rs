//! Whether an offset jumped or followed the clock's rates.
//!
//! `clocks` names a step only if a jump is shown. Offsets are the integral of rates. Between two
//! measured windows Δ apart, with rates f₁ and f₂, a clock moves by Δ·(f₁ + f₂)/2 if its rate
//! changed evenly in between. If the rate changed suddenly, the movement differs from this by at
//! most Δ·|f₂ − f₁|/2. If the rate swung out and came back, the rates of the surrounding windows
//! show it: let S be the spread of the rates of the last [`KEPT`] windows. A larger movement is a
//! jump:
//!
//! `|x₂ − x₁ − Δ·(f₁ + f₂)/2| > Δ·S/2 + noise`, over one interval or two. Where windows are missing
//! in between, S grows with the time.
//!
//! By hand: windows 2 s apart, a clock that swings from −3.6 to −10.7 ppm moves by −14.3 µs, and
//! 7.1 µs more or less are no jump. Against a prediction with −3.6 ppm it is off by 14 µs in the
//! next window.
//!
//! **A jump within a window** may be hidden in that window's rate: a step s in its middle turns the
//! line by s/T, and moved plus rates agree. But no line fits a step well. The gap between forward
//! and reverse packets closes by s, so the margin of all the node's edges falls by s/2. A bend
//! takes T·S/16 of the margin at most, a kink T·S/8. So a fall of the margins by more than T·S·3/16
//! is a jump. S includes the window after, and so it is judged one round later: a kink late in a
//! window hardly shows in the rate of its own. The step itself makes S = s/T, at most twice that,
//! and T·S·3/16 at most s·3/8. (Margins do not fall otherwise: they are the least delays, and
//! `paths` keeps the least ever.)
//!
//! It does not detect jumps smaller than both limits or tell in which window a jump occurred.

use probe_sync_time::RoundId;

use super::measured::Measured;
use crate::statistics::median;

/// The last windows that measured a node, oldest first.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Recent {
    windows: [Option<Window>; KEPT],
}

/// A window that measured a node.
#[derive(Copy, Clone, Debug)]
pub(super) struct Window {
    pub(super) round: RoundId,
    /// Midpoint on the reference's clock.
    pub(super) at_ns: i64,
    pub(super) measured: Measured,
}

/// Evidence of a round for a jump of a node.
#[derive(Copy, Clone, Debug)]
pub(super) struct Jump {
    /// Movement beyond what rates explain, over the last interval and over the last two, ns.
    unexplained_ns: [f64; 2],
    /// Part of it that is not a jump, ns.
    allowed_ns: [f64; 2],
    /// Fall of the margins of the node's edges that a bend explains, ns.
    fall_ns: f64,
}

impl Default for Jump {
    /// No evidence of a jump: too little is known.
    fn default() -> Self {
        Self { unexplained_ns: [0.0; 2], allowed_ns: [f64::INFINITY; 2], fall_ns: f64::INFINITY }
    }
}

impl Jump {
    /// Returns the part common to most nodes, which is due to their reference.
    pub(super) fn of_reference<'a>(nodes: &(impl Iterator<Item = &'a Self> + Clone)) -> Self {
        if nodes.clone().next().is_none() {
            return Self::default();
        }
        let middle = |of: fn(&Self) -> f64| median(nodes.clone().map(of));
        Self {
            unexplained_ns: [middle(|jump| jump.unexplained_ns[0]), middle(|jump| jump.unexplained_ns[1])],
            allowed_ns: [middle(|jump| jump.allowed_ns[0]), middle(|jump| jump.allowed_ns[1])],
            fall_ns: middle(|jump| jump.fall_ns),
        }
    }

    /// Returns the rest after subtracting another's.
    pub(super) fn less(self, other: &Self) -> Self {
        let [a, b] = [0, 1].map(|k| self.unexplained_ns[k] - other.unexplained_ns[k]);
        Self { unexplained_ns: [a, b], ..self }
    }

    /// Returns true if there was a jump, given the fall of the margins of the node's edges and the
    /// node's deviation from its prediction, ns. A step within a window makes the margins fall by
    /// half its size, so they do not show one smaller than their fall.
    pub(super) fn is_shown(self, fell_ns: f64, off_ns: f64) -> bool {
        let moved = (0..2).any(|k| self.unexplained_ns[k].abs() > self.allowed_ns[k]);
        moved || fell_ns > self.fall_ns.max(FALL_MIN_NS) && off_ns.abs() > fell_ns
    }
}

/// A jump between the first two windows of a clock.
#[derive(Copy, Clone, Debug)]
pub(super) struct FirstJump {
    pub(super) unexplained_ns: f64,
    /// Part explained by rates and noise, ns.
    pub(super) allowed_ns: f64,
    /// Further uncertainty from the packets of both windows, ns.
    pub(super) hard_ns: f64,
    /// The second window.
    pub(super) second: Window,
}

impl Recent {
    pub(super) fn take_in(&mut self, window: Window) {
        self.windows.rotate_left(1);
        self.windows[KEPT - 1] = Some(window);
    }

    /// Corrects for a reference that changed at `since_ns`, as if it had always run as it has
    /// since: at `now_ns` it seems to have moved its nodes by `off`.
    pub(super) fn shift(&mut self, since_ns: i64, now_ns: i64, off: [f64; 2]) {
        for window in self.windows.iter_mut().flatten().filter(|window| window.at_ns < since_ns) {
            let ago = seconds(window.at_ns, now_ns);
            let state = &mut window.measured.state;
            *state = [state[0] + off[0] - ago * off[1], state[1] + off[1]];
        }
    }

    /// Returns the evidence of the newest window; none if there is no previous one.
    pub(super) fn judge(mut self, now: Window) -> Jump {
        self.take_in(now);
        let known: Vec<Window> = self.windows.into_iter().flatten().collect();
        let intervals: Vec<Interval> = known.windows(2).map(|pair| Interval::between(pair[0], pair[1])).collect();
        // Two rates alone may be the same on both sides of a swing's crest.
        let Some(last) = intervals.last().filter(|_| known.len() >= KNOWN_MIN) else { return Jump::default() };
        let spread = spread(&known);
        let allowed = |of: &[Interval]| allowed_ns(of, spread, &intervals);
        let unexplained = |of: &[Interval]| of.iter().map(|interval| interval.unexplained_ns).sum::<f64>();
        let two = &intervals[intervals.len().saturating_sub(2)..];
        let one = &two[two.len() - 1..];
        Jump {
            unexplained_ns: [unexplained(one), unexplained(two)],
            allowed_ns: [allowed(one), allowed(two)],
            fall_ns: FALL_SHARE * last.seconds * spread,
        }
    }

    /// Returns the jump of the clock between its first two windows, if a third confirms the second.
    /// Only one window contradicts two, so the hard intervals must confirm it too: the first window
    /// may simply have been bad.
    pub(super) fn first_jump(mut self, now: Window) -> Option<FirstJump> {
        self.take_in(now);
        let known: Vec<Window> = self.windows.into_iter().flatten().collect();
        let [first, second, third] = known[..] else { return None };
        let intervals = [Interval::between(first, second), Interval::between(second, third)];
        let spread = spread(&known);
        let allowed = [0, 1].map(|k| allowed_ns(&intervals[k..=k], spread, &intervals));
        let hard_ns = first.measured.hard_ns + second.measured.hard_ns;
        let unexplained_ns = intervals[0].unexplained_ns;
        let borne_out = intervals[1].unexplained_ns.abs() <= allowed[1];
        borne_out.then_some(FirstJump { unexplained_ns, allowed_ns: allowed[0], hard_ns, second })
    }
}

/// Returns the spread of the rates of some windows, ns/s.
fn spread(known: &[Window]) -> f64 {
    let rates = || known.iter().map(|window| window.measured.state[1]);
    rates().fold(f64::NEG_INFINITY, f64::max) - rates().fold(f64::INFINITY, f64::min)
}

/// Returns the movement over some intervals that is explained by noise and by rates that differ by
/// `spread` within the shortest of `all` intervals, ns.
fn allowed_ns(of: &[Interval], spread: f64, all: &[Interval]) -> f64 {
    let shortest = all.iter().map(|interval| interval.seconds).fold(f64::INFINITY, f64::min);
    let swing: f64 = of.iter().map(|interval| interval.swing_ns(spread, shortest)).sum();
    let variance: f64 = of.iter().map(|interval| interval.variance).sum();
    swing + (DEVIATIONS * variance.sqrt()).max(MOVE_MIN_NS)
}

/// Returns the time between two instants, s; never negative.
fn seconds(from_ns: i64, until_ns: i64) -> f64 {
    (i128::from(until_ns) - i128::from(from_ns)).max(0) as f64 * 1e-9
}

/// The interval between two windows.
#[derive(Copy, Clone, Debug)]
struct Interval {
    seconds: f64,
    /// Movement beyond what the two rates explain, ns.
    unexplained_ns: f64,
    variance: f64,
}

impl Interval {
    fn between(first: Window, second: Window) -> Self {
        let seconds = seconds(first.at_ns, second.at_ns);
        let (a, b) = (first.measured, second.measured);
        let explained = 0.5 * seconds * (a.state[1] + b.state[1]);
        let variance = a.variance[0] + b.variance[0] + 0.25 * seconds * seconds * (a.variance[1] + b.variance[1]);
        Self { seconds, unexplained_ns: b.state[0] - a.state[0] - explained, variance }
    }

    /// Returns what a change of rate can add: rates spread by `spread` within `shortest` seconds,
    /// and further over longer intervals.
    fn swing_ns(&self, spread: f64, shortest: f64) -> f64 {
        let longer = if shortest > 0.0 { (self.seconds / shortest).max(1.0) } else { 1.0 };
        0.5 * self.seconds * spread * longer
    }
}

/// Windows kept: the judged ones, and two more for the clock's normal variation.
const KEPT: usize = 4;

/// Fewest windows for judging a jump, including the one that may show it.
const KNOWN_MIN: usize = 3;

/// Random error of a move, in standard deviations.
const DEVIATIONS: f64 = 8.0;

/// Smallest movement that is a jump, ns.
const MOVE_MIN_NS: f64 = 100.0;

/// Fall of the margins that rates explain, in units of the spread of rates times the window: a kink
/// 1/8, and half as much again.
const FALL_SHARE: f64 = 3.0 / 16.0;

/// Smallest fall of the margins that counts, ns.
const FALL_MIN_NS: f64 = 250.0;

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_NS: i64 = 2_000_000_000;

    fn measured(offset_ns: f64, rate: f64) -> Measured {
        Measured { state: [offset_ns, rate], variance: [900.0, 100.0], hard_ns: 6_000.0 }
    }

    fn window(at_ns: i64, offset_ns: f64, rate: f64) -> Window {
        Window { round: RoundId(0), at_ns, measured: measured(offset_ns, rate) }
    }

    /// Judges the last of some windows 2 s apart.
    fn judged(windows: &[[f64; 2]]) -> Jump {
        let mut recent = Recent::default();
        let (last, before) = windows.split_last().expect("a window");
        for (at, [x, f]) in (0..).zip(before) {
            recent.take_in(window(at * WINDOW_NS, *x, *f));
        }
        recent.judge(window(before.len() as i64 * WINDOW_NS, last[0], last[1]))
    }

    #[test]
    fn a_swing_of_seven_ppm_in_a_window_is_no_jump() {
        // −3.6 ppm, then −10.7: moved by 14.3 µs ± 7.1, whatever the way.
        for unevenly in [-7_000.0, 0.0, 7_000.0] {
            let jump = judged(&[[0.0, -3_600.0], [-7_200.0, -3_600.0], [-7_200.0 - 14_300.0 + unevenly, -10_700.0]]);
            assert!(!jump.is_shown(0.0, 1e9), "{unevenly} ns: {jump:?}");
        }
    }

    #[test]
    fn a_move_that_no_rate_explains_is_one() {
        for size in [-1_000.0, 1_000.0] {
            assert!(judged(&[[0.0, 500.0], [1_000.0, 500.0], [2_000.0 + size, 500.0]]).is_shown(0.0, 1e9));
            // Also when the window that holds it was the one before.
            assert!(judged(&[[0.0, 500.0], [1_000.0 + size, 500.0], [2_000.0 + size, 500.0]]).is_shown(0.0, 1e9));
        }
        assert!(!judged(&[[0.0, 500.0], [1_000.0, 500.0], [2_080.0, 500.0]]).is_shown(0.0, 1e9), "noise");
    }

    #[test]
    fn a_jump_within_a_window_shows_in_the_margins() {
        // 5 µs in the middle of the last window: half of it is in the offset, and the rate explains
        // that.
        let windows = [[0.0, 0.0], [0.0, 0.0], [2_500.0, 2_500.0]];
        assert!(!judged(&windows).is_shown(0.0, 1e9), "the same with a clock that was fast for a window");
        assert!(judged(&windows).is_shown(2_500.0, 5_000.0));
        // The margins fell by more than a step of what the node is off by makes them: something
        // else made them fall.
        assert!(!judged(&windows).is_shown(2_500.0, 2_000.0));
        // A kink to that rate takes T·S/8 of the margins.
        assert!(!judged(&windows).is_shown(2.0 * 2_500.0 / 8.0, 5_000.0));
    }

    #[test]
    fn what_is_not_known_is_no_jump() {
        assert!(!judged(&[[1e9, 0.0]]).is_shown(1e9, 1e10), "the first window");
        // On both sides of a crest: an amplitude of 50 µs and a period of 20 s, in windows of 4 s.
        let wave = |s: f64| {
            let angle = std::f64::consts::TAU * s / 20.0;
            [5e4 * angle.sin(), 5e4 * std::f64::consts::TAU / 20.0 * angle.cos()]
        };
        for start in 0..40 {
            let at = |window: u32| wave(0.5 * f64::from(start) + 4.0 * f64::from(window));
            for windows in 1..=4 {
                let states: Vec<[f64; 2]> = (0..windows).map(at).collect();
                let mut recent = Recent::default();
                let (last, before) = states.split_last().expect("a window");
                (0..).zip(before).for_each(|(k, [x, f])| recent.take_in(window(k * 2 * WINDOW_NS, *x, *f)));
                let jump = recent.judge(window(before.len() as i64 * 2 * WINDOW_NS, last[0], last[1]));
                assert!(!jump.is_shown(0.0, 1e9), "{windows} windows from {start}: {jump:?}");
            }
        }
        // Silent for ten windows: it may have swung out as far as its rates spread, ten times.
        let mut recent = Recent::default();
        recent.take_in(window(0, 0.0, 0.0));
        recent.take_in(window(WINDOW_NS, 1_000.0, 1_000.0));
        recent.take_in(window(2 * WINDOW_NS, 3_000.0, 1_000.0));
        let back = |offset| recent.judge(window(12 * WINDOW_NS, offset, 1_000.0)).is_shown(0.0, 1e9);
        assert!(!back(80_000.0) && back(-3e8));
    }

    #[test]
    fn a_jump_behind_the_first_window_needs_the_packets_word() {
        let first_jump = |size: f64, third: f64| {
            let mut recent = Recent::default();
            recent.take_in(window(0, 0.0, 500.0));
            recent.take_in(window(WINDOW_NS, 1_000.0 + size, 500.0));
            recent.first_jump(window(2 * WINDOW_NS, 2_000.0 + third, 500.0))
        };
        let shown = |jump: Option<FirstJump>| {
            jump.is_some_and(|jump| jump.unexplained_ns.abs() > jump.allowed_ns + jump.hard_ns)
        };
        // 6 µs of either interval, and 8 standard deviations.
        for (size, expected) in [(12_100.0, false), (12_400.0, true), (-12_400.0, true)] {
            assert_eq!(shown(first_jump(size, size)), expected, "{size} ns");
        }
        assert!(!shown(first_jump(50_000.0, 0.0)), "the third window does not bear it out");
        assert_eq!(first_jump(5e4, 5e4).map(|jump| jump.unexplained_ns.round()), Some(5e4));
        assert!(Recent::default().first_jump(window(0, 0.0, 0.0)).is_none());
    }

    #[test]
    fn windows_of_before_a_step_of_the_reference_are_moved_to_its_new_clock() {
        // The reference is set back by 10 ms and slows down by 1 ppm before the last window: seen
        // from there the node gains both.
        let mut recent = Recent::default();
        recent.take_in(window(0, 0.0, 0.0));
        recent.take_in(window(WINDOW_NS, 0.0, 0.0));
        let now = window(2 * WINDOW_NS, 1e7, 1_000.0);
        assert!(recent.judge(now).is_shown(0.0, 1e7));
        recent.shift(2 * WINDOW_NS, 2 * WINDOW_NS, [1e7, 1_000.0]);
        assert!(!recent.judge(now).is_shown(0.0, 1e7));
        assert!(recent.judge(window(2 * WINDOW_NS, 1e7 + 500.0, 1_000.0)).is_shown(0.0, 500.0), "its own step");
    }
}
