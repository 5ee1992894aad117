//! What is kept of a run while it is judged, and what each method makes of it.
//!
//! Place in the flow: the middle of `accuracy`. Each round's packets become the baselines' lines at once; packets are kept only where
//! our smoother will look at them again. After the last round every method's estimates are set beside the truth.
//!
//! What it does not do: fit or solve; `baselines`, `joining` and the crate `estimate` do.

use probe_sync_estimate::edge_fit::EdgeWindow;
use probe_sync_estimate::graph::GraphSolution;
use probe_sync_estimate::round::WindowCut;
use probe_sync_estimate::smoother::{
    self, Exchanges, Online, RunSolution, SmoothedOffset, SmootherOptions, smooth_packets, smooth_run,
};
use probe_sync_estimate::window::{EdgeAlphaBeta, NodeEstimate};
use probe_sync_time::{Duration, Edge, NodeId, Reference, System, Timestamp};

use super::baselines::{self, Fastest, Version};
use super::joining::{EdgeLine, Joining, join};
use super::{Judgement, Method, Plan};
use crate::course::Course;
use crate::runs::rounds::{REFERENCE, Round};
use crate::runs::running::Running;

/// A run so far.
pub(super) struct Record<'a> {
    plan: &'a Plan,
    edges: &'a [Edge],
    windows: Vec<WindowRecord>,
    /// NTP's samples of each edge, in order of time.
    fastest: Vec<Vec<Fastest>>,
    /// What the watch said.
    course: Course,
    live: Option<Online>,
}

struct WindowRecord {
    reference_midpoint: Timestamp<Reference>,
    /// Where each edge's source has the middle of its window.
    midpoints: Vec<(usize, Timestamp<System>)>,
    /// Our edges.
    fitted: Vec<EdgeAlphaBeta>,
    solution: GraphSolution,
    /// By method, for those that fit windows.
    lines: Vec<(Method, Vec<EdgeLine>)>,
    /// The packets, where they will be looked at again; else empty.
    cuts: Vec<WindowCut>,
    /// What the live smoother said of the round, where the plan wants it.
    live: Vec<Option<SmoothedOffset>>,
}

/// Our two smoothed runs, each where the plan wants it.
struct Smoothed {
    rounds: Option<RunSolution>,
    packets: Option<RunSolution>,
}

impl<'a> Record<'a> {
    pub(super) fn new(plan: &'a Plan, edges: &'a [Edge]) -> Self {
        Self {
            plan,
            edges,
            windows: Vec::new(),
            fastest: vec![Vec::new(); edges.len()],
            course: Course::default(),
            live: None,
        }
    }

    /// Takes in a round of the run.
    pub(super) fn take(&mut self, round: Round, running: &Running<'_>) {
        let verdict = self.course.take(&round, running);
        let live = if self.plan.methods.contains(&Method::Live) {
            let left_out = self.course.left_out(round.index);
            let broken: Vec<NodeId> = verdict.breaks.iter().map(|broken| broken.node).collect();
            let Round { reference_midpoint, edges, solution, .. } = &round;
            let seen = smoother::Round::solved(*reference_midpoint, edges, solution, &left_out);
            let online = || Online::new(solution.nodes.len(), REFERENCE);
            self.live.get_or_insert_with(online).observe(&seen, &broken)
        } else {
            Vec::new()
        };
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
        let Round { edges: fitted, reference_midpoint, solution, cuts, .. } = round;
        let cuts = if self.plan.methods.contains(&Method::Ours) { cuts } else { Vec::new() };
        self.windows.push(WindowRecord { reference_midpoint, midpoints, fitted, solution, lines, cuts, live });
    }

    /// Every method's judgements in the plan's order, and ours in between.
    pub(super) fn judged(&self, running: &Running<'_>) -> (Vec<(Method, Vec<Judgement>)>, Vec<Judgement>) {
        let smoothed = self.smoothed();
        let judge = |method: &Method| (*method, self.judgements(*method, &smoothed, running));
        let methods = self.plan.methods.iter().map(judge).collect();
        let best = smoothed.packets.as_ref().or(smoothed.rounds.as_ref());
        (methods, best.map_or_else(Vec::new, |best| self.between(best, running)))
    }

