//! Oscillating clocks on a loaded machine. No clock steps there, so every reported step is false.
//!
//! The seed determines the whole run: windows of 1, 2 or 4 s, a load of 0.2 to 0.8, 20 to 200 pairs
//! per second and, in every other run, pauses during which a node's process does not run. All
//! clocks except node 0's oscillate as those of `--inject-skew --skew-model sinusoid` do. [`run`]
//! solves every round as in a live run, smooths the run as `solve` does, and counts the reported
//! faults and the estimates whose stated errors do not cover the truth.

use probe_sync_estimate::round::SolvedRound;
use probe_sync_estimate::run::Smoothed;
use probe_sync_lines::{Fault as Named, FaultKind as Kind, Round};
use probe_sync_time::{NodeId, RoundId, StampSource};

use crate::accuracy::cells::with_stamps;
use crate::error::Error;
use crate::runs::rounds::Rounds;
use crate::runs::running::Running;
use crate::runs::simulation::Simulation;
use crate::scenario::faults::{Fault, FaultKind};
use crate::scenario::{Replay, Scenario};
use crate::world::random::{Draws, Purpose};

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SwingingOutcome {
    /// Everything that was named.
    pub named: Vec<Named>,
    /// Estimates round by round.
    pub live: Stated,
    /// The same with the smoother over the whole run.
    pub smoothed: Stated,
}

/// Estimates compared with the truth and with their own stated uncertainty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stated {
    /// |error| of the estimates that may be used, ns.
    pub errors_ns: Vec<f64>,
    /// Estimates that must not be used.
    pub unusable: usize,
    /// Estimates further from the truth than [`SIGMAS`] standard deviations plus [`SLACK_NS`].
    pub outside: usize,
    /// Truths outside the hard interval.
    pub outside_hard: usize,
    /// The estimate that is farthest outside.
    pub farthest: Option<Outside>,
}

/// An estimate whose stated uncertainty does not cover its error.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Outside {
    /// Its round.
    pub round: RoundId,
    /// Its node.
    pub node: NodeId,
    /// Estimate minus truth, ns.
    pub error_ns: f64,
    /// Its stated standard deviation, ns.
    pub sigma_ns: f64,
}

impl Outside {
    /// By how much it is outside, ns.
    fn beyond_ns(&self) -> f64 {
        self.error_ns.abs() - SIGMAS * self.sigma_ns - SLACK_NS
    }
}

/// The scenario of a seed: `base` with windows, load, rate, pauses and clocks of that seed.
pub fn scenario(base: &Scenario, seed: u64) -> Scenario {
    let mut draws = Draws::new(seed, Purpose::Swinging, u64::MAX);
    let mut scenario = with_stamps(base, StampSource::Kernel);
    scenario.nodes = NODES;
    scenario.neighbors = NODES - 1;
    scenario.duration_s = DURATION_S;
    scenario.window_s = WINDOWS_S[(seed % WINDOWS_S.len() as u64) as usize];
    scenario.network.load = LOAD[0] + (LOAD[1] - LOAD[0]) * draws.unit();
    scenario.pairs_per_second = Some(RATE[0] * (RATE[1] / RATE[0]).powf(draws.unit()));
    scenario.replays = (1..NODES).map(|node| wave(seed, NodeId(node))).collect();
    scenario.faults =
        if pauses(seed) { (0..NODES).flat_map(|node| all_pauses(seed, NodeId(node))).collect() } else { Vec::new() };
    scenario
}

/// Whether the nodes pause in the run of a seed.
pub const fn pauses(seed: u64) -> bool {
    (seed / WINDOWS_S.len() as u64).is_multiple_of(2)
}

/// Runs a seed.
///
/// # Errors
/// Returns an error if `base` contradicts itself.
pub fn run(base: &Scenario, seed: u64) -> Result<SwingingOutcome, Error> {
    let scenario = scenario(base, seed);
    let (duration, window) = (scenario.duration(), scenario.window());
    let simulation = Simulation::new(scenario, seed)?;
    let mut rounds = Rounds::new(&simulation, duration, window)?;
    let mut solved: Vec<SolvedRound> = Vec::new();
    while let Some(round) = rounds.step() {
        solved.push(round.solved);
    }
    let mut outcome = SwingingOutcome::default();
    for round in &solved {
        outcome.named.extend_from_slice(&round.data.watch.faults);
        outcome.live.take_in(&round.data, rounds.running());
    }
    for round in Smoothed::new(rounds.options(), solved, None).rounds() {
        outcome.smoothed.take_in(&round.data, rounds.running());
    }
    Ok(outcome)
}

impl SwingingOutcome {
    /// Number of rate changes named.
    pub fn rate_changes(&self) -> usize {
        self.named.iter().filter(|named| named.kind == Kind::RateJump).count()
    }

