//! Adaptive probing: how fast to probe next, and which edges to add, so that a target uncertainty
//! is met at the least cost.
//!
//! After each solved round the master passes it to a [`Pacer`] and broadcasts the answer. The
//! controller is pure; its law follows from the sources of an offset's uncertainty:
//! - The random part. A line through the delay floor errs like the spacing of the lowest packets,
//!   so its standard deviation falls like 1/n with the packets n of a window, and slower, at last
//!   not at all, where stamp noise rules. `WhatIfCovariance` says how much of each node's variance
//!   that is.
//! - Path asymmetry, which no number of packets shrinks. More edges average it (gain by a rank-one
//!   update, `error_budget`).
//!
//! With half-widths h (whole), r (random) and f (the rest), h² = r² + f², a node may have
//! `allowed = max(√((0.9·target)² − f²), f/3)`: what the target leaves, or, where f alone is too
//! much, a third of f, beyond which packets buy less than 5 %. `need = r/allowed` is taken from the
//! node at the 95th percentile (with 20 nodes or fewer the worst); single nodes beyond it are
//! helped by edges, not by a faster pace for all.
//! - need > 1: shorten by need^1.5, at most 8-fold. The exponent exceeds 1 because stamp noise
//!   weakens the law.
//! - need < 0.7, in this round and the last: lengthen, at most 4-fold, to where 1/n predicts a need
//!   of 0.85.
//! - between: leave it. The gap between 0.7 and 1 exceeds the scatter of `need`, so a steady
//!   network gets a steady pace.
//!
//! Never faster than the budget allows, never so slow that the median edge has fewer than
//! [`PAIRS_MIN`] exchanges per window: with fewer, the edge fit cannot see that the network has
//! changed. A node whose clock was disturbed, that appeared or that was lost brings the configured
//! pace back at once, for two rounds.
//!
//! The window's length follows in `window`.

mod error_budget;
mod round;
mod solved;
mod window;

use std::collections::BTreeSet;

use probe_sync_lines::EdgeFit;
use probe_sync_time::{Edge, NodeId};
use serde::{Deserialize, Serialize};

use self::error_budget::{ErrorBudget, WhatIfCovariance};
pub use self::round::PacingRound;
use crate::statistics::median;

/// Limits on the cost of probing for one host.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Budget {
    /// Bits per second that a host may send, including UDP and IPv4 headers: three packets of each
    /// exchange that it starts and, on average, three of each that it answers.
    pub bits_per_second: Option<f64>,
    /// Share of one core that a host may use.
    pub cpu_share: Option<f64>,
}

impl Budget {
    /// Returns the share of one core used at this gap between a host's exchanges.
    pub fn cpu_share_of(cadence_ns: i64) -> f64 {
        EXCHANGE_CPU_NS / cadence_ns.max(1) as f64
    }

    /// Returns the shortest gap between a host's exchanges that the budget allows, ns. Gaps of more
    /// than a minute do not permit a measurement; callers that accept budgets from users should
    /// reject them.
    pub fn cadence_min_ns(&self) -> i64 {
        let bits = self.bits_per_second.map(|budget| EXCHANGE_WIRE_BITS / budget * 1e9);
        let cpu = self.cpu_share.map(|budget| EXCHANGE_CPU_NS / budget);
        let shortest = bits.into_iter().chain(cpu).fold(CADENCE_LIMITS_NS[0] as f64, f64::max);
        // What rounding adds must not cost a nanosecond.
        (shortest * (1.0 - 1e-12)).ceil() as i64
    }
}

/// Target and starting point of a [`Pacer`].
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct PacingOptions {
    /// Target half-width of every node's 95 % interval, ns.
    pub target_ns: f64,
    /// The configured gap between exchanges started by one host, ns: the pace of the first window
    /// and of alarms.
    pub cadence_ns: i64,
    /// Limits on the cost.
    pub budget: Budget,
    /// Shortest and longest window, ns; the first window is the shortest. `None`: the caller sets
    /// the length of windows.
    pub window: Option<[i64; 2]>,
}

