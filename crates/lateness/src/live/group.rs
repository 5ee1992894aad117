//! Arrivals of all ranks in one group: paired by step, complete when every member has arrived.
//!
//! Members are the ranks that arrive; none is named before a group has been known for
//! [`SETTLING_NS`], so that every member has been heard of. A step that is lower than the rank's
//! last begins the steps anew: ranks that return to a checkpoint do so together.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::Clocks;
use super::account::{Counts, Place};
use super::change::{Change, Changes, Loss};
use super::elsewhere::Elsewhere;
use super::recent::{Judgement, Recent};
use crate::host::late_host;
use crate::operation::{Arrival, ClockError, DEVIATIONS, Waits, judge};

/// How often the steps have started again, and the step.
pub type Key = (u32, u64);

/// A group of ranks that wait for each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    members: BTreeMap<u32, Progress>,
    pending: BTreeMap<Key, Pending>,
    pub recent: Recent,
    /// For ranks and for hosts.
    pub changes: [Changes; 2],
    /// Operations judged since the run began.
    pub operations: u64,
    /// By rank and by host: how often it was last, and the sum of its leads, ns.
    pub totals: [HashMap<u32, (u64, i64)>; 2],
    first_heard_ns: Option<i64>,
    hosts: usize,
    /// Its number among the groups.
    number: u32,
    /// Operations in which all members have arrived, until they are judged.
    complete: VecDeque<Complete>,
    /// When the members left the last judged operation, ns on the reference clock.
    left_ns: Option<i64>,
}

/// An operation in which all members have arrived.
#[derive(Clone, Debug)]
struct Complete {
    arrivals: Vec<Arrival>,
    /// When this was found, ns on the reference clock.
    found_ns: i64,
}

/// Progress of a member.
#[derive(Copy, Clone, Debug, Default)]
struct Progress {
    last: Option<Key>,
    /// Consecutive operations that the others had without it.
    missed: u32,
}

/// An operation whose members have not all arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    /// Rank, and time on its own clock, ns.
    pub arrivals: Vec<(u32, i64)>,
    /// When the first of them was received, ns on the reference clock.
    pub heard_ns: i64,
}

/// Changes caused by one operation, for ranks (0) and for hosts (1).
pub(crate) type Changed = (usize, Change);

impl Group {
    /// Creates the group with this number.
    pub fn new(number: u32) -> Self {
        Self { number, ..Self::default() }
    }

    /// Its number among the groups.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Processes an arrival, received at `now_ns`. Returns false if the rank had arrived at this
    /// step before.
    pub fn arrive(&mut self, rank: u32, step: u64, at_ns: i64, now_ns: i64) -> bool {
        self.first_heard_ns.get_or_insert(now_ns);
        let progress = self.members.entry(rank).or_default();
        let key = match progress.last {
            Some((_, last)) if step == last => return false,
            Some((time, last)) => (time + u32::from(step < last), step),
            None => (self.pending.last_key_value().map_or(0, |((time, _), _)| *time), step),
        };
        *progress = Progress { last: Some(key), missed: 0 };
        let pending = self.pending.entry(key).or_insert_with(|| Pending { arrivals: Vec::new(), heard_ns: now_ns });
        pending.arrivals.push((rank, at_ns));
        true
    }

    /// Collects complete operations, records how long their members waited, and gives up those that
    /// will not complete.
    pub fn collect(
        &mut self,
        now_ns: i64,
        places: &[Place],
        clocks: &dyn Clocks,
        counts: &mut Counts,
        elsewhere: &mut Elsewhere,
    ) {
        if self.first_heard_ns.is_none_or(|first_ns| now_ns - first_ns < SETTLING_NS) {
            return self.give_up_beyond(PENDING_MAX, counts);
        }
        let hosts: std::collections::BTreeSet<u32> =
            self.members.keys().filter_map(|rank| places.get(*rank as usize)).map(|place| place.host).collect();
        self.hosts = hosts.len();
        let keys: Vec<Key> = self.pending.keys().copied().collect();
        for key in keys {
            let Some(pending) = self.pending.get(&key) else { continue };
            if pending.arrivals.len() == self.members.len() {
                let arrivals = self.pending.remove(&key).map(|pending| pending.arrivals).unwrap_or_default();
                match mapped(&arrivals, places, clocks) {
                    Some(arrivals) => {
                        elsewhere.take(self.number, &arrivals);
                        self.complete.push_back(Complete { arrivals, found_ns: now_ns });
                    }
                    None => counts.without_clock += 1,
                }
                counts.operations += 1;
            } else if self.has_passed(key, pending, now_ns) {
                self.give_up(key);
                counts.incomplete += 1;
            }
        }
        self.give_up_beyond(PENDING_MAX, counts);
    }

