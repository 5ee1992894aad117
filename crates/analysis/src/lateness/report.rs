//! The lateness report: the types that are printed and written as JSON.
//!
//! External programs read this JSON. All times are in ns on the reference clock.

use probe_sync_alignment::Omitted;
use probe_sync_alignment::collectives::Evidence;
use probe_sync_lateness::operation::{Class, LateIn};

use serde::Serialize;

use super::history::CriticalPath;

/// Lateness of the ranks of a job: output of `probe_sync stragglers --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lateness {
    /// Version of this document; raised when a field is removed or changes its meaning.
    pub schema: u32,
    /// How the clocks were determined.
    pub clocks: String,
    /// Clock of the times.
    pub timeline: String,
    /// Time from the first arrival to the last end, ns.
    pub span_ns: i64,
    /// Part of `span_ns` within steps, ns; all of it if no steps are known.
    pub stepped_ns: i64,
    /// Median over the instances of the standard deviation of the lead, ns; `None` (JSON: null) if
    /// there are none.
    pub lead_sigma_median_ns: Option<f64>,
    /// Number of independent steps to which the steps amount, given how long lateness lasts in this
    /// job; operations, if steps are unknown.
    pub independent_steps: f64,
    /// Ranks and hosts that are repeatedly late and cost time, most costly first.
    pub stragglers: Vec<Straggler>,
    /// Ranks of the job without a trace; ranks whose numbers the traces do not contain are not
    /// listed.
    pub missing_ranks: Vec<u32>,
    /// Results by rank, most time lost first.
    pub ranks: Vec<RankLine>,
    /// Results by host, most time lost first; only hosts with several ranks can be late as a whole.
    pub hosts: Vec<HostLine>,
    /// Results by operation name.
    pub operations: Vec<OperationLine>,
    /// Results by step of the program, in order of time.
    pub steps: Vec<StepLine>,
    /// Critical path of the job.
    pub critical_path: Option<CriticalPath>,
    /// Verdict that uncorrected times would have given.
    pub as_recorded: AsRecorded,
    /// Parts that are in no instance.
    pub unpaired: Unpaired,
    /// Operations that ended before their last arrival by more than uncertainty explains: a clock
    /// is wrong, so no rank is named.
    pub impossible_instances: usize,
    /// Traces and events that were not examined.
    pub omitted: Omitted,
    /// Warnings that put every other result in doubt.
    pub warnings: Vec<String>,
    /// Notes for the user, warnings first.
    pub notes: Vec<String>,
    /// All operations, in order of their last arrival.
    pub instances: Vec<LateInstance>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LateInstance {
    /// Operation name.
    pub name: String,
    /// Description of the instance.
    pub instance: String,
    /// Evidence that its parts belong together.
    pub evidence: Evidence,
    /// Which members wait: `all`, or `some` (a rooted operation, a message, or an exchange in which
    /// some ranks send nothing to some others).
    pub waits: &'static str,
    /// Step of the program that contains it; for a program compiled by XLA, its run.
    pub step: Option<i64>,
    /// The last rank; `None` (JSON: null) if no rank waited, or if clock errors are too large to
    /// name one.
    pub last_rank: Option<u32>,
    /// Rank of the latest arrival, named or not; `None` (JSON: null) if no rank waited.
    pub latest_rank: Option<u32>,
    /// Ranks that may have been last instead.
    pub tied_ranks: Vec<u32>,
    /// Number of members with missing traces that may have been last instead; if positive, no rank
    /// is named.
    pub missing: usize,
    /// Host whose ranks all arrived after all others, if it has several ranks in the operation.
    pub late_host: Option<String>,
    /// Time from the last arrival on another host to the first on this one, ns; 0 without a late
    /// host.
    pub host_lead_ns: i64,
    /// First arrival, ns.
    pub first_arrival_ns: i64,
    /// Last arrival, ns.
    pub last_arrival_ns: i64,
    /// Time from the second to the last arrival, ns.
    pub lead_ns: i64,
    /// Standard deviation of `lead_ns`, ns.
    pub lead_sigma_ns: f64,
    /// Time from the first to the last arrival, ns; if only some members wait, the longest wait.
    pub spread_ns: i64,
    /// Standard deviation of `spread_ns`, ns.
    pub spread_sigma_ns: f64,
    /// Time from the last arrival to the first end, ns; negative only if a clock is wrong.
    pub transfer_ns: i64,
    /// What dominates the time; `None` (JSON: null) if only some members wait.
    pub class: Option<Class>,
    /// Where the last rank became late; `None` (JSON: null) if the launches are unknown.
    pub late_in: Option<LateIn>,
    /// The last rank according to uncorrected times.
    pub recorded_last_rank: u32,
    /// Spread of the uncorrected times, ns.
    pub recorded_spread_ns: i64,
    /// Parts of the operation, in order of rank.
    pub arrivals: Vec<ArrivalLine>,
}

/// One rank's part in an operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ArrivalLine {
    /// The rank.
    pub rank: u32,
    /// Arrival, ns: the start of its event or kernel; with several devices, the latest.
    pub arrival_ns: i64,
    /// Standard deviation of the rank's clock at that time, ns.
    pub sigma_ns: f64,
    /// Launch by the host, ns.
    pub launch_ns: Option<i64>,
    /// End of the part, ns.
    pub end_ns: i64,
    /// Time that it waited for the last of the ranks it depends on, ns.
    pub wait_ns: i64,
}

