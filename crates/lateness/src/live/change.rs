//! When a member began to be late again and again, and when that ended.
//!
//! In every operation some member is last, so being last proves nothing. Take the operations that
//! cost most: those whose loss (the lead of the last) is at least [`floor`], the smallest of the
//! losses that together hold four fifths of those of the latest operations. If all n members are
//! alike, the costly operation is member i's with probability p₀ = 1/n. Page's cumulative sum of
//! the log-likelihood ratio of a member that has it with probability p₁,
//!
//! > Sₖ = max(0, Sₖ₋₁ + x·ln(p₁/p₀) + (1 − x)·ln((1 − p₁)/(1 − p₀))),  x = 1 where operation k is the member's,
//!
//! alarms at S ≥ h. Where nothing changes, the mean number of costly operations to a false alarm of
//! one sum is at least eʰ (Lorden, Procedures for reacting to a change in distribution, Ann. Math.
//! Statist. 42, 1971, theorem 2). There are two sums for each of n members, one for p₁ = p₀ + (1 −
//! p₀)/4 and one for p₁ = p₀ + 3·(1 − p₀)/4, and ranks and hosts are tested both; with h =
//! ln(4·n·10⁸) a group names a wrong member at most once in 10⁸ operations, while members are alike
//! and operations independent. The member began to be late where it first lost half the floor after
//! its sum last left 0, and at least a quarter of what it loses now: where ranks differ by chance
//! nearly as much as the floor, the sum may have left 0 long before.
//!
//! Clocks may be wrong for the whole job. So an operation counts as costly where any member may
//! have lost the floor (lead + 3σ), and as a member's only where it lost the floor for certain
//! (lead − 3σ), by which the floor itself is found: no clock error within 3σ makes the sums larger
//! than the true ones.
//!
//! It ends
//!
//! - at the last operation at which the member was late, when it has not been late again for at
//!   least [`QUIET_NS`] and for so many operations that its rate so far explains this once in a
//!   thousand times;
//! - there, too, when the sum of the opposite test exceeds ln 1000;
//! - when it has become rare: anybody is late at some operation now and then, so it need not stop
//!   altogether. A sum for the mean rate of the other members, but an eighth to a third of its own
//!   rate so far, against seven tenths of its own reaches ln 10⁶ and stays there: at seven tenths
//!   of its rate that happens at most once in 10⁶ operations. It ended at the last operation of the
//!   member's before that sum left 0, if that is at least [`QUIET_NS`] ago. Operations that clocks
//!   leave open are not counted.

use std::collections::HashMap;

use crate::operation::median;

/// An operation as seen by the tests for one kind of member.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Loss {
    /// Last arrival, ns on the reference clock.
    pub at_ns: i64,
    /// The named member; `None` if the clocks do not tell.
    pub member: Option<u32>,
    /// Time from the second-latest to the latest arrival, ns.
    pub lead_ns: i64,
    /// Possible contribution of the clocks, 3σ, ns.
    pub margin_ns: i64,
}

impl Loss {
    /// Certain part of the lead, ns; 0 if no member is named.
    pub fn certain_ns(&self) -> i64 {
        self.member.map_or(0, |_| (self.lead_ns - self.margin_ns).max(0))
    }
}

/// State of a member that has been last at costly operations since its sum left 0.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(crate) struct Run {
    /// Time of the first of these operations, ns.
    pub since_ns: i64,
    /// What happened since then.
    pub tally: Tally,
    /// Leads of at least this count as the member's, ns: half the floor.
    pub floor_ns: i64,
    sums: [f64; 2],
    doubt: f64,
    /// The sum for its having become rare.
    rarer: f64,
    /// What had happened when that sum left 0.
    before: Tally,
}

/// Operations of a group in which a member is late again and again.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    /// Time of the latest operation at which the member was late, ns.
    pub last_ns: i64,
    /// Operations, costly or not.
    pub operations: u64,
    /// Operations at which the member was late.
    pub times: u64,
    /// Operations since the latest of them.
    pub quiet: u64,
    /// Operations at which another member was late.
    pub others: u64,
    /// Sum of their leads, ns.
    pub lost_ns: i64,
}

/// The tests of one group: for all its ranks, or for all their hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// Members with a sum above 0.
    runs: HashMap<u32, Run>,
    /// Members that are late now.
    late: HashMap<u32, Run>,
}

/// A change caused by an operation.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// The member is late, since `Run::since_ns`.
    Begun(u32, Run),
    /// The member is no longer late, since `Tally::last_ns`.
    Ended(u32, Run),
}

