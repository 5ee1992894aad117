//! Compares a run's lines with the truth and pools many seeds.
//!
//! Every node except the reference is evaluated at every line of 250 ms; a line that marks its node
//! as unreachable or its clock as disturbed counts as missing. Also evaluated are the lines of the
//! 4 s windows joined by straight lines, the live estimates at the windows' middles, and the faults
//! that were reported.

use probe_sync_estimate::run::Smoothed;
use probe_sync_estimate::statistics::SIGMAS_95;
use probe_sync_lines::{FaultKind, NodeEstimate, OffsetRecord};
use probe_sync_time::{Duration, NodeId, Reference, Timestamp};

use super::cell::REFERENCE;
use super::draw::World;
use crate::accuracy::{Judgement, Pool, joining};

/// One judged seed.
#[derive(Clone, Debug, PartialEq)]
pub struct WarmingRun {
    /// Every node at every line of 250 ms.
    pub lines: Vec<Judgement>,
    /// Linear interpolation between the lines of the windows, at the same times from the first to
    /// the last of them.
    pub joined: Vec<Judgement>,
    /// The live estimates at the midpoints of the windows.
    pub live: Vec<Judgement>,
    /// Longest time between two usable window lines of one node, s.
    pub hole_s: f64,
    /// Rate changes named.
    pub rate_changes: usize,
    /// Everything else that was named, as printed.
    pub others: Vec<String>,
    /// Root mean square over the nodes of their mean error divided by the asymmetry stated in the
    /// lines.
    pub asymmetry_z: f64,
    /// |error| of every node but the reference where each edge is known but for its asymmetry, ns.
    pub floor_ns: Vec<f64>,
    /// Standard deviation of the asymmetries, as learnt and as drawn, ns.
    pub asymmetry_sd_ns: [f64; 2],
}

/// Many seeds of one cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WarmingOutcome {
    /// [`WarmingRun::lines`].
    pub lines: Pool,
    /// [`WarmingRun::joined`].
    pub joined: Pool,
    /// [`WarmingRun::live`].
    pub live: Pool,
    /// The longest of all seeds, s.
    pub hole_s: f64,
    /// In all seeds.
    pub rate_changes: usize,
    /// In all seeds.
    pub others: Vec<String>,
    /// By seed.
    pub asymmetry_z: Vec<f64>,
    /// |error| that asymmetry alone causes, ns.
    pub floor_ns: Vec<f64>,
}

impl WarmingOutcome {
    /// Adds one seed.
    pub fn add(&mut self, run: &WarmingRun) {
        for (pool, judgements) in
            [(&mut self.lines, &run.lines), (&mut self.joined, &run.joined), (&mut self.live, &run.live)]
        {
            judgements.iter().for_each(|judgement| pool.add(judgement));
        }
        self.hole_s = self.hole_s.max(run.hole_s);
        self.rate_changes += run.rate_changes;
        self.others.extend_from_slice(&run.others);
        self.asymmetry_z.push(run.asymmetry_z);
        self.floor_ns.extend_from_slice(&run.floor_ns);
    }
}

