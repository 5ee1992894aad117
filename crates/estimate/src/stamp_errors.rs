//! The error common to all stamps of a node, and its contribution to the node's sigma.
//!
//! It is applied after every estimate, of a round or of a run. The conversion of hardware stamps to
//! the system clock has an error e_i, common to all stamps of a node, which may last for a whole
//! run ([`probe_sync_lines::EdgeFit::stamp_errors_ns`] bounds it). Every edge of node i shows
//! its clock ahead of its true position by e_i, so all edges agree, loops close, and
//!
//! ```text
//! estimate_i = offset_i + e_i − e_reference + what packets show of the rest
//! ```
//!
//! More edges, packets or rounds do not reduce it. Hence it is no part of any fit's covariance,
//! which they would divide it by, and is added here once. Within ±h every value is equally likely:
//! variance (h_i² + h_reference²)/3.
//!
//! Stamps that nobody converts have such an error too. Between the reading of the clock and the
//! packet lies code that sending and receiving do not share, and whose shortest time differs from
//! window to window by some ns, with caches and cores. Between ranks of one host, where nothing
//! else is left, all nodes' errors moved together by 1 to 5 ns from round to round, and 64 to 93 %
//! of them were inside of what edges and loops claimed to 95 %. With a standard deviation of 2 ns
//! per node it is 96 % ([`FLOOR_NS`]; bench/LOG.md has other runs than those it was chosen by).
//! Between hosts more is left: the transmit path of a host less its receive path (drivers,
//! interrupt moderation, cores) moves all its edges alike and closes over every loop. Until a host
//! has been measured, each of the two that an offset is between has a standard deviation of
//! [`HOST_SHARE`] of the median margin of the edges between hosts. What of it changes from round to
//! round on a loaded host is larger, and `crate::smoother` learns it from the run; this floor is
//! what remains when a run shows none, and all that a single round has.
//!
//! Two nodes of one host by hand: bounds of 300 and 400 ns give √((90 000 + 160 000)/3 + 2·2²) =
//! 289 ns, and 95 % of ±566 ns within hard ±700 ns. Without bounds √8 = 2.8 ns. On two hosts, with
//! margins of 5 µs and without bounds: √(2·(2² + 100²)) = 141 ns.
//!
//! **Large offsets.** Numbers of 64 bits are 256 ns apart where a host's clock shows 1970 (1.8·10¹⁸
//! ns from the others), 2 ns at 104 days. What an estimate is rounded by is added to sigma and to
//! the hard bounds here as well. Below a second it is 10⁻⁷ ns.
//!
//! It does not widen hard bounds by the stamp errors; the fits have already done so.

use std::collections::VecDeque;

use probe_sync_lines::{EdgeFit, Hosts, NodeEstimate};
use probe_sync_time::NodeId;

use crate::edge_fit::float_step;
use crate::graph::HOST_SHARE;
use crate::smoother::SmoothedOffset;
use crate::statistics::{SIGMAS_95, median};

/// Whether an estimate already contains the asymmetry of its hosts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostTerm {
    /// It does: the graph assumes it for a single round.
    Contained,
    /// It does not, and it is added.
    Added,
}

/// Knowledge about the timestamp errors of all nodes.
#[derive(Clone, Debug)]
pub(crate) struct StampErrors {
    /// By node, bound of its conversion, ns; the largest that any edge of it stated.
    bounds_ns: Vec<f64>,
    /// For the last rounds, the median margin of the edges between hosts, ns.
    margins_ns: VecDeque<f64>,
    /// Standard deviation of a host's asymmetry, ns.
    host_ns: f64,
    hosts: Hosts,
    reference: NodeId,
}

impl StampErrors {
    /// Returns the state before any node has stated anything.
    pub(crate) fn new(nodes: usize, reference: NodeId, hosts: Hosts) -> Self {
        Self { bounds_ns: vec![0.0; nodes], margins_ns: VecDeque::new(), host_ns: 0.0, hosts, reference }
    }

