//! The data kept of a run during its evaluation, and the estimates of each method.
//!
//! Each round's packets become the baselines' lines at once; packets are kept only if our smoother
//! needs them later. After the last round every method's estimates are compared with the truth.
//! Ours are those that the files of a live run and of `solve` contain: the solved rounds, and
//! [`Smoothed`] without and with the recorded exchanges.

use std::collections::VecDeque;

use probe_sync_estimate::edge_fit::EdgeWindow;
use probe_sync_estimate::round::{SolvedRound, SolverOptions, WindowCut};
use probe_sync_estimate::run::{Recorded, Smoothed};
use probe_sync_estimate::statistics::SIGMAS_95;
use probe_sync_lines::{NodeEstimate, NodeWindow};
use probe_sync_time::{Duration, Edge, NodeId, Reference, RoundId, System, Timestamp};

use super::baselines::{self, Fastest, Version};
use super::joining::{EdgeLine, Instant, Joining, join};
use super::plan::{FITS_KEPT, Judgement, Method, Plan};
use crate::runs::rounds::{Rounds, SimulatedRound};
use crate::runs::running::Running;

/// A run so far.
pub(super) struct Record<'a> {
    plan: &'a Plan,
    edges: &'a [Edge],
    options: SolverOptions,
    solved: Vec<SolvedRound>,
    windows: Vec<WindowRecord>,
    /// NTP's samples of each edge, in order of time.
    fastest: Vec<Vec<Fastest>>,
    /// Fits of the last windows.
    latest: VecDeque<Vec<NodeWindow>>,
    /// Lost exchanges on each node's out-edges.
    lost: Vec<u64>,
}

/// What is kept of a window in addition to the solved round.
struct WindowRecord {
    /// The midpoint of the window on each edge's source.
    midpoints: Vec<(usize, Timestamp<System>)>,
    /// By method, for methods that fit windows.
    lines: Vec<(Method, Vec<EdgeLine>)>,
    /// The packets, if they are needed again; otherwise empty.
    cuts: Vec<WindowCut>,
}

/// Our two smoothed runs, each if the plan contains it.
struct SmoothedRuns {
    rounds: Option<Smoothed>,
    packets: Option<Smoothed>,
}

impl<'a> Record<'a> {
    pub(super) fn new(plan: &'a Plan, edges: &'a [Edge], rounds: &Rounds<'_>) -> Self {
        Self {
            plan,
            edges,
            options: rounds.options().clone(),
            solved: Vec::new(),
            windows: Vec::new(),
            fastest: vec![Vec::new(); edges.len()],
            latest: VecDeque::new(),
            lost: vec![0; rounds.nodes()],
        }
    }

    /// Adds a round of the run.
    pub(super) fn take(&mut self, round: SimulatedRound) {
        let edge_windows: Vec<EdgeWindow<'_>> = round.cuts.iter().flat_map(WindowCut::edge_windows).collect();
        let place = |edge: &Edge| self.edges.binary_search(edge).ok();
        let midpoints = edge_windows.iter().filter_map(|w| Some((place(&w.edge)?, w.midpoint))).collect();
        let lines = |method: &Method| Some((*method, self.lines(*method, &edge_windows)?));
        let lines = self.plan.methods.iter().filter_map(lines).collect();
        if self.plan.methods.contains(&Method::NtpPlus) {
            for window in &edge_windows {
                if let (Ok(at), Some(sample)) = (self.edges.binary_search(&window.edge), baselines::fastest(window)) {
                    self.fastest[at].push(sample);
                }
            }
        }
        drop(edge_windows);
        let cuts = if self.plan.methods.contains(&Method::Ours) { round.cuts } else { Vec::new() };
        self.windows.push(WindowRecord { midpoints, lines, cuts });
        self.solved.push(round.solved);
        for window in &round.windows {
            let fitted = window.edges.iter().map(|fit| fit.lost_count);
            let lost = fitted.chain(window.unfitted.iter().map(|(_, lost)| *lost)).map(u64::from);
            self.lost[window.node_id.index()] += lost.sum::<u64>();
        }
        self.latest.push_back(round.windows);
        while self.latest.len() > 1 && self.latest.iter().flatten().map(|of| of.edges.len()).sum::<usize>() > FITS_KEPT
        {
            self.latest.pop_front();
        }
    }

