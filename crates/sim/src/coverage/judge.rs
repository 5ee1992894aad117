//! The errors of estimates, in nanoseconds and in units of their stated uncertainty. Estimates that
//! fault detection marks invalid are excluded.
//!
//! Live estimates are evaluated at the middles of their windows, from the second window on; those
//! of a whole run four times per window, from the first window's middle to the last one's.

use probe_sync_estimate::round::SolvedRound;
use probe_sync_estimate::run::Smoothed;
use probe_sync_estimate::series::{Axis, KnownBreaks, OffsetSample, TimeMap};
use probe_sync_estimate::statistics::SIGMAS_95;
use probe_sync_lines::{NodeEstimate, OffsetRecord};
use probe_sync_time::{Duration, NodeId, Reference, Timestamp};

use super::world::World;

/// One judged seed: the live estimates, the smoothed fits of the run, and its smoothed packets.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Judged {
    /// As in `offsets.jsonl`.
    pub live: Tally,
    /// As at the end of a run.
    pub fits: Tally,
    /// As computed by `solve --probes`.
    pub solved: Tally,
}

/// Errors and stated uncertainties of many estimates.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Number of estimates.
    pub count: usize,
    /// Estimates whose 95 % interval contains the truth.
    pub held: usize,
    /// Estimates more than three of their standard deviations from the truth.
    pub beyond_three: usize,
    /// Estimates whose hard interval does not contain the truth.
    pub outside: usize,
    /// Sum of the squared errors, ns².
    pub squares: f64,
    /// Sum of the standard deviations, ns.
    pub sigmas: f64,
    /// The largest error in standard deviations.
    pub worst: f64,
}

impl Judged {
    /// Adds another seed.
    pub fn pool(&mut self, other: &Self) {
        self.live.pool(&other.live);
        self.fits.pool(&other.fits);
        self.solved.pool(&other.solved);
    }
}

impl Tally {
    fn add(&mut self, node: &NodeEstimate, truth_ns: f64) {
        if node.reachable {
            self.add_error(node.offset_ns - truth_ns, node.sigma_ns);
            self.outside += usize::from(!(node.bound_lo_ns..=node.bound_hi_ns).contains(&truth_ns));
        }
    }

    fn add_error(&mut self, error_ns: f64, sigma_ns: f64) {
        let z = error_ns.abs() / sigma_ns;
        self.count += 1;
        self.held += usize::from(z <= SIGMAS_95);
        self.beyond_three += usize::from(z > 3.0);
        self.squares += error_ns * error_ns;
        self.sigmas += sigma_ns;
        self.worst = self.worst.max(z);
    }

    /// Adds other estimates.
    pub fn pool(&mut self, other: &Self) {
        self.count += other.count;
        self.held += other.held;
        self.beyond_three += other.beyond_three;
        self.outside += other.outside;
        self.squares += other.squares;
        self.sigmas += other.sigmas;
        self.worst = self.worst.max(other.worst);
    }

    /// Root mean square error, ns.
    pub fn rms_ns(&self) -> f64 {
        (self.squares / self.count.max(1) as f64).sqrt()
    }

    /// Mean standard deviation, ns.
    pub fn sigma_ns(&self) -> f64 {
        self.sigmas / self.count.max(1) as f64
    }

    /// Share of the 95 % intervals that contain the truth, per cent.
    pub fn covered(&self) -> f64 {
        100.0 * self.held as f64 / self.count.max(1) as f64
    }

    /// Share beyond three standard deviations, per cent.
    pub fn far(&self) -> f64 {
        100.0 * self.beyond_three as f64 / self.count.max(1) as f64
    }
}

pub(super) fn judge(world: &World, rounds: &[SolvedRound], [fits, solved]: [&Smoothed; 2]) -> Judged {
    let mut judged = Judged::default();
    for round in rounds.iter().skip(1) {
        let at = round.data.midpoint();
        let invalid = &round.data.watch.invalid;
        let usable = |node: &&NodeEstimate| node.node_id != REFERENCE && !invalid.contains(&node.node_id);
        let others = round.data.all_nodes.iter().filter(usable);
        others.for_each(|node| judged.live.add(node, world.offset_ns(node.node_id, at)));
    }
    for (tally, smoothed) in [(&mut judged.fits, fits), (&mut judged.solved, solved)] {
        for at in times(rounds) {
            for node in (1..rounds[0].data.all_nodes.len() as u32).map(NodeId) {
                if let Some(known) = smoothed.at(node, at) {
                    tally.add(&known, world.offset_ns(node, at));
                }
            }
        }
    }
    judged
}

/// Judges every node's map, this many seconds after the last line of the run.
pub(super) fn beyond<const N: usize>(world: &World, nodes: u32, smoothed: &Smoothed, seconds: [f64; N]) -> [Tally; N] {
    let lines: Vec<OffsetRecord> = smoothed.round_lines().collect();
    let mut tallies = [Tally::default(); N];
    for node in (1..nodes).map(NodeId) {
        let own = lines.iter().filter(|line| line.estimate.node_id == node && line.estimate.reachable);
        let samples: Vec<OffsetSample> = own.map(sample).collect();
        let Some(last) = samples.last() else { continue };
        let map = TimeMap::from_offsets(&samples, Axis::Reference, &KnownBreaks::default());
        let map = map.expect("lines of a run that went well").map;
        for (tally, after) in tallies.iter_mut().zip(seconds) {
            let at = Timestamp::<Reference>::from_ns(last.at_ns + (after * 1e9) as i64);
            let truth_ns = world.offset_ns(node, at);
            let shown_ps = (f64::from(PS_PER_NS) * truth_ns) as i128 + i128::from(at.as_ns()) * i128::from(PS_PER_NS);
            let mapped = map.map(shown_ps);
            let error_ps = mapped.time_ps - i128::from(at.as_ns()) * i128::from(PS_PER_NS);
            tally.add_error(error_ps as f64 / f64::from(PS_PER_NS), mapped.sigma_ns);
        }
    }
    tallies
}

fn sample(line: &OffsetRecord) -> OffsetSample {
    let NodeEstimate { offset_ns, drift_ppm, sigma_ns, drift_sigma_ppm, .. } = line.estimate;
    OffsetSample {
        drift_ppm: Some(drift_ppm),
        sigma_ns: Some(sigma_ns),
        drift_sigma_ppm: Some(drift_sigma_ppm),
        offset_drift_covariance: line.offset_drift_covariance,
        wander: line.wander,
        disturbed: line.clock_disturbed,
        ..OffsetSample::bare(line.window_start.midpoint(line.window_end).as_ns(), offset_ns)
    }
}

const PS_PER_NS: i32 = 1_000;

fn times(rounds: &[SolvedRound]) -> impl Iterator<Item = Timestamp<Reference>> {
    let middles = rounds.windows(2).map(|pair| pair.iter().map(|round| round.data.midpoint()).collect::<Vec<_>>());
    middles.flat_map(|pair| {
        let apart = (pair[1] - pair[0]).as_ns();
        (0..PER_WINDOW).map(move |k| pair[0] + Duration::from_ns(apart * k / PER_WINDOW))
    })
}

const PER_WINDOW: i64 = 4;

/// The node whose offset is zero.
pub(super) const REFERENCE: NodeId = NodeId(0);
