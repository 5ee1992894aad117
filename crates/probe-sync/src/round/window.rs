//! The end of the current window.
//!
//! The last solved round states when the window ends on the reference clock; the node translates
//! that with its own offset (`t_i = t_ref + offset_i`), and a node without an offset uses the
//! window's length. Deadlines are on the monotonic clock: a jump of the system clock can shorten or
//! lengthen a window by half at most. The master may end it earlier.

use std::time::Instant;

use probe_sync_lines::{Decision, Round};
use probe_sync_time::{Duration, NodeId, Reference, System, Timestamp};

/// The planned end of the current window.
#[derive(Clone, Debug)]
pub(crate) struct WindowPlan {
    length: Duration,
    /// End on this node's clock, if its offset is known.
    end: Option<Timestamp<System>>,
    /// Offset of this node, if it is known.
    offset: Option<Duration>,
    /// True if the master ends it early.
    early: bool,
    /// True if the run ends with it, so that it is not cut short.
    closing: bool,
    begun: Instant,
}

impl WindowPlan {
    /// Plans the first window: only its length, which may be a shorter one, or its end on the
    /// node's own clock is known.
    pub fn first(decision: &Decision, shorter: Option<Duration>, end: Option<Timestamp<System>>) -> Self {
        let length = decision.next_window.min(shorter.unwrap_or(decision.next_window));
        Self { length, end, offset: None, early: false, closing: false, begun: Instant::now() }
    }

    /// Plans the next window: `t_i = t_ref + offset_i`.
    pub fn following(round: &Round, node: Option<NodeId>) -> Self {
        let estimate = node.and_then(|node| round.node(node)).filter(|estimate| estimate.reachable);
        let offset = estimate.map(|estimate| Duration::from_ns_f64(estimate.offset_ns));
        Self {
            length: round.decision.next_window,
            end: offset.map(|offset| round.decision.next_window_end.of_reference_node() + offset),
            offset,
            early: false,
            closing: round.decision.closing,
            begun: Instant::now(),
        }
    }

    /// Returns the planned length of the window.
    pub fn length(&self) -> Duration {
        self.length
    }

    /// Returns its end on this node's clock, if the node's offset is known.
    pub fn end(&self) -> Option<Timestamp<System>> {
        self.end
    }

    /// Returns true if the run ends with it, so that it is not cut short.
    pub fn closing(&self) -> bool {
        self.closing
    }

    /// Ends the window at this instant of the reference clock, on the master's order. A node that
    /// does not know its offset ends it at once.
    pub fn end_at(&mut self, at: Timestamp<Reference>) {
        if self.closing {
            return;
        }
        self.early = true;
        self.end = self.offset.map(|offset| at.of_reference_node() + offset);
    }

    /// Returns how long to wait from now, limited so that the whole wait is between half a window
    /// and one and a half, whatever the system clock shows; less if the master ends it early. `now`
    /// is the node's own clock; a rank that is not a node has none, and waits for the length.
    pub fn remaining(&self, now: Option<Timestamp<System>>) -> Duration {
        let length = self.length.as_ns();
        let passed = Duration::from_std(self.begun.elapsed()).as_ns();
        let by_length = if self.early { 0 } else { length.saturating_sub(passed) };
        let wait = self.end.zip(now).map_or(by_length, |(end, now)| (end - now).as_ns());
        let least = if self.early { 0 } else { length / 2 };
        let [least, most] = [least, length + length / 2].map(|whole| whole.saturating_sub(passed).max(0));
        Duration::from_ns(wait.clamp(least, most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(window_ms: i64) -> Decision {
        let next_window = Duration::from_ms(window_ms);
        Decision { next_window, next_window_end: Timestamp::from_ns(10_000_000_000), stop: false, ..Decision::STOP }
    }

    #[test]
    fn a_clock_that_jumps_moves_the_end_by_half_a_window_at_most() {
        let end = Timestamp::from_ns(5_000_000_000);
        let plan = WindowPlan::first(&decision(4_000), None, Some(end));
        let wait_ms = |now_ms: i64| plan.remaining(Some(Timestamp::from_ns(now_ms * 1_000_000))).as_ns() / 1_000_000;
        // Some of the time has passed since the plan was made.
        assert!((2_990..=3_000).contains(&wait_ms(2_000)));
        assert!((1_900..=2_000).contains(&wait_ms(1_000_000)) && (5_900..=6_000).contains(&wait_ms(-1_000_000)));
    }

    #[test]
    fn the_master_ends_a_window_before_half_of_it_has_passed() {
        let mut plan = WindowPlan::first(&decision(4_000), None, None);
        plan.offset = Some(Duration::from_ms(300));
        plan.end_at(Timestamp::from_ns(7_000_000_000));
        // At 7.3 s of its own clock.
        assert_eq!(plan.remaining(Some(Timestamp::from_ns(7_200_000_000))), Duration::from_ms(100));
        assert_eq!(plan.remaining(Some(Timestamp::from_ns(7_400_000_000))), Duration::ZERO);
        assert_eq!(plan.remaining(None), Duration::ZERO, "who is no node goes on at once");
        let mut closing = WindowPlan { closing: true, ..WindowPlan::first(&decision(4_000), None, None) };
        closing.end_at(Timestamp::from_ns(0));
        assert!(closing.remaining(None) > Duration::from_ms(3_000));
    }
}
