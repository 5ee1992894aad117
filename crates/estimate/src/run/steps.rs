//! Locates clock steps between rounds and, if packets or a clock event allow it, between readings.
//!
//! The run is smoothed on both sides of every step. The two sides, extrapolated straight into the
//! gap, predict the theta of every edge of the node before and after the step. Every exchange
//! measures `theta = ½·(min u + max l)`, so each exchange in the gap, in order of its peer's clock,
//! is a vote for one side ([`crate::votes`]). A clock event of the node gives the same information
//! directly, as closely as its packets did when the window was cut, or to a period of the watch.
//!
//! By hand: theta is 0 before and 5000 ns after; exchanges at 1, 2, 3 s measure 40, −60, 4950: the
//! step is between those at 2 and 3 s. It does not find a step that was not named, or two within
//! one gap.

use probe_sync_lines::StepRecord;
use probe_sync_time::{Edge, Exchange, NodeId, Reference, System, Timestamp};

use crate::smoother::SmoothedOffset;
use crate::statistics::upper_median;
use crate::votes::{before_step, cost};

/// A gap in which a node's clock was stepped.
#[derive(Clone, Debug)]
pub(super) struct StepGap {
    pub(super) node: NodeId,
    /// Midpoints of the last round before and of the first after that tell about the clock, on the
    /// reference's clock.
    pub(super) between: [Timestamp<Reference>; 2],
    pub(super) placed: Option<Placed>,
}

/// A step at a known position.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Placed {
    /// Between which times of the reference's clock.
    pub(super) between: [Timestamp<Reference>; 2],
    /// Between which readings of the node's own.
    pub(super) readings: StepRecord,
}

impl StepGap {
    pub(super) fn holds(&self, at: Timestamp<Reference>) -> bool {
        self.between[0] < at && at < self.between[1]
    }

    /// The side of the step that a time is on: 0 before, 1 after; `None` if unknown.
    pub(super) fn side(&self, at: Timestamp<Reference>) -> Option<usize> {
        let [a, b] = self.placed?.between;
        if at <= a.min(b) { Some(0) } else { (at >= a.max(b)).then_some(1) }
    }
}

/// States of the nodes' clocks on both sides of a gap: at its ends, by node.
pub(super) struct Sides<'a> {
    pub(super) between: [Timestamp<Reference>; 2],
    pub(super) at: &'a dyn Fn(NodeId, usize) -> Option<SmoothedOffset>,
}

