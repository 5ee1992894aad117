//! The file format of a run's offsets, a line of `offsets.jsonl`, shared by writers and readers.
//!
//! A live run and `solve` write it, and alignment reads it. The first ten keys of a line are those
//! that existing combiners read; their names and meaning must not change. Later keys follow them
//! and are omitted when they have no value.

use std::fmt::{self, Display};

use probe_sync_time::{NodeId, Reference, RoundId, System, TimeNamespace, Timestamp};
use serde::{Deserialize, Serialize};

use crate::hosts::Hosts;
use crate::names::{read_plain_name, read_plain_name_if_any};
use crate::round::Round;
use crate::window::{ClockEvent, NodeEstimate};

/// A line of `offsets.jsonl`. The first ten keys are those that existing combiners read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OffsetRecord {
    /// Round of the line.
    pub round_id: RoundId,
    /// Number of the window, which is that of the round; if lines are closer than rounds, that of
    /// the line.
    pub window_id: u64,
    /// The window's start on the reference clock.
    #[serde(rename = "window_start_ns")]
    pub window_start: Timestamp<Reference>,
    /// The window's end on the reference clock; the offset holds at the midpoint.
    #[serde(rename = "window_end_ns")]
    pub window_end: Timestamp<Reference>,
    /// The node's estimate.
    #[serde(flatten)]
    pub estimate: NodeEstimate,
    /// True if the system clock of this node or of the reference was stepped or slewed during the
    /// window; do not trust the line.
    #[serde(default)]
    pub clock_disturbed: bool,
    /// Covariance of the errors of offset and rate, ns·ppm; only in smoothed lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_drift_covariance: Option<f64>,
    /// Density of the random walk of this clock's rate relative to the reference, ns²/s³; only in
    /// smoothed lines. Between two lines the variance of an offset follows from both covariances,
    /// plus `wander·Δ³·(s(1−s))³/3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wander: Option<f64>,
    /// Sudden change of the rates of this clock and the reference in the window, ppm, as detected
    /// by the clock watch.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub slew_ppm: f64,
    /// Step of this clock shortly before the line's time: in its window, or since the previous
    /// line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepRecord>,
    /// Belated finding of this round: the round, this one or an earlier one, before which this
    /// clock or the reference has a break.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken_into: Option<RoundId>,
}

/// Readings of a clock between which it was stepped. If the clock was set back, the second may be
/// smaller.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Last reading known to be before the step.
    #[serde(rename = "after_ns")]
    pub after: Timestamp<System>,
    /// First reading known to be after the step.
    #[serde(rename = "before_ns")]
    pub before: Timestamp<System>,
}

impl StepRecord {
    /// Returns a step of `step_ns` that was over when the clock showed `at`, and not a watch's
    /// period before.
    pub fn seen(at: Timestamp<System>, step_ns: i64) -> Self {
        let after = at.as_ns().saturating_sub(step_ns).saturating_sub(WATCH_PERIOD_NS);
        Self { after: Timestamp::from_ns(after), before: at }
    }

    /// Returns the step of a clock event, if it is one; if the event does not state the readings,
    /// the step spans a watch's period.
    pub fn of_event(event: &ClockEvent) -> Option<Self> {
        let step = match event.step_between {
            Some([after, before]) => Self { after, before },
            None => Self::seen(event.at, event.step_ns),
        };
        (event.step_ns != 0).then_some(step)
    }
}

/// Period of a clock watch, rounded up.
const WATCH_PERIOD_NS: i64 = 300_000_000;

fn is_zero(ppm: &f64) -> bool {
    *ppm == 0.0
}

impl OffsetRecord {
    /// Returns the lines of one solved round, one per node.
    pub fn of_round(round: &Round) -> impl Iterator<Item = Self> + '_ {
        round.all_nodes.iter().map(|estimate| Self {
            round_id: round.round_id,
            window_id: round.round_id.0,
            window_start: round.window_start,
            window_end: round.window_end,
            estimate: estimate.clone(),
            clock_disturbed: round.clock_disturbed(estimate.node_id),
            offset_drift_covariance: None,
            wander: None,
            slew_ppm: slew_ppm(round, estimate.node_id),
            step: events_of(round, estimate.node_id).find_map(StepRecord::of_event),
            broken_into: broken_into(round, estimate.node_id),
        })
    }
}

