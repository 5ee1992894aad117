//! Judges a job: what its dumps say about who caused the stop.
//!
//! Causes come from four kinds of evidence, strongest first: members of one operation that
//! enqueued different operations; a rank that has not finished what most other members have
//! finished; a rank that waits for nothing while others wait for it; a cycle of ranks in which a
//! minority disagrees with the rest. Times decide only between ranks that these leave over.

use std::collections::{BTreeMap, BTreeSet};

use crate::clocks::Clocks;
use crate::job::Job;
use crate::verdict::{Cause, Certainty, Fault, Missing, Stop, Verdict, Waiting, group_name, named};
use crate::waits::{Identity, Root, Unfinished, Waits};

impl Job {
    /// Finds the ranks that stopped the job.
    pub fn judge(&self, clocks: &Clocks) -> Verdict {
        let judge = Judge { job: self, clocks, waits: Waits::new(self), missing: self.missing() };
        // Dumps that were written at different moments of a running job prove nothing.
        let mut causes = if self.advancing.is_empty() { judge.causes() } else { Vec::new() };
        // Messages and operations with a root are not counted, and a rank may wait in one.
        for cause in causes.iter_mut().filter(|cause| self.is_counted && cause.certainty == Certainty::Certain) {
            cause.certainty = Certainty::Likely;
        }
        let guilty: BTreeSet<u32> = causes.iter().flat_map(|cause| cause.ranks.iter().copied()).collect();
        for cause in &mut causes {
            if let Some((before_ns, bound_ns)) = judge.stopped_before(cause, &guilty) {
                (cause.stopped_before_ns, cause.clock_bound_ns) = (Some(before_ns), Some(bound_ns));
            }
        }
        Verdict {
            schema: SCHEMA,
            ranks: self.ranks.len(),
            stopped_at: judge.stop(&guilty),
            waiting: judge.waiting(&guilty),
            causes,
            missing_dumps: judge
                .missing
                .iter()
                .map(|(rank, reason)| Missing { rank: *rank, reason: reason.clone() })
                .collect(),
            stacks: Vec::new(),
            advancing: self.advancing.clone(),
        }
    }
}

/// A job while it is judged.
pub(crate) struct Judge<'a> {
    pub job: &'a Job,
    pub clocks: &'a Clocks,
    pub waits: Waits,
    pub missing: BTreeMap<u32, String>,
}

