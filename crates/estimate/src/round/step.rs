//! Locates a step of a node between two readings of its own clock, from its packets.
//!
//! It runs when a window is cut in which the clock watch saw a step. The watch reads the clocks
//! about four times a second; packets leave and arrive much more often. Every packet between the
//! node and a peer measures θ = S_peer − S_node and its delay: `u = θ + delay` from the node to the
//! peer, `l = θ − delay` on the way back. Setting a clock forward by J lowers both by J, so each
//! packet in the watch's interval shows on which side of the step it was, compared with the line
//! through the packets that were certainly before or after the interval.
//!
//! By hand: J = 5000 ns, u before is 1040, 1050, 1045 ns; packets that leave at readings of 1, 2
//! and 8 ms have u = 1060, 1035, −3960: the clock was set between the readings 2 and 8 ms. Peers
//! order the packets: their clocks were not set, and show no reading twice.
//!
//! It does not find a step that the watch missed or separate two steps: the readings are then those
//! around both.

use probe_sync_lines::{ClockEvent, StepRecord};
use probe_sync_time::{Duration, Exchange, StampSource, System, Timestamp};

use crate::statistics::median;
use crate::votes::{COST_MAX, before_step, cost};

/// The event, with its step located by the exchanges of the window, edge by edge; unchanged if they
/// do not tell.
pub(super) fn placed<'a>(event: ClockEvent, edges: impl Iterator<Item = &'a [Exchange]>) -> ClockEvent {
    let Some(seen) = StepRecord::of_event(&event) else { return event };
    let mut votes: Vec<Vote> = edges.flat_map(ways).flat_map(|way| way.votes(&event, &seen)).collect();
    votes.sort_unstable_by(|a, b| a.unstepped.total_cmp(&b.unstepped));
    let costs: Vec<[f64; 2]> = votes.iter().map(|vote| vote.costs).collect();
    let Some([fewest, most]) = before_step(&costs, COST_CLEAR).filter(|_| votes.len() >= FEWEST_VOTES) else {
        return event;
    };
    // Where all packets are on one side, the watch's own readings stay the limit of the other.
    let after = fewest.checked_sub(1).map_or(seen.after, |last| votes[last].reading.max(seen.after));
    let before = votes.get(most).map_or(seen.before, |first| first.reading.min(seen.before));
    // Without the step the clock would have shown the second reading after the first.
    let in_order = i128::from(before.as_ns()) - i128::from(event.step_ns) >= i128::from(after.as_ns());
    if in_order { ClockEvent { step_between: Some([after, before]), ..event } } else { event }
}

/// A packet of the watch's interval.
struct Vote {
    /// Reading of the node's clock without the step, ns since some moment of the window.
    unstepped: f64,
    /// Its actual reading.
    reading: Timestamp<System>,
    costs: [f64; 2],
}

/// The packets of an edge in one direction: the node's reading, and u or l.
struct Way(Vec<(Timestamp<System>, Duration)>);

/// Stamps of an interface are converted by readings taken now and then: near a step they may be on
/// the other side of it.
fn ways(exchanges: &[Exchange]) -> [Way; 2] {
    let all = || exchanges.iter().filter(|exchange| exchange.stamp != StampSource::Hardware);
    [all().flat_map(|e| e.forward_arrived()).collect(), all().flat_map(|e| e.reverse_arrived()).collect()].map(Way)
}