/// A decision about the next window, and the state of the target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PacingStep {
    /// Gap between exchanges started by one host, ns.
    pub cadence_ns: i64,
    /// Length of the next window, ns; `None` if the caller sets it.
    #[serde(default)]
    pub window_ns: Option<i64>,
    /// All edges to probe in addition to the run's own.
    pub extra_edges: Vec<Edge>,
    /// State of the target.
    pub verdict: Verdict,
    /// Nodes whose half-width is within the target.
    pub nodes_within: u32,
    /// Nodes that can be judged: reachable and undisturbed, without the reference.
    pub nodes_judged: u32,
    /// Half-width of the governing node's 95 % interval, ns.
    pub half_width_ns: f64,
    /// Part of `half_width_ns` that more packets cannot reduce, ns.
    pub floor_ns: f64,
}

/// State of the accuracy target.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The governing node meets the target.
    Reached,
    /// Not reached yet; the pace has been or is being changed.
    OnTheWay,
    /// Path asymmetry alone exceeds the target; no pace can reach it.
    AsymmetryAlone,
    /// The budget does not allow a faster pace.
    BudgetSpent,
    /// A faster pace was tried and did not help.
    PacketsDoNotHelp,
    /// No node can be judged.
    Unknown,
}

/// Chooses the pace of a run, round by round.
///
/// ```
/// use probe_sync_estimate::pacing::{Budget, Pacer, PacingOptions};
/// use probe_sync_time::Edge;
///
/// // Every node shall be known to ±100 ns. An exchange a millisecond is configured, but a host may send 1 Mbit/s only,
/// // and an exchange costs it six packets of 108 bytes.
/// let budget = Budget { bits_per_second: Some(1e6), cpu_share: None };
/// let options = PacingOptions { target_ns: 100.0, cadence_ns: 1_000_000, budget, window: None };
/// let pacer = Pacer::new(2, &[Edge::new(0, 1)], options);
/// assert_eq!(pacer.cadence_ns(), 6 * 108 * 8 * 1_000, "ns between the exchanges of a host");
/// ```
#[derive(Clone, Debug)]
pub struct Pacer {
    options: PacingOptions,
    cadence_min_ns: i64,
    /// The run's own edges, in both directions.
    probed: BTreeSet<(NodeId, NodeId)>,
    out_degree: Vec<u32>,
    cadence_ns: i64,
    window_ns: Option<i64>,
    /// Every node's rate in the last round, ppm, and its variance.
    rates: Vec<Option<[f64; 2]>>,
    extra: Vec<Extra>,
    /// Pairs for which an extra edge did not help.
    useless: BTreeSet<(NodeId, NodeId)>,
    reachable: Option<Vec<bool>>,
    /// Nodes whose clocks were disturbed in the last round.
    disturbed: BTreeSet<NodeId>,
    /// Consecutive rounds in which each node missed the target.
    short_rounds: Vec<u32>,
    /// Consecutive rounds in which all nodes met the target.
    calm_rounds: u32,
    /// Remaining rounds in which the cadence must not be lengthened.
    alarm_rounds: u32,
    /// Need in the last round, and the factor by which the cadence was changed after it.
    last: Option<(f64, f64)>,
    /// Consecutive times that a faster pace did not help.
    stalled: u32,
    round: u64,
}

#[derive(Copy, Clone, Debug)]
struct Extra {
    edge: Edge,
    /// Consecutive rounds without a usable fit.
    silent: u32,
}

/// State of the governing node.
#[derive(Copy, Clone, Debug)]
struct Governing {
    need: f64,
    error_budget: ErrorBudget,
}

