//! The lateness report: the types that are printed and written as JSON.
//!
//! External programs read this JSON. All times are in ns on the reference clock.

use probe_sync_alignment::Omitted;
use probe_sync_alignment::collectives::Evidence;
use probe_sync_lateness::operation::{Class, LateIn};

use serde::Serialize;

use super::history::CriticalPath;

/// Who was late in a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lateness {
    /// Of the layout of this document: raised when a field changes its meaning or goes.
    pub schema: u32,
    /// How the clocks were learnt.
    pub clocks: String,
    /// Which clock the times are on.
    pub timeline: String,
    /// From the first arrival to the last end, ns.
    pub span_ns: i64,
    /// Of it, what is within steps, ns; all of it where no steps are known.
    pub stepped_ns: i64,
    /// Median over the instances of the standard deviation of the lead, ns; None without any.
    pub lead_sigma_median_ns: Option<f64>,
    /// How many independent steps the steps count as, given how long lateness lasts in this job;
    /// operations where steps are not known.
    pub independent_steps: f64,
    /// Who is late again and again, and costs time by it; most costly first.
    pub stragglers: Vec<Straggler>,
    /// Ranks of the job of which there is no trace; those whose numbers the traces do not say are
    /// not listed.
    pub missing_ranks: Vec<u32>,
    /// By rank, most lost time first.
    pub ranks: Vec<RankLine>,
    /// By host, most lost time first; only hosts with several ranks can be late as a whole.
    pub hosts: Vec<HostLine>,
    /// By name of operation.
    pub operations: Vec<OperationLine>,
    /// By step of the program, in order of time.
    pub steps: Vec<StepLine>,
    /// What the whole waited for.
    pub critical_path: Option<CriticalPath>,
    /// What the traces' own times would have said.
    pub as_recorded: AsRecorded,
    /// What is in no instance.
    pub unpaired: Unpaired,
    /// Operations that ended before their last arrival beyond what uncertainty explains: a clock is
    /// wrong, and nobody is named.
    pub impossible_instances: usize,
    /// What of the traces was not looked at.
    pub omitted: Omitted,
    /// What makes every other result doubtful.
    pub warnings: Vec<String>,
    /// What the user should know; the warnings come first.
    pub notes: Vec<String>,
    /// Every operation, in order of its last arrival.
    pub instances: Vec<LateInstance>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LateInstance {
    /// What it is called.
    pub name: String,
    /// Which one, in words.
    pub instance: String,
    /// Why its parts belong together.
    pub evidence: Evidence,
    /// Who waits: `all`, `some` (a rooted operation, a message, or an exchange in which some send
    /// nothing to some).
    pub waits: &'static str,
    /// The program's step that it is in; of a program compiled by XLA its run.
    pub step: Option<i64>,
    /// The rank that came last; None where nobody waited, or where clocks are not known well enough
    /// to name one.
    pub last_rank: Option<u32>,
    /// The rank whose arrival is the latest, named or not; None where nobody waited.
    pub latest_rank: Option<u32>,
    /// Ranks that may have been the last instead.
    pub tied_ranks: Vec<u32>,
    /// How many members whose traces are missing may have been the last instead; then nobody is
    /// named.
    pub missing: usize,
    /// The host of which every rank came after all others', where it has several ranks in the
    /// operation.
    pub late_host: Option<String>,
    /// From the last arrival of another host to this one's first; 0 without a late host.
    pub host_lead_ns: i64,
    /// The first arrival.
    pub first_arrival_ns: i64,
    /// The last arrival.
    pub last_arrival_ns: i64,
    /// From the second to the last arrival.
    pub lead_ns: i64,
    /// Its standard deviation.
    pub lead_sigma_ns: f64,
    /// From the first to the last arrival; where only some wait the longest wait.
    pub spread_ns: i64,
    /// Its standard deviation.
    pub spread_sigma_ns: f64,
    /// From the last arrival to the first end; less than 0 only where a clock is wrong.
    pub transfer_ns: i64,
    /// What its time goes to; None where only some wait.
    pub class: Option<Class>,
    /// Where the last rank lost its time; None where the launches are not known.
    pub late_in: Option<LateIn>,
    /// The rank that the traces' own times name.
    pub recorded_last_rank: u32,
    /// The spread of the traces' own times.
    pub recorded_spread_ns: i64,
    /// Its parts, in order of rank.
    pub arrivals: Vec<ArrivalLine>,
}

/// One rank's part in an operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ArrivalLine {
    /// The rank.
    pub rank: u32,
    /// When it came: the start of its event or kernel, of several devices the latest.
    pub arrival_ns: i64,
    /// How well its clock is known then.
    pub sigma_ns: f64,
    /// When its host launched it.
    pub launch_ns: Option<i64>,
    /// When it was through.
    pub end_ns: i64,
    /// How long it waited for the last of those it needs.
    pub wait_ns: i64,
}

