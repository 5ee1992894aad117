//! The lines of a smoothed run: one per round and node, or one per knot and node.

use probe_sync_lines::{NodeEstimate, OffsetRecord, Round, StepRecord, slew_ppm};
use probe_sync_time::{Duration, NodeId, Reference, Timestamp};

use super::gaps::Held;
use super::knots::{Knots, Reached, parts};
use super::smoothed::Smoothed;
use super::steps::StepGap;
use crate::Error;
use crate::motion::{NS_PER_S_PER_PPM, hard_between};
use crate::round::SolvedRound;
use crate::smoother::SmoothedOffset;

impl Smoothed {
    /// Returns one line per round and node.
    pub fn round_lines(&self) -> impl Iterator<Item = OffsetRecord> {
        self.rounds.iter().flat_map(move |SolvedRound { data, .. }| {
            let middle = data.midpoint();
            OffsetRecord::of_round(data).map(move |line| {
                let node = line.estimate.node_id;
                let known = self.known(node, middle);
                OffsetRecord {
                    clock_disturbed: line.clock_disturbed || self.gaps.hold(node, middle),
                    offset_drift_covariance: known.map(|known| known.offset_drift_covariance),
                    wander: known.map(|_| self.wander(node, [middle, middle])),
                    ..line
                }
            })
        })
    }

    /// Returns knots dense enough for linear interpolation, from the first window's start to the
    /// last one's end: the smoother's own, both sides of every step with a known place, and as many
    /// more as the curves need. Also returns the share of these that is within the limit of 10⁷
    /// lines; 1 if all are.
    pub fn sufficient_knots(&self) -> (Knots, f64) {
        self.knots_within(LINES_MAX as usize)
    }

    /// Returns such knots for at most this many lines. If there is no room for the knots of the
    /// smoother and of steps, some evenly spread ones are dropped; the first and the last are kept.
    pub(super) fn knots_within(&self, lines_max: usize) -> (Knots, f64) {
        let mut windows = self.in_order.iter().map(|place| &self.rounds[*place].data);
        let ends =
            [windows.clone().next().map(|data| data.window_start), windows.next_back().map(|data| data.window_end)];
        let sides = self.gaps.sides();
        let [start, end] = ends;
        let within =
            |at: &Timestamp<Reference>| start.is_none_or(|start| start <= *at) && end.is_none_or(|end| *at <= end);
        let mut fixed: Vec<Timestamp<Reference>> =
            self.solution.knots().chain(sides).filter(within).chain(start).chain(end).collect();
        fixed.sort_unstable();
        fixed.dedup();
        let nodes = self.rounds.first().map_or(1, |round| round.data.all_nodes.len().max(1));
        let wanted: Vec<f64> = fixed.windows(2).map(|pair| self.parts_between([pair[0], pair[1]], nodes)).collect();
        let more: f64 = wanted.iter().map(|parts| parts - 1.0).sum();
        let all = fixed.len() as f64 + more;
        let room = lines_max / nodes;
        if fixed.len() >= room {
            let times = thinned(&fixed, room);
            return (Knots::listed(times), (room as f64 / all.max(1.0)).min(1.0));
        }
        let share = ((room - fixed.len()) as f64 / more).min(1.0);
        let mut times = fixed.clone();
        for (pair, parts) in fixed.windows(2).zip(wanted) {
            let count = 1 + ((parts - 1.0) * share) as i64;
            let length = i128::from(pair[1].as_ns()) - i128::from(pair[0].as_ns());
            let at = |part: i64| (length * i128::from(part) / i128::from(count)) as i64;
            times.extend((1..count).map(|part| pair[0] + Duration::from_ns(at(part))));
        }
        let share = if share < 1.0 { times.len() as f64 / all } else { 1.0 };
        (Knots::listed(times), share)
    }

    /// Returns the number of parts needed by the node with the largest bend.
    fn parts_between(&self, ends: [Timestamp<Reference>; 2], nodes: usize) -> f64 {
        let seconds = self.seconds(ends[1]) - self.seconds(ends[0]);
        // Between both sides of a step nothing is to be joined.
        let crosses = |gap: &StepGap| {
            let [from, until] = gap.placed.map_or(gap.between, |placed| placed.between);
            ends[0] <= from.min(until) && from.max(until) <= ends[1]
        };
        let of_node = |node: NodeId| {
            if self.gaps.of(node).any(crosses) {
                return None;
            }
            let [a, b] = ends.map(|at| self.known(node, at));
            let (a, b) = a.zip(b)?;
            let reached = |known: SmoothedOffset| Reached {
                offset_ns: known.offset_ns - a.offset_ns,
                rate: known.drift_ppm * NS_PER_S_PER_PPM,
                sigma_ns: known.sigma_ns,
            };
            Some(parts(seconds, [reached(a), reached(b)]))
        };
        let others = (0..nodes as u32).map(NodeId).filter(|node| *node != self.reference);
        others.filter_map(of_node).fold(1.0, f64::max)
    }