/// Results for one rank over all operations.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankLine {
    /// The rank.
    pub rank: u32,
    /// Host name.
    pub host: String,
    /// Number of operations with a part on this rank.
    pub instances: usize,
    /// Number of operations in which the rank was certainly last. The true number is at least this,
    /// and at most this plus `times_tied`, unless a clock error exceeds 3 standard deviations.
    pub times_last: usize,
    /// Number of operations in which the rank is one of those that may have been last, and none is
    /// named.
    pub times_tied: usize,
    /// Number of operations at which its host (`times_gpu`: its device) became late; both count if
    /// both did.
    pub times_cpu: usize,
    /// See `times_cpu`.
    pub times_gpu: usize,
    /// Sum of its leads, ns: how much earlier operations would have begun without it.
    pub lost_ns: i64,
    /// `lost_ns` as a share of all steps.
    pub lost_share: f64,
    /// Sum of its waits for others, ns.
    pub waited_ns: i64,
    /// Median difference between its arrival and the median arrival of all ranks, ns, over
    /// operations in which all members wait.
    pub late_by_median_ns: i64,
    /// Growth of its lateness, ns/s: a median of slopes. `None` (JSON: null) for fewer than 26
    /// operations (more if lateness persists), and if a single shift of the level explains it as
    /// well.
    pub trend_ns_per_s: Option<f64>,
    /// Standard deviation of the trend, ns/s: a third of the wider side of its 99.7 % interval.
    pub trend_sigma_ns_per_s: Option<f64>,
    /// How much earlier the job would have ended had the rank been as fast as the median, ns;
    /// `None` (JSON: null) if not computed, as for ranks that cost little.
    pub saved_ns: Option<i64>,
}

/// Results for one host over all operations.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostLine {
    /// Host name.
    pub host: String,
    /// Ranks on the host.
    pub ranks: Vec<u32>,
    /// Number of operations in which all its ranks arrived after all others.
    pub times_last: usize,
    /// Sum of its leads, ns.
    pub lost_ns: i64,
    /// `lost_ns` as a share of all steps.
    pub lost_share: f64,
    /// How much earlier the job would have ended had all its ranks been as fast as the median, ns.
    pub saved_ns: Option<i64>,
}

/// Results for all operations of one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OperationLine {
    /// Operation name.
    pub name: String,
    /// Number of instances.
    pub instances: usize,
    /// Number of instances in which the last rank is named.
    pub named: usize,
    /// Rank named most often.
    pub most_often_last: Option<u32>,
    /// Number of instances in which that rank is named.
    pub times: usize,
    /// Median spread, ns.
    pub spread_median_ns: i64,
    /// Median transfer, ns.
    pub transfer_median_ns: i64,
    /// Number of instances of each class: transfer, skew, mixed, undecided.
    pub classes: [usize; 4],
}

/// Results for one step of the program.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepLine {
    /// Number of the step.
    pub step: i64,
    /// Start of the step on the first rank, ns.
    pub start_ns: i64,
    /// Length until the end on the last rank, ns.
    pub length_ns: i64,
    /// Number of operations in the step.
    pub instances: usize,
    /// Rank that lost most of the time; `None` (JSON: null) if none is named.
    pub last_rank: Option<u32>,
    /// Time lost by that rank, ns.
    pub last_rank_lost_ns: i64,
    /// Time lost, ns: the sum of leads in the operations of one rank, for the rank with the largest
    /// sum, since groups without common members lose time in parallel.
    pub lost_ns: i64,
    /// `lost_ns` as a share of the step.
    pub lost_share: f64,
}

/// A rank or a whole host that is repeatedly late.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Straggler {
    /// The rank; `None` (JSON: null) for a whole host.
    pub rank: Option<u32>,
    /// Host name.
    pub host: String,
    /// Steps in which it cost most; empty if steps are unknown.
    pub steps: Vec<i64>,
    /// Number of these steps; number of operations, if steps are unknown.
    pub times: usize,
    /// Number of steps in total; number of operations, if steps are unknown.
    pub of: usize,
    /// Probability that chance alone names any rank or host this often, counting only independent
    /// steps.
    pub chance: f64,
    /// Cost in these steps, ns: the sum of its leads.
    pub lost_ns: i64,
    /// How much earlier the job would have ended had it been as fast as the median, ns; excludes
    /// what is set aside.
    pub saved_ns: i64,
    /// `saved_ns` as a share of all steps.
    pub saved_share: f64,
    /// How much shorter each of `steps` would have been, ns, in the same order.
    pub saved_by_step_ns: Vec<i64>,
}

/// Verdict that uncorrected times would have given.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AsRecorded {
    /// Rank named most often.
    pub rank: Option<u32>,
    /// Number of operations in which that rank is named.
    pub times: usize,
    /// Operations in which uncorrected times name another rank.
    pub wrong: usize,
    /// Number of operations with a named rank.
    pub of: usize,
    /// Median spread of the uncorrected times, ns.
    pub spread_median_ns: i64,
    /// Median spread on the reference clock, ns.
    pub aligned_spread_median_ns: i64,
}

/// Parts that are in no instance, and how to change that.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unpaired {
    /// Instances that cannot be matched with certainty.
    pub ambiguous_instances: usize,
    /// Parts that appear in no other trace.
    pub alone_parts: usize,
    /// Parts without a known root or peer.
    pub unordered_parts: usize,
    /// Parts that could not be kept or read back, and those of merged files.
    pub lost_parts: u64,
    /// What each kind is, and what to do about it.
    pub remedies: Vec<String>,
}

/// Version of the layout of [`Lateness`].
pub(super) const SCHEMA: u32 = 4;