/// A rank in all operations.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankLine {
    /// The rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Operations that it took part in.
    pub instances: usize,
    /// How often it came last for certain. It was last at least so often, and no more often than
    /// with `times_tied` added, unless a clock is more than 3 of its standard deviations off.
    pub times_last: usize,
    /// How often it was among those who may have been last, and nobody is named.
    pub times_tied: usize,
    /// How often its host, and how often its device, was late with it; both counts at once where it
    /// was both.
    pub times_cpu: usize,
    /// See `times_cpu`.
    pub times_gpu: usize,
    /// Sum of its leads: how much sooner operations would have begun without it.
    pub lost_ns: i64,
    /// The same as a share of all steps.
    pub lost_share: f64,
    /// Sum of its waits for others.
    pub waited_ns: i64,
    /// Median of its arrival less the median arrival of all ranks, over operations that all wait
    /// in.
    pub late_by_median_ns: i64,
    /// How much later it came each second, ns/s: a median of slopes; None of fewer than 26
    /// operations, of more where lateness lasts, and where one shift of the level explains it as
    /// well.
    pub trend_ns_per_s: Option<f64>,
    /// Its standard deviation, ns/s: a third of its 99.7 % interval's wider side.
    pub trend_sigma_ns_per_s: Option<f64>,
    /// How much sooner the job would have ended had it been as fast as the median; None where that
    /// was not asked: of ranks that cost little.
    pub saved_ns: Option<i64>,
}

/// A host in all operations.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostLine {
    /// Its name.
    pub host: String,
    /// Its ranks.
    pub ranks: Vec<u32>,
    /// How often all its ranks came after all others.
    pub times_last: usize,
    /// Sum of its leads.
    pub lost_ns: i64,
    /// The same as a share of all steps.
    pub lost_share: f64,
    /// As of a rank, with all its ranks.
    pub saved_ns: Option<i64>,
}

/// All operations of one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OperationLine {
    /// The name.
    pub name: String,
    /// How many.
    pub instances: usize,
    /// In how many the last rank is named.
    pub named: usize,
    /// The rank that was named most often.
    pub most_often_last: Option<u32>,
    /// How often.
    pub times: usize,
    /// Median spread.
    pub spread_median_ns: i64,
    /// Median transfer.
    pub transfer_median_ns: i64,
    /// How many of each class: transfer, skew, mixed, undecided.
    pub classes: [usize; 4],
}

/// A step of the program.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepLine {
    /// Its number.
    pub step: i64,
    /// When the first rank began it.
    pub start_ns: i64,
    /// How long it took, until the last was through.
    pub length_ns: i64,
    /// Operations in it.
    pub instances: usize,
    /// The rank that lost most of it; None where nobody is named.
    pub last_rank: Option<u32>,
    /// What that rank lost.
    pub last_rank_lost_ns: i64,
    /// What was lost: the sum of the leads in the operations of one rank, of that rank for which it
    /// is the most. Groups that do not meet lose time side by side.
    pub lost_ns: i64,
    /// The same as a share of the step.
    pub lost_share: f64,
}

/// A rank or a whole host that is late again and again.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Straggler {
    /// The rank; None: a whole host.
    pub rank: Option<u32>,
    /// The host.
    pub host: String,
    /// Steps in which it cost most; where steps are not known, nothing.
    pub steps: Vec<i64>,
    /// How many steps these are; where steps are not known, operations.
    pub times: usize,
    /// Out of how many.
    pub of: usize,
    /// How probable it is that chance alone names any rank or host so often, with no more steps
    /// counted than are independent.
    pub chance: f64,
    /// What it cost in these steps, by its leads.
    pub lost_ns: i64,
    /// How much sooner the job would have ended had it been as fast as the median; without what is
    /// set aside.
    pub saved_ns: i64,
    /// The same as a share of all steps.
    pub saved_share: f64,
    /// How much shorter each of `steps` would have been, in the same order.
    pub saved_by_step_ns: Vec<i64>,
}

/// What the traces' own times would have said.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AsRecorded {
    /// The rank that they name most often.
    pub rank: Option<u32>,
    /// How often.
    pub times: usize,
    /// Operations in which they name another than the named rank.
    pub wrong: usize,
    /// Out of so many with a named rank.
    pub of: usize,
    /// Median spread of their times.
    pub spread_median_ns: i64,
    /// Median spread on the reference clock.
    pub aligned_spread_median_ns: i64,
}

/// What is in no instance, and what would change that.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unpaired {
    /// Instances that no order pairs with certainty.
    pub ambiguous_instances: usize,
    /// Parts that no other trace shows.
    pub alone_parts: usize,
    /// Parts without a known root or peer.
    pub unordered_parts: usize,
    /// Parts that could not be kept or read back, and those of merged files.
    pub lost_parts: u64,
    /// What each kind is, and what to do about it.
    pub remedies: Vec<String>,
}

/// Of the layout of [`Lateness`].
pub(super) const SCHEMA: u32 = 4;