impl Sides<'_> {
    /// A clock's offset on one side, carried straight to a time.
    fn offset_ns(&self, node: NodeId, side: usize, at_ns: f64) -> Option<f64> {
        let known = (self.at)(node, side)?;
        Some(known.offset_ns + known.drift_ppm * 1e-6 * (at_ns - self.relative_ns(self.between[side].as_ns())))
    }

    /// Since the gap's beginning, ns.
    fn relative_ns(&self, at_ns: i64) -> f64 {
        (i128::from(at_ns) - i128::from(self.between[0].as_ns())) as f64
    }

    /// The time of the reference's clock at which a node's clock shows `reading`, ns since the
    /// beginning of the gap.
    fn reference_ns(&self, node: NodeId, side: usize, reading: Timestamp<System>) -> Option<f64> {
        let reading = self.relative_ns(reading.as_ns());
        let first = reading - self.offset_ns(node, side, reading)?;
        Some(reading - self.offset_ns(node, side, first)?)
    }

    fn timestamp(&self, relative_ns: f64) -> Timestamp<Reference> {
        let at = i128::from(self.between[0].as_ns()) + relative_ns.round() as i128;
        Timestamp::from_ns(at.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }

    /// Places a step by a clock event of the node.
    pub(super) fn by_event(&self, node: NodeId, step: StepRecord) -> Option<Placed> {
        let begin = self.reference_ns(node, 0, step.after)?;
        let end = self.reference_ns(node, 1, step.before)?;
        let length = self.relative_ns(self.between[1].as_ns());
        // A watch that looked late says more than the gap allows.
        (end > 0.0 && begin < length).then(|| Placed {
            between: [self.timestamp(begin.max(0.0)), self.timestamp(end.min(length))],
            readings: step,
        })
    }

    /// Places a step by the exchanges of the node's edges.
    pub(super) fn by_exchanges<'a>(
        &self,
        node: NodeId,
        exchanges: impl Iterator<Item = (Edge, &'a Exchange)>,
    ) -> Option<Placed> {
        let mut votes: Vec<Vote> = exchanges.filter_map(|(edge, exchange)| self.vote(node, edge, exchange)).collect();
        let length = self.relative_ns(self.between[1].as_ns());
        votes.retain(|vote| (0.0..=length).contains(&vote.at_ns[0]));
        votes.sort_unstable_by(|a, b| a.at_ns[0].total_cmp(&b.at_ns[0]));
        if votes.len() < FEWEST_VOTES {
            return None;
        }
        let mut nearest: Vec<f64> = votes.iter().map(|vote| vote.off_ns[0].abs().min(vote.off_ns[1].abs())).collect();
        let spread = upper_median(&mut nearest)?.max(SPREAD_MIN_NS);
        let costs: Vec<[f64; 2]> = votes.iter().map(|vote| vote.off_ns.map(|off| cost(off / spread))).collect();
        let [fewest, most] = before_step(&costs, COST_CLEAR)?;
        let (before, after) = (&votes[fewest.checked_sub(1)?], votes.get(most)?);
        Some(Placed {
            between: [self.timestamp(before.at_ns[0]), self.timestamp(after.at_ns[1])],
            readings: StepRecord { after: before.own[0], before: after.own[1] },
        })
    }

    fn vote(&self, node: NodeId, edge: Edge, exchange: &Exchange) -> Option<Vote> {
        let t = &exchange.t;
        let (of_source, of_destination) = ([t[0], t[7]], [t[1], t[6]]);
        let (own, peers, peer) = if edge.src == node {
            (of_source, of_destination, edge.dst)
        } else {
            (of_destination, of_source, edge.src)
        };
        let least = exchange.forward().into_iter().map(|(_, u)| u.as_ns()).min()?;
        let most = exchange.reverse().into_iter().map(|(_, l)| l.as_ns()).max()?;
        let measured = (i128::from(least) + i128::from(most)) as f64 / 2.0;
        let mut at_ns = [0.0; 2];
        let mut off_ns = [0.0; 2];
        for side in 0..2 {
            let at = self.reference_ns(peer, side, peers[side])?;
            let theta = self.offset_ns(edge.dst, side, at)? - self.offset_ns(edge.src, side, at)?;
            (at_ns[side], off_ns[side]) = (at, measured - theta);
        }
        Some(Vote { at_ns, off_ns, own })
    }
}

/// An exchange of the gap.
struct Vote {
    /// Start and end: by the peer's clock before a step of the reference, and after it; ns since
    /// the beginning of the gap.
    at_ns: [f64; 2],
    /// Distance from the predictions of the one side and of the other.
    off_ns: [f64; 2],
    /// The node's first and last reading in it.
    own: [Timestamp<System>; 2],
}

/// Exchanges of a gap: those of all edges of its node.
pub(super) type Gathered<'a> = Vec<(Edge, &'a Exchange)>;