impl Judge<'_> {
    fn causes(&self) -> Vec<Cause> {
        let mut causes = self.mismatches();
        let mut known: BTreeSet<u32> = causes.iter().flat_map(|cause| cause.ranks.iter().copied()).collect();
        for cause in self.stopped_devices(&known) {
            known.extend(&cause.ranks);
            causes.push(cause);
        }
        let (lost, roots): (Vec<Root>, Vec<Root>) =
            self.waits.roots().into_iter().partition(|root| !self.unknown(root).is_empty());
        for root in &roots {
            if let Some(cause) = self.root(root, &known) {
                known.extend(&cause.ranks);
                causes.push(cause);
            }
        }
        causes.extend(self.without_dumps(&lost, &known));
        causes.sort_by(|a, b| (a.certainty, &a.ranks).cmp(&(b.certainty, &b.ranks)));
        causes
    }

    /// Judges one root of the graph.
    fn root(&self, root: &Root, known: &BTreeSet<u32>) -> Option<Cause> {
        if let ([rank], []) = (root.ranks.as_slice(), root.operations.as_slice()) {
            return (!known.contains(rank)).then(|| self.idle(*rank)).flatten();
        }
        let operations = root.operations.iter().map(|identity| &self.waits.operations[identity]);
        let members: BTreeSet<u32> = operations.flat_map(|operation| operation.waiting.keys()).copied().collect();
        if members.is_empty() || members.iter().any(|rank| known.contains(rank)) {
            return None;
        }
        match root.ranks.is_empty() {
            true => Some(self.stalled(root.operations[0])),
            false => Some(self.cycle(root)),
        }
    }

    /// Judges a rank that waits for nothing, and for which others wait.
    fn idle(&self, rank: u32) -> Option<Cause> {
        let (identity, operation) = self.waits.waiting_for(rank).min_by_key(|(_, operation)| operation.first_ns())?;
        let stack = self.job.ranks.get(&rank)?.last_frame.as_ref();
        let stack = stack.map(|frame| format!("; its last operation was enqueued in {frame}")).unwrap_or_default();
        let what = self.operation_name(*identity, operation);
        let why = match self.job.is_counted {
            true => format!("it has not begun {what} and is waiting in nothing that is counted"),
            false => format!("it never enqueued {what} and is not waiting for anything{stack}"),
        };
        Some(self.cause(vec![rank], Fault::NeverEnqueued, why, Certainty::Certain))
    }

    /// Judges ranks without dumps, for which alone operations wait.
    ///
    /// Such a rank may itself wait for another cause; then it is not named. Ranks that cannot wait
    /// for any other candidate come first, then those that cannot wait for any rank already named.
    /// If another cause is known, or only a message waits, it may wait in an operation that no dump
    /// shows, so it is only a candidate.
    fn without_dumps(&self, lost: &[Root], known: &BTreeSet<u32>) -> Vec<Cause> {
        let mut sets: Vec<(BTreeSet<u32>, &Root)> = lost.iter().map(|root| (self.unknown(root), root)).collect();
        let is_message = |root: &Root| matches!(root.operations[0], Identity::Message { .. });
        sets.sort_by_key(|(ranks, root)| (ranks.len(), is_message(root)));
        let candidates: BTreeSet<u32> = sets.iter().flat_map(|(ranks, _)| ranks).chain(known).copied().collect();
        let mut blamed = known.clone();
        let mut causes = Vec::new();
        for all in [true, false] {
            for (ranks, root) in &sets {
                let mut others = if all { candidates.difference(ranks).copied().collect() } else { blamed.clone() };
                others.extend(self.waits.victims(&others));
                let explained = ranks.iter().any(|rank| self.may_wait(*rank, &others));
                if blamed.is_disjoint(ranks) && !explained {
                    blamed.extend(ranks);
                    // One rank that may have failed for lack of this one may as well have stopped itself.
                    let waiting: BTreeSet<u32> = sets
                        .iter()
                        .filter(|(others, _)| others == ranks)
                        .flat_map(|(_, root)| &root.operations)
                        .flat_map(|identity| self.waits.operations[identity].waiting.keys().copied())
                        .collect();
                    let alone =
                        waiting.first().filter(|rank| waiting.len() == 1 && self.waits.perhaps_failed.contains(rank));
                    let decided = ranks.len() == 1 && known.is_empty() && !is_message(root) && alone.is_none();
                    let ranks: BTreeSet<u32> = ranks.iter().chain(alone).copied().collect();
                    causes.push(self.lost(&ranks, root.operations[0], decided));
                }
            }
        }
        causes
    }

    fn lost(&self, ranks: &BTreeSet<u32>, identity: Identity, decided: bool) -> Cause {
        let what = self.operation_name(identity, &self.waits.operations[&identity]);
        let reason = |rank| self.missing.get(rank).map_or("its dump does not contain this", String::as_str);
        let reasons: BTreeSet<&str> = ranks.iter().map(reason).collect();
        let why = format!("{what} waits for it; {}", reasons.into_iter().collect::<Vec<_>>().join(", "));
        let certainty = if decided { Certainty::Likely } else { Certainty::Undecided };
        self.cause(ranks.iter().copied().collect(), Fault::NoDump, why, certainty)
    }

    /// Returns the ranks without dumps for which the operations of a root wait.
    fn unknown(&self, root: &Root) -> BTreeSet<u32> {
        let operations = root.operations.iter().filter(|_| root.ranks.is_empty());
        operations.flat_map(|identity| &self.waits.operations[identity].unknown).copied().collect()
    }

    /// Returns true if a rank without a dump may wait for one of the others, as a member of an
    /// operation that waits for both.
    ///
    /// It cannot be in that operation if it is the only one that others lack in an operation which
    /// these others have to finish before.
    fn may_wait(&self, rank: u32, others: &BTreeSet<u32>) -> bool {
        let lacking = self.waits.operations.values().filter(|operation| operation.unknown.contains(&rank));
        let alone: Vec<&Unfinished> =
            lacking.clone().filter(|operation| operation.missing.is_empty() && operation.unknown.len() == 1).collect();
        lacking.into_iter().any(|operation| {
            let shared = operation.blockers().any(|other| other != rank && others.contains(&other));
            let before = |alone: &&&Unfinished| alone.waiting.keys().any(|peer| operation.missing.contains(peer));
            shared && alone.iter().find(before).is_none()
        })
    }

    /// Judges an operation that all members enqueued, at the head of their queues.
    fn stalled(&self, identity: Identity) -> Cause {
        let operation = &self.waits.operations[&identity];
        let what = self.operation_name(identity, operation);
        let idle: Vec<u32> = operation.waiting.iter().filter(|(_, own)| !own.started).map(|(rank, _)| *rank).collect();
        if !idle.is_empty() && 2 * idle.len() < operation.waiting.len() {
            let why = format!("{what} has begun on all other devices");
            return self.cause(idle, Fault::DeviceStopped, why, Certainty::Likely);
        }
        let why = format!("all members enqueued {what}, but it does not finish");
        self.by_time(operation.waiting.keys().copied().collect(), why)
    }

    /// Judges ranks that wait for each other: of two operations that members put in different
    /// orders, the minority is named.
    fn cycle(&self, root: &Root) -> Cause {
        let conflicts = self.waits.conflicts(root);
        let why = self.cycle_text(root);
        let minorities = conflicts.iter().filter(|[a, b]| a.len() != b.len());
        let outliers: BTreeSet<u32> =
            minorities.flat_map(|[a, b]| if a.len() < b.len() { a } else { b }).copied().collect();
        let unexplained: BTreeSet<u32> = conflicts
            .iter()
            .filter(|[a, b]| a.is_disjoint(&outliers) && b.is_disjoint(&outliers))
            .flatten()
            .flatten()
            .copied()
            .collect();
        let fault = match root.operations.iter().any(|identity| matches!(identity, Identity::Message { .. })) {
            true => Fault::PointToPoint,
            false => Fault::Order,
        };
        let members: BTreeSet<u32> = root.ranks.iter().copied().collect();
        if !outliers.is_empty() && unexplained.is_empty() && 2 * outliers.len() < members.len() {
            return self.cause(outliers.into_iter().collect(), fault, why, Certainty::Likely);
        }
        let candidates = if unexplained.is_empty() { members } else { outliers.union(&unexplained).copied().collect() };
        self.cause(candidates.into_iter().collect(), fault, why, Certainty::Undecided)
    }

    fn cycle_text(&self, root: &Root) -> String {
        let told = root.operations.iter().take(2).map(|identity| {
            let operation = &self.waits.operations[identity];
            let waiting: Vec<u32> = operation.waiting.keys().copied().collect();
            let blockers: BTreeSet<u32> = operation.blockers().collect();
            let blockers: Vec<u32> = blockers.into_iter().collect();
            let verb = if waiting.len() == 1 { "waits" } else { "wait" };
            format!(
                "{} {verb} in {} for {}",
                named(&waiting),
                self.operation_name(*identity, operation),
                named(&blockers)
            )
        });
        told.collect::<Vec<_>>().join("; ")
    }

    pub fn cause(&self, ranks: Vec<u32>, fault: Fault, why: String, certainty: Certainty) -> Cause {
        let hosts: BTreeSet<String> = ranks.iter().filter_map(|rank| self.host(*rank)).collect();
        let hosts = hosts.into_iter().collect();
        Cause {
            ranks,
            hosts,
            fault,
            why,
            certainty,
            likelihood_ratio: None,
            stopped_before_ns: None,
            clock_bound_ns: None,
        }
    }

    fn host(&self, rank: u32) -> Option<String> {
        let stated = self.job.ranks.get(&rank).and_then(|state| state.host.clone());
        stated.or_else(|| self.clocks.host(rank).map(str::to_owned))
    }

    /// Returns the first operation in which others wait for a cause.
    fn stop(&self, guilty: &BTreeSet<u32>) -> Option<Stop> {
        let blocked = |operation: &Unfinished| {
            operation.missing.union(&operation.unknown).any(|rank| guilty.contains(rank))
                && operation.waiting.keys().any(|rank| !guilty.contains(rank))
        };
        let direct = self.waits.operations.iter().filter(|(_, operation)| blocked(operation));
        let first = direct.min_by_key(|(_, operation)| operation.first_ns());
        let (identity, operation) =
            first.or_else(|| self.waits.operations.iter().min_by_key(|(_, operation)| operation.first_ns()))?;
        let group = &self.job.groups[identity.group() as usize];
        Some(Stop {
            operation: operation.waiting.values().next().map_or("", |own| self.job.text(own.name)).to_owned(),
            sequence: match identity {
                Identity::Collective { sequence, .. } => Some(*sequence),
                Identity::Message { .. } => None,
            },
            group: group.name.clone(),
            description: group.description.clone(),
            members: self.waits.members[identity.group() as usize].clone(),
            waiting: operation.waiting.keys().copied().collect(),
            missing: operation.missing.union(&operation.unknown).copied().collect(),
            unknown: operation.unknown.iter().copied().collect(),
        })
    }

    fn waiting(&self, guilty: &BTreeSet<u32>) -> Vec<Waiting> {
        let victims = self.waits.victims(guilty);
        let told = victims.into_iter().filter_map(|rank| {
            let identity = self.waits.of_rank.get(&rank)?.first()?;
            let operation = &self.waits.operations[identity];
            let blockers: BTreeSet<u32> = operation.blockers().filter(|other| *other != rank).collect();
            let operation = self.operation_name(*identity, operation);
            Some(Waiting { rank, operation, waits_for: blockers.into_iter().collect() })
        });
        told.collect()
    }

    pub fn operation_name(&self, identity: Identity, operation: &Unfinished) -> String {
        let group = self.group_name(identity.group());
        match identity {
            Identity::Collective { sequence, .. } => {
                let name = operation.waiting.values().next().map_or("", |own| self.job.text(own.name));
                format!("{name} #{sequence} of {group}")
            }
            Identity::Message { from, to, .. } => format!("the message from rank {from} to rank {to} in {group}"),
        }
    }

    pub fn group_name(&self, group: u32) -> String {
        let group = &self.job.groups[group as usize];
        group_name(&group.name, &group.description)
    }
}

const SCHEMA: u32 = 1;
