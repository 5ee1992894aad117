//! The verdict: which ranks caused the stop, why, and how certain that is.
//!
//! Causes come from four kinds of evidence, strongest first: members of one operation that
//! enqueued different operations; a rank that has not finished what most other members have
//! finished; a rank that waits for nothing while others wait for it; a cycle of ranks in which a
//! minority disagrees with the rest. Times decide only between ranks that these leave over.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use crate::clocks::Clocks;
use crate::job::{Job, Operation};
use crate::waits::{Identity, Root, Unfinished, Waits};

/// What stopped a job.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Verdict {
    /// Version of this document.
    pub schema: u32,
    /// Number of ranks whose dumps were read.
    pub ranks: usize,
    /// The operation at which the job stopped; absent if no rank has an unfinished operation.
    pub stopped_at: Option<Stop>,
    /// Independent causes.
    pub causes: Vec<Cause>,
    /// Ranks that wait for the causes, directly or through others.
    pub waiting: Vec<Waiting>,
    /// Ranks of the job without a usable dump.
    pub missing_dumps: Vec<Missing>,
}

/// An operation that cannot finish.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Stop {
    /// Name of the operation, such as `all_reduce`.
    pub operation: String,
    /// Its sequence number in the group; absent for messages.
    pub sequence: Option<u64>,
    /// Name of the group.
    pub group: String,
    /// Description of the group, such as `TENSOR_MODEL_PARALLEL_GROUP`.
    pub description: String,
    /// All members of the group.
    pub members: Vec<u32>,
    /// Members that have enqueued it and wait.
    pub waiting: Vec<u32>,
    /// Members that have not enqueued it, or whose dumps do not show it.
    pub missing: Vec<u32>,
}

/// One cause of the stop.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Cause {
    /// The guilty ranks; the candidates if `certainty` is `undecided`.
    pub ranks: Vec<u32>,
    /// Hosts of these ranks, where they are known.
    pub hosts: Vec<String>,
    /// Kind of fault.
    pub fault: Fault,
    /// What shows it, in a sentence.
    pub why: String,
    /// How certain it is.
    pub certainty: Certainty,
    /// Where times decided: how many times as likely this is as the next candidate.
    pub likelihood_ratio: Option<f64>,
    /// How long before the first of the waiting ranks the cause stopped enqueuing, ns; absent
    /// where their clocks cannot be compared.
    pub stopped_before_ns: Option<i64>,
    /// Bound of `stopped_before_ns`, ns.
    pub clock_bound_ns: Option<i64>,
}

/// What is wrong with a rank.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fault {
    /// It never enqueued an operation for which others wait, and waits for nothing itself.
    NeverEnqueued,
    /// Its device has not finished an operation that the other members have finished.
    DeviceStopped,
    /// It enqueued another operation, size or type than the other members.
    Mismatch,
    /// It enqueued operations of two groups in another order than the other members.
    Order,
    /// A message has no partner.
    PointToPoint,
    /// It left no usable dump, and others wait for it.
    NoDump,
    /// All members enqueued the operation, and it does not finish.
    Stalled,
}

/// How certain a cause is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Certainty {
    /// The dumps prove it.
    Certain,
    /// The majority of members or the times of the last enqueues say so.
    Likely,
    /// One of these ranks; the dumps do not say which.
    Undecided,
}

/// A rank that waits for others.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Waiting {
    /// The rank.
    pub rank: u32,
    /// Its first unfinished operation.
    pub operation: String,
    /// The ranks for which that operation waits.
    pub waits_for: Vec<u32>,
}

/// A rank without a usable dump.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Missing {
    /// The rank.
    pub rank: u32,
    /// Why there is none.
    pub reason: String,
}

impl Job {
    /// Finds the ranks that stopped the job.
    pub fn judge(&self, clocks: &Clocks) -> Verdict {
        let judge = Judge { job: self, clocks, waits: Waits::new(self), missing: self.missing() };
        let mut causes = judge.causes();
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
        }
    }
}

impl Verdict {
    /// Returns true if a cause is named, rather than left undecided.
    pub fn is_decided(&self) -> bool {
        self.causes.iter().any(|cause| cause.certainty != Certainty::Undecided)
    }