    /// Faults of clocks and paths that did not happen. Rates did change, and nodes that pause for
    /// long do fall silent and lose packets.
    pub fn false_names(&self) -> impl Iterator<Item = &Named> {
        let wrong =
            [Kind::Step, Kind::Restart, Kind::Glitch, Kind::Falseticker, Kind::AsymmetricEdge, Kind::RouteChange];
        self.named.iter().filter(move |named| wrong.contains(&named.kind))
    }
}

impl Stated {
    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        self.errors_ns.extend_from_slice(&other.errors_ns);
        self.unusable += other.unusable;
        self.outside += other.outside;
        self.outside_hard += other.outside_hard;
        self.note(other.farthest);
    }

    fn note(&mut self, outside: Option<Outside>) {
        let both = [self.farthest, outside].into_iter().flatten();
        self.farthest = both.max_by(|a, b| a.beyond_ns().total_cmp(&b.beyond_ns()));
    }

    fn take_in(&mut self, data: &Round, running: &Running<'_>) {
        for node in data.all_nodes.iter().filter(|node| node.node_id != data.reference) {
            if !node.reachable || data.clock_disturbed(node.node_id) {
                self.unusable += 1;
                continue;
            }
            let truth_ns = running.offset_ns(node.node_id, data.midpoint());
            let error_ns = node.offset_ns - truth_ns;
            self.errors_ns.push(error_ns.abs());
            let estimate = Outside { round: data.round_id, node: node.node_id, error_ns, sigma_ns: node.sigma_ns };
            if estimate.beyond_ns() > 0.0 {
                self.outside += 1;
                self.note(Some(estimate));
            }
            self.outside_hard += usize::from(!(node.bound_lo_ns..=node.bound_hi_ns).contains(&truth_ns));
        }
    }
}

/// A clock's error as a series of points; linear between them, and wrong by at most 1.2 ns.
fn wave(seed: u64, node: NodeId) -> Replay {
    let mut draws = Draws::new(seed, Purpose::Swinging, u64::from(node.0));
    let amplitude_ns = AMPLITUDE_NS[0] + (AMPLITUDE_NS[1] - AMPLITUDE_NS[0]) * draws.unit();
    let period_s = PERIOD_S[0] + (PERIOD_S[1] - PERIOD_S[0]) * draws.unit();
    let phase = draws.unit();
    let point = |place: usize| {
        let at_s = place as f64 * POINT_S;
        (at_s, amplitude_ns * (std::f64::consts::TAU * (at_s / period_s + phase)).sin())
    };
    Replay { node, points: (0..=(DURATION_S / POINT_S).ceil() as usize).map(point).collect() }
}

/// When a node's process does not run: mostly for some scheduler ticks, sometimes for long.
fn all_pauses(seed: u64, node: NodeId) -> Vec<Fault> {
    let mut draws = Draws::new(seed, Purpose::Swinging, (1 << 32) | u64::from(node.0));
    let mut pauses = Vec::new();
    let mut start_s = draws.exponential(PAUSE_EVERY_S);
    while start_s < DURATION_S {
        let mean_s = if draws.chance(PAUSE_LONG) { PAUSE_LONG_S } else { PAUSE_S };
        let end_s = start_s + draws.exponential(mean_s);
        pauses.push(Fault { start_s, end_s: Some(end_s), what: FaultKind::Pause { node } });
        start_s = end_s + draws.exponential(PAUSE_EVERY_S);
    }
    pauses
}

/// Standard deviations within which every estimate must be.
pub const SIGMAS: f64 = 4.0;

/// Additional tolerance, ns.
pub const SLACK_NS: f64 = 100.0;

/// Lengths of windows, s, in turn.
pub const WINDOWS_S: [f64; 3] = [1.0, 2.0, 4.0];

/// As many as `mpirun -n 8` starts.
const NODES: u32 = 8;
const DURATION_S: f64 = 32.0;

/// The sinusoids of `--skew-model sinusoid`.
const AMPLITUDE_NS: [f64; 2] = [5e3, 50e3];
const PERIOD_S: [f64; 2] = [20.0, 60.0];

/// Distance between the points of a wave, s: the chord of A·sin(2πt/P) is off by A·(2π/P)²·d²/8.
const POINT_S: f64 = 0.04;

const LOAD: [f64; 2] = [0.2, 0.8];

/// Pairs per second of an edge.
const RATE: [f64; 2] = [20.0, 200.0];

/// Mean time between pauses, s; their mean lengths; the share of the long ones.
const PAUSE_EVERY_S: f64 = 0.5;
const PAUSE_S: f64 = 0.01;
const PAUSE_LONG_S: f64 = 0.3;
const PAUSE_LONG: f64 = 0.1;
