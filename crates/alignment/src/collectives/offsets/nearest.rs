//! The clocks nearest to the estimated ones under which no operation is violated.
//!
//! The estimate of [`super::from_collectives`] weights the ends of operations of all ranks and may
//! violate one of them, or a rooted one, by a few µs. Each order "end E on node j not before start
//! S on node i" is a half-space of the clocks' offsets and rates: with
//! `x = (t − offset)/(1 + rate)`, counted from the middle, `x_j(E) ≥ x_i(S)`. The clocks are
//! projected onto each violated half-space in turn, by the smallest step in units of their own
//! standard deviations, until none is violated (cyclic projection onto convex sets). If the true
//! clocks are straight lines, they violate none, and a step onto a convex set that contains the
//! truth never leads away from it. It does not change bounds, does not move clocks that no
//! operation connects to the reference, and stops if no straight lines satisfy all orders.

use super::used::Visit;
use crate::collectives::matching::Order;

/// A node's clock against the reference's, as it is moved.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    /// Integer ns of its offset, subtracted before anything is a float.
    base_ns: i64,
    /// Remainder of it, ns.
    offset_ns: f64,
    /// Its rate relative to the reference, ns per ns.
    rate: f64,
    /// Standard deviations of both; 0 for the reference, which is fixed.
    sigma: [f64; 2],
}

impl Clock {
    pub(super) fn new(offset_ns: f64, rate: f64, sigma: [f64; 2]) -> Clock {
        let base_ns = offset_ns.round();
        Clock { base_ns: base_ns as i64, offset_ns: offset_ns - base_ns, rate, sigma }
    }

    pub(super) fn offset_ns(&self) -> f64 {
        self.base_ns as f64 + self.offset_ns
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// A time of this clock on the reference's, from the middle, ns.
    fn on_reference(&self, time_ns: i64, middle_ns: i64) -> f64 {
        let from_middle = i128::from(time_ns) - i128::from(self.base_ns) - i128::from(middle_ns);
        (from_middle as f64 - self.offset_ns) / (1.0 + self.rate)
    }

    /// Moves a time of this clock at distance `x` from the middle by about `step · weight(x)` on
    /// the reference's.
    fn shift(&mut self, x: f64, step: f64) {
        self.offset_ns -= step * self.sigma[0] * self.sigma[0];
        self.rate -= step * x * self.sigma[1] * self.sigma[1];
    }

    fn weight(&self, x: f64) -> f64 {
        self.sigma[0].powi(2) + (x * self.sigma[1]).powi(2)
    }
}

/// Moves the clocks until no operation is violated; `None` if that is impossible, or takes too much
/// time. Places without a clock are left out of every operation.
pub(super) fn nearest<'a>(
    mut clocks: Vec<Option<Clock>>,
    operations: &(impl Iterator<Item = (&'a Order, &'a [Visit])> + Clone),
    middle_ns: i64,
) -> Option<Vec<Option<Clock>>> {
    let mut work = 0;
    for _ in 0..SWEEPS_MAX {
        let mut broken = false;
        for (order, stays) in operations.clone() {
            broken |= satisfy(&mut clocks, order, stays, middle_ns, &mut work);
            if work > WORK_MAX {
                return None;
            }
        }
        if !broken {
            return Some(clocks);
        }
    }
    None
}

/// Moves the clocks to satisfy the violated orders of one operation; returns whether any was
/// violated.
fn satisfy(clocks: &mut [Option<Clock>], order: &Order, stays: &[Visit], middle_ns: i64, work: &mut usize) -> bool {
    let begins = |visit: &&Visit| match order {
        Order::AllToAll | Order::To(_) => true,
        Order::From(root) => visit.node == *root,
        Order::Between { source, .. } => visit.node == *source,
        Order::Exchange(_) => false,
    };
    let ends = |visit: &&Visit| match order {
        Order::AllToAll => true,
        Order::From(root) => visit.node != *root,
        Order::To(root) => visit.node == *root,
        Order::Between { destination, .. } => visit.node == *destination,
        Order::Exchange(_) => false,
    };
    let mut broken = false;
    let mut latest = latest_two(clocks, stays.iter().filter(begins), middle_ns);
    *work += 2 * stays.len();
    for end in stays.iter().filter(ends) {
        let Some((from, first)) = latest.into_iter().flatten().find(|(_, node)| *node != end.node) else { continue };
        let Some(to) = clocks[end.node].as_ref().map(|clock| clock.on_reference(end.end, middle_ns)) else { continue };
        let weight = |node: usize, x: f64| clocks[node].as_ref().map_or(0.0, |clock| clock.weight(x));
        let weights = weight(first, from) + weight(end.node, to);
        if from <= to || weights <= 0.0 {
            continue;
        }
        let step = (from - to + MARGIN_NS) / weights;
        for (node, x, step) in [(end.node, to, step), (first, from, -step)] {
            clocks[node].iter_mut().for_each(|clock| clock.shift(x, step));
        }
        broken = true;
        latest = latest_two(clocks, stays.iter().filter(begins), middle_ns);
        *work += stays.len();
    }
    broken
}