    /// Returns the verdict as text, at most ten lines of some 100 characters.
    pub fn text(&self) -> String {
        let mut text = String::new();
        match &self.stopped_at {
            None => text.push_str("stopped at   no rank has an unfinished operation\n"),
            Some(stop) => {
                let _ = writeln!(text, "stopped at   {stop}");
            }
        }
        for cause in self.causes.iter().take(CAUSES_SHOWN) {
            let _ = writeln!(text, "cause        {cause}");
        }
        if self.causes.len() > CAUSES_SHOWN {
            let _ = writeln!(text, "             and {} more (--json lists all)", self.causes.len() - CAUSES_SHOWN);
        }
        if self.causes.is_empty() {
            text.push_str("cause        none found\n");
        }
        if !self.waiting.is_empty() {
            let ranks: Vec<u32> = self.waiting.iter().map(|waiting| waiting.rank).collect();
            let guilty: usize = self.causes.iter().map(|cause| cause.ranks.len()).sum();
            let verb = if ranks.len() == 1 { "waits" } else { "wait" };
            let object = if guilty == 1 { "it" } else { "them" };
            let _ = writeln!(text, "waiting      {} {verb} for {object}", named(&ranks));
        }
        let missing: Vec<String> = self
            .missing_dumps
            .iter()
            .take(MISSING_SHOWN)
            .map(|missing| format!("{} ({})", missing.rank, missing.reason))
            .collect();
        let more = self.missing_dumps.len().saturating_sub(MISSING_SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let listed = if missing.is_empty() { "none".to_owned() } else { format!("{}{more}", missing.join(", ")) };
        let _ = writeln!(text, "no dump      {listed}");
        text
    }
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = group_name(&self.group, &self.description);
        f.write_str(&self.operation)?;
        if let Some(sequence) = self.sequence {
            write!(f, " #{sequence}")?;
        }
        write!(f, " of {name} {{{}}}: {}", shortened(&self.members), named(&self.waiting))?;
        f.write_str(if self.waiting.len() == 1 { " waits" } else { " wait" })?;
        match self.missing.is_empty() {
            true => f.write_str("; all members enqueued it"),
            false => write!(f, ", {} never enqueued it", named(&self.missing)),
        }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.certainty {
            Certainty::Undecided if self.ranks.len() == 1 => write!(f, "perhaps {}", named(&self.ranks))?,
            Certainty::Undecided => write!(f, "cannot be told between ranks {}", shortened(&self.ranks))?,
            Certainty::Likely => write!(f, "probably {}", named(&self.ranks))?,
            Certainty::Certain => f.write_str(&named(&self.ranks))?,
        }
        if !self.hosts.is_empty() {
            write!(f, " ({})", self.hosts.join(", "))?;
        }
        write!(f, ": {}", self.why)?;
        match (self.stopped_before_ns, self.clock_bound_ns) {
            (Some(before), Some(bound)) if before > bound && bound > 0 => {
                write!(f, "; it stopped {} before all that wait (clocks known to {})", time(before), time(bound))
            }
            (Some(before), Some(0)) if before > 0 => write!(f, "; it stopped {} before all that wait", time(before)),
            _ => Ok(()),
        }
    }
}

