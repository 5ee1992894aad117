//! All groups of a job: takes what ranks report, and says who is late and who is waited for.

use std::collections::{BTreeMap, BTreeSet};

use super::Clocks;
use super::account::{Counts, Place};
use super::batch::Batch;
use super::change::{Change, Run};
use super::elsewhere::Elsewhere;
use super::group::{Group, Key};
use super::recent::{Judgement, WINDOWS_NS, Window};

/// A rank or host that may be late.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Member {
    /// One rank.
    Rank(u32),
    /// All ranks of a host.
    Host(u32),
}

/// A member that is repeatedly late.
#[derive(Clone, Debug, PartialEq)]
pub struct Lateness {
    /// The late member.
    pub member: Member,
    /// Name of the group.
    pub group: String,
    /// Its first late operation, ns on the reference clock.
    pub since_ns: i64,
    /// Its latest late operation, ns on the reference clock.
    pub last_ns: i64,
    /// Operations of the group from the first to the latest late one.
    pub operations: u64,
    /// Operations at which the member was late.
    pub times: u64,
    /// Median lead of the late operations, ns.
    pub lead_ns: i64,
    /// Standard deviation of `lead_ns` due to clock errors, ns.
    pub lead_sigma_ns: f64,
    /// Share of the time since the first late operation that others waited for the member.
    pub share: f64,
    /// The last ten seconds, the last minute, and the whole run (length 0).
    pub windows: [Window; 3],
}

/// An operation that some members entered and others have not.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// Name of the group.
    pub group: String,
    /// Number of the operation.
    pub step: u64,
    /// First arrival, ns on the reference clock.
    pub since_ns: i64,
    /// Waiting time of the first member, ns.
    pub waited_ns: i64,
    /// Ranks that have not arrived, with the step of each rank's last arrival.
    pub missing: Vec<(u32, Option<u64>)>,
    /// Ranks that are waiting.
    pub waiting: Vec<u32>,
}

/// A change of state.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A member has begun to be late.
    LateBegun(Lateness),
    /// A member is no longer late.
    LateEnded(Lateness),
    /// Members have begun to wait for others.
    WaitBegun(Waiting),
    /// Members no longer wait, or wait for other ranks.
    WaitEnded(Waiting),
}

/// State of all groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// Late members, most costly first.
    pub late: Vec<Lateness>,
    /// Operations that wait for ranks.
    pub waiting: Vec<Waiting>,
    /// Counts of arrivals and operations.
    pub counts: Counts,
}

/// All groups of a job.
#[derive(Debug, Default)]
pub struct Watch {
    places: Vec<Place>,
    groups: BTreeMap<String, Group>,
    ranks: Vec<Heard>,
    waits: BTreeMap<String, (Key, Waiting)>,
    elsewhere: Elsewhere,
    counts: Counts,
}

/// Knowledge about one rank.
#[derive(Copy, Clone, Debug, Default)]
struct Heard {
    /// Time up to which all arrivals of the rank are known, on its own clock, ns.
    whole_until_ns: Option<i64>,
    /// Time of the latest message, ns on the reference clock.
    at_ns: Option<i64>,
    /// Time of the latest message that changed `whole_until_ns`, ns on the reference clock.
    advanced_ns: Option<i64>,
    /// Arrivals before this time on its own clock may be lost, ns.
    lost_until_ns: Option<i64>,
    dropped: u64,
}

impl Watch {
    /// Creates a watch of ranks at these places.
    pub fn new(places: Vec<Place>) -> Self {
        let ranks = vec![Heard::default(); places.len()];
        let elsewhere = Elsewhere::new(places.len());
        Self { places, ranks, elsewhere, ..Self::default() }
    }

    /// Processes a message of a rank, received at `now_ns` on the reference clock.
    pub fn hear(&mut self, rank: u32, word: &[u8], now_ns: i64) {
        match Batch::decode(word) {
            Some(batch) => self.take(rank, batch, now_ns),
            None => self.counts.unreadable += 1,
        }
    }

