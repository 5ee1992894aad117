//! The last operations of each rank before the job stopped, on one clock where the clocks are known.

use crate::clocks::Clocks;
use crate::job::Job;

/// The last operations of some ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeline {
    /// By rank.
    pub ranks: Vec<RankTimeline>,
    /// True if all times are on one clock: those of one host, or on the reference clock.
    pub one_clock: bool,
}

/// The last operations of a rank, in the order of its enqueues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankTimeline {
    /// The rank.
    pub rank: u32,
    /// The operations; at most 32.
    pub operations: Vec<Enqueued>,
}

/// An operation that a rank has enqueued.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Enqueued {
    /// Name, number and group, such as `all_reduce #303 of default_pg`.
    pub name: String,
    /// Time of the enqueue, ns since 1970, on the reference clock if it is known.
    pub at_ns: i64,
    /// True if it has finished.
    pub is_finished: bool,
}

impl Job {
    /// Returns the last operations of these ranks, as far as dumps state their times.
    pub fn timeline(&self, ranks: &[u32], clocks: &Clocks) -> Timeline {
        let known = || ranks.iter().filter_map(|rank| self.ranks.get_key_value(rank));
        let hosts: Option<Vec<&str>> =
            known().map(|(rank, state)| state.host.as_deref().or_else(|| clocks.host(*rank))).collect();
        let one_host = hosts.is_some_and(|hosts| hosts.windows(2).all(|pair| pair[0] == pair[1]));
        let on_reference = known().all(|(rank, _)| clocks.offset_ns(*rank).is_some());
        let one_clock = on_reference || one_host;
        let ranks = known().map(|(rank, state)| {
            let offset_ns = clocks.offset_ns(*rank).filter(|_| on_reference).unwrap_or(0);
            let operations = state.recent.iter().map(|recent| {
                let group = &self.groups[recent.group as usize];
                let group = crate::verdict::group_name(&group.name, &group.description);
                let name = format!("{} #{} of {group}", self.text(recent.name), recent.sequence);
                let at_ns = recent.at_ns.saturating_sub(offset_ns);
                Enqueued { name, at_ns, is_finished: recent.is_finished }
            });
            RankTimeline { rank: *rank, operations: operations.collect() }
        });
        Timeline { ranks: ranks.collect(), one_clock }
    }
}