impl Changes {
    /// Processes the next operation, of `members` members; `floor_ns` is the [`floor`] of those
    /// before.
    pub fn take(&mut self, loss: &Loss, members: usize, floor_ns: i64) -> Vec<Change> {
        let mut changes = self.look_for_ends(loss, members, floor_ns);
        let is_costly = floor_ns > 0 && loss.lead_ns + loss.margin_ns >= floor_ns;
        for (member, run) in &mut self.runs {
            run.pass(*member, loss);
        }
        if members < 2 || !is_costly {
            return changes;
        }
        let of = loss.member.filter(|_| loss.certain_ns() >= floor_ns);
        if let Some(member) = of.filter(|member| !self.late.contains_key(member)) {
            let floor_ns = floor_ns / 2;
            let first = || Run { since_ns: loss.at_ns, floor_ns, ..Run::default() }.after(member, loss);
            self.runs.entry(member).or_insert_with(first);
        }
        let steps = Alternative::both(members);
        self.runs.retain(|member, run| {
            for (sum, step) in run.sums.iter_mut().zip(&steps) {
                *sum = (*sum + if of == Some(*member) { step.hit } else { step.miss }).max(0.0);
            }
            run.floor_ns = floor_ns / 2;
            run.sums.iter().any(|sum| *sum > 0.0)
        });
        let threshold = (4.0 * members as f64 * OPERATIONS_PER_FALSE_NAME).ln();
        let begun = of.and_then(|member| Some((member, *self.runs.get(&member)?)));
        if let Some((member, run)) = begun.filter(|(_, run)| run.sums.iter().any(|sum| *sum >= threshold)) {
            let lasted_ns = (loss.at_ns - run.since_ns).max(1);
            if run.tally.lost_ns as f64 >= SHARE_MIN * lasted_ns as f64 {
                self.runs.remove(&member);
                self.late.insert(member, run);
                changes.push(Change::Begun(member, run));
            }
        }
        changes
    }

    /// States since when a member has been late, and how often, by the latest operations, oldest
    /// first. Its sum may have left 0 when all leads were small; what is small next to its present
    /// leads is not counted as late. Returns its state, if it is late.
    pub fn restate(&mut self, member: u32, latest: impl Iterator<Item = Loss>) -> Option<Run> {
        let run = self.late.get_mut(&member)?;
        let latest: Vec<Loss> = latest.filter(|loss| loss.at_ns >= run.since_ns).collect();
        let its = |loss: &&Loss| loss.member == Some(member);
        let floor_ns = present(latest.iter().filter(its).map(|loss| loss.lead_ns), run.floor_ns);
        let mut restated: Option<Run> = None;
        for loss in latest {
            if restated.is_none() && loss.member == Some(member) && loss.lead_ns >= floor_ns {
                let (since_ns, none) = (loss.at_ns, Tally::default());
                restated = Some(Run { since_ns, floor_ns, tally: none, before: none, ..*run });
            }
            if let Some(restated) = &mut restated {
                restated.pass(member, &loss);
            }
        }
        // Its leads may shrink without coming to an end.
        *run = restated.map_or(*run, |restated| Run { floor_ns: run.floor_ns, ..restated });
        Some(*run)
    }

    /// Late members and their state.
    pub fn late(&self) -> impl Iterator<Item = (u32, &Run)> {
        self.late.iter().map(|(member, run)| (*member, run))
    }

    fn look_for_ends(&mut self, loss: &Loss, members: usize, floor_ns: i64) -> Vec<Change> {
        let [low, _] = Alternative::both(members.max(2));
        let mut ended = Vec::new();
        self.late.retain(|member, run| {
            let is_its = run.pass(*member, loss);
            if loss.lead_ns + loss.margin_ns >= floor_ns.max(run.floor_ns) {
                run.doubt = (run.doubt - if is_its { low.hit } else { low.miss }).max(0.0);
            }
            let is_rare = run.has_become_rare(is_its, loss, members);
            if is_rare {
                run.tally = run.before;
            }
            let is_over = is_rare || run.has_gone_quiet(loss.at_ns) || run.doubt >= DOUBT_MAX;
            if is_over {
                ended.push(Change::Ended(*member, *run));
            }
            !is_over
        });
        ended
    }
}

impl Run {
    /// Counts an operation; returns true if the member was late.
    fn pass(&mut self, member: u32, loss: &Loss) -> bool {
        if self.rarer <= 0.0 {
            self.before = self.tally;
        }
        let is_its = loss.member == Some(member) && loss.lead_ns >= self.floor_ns;
        let tally = &mut self.tally;
        tally.operations += 1;
        if is_its {
            (tally.times, tally.quiet, tally.last_ns) = (tally.times + 1, 0, loss.at_ns);
            tally.lost_ns = tally.lost_ns.saturating_add(loss.lead_ns);
        } else {
            tally.quiet += 1;
            tally.others +=
                u64::from(loss.member.is_some_and(|other| other != member) && loss.lead_ns >= self.floor_ns);
        }
        is_its
    }