    /// Processes arrivals of a rank, received at `now_ns` on the reference clock.
    pub fn take(&mut self, rank: u32, batch: Batch, now_ns: i64) {
        let Some(heard) = self.ranks.get_mut(rank as usize) else { return };
        heard.at_ns = Some(now_ns);
        if heard.whole_until_ns != Some(batch.as_of_ns) {
            heard.advanced_ns = Some(now_ns);
        }
        if batch.is_whole {
            heard.whole_until_ns = Some(batch.as_of_ns);
        }
        // A rank that was started again counts from 0.
        let before = std::mem::replace(&mut heard.dropped, batch.dropped);
        if before != batch.dropped {
            heard.lost_until_ns = Some(batch.as_of_ns);
        }
        self.counts.dropped += batch.dropped.checked_sub(before).unwrap_or(batch.dropped);
        for arrivals in batch.groups {
            let is_known = self.groups.contains_key(&arrivals.name);
            if !is_known && self.groups.len() >= GROUPS_MAX {
                self.counts.beyond += arrivals.arrivals.len() as u64;
                continue;
            }
            let number = self.groups.len() as u32;
            let group = self.groups.entry(arrivals.name).or_insert_with(|| Group::new(number));
            self.elsewhere.is_member(rank, group.number());
            for stamp in arrivals.arrivals {
                let is_new = group.arrive(rank, stamp.step, stamp.at_ns, now_ns);
                self.counts.arrivals += 1;
                self.counts.repeated += u64::from(!is_new);
            }
        }
    }

    /// Judges the operations that are complete at `now_ns`, and returns the changes.
    pub fn advance(&mut self, now_ns: i64, clocks: &dyn Clocks) -> Vec<Event> {
        let mut events = Vec::new();
        for group in self.groups.values_mut() {
            group.collect(now_ns, &self.places, clocks, &mut self.counts, &mut self.elsewhere);
        }
        for (name, group) in &mut self.groups {
            for (kind, change) in group.settle(now_ns, &self.places, &self.elsewhere) {
                match change {
                    Change::Begun(member, run) => {
                        events.push(Event::LateBegun(lateness(name, group, (kind, member), &run, now_ns)));
                    }
                    Change::Ended(member, run) => {
                        events.push(Event::LateEnded(lateness(name, group, (kind, member), &run, now_ns)));
                    }
                }
            }
        }
        self.look_for_waits(now_ns, clocks, &mut events);
        events
    }

    /// Returns the state at `now_ns`.
    pub fn standing(&self, now_ns: i64) -> Standing {
        let mut late = Vec::new();
        for (name, group) in &self.groups {
            for (kind, changes) in group.changes.iter().enumerate() {
                late.extend(changes.late().map(|(member, run)| lateness(name, group, (kind, member), run, now_ns)));
            }
        }
        late.sort_by(|a: &Lateness, b| b.share.total_cmp(&a.share).then(a.member.cmp(&b.member)));
        Standing { late, waiting: self.waits.values().map(|(_, wait)| wait.clone()).collect(), counts: self.counts }
    }

    /// Returns for each group the members' last arrivals: how often the steps have begun again, and
    /// the step.
    pub fn last_arrivals(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = (u32, Key)>)> {
        self.groups.iter().map(|(name, group)| (name.as_str(), group.last_arrivals()))
    }

    /// Returns the ranks some of whose arrivals were lost.
    pub fn lost(&self) -> impl Iterator<Item = u32> {
        let ranks = self.ranks.iter().zip(0..);
        ranks.filter(|(heard, _)| heard.lost_until_ns.is_some()).map(|(_, rank)| rank)
    }

    /// Returns for each group and rank how often the rank was last since the run began, and the sum
    /// of its leads, ns.
    pub fn totals(&self) -> impl Iterator<Item = (&str, u32, u64, i64)> {
        self.groups.iter().flat_map(|(name, group)| {
            group.totals[0].iter().map(move |(rank, (times, lost_ns))| (name.as_str(), *rank, *times, *lost_ns))
        })
    }