/// Fewest exchanges of a gap that locate a step.
const FEWEST_VOTES: usize = 4;
/// Additional cost that makes a position clearly worse than another.
const COST_CLEAR: f64 = 5.0;
/// Stamps are no finer, ns.
const SPREAD_MIN_NS: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// Node 1 runs 10 ppm fast and is set by `step_ns` at `at_ms`; exchanges every 20 ms with node
    /// 0, the reference, and node 2.
    fn placed(step_ns: i64, at_ms: i64, spread_ns: i64) -> Option<Placed> {
        let clock = |t: i64| t + t / 100_000 + 1_000_000 + if t >= at_ms * MS { step_ns } else { 0 };
        let known = |offset_ns: f64, drift_ppm: f64| SmoothedOffset {
            offset_ns,
            drift_ppm,
            sigma_ns: 10.0,
            half_width_95_ns: 20.0,
            asymmetry_sigma_ns: 0.0,
            drift_sigma_ppm: 0.01,
            offset_drift_covariance: 0.0,
        };
        let at = |node: NodeId, side: usize| match (node.0, side) {
            (1, 0) => Some(known(1e6, 10.0)),
            (1, _) => Some(known(1e6 + 40e3 + step_ns as f64, 10.0)),
            _ => Some(known(0.0, 0.0)),
        };
        let sides = Sides { between: [Timestamp::from_ns(0), Timestamp::from_ns(4_000 * MS)], at: &at };
        let mut all = Vec::new();
        for k in 0..190 {
            let t = (100 + 20 * k) * MS;
            let late = |n: i64| 5_000 + (k * 7919 + n * 104_729) % spread_ns;
            let edge = if k % 3 == 0 { Edge::new(1, 2) } else { Edge::new(0, 1) };
            let (a, b): (&dyn Fn(i64) -> i64, &dyn Fn(i64) -> i64) =
                if k % 3 == 0 { (&clock, &|t| t) } else { (&|t| t, &clock) };
            let pair = |from: &dyn Fn(i64) -> i64, to: &dyn Fn(i64) -> i64, t: i64, n: i64| {
                [from(t), to(t + late(n)), from(t + 1_000), to(t + 1_000 + late(n + 1))]
            };
            let [there, back] = [pair(a, b, t, 0), pair(b, a, t + 40_000, 2)];
            let stamps: Vec<i64> = there.into_iter().chain(back).collect();
            let t: [i64; 8] = stamps.try_into().expect("eight");
            let exchange = Exchange {
                edge,
                seq: k as u32,
                stamp: probe_sync_time::StampSource::Kernel,
                t: t.map(Timestamp::from_ns),
            };
            all.push((edge, exchange));
        }
        sides.by_exchanges(NodeId(1), all.iter().map(|(edge, exchange)| (*edge, exchange)))
    }

    #[test]
    fn a_step_is_placed_to_within_two_exchanges() {
        for (step_ns, at_ms) in
            [(5_000, 1_811), (-5_000, 3_007), (800_000, 777), (-40_000_000, 2_222), (3_000_000_000, 1_000)]
        {
            let Placed { between, readings } = placed(step_ns, at_ms, 800).expect("clear");
            let apart = (between[1] - between[0]).as_ns();
            assert!(
                between[0].as_ns() <= at_ms * MS && at_ms * MS <= between[1].as_ns() && apart < 41 * MS,
                "{between:?}"
            );
            // The clock showed this before the step, and that after it.
            let before = at_ms * MS + at_ms * MS / 100_000 + 1_000_000;
            assert!(readings.after.as_ns() <= before && before - readings.after.as_ns() < 21 * MS, "{readings:?}");
            let late = readings.before.as_ns() - before - step_ns;
            assert!((0..21 * MS).contains(&late), "{readings:?}");
        }
    }

    #[test]
    fn what_packets_cannot_tell_is_left_open() {
        // A step of 300 ns under queues of 100 µs: somewhere, or nowhere.
        if let Some(Placed { between, .. }) = placed(300, 2_000, 100_000) {
            assert!(between[0].as_ns() <= 2_000 * MS && 2_000 * MS <= between[1].as_ns(), "{between:?}");
        }
        // Nothing on one side of it.
        assert_eq!(placed(50_000, 90, 800), None);
    }

    #[test]
    fn an_event_places_a_step_to_a_look_at_the_clock() {
        let zero = |_: NodeId, _: usize| Some(SmoothedOffset::ZERO);
        let sides = Sides { between: [Timestamp::from_ns(0), Timestamp::from_ns(4_000 * MS)], at: &zero };
        let step = |after: i64, before: i64| StepRecord {
            after: Timestamp::from_ns(after * MS),
            before: Timestamp::from_ns(before * MS),
        };
        let found = sides.by_event(NodeId(0), step(1_700, 2_000)).expect("within the gap");
        assert_eq!(found.between.map(Timestamp::as_ns), [1_700 * MS, 2_000 * MS]);
        let cut = sides.by_event(NodeId(0), step(3_900, 4_200)).expect("reaches into the gap");
        assert_eq!(cut.between.map(Timestamp::as_ns), [3_900 * MS, 4_000 * MS]);
        assert_eq!(sides.by_event(NodeId(0), step(5_000, 5_300)), None);
    }
}
