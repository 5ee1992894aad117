//! Changes that nodes observed on their own clocks in the last rounds.
//!
//! `clocks` uses them to attribute a change to a node, `paths` to explain broken edges. It does not
//! assume that a watch sees everything: a virtual machine's watch may not.

use std::collections::VecDeque;

use probe_sync_lines::ClockEvent;
use probe_sync_time::{NodeId, RoundId};

use super::view::RoundView;
use crate::motion::NS_PER_S_PER_PPM;

/// Clock events of the last rounds, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    recent: VecDeque<(RoundId, NodeId, ClockEvent)>,
}

impl Events {
    pub(super) fn take_in(&mut self, view: &RoundView<'_>) {
        while self.recent.front().is_some_and(|(round, ..)| round.0 + ROUNDS_KEPT < view.round.0) {
            self.recent.pop_front();
        }
        self.recent.extend(view.clock_events.iter().map(|(node, event)| (view.round, *node, *event)));
    }

    /// Returns the sums of the steps in ns and of the rate changes in ns/s that a node has seen
    /// since a round.
    pub(super) fn since(&self, node: NodeId, round: RoundId) -> [f64; 2] {
        let own = self.recent.iter().filter(|(at, of, _)| *of == node && *at >= round);
        own.fold([0.0; 2], |[step, rate], (.., event)| {
            [step + event.step_ns as f64, rate + event.slew_ppm * NS_PER_S_PER_PPM]
        })
    }
}

/// Returns true if a node saw a step of its own clock larger than a watch's own error.
pub(super) fn is_step(event: &ClockEvent) -> bool {
    event.step_ns.unsigned_abs() > EVENT_MIN_NS
}

/// Returns true if the measured change is the one that was seen, and not another.
pub(super) fn is_same(measured: f64, seen: f64) -> bool {
    seen != 0.0 && (measured - seen).abs() < 0.5 * seen.abs()
}

/// Smallest step of a node's own clock that counts, ns.
const EVENT_MIN_NS: u64 = 1_000;

/// Number of rounds kept: as far back as a change reported now may have begun.
const ROUNDS_KEPT: u64 = 8;