    fn look_for_waits(&mut self, now_ns: i64, clocks: &dyn Clocks, events: &mut Vec<Event>) {
        let Self { groups, waits, ranks, .. } = self;
        waits.retain(|name, (key, wait)| {
            let goes_on = groups.get(name).is_some_and(|group| group.is_pending(*key));
            if goes_on {
                wait.waited_ns = now_ns - wait.since_ns;
            } else {
                events.push(Event::WaitEnded(wait.clone()));
            }
            goes_on
        });
        for (name, group) in groups.iter().filter(|(name, _)| !waits.contains_key(*name)).collect::<Vec<_>>() {
            let Some((key, pending, missing)) = group.stuck() else { continue };
            let starts = pending.arrivals.iter().filter_map(|(rank, at_ns)| clocks.on_reference(*rank, *at_ns));
            let since_ns = starts.map(|(start_ns, _)| start_ns).min().unwrap_or(pending.heard_ns);
            let waited_ns = now_ns - since_ns;
            let least_ns = WAIT_MIN_NS.max(WAIT_OF_USUAL.saturating_mul(group.recent.usual_spread_ns()));
            if waited_ns < least_ns || group.operations < OPERATIONS_MIN {
                continue;
            }
            let is_missing = |rank: &u32| {
                let Some(heard) = ranks.get(*rank as usize) else { return false };
                let whole_ns = heard.whole_until_ns.and_then(|until_ns| clocks.on_reference(*rank, until_ns));
                let lost_ns = heard.lost_until_ns.and_then(|until_ns| clocks.on_reference(*rank, until_ns));
                // It may have arrived, and this was lost.
                let has_lost = lost_ns.is_some_and(|(until_ns, _)| until_ns >= since_ns);
                let reports = whole_ns.is_some_and(|(until_ns, _)| until_ns >= since_ns + least_ns / 2) && !has_lost;
                let is_past = |at_ns: Option<i64>, most_ns| at_ns.is_none_or(|at_ns| now_ns - at_ns >= most_ns);
                let is_silent = is_past(heard.at_ns, SILENT_NS) || is_past(heard.advanced_ns, UNCHANGED_NS);
                reports || is_silent
            };
            // Those of whom nothing is known yet may have arrived.
            if !missing.iter().all(is_missing) {
                continue;
            }
            let wait = Waiting {
                group: name.clone(),
                step: key.1,
                since_ns,
                waited_ns,
                missing: missing.into_iter().map(|rank| (rank, group.last_step(rank))).collect(),
                waiting: pending.arrivals.iter().map(|(rank, _)| *rank).collect::<BTreeSet<_>>().into_iter().collect(),
            };
            events.push(Event::WaitBegun(wait.clone()));
            waits.insert(name.clone(), (key, wait));
        }
    }
}

/// Describes a late member.
fn lateness(name: &str, group: &Group, (kind, member): (usize, u32), run: &Run, now_ns: i64) -> Lateness {
    let lead_of = |judged: &Judgement| match kind {
        0 => (judged.rank == Some(member)).then_some(judged.lead_ns),
        _ => judged.host.filter(|(host, _)| *host == member).map(|(_, lead_ns)| lead_ns),
    };
    let until_ns = group.recent.latest_ns().unwrap_or(now_ns);
    let (lead_ns, lead_sigma_ns) = group.recent.lead(run.since_ns, run.floor_ns, lead_of);
    let [short, long] = WINDOWS_NS.map(|length_ns| group.recent.window(until_ns, length_ns, lead_of));
    let (late, lost_ns) = group.totals[kind].get(&member).copied().unwrap_or_default();
    let whole = Window { length_ns: 0, operations: group.operations, late, lost_ns };
    Lateness {
        member: if kind == 0 { Member::Rank(member) } else { Member::Host(member) },
        group: name.to_owned(),
        since_ns: run.since_ns,
        last_ns: run.tally.last_ns,
        operations: run.tally.operations.saturating_sub(run.tally.quiet),
        times: run.tally.times,
        lead_ns,
        lead_sigma_ns,
        share: run.tally.lost_ns as f64 / (run.tally.last_ns - run.since_ns).max(1) as f64,
        windows: [short, long, whole],
    }
}

/// Most groups kept.
const GROUPS_MAX: usize = 1 << 14;
/// Shortest wait that is reported, ns.
const WAIT_MIN_NS: i64 = 2_000_000_000;
/// A wait is reported once it exceeds this multiple of the usual time between the first and the
/// last arrival.
const WAIT_OF_USUAL: i64 = 5;
/// A rank without messages for this long is stopped or unreachable, ns.
const SILENT_NS: i64 = 2_500_000_000;
/// A rank whose messages add nothing for this long is stuck, although its session is not, ns.
const UNCHANGED_NS: i64 = 10_000_000_000;
/// Operations after which the members of a group are known.
const OPERATIONS_MIN: u64 = 3;