pub(super) fn judge(world: &World, smoothed: &Smoothed, live: &[Vec<NodeEstimate>]) -> WarmingRun {
    let others = |line: &OffsetRecord| line.estimate.node_id != REFERENCE;
    let knots = smoothed.knots(SPACING, world.nodes as usize).expect("a minute every 250 ms is not too much");
    let written: Vec<OffsetRecord> = smoothed.knot_lines(knots).filter(others).collect();
    let windows: Vec<OffsetRecord> = smoothed.round_lines().filter(others).collect();
    let lines: Vec<Judgement> =
        written.iter().map(|line| judgement(world, &line.estimate, middle(line), usable(line))).collect();
    let (mut joined, mut hole_s) = (Vec::new(), 0.0f64);
    for node in (0..world.nodes).map(NodeId).filter(|node| *node != REFERENCE) {
        let own: Vec<&OffsetRecord> =
            windows.iter().filter(|line| line.estimate.node_id == node && usable(line)).collect();
        for pair in own.windows(2) {
            hole_s = hole_s.max((middle(pair[1]) - middle(pair[0])).as_ns_f64() * 1e-9);
            let within = |line: &&OffsetRecord| {
                line.estimate.node_id == node && (middle(pair[0])..middle(pair[1])).contains(&middle(line))
            };
            joined.extend(written.iter().filter(within).map(|line| straight(world, pair, middle(line))));
        }
        if own.len() < 2 {
            hole_s = f64::INFINITY;
        }
    }
    let live = live.iter().zip(smoothed.rounds()).flat_map(|(nodes, round)| {
        let at = round.data.midpoint();
        let judged = |node: &NodeEstimate| {
            let sound = !round.data.clock_disturbed(node.node_id) && node.reachable;
            judgement(world, node, at, sound)
        };
        nodes.iter().filter(|node| node.node_id != REFERENCE).map(judged).collect::<Vec<_>>()
    });
    let rate_change = |kind: FaultKind| kind == FaultKind::RateJump;
    WarmingRun {
        live: live.collect(),
        hole_s,
        rate_changes: smoothed.faults().filter(|fault| rate_change(fault.kind)).count(),
        others: smoothed.faults().filter(|fault| !rate_change(fault.kind)).map(ToString::to_string).collect(),
        asymmetry_z: asymmetry_z(world, &written, &lines),
        floor_ns: floor_ns(world),
        asymmetry_sd_ns: [smoothed.asymmetry_sd_ns(), rms(world.pairs.iter().map(|pair| pair.asymmetry_ns))],
        lines,
        joined,
    }
}

fn usable(line: &OffsetRecord) -> bool {
    line.estimate.reachable && !line.clock_disturbed
}

fn middle(line: &OffsetRecord) -> Timestamp<Reference> {
    line.window_start.midpoint(line.window_end)
}

fn judgement(world: &World, node: &NodeEstimate, at: Timestamp<Reference>, usable: bool) -> Judgement {
    Judgement {
        node: node.node_id,
        window: 0,
        at,
        truth_ns: world.offset_ns(node.node_id, at),
        estimate_ns: usable.then_some(node.offset_ns),
        half_width_95_ns: usable.then_some(SIGMAS_95 * node.sigma_ns),
        hard_ns: usable.then_some([node.bound_lo_ns, node.bound_hi_ns]),
        rate_ppm: usable.then_some(node.drift_ppm),
    }
}

/// Linear interpolation between two lines; it states no uncertainty.
fn straight(world: &World, pair: &[&OffsetRecord], at: Timestamp<Reference>) -> Judgement {
    let share = (at - middle(pair[0])).as_ns_f64() / (middle(pair[1]) - middle(pair[0])).as_ns_f64();
    let [from, to] = [0, 1].map(|k| pair[k].estimate.offset_ns);
    let all = judgement(world, &pair[0].estimate, at, true);
    Judgement {
        estimate_ns: Some(from + share * (to - from)),
        half_width_95_ns: None,
        hard_ns: None,
        rate_ppm: None,
        ..all
    }
}

/// The mean error of each node over the run is due to asymmetry.
fn asymmetry_z(world: &World, written: &[OffsetRecord], lines: &[Judgement]) -> f64 {
    rms((1..world.nodes).map(NodeId).filter_map(|node| {
        let errors: Vec<f64> = lines.iter().filter(|line| line.node == node).filter_map(Judgement::error_ns).collect();
        let stated = written.iter().find(|line| line.estimate.node_id == node && usable(line))?;
        (!errors.is_empty())
            .then(|| errors.iter().sum::<f64>() / errors.len() as f64 / stated.estimate.asymmetry_sigma_ns)
    }))
}

/// Least-squares result of the asymmetries alone.
fn floor_ns(world: &World) -> Vec<f64> {
    let ends: Vec<(usize, usize)> = world.edges.iter().map(|edge| (edge.src.index(), edge.dst.index())).collect();
    let biases: Vec<f64> = world.pairs.iter().map(|pair| pair.asymmetry_ns).collect();
    let errors = joining::potentials(world.nodes as usize, REFERENCE, &ends, &biases);
    errors
        .into_iter()
        .enumerate()
        .filter(|(node, _)| *node != REFERENCE.index())
        .map(|(_, error)| error.abs())
        .collect()
}

fn rms(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value * value, count + 1));
    if count == 0 { 0.0 } else { (sum / f64::from(count)).sqrt() }
}

/// Distance between the judged lines.
const SPACING: Duration = Duration::from_ms(250);