    /// Adds an operation to the sum that says that the member is late no more often than others;
    /// returns true if it decides so.
    fn has_become_rare(&mut self, is_its: bool, loss: &Loss, members: usize) -> bool {
        let rate = self.before.rate();
        let of_another =
            self.before.others as f64 / (self.before.operations.max(1) * (members.max(2) - 1) as u64) as f64;
        let (late, rare) = (STILL_LATE * rate, of_another.clamp(rate / 8.0, rate / 3.0));
        let may_be_its = loss.member.is_none() && loss.lead_ns + loss.margin_ns >= self.floor_ns;
        let step = match is_its {
            true => (rare / late).ln(),
            false if may_be_its => 0.0,
            false => ((1.0 - rare) / (1.0 - late)).ln(),
        };
        // No more than decides: after a pause it must not take long to see that it goes on.
        self.rarer = (self.rarer + step).clamp(0.0, RARE);
        self.rarer >= RARE && loss.at_ns - self.before.last_ns >= QUIET_NS
    }

    fn after(mut self, member: u32, loss: &Loss) -> Self {
        self.pass(member, loss);
        self
    }

    /// Whether a member that is late at this rate would have been late again by now, with a
    /// probability of 99.9 %.
    fn has_gone_quiet(&self, now_ns: i64) -> bool {
        let chance = (1.0 - self.tally.rate().min(0.999)).ln() * self.tally.quiet as f64;
        now_ns - self.tally.last_ns >= QUIET_NS && chance <= -DOUBT_MAX
    }
}

impl Tally {
    /// Share of the operations up to the latest late one at which the member was late.
    fn rate(&self) -> f64 {
        let until_latest = self.operations.saturating_sub(self.quiet).max(1);
        self.times as f64 / until_latest as f64
    }
}

/// What an operation adds to a sum.
#[derive(Copy, Clone, Debug)]
struct Alternative {
    hit: f64,
    miss: f64,
}

impl Alternative {
    fn both(members: usize) -> [Self; 2] {
        let before = 1.0 / members as f64;
        ALTERNATIVES.map(|share| {
            let after = before + share * (1.0 - before);
            Self { hit: (after / before).ln(), miss: ((1.0 - after) / (1.0 - before)).ln() }
        })
    }
}

/// Returns the least lead, ns, that is of the same kind as a member's present ones: a quarter of the
/// median of its latest costly leads, and at least `floor_ns`.
pub(crate) fn present(leads_ns: impl Iterator<Item = i64>, floor_ns: i64) -> i64 {
    let costly: Vec<i64> = leads_ns.filter(|lead_ns| lead_ns / 2 >= floor_ns).collect();
    let latest = costly[costly.len().saturating_sub(PRESENT)..].to_vec();
    floor_ns.max(median(latest).unwrap_or(0) / SMALLER)
}

/// Returns the smallest of the largest losses that together make up four fifths of the sum of all;
/// 0 if there are too few. A loss that exceeds the sum of all smaller ones says nothing about the
/// rest and is left out.
pub(crate) fn floor(losses_ns: &[i64]) -> i64 {
    if losses_ns.len() < LOSSES_MIN {
        return 0;
    }
    let mut sorted = losses_ns.to_vec();
    sorted.sort_unstable_by_key(|loss| std::cmp::Reverse(*loss));
    let mut rest: i128 = sorted.iter().map(|loss| i128::from(*loss)).sum();
    let exceeds = |loss: &&i64| {
        rest -= i128::from(**loss);
        i128::from(**loss) > rest
    };
    let aside = sorted.iter().take_while(exceeds).count().min(sorted.len() - LOSSES_MIN / 2);
    let total: i128 = sorted[aside..].iter().map(|loss| i128::from(*loss)).sum();
    let mut sum = 0;
    for loss in &sorted[aside..] {
        sum += i128::from(*loss);
        if 5 * sum >= 4 * total {
            return *loss;
        }
    }
    0
}

/// Lower bound of the mean number of operations of a group between two false names.
pub const OPERATIONS_PER_FALSE_NAME: f64 = 1e8;
/// A member that costs a smaller share of the time is not named.
pub const SHARE_MIN: f64 = 0.01;
/// How long a member must not have been late until it is no longer considered late.
pub const QUIET_NS: i64 = 3_000_000_000;
/// Share of the costly operations at which a late member is the last one, on a scale from chance
/// (0) to always (1).
const ALTERNATIVES: [f64; 2] = [0.25, 0.75];
/// Share of its rate so far at which a member is still late.
const STILL_LATE: f64 = 0.7;
/// ln 10⁶.
const RARE: f64 = 13.815_510_557_964_274;
/// ln 1000.
const DOUBT_MAX: f64 = 6.907_755_278_982_137;
/// Latest costly leads of a member whose median is the size of its present leads.
const PRESENT: usize = 16;
/// A lead that is smaller than the present ones by this factor is not of the same kind.
const SMALLER: i64 = 4;
/// Least number of losses that determine the floor.
const LOSSES_MIN: usize = 16;