    /// Adds the statements of the edges of a round.
    pub(crate) fn learn(&mut self, edges: &[EdgeFit]) {
        for edge in edges {
            for (node, stated) in [edge.src_node_id, edge.dst_node_id].into_iter().zip(edge.stamp_errors_ns) {
                if let Some(bound) = self.bounds_ns.get_mut(node.index()) {
                    *bound = bound.max(stated);
                }
            }
        }
        let between = edges.iter().filter(|edge| edge.feasible && !self.hosts.same(edge.src_node_id, edge.dst_node_id));
        let margins: Vec<f64> = between.map(|edge| edge.margin_ns.max(0.0)).collect();
        if !margins.is_empty() {
            self.margins_ns.truncate(MARGINS_MAX - 1);
            self.margins_ns.push_front(median(margins));
            self.host_ns = HOST_SHARE * median(self.margins_ns.iter().copied());
        }
    }

    /// Adds this part to an estimate of one round.
    pub(crate) fn widen(&self, node: &mut NodeEstimate, hosts: HostTerm) {
        let sd = self.standard_deviation(node.node_id, hosts, node.offset_ns);
        let step = ROUNDINGS * float_step(node.offset_ns);
        // Bounds hold to more than what smaller ones are.
        if step > STEP_MIN_NS {
            node.bound_lo_ns -= step;
            node.bound_hi_ns += step;
        }
        node.sigma_ns = node.sigma_ns.hypot(sd);
        node.asymmetry_sigma_ns = node.asymmetry_sigma_ns.hypot(sd);
    }

    /// Adds this part to the uncertainty of a node at some time.
    pub(crate) fn widened(&self, node: NodeId, known: SmoothedOffset) -> SmoothedOffset {
        let sd = self.standard_deviation(node, HostTerm::Added, known.offset_ns);
        if sd == 0.0 {
            return known;
        }
        let sigma_ns = known.sigma_ns.hypot(sd);
        SmoothedOffset {
            sigma_ns,
            half_width_95_ns: SIGMAS_95 * sigma_ns,
            asymmetry_sigma_ns: known.asymmetry_sigma_ns.hypot(sd),
            ..known
        }
    }

    /// Of an offset from the reference, ns.
    fn standard_deviation(&self, node: NodeId, hosts: HostTerm, offset_ns: f64) -> f64 {
        if node == self.reference {
            return 0.0;
        }
        let bound = |node: NodeId| self.bounds_ns.get(node.index()).copied().unwrap_or(0.0);
        let contained = hosts == HostTerm::Contained || self.hosts.same(node, self.reference);
        let host = if contained { 0.0 } else { self.host_ns };
        let of = |node: NodeId| FLOOR_NS.powi(2) + host.powi(2) + bound(node).powi(2) / 3.0;
        let rounded = ROUNDINGS * float_step(offset_ns).powi(2) / 12.0;
        (of(node) + of(self.reference) + rounded).sqrt()
    }
}

/// Standard deviation of the common error of a node's timestamps, without conversion, ns.
const FLOOR_NS: f64 = 2.0;

/// Number of roundings of an offset to 64 bits on its way from the edges to a file: as an edge's,
/// at the round's time, in the sum over a path, as the estimate. The error of each is uniform
/// within half a step.
const ROUNDINGS: f64 = 4.0;
/// Bounds are not widened by less, ns.
const STEP_MIN_NS: f64 = 0.01;

