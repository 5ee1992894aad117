//! How wrong each method is, on identical packets, against the truth that only a simulation knows.
//!
//! Place in the flow: above [`Rounds`]; the command `probe_sync sim` runs many seeds of [`judge`] and prints what
//! [`Pool`]s make of them. Every window's packets go to every method (`record`): the baselines (`baselines`, joined to nodes by
//! `joining`) and ours, `estimate::graph` per window and `estimate::smoother` over the run. All are judged at the middle
//! of each window as the reference sees it; ours also in between, where users' events are.
//!
//! The floor is what stays when everything but path asymmetry is known: an asymmetry b of an edge shifts its θ by b, no method
//! can tell it from an offset, and least squares over the true b alone gives each node's share.
//!
//! What it does not do: run threads, print, or decide whether a figure is good; `cells` has the demands.

mod baselines;
pub mod cells;
mod cost;
mod joining;
mod record;
mod statistics;
mod svm;
#[cfg(test)]
mod tests;

use probe_sync_time::{Duration, NodeId};

pub use self::baselines::Tuning;
pub use self::cost::{CPU_SECONDS_PER_PACKET, Cost, HEADER_BYTES};
use self::record::Record;
pub use self::statistics::{Coverage, Pool, Summary, geometric_mean, quantile};
use crate::runs::rounds::Rounds;
use crate::scenario::Scenario;
use crate::error::Error;
use crate::runs::simulation::Simulation;

/// A way to estimate offsets. A plus marks a baseline with the choices that serve it best in the twelve cells.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// Smallest round trip per window, summed along a tree.
    Ntp,
    /// The same, interpolated between windows.
    NtpPlus,
    /// Hard coded-probe filter, soft-margin classifier with C = 1, minimum-norm loop correction.
    Huygens,
    /// The same with the best units.
    HuygensPlus,
    /// Soft-margin classifier with C = 1 on all packets, least squares.
    Svm,
    /// The same with the best units.
    SvmPlus,
    /// Mean offset of all exchanges, least squares.
    Mean,
    /// Ours for one window: robust hull and graph.
    Hull,
    /// Ours round by round, knowing the past only: what the files of a live run hold.
    Live,
    /// Ours over the run, from the rounds alone: what `probe_sync solve --windows` makes of it.
    Smooth,
    /// Ours over the run, from all packets: what `probe_sync solve --probes` makes of it.
    Ours,
}

impl Method {
    /// All, in the order of tables.
    pub const ALL: [Self; 11] = [
        Self::Ntp,
        Self::NtpPlus,
        Self::Huygens,
        Self::HuygensPlus,
        Self::Svm,
        Self::SvmPlus,
        Self::Mean,
        Self::Hull,
        Self::Live,
        Self::Smooth,
        Self::Ours,
    ];

    /// The name on the command line and in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ntp => "ntp",
            Self::NtpPlus => "ntp+",
            Self::Huygens => "huygens",
            Self::HuygensPlus => "huygens+",
            Self::Svm => "svm",
            Self::SvmPlus => "svm+",
            Self::Mean => "mean",
            Self::Hull => "hull",
            Self::Live => "live",
            Self::Smooth => "smooth",
            Self::Ours => "ours",
        }
    }

    /// The method of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }
}

/// What to judge, and how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Length of the run.
    pub duration: Duration,
    /// Length of a window.
    pub window: Duration,
    /// The methods, each once.
    pub methods: Vec<Method>,
    /// The baselines' free parameters.
    pub tuning: Tuning,
}

/// One estimate beside the truth.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The node.
    pub node: NodeId,
    /// The window.
    pub window: usize,
    /// When, on the reference's clock, ns.
    pub at_ns: i64,
    /// The true offset, ns.
    pub truth_ns: f64,
    /// The estimated offset, ns; None where the method has none.
    pub estimate_ns: Option<f64>,
    /// Half-width of the 95 % interval, ns, where the method states one.
    pub half_width_95_ns: Option<f64>,
    /// The hard interval, ns, where the method states one.
    pub hard_ns: Option<[f64; 2]>,
}

impl Judgement {
    /// Estimate minus truth, ns.
    pub fn error_ns(&self) -> Option<f64> {
        self.estimate_ns.map(|estimate| estimate - self.truth_ns)
    }
}

/// One judged run.
#[derive(Clone, Debug, PartialEq)]
pub struct SeedRun {
    /// The seed.
    pub seed: u64,
    /// By method, in the plan's order: every node but the reference in every window.
    pub methods: Vec<(Method, Vec<Judgement>)>,
    /// Ours between the windows' middles; empty unless the plan holds [`Method::Ours`].
    pub between: Vec<Judgement>,
    /// |error| that path asymmetry alone causes, per node but the reference, ns.
    pub floor_ns: Vec<f64>,
    /// Packets that were sent.
    pub packets: u64,
    /// Edges that were probed.
    pub edges: usize,
}

/// Simulates one seed and judges all methods of the plan; None when `stopped` said so.
///
/// # Errors
/// When the scenario cannot be run.
pub fn judge(
    scenario: &Scenario,
    seed: u64,
    plan: &Plan,
    stopped: &dyn Fn() -> bool,
) -> Result<Option<SeedRun>, Error> {
    let simulation = Simulation::new(scenario.clone(), seed)?;
    let mut rounds = Rounds::new(&simulation, plan.duration, plan.window)?;
    let mut record = Record::new(plan, simulation.edges());
    while let Some(round) = rounds.step() {
        if stopped() {
            return Ok(None);
        }
        record.take(round, rounds.running());
    }
    let running = rounds.running();
    let (methods, between) = record.judged(running);
    let floor_ns = floor_ns(&simulation);
    Ok(Some(SeedRun {
        seed,
        methods,
        between,
        floor_ns,
        packets: running.packets_sent(),
        edges: simulation.edges().len(),
    }))
}

/// |error| of every node but the reference when each edge is known but for its path's asymmetry, ns.
fn floor_ns(simulation: &Simulation) -> Vec<f64> {
    let ends: Vec<(usize, usize)> = simulation.edges().iter().map(|e| (e.src.index(), e.dst.index())).collect();
    let biases: Vec<f64> = simulation.edges().iter().map(|edge| simulation.asymmetry_ns(*edge)).collect();
    let errors = joining::potentials(simulation.scenario().nodes as usize, &ends, &biases);
    errors.into_iter().skip(1).map(f64::abs).collect()
}