impl Pacer {
    /// Creates a controller for a run of `nodes` nodes that probes `edges`.
    pub fn new(nodes: usize, edges: &[Edge], options: PacingOptions) -> Self {
        let cadence_min_ns = options.budget.cadence_min_ns().min(CADENCE_LIMITS_NS[1]);
        let mut out_degree = vec![0; nodes];
        for edge in edges {
            if let Some(degree) = out_degree.get_mut(edge.src.index()) {
                *degree += 1;
            }
        }
        Self {
            options,
            cadence_min_ns,
            probed: edges.iter().map(|edge| pair(*edge)).collect(),
            out_degree,
            cadence_ns: options.cadence_ns.clamp(cadence_min_ns, CADENCE_LIMITS_NS[1]),
            window_ns: options.window.map(|[shortest, _]| shortest),
            rates: Vec::new(),
            extra: Vec::new(),
            useless: BTreeSet::new(),
            reachable: None,
            disturbed: BTreeSet::new(),
            short_rounds: vec![0; nodes],
            calm_rounds: 0,
            alarm_rounds: 0,
            last: None,
            stalled: 0,
            round: 0,
        }
    }

    /// Returns the current gap, ns: that of the first window until a round has been judged.
    pub fn cadence_ns(&self) -> i64 {
        self.cadence_ns
    }

    /// Judges a solved round that was measured at the current pace, and decides the next pace.
    pub fn next(&mut self, round: &PacingRound<'_>) -> PacingStep {
        self.round += 1;
        let mut what_if = WhatIfCovariance::new(round);
        // What a disturbed clock's interval says is not to be believed, and packets do not heal it:
        // the alarm answers.
        let sound = |(node, _): &(NodeId, ErrorBudget)| !round.disturbed.contains(node);
        let error_budgets: Vec<(NodeId, ErrorBudget)> = what_if.error_budgets(round.nodes).filter(sound).collect();
        let governing = self.governing(&error_budgets);
        self.watch(round);
        let longer = self.next_window(round, &error_budgets);
        let pairs = median_pairs(round.edges) * longer;
        let factor = governing.map_or(1.0, |governing| self.factor(governing.need, pairs));
        // A shorter window must not have fewer exchanges than the least.
        let factor = if longer < 1.0 { factor.min((pairs / PAIRS_MIN).clamp(longer, 1.0)) } else { factor };
        let next = self.bounded(factor);
        let before = std::mem::replace(&mut self.cadence_ns, next);
        self.last = governing.map(|governing| (governing.need, self.cadence_ns as f64 / before as f64));
        self.note_shortfall(&error_budgets);
        self.drop_useless_extras(round);
        self.choose_extras(&mut what_if, &error_budgets);
        let within =
            error_budgets.iter().filter(|(_, error_budget)| error_budget.half_width_ns() <= self.options.target_ns);
        PacingStep {
            cadence_ns: self.cadence_ns,
            window_ns: self.window_ns,
            extra_edges: self.extra.iter().map(|extra| extra.edge).collect(),
            verdict: governing.map_or(Verdict::Unknown, |governing| self.verdict(governing)),
            nodes_within: within.count() as u32,
            nodes_judged: error_budgets.len() as u32,
            half_width_ns: governing.map_or(f64::INFINITY, |governing| governing.error_budget.half_width_ns()),
            floor_ns: governing.map_or(0.0, |governing| governing.error_budget.floor_ns),
        }
    }

    /// Returns the node at the 95th percentile of need.
    fn governing(&self, error_budgets: &[(NodeId, ErrorBudget)]) -> Option<Governing> {
        let mut all: Vec<Governing> = error_budgets
            .iter()
            .map(|(_, error_budget)| Governing { need: self.need(error_budget), error_budget: *error_budget })
            .collect();
        all.sort_unstable_by(|a, b| a.need.total_cmp(&b.need));
        let rank = (all.len() as f64 * GOVERNING_SHARE).ceil() as usize;
        all.get(rank.max(1) - 1).copied()
    }