    /// Returns true if all disturbances of a clock in a round are a step with a known place.
    fn only_placed_steps(&self, data: &Round, node: NodeId) -> bool {
        let concerned = |of: &NodeId| *of == node || *of == data.reference;
        let near = |gap: &StepGap| {
            let [a, b] = [data.window_start.min(data.window_end), data.window_start.max(data.window_end)];
            gap.placed.is_some_and(|placed| placed.between.iter().any(|at| a <= *at && *at <= b))
        };
        slew_ppm(data, node) == 0.0 && !data.watch.invalid.iter().any(concerned) && self.gaps.of(node).any(near)
    }

    /// Returns the knots at this `spacing` over the smoothed rounds, from the first window's start
    /// to the last one's end.
    ///
    /// # Errors
    /// [`Error::UnusableSpacing`] if it is below a millisecond or `nodes` nodes would have too many
    /// lines.
    pub fn knots(&self, spacing: Duration, nodes: usize) -> Result<Knots, Error> {
        let wrong = |reason: String| Error::UnusableSpacing { reason };
        if spacing < SPACING_MIN {
            return Err(wrong(format!("{} ms is too short; use 1ms or more", spacing.as_ns() as f64 / NS_PER_MS)));
        }
        let ends = self.in_order.first().zip(self.in_order.last());
        let Some((first, last)) = ends else {
            return Ok(Knots::listed(Vec::new()));
        };
        let start = self.rounds[*first].data.window_start;
        let span = i128::from(self.rounds[*last].data.window_end.as_ns()) - i128::from(start.as_ns());
        let spacing_ns = i128::from(spacing.as_ns());
        let count = (span.max(0) + spacing_ns - 1) / spacing_ns;
        if count * nodes as i128 > LINES_MAX {
            return Err(wrong(format!(
                "one line every {} ms gives {count} lines for each of {nodes} nodes, more than {LINES_MAX} in total; use a longer interval",
                spacing.as_ns() as f64 / NS_PER_MS
            )));
        }
        Ok(Knots::even(start, spacing, count as u64))
    }

    /// Returns one line per knot and node, in order of time.
    pub fn knot_lines(&self, knots: Knots) -> impl Iterator<Item = OffsetRecord> {
        let mut here = 0;
        // A step stands on the first line after it.
        let mut told = vec![false; self.gaps.len()];
        (0..knots.count()).flat_map(move |knot| {
            let (at, half) = (knots.at(knot), knots.half(knot));
            while self.in_order.get(here + 1).is_some_and(|_| self.boundary(here) <= at) {
                here += 1;
            }
            let data = &self.rounds[self.in_order[here]].data;
            let line = |node: &NodeEstimate| {
                let known = self.known(node.node_id, at);
                OffsetRecord {
                    round_id: data.round_id,
                    window_id: knot,
                    window_start: at - half,
                    window_end: at + half,
                    estimate: self.carried(node, here, at),
                    clock_disturbed: self.disturbed(data, node.node_id, at),
                    offset_drift_covariance: known.map(|known| known.offset_drift_covariance),
                    wander: known.map(|_| self.wander(node.node_id, [at, at])),
                    slew_ppm: slew_ppm(data, node.node_id),
                    step: self.step_before(node, at, &mut told),
                    broken_into: None,
                }
            };
            data.all_nodes.iter().map(line).collect::<Vec<_>>()
        })
    }

    /// Returns the node's step since its last reachable line; each step is reported once.
    fn step_before(&self, node: &NodeEstimate, at: Timestamp<Reference>, told: &mut [bool]) -> Option<StepRecord> {
        let passed = |gap: &StepGap| gap.between[0] < at && self.known(node.node_id, at).is_some();
        let after = |gap: &StepGap| if gap.placed.is_some() { gap.side(at) != Some(0) } else { gap.between[1] <= at };
        let mut gaps = self.gaps.own(node.node_id).filter(|(place, gap)| !told[*place] && passed(gap) && after(gap));
        let (place, gap) = gaps.next()?;
        told[place] = true;
        gap.placed.map(|placed| placed.readings).or_else(|| self.readings_around(gap))
    }

