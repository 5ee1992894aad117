//! The smoother over a whole run: every node's offset at any time, with its error, from all rounds
//! together.
//!
//! It runs after the rounds (`graph` gave each round's offsets, `faults` named the wrong edges and
//! the stepped clocks), before `series` and alignment. One sparse system holds every node's clock
//! at every round's midpoint, the random walk of its rate, every edge's line with its covariance,
//! and one constant asymmetry per pair of nodes (`layout`, `system`). Student-t weights, the scale
//! of the edges' covariances, the variance of the asymmetries and each clock's wander (`evidence`)
//! iterate around it. The error comes from the same model (`variance`, `solution`).
//! `docs/accuracy.md` derives the model, and `bench/LOG.md` shows its calibration.
//!
//! Two nodes by hand: node 1 is 1000 ns ahead and gains nothing; rounds measure theta = 990, 1010,
//! 1000 with equal errors. All is one clock without wander, so the smoothed offset is 1000 ns at
//! every round, with a third of a round's variance. A path asymmetry of +30 ns would make all three
//! 30 ns larger and nothing here would show it: with two nodes there is no loop, so the interval
//! takes its width from the prior alone.
//!
//! What no estimator can see: asymmetry common to all paths between two parts of the nodes. The
//! interval assumes that the asymmetries of different pairs are independent; the hard interval of
//! `graph` does not.

mod bank;
mod errors;
mod evidence;
mod fit;
mod layout;
mod lines;
mod online;
mod packets;
mod refine;
mod round;
mod solution;
mod student;
mod system;
mod variance;
mod walks;
mod white_fm;

use probe_sync_lines::ClockBreak;
use probe_sync_time::{NodeId, Reference, Timestamp};

pub(crate) use self::errors::Errors;
use self::fit::Fit;
use self::layout::Layout;
pub use self::online::Online;
pub use self::packets::Exchanges;
pub(crate) use self::round::places;
pub use self::round::{SmootherOptions, SmootherRound};
pub use self::solution::{PathAsymmetry, RunSolution, SmoothedOffset};