    /// Judges complete operations. If a member is also in other groups, this waits until the
    /// reports of all ranks about those have been received.
    pub fn settle(&mut self, now_ns: i64, places: &[Place], elsewhere: &Elsewhere) -> Vec<Changed> {
        let mut changed = Vec::new();
        while let Some(complete) = self.complete.front() {
            let in_several = || complete.arrivals.iter().any(|arrival| elsewhere.is_in_several(arrival.rank));
            let is_early = now_ns - complete.found_ns < ELSEWHERE_WITHIN_NS && self.complete.len() <= PENDING_MAX;
            if is_early && in_several() {
                break;
            }
            let arrivals = self.complete.pop_front().map(|complete| complete.arrivals).unwrap_or_default();
            changed.extend(self.judge(&arrivals, places, elsewhere));
        }
        changed
    }

    /// Whether the operation went on without its missing members: all others have arrived somewhere
    /// later, and so have those, or nothing has been received from them for long. Reports of one
    /// rank may come seconds later than those of another.
    fn has_passed(&self, key: Key, pending: &Pending, now_ns: i64) -> bool {
        let is_beyond =
            |rank: &u32| self.members.get(rank).and_then(|member| member.last).is_some_and(|last| last > key);
        let has_arrived = |rank: &u32| pending.arrivals.iter().any(|(other, _)| other == rank);
        let has_skipped = |rank: &u32| has_arrived(rank) || is_beyond(rank);
        pending.arrivals.iter().all(|(rank, _)| is_beyond(rank))
            && (now_ns - pending.heard_ns >= REPORTS_WITHIN_NS || self.members.keys().all(has_skipped))
    }

    /// Forgets an operation with missing members; a member missing in many operations is removed
    /// from the group.
    fn give_up(&mut self, key: Key) {
        let Some(pending) = self.pending.remove(&key) else { return };
        let has_arrived = |rank: &u32| pending.arrivals.iter().any(|(other, _)| other == rank);
        self.members.retain(|rank, progress| {
            progress.missed = if has_arrived(rank) { 0 } else { progress.missed + 1 };
            progress.missed < MISSED_MAX
        });
    }

    fn give_up_beyond(&mut self, most: usize, counts: &mut Counts) {
        while self.pending.len() > most {
            self.pending.pop_first();
            counts.incomplete += 1;
        }
    }

    fn judge(&mut self, arrivals: &[Arrival], places: &[Place], elsewhere: &Elsewhere) -> Vec<Changed> {
        let mut judged = judge(&Waits::All, arrivals);
        let left_ns = self.left_ns.unwrap_or(i64::MAX);
        let own_lead_ns =
            |late: usize, other: usize| elsewhere.own_lead_ns(self.number, left_ns, &arrivals[late], &arrivals[other]);
        let rank_of = |place: usize| arrivals[place].rank as u32;
        let host_of = |rank: usize| places.get(rank).map_or(u32::MAX, |place| place.host);
        let margin = |sigma_ns: f64| (DEVIATIONS * sigma_ns) as i64;
        let mut host = late_host(&Waits::All, &judged, arrivals, host_of);
        if let Some(late) = &mut host {
            let host = host_of(arrivals[late.last].rank);
            let (own, others): (Vec<usize>, Vec<usize>) =
                (0..arrivals.len()).partition(|place| host_of(arrivals[*place].rank) == host);
            let leads_ns = own.iter().flat_map(|own| others.iter().map(|other| own_lead_ns(*own, *other)));
            late.lead_ns = leads_ns.min().unwrap_or(0).min(late.lead_ns);
            late.is_certain &= late.lead_ns > margin(late.lead_sigma_ns);
        }
        let mut named = judged.named();
        if let Some(last) = named {
            let others = (0..arrivals.len()).filter(|place| *place != last);
            judged.lead_ns = others.map(|other| own_lead_ns(last, other)).min().unwrap_or(0).min(judged.lead_ns);
            named = named.filter(|_| judged.lead_ns > margin(judged.lead_sigma_ns));
        }
        let certain = host.filter(|late| late.is_certain).map(|late| (host_of(arrivals[late.last].rank), late.lead_ns));
        let at_ns = arrivals.iter().map(|arrival| arrival.start_ns).max().unwrap_or(0);
        self.left_ns = Some(at_ns);
        let named = named.map(rank_of);
        let floors_ns = self.recent.floors_ns();
        let of_ranks = Loss { at_ns, member: named, lead_ns: judged.lead_ns, margin_ns: margin(judged.lead_sigma_ns) };
        let of_hosts = Loss {
            at_ns,
            member: certain.map(|(host, _)| host),
            lead_ns: host.map_or(0, |late| late.lead_ns),
            margin_ns: host.map_or(0, |late| margin(late.lead_sigma_ns)),
        };
        let mut changed = Vec::new();
        let tests = [(of_ranks, self.members.len()), (of_hosts, self.hosts)];
        for (kind, (loss, members)) in tests.iter().enumerate() {
            changed.extend(self.changes[kind].take(loss, *members, floors_ns[kind]).into_iter().map(|one| (kind, one)));
            if let Some(member) = loss.member {
                let (times, lost_ns) = self.totals[kind].entry(member).or_default();
                (*times, *lost_ns) = (*times + 1, lost_ns.saturating_add(loss.lead_ns));
            }
        }
        self.operations += 1;
        self.recent.take(Judgement {
            at_ns,
            lead_ns: judged.lead_ns,
            certain_ns: tests.map(|(loss, _)| loss.certain_ns()),
            lead_sigma_ns: judged.lead_sigma_ns,
            spread_ns: judged.spread_ns,
            rank: named,
            host: certain,
        });
        for (kind, change) in &mut changed {
            if let Change::Begun(member, run) = change {
                let latest = self.recent.losses(*kind);
                *run = self.changes[*kind].restate(*member, latest).unwrap_or(*run);
            }
        }
        changed
    }

