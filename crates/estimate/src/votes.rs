//! Locates a step in a row of votes by the cost of each vote on either side of it.
//!
//! `round::step` makes votes from packets and `run::steps` from exchanges. A vote's cost on a side
//! is its distance from that side's prediction, in spreads, capped at [`COST_MAX`]. The step lies
//! where the total cost is lowest, with all earlier votes on one side and all later votes on the
//! other; every position that is not clearly worse remains possible.
//!
//! By hand: costs before/after of 0/9, 1/9, 9/0, 8/1 are least, 2, with the step after the second
//! vote. It does not establish that there is a step.

/// Cost of a vote on a side from which it is `spreads` spreads away: queues are long now and then.
pub(crate) fn cost(spreads: f64) -> f64 {
    spreads.abs().min(COST_MAX)
}

/// The fewest and the most votes that may precede the step; `None` if the votes are about something
/// else. `costs`: before and after the step, in order of time; a position is clearly worse than
/// another if it costs `clear` more.
pub(crate) fn before_step(costs: &[[f64; 2]], clear: f64) -> Option<[usize; 2]> {
    let mut total: f64 = costs.iter().map(|cost| cost[1]).sum();
    // totals[k]: the first k are before the step.
    let mut totals = vec![total];
    for [before, after] in costs {
        total += before - after;
        totals.push(total);
    }
    let least = totals.iter().copied().fold(f64::INFINITY, f64::min);
    if least > COST_USUAL * costs.len() as f64 {
        return None;
    }
    let likely = |cost: &f64| *cost <= least + clear;
    Some([totals.iter().position(likely)?, totals.iter().rposition(likely)?])
}

/// Largest cost of one vote.
pub(crate) const COST_MAX: f64 = 10.0;
/// A larger mean cost of the votes means that something else happened.
const COST_USUAL: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_lies_where_the_votes_cost_least() {
        assert_eq!(before_step(&[[0.0, 9.0], [1.0, 9.0], [9.0, 0.0], [8.0, 1.0]], 5.0), Some([2, 2]));
        // A vote that speaks for neither side leaves both places.
        assert_eq!(before_step(&[[0.0, 9.0], [3.0, 3.0], [9.0, 0.0]], 5.0), Some([1, 2]));
        assert_eq!(before_step(&[[9.0, 0.0], [9.0, 0.0]], 5.0), Some([0, 0]), "it was before all of them");
        assert_eq!(before_step(&[[9.0, 9.0], [9.0, 9.0]], 5.0), None, "neither side");
        assert_eq!(before_step(&[], 5.0), Some([0, 0]));
        assert_eq!((cost(-3.0), cost(1e9)), (3.0, COST_MAX));
    }
}