fn events_of(round: &Round, node: NodeId) -> impl Iterator<Item = &ClockEvent> {
    round.clock_events.iter().filter(move |(of, _)| *of == node).map(|(_, event)| event)
}

/// Returns the sudden rate changes of a node's clock and of the reference in a round, ppm.
pub fn slew_ppm(round: &Round, node: NodeId) -> f64 {
    let concerned = |of: &NodeId| *of == node || *of == round.leader();
    round.clock_events.iter().filter(|(of, _)| concerned(of)).map(|(_, event)| event.slew_ppm.abs()).sum()
}

fn broken_into(round: &Round, node: NodeId) -> Option<RoundId> {
    let concerned = |of: NodeId| of == node || of == round.leader();
    round.watch.breaks.iter().filter(|broken| concerned(broken.node)).map(|broken| broken.round).max()
}

/// Header line of `offsets.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OffsetsHeader {
    /// Always true.
    pub meta: bool,
    /// The nodes in order; empty if nothing is known about them.
    #[serde(default)]
    pub nodes: Vec<NodeRecord>,
    /// Reference node, whose offset is zero.
    #[serde(default = "crate::round::first_node")]
    pub reference: NodeId,
    /// The launcher's ranks, as each stated itself; empty if their statements are missing or
    /// ambiguous.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankRecord>,
}

impl OffsetsHeader {
    /// Returns which nodes share a host: as stated by the nodes, or by their names if one does not
    /// state it.
    pub fn hosts(&self) -> Hosts {
        if let Some(hosts) = self.nodes.iter().map(|node| node.host).collect::<Option<Vec<NodeId>>>() {
            return Hosts::shared(hosts);
        }
        Hosts::named(self.nodes.iter().map(|node| node.hostname.as_deref()))
    }
}

/// Entry of the header line for one rank of the launcher: the node on whose clock its traces are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankRecord {
    /// Rank, as numbered by the launcher.
    pub rank: u32,
    /// Number of ranks in the launcher's job. A trace of a job of another size has other ranks.
    pub world_size: u32,
    /// Number among the ranks of its host, if the launcher states one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_rank: Option<u32>,
    /// Host name.
    #[serde(deserialize_with = "read_plain_name")]
    pub hostname: String,
    /// The rank's node, or the node that it follows.
    pub node_id: NodeId,
    /// Launcher that numbered it: two launchers may number the hosts of one job size differently.
    /// Not stated by runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<Launcher>,
    /// Offsets of its time namespace in the clocks that count from boot; `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_namespace: Option<TimeNamespace>,
}

/// The program that numbers ranks.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Launcher {
    /// The variables `RANK` and `WORLD_SIZE`, by which programs of torch.distributed are numbered,
    /// whichever program sets them.
    Torchrun,
    /// The mpirun of Open MPI.
    OpenMpi,
    /// The srun of Slurm.
    Slurm,
    /// No launcher: the run numbers its own processes, on one machine.
    Run,
}

impl Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Torchrun => "torchrun",
            Self::OpenMpi => "Open MPI",
            Self::Slurm => "Slurm",
            Self::Run => "the run itself",
        })
    }
}

/// File in a run's directory next to `offsets.jsonl`, which the run wrote round by round: the lines
/// of the whole run, smoothed, dense enough for linear interpolation.
pub const SMOOTHED_OFFSETS: &str = "offsets.smoothed.jsonl";

/// Entry of the header line for one node. `start_walltime_ns` and `start_gpu_ns` are omitted on
/// purpose: programs that join traces read these keys as the start of the PROFILER's session, which
/// the measurement does not know; older runs wrote their own start there, which is not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Host name.
    #[serde(default, deserialize_with = "read_plain_name_if_any")]
    pub hostname: Option<String>,
    /// The node.
    pub node_id: NodeId,
    /// First node on the same host, determined by the boot ids of their kernels (or `--host`). Not
    /// stated by runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<NodeId>,
}