/// Smooths a run of `nodes` nodes from its rounds alone. Nodes and times without packets have no
/// estimate.
///
/// ```
/// use probe_sync_estimate::graph::{GraphInput, GraphOptions, solve};
/// use probe_sync_estimate::smoother::{SmootherOptions, SmootherRound, smooth_run};
/// # use probe_sync_lines::EdgeFit;
/// # use probe_sync_time::{NodeId, RoundId, StampSource, Timestamp};
/// # fn edge(theta_ns: f64, midpoint_ns: i64) -> EdgeFit {
/// #     EdgeFit {
/// #         src_node_id: NodeId(0),
/// #         dst_node_id: NodeId(1),
/// #         midpoint: Timestamp::from_ns(midpoint_ns),
/// #         alpha: 0.0,
/// #         beta: theta_ns,
/// #         pairs_count: 100,
/// #         lost_count: 0,
/// #         covariance: [25.0, 0.0, 1e-18],
/// #         margin_ns: 200.0,
/// #         bound_lo_ns: theta_ns - 200.0,
/// #         bound_hi_ns: theta_ns + 200.0,
/// #         alpha_bounds: [-1e-6, 1e-6],
/// #         feasible: true,
/// #         purity: 1.0,
/// #         stamp: StampSource::Kernel,
/// #         stamp_errors_ns: [0.0; 2],
/// #     }
/// # }
/// // Three rounds a second apart measure theta = 990, 1010 and 1000 ns: node 1 is 1000 ns ahead and gains nothing.
/// let mut rounds = Vec::new();
/// for (second, theta_ns) in [990.0, 1010.0, 1000.0].into_iter().enumerate() {
///     let midpoint_ns = second as i64 * 1_000_000_000;
///     let edges = vec![edge(theta_ns, midpoint_ns)];
///     let reference_midpoint = Timestamp::from_ns(midpoint_ns);
///     let input = GraphInput { nodes: 2, reference: NodeId(0), reference_midpoint, edges: &edges };
///     rounds.push((reference_midpoint, solve(&input, &GraphOptions::default())?, edges));
/// }
/// let views: Vec<SmootherRound<'_>> = (0..)
///     .zip(&rounds)
///     .map(|(id, (at, solution, edges))| SmootherRound::solved(RoundId(id), *at, edges, solution, &[]))
///     .collect();
///
/// let smoothed = smooth_run(2, &views, &[], &SmootherOptions::default());
/// let found = smoothed.at(NodeId(1), Timestamp::from_ns(1_500_000_000)).expect("measured");
/// assert!((found.offset_ns - 1000.0).abs() < 10.0, "between the rounds too: {} ns", found.offset_ns);
/// assert!(found.half_width_95_ns > 1.9 * found.sigma_ns);
/// # Ok::<(), probe_sync_estimate::Error>(())
/// ```
pub fn smooth_run(
    nodes: usize,
    rounds: &[SmootherRound<'_>],
    breaks: &[ClockBreak],
    options: &SmootherOptions,
) -> RunSolution {
    FirstPass::new(nodes, rounds, breaks, options).solution(nodes)
}

/// A run as its rounds alone show it.
pub(crate) struct FirstPass(Fit);

impl FirstPass {
    pub(crate) fn new(
        nodes: usize,
        rounds: &[SmootherRound<'_>],
        breaks: &[ClockBreak],
        options: &SmootherOptions,
    ) -> Self {
        let layout = Layout::new(nodes, rounds, &all_breaks(nodes, rounds, breaks, options.reference));
        let constants = evidence::constants(&layout, nodes, rounds, options);
        let mut fit = Fit::new(layout, &constants, options);
        fit.settle(options);
        Self(fit)
    }

    /// Marks the windows as cut shorter because the clocks change their rates within longer ones.
    /// Then some windows contain such a change and some do not, and a random walk states the mean
    /// of both.
    pub(crate) fn of_shorter_windows(mut self) -> Self {
        self.0.mixed = white_fm::MIXED;
        self
    }

    /// The solution without packets.
    pub(crate) fn solution(&self, nodes: usize) -> RunSolution {
        solution::collect(nodes, &self.0, &self.0.white_fm)
    }

    /// The solution refined by the packets of the run (see `packets`).
    pub(crate) fn with_packets(
        self,
        nodes: usize,
        exchanges: &Exchanges<'_>,
        options: &SmootherOptions,
        told: &mut dyn FnMut(f64),
    ) -> RunSolution {
        let Self(mut fit) = self;
        fit.refined = refine::refine(&mut fit);
        packets::renew_motion(&mut fit, exchanges, &mut |share| told(UNTIL_SETTLED * share));
        fit.settle(options);
        let floors = packets::floors(&fit, exchanges, &mut |share| told(UNTIL_SETTLED + (1.0 - UNTIL_SETTLED) * share));
        fit.level(&floors, options);
        solution::collect(nodes, &fit, &fit.white_fm)
    }

    /// How well every clock is known, between two times. The motion of clocks within windows is
    /// observed too rarely to be a criterion.
    pub(crate) fn errors(&self, nodes: usize, between: [Timestamp<Reference>; 2]) -> Errors {
        Errors::new(&solution::collect(nodes, &self.0, &vec![0.0; nodes]), nodes, between)
    }
}

/// The knots are times of the reference's clock: if that is stepped or interrupted, no clock can be
/// followed.
fn all_breaks(
    nodes: usize,
    rounds: &[SmootherRound<'_>],
    breaks: &[ClockBreak],
    reference: NodeId,
) -> Vec<(NodeId, usize)> {
    let named = places(rounds, breaks);
    let stepped = named.iter().filter(|(node, _)| *node == reference).map(|(_, place)| *place);
    let set_back = (1..rounds.len()).filter(|k| !follows(&rounds[k - 1], &rounds[*k]));
    let everybody = |place: usize| (0..nodes).map(move |node| (NodeId(node as u32), place));
    named.iter().copied().chain(stepped.chain(set_back).flat_map(everybody)).collect()
}

/// Whether the time between a round and the one before is short enough to follow a clock from one
/// to the other.
fn follows(before: &SmootherRound<'_>, round: &SmootherRound<'_>) -> bool {
    i128::from(round.reference_midpoint.as_ns()) - i128::from(before.reference_midpoint.as_ns()) >= KNOTS_APART_MIN_NS
}

/// Share of the time that passes before the packets' floors are determined.
const UNTIL_SETTLED: f64 = 0.7;

/// Knots closer than this would make the random walk between them too stiff for f64 compared with
/// the measures, ns.
const KNOTS_APART_MIN_NS: i128 = 1_000_000;

#[cfg(test)]
mod tests;
