//! Smooths a recorded run as a whole and makes its lines: one per round and node, or one per knot
//! and node.
//!
//! It is the last step of `solve` and of simulations, after every round was solved as in the live
//! run. The smoother takes the fits of all rounds and, if available, all exchanges. The rounds'
//! verdicts, which may refer to earlier rounds, state which data must not be used; a round's own
//! estimates give the hard intervals.
//!
//! At a round's midpoint the hard interval is the round's own. At the fraction s between two
//! midpoints, Δ apart, it is `[(1−s)·lo₁ + s·lo₂ − r·Δ·s·(1−s), (1−s)·hi₁ + s·hi₂ + r·Δ·s·(1−s)]`
//! with r = 6 ppm: the offsets of clocks whose rates each stay within 3 ppm from one midpoint to
//! the other, as within a window. Before the first midpoint and after the last it is extrapolated
//! from the nearest two (`motion::hard_between`). There is none across a step, or where only one
//! round knows the node.
//!
//! Where a clock was stepped between two rounds that know it, `steps` finds out when, from the
//! exchanges or from clock events; lines up to there follow the clock as it ran before, lines from
//! there as it ran after. Where nobody knows when, knots in between say that the node was not
//! reached, and lines of rounds in between that its clock was disturbed.
//!
//! Lines can stand so densely that readers who join them by straight lines add a tenth of sigma
//! (`knots`), from the first window's start to the last one's end (`ends`).

mod ends;
mod gaps;
mod knots;
mod lines;
mod recorded;
mod smoothed;
mod steps;
mod windows;

pub use self::knots::Knots;
pub use self::recorded::Recorded;
pub use self::smoothed::Smoothed;

#[cfg(test)]
mod tests;