/// Rounds whose margins count.
const MARGINS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use probe_sync_time::{Edge, Exchange, RoundId, StampSource, Timestamp};

    use super::*;
    use crate::edge_fit::FitOptions;
    use crate::round::{EdgeCut, SolvedRound, Solver, SolverOptions, WindowCut, fit_window};
    use crate::run::{Recorded, Smoothed};
    use probe_sync_lines::Decision;

    const NODES: u32 = 3;
    const BOUND_NS: f64 = 600.0;
    const TRUE_NS: i64 = 1_000;
    const BEGIN_NS: i64 = 1_790_000_000_000_000_000;

    /// Hardware stamps of three nodes, node k being k·1000 ns ahead, whose conversions are wrong by
    /// these ns.
    fn exchange(edge: Edge, wrong: [i64; NODES as usize], at: i64, seq: u32) -> Exchange {
        let clock = |node: NodeId, t: i64| t + i64::from(node.0) * TRUE_NS + wrong[node.index()];
        let (delay, jitter) = (500, i64::from(seq % 7));
        let pass = |from: NodeId, to: NodeId, t: i64| [clock(from, t), clock(to, t + delay + jitter)];
        let [[a, b], [c, d]] = [0, 100_000].map(|gap| pass(edge.src, edge.dst, at + gap));
        let [[e, f], [g, h]] = [500_000, 600_000].map(|gap| pass(edge.dst, edge.src, at + gap));
        Exchange { edge, seq, stamp: StampSource::Hardware, t: [a, b, c, d, e, f, g, h].map(Timestamp::from_ns) }
    }

    /// The last of ten live rounds, and the smoothed run, whose fits were given this bound for
    /// every node.
    fn estimates(bound: f64) -> [Vec<NodeEstimate>; 2] {
        let wrong = [-550, 560, 20];
        let mut solver = Solver::new(SolverOptions::new(NODES as usize, NodeId(0)));
        let mut rounds: Vec<SolvedRound> = Vec::new();
        let mut recorded = Vec::new();
        for round in 0..10_i64 {
            let start = round * 1_000_000_000;
            let windows: Vec<_> = (0..NODES)
                .map(|src| {
                    let edges = (0..NODES).filter(|dst| *dst != src).map(|dst| EdgeCut {
                        edge: Edge::new(src, dst),
                        exchanges: (0..40)
                            .map(|seq| exchange(Edge::new(src, dst), wrong, start + 25_000_000 * i64::from(seq), seq))
                            .collect(),
                        lost: 0,
                        stamp_errors_ns: [bound; 2],
                    });
                    let cut = WindowCut {
                        node: NodeId(src),
                        start: Timestamp::from_ns(start),
                        end: Timestamp::from_ns(start + 1_000_000_000),
                        edges: edges.collect(),
                        clock_event: None,
                        packets: Vec::new(),
                    };
                    let fitted = fit_window(&cut, RoundId(round as u64), &FitOptions::default(), false).0;
                    recorded.extend(cut.edges.into_iter().map(|edge| (RoundId(round as u64), edge)));
                    fitted
                })
                .collect();
            let mut solved = solver.solve(RoundId(round as u64), &windows[0], &windows).expect("valid edges");
            solved.data.decision = Decision { stop: false, ..Decision::STOP };
            rounds.push(solved);
        }
        let live = rounds.last().expect("ten").data.all_nodes.clone();
        let recorded: Vec<_> = recorded
            .iter()
            .map(|(round_id, cut)| Recorded { round_id: *round_id, edge: cut.edge, exchanges: &cut.exchanges })
            .collect();
        let smoothed = Smoothed::new(&SolverOptions::new(NODES as usize, NodeId(0)), rounds, Some(&recorded));
        let middle = smoothed.rounds()[5].data.midpoint();
        let at = |node: u32| smoothed.at(NodeId(node), middle).expect("rounds");
        let after: Vec<_> = (0..NODES).map(at).collect();
        assert_eq!(smoothed.rounds()[5].data.all_nodes[1].sigma_ns, after[1].sigma_ns);
        [live, after]
    }

    /// Two directions, two neighbours and ten rounds average nothing out: the error of 1110 ns must
    /// be within bounds and 95 %.
    #[test]
    fn what_all_stamps_of_a_node_are_wrong_by_is_within_bounds_and_sigma_of_round_and_run() {
        for estimates in estimates(BOUND_NS) {
            let ahead = &estimates[1];
            let wrong = ahead.offset_ns - TRUE_NS as f64;
            assert!((wrong - 1_110.0).abs() < 20.0, "no packet shows it: {wrong}");
            assert!((ahead.bound_lo_ns..=ahead.bound_hi_ns).contains(&(TRUE_NS as f64)), "{ahead:?}");
            let stated = BOUND_NS * (2.0_f64 / 3.0).sqrt();
            assert!(ahead.sigma_ns >= stated && ahead.sigma_ns < 1.2 * stated, "{} against {stated}", ahead.sigma_ns);
            assert!(ahead.asymmetry_sigma_ns >= stated && ahead.asymmetry_sigma_ns <= ahead.sigma_ns, "{ahead:?}");
            assert_eq!((estimates[0].sigma_ns, estimates[0].asymmetry_sigma_ns), (0.0, 0.0), "the reference is zero");
        }
    }

    /// The same packets without the statement: their earlier claim.
    #[test]
    fn without_the_statement_the_truth_is_outside() {
        for estimates in estimates(0.0) {
            assert!(estimates[1].bound_lo_ns > TRUE_NS as f64, "{:?}", estimates[1]);
            assert!(estimates[1].sigma_ns < 100.0, "{:?}", estimates[1]);
            // Packets as even as these leave nothing else, and however many rounds there are they
            // promise no more than stamps can keep.
            assert!(estimates[1].asymmetry_sigma_ns >= 8.0_f64.sqrt(), "{:?}", estimates[1]);
            assert_eq!((estimates[0].sigma_ns, estimates[0].asymmetry_sigma_ns), (0.0, 0.0), "the reference is zero");
        }
    }

    /// A host whose clock shows 1970, or is 105 days or a century behind: the truth is always
    /// within the bounds, within 95 % as often as stated, and no step is reported.
    #[test]
    fn offsets_that_a_number_of_64_bits_cannot_hold_are_less_sure() {
        for away in [-1_790_000_000_000_000_123, -9_100_000_000_000_001, 3_155_760_000_000_000_077_i64] {
            let mut random = 88_172_645_463_325_252_u64;
            let mut jitter = || {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                (random % 400) as i64
            };
            let mut solver = Solver::new(SolverOptions::new(NODES as usize, NodeId(0)));
            let (mut within, mut all, mut rounds) = (0, 0, Vec::new());
            // It gains 137 ns in a second.
            let true_at = |t: i64| away + 137 * (t - BEGIN_NS) / 1_000_000_000;
            let middle = |round: i64| BEGIN_NS + round * 1_000_000_000 + 500_000_000;
            for round in 0..60_i64 {
                let start = BEGIN_NS + round * 1_000_000_000;
                let mut window = |src: u32| {
                    let mut edge_cut = |dst: u32| {
                        let edge = Edge::new(src, dst);
                        let clock = |node: NodeId, t: i64| t + [0, true_at(t), 40][node.index()];
                        let mut pass =
                            |from: NodeId, to: NodeId, t: i64| [clock(from, t), clock(to, t + 500 + jitter())];
                        let mut one = |seq: u32| {
                            let at = start + 25_000_000 * i64::from(seq);
                            let [[a, b], [c, d]] = [0, 100_000].map(|gap| pass(edge.src, edge.dst, at + gap));
                            let [[e, f], [g, h]] = [500_000, 600_000].map(|gap| pass(edge.dst, edge.src, at + gap));
                            Exchange {
                                edge,
                                seq,
                                stamp: StampSource::Kernel,
                                t: [a, b, c, d, e, f, g, h].map(Timestamp::from_ns),
                            }
                        };
                        EdgeCut { edge, exchanges: (0..40).map(&mut one).collect(), lost: 0, stamp_errors_ns: [0.0; 2] }
                    };
                    let edges = (0..NODES).filter(|dst| *dst != src).map(&mut edge_cut).collect();
                    let own = if src == 1 { true_at(start) } else { 0 };
                    let [start, end] = [0, 1_000_000_000].map(|after| Timestamp::from_ns(start + own + after));
                    let cut =
                        WindowCut { node: NodeId(src), start, end, edges, clock_event: None, packets: Vec::new() };
                    fit_window(&cut, RoundId(round as u64), &FitOptions::default(), false).0
                };
                let windows: Vec<_> = (0..NODES).map(&mut window).collect();
                let solved = solver.solve(RoundId(round as u64), &windows[0], &windows).expect("valid edges");
                assert!(solved.data.watch.faults.is_empty(), "{:?}", solved.data.watch.faults);
                rounds.push(solved);
            }
            let live: Vec<NodeEstimate> = rounds.iter().map(|round| round.data.all_nodes[1].clone()).collect();
            let smoothed = Smoothed::new(&SolverOptions::new(NODES as usize, NodeId(0)), rounds, None);
            let smoothed = smoothed.rounds().iter().map(|round| round.data.all_nodes[1].clone());
            for (round, node) in (0..60).zip(live).chain((0..60).zip(smoothed)) {
                // As the files hold it: in exact numbers.
                let off = |value: f64| (value as i128 - i128::from(true_at(middle(round)))) as f64;
                assert!(off(node.bound_lo_ns) <= 0.0 && off(node.bound_hi_ns) >= 0.0, "{round} {node:?}");
                all += 1;
                within += u32::from(off(node.offset_ns).abs() <= SIGMAS_95 * node.sigma_ns);
            }
            assert!(within * 100 >= all * 93, "{within} of {all} at {away}");
        }
    }
}