/// A job while it is judged.
struct Judge<'a> {
    job: &'a Job,
    clocks: &'a Clocks,
    waits: Waits,
    missing: BTreeMap<u32, String>,
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

    /// Finds operations whose members enqueued different things.
    fn mismatches(&self) -> Vec<Cause> {
        let mut blamed: BTreeSet<u32> = BTreeSet::new();
        let mut causes = Vec::new();
        for (identity, operation) in &self.waits.operations {
            let Identity::Collective { group, sequence } = *identity else { continue };
            let Some(found) = self.mismatch(operation) else { continue };
            let ranks: Vec<u32> = found.ranks.into_iter().filter(|rank| blamed.insert(*rank)).collect();
            if ranks.is_empty() {
                continue;
            }
            let why = format!("#{sequence} of {}: {}", self.group_name(group), found.why);
            causes.push(self.cause(ranks, Fault::Mismatch, why, found.certainty));
        }
        causes
    }

    fn mismatch(&self, operation: &Unfinished) -> Option<Found> {
        let by = |what: &dyn Fn(&Operation) -> String| {
            let mut ranks: BTreeMap<String, Vec<u32>> = BTreeMap::new();
            for (rank, operation) in &operation.waiting {
                ranks.entry(what(operation)).or_default().push(*rank);
            }
            ranks
        };
        let name = |operation: &Operation| self.job.text(operation.name).to_owned();
        let mut values = by(&name);
        if values.len() < 2 {
            let equal_sizes = values.keys().next().is_some_and(|name| has_equal_sizes(name));
            let size = |operation: &Operation| match operation.elements_in {
                Some(elements) => format!("{elements} elements of {}", self.job.text(operation.element)),
                None => String::new(),
            };
            values = by(&size);
            values.remove("");
            if !equal_sizes || values.len() < 2 {
                return None;
            }
        }
        let total: usize = values.values().map(Vec::len).sum();
        let (most, majority) = values.iter().max_by_key(|(_, ranks)| ranks.len())?;
        let decided = 2 * majority.len() > total;
        let others: Vec<u32> = match decided {
            true => values.iter().filter(|(value, _)| *value != most).flat_map(|(_, ranks)| ranks.clone()).collect(),
            false => values.values().flatten().copied().collect(),
        };
        let told = values.iter().map(|(value, ranks)| format!("{} enqueued {value}", named(ranks)));
        Some(Found {
            ranks: others,
            why: told.collect::<Vec<_>>().join(", "),
            certainty: if decided { Certainty::Likely } else { Certainty::Undecided },
        })
    }

    /// Finds ranks whose device has not finished what at least as many other members have.
    fn stopped_devices(&self, known: &BTreeSet<u32>) -> Vec<Cause> {
        let mut blamed: BTreeSet<u32> = known.clone();
        let mut causes = Vec::new();
        for (identity, operation) in &self.waits.operations {
            let Identity::Collective { group, sequence } = *identity else { continue };
            let synchronizes = operation.waiting.values().all(|own| synchronizes(self.job.text(own.name)));
            if !synchronizes || operation.finished.len() < operation.waiting.len() {
                continue;
            }
            for (rank, own) in &operation.waiting {
                if blamed.insert(*rank) {
                    let finished: Vec<u32> = operation.finished.iter().copied().collect();
                    let why = format!(
                        "its device has not finished {} #{sequence} of {}, which {} finished",
                        self.job.text(own.name),
                        self.group_name(group),
                        named(&finished)
                    );
                    causes.push(self.cause(vec![*rank], Fault::DeviceStopped, why, Certainty::Certain));
                }
            }
        }
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
        let why = format!("it never enqueued {what} and waits for nothing{stack}");
        Some(self.cause(vec![rank], Fault::NeverEnqueued, why, Certainty::Certain))
    }

    /// Judges ranks without dumps, for which alone operations wait.
    ///
    /// Such a rank may itself wait for another cause; then it is not named. First come those that
    /// cannot wait for any other candidate, then those that cannot wait for what is named already.
    /// Where another cause is known, or only a message waits, it may wait in an operation that no
    /// dump shows, so it is no more than a candidate.
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
                    let decided = ranks.len() == 1 && known.is_empty() && !is_message(root);
                    causes.push(self.lost(ranks, root.operations[0], decided));
                }
            }
        }
        causes
    }

    fn lost(&self, ranks: &BTreeSet<u32>, identity: Identity, decided: bool) -> Cause {
        let what = self.operation_name(identity, &self.waits.operations[&identity]);
        let reason = |rank| self.missing.get(rank).map_or("its dump does not say", String::as_str);
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

    /// Judges an operation that all members enqueued, at the head of what each has to do.
    fn stalled(&self, identity: Identity) -> Cause {
        let operation = &self.waits.operations[&identity];
        let what = self.operation_name(identity, operation);
        let idle: Vec<u32> = operation.waiting.iter().filter(|(_, own)| !own.started).map(|(rank, _)| *rank).collect();
        if !idle.is_empty() && 2 * idle.len() < operation.waiting.len() {
            let why = format!("{what} has begun on all devices but these");
            return self.cause(idle, Fault::DeviceStopped, why, Certainty::Likely);
        }
        let why = format!("all members enqueued {what}, and it does not finish");
        self.by_time(operation.waiting.keys().copied().collect(), Fault::Stalled, why)
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

    /// Names the candidate that stopped first, if the times of the last enqueues show it.
    fn by_time(&self, candidates: Vec<u32>, fault: Fault, why: String) -> Cause {
        match self.first_to_stop(&candidates) {
            None => self.cause(candidates, fault, why, Certainty::Undecided),
            Some((rank, lead_ns, ratio)) => {
                let why = format!("{why}; its last enqueue came {} before the others'", time(lead_ns));
                Cause { likelihood_ratio: Some(ratio), ..self.cause(vec![rank], fault, why, Certainty::Likely) }
            }
        }
    }

    /// Returns the candidate whose last enqueue came first, by how much, and the ratio of
    /// likelihoods against the next: differences among the other candidates are taken as Laplace
    /// distributed with their mean absolute deviation, so a lead of t is exp(t / deviation) times
    /// as likely for a rank that stopped as for one that waits.
    fn first_to_stop(&self, candidates: &[u32]) -> Option<(u32, i64, f64)> {
        let mut times: Vec<(u32, i64)> = Vec::new();
        for rank in candidates {
            times.push((*rank, self.job.ranks.get(rank)?.last_enqueue_ns?));
        }
        let reference = *times.first()?;
        let mut later: Vec<(i64, i64, u32)> = Vec::new();
        for candidate in &times {
            let (difference, bound) = self.clocks.difference(reference, *candidate)?;
            later.push((difference, bound, candidate.0));
        }
        later.sort_unstable();
        let [first, next, ..] = later.as_slice() else { return None };
        let bound = later.iter().map(|(_, bound, _)| *bound).max()?;
        let lead_ns = (next.0 - first.0).checked_sub(bound.saturating_mul(2))?;
        let others = &later[1..];
        let mean = others.iter().map(|(at, ..)| *at as f64).sum::<f64>() / others.len() as f64;
        let deviation = others.iter().map(|(at, ..)| (*at as f64 - mean).abs()).sum::<f64>() / others.len() as f64;
        let ratio = (lead_ns as f64 / deviation.max(LEAST_DEVIATION_NS)).min(LARGEST_LOGARITHM).exp();
        (ratio >= RATIO_TO_NAME).then_some((first.2, next.0 - first.0, ratio))
    }

    fn cause(&self, ranks: Vec<u32>, fault: Fault, why: String, certainty: Certainty) -> Cause {
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

    /// Returns how long before the last enqueue of any innocent rank this cause's came, and the
    /// bound of that.
    fn stopped_before(&self, cause: &Cause, guilty: &BTreeSet<u32>) -> Option<(i64, i64)> {
        let [rank] = cause.ranks.as_slice() else { return None };
        let own = (*rank, self.job.ranks.get(rank)?.last_enqueue_ns?);
        let innocent = self.job.ranks.iter().filter(|(other, _)| !guilty.contains(other));
        let others = innocent.filter_map(|(other, state)| Some((*other, state.last_enqueue_ns?)));
        let differences: Option<Vec<(i64, i64)>> = others.map(|other| self.clocks.difference(own, other)).collect();
        differences?.into_iter().min_by_key(|(difference, bound)| difference.saturating_sub(*bound))
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
            members: self.job.members()[identity.group() as usize].clone(),
            waiting: operation.waiting.keys().copied().collect(),
            missing: operation.missing.union(&operation.unknown).copied().collect(),
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

    fn operation_name(&self, identity: Identity, operation: &Unfinished) -> String {
        let group = self.group_name(identity.group());
        match identity {
            Identity::Collective { sequence, .. } => {
                let name = operation.waiting.values().next().map_or("", |own| self.job.text(own.name));
                format!("{name} #{sequence} of {group}")
            }
            Identity::Message { from, to, .. } => format!("the message from rank {from} to rank {to} in {group}"),
        }
    }

    fn group_name(&self, group: u32) -> String {
        let group = &self.job.groups[group as usize];
        group_name(&group.name, &group.description)
    }
}

/// Returns the description of a group, or its name where torch had no description.
fn group_name(name: &str, description: &str) -> String {
    match description {
        "" | "undefined" => format!("group {name}"),
        _ => description.to_owned(),
    }
}

/// A finding about some ranks.
struct Found {
    ranks: Vec<u32>,
    why: String,
    certainty: Certainty,
}

/// Returns true if no member can finish the operation before all have begun it.
fn synchronizes(name: &str) -> bool {
    let name = name.trim_start_matches('_');
    ["all_reduce", "allreduce", "all_gather", "allgather", "all_to_all", "alltoall", "reduce_scatter", "barrier"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Returns true if all members must pass as many elements as each other.
fn has_equal_sizes(name: &str) -> bool {
    let name = name.trim_start_matches('_');
    [
        "all_reduce",
        "allreduce",
        "broadcast",
        "reduce",
        "all_gather_base",
        "all_gather_into",
        "reduce_scatter_base",
        "allgather_base",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix))
}

/// `rank 3`, or `ranks 1, 2 and 5`.
fn named(ranks: &[u32]) -> String {
    match ranks {
        [] => "no rank".to_owned(),
        [rank] => format!("rank {rank}"),
        _ => format!("ranks {}", shortened(ranks)),
    }
}

/// The ranks in order, with runs as `3–7`.
fn shortened(ranks: &[u32]) -> String {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs = sorted.chunk_by(|a, b| a + 1 == *b).flat_map(|run| match run {
        [first, .., last] if run.len() > 2 => vec![format!("{first}–{last}")],
        _ => run.iter().map(u32::to_string).collect(),
    });
    let runs: Vec<String> = runs.collect();
    match runs.len() > RUNS_SHOWN {
        true => format!("{} and {} more", runs[..RUNS_SHOWN].join(", "), runs.len() - RUNS_SHOWN),
        false => runs.join(", "),
    }
}

fn time(ns: i64) -> String {
    match ns {
        1_000_000_000.. => format!("{:.1} s", ns as f64 / 1e9),
        1_000_000.. => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} µs", ns as f64 / 1e3),
    }
}

const SCHEMA: u32 = 1;
const CAUSES_SHOWN: usize = 5;
const MISSING_SHOWN: usize = 4;
const RUNS_SHOWN: usize = 12;

/// A scheduler wakes threads apart by this much.
const LEAST_DEVIATION_NS: f64 = 50_000.0;

/// Ratios above are not told apart.
const LARGEST_LOGARITHM: f64 = 20.0;

const RATIO_TO_NAME: f64 = 100.0;