impl Way {
    /// The votes of the packets in the watch's interval; none if a step of this size does not stand
    /// out.
    fn votes(&self, event: &ClockEvent, seen: &StepRecord) -> Vec<Vote> {
        let jump = event.step_ns as f64;
        // Relative to the step's latest moment, by the clock as it would be without the step, so
        // that no digit is lost.
        let Some(&(_, first)) = self.0.iter().min_by_key(|(reading, theta)| *reading + *theta) else {
            return Vec::new();
        };
        let latest = i128::from(seen.before.as_ns()) - i128::from(event.step_ns);
        let earliest = (i128::from(seen.after.as_ns()) - latest) as f64;
        let points: Vec<Point> = self
            .0
            .iter()
            .map(|&(reading, theta)| {
                let above = i128::from(theta.as_ns()) - i128::from(first.as_ns());
                // The peer's clock, less what it was ahead in the beginning.
                let at = (i128::from(reading.as_ns()) + above - latest) as f64;
                Point { reading, at, above: above as f64 }
            })
            .collect();
        // Beyond the interval a packet's side is known. It may be placed wrong by what the two
        // clocks drift apart within the window.
        let (least, most) =
            points.iter().fold((0.0, 0.0), |(least, most), point| (point.at.min(least), point.at.max(most)));
        let drift = DRIFT_MIN_NS.max(DRIFT * (most - least));
        let surely = |point: &Point| match point.at {
            at if at < earliest - drift => Some(point.above),
            at if at > drift => Some(point.above + jump),
            _ => None,
        };
        let mut known: Vec<[f64; 2]> = points.iter().filter_map(|point| Some([point.at, surely(point)?])).collect();
        known.sort_unstable_by(|a, b| a[0].total_cmp(&b[0]));
        let (before, after) = known.split_at(known.partition_point(|[at, _]| *at < 0.0));
        // The nearest ones: further away the clocks bend, and peers may be stepped themselves.
        let near = [&before[before.len().saturating_sub(NEAR_MAX)..], &after[..after.len().min(NEAR_MAX)]].concat();
        let Some(line) = Line::through(&near) else { return Vec::new() };
        if jump.abs() < JUMP_SPREADS_MIN * line.spread {
            return Vec::new();
        }
        // A line carried to the far end of the interval is off by more than its points scatter; of
        // a large step that decides nothing.
        let carried = before.is_empty() || after.is_empty();
        let unit = if carried { line.spread.max(jump.abs() / UNITS_OF_JUMP) } else { line.spread };
        let unclear = points.iter().filter(|point| surely(point).is_none());
        let vote = |point: &Point| {
            let off = point.above - line.at(point.at);
            let costs = [off, off + jump].map(|off| cost(off / unit));
            // What fits neither side was late, or between two steps, or concerns a step of the
            // peer: no vote.
            let fits = costs[0].min(costs[1]) < COST_MAX;
            fits.then(|| Vote { unstepped: point.at - line.at(point.at), reading: point.reading, costs })
        };
        unclear.filter_map(vote).collect()
    }
}

struct Point {
    reading: Timestamp<System>,
    at: f64,
    above: f64,
}

/// A line through points in order of time that a few long delays do not move.
struct Line {
    slope: f64,
    intercept: f64,
    /// The median distance from it.
    spread: f64,
}

impl Line {
    /// Through the medians of the earlier half and of the later one.
    fn through(points: &[[f64; 2]]) -> Option<Self> {
        if points.len() < FEWEST_POINTS {
            return None;
        }
        let middle = |half: &[[f64; 2]], axis: usize| median(half.iter().map(|point| point[axis]));
        let (early, late) = points.split_at(points.len() / 2);
        let run = middle(late, 0) - middle(early, 0);
        let slope = if run > 0.0 { (middle(late, 1) - middle(early, 1)) / run } else { 0.0 };
        let intercept = median(points.iter().map(|[at, value]| value - slope * at));
        let spread = median(points.iter().map(|[at, value]| (value - intercept - slope * at).abs()));
        Some(Self { slope, intercept, spread: spread.max(SPREAD_MIN_NS) })
    }

    fn at(&self, at: f64) -> f64 {
        self.intercept + self.slope * at
    }
}

/// Fewest packets in the watch's interval that locate a step.
const FEWEST_VOTES: usize = 4;
/// Fewest packets beyond it that a line goes through, and most on either side.
const FEWEST_POINTS: usize = 16;
const NEAR_MAX: usize = 64;
/// The watch knows a step's size no better, ns.
const SPREAD_MIN_NS: f64 = 100.0;
/// Number of spreads from which a step stands out of the delays: above it, packets between its
/// sides, of a line that is off, cost too much.
const JUMP_SPREADS_MIN: f64 = 20.0;
/// Two pairs that are late together, for example the first after a pause, do not locate a step.
const COST_CLEAR: f64 = 4.0 * COST_MAX;
/// Largest step, in the units of distances from the line.
const UNITS_OF_JUMP: f64 = 40.0;
/// More than two clocks drift apart within a window, and more than packets are late.
const DRIFT: f64 = 300e-6;
const DRIFT_MIN_NS: f64 = 3e6;

#[cfg(test)]
mod tests {
    use probe_sync_time::Edge;

    use super::*;

    const MS: i64 = 1_000_000;
    /// A vote that decides is the third on its side: exchanges begin 3 ms after each other and end
    /// 6 ms later.
    const LATE: i64 = 10 * MS;
    /// Reading of the clock at the beginning of the window of 2 s.
    const BEGIN: i64 = 1_790_000_000_000_000_000;

