//! The verdict: which ranks caused the stop, why, and how certain that is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use crate::stack::Stack;

/// The verdict on a hung job.
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
    /// Where the programs of the ranks in `causes` are, if stacks were given.
    pub stacks: Vec<RankStack>,
    /// Groups in which ranks began operations while they were asked; then there are no causes.
    #[serde(skip)]
    pub advancing: Vec<String>,
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
    /// Members that have enqueued it and are waiting.
    pub waiting: Vec<u32>,
    /// Members that have not enqueued it, or whose dumps do not show it.
    pub missing: Vec<u32>,
    /// Those in `missing` whose dumps do not show it.
    #[serde(skip)]
    pub unknown: Vec<u32>,
}

/// One cause of the stop.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Cause {
    /// The guilty ranks; the candidates if `certainty` is `undecided`.
    pub ranks: Vec<u32>,
    /// Hosts of these ranks, if known.
    pub hosts: Vec<String>,
    /// Kind of fault.
    pub fault: Fault,
    /// Evidence, in one sentence.
    pub why: String,
    /// How certain it is.
    pub certainty: Certainty,
    /// How many times as likely this candidate is as the next; absent unless times decided.
    pub likelihood_ratio: Option<f64>,
    /// Time by which the cause stopped enqueuing before the first of the waiting ranks, ns; absent
    /// if their clocks cannot be compared.
    pub stopped_before_ns: Option<i64>,
    /// Bound of the clock error in `stopped_before_ns`, ns.
    pub clock_bound_ns: Option<i64>,
}

/// What is wrong with a rank.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fault {
    /// It never enqueued an operation for which others wait, and is not waiting itself.
    NeverEnqueued,
    /// Its device has not finished an operation that the other members have finished.
    DeviceStopped,
    /// It enqueued a different operation, size or type from the other members.
    Mismatch,
    /// It enqueued operations of two groups in a different order from the other members.
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
    /// The majority of members or the times of the last enqueues suggest it.
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
    /// Reason why there is no usable dump.
    pub reason: String,
}

/// Where a rank's program is.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RankStack {
    /// The rank.
    pub rank: u32,
    /// Functions of its main thread with file and line, the innermost first.
    pub frames: Vec<String>,
}

impl Verdict {
    /// Adds the stacks of the ranks in `causes`.
    #[must_use]
    pub fn with_stacks(mut self, stacks: &BTreeMap<u32, Stack>) -> Self {
        let ranks: BTreeSet<u32> = self.causes.iter().flat_map(|cause| &cause.ranks).copied().collect();
        let known = ranks.into_iter().filter_map(|rank| Some((rank, stacks.get(&rank)?)));
        self.stacks = known.map(|(rank, stack)| RankStack { rank, frames: stack.frames.clone() }).collect();
        self
    }

    /// Returns true if a cause is named, rather than left undecided.
    pub fn is_decided(&self) -> bool {
        self.causes.iter().any(|cause| cause.certainty != Certainty::Undecided)
    }

    /// Returns the verdict as text, at most ten lines of some 100 characters.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if !self.advancing.is_empty() {
            let groups = &self.advancing[..self.advancing.len().min(MISSING_SHOWN)];
            return format!("the job goes on: ranks began operations of {} while they were asked\n", groups.join(", "));
        }
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
        for stack in self.stacks.iter().take(CAUSES_SHOWN) {
            let _ = writeln!(text, "stack        rank {}: {stack}", stack.rank);
        }
        if self.stacks.len() > CAUSES_SHOWN {
            let _ = writeln!(text, "             and {} more (--json lists all)", self.stacks.len() - CAUSES_SHOWN);
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

impl std::fmt::Display for RankStack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = &self.frames[..self.frames.len().min(FRAMES_SHOWN)];
        let more = if self.frames.len() > shown.len() { ", …" } else { "" };
        write!(f, "in {}{more}", shown.join(", called by "))
    }
}

impl Stop {
    /// Returns the description of the group, or its name if there is no description.
    pub fn group_name(&self) -> String {
        group_name(&self.group, &self.description)
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
        let proven: Vec<u32> = self.missing.iter().filter(|rank| !self.unknown.contains(rank)).copied().collect();
        if !proven.is_empty() {
            write!(f, "; {} never enqueued it", named(&proven))?;
        }
        if !self.unknown.is_empty() {
            write!(f, "; nothing shows whether {} did", named(&self.unknown))?;
        }
        if self.missing.is_empty() {
            f.write_str("; all members enqueued it")?;
        }
        Ok(())
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.certainty {
            Certainty::Undecided if self.ranks.len() == 1 => write!(f, "perhaps {}", named(&self.ranks))?,
            Certainty::Undecided => write!(f, "one of ranks {}", shortened(&self.ranks))?,
            Certainty::Likely => write!(f, "probably {}", named(&self.ranks))?,
            Certainty::Certain => f.write_str(&named(&self.ranks))?,
        }
        if !self.hosts.is_empty() {
            write!(f, " ({})", self.hosts.join(", "))?;
        }
        write!(f, ": {}", self.why)?;
        match (self.stopped_before_ns, self.clock_bound_ns) {
            (Some(before), Some(bound)) if before > bound && bound > 0 => {
                write!(f, "; it stopped {} before all waiting ranks (clock uncertainty {})", time(before), time(bound))
            }
            (Some(before), Some(0)) if before > 0 => {
                write!(f, "; it stopped {} before all waiting ranks", time(before))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the description of a group, or its name if torch gave no description.
pub(crate) fn group_name(name: &str, description: &str) -> String {
    match description {
        "" | "undefined" => format!("group {name}"),
        _ => description.to_owned(),
    }
}

/// Lists ranks in words: `rank 3`, or `ranks 1, 4–7`.
pub fn named(ranks: &[u32]) -> String {
    match ranks {
        [] => "no rank".to_owned(),
        [rank] => format!("rank {rank}"),
        _ => format!("ranks {}", shortened(ranks)),
    }
}

/// The ranks in order, with runs as `3–7`.
pub(crate) fn shortened(ranks: &[u32]) -> String {
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

pub(crate) fn time(ns: i64) -> String {
    match ns {
        1_000_000_000.. => format!("{:.1} s", ns as f64 / 1e9),
        1_000_000.. => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} µs", ns as f64 / 1e3),
    }
}

const CAUSES_SHOWN: usize = 5;
const FRAMES_SHOWN: usize = 3;
const MISSING_SHOWN: usize = 4;
const RUNS_SHOWN: usize = 12;