    fn need(&self, error_budget: &ErrorBudget) -> f64 {
        let left = (SAFETY * self.options.target_ns).powi(2) - error_budget.floor_ns.powi(2);
        let allowed = left.max(0.0).sqrt().max(error_budget.floor_ns * FLOOR_SHARE);
        if allowed > 0.0 { error_budget.random_ns / allowed } else { f64::INFINITY }
    }

    /// Returns true if asymmetry alone uses up the target and more packets would not help.
    fn has_settled(&self, error_budget: &ErrorBudget) -> bool {
        error_budget.floor_ns > SAFETY * self.options.target_ns && self.need(error_budget) <= 1.0
    }

    /// Raises an alarm if a node appeared, disappeared, or had its clock disturbed. The first round
    /// never raises one, because it was measured at the configured pace.
    fn watch(&mut self, round: &PacingRound<'_>) {
        let reachable: Vec<bool> = round.nodes.iter().map(|node| node.reachable).collect();
        let changed = self.reachable.as_ref().is_some_and(|before| *before != reachable);
        self.reachable = Some(reachable);
        self.alarm_rounds = self.alarm_rounds.saturating_sub(1);
        // Only news: a clock that is disturbed all the time must not hold the pace for ever; its
        // uncertainty decides.
        let disturbed: BTreeSet<NodeId> = round.disturbed.iter().copied().collect();
        if changed || !disturbed.is_subset(&self.disturbed) {
            self.alarm_rounds = ALARM_ROUNDS;
        }
        self.disturbed = disturbed;
    }

    /// Returns the factor for the cadence; a factor above 1 lengthens it.
    fn factor(&mut self, need: f64, pairs: f64) -> f64 {
        self.note_response(need);
        if pairs > 0.0 && pairs < PAIRS_MIN * PAIRS_SCATTER {
            return (pairs / PAIRS_MIN).max(1.0 / SHORTEN_MAX);
        }
        if need > 1.0 {
            let shorten = need.powf(SHORTEN_POWER).min(SHORTEN_MAX);
            return if self.stalled >= STALLS_MAX { 1.0 } else { 1.0 / shorten };
        }
        // A calm round may be luck: the last one, brought to the present pace by the law 1/n, has
        // its say.
        let before = self.last.map_or(need, |(need, factor)| need * factor);
        let slow = need.max(before);
        if slow >= LENGTHEN_BELOW || self.alarm_rounds > 0 {
            return 1.0;
        }
        let room = (pairs / PAIRS_MIN).max(1.0);
        (LENGTHEN_TO / slow.max(f64::MIN_POSITIVE)).min(LENGTHEN_MAX).min(room)
    }

    /// Records whether the last shortening helped. After two in a row without effect, packets are
    /// considered not to be the limit for some rounds.
    fn note_response(&mut self, need: f64) {
        let Some((before, factor)) = self.last else { return };
        if need <= 1.0 || self.stalled >= STALLS_MAX + RETRY_ROUNDS {
            self.stalled = 0;
        } else if self.stalled >= STALLS_MAX {
            self.stalled += 1;
        } else if factor <= 1.0 / STALL_FACTOR {
            let helped = need < before * factor.powf(STALL_POWER);
            self.stalled = if helped { 0 } else { self.stalled + 1 };
        }
    }

    fn bounded(&self, factor: f64) -> i64 {
        let wanted = (self.cadence_ns as f64 * factor).round() as i64;
        let configured = self.options.cadence_ns.max(self.cadence_min_ns);
        let mut cadence = wanted.clamp(self.cadence_min_ns, CADENCE_LIMITS_NS[1]);
        if self.alarm_rounds > 0 {
            cadence = cadence.min(configured);
        }
        if self.stalled >= STALLS_MAX {
            // What does not help must not cost more than what the user asked for.
            cadence = cadence.max(configured);
        }
        cadence
    }

