//! What ranks waited in other groups: one that is late because it waited there for somebody else is
//! not late by itself.
//!
//! All members leave an operation of a group together, when its last member has arrived. From then
//! until its next arrival in the group a rank computes, or waits in other groups; without those
//! waits it would have arrived that much earlier. Two members that were released together in
//! another group meanwhile are compared from then on.
//!
//! By hand: ranks 0 and 1 are group t, ranks 0 and 2 group d. In each step rank 1 comes to t 3 ms
//! after rank 0, so rank 0 comes to d 3 ms after rank 2. Of these 3 ms it waited 3 in t and rank 2
//! none: by its own doing rank 0 is not later than rank 2. Nobody is named in d, and rank 1 in t.

use std::collections::VecDeque;

use crate::operation::Arrival;

/// The latest waits of all ranks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Elsewhere {
    ranks: Vec<Waits>,
}

/// The latest waits of a rank, and whether it is in several groups.
#[derive(Clone, Debug, Default)]
struct Waits {
    group: Option<u32>,
    is_in_several: bool,
    /// In order of their ends.
    waits: VecDeque<Wait>,
}

#[derive(Copy, Clone, Debug)]
struct Wait {
    group: u32,
    from_ns: i64,
    until_ns: i64,
}

impl Elsewhere {
    /// Creates an empty record of waits for this many ranks.
    pub fn new(ranks: usize) -> Self {
        Self { ranks: vec![Waits::default(); ranks] }
    }

    /// Records that a rank is a member of a group.
    pub fn is_member(&mut self, rank: u32, group: u32) {
        let Some(of) = self.ranks.get_mut(rank as usize) else { return };
        of.is_in_several |= *of.group.get_or_insert(group) != group;
    }

    /// Whether a rank is in several groups.
    pub fn is_in_several(&self, rank: usize) -> bool {
        self.ranks.get(rank).is_some_and(|of| of.is_in_several)
    }

    /// Records how long the members waited in an operation of a group.
    pub fn take(&mut self, group: u32, arrivals: &[Arrival]) {
        let until_ns = arrivals.iter().map(|arrival| arrival.start_ns).max().unwrap_or(0);
        for arrival in arrivals {
            let Some(of) = self.ranks.get_mut(arrival.rank).filter(|of| of.is_in_several) else { continue };
            let oldest_ns = until_ns - KEPT_NS;
            while of.waits.len() >= KEPT_MAX || of.waits.front().is_some_and(|wait| wait.until_ns < oldest_ns) {
                of.waits.pop_front();
            }
            // Groups come one after the other, each with operations of the last second.
            let place = of.waits.partition_point(|wait| wait.until_ns <= until_ns);
            of.waits.insert(place, Wait { group, from_ns: arrival.start_ns, until_ns });
        }
    }

    /// How much later than another member of a group one arrived by its own doing, ns: without the
    /// waits in other groups since they were last released together, in this group (at `left_ns`)
    /// or in another.
    pub fn own_lead_ns(&self, group: u32, left_ns: i64, late: &Arrival, other: &Arrival) -> i64 {
        let both_ns = late.start_ns.min(other.start_ns);
        let is_of_both = |wait: &&Wait| {
            wait.until_ns <= both_ns
                && self.latest(other.rank, left_ns).any(|of| (of.group, of.until_ns) == (wait.group, wait.until_ns))
        };
        let since_ns = self.latest(late.rank, left_ns).find(is_of_both).map_or(left_ns, |wait| wait.until_ns);
        let own_ns = |arrival: &Arrival| {
            // An operation that had not ended by then, it did not wait for.
            let counts = |wait: &&Wait| wait.group != group && wait.until_ns <= arrival.start_ns;
            let waits = self.latest(arrival.rank, since_ns).filter(counts);
            arrival.start_ns - waits.map(|wait| wait.until_ns - wait.from_ns.max(since_ns)).sum::<i64>()
        };
        own_ns(late) - own_ns(other)
    }

    /// A rank's waits that ended after `since_ns`, latest first.
    fn latest(&self, rank: usize, since_ns: i64) -> impl Iterator<Item = &Wait> {
        let waits = self.ranks.get(rank).into_iter().flat_map(|of| of.waits.iter().rev());
        waits.take_while(move |wait| wait.until_ns > since_ns)
    }
}

/// Longer than any step that is judged.
const KEPT_NS: i64 = 60_000_000_000;
/// Most waits kept for a rank.
const KEPT_MAX: usize = 1 << 11;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::ClockError;

    fn arrival(rank: usize, start_ns: i64) -> Arrival {
        let error = ClockError::default();
        Arrival { rank, start_ns, first_end_ns: start_ns, end_ns: start_ns, launch_ns: None, begun_ns: None, error }
    }

    #[test]
    fn members_are_compared_from_their_latest_release_in_whichever_order_groups_come() {
        let mut elsewhere = Elsewhere::new(2);
        for (rank, group) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)] {
            elsewhere.is_member(rank, group);
        }
        // Both left group 1 at 100 ns, where rank 0 had waited for 40, and group 0 at 50 ns.
        elsewhere.take(1, &[arrival(0, 60), arrival(1, 100)]);
        elsewhere.take(0, &[arrival(0, 50), arrival(1, 45)]);
        // From 100 ns on neither has waited.
        assert_eq!(elsewhere.own_lead_ns(2, 0, &arrival(0, 130), &arrival(1, 110)), 20);
        // They left group 2 at 120 ns: nothing before that counts.
        assert_eq!(elsewhere.own_lead_ns(2, 120, &arrival(0, 150), &arrival(1, 130)), 20);
    }
}