    /// The first operation that some members have entered and others have not: its key, the
    /// operation, and the missing ranks.
    pub fn stuck(&self) -> Option<(Key, &Pending, Vec<u32>)> {
        let last = |rank: &u32| self.members.get(rank).and_then(|member| member.last);
        let stands = |(key, pending): &(&Key, &Pending)| {
            pending.arrivals.iter().any(|(rank, _)| last(rank).as_ref() == Some(*key))
        };
        let (key, pending) = self.pending.iter().find(stands)?;
        let has_arrived = |rank: &u32| pending.arrivals.iter().any(|(other, _)| other == rank);
        let missing: Vec<u32> = self.members.keys().filter(|rank| !has_arrived(rank)).copied().collect();
        (!missing.is_empty()).then_some((*key, pending, missing))
    }

    /// The step of a rank's last arrival.
    pub fn last_step(&self, rank: u32) -> Option<u64> {
        self.members.get(&rank)?.last.map(|(_, step)| step)
    }

    /// Returns the last arrival of each member.
    pub fn last_arrivals(&self) -> impl Iterator<Item = (u32, Key)> {
        self.members.iter().filter_map(|(rank, progress)| Some((*rank, progress.last?)))
    }

    /// Whether an operation still has missing members.
    pub fn is_pending(&self, key: Key) -> bool {
        self.pending.contains_key(&key)
    }
}

/// The arrivals on the reference clock, in order of rank; `None` while some clock is unknown.
fn mapped(arrivals: &[(u32, i64)], places: &[Place], clocks: &dyn Clocks) -> Option<Vec<Arrival>> {
    let map = |(rank, at_ns): &(u32, i64)| {
        let (start_ns, sigma_ns) = clocks.on_reference(*rank, *at_ns)?;
        let clock = places.get(*rank as usize)?.clock;
        Some((*rank, start_ns, ClockError { clock, sigma_ns, ..ClockError::default() }))
    };
    let mut mapped: Vec<(u32, i64, ClockError)> = arrivals.iter().map(map).collect::<Option<_>>()?;
    mapped.sort_unstable_by_key(|(rank, ..)| *rank);
    // Ends are not known: nobody ends before the last has arrived.
    let end_ns = mapped.iter().map(|(_, start_ns, _)| *start_ns).max()?;
    let arrival = |(rank, start_ns, error): (u32, i64, ClockError)| Arrival {
        rank: rank as usize,
        start_ns,
        first_end_ns: end_ns,
        end_ns,
        launch_ns: None,
        begun_ns: None,
        error,
    };
    Some(mapped.into_iter().map(arrival).collect())
}

/// Time from the first arrival of a group received until its members are known, ns.
pub(crate) const SETTLING_NS: i64 = 3_000_000_000;
/// Time from the first arrival at an operation until the reports of all ranks have been received,
/// ns.
const REPORTS_WITHIN_NS: i64 = 10_000_000_000;
/// Time from the completion of an operation until the reports about what happened before it have
/// been received, ns.
const ELSEWHERE_WITHIN_NS: i64 = 2_000_000_000;
/// Most operations of a group with missing members; older ones are given up.
const PENDING_MAX: usize = 1 << 12;
/// A member that has missed this many consecutive operations is removed from the group.
const MISSED_MAX: u32 = 8;