    fn verdict(&self, Governing { need, error_budget }: Governing) -> Verdict {
        if error_budget.half_width_ns() <= self.options.target_ns {
            Verdict::Reached
        } else if error_budget.floor_ns > self.options.target_ns {
            Verdict::AsymmetryAlone
        } else if self.stalled >= STALLS_MAX {
            Verdict::PacketsDoNotHelp
        } else if need > 1.0 && self.cadence_ns <= self.cadence_min_ns {
            Verdict::BudgetSpent
        } else {
            Verdict::OnTheWay
        }
    }

    fn note_shortfall(&mut self, error_budgets: &[(NodeId, ErrorBudget)]) {
        let mut short = vec![false; self.short_rounds.len()];
        for (node, error_budget) in error_budgets {
            if let Some(short) = short.get_mut(node.index()) {
                *short = error_budget.half_width_ns() > self.options.target_ns;
            }
        }
        let calm = !short.contains(&true);
        self.calm_rounds = if calm { self.calm_rounds.saturating_add(1) } else { 0 };
        for (rounds, short) in self.short_rounds.iter_mut().zip(short) {
            *rounds = if short { rounds.saturating_add(1) } else { 0 };
        }
    }

    /// Drops extra edges that the graph excluded or that had no fit for some rounds.
    fn drop_useless_extras(&mut self, round: &PacingRound<'_>) {
        for extra in &mut self.extra {
            let excluded = round.excluded.iter().any(|(edge, _)| *edge == extra.edge);
            let fitted = round.edges.iter().any(|line| line.edge() == extra.edge);
            extra.silent = if fitted && !excluded { 0 } else { extra.silent + 1 };
        }
        if self.useless.len() > self.extra_max() {
            // What failed long ago may be tried again.
            self.useless.clear();
        }
        let silent = self.extra.iter().filter(|extra| extra.silent >= SILENT_ROUNDS).map(|extra| pair(extra.edge));
        self.useless.extend(silent);
        self.extra.retain(|extra| extra.silent < SILENT_ROUNDS);
    }

    /// Adds edges for nodes that miss the target although the pace is settled, or removes one if
    /// all nodes have met it for some rounds.
    fn choose_extras(&mut self, what_if: &mut WhatIfCovariance, error_budgets: &[(NodeId, ErrorBudget)]) {
        if self.calm_rounds >= CALM_ROUNDS {
            let limit = CALM_SHARE * self.options.target_ns;
            let edges: Vec<Edge> = self.extra.iter().map(|extra| extra.edge).collect();
            if let Some(spare) = what_if.spare_edge(&edges, error_budgets, limit) {
                self.extra.retain(|extra| extra.edge != spare);
                // One at a time, and then the others are looked at anew.
                self.calm_rounds = 0;
            }
            return;
        }
        let short = |node: &NodeId| self.short_rounds.get(node.index()).is_some_and(|rounds| *rounds >= SHORT_ROUNDS);
        let short: Vec<(NodeId, ErrorBudget)> = error_budgets.iter().filter(|(node, _)| short(node)).copied().collect();
        for _ in 0..ADDED_PER_ROUND.min(self.extra_max().saturating_sub(self.extra.len())) {
            let taken = |i: NodeId, j: NodeId| self.is_taken(i, j);
            let Some(found) = what_if.best_edge(&short, &taken, self.round) else { break };
            what_if.add(found);
            let edge = self.oriented(found);
            self.extra.push(Extra { edge, silent: 0 });
        }
    }

    fn extra_edges(&self) -> impl Iterator<Item = Edge> {
        self.extra.iter().map(|extra| extra.edge)
    }

    /// Returns true if the pair is probed already, is known not to help, or would exceed a node's
    /// limit of extra edges.
    fn is_taken(&self, i: NodeId, j: NodeId) -> bool {
        let key = pair(Edge { src: i, dst: j });
        let burden = |node: NodeId| self.extra_edges().filter(|edge| edge.src == node || edge.dst == node).count();
        i == j
            || self.probed.contains(&key)
            || self.useless.contains(&key)
            || self.extra_edges().any(|edge| pair(edge) == key)
            || burden(i) >= EXTRA_PER_NODE_MAX
            || burden(j) >= EXTRA_PER_NODE_MAX
    }