    /// Returns the fits of the nodes in the last windows, and the lost exchanges of each.
    pub(super) fn into_windows_and_lost(self) -> (Vec<NodeWindow>, Vec<u64>) {
        (self.latest.into_iter().flatten().collect(), self.lost)
    }

    /// Returns every method's judgements in the order of the plan, and ours in between; `told` is
    /// told the completed share of the time.
    pub(super) fn judged(
        &self,
        running: &Running<'_>,
        told: &mut dyn FnMut(f64),
    ) -> (Vec<(Method, Vec<Judgement>)>, Vec<Judgement>) {
        let smoothed = self.smoothed(told);
        let judge = |method: &Method| (*method, self.judgements(*method, &smoothed, running));
        let methods = self.plan.methods.iter().map(judge).collect();
        let best = smoothed.packets.as_ref().or(smoothed.rounds.as_ref());
        (methods, best.map_or_else(Vec::new, |best| self.between(best, running)))
    }

    /// Returns the lines of a baseline for one window; `None` for methods without.
    fn lines(&self, method: Method, windows: &[EdgeWindow<'_>]) -> Option<Vec<EdgeLine>> {
        let fit: &dyn Fn(&EdgeWindow<'_>) -> Option<EdgeLine> = match method {
            Method::Ntp => &baselines::ntp,
            Method::Huygens => &|window| baselines::huygens(window, Version::Plain),
            Method::HuygensPlus => &|window| baselines::huygens(window, Version::Tuned),
            Method::Svm => &|window| baselines::svm(window, Version::Plain),
            Method::SvmPlus => &|window| baselines::svm(window, Version::Tuned),
            Method::Mean => &baselines::mean,
            Method::NtpPlus | Method::Hull | Method::Live | Method::Smooth | Method::Ours => return None,
        };
        Some(windows.iter().filter_map(fit).collect())
    }

    fn smoothed(&self, told: &mut dyn FnMut(f64)) -> SmoothedRuns {
        let wants = |method| self.plan.methods.contains(&method);
        let mut smooth =
            |recorded: Option<&[Recorded<'_>]>| Smoothed::watched(&self.options, self.solved.clone(), recorded, told);
        let rounds = wants(Method::Smooth).then(|| smooth(None));
        let packets = wants(Method::Ours).then(|| {
            let recorded: Vec<Recorded<'_>> = self.solved.iter().zip(&self.windows).flat_map(recorded).collect();
            smooth(Some(&recorded))
        });
        SmoothedRuns { rounds, packets }
    }

    fn judgements(&self, method: Method, smoothed: &SmoothedRuns, running: &Running<'_>) -> Vec<Judgement> {
        let judged = (0..self.solved.len()).flat_map(|index| {
            let at = self.solved[index].data.midpoint();
            let estimates = self.estimates(method, smoothed, index);
            let nodes = (0..).map(NodeId).zip(estimates).filter(|(node, _)| *node != self.options.reference);
            nodes.map(|(node, estimate)| estimate.judged(running, node, index, at)).collect::<Vec<_>>()
        });
        judged.collect()
    }

    fn estimates(&self, method: Method, smoothed: &SmoothedRuns, index: usize) -> Vec<Estimate> {
        let (solved, window) = (&self.solved[index], &self.windows[index]);
        let ours = |nodes: &[NodeEstimate]| nodes.iter().map(Estimate::of_node).collect();
        let of_run =
            |run: Option<&Smoothed>| run.map_or_else(Vec::new, |run| ours(&run.rounds()[index].data.all_nodes));
        let joined = |lines: &[EdgeLine], joining| {
            let midpoint_ns = solved.data.midpoint().as_ns();
            let offsets = join(
                Instant { nodes: self.options.nodes, reference: self.options.reference, midpoint_ns },
                lines,
                joining,
            );
            offsets.into_iter().map(Estimate::bare).collect()
        };
        let own = || window.lines.iter().find(|(of, _)| *of == method).map_or(&[][..], |(_, lines)| lines);
        match method {
            Method::Ntp => joined(own(), Joining::Tree),
            Method::NtpPlus => {
                let line = |(at, midpoint): &(usize, Timestamp<System>)| {
                    baselines::between(self.edges[*at], midpoint.as_ns(), &self.fastest[*at])
                };
                joined(&window.midpoints.iter().filter_map(line).collect::<Vec<_>>(), Joining::Tree)
            }
            Method::Huygens | Method::HuygensPlus | Method::Svm | Method::SvmPlus | Method::Mean => {
                joined(own(), Joining::LeastSquares)
            }
            Method::Hull => ours(&solved.alone.nodes),
            Method::Live => ours(&solved.data.all_nodes),
            Method::Smooth => of_run(smoothed.rounds.as_ref()),
            Method::Ours => of_run(smoothed.packets.as_ref()),
        }
    }

    /// Ours in between: a quarter and half a window after each midpoint, and a quarter before it.
    fn between(&self, smoothed: &Smoothed, running: &Running<'_>) -> Vec<Judgement> {
        let mut judged = Vec::new();
        for (index, solved) in self.solved.iter().enumerate() {
            let last = index + 1 == self.solved.len();
            for quarter in [-1, 1, 2].into_iter().filter(|quarter| *quarter < 2 || !last) {
                let at = solved.data.midpoint() + Duration::from_ns(self.plan.window.as_ns() / 4 * quarter);
                let nodes = (0..self.options.nodes as u32).map(NodeId).filter(|node| *node != self.options.reference);
                judged.extend(nodes.map(|node| {
                    let estimate = smoothed.at(node, at).map_or(Estimate::bare(None), |at| Estimate::of_node(&at));
                    estimate.judged(running, node, index, at)
                }));
            }
        }
        judged
    }
}

/// The exchanges of a round, as in a recorded run.
fn recorded<'a>((solved, window): (&SolvedRound, &'a WindowRecord)) -> impl Iterator<Item = Recorded<'a>> + use<'a> {
    let round_id: RoundId = solved.data.round_id;
    let edges = window.cuts.iter().flat_map(|cut| &cut.edges);
    edges.map(move |cut| Recorded { round_id, edge: cut.edge, exchanges: &cut.exchanges })
}