/// The latest start on the reference's clock and its node, and the latest of another node.
fn latest_two<'a>(
    clocks: &[Option<Clock>],
    starts: impl Iterator<Item = &'a Visit>,
    middle_ns: i64,
) -> [Option<(f64, usize)>; 2] {
    let mut latest: [Option<(f64, usize)>; 2] = [None; 2];
    for visit in starts {
        let Some(clock) = &clocks[visit.node] else { continue };
        let at = clock.on_reference(visit.start, middle_ns);
        // A node has one stay in an operation.
        let place = latest.iter().position(|known| known.is_none_or(|(other, _)| at > other));
        if place == Some(0) {
            latest[1] = latest[0];
        }
        if let Some(place) = place {
            latest[place] = Some((at, visit.node));
        }
    }
    latest
}

/// Margin beyond the edge when something violated is moved, so that rounding to ns does not violate
/// it again, and that the search ends.
const MARGIN_NS: f64 = 10.0;
/// Passes over all operations.
const SWEEPS_MAX: usize = 1000;
/// Most stays examined in all passes: some seconds.
const WORK_MAX: usize = 200_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(node: usize, start: i64, end: i64) -> Visit {
        Visit { node, start, end }
    }

    /// The resulting offsets and rates, ppm, with 1 µs and 10 ppm of uncertainty; node 0 is the
    /// reference.
    fn moved(clocks: &[(f64, f64)], operations: &[(Order, Vec<Visit>)]) -> Option<Vec<(f64, f64)>> {
        let sigma = |node: usize| if node == 0 { [0.0; 2] } else { [1000.0, 10e-6] };
        let clock = |(node, (offset, ppm)): (usize, &(f64, f64))| Some(Clock::new(*offset, ppm * 1e-6, sigma(node)));
        let clocks = clocks.iter().enumerate().map(clock).collect();
        let found = nearest(clocks, &operations.iter().map(|(order, stays)| (order, &stays[..])), 0)?;
        Some(found.iter().flatten().map(|clock| (clock.offset_ns(), clock.rate() * 1e6)).collect())
    }

    #[test]
    fn a_broken_broadcast_moves_the_clock_by_as_much_and_a_margin() {
        // Node 1 ends at 500 of its clock, which is taken to be the reference's, but the root began
        // at 800.
        let stays = || vec![visit(0, 800, 900), visit(1, 100, 500)];
        let found = moved(&[(0.0, 0.0), (0.0, 0.0)], &[(Order::From(0), stays())]).expect("possible");
        assert!((found[1].0 + 310.0).abs() < 0.01, "{found:?}");
        assert_eq!(found[0], (0.0, 0.0));
        // The other way round nothing is broken.
        assert_eq!(moved(&[(0.0, 0.0); 2], &[(Order::To(0), stays())]), Some(vec![(0.0, 0.0); 2]));
        // Hours apart it is the same.
        let hours = 80_000_000_000_000;
        let away = vec![visit(0, 800, 900), visit(1, hours + 100, hours + 500)];
        let found = moved(&[(0.0, 0.0), (hours as f64, 0.0)], &[(Order::From(0), away)]).expect("possible");
        assert!((found[1].0 - hours as f64 + 310.0).abs() < 0.1, "{found:?}");
    }

    #[test]
    fn far_from_the_middle_the_rate_moves_too() {
        // A second after the middle 10 ppm are 10 µs: a hundred times the variance of the offset.
        let second = 1_000_000_000;
        let stays = vec![visit(0, second + 800, second + 900), visit(1, second, second + 500)];
        let found = moved(&[(0.0, 0.0); 2], &[(Order::AllToAll, stays)]).expect("possible");
        assert!((found[1].1 * 1000.0 / -307.0 - 1.0).abs() < 0.01 && found[1].0.abs() < 4.0, "{found:?}");
    }

    #[test]
    fn the_latest_starts_are_of_two_nodes() {
        let clocks: Vec<Option<Clock>> =
            (0..4).map(|node| (node != 3).then(|| Clock::new(0.0, 0.0, [1.0; 2]))).collect();
        let check = |starts: [i64; 4], expected: [Option<(f64, usize)>; 2]| {
            let stays: Vec<Visit> = (0..4).map(|node| visit(node, starts[node], 100)).collect();
            assert_eq!(latest_two(&clocks, stays.iter(), 0), expected, "{starts:?}");
        };
        // Node 3 has no clock.
        check([1, 2, 3, 9], [Some((3.0, 2)), Some((2.0, 1))]);
        check([3, 2, 1, 9], [Some((3.0, 0)), Some((2.0, 1))]);
        check([2, 3, 1, 9], [Some((3.0, 1)), Some((2.0, 0))]);
        assert_eq!(latest_two(&clocks, [visit(1, 5, 6)].iter(), 0), [Some((5.0, 1)), None]);
    }

    #[test]
    fn what_no_straight_lines_satisfy_is_left() {
        let first = (Order::From(0), vec![visit(0, 800, 900), visit(1, 100, 500)]);
        let second = (Order::From(1), vec![visit(0, 100, 900), visit(1, 1000, 1100)]);
        assert_eq!(moved(&[(0.0, 0.0); 2], &[first, second]), None);
    }
}