    /// A baseline's lines of one window; None for methods without.
    fn lines(&self, method: Method, windows: &[EdgeWindow<'_>]) -> Option<Vec<EdgeLine>> {
        let tuning = &self.plan.tuning;
        let fit: &dyn Fn(&EdgeWindow<'_>) -> Option<EdgeLine> = match method {
            Method::Ntp => &baselines::ntp,
            Method::Huygens => &|window| baselines::huygens(window, Version::Plain, tuning),
            Method::HuygensPlus => &|window| baselines::huygens(window, Version::Tuned, tuning),
            Method::Svm => &|window| baselines::svm(window, Version::Plain, tuning),
            Method::SvmPlus => &|window| baselines::svm(window, Version::Tuned, tuning),
            Method::Mean => &baselines::mean,
            Method::NtpPlus | Method::Hull | Method::Live | Method::Smooth | Method::Ours => return None,
        };
        Some(windows.iter().filter_map(fit).collect())
    }

    fn smoothed(&self) -> Smoothed {
        let wants = |method| self.plan.methods.contains(&method);
        let left_out: Vec<Vec<Edge>> = (0..self.windows.len()).map(|round| self.course.left_out(round)).collect();
        let solved = self.windows.iter().zip(&left_out);
        let rounds: Vec<smoother::Round<'_>> = solved.map(|(window, left_out)| window.as_round(left_out)).collect();
        let breaks = self.course.breaks();
        let nodes = self.windows.first().map_or(0, |window| window.solution.nodes.len());
        let options = SmootherOptions::default();
        let packets = wants(Method::Ours).then(|| {
            let mut exchanges = Exchanges::new();
            for edge in self.windows.iter().flat_map(|window| &window.cuts).flat_map(|cut| &cut.edges) {
                exchanges.entry(edge.edge).or_default().push(&edge.exchanges);
            }
            smooth_packets(nodes, &rounds, breaks, &exchanges, &options)
        });
        Smoothed { rounds: wants(Method::Smooth).then(|| smooth_run(nodes, &rounds, breaks, &options)), packets }
    }

    fn judgements(&self, method: Method, smoothed: &Smoothed, running: &Running<'_>) -> Vec<Judgement> {
        let judged = self.windows.iter().enumerate().flat_map(|(index, window)| {
            let estimates = self.estimates(method, smoothed, window);
            let at_ns = window.reference_midpoint.as_ns();
            let judge = move |(node, estimate): (usize, Estimate)| estimate.judged(running, node, index, at_ns);
            estimates.into_iter().enumerate().skip(1).map(judge).collect::<Vec<_>>()
        });
        judged.collect()
    }

    fn estimates(&self, method: Method, smoothed: &Smoothed, window: &WindowRecord) -> Vec<Estimate> {
        let nodes = window.solution.nodes.len();
        let joined = |lines: &[EdgeLine], joining| {
            let offsets = join(nodes, window.reference_midpoint.as_ns(), lines, joining);
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
            Method::Hull => window.solution.nodes.iter().map(Estimate::of_node).collect(),
            Method::Live => window.smooth(|node| window.live.get(node.index()).copied().flatten()),
            Method::Smooth => window.smooth(|node| smoothed.rounds.as_ref()?.at(node, window.reference_midpoint)),
            Method::Ours => window.smooth(|node| smoothed.packets.as_ref()?.at(node, window.reference_midpoint)),
        }
    }

    /// Ours in between: a quarter and half a window after each middle, and a quarter before it.
    fn between(&self, smoothed: &RunSolution, running: &Running<'_>) -> Vec<Judgement> {
        let mut judged = Vec::new();
        for (index, window) in self.windows.iter().enumerate() {
            let last = index + 1 == self.windows.len();
            for quarter in [-1, 1, 2].into_iter().filter(|quarter| *quarter < 2 || !last) {
                let at = window.reference_midpoint + Duration::from_ns(self.plan.window.as_ns() / 4 * quarter);
                let nodes = 1..window.solution.nodes.len();
                judged.extend(nodes.map(|node| {
                    let estimate = Estimate::smooth(smoothed.at(NodeId(node as u32), at));
                    estimate.judged(running, node, index, at.as_ns())
                }));
            }
        }
        judged
    }
}

impl WindowRecord {
    fn as_round<'a>(&'a self, left_out: &'a [Edge]) -> smoother::Round<'a> {
        smoother::Round::solved(self.reference_midpoint, &self.fitted, &self.solution, left_out)
    }

    /// What a smoother says at the window's middle, with the window's own hard intervals.
    fn smooth(&self, at: impl Fn(NodeId) -> Option<SmoothedOffset>) -> Vec<Estimate> {
        let estimate = |node: &NodeEstimate| Estimate {
            hard_ns: Estimate::of_node(node).hard_ns,
            ..Estimate::smooth(at(node.node_id))
        };
        self.solution.nodes.iter().map(estimate).collect()
    }
}

/// What a method says about one node at one instant.
#[derive(Copy, Clone, Debug)]
struct Estimate {
    offset_ns: Option<f64>,
    half_width_95_ns: Option<f64>,
    hard_ns: Option<[f64; 2]>,
}

impl Estimate {
    fn bare(offset_ns: Option<f64>) -> Self {
        Self { offset_ns, half_width_95_ns: None, hard_ns: None }
    }

    fn smooth(smoothed: Option<SmoothedOffset>) -> Self {
        Self {
            offset_ns: smoothed.map(|smoothed| smoothed.offset_ns),
            half_width_95_ns: smoothed.map(|smoothed| smoothed.half_width_95_ns),
            hard_ns: None,
        }
    }

    fn of_node(node: &NodeEstimate) -> Self {
        let claimed = node.reachable.then_some(node);
        Self {
            offset_ns: claimed.map(|node| node.offset_ns),
            half_width_95_ns: claimed.map(|node| SIGMAS_95 * node.sigma_ns),
            hard_ns: claimed.map(|node| [node.bound_lo_ns, node.bound_hi_ns]),
        }
    }

    fn judged(self, running: &Running<'_>, node: usize, window: usize, at_ns: i64) -> Judgement {
        let node = NodeId(node as u32);
        let Self { offset_ns: estimate_ns, half_width_95_ns, hard_ns } = self;
        let truth_ns = running.offset_ns(node, Timestamp::<System>::from_ns(at_ns));
        Judgement { node, window, at_ns, truth_ns, estimate_ns, half_width_95_ns, hard_ns }
    }
}

/// Half-width of a 95 % interval of the normal distribution, in standard deviations.
const SIGMAS_95: f64 = 1.959964;