/// Estimate of a method for one node at one instant.
#[derive(Copy, Clone, Debug)]
struct Estimate {
    offset_ns: Option<f64>,
    half_width_95_ns: Option<f64>,
    hard_ns: Option<[f64; 2]>,
    rate_ppm: Option<f64>,
}

impl Estimate {
    fn bare(offset_ns: Option<f64>) -> Self {
        Self { offset_ns, half_width_95_ns: None, hard_ns: None, rate_ppm: None }
    }

    fn of_node(node: &NodeEstimate) -> Self {
        let claimed = node.reachable.then_some(node);
        Self {
            offset_ns: claimed.map(|node| node.offset_ns),
            half_width_95_ns: claimed.map(|node| SIGMAS_95 * node.sigma_ns),
            hard_ns: claimed.map(|node| [node.bound_lo_ns, node.bound_hi_ns]),
            rate_ppm: claimed.map(|node| node.drift_ppm),
        }
    }

    fn judged(self, running: &Running<'_>, node: NodeId, window: usize, at: Timestamp<Reference>) -> Judgement {
        let Self { offset_ns: estimate_ns, half_width_95_ns, hard_ns, rate_ppm } = self;
        let truth_ns = running.offset_ns(node, at);
        Judgement { node, window, at, truth_ns, estimate_ns, half_width_95_ns, hard_ns, rate_ppm }
    }
}