    /// Directs a pair so that the node with fewer out-edges probes, because a host's exchanges are
    /// shared among its edges.
    fn oriented(&self, (i, j): (NodeId, NodeId)) -> Edge {
        let added = |node: NodeId| self.extra_edges().filter(|edge| edge.src == node).count() as u32;
        let degree = |node: NodeId| self.out_degree.get(node.index()).copied().unwrap_or(0) + added(node);
        if degree(j) < degree(i) { Edge { src: j, dst: i } } else { Edge { src: i, dst: j } }
    }

    fn extra_max(&self) -> usize {
        self.short_rounds.len().div_ceil(NODES_PER_EXTRA)
    }
}

fn pair(edge: Edge) -> (NodeId, NodeId) {
    (edge.src.min(edge.dst), edge.src.max(edge.dst))
}

fn median_pairs(edges: &[EdgeFit]) -> f64 {
    median(edges.iter().map(|edge| f64::from(edge.pairs_count)))
}

/// Exchanges per window that the median edge keeps at least.
pub const PAIRS_MIN: f64 = 16.0;

/// Packets come in bursts, so the number in a window varies by about one burst.
const PAIRS_SCATTER: f64 = 0.7;

/// Packets of one exchange.
pub const EXCHANGE_PACKETS: f64 = 6.0;

/// Bytes of a packet on the wire: 80 of ours, 8 of UDP, 20 of IPv4.
pub const PACKET_WIRE_BYTES: f64 = 108.0;

/// Processor time of a packet, both ends and wake-ups included, ns; measured on loopback
/// (bench/LOG.md, cost of probing). A live measurement was rejected: a process that is linked into
/// a training job cannot tell its own share.
pub const PACKET_CPU_NS: f64 = 8_000.0;

const EXCHANGE_WIRE_BITS: f64 = EXCHANGE_PACKETS * PACKET_WIRE_BYTES * 8.0;
const EXCHANGE_CPU_NS: f64 = EXCHANGE_PACKETS * PACKET_CPU_NS;

/// Shortest and longest gap that a configuration may ask for, ns.
const CADENCE_LIMITS_NS: [i64; 2] = [20_000, 60_000_000_000];

/// Share of the target that the pace aims at.
const SAFETY: f64 = 0.9;
/// If the floor alone exceeds the target: size of the random part relative to the floor. √(1 + 1/9)
/// = 1.054.
const FLOOR_SHARE: f64 = 1.0 / 3.0;
/// The percentile of nodes that governs the pace.
const GOVERNING_SHARE: f64 = 0.95;
const SHORTEN_POWER: f64 = 1.5;
const SHORTEN_MAX: f64 = 8.0;
const LENGTHEN_BELOW: f64 = 0.7;
const LENGTHEN_TO: f64 = 0.85;
const LENGTHEN_MAX: f64 = 4.0;
/// A shortening by at least this factor is a test of whether packets help.
const STALL_FACTOR: f64 = 1.5;
/// Packets help if the need falls by at least this power of the shortening factor; 1/n would be 1.
const STALL_POWER: f64 = 0.15;
const STALLS_MAX: u32 = 2;
/// Rounds after which a faster pace is tried again.
const RETRY_ROUNDS: u32 = 16;
const ALARM_ROUNDS: u32 = 2;
/// Rounds above the target before edges are added.
const SHORT_ROUNDS: u32 = 2;
/// Rounds within the target before an extra edge is removed.
const CALM_ROUNDS: u32 = 3;
/// Share of the target within which every node must stay without the extra edge.
const CALM_SHARE: f64 = 0.9;
const ADDED_PER_ROUND: usize = 4;
const EXTRA_PER_NODE_MAX: usize = 4;
/// At most one extra edge per this many nodes.
const NODES_PER_EXTRA: usize = 4;
const SILENT_ROUNDS: u32 = 3;

#[cfg(test)]
mod tests;
