//! Smooths a recorded run as a whole and makes its lines: one per round and node, or one per knot and node.
//!
//! Place in the flow: last step of `solve` and of simulations, after every round was solved as in the live run. The smoother takes the fits of
//! all rounds and, where they are at hand, all exchanges. What must not be used comes from the rounds' verdicts, which may
//! speak of rounds before their own; a round's own estimates give the hard intervals.
//!
//! At a knot t in the round with midpoint M the hard interval is the round's, carried along:
//! `[lo + d − w, hi + d + w]`, `d = x(t) − x(M)`, `w = 5·σ_rate·|t − M| + 5·√(q·|t − M|³/3)`,
//! where x is the smoothed offset, σ_rate the standard deviation of its rate and q how fast node and reference wander
//! ([`crate::smoother`]). So it is no longer unconditional: it fails when the clock wanders off by more than five standard
//! deviations. At t = M it is the round's own.
//!
//! Where a clock was stepped between two rounds that know it, `steps` finds out when, from the exchanges or from clock events; lines up to there
//! follow the clock as it ran before, lines from there as it ran after. Where nobody knows when, knots in between say that the node was not
//! reached, and lines of rounds in between that its clock was disturbed.
//!
//! Lines can stand so densely that readers who join them by straight lines add a tenth of sigma (`knots`), from the first window's start
//! to the last one's end (`ends`).
//!
//! What it does not do: read or write files.

mod ends;
mod gaps;
mod knots;
mod lines;
mod recorded;
mod smoothed;
mod steps;

pub use self::knots::Knots;
pub use self::recorded::Recorded;
pub use self::smoothed::Smoothed;

#[cfg(test)]
mod tests;