    /// Returns the readings of the node's clock at both ends of a gap.
    fn readings_around(&self, gap: &StepGap) -> Option<StepRecord> {
        let reading = |side: usize| {
            let at = gap.between[side];
            let offset = Duration::from_ns_f64(self.solution.at(gap.node, at)?.offset_ns.round());
            Some(at.of_reference_node() + offset)
        };
        Some(StepRecord { after: reading(0)?, before: reading(1)? })
    }

    /// Returns true if a line must not be trusted. A step at a known place disturbs only the time
    /// between its two readings.
    fn disturbed(&self, data: &Round, node: NodeId, at: Timestamp<Reference>) -> bool {
        match self.gaps.held(node, at) {
            Held::Free => data.clock_disturbed(node) && !self.only_placed_steps(data, node),
            Held::Side(_) => slew_ppm(data, node) != 0.0,
            Held::Unknown => true,
        }
    }

    /// Extrapolates a smoothed round's estimate from its midpoint to another time.
    pub(super) fn carried(&self, estimate: &NodeEstimate, here: usize, at: Timestamp<Reference>) -> NodeEstimate {
        let (node, mut carried) = (estimate.node_id, estimate.clone());
        let Some(there) = self.known(node, at) else {
            // Reached within the round, but no packet that may be used says where the clock was.
            carried.reachable = false;
            (carried.sigma_ns, carried.drift_sigma_ppm) = (f64::INFINITY, f64::INFINITY);
            (carried.bound_lo_ns, carried.bound_hi_ns) = (f64::NEG_INFINITY, f64::INFINITY);
            return carried;
        };
        // Across a step a round's interval says nothing.
        let middle = self.rounds[self.in_order[here]].data.midpoint();
        let free = self.known(node, middle).is_some() && !self.gaps.hold(node, at);
        carried.reachable |= !free;
        let interval = if free { self.hard_interval(node, here, at) } else { None };
        [carried.bound_lo_ns, carried.bound_hi_ns] = interval.unwrap_or([f64::NEG_INFINITY, f64::INFINITY]);
        there.put_into(&mut carried);
        carried
    }

    /// Returns the hard interval at a time near a round's midpoint: interpolated to the next
    /// midpoint, otherwise extrapolated from the one on the other side. `None` across a step or a
    /// disturbed clock, since packets before and after a step can bound an offset that was never
    /// true.
    fn hard_interval(&self, node: NodeId, here: usize, at: Timestamp<Reference>) -> Option<[f64; 2]> {
        let data = |place: usize| self.in_order.get(place).map(|round| &self.rounds[*round].data);
        let bounds = |data: &Round| {
            let estimate = data.all_nodes.get(node.index())?;
            Some([estimate.bound_lo_ns, estimate.bound_hi_ns])
        };
        let own = data(here).filter(|own| !own.clock_disturbed(node))?;
        let (middle, interval) = (own.midpoint(), bounds(own)?);
        if at == middle {
            return Some(interval);
        }
        let (next, last) = (here.checked_add(1), here.checked_sub(1));
        let mut others = if at > middle { [next, last] } else { [last, next] }.into_iter().flatten().filter_map(data);
        let joined = |other: &&Round| {
            let ends = [middle.min(other.midpoint()), middle.max(other.midpoint())];
            let apart = |gap: &StepGap| gap.between[0] < ends[1] && ends[0] < gap.between[1];
            ends[0] < ends[1] && !other.clock_disturbed(node) && !self.gaps.of(node).any(apart)
        };
        let other = others.find(joined)?;
        let seconds =
            |to: Timestamp<Reference>| (i128::from(to.as_ns()) - i128::from(middle.as_ns())) as f64 / NS_PER_S;
        let delta = seconds(other.midpoint());
        Some(hard_between([interval, bounds(other)?], delta.abs(), seconds(at) / delta))
    }
}

/// Returns evenly spread times, at most `room`, including the first and the last.
fn thinned(times: &[Timestamp<Reference>], room: usize) -> Vec<Timestamp<Reference>> {
    let (last, steps) = (times.len().saturating_sub(1), room.saturating_sub(1).max(1));
    (0..room.min(times.len())).filter_map(|place| times.get(place * last / steps).copied()).collect()
}

/// Smallest distance of knots.
const SPACING_MIN: Duration = Duration::from_ms(1);

/// Most lines, some 4 GB.
const LINES_MAX: i128 = 10_000_000;

const NS_PER_S: f64 = 1e9;
const NS_PER_MS: f64 = 1e6;