    /// A node that runs 20 ppm fast and is stepped at each (ms, ns): what a watch sees of it at the
    /// next quarter of a second, and the node's exchanges with three peers every 10 ms, whose
    /// delays vary by `queue` ns.
    fn stepped(steps: &[(i64, i64)], queue: i64) -> (ClockEvent, Vec<Vec<Exchange>>) {
        let jumped = |t: i64| steps.iter().filter(|(_, at_ms)| t >= at_ms * MS).map(|(jump, _)| jump).sum::<i64>();
        let own = |t: i64| BEGIN + t + t / 50_000 + jumped(t);
        let edge = |peer: i64| {
            let peers = |t: i64| BEGIN + t + 7_000_000 * peer;
            let exchange = |k: i64| {
                let delay = |n: i64| 5_000 + (k * 7_919 + n * 104_729 + peer * 31) % queue;
                let (t, back) = ((10 * k + 3 * peer) * MS, (10 * k + 3 * peer + 6) * MS);
                let there = |t: i64, n: i64| [own(t), peers(t + delay(n))];
                let back_again = |t: i64, n: i64| [peers(t), own(t + delay(n))];
                let stamps =
                    [there(t, 0), there(t + 100_000, 1), back_again(back, 2), back_again(back + 100_000, 3)].concat();
                let stamps: [i64; 8] = stamps.try_into().expect("eight");
                let (edge, t) = (Edge::new(0, peer as u32), stamps.map(Timestamp::from_ns));
                Exchange { edge, seq: k as u32, stamp: StampSource::Kernel, t }
            };
            (0..200).map(exchange).collect()
        };
        let at = Timestamp::from_ns(own((steps[0].1 / 250 + 1) * 250 * MS));
        (ClockEvent { step_ns: jumped(2_000 * MS), slew_ppm: 0.0, at, step_between: None }, (1..4).map(edge).collect())
    }

    fn all(edges: &[Vec<Exchange>]) -> impl Iterator<Item = &[Exchange]> {
        edges.iter().map(Vec::as_slice)
    }

    #[test]
    fn packets_place_a_step_between_two_of_them() {
        for (jump, at_ms) in [
            (5_000, 811),
            (-5_000, 307),
            (600_000, 1_204),
            (-600_000, 1_777),
            (40_000_000, 640),
            (-40_000_000, 1_222),
            (3_000_000_000, 990),
            (-3_000_000_000, 1_001),
        ] {
            let (seen, edges) = stepped(&[(jump, at_ms)], 400);
            let [after, before] = placed(seen, all(&edges)).step_between.expect("placed").map(Timestamp::as_ns);
            let showed = BEGIN + at_ms * MS + at_ms * MS / 50_000;
            let [early, late] = [showed - after, before - showed - jump];
            assert!((0..LATE).contains(&early) && (0..LATE).contains(&late), "{jump} at {at_ms}: {early} {late}");
        }
    }

    #[test]
    fn of_two_steps_the_readings_around_both_are_told() {
        // The watch told their sum; packets in between fit neither side.
        for [first, second] in [[100_000, 50_000], [90_000, 10_000], [10_000, 90_000]] {
            let (seen, edges) = stepped(&[(first, 771), (second, 911)], 400);
            let [after, before] = placed(seen, all(&edges)).step_between.expect("placed").map(Timestamp::as_ns);
            let showed = |at_ms: i64| BEGIN + at_ms * MS + at_ms * MS / 50_000;
            let [early, late] = [showed(771) - after, before - showed(911) - first - second];
            assert!((0..LATE).contains(&early) && (0..LATE).contains(&late), "{first} {second}: {early} {late}");
        }
    }

    #[test]
    fn a_step_at_the_windows_end_is_placed_by_packets_before_it() {
        // The last 200 ms are the watch's interval: the line is carried over it. Delays fall by 300
        // ns when it begins.
        let (seen, mut edges) = stepped(&[(200_000, 1_920)], 60);
        let begin = Timestamp::from_ns(BEGIN + 1_800 * MS);
        for exchange in edges.iter_mut().flatten() {
            let faster = if exchange.t[0] >= begin { 300 } else { 0 };
            for place in [1, 3, 5, 7] {
                exchange.t[place] = exchange.t[place] - Duration::from_ns(faster);
            }
        }
        let event = ClockEvent { step_between: Some([begin, seen.at]), ..seen };
        let [after, before] = placed(event, all(&edges)).step_between.expect("placed").map(Timestamp::as_ns);
        let showed = BEGIN + 1_920 * MS + 1_920 * MS / 50_000;
        let [early, late] = [showed - after, before - showed - 200_000];
        assert!((0..LATE).contains(&early) && (0..LATE).contains(&late), "{early} {late}");
    }

    #[test]
    fn a_step_that_does_not_stand_out_stays_where_the_watch_saw_it() {
        let (seen, edges) = stepped(&[(300, 811)], 100_000);
        assert_eq!(placed(seen, all(&edges)), seen);
        let slewed = ClockEvent { step_ns: 0, slew_ppm: 3.0, ..seen };
        assert_eq!(placed(slewed, all(&edges)), slewed, "a change of rate has no place");
        assert_eq!(placed(seen, std::iter::empty()), seen);
    }
}
