//! The latest operations of a group: what members lost in sliding windows, and what is usual.

use std::collections::VecDeque;

use super::change::{self, Loss};
use crate::operation::median;

/// A group's operations in a span of time that ends now.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Length, ns.
    pub length_ns: i64,
    /// Operations of the group.
    pub operations: u64,
    /// Operations at which the member was last.
    pub late: u64,
    /// Sum of the member's leads, ns.
    pub lost_ns: i64,
}

/// An operation after judgement.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Judgement {
    /// Last arrival, ns on the reference clock.
    pub at_ns: i64,
    /// Lead of the last arrival, ns.
    pub lead_ns: i64,
    /// Certain part of the leads of the named rank and of the named host, ns; 0 if none is named.
    pub certain_ns: [i64; 2],
    /// Standard deviation of the lead, ns.
    pub lead_sigma_ns: f64,
    /// From the first to the last arrival, ns.
    pub spread_ns: i64,
    /// The named rank.
    pub rank: Option<u32>,
    /// The named host and its lead, ns.
    pub host: Option<(u32, i64)>,
}

/// The latest operations of a group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    judged: VecDeque<Judgement>,
    /// Losses above which the latest operations count as costly, by ranks and by hosts, ns.
    floors_ns: [i64; 2],
    until_floors: usize,
    usual_spread_ns: i64,
}

impl Recent {
    /// Adds the next operation and forgets those older than the longest window.
    pub fn take(&mut self, judged: Judgement) {
        let oldest_ns = judged.at_ns.saturating_sub(WINDOWS_NS[1]);
        let kept = |recent: &VecDeque<Judgement>| {
            recent.len() >= KEPT_MAX
                || (recent.len() > FLOOR_OF && recent.front().is_some_and(|first| first.at_ns < oldest_ns))
        };
        while kept(&self.judged) {
            self.judged.pop_front();
        }
        self.judged.push_back(judged);
        if self.until_floors > 0 {
            self.until_floors -= 1;
            return;
        }
        self.until_floors = FLOOR_EVERY.min(self.judged.len() / 8);
        let latest = || self.judged.iter().rev().take(FLOOR_OF);
        self.floors_ns =
            [0, 1].map(|kind| change::floor(&latest().map(|judged| judged.certain_ns[kind]).collect::<Vec<_>>()));
        self.usual_spread_ns = median(latest().map(|judged| judged.spread_ns).collect()).unwrap_or(0);
    }

    /// Returns the losses of the latest operations by ranks (0) or by hosts (1), oldest first,
    /// without what clocks contribute.
    pub fn losses(&self, kind: usize) -> impl Iterator<Item = Loss> {
        self.judged.iter().map(move |judged| {
            let (member, lead_ns) = match kind {
                0 => (judged.rank, judged.lead_ns),
                _ => (judged.host.map(|(host, _)| host), judged.host.map_or(0, |(_, lead_ns)| lead_ns)),
            };
            Loss { at_ns: judged.at_ns, member, lead_ns, margin_ns: 0 }
        })
    }

    /// Returns the losses above which operations count as costly, for ranks and for hosts, ns.
    pub fn floors_ns(&self) -> [i64; 2] {
        self.floors_ns
    }

    /// Returns the median time from the first to the last arrival, ns.
    pub fn usual_spread_ns(&self) -> i64 {
        self.usual_spread_ns
    }

    /// Returns when the latest operation was complete, ns.
    pub fn latest_ns(&self) -> Option<i64> {
        self.judged.back().map(|judged| judged.at_ns)
    }

    /// Returns what the member lost in the `length_ns` before `now_ns`; `lead_of` returns its lead
    /// in an operation at which it was late, ns.
    pub fn window(&self, now_ns: i64, length_ns: i64, lead_of: impl Fn(&Judgement) -> Option<i64>) -> Window {
        let mut window = Window { length_ns, ..Window::default() };
        let since_ns = now_ns.saturating_sub(length_ns);
        for judged in self.judged.iter().rev().take_while(|judged| judged.at_ns >= since_ns) {
            window.operations += 1;
            if let Some(lead_ns) = lead_of(judged) {
                window.late += 1;
                window.lost_ns = window.lost_ns.saturating_add(lead_ns);
            }
        }
        window
    }

    /// Returns the median of the member's leads since `since_ns` that are of the size of its present
    /// ones, and the median standard deviation of those leads, ns. What it lost before is no part
    /// of it: most of its leads may be small ones from before it began to be late.
    pub fn lead(&self, since_ns: i64, floor_ns: i64, lead_of: impl Fn(&Judgement) -> Option<i64>) -> (i64, f64) {
        let since = || self.judged.iter().filter(|judged| judged.at_ns >= since_ns);
        let own = || since().filter_map(|judged| lead_of(judged).map(|lead_ns| (lead_ns, judged)));
        let floor_ns = change::present(own().map(|(lead_ns, _)| lead_ns), floor_ns);
        let large = || own().filter(|(lead_ns, _)| *lead_ns >= floor_ns);
        let mut sigmas: Vec<f64> = large().map(|(_, judged)| judged.lead_sigma_ns).collect();
        sigmas.sort_by(f64::total_cmp);
        let lead_ns = median(large().map(|(lead_ns, _)| lead_ns).collect()).unwrap_or(0);
        (lead_ns, sigmas.get(sigmas.len() / 2).copied().unwrap_or(0.0))
    }
}

/// The sliding windows: ten seconds and one minute, ns.
pub const WINDOWS_NS: [i64; 2] = [10_000_000_000, 60_000_000_000];
/// Most operations kept per group: one minute at more than 130 per second.
const KEPT_MAX: usize = 8192;
/// Number of latest operations from which the floor is computed.
const FLOOR_OF: usize = 256;
/// Operations between two computations of the floor.
const FLOOR_EVERY: usize = 16;
