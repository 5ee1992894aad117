//! Each edge's own level, which reveals asymmetric paths, changed routes and nodes with
//! inconsistent timestamps.
//!
//! Against the solved offsets an edge has the residual
//! `r = beta + alpha·dx − (offset_j − offset_i)` (`graph::edges`), its path asymmetry plus noise,
//! which is constant. Its margin is half the least round trip, also constant. A running mean of
//! both is the edge's level.
//!
//! Off the level in two rounds running, or excluded by `graph` twice running from the beginning:
//! - residual, on one edge of a node: an asymmetric edge; on several and at least a third of its
//!   edges: the node's timestamps depend on the peer;
//! - from the beginning: the level itself lies far outside of all edges' levels;
//! - margin alone: a changed route, where it rises, or falls below all that were seen (queues only
//!   ever add to it); on seven of ten edges of the network alike: a load that began or ended; on
//!   two thirds of a node's edges while its offset leaves its prediction: that node's receive
//!   stamps are late or early, which no change of routes does to all peers at once.
//!
//! An edge whose residual is off keeps its old level until it returns; a changed margin is the new
//! level.
//!
//! It does not detect a fault that all edges of a node share from the first round on.

use std::collections::BTreeMap;

use probe_sync_lines::{Culprit, EdgeFit, Fault, FaultKind, Findings};
use probe_sync_time::{Edge, NodeId, RoundId};

use super::comparison::{Comparison, is_most};
use super::events::is_step;
use super::falls::{Falls, PAIRS_MIN};
use super::scale::Scale;
use super::view::RoundView;
use crate::graph::edges::{Equation, State};
use crate::statistics::{TO_SIGMA, median};

/// Knowledge about every edge.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    edges: BTreeMap<Edge, Track>,
    /// Of residual and margin.
    scales: [Scale; 2],
    /// Nodes whose timestamps were inconsistent in the round before.
    inconsistent: Vec<bool>,
}

#[derive(Copy, Clone, Debug, Default)]
struct Track {
    /// Mean residual and margin, ns.
    level: [f64; 2],
    /// The least margin that the level was learnt from, ns.
    lowest: f64,
    /// Mean random variance of the residual, ns².
    variance: f64,
    count: u32,
    seen: u32,
    /// The smallest margin while both clocks were where they were predicted, ns; 0 before the
    /// first.
    least_margin: f64,
    first: RoundId,
    last: RoundId,
    /// Off in the round before: by how much, and since when.
    suspicion: Option<Off>,
    /// Rounds running that `graph` excluded it.
    excluded: u32,
    /// Its residual is off and that was said.
    bad: bool,
}

/// Deviation of an edge from its level, ns; zero if it is at its level.
#[derive(Copy, Clone, Debug, PartialEq)]
struct Off {
    residual: f64,
    margin: f64,
    since: RoundId,
}

/// An edge that is off for the second time.
#[derive(Copy, Clone, Debug)]
struct Sure {
    edge: Edge,
    off: Off,
}

/// Inconsistencies of nodes and edges.
#[derive(Clone, Debug)]
pub(super) struct Inconsistencies {
    /// By node: its timestamps depend on the peer.
    pub(super) nodes: Vec<bool>,
    /// By node: why its offset left its prediction was said already.
    pub(super) explained: Vec<bool>,
    /// Edges whose residual is off.
    pub(super) bad_edges: Vec<Edge>,
    /// By node: how far the margins of its edges are below their minimum so far, as a median, minus
    /// the fall common to all others, ns.
    pub(super) fell_ns: Vec<f64>,
}

/// Nodes whose windows no straight line explains: their clock stepped within the window. Broken
/// edges that are left over are the edges' own affair.
pub(super) fn broken_nodes(view: &RoundView<'_>) -> Vec<bool> {
    let mut counts = vec![[0u32; 2]; view.nodes.len()];
    let mut broken = vec![false; view.nodes.len()];
    let inside = |edge: &&EdgeFit| edge.src_node_id.index().max(edge.dst_node_id.index()) < view.nodes.len();
    let ends = |edge: &EdgeFit| [edge.src_node_id.index(), edge.dst_node_id.index()];
    let typical = median(view.edges.iter().filter(|e| e.feasible).map(|e| e.margin_ns.max(1.0)));
    // The same rule as in `graph`: off a straight line by more than a typical delay.
    let is_broken = |edge: &EdgeFit| !edge.feasible && -edge.margin_ns > typical;
    let mut left: Vec<&EdgeFit> = view.edges.iter().filter(inside).filter(|edge| is_broken(edge)).collect();
    for edge in view.edges.iter().filter(inside) {
        ends(edge).into_iter().for_each(|node| counts[node][1] += 1);
    }
    // A node that saw itself step explains its own edges.
    let saw = |node: NodeId| view.clock_events.iter().any(|(of, event)| *of == node && is_step(event));
    left.retain(|edge| !saw(edge.src_node_id) && !saw(edge.dst_node_id));
    while !left.is_empty() {
        counts.iter_mut().for_each(|count| count[0] = 0);
        left.iter().for_each(|edge| ends(edge).into_iter().for_each(|node| counts[node][0] += 1));
        // A node with one edge shares it with a better candidate, or is as good as any.
        let worst = (0..counts.len()).max_by_key(|node| (counts[*node][0], std::cmp::Reverse(counts[*node][1])));
        let Some(worst) = worst.filter(|node| 3 * counts[*node][0] >= 2 * counts[*node][1]) else { break };
        broken[worst] = true;
        left.retain(|edge| !ends(edge).contains(&worst));
    }
    broken
}

impl Paths {
    pub(super) fn observe(
        &mut self,
        view: &RoundView<'_>,
        compared: &Comparison,
        findings: &mut Findings,
    ) -> Inconsistencies {
        let nodes = view.nodes.len();
        let scales = [self.scales[0].value(), self.scales[1].value()];
        let mut excluded_edges: Vec<Edge> = view.excluded.iter().map(|(edge, _)| *edge).collect();
        excluded_edges.sort_unstable();
        let mut sure = Vec::new();
        let falls = Falls::of(view, |edge| self.edges.get(&edge).map_or(0.0, |track| track.least_margin));
        for edge in view.edges {
            let (from, to) = (edge.src_node_id.index(), edge.dst_node_id.index());
            let usable = |node: usize| node < nodes && view.nodes[node].reachable && !compared.broken[node];
            let whole = compared.broken.get(view.reference.index()) == Some(&false);
            let enough = edge.feasible && edge.pairs_count >= PAIRS_MIN;
            if !(whole && usable(from) && usable(to) && enough && from != to) {
                continue;
            }
            if !self.edges.contains_key(&edge.edge()) && self.edges.len() >= EDGES_MAX {
                continue;
            }
            let excluded = excluded_edges.binary_search(&edge.edge()).is_ok();
            let track = self.edges.entry(edge.edge()).or_insert(Track { first: view.round, ..Track::default() });
            let measured = [residual(view, edge), edge.margin_ns];
            if !measured.iter().all(|value| value.is_finite()) {
                continue;
            }
            track.excluded = if excluded { track.excluded + 1 } else { 0 };
            track.last = view.round;
            // Nothing is learnt of edges whose node may have moved within the window.
            let moving = compared.is_off(from) || compared.is_off(to);
            if !moving {
                let least = if track.least_margin > 0.0 { track.least_margin } else { f64::INFINITY };
                track.least_margin = least.min(edge.margin_ns).max(0.0);
            } else {
                // Where all others fell, as when a load ends, this one would have.
                track.least_margin = (track.least_margin - falls.usual_ns(edge.edge())).max(0.0);
            }
            if let Some(off) = track.look(view.round, edge, measured, scales, moving, &mut self.scales) {
                sure.push(Sure { edge: edge.edge(), off });
            }
        }
        if view.round.0.is_multiple_of(PRUNE_ROUNDS) {
            self.edges.retain(|_, track| track.last.0 + PRUNE_ROUNDS >= view.round.0);
        }
        sure.extend(self.lasting());
        let (nothing, bad_edges) = (vec![false; nodes], Vec::new());
        let mut found =
            Inconsistencies { nodes: nothing.clone(), explained: nothing, bad_edges, fell_ns: falls.of_nodes() };
        self.name_margins(compared, &mut sure, &mut found, findings);
        self.name_residuals(nodes, &sure, &mut found, findings);
        found
    }

    /// The edge whose level is farthest from all edges' levels: it was never off its own level, but
    /// was asymmetric from the beginning. One per round, because it moves its neighbours' levels
    /// too.
    fn lasting(&mut self) -> Option<Sure> {
        let settled = || self.edges.values().filter(|track| track.count >= LEVEL_COUNT_MIN);
        // Few levels do not say what is usual, and one that is off moves them all; the delay does.
        let typical = if settled().count() < LEVELS_MIN {
            USUAL_SHARE * median(settled().map(|track| track.level[1]))
        } else {
            TO_SIGMA * median(settled().map(|track| track.level[0].abs()))
        };
        let noise = DEVIATIONS * self.scales[0].value();
        let fresh = self.edges.iter_mut().filter(|(_, track)| track.count >= LEVEL_COUNT_MIN && !track.bad);
        let (edge, track) = fresh.max_by(|a, b| a.1.level[0].abs().total_cmp(&b.1.level[0].abs()))?;
        let random = noise * (track.variance / f64::from(track.count)).sqrt();
        if track.level[0].abs() < (LEVEL_DEVIATIONS * typical).max(random).max(LEVEL_MIN_NS) {
            return None;
        }
        // Its level is that of a good edge: it stays off that.
        let residual = std::mem::replace(&mut track.level[0], 0.0);
        Some(Sure { edge: *edge, off: Off { residual, margin: 0.0, since: track.first } })
    }

    /// Two thirds of a node's margins off: the node. The others: the edges.
    fn name_margins(
        &mut self,
        compared: &Comparison,
        sure: &mut Vec<Sure>,
        found: &mut Inconsistencies,
        findings: &mut Findings,
    ) {
        let nodes = found.nodes.len();
        let all = self.degrees(nodes);
        self.name_common_margin(nodes, sure, findings);
        loop {
            let mut counts = vec![0u32; nodes];
            let margins = sure.iter().filter(|sure| sure.off.margin != 0.0 && sure.off.residual == 0.0);
            margins.for_each(|sure| ends(sure.edge).into_iter().for_each(|node| counts[node] += 1));
            let worst = (0..nodes).max_by_key(|node| counts[*node]);
            let Some(worst) = worst.filter(|node| counts[*node] > 1 && 3 * counts[*node] >= 2 * all[*node]) else {
                break;
            };
            let (of_node, others): (Vec<Sure>, Vec<Sure>) =
                sure.iter().partition(|sure| ends(sure.edge).contains(&worst) && sure.off.residual == 0.0);
            let size = 2.0 * median(of_node.iter().map(|sure| sure.off.margin));
            let since = of_node.iter().map(|sure| sure.off.since).min().unwrap_or_default();
            let culprit = Culprit::Node(NodeId(worst as u32));
            found.explained[worst] = compared.innovations[worst].is_some_and(|i| i.off[0].abs() > 0.25 * size.abs());
            let kind = if found.explained[worst] { FaultKind::Falseticker } else { FaultKind::RouteChange };
            findings.faults.push(Fault::new(kind, culprit, size, since));
            *sure = others;
        }
    }

    /// Most margins of the network off alike, and no node has them all: the network is slower or
    /// faster, as when a load begins or ends. What is left of each edge is its own.
    fn name_common_margin(&self, nodes: usize, sure: &mut Vec<Sure>, findings: &mut Findings) {
        let margins = || sure.iter().filter(|sure| sure.off.margin != 0.0 && sure.off.residual == 0.0);
        let count = margins().count();
        let touching = |node: usize| margins().filter(|sure| ends(sure.edge).contains(&node)).count();
        let middle = median(margins().map(|sure| sure.off.margin));
        let alike = margins().filter(|sure| sure.off.margin * middle > 0.0).count();
        let settled = self.edges.values().filter(|track| track.count >= COUNT_MIN).count();
        if count < COMMON_MIN
            || alike < count
            || !is_most(count, settled)
            || (0..nodes).any(|node| touching(node) == count)
        {
            return;
        }
        let since = margins().map(|sure| sure.off.since).min().unwrap_or_default();
        findings.faults.push(Fault::new(FaultKind::RouteChange, Culprit::Everyone, 2.0 * middle, since));
        let spread = TO_SIGMA * median(margins().map(|sure| (sure.off.margin - middle).abs()));
        let usual = (LEVEL_DEVIATIONS * spread).max(MARGIN_MIN_NS).max(0.5 * middle.abs());
        sure.retain(|sure| sure.off.residual != 0.0 || (sure.off.margin - middle).abs() > usual);
    }

    /// Several bad edges of a node: the node. The others: the edges.
    fn name_residuals(&mut self, nodes: usize, sure: &[Sure], found: &mut Inconsistencies, findings: &mut Findings) {
        let all = self.degrees(nodes);
        let undecided = self.undecided(nodes, sure, &all);
        let sure: Vec<Sure> = sure.iter().filter(|sure| !undecided.contains(&sure.edge)).copied().collect();
        for sure in sure.iter().filter(|sure| sure.off.residual != 0.0) {
            if let Some(track) = self.edges.get_mut(&sure.edge) {
                track.bad = true;
            }
        }
        let mut bad: Vec<Edge> = self.edges.iter().filter(|(_, track)| track.bad).map(|(edge, _)| *edge).collect();
        found.bad_edges.clone_from(&bad);
        loop {
            let mut counts = vec![0u32; nodes];
            bad.iter().for_each(|edge| ends(*edge).into_iter().for_each(|node| counts[node] += 1));
            let worst = (0..nodes).max_by_key(|node| counts[*node]);
            let Some(worst) = worst.filter(|node| counts[*node] > 1 && 3 * counts[*node] >= all[*node]) else { break };
            found.nodes[worst] = true;
            bad.retain(|edge| !ends(*edge).contains(&worst));
        }
        let before = std::mem::replace(&mut self.inconsistent, found.nodes.clone());
        let inconsistent = found.nodes.clone();
        let falseticker = |edge: Edge| ends(edge).into_iter().find(|node| inconsistent[*node]);
        for node in (0..nodes).filter(|node| inconsistent[*node]) {
            let of_node: Vec<&Sure> =
                sure.iter().filter(|sure| sure.off.residual != 0.0 && falseticker(sure.edge) == Some(node)).collect();
            let size = of_node.iter().map(|sure| sure.off.residual.abs()).fold(0.0, f64::max);
            let since = of_node.iter().map(|sure| sure.off.since).min().unwrap_or_default();
            if !of_node.is_empty() && before.get(node) != Some(&true) {
                findings.faults.push(Fault::new(
                    FaultKind::Falseticker,
                    Culprit::Node(NodeId(node as u32)),
                    size,
                    since,
                ));
            }
        }
        for Sure { edge, off } in sure.iter().filter(|sure| falseticker(sure.edge).is_none()) {
            let (kind, size) = if off.residual == 0.0 {
                (FaultKind::RouteChange, 2.0 * off.margin)
            } else {
                (FaultKind::AsymmetricEdge, 2.0 * off.residual)
            };
            findings.faults.push(Fault::new(kind, Culprit::Edge(*edge), size, off.since));
        }
    }

    /// Single edges that are certain while others of the same node are off for the first time: one
    /// more round tells whether the edge or the node is bad.
    fn undecided(&mut self, nodes: usize, sure: &[Sure], all: &[u32]) -> Vec<Edge> {
        let mut counts = vec![[0u32; 2]; nodes];
        let off = self.edges.iter().filter(|(_, track)| track.suspicion.is_some_and(|off| off.residual != 0.0));
        off.for_each(|(edge, _)| ends(*edge).into_iter().for_each(|node| counts[node][0] += 1));
        let known = self.edges.iter().filter(|(_, track)| track.bad).map(|(edge, _)| *edge);
        let named = sure.iter().filter(|sure| sure.off.residual != 0.0).map(|sure| sure.edge);
        known.chain(named).for_each(|edge| ends(edge).into_iter().for_each(|node| counts[node][1] += 1));
        let open = |node: usize| counts[node][0] > 0 && 3 * (counts[node][0] + counts[node][1]) >= all[node];
        let lone = |edge: Edge| ends(edge).into_iter().all(|node| counts[node][1] == 1);
        let mut undecided = Vec::new();
        for Sure { edge, off } in sure.iter().filter(|sure| sure.off.residual != 0.0 && lone(sure.edge)) {
            if ends(*edge).into_iter().any(open) {
                undecided.push(*edge);
                if let Some(track) = self.edges.get_mut(edge) {
                    track.suspicion = Some(*off);
                }
            }
        }
        undecided
    }

    fn degrees(&self, nodes: usize) -> Vec<u32> {
        let mut all = vec![0u32; nodes];
        let known = self.edges.keys().flat_map(|edge| ends(*edge)).filter(|node| *node < nodes);
        known.for_each(|node| all[node] += 1);
        all
    }
}

impl Track {
    /// Compares with the level; Some when the edge is off for the second time and that was not said
    /// yet.
    fn look(
        &mut self,
        round: RoundId,
        edge: &EdgeFit,
        measured: [f64; 2],
        scales: [f64; 2],
        moving: bool,
        learnt: &mut [Scale; 2],
    ) -> Option<Off> {
        self.seen = self.seen.saturating_add(1);
        // The level is as uncertain as the rounds that it was learnt from.
        let deviation = (edge.covariance[0].max(1.0) + self.variance / f64::from(self.count.max(1))).sqrt();
        let off = [measured[0] - self.level[0], self.margin_off(measured[1])];
        let limits = [
            (DEVIATIONS * scales[0] * deviation).max(RESIDUAL_MIN_NS),
            (DEVIATIONS * scales[1] * deviation).max(MARGIN_MIN_NS).max(MARGIN_SHARE_MIN * self.level[1].abs()),
        ];
        let judged = self.count >= COUNT_MIN;
        let always = self.excluded >= EXCLUDED_MIN && !judged;
        // A residual that is small is no fault, whatever the level was: windows at the beginning
        // are not in place yet.
        let is_off =
            [judged && off[0].abs() > limits[0] && measured[0].abs() > limits[0], judged && off[1].abs() > limits[1]];
        let found = Off {
            residual: if is_off[0] {
                off[0]
            } else if always && !moving {
                measured[0]
            } else {
                0.0
            },
            margin: if is_off[1] { off[1] } else { 0.0 },
            since: round,
        };
        if found.residual == 0.0 && found.margin == 0.0 {
            if judged && !moving {
                (0..2).for_each(|k| learnt[k].learn(off[k] / deviation));
            }
            self.settle(measured, edge.covariance[0], moving);
            return None;
        }
        if self.bad && found.residual != 0.0 {
            return None;
        }
        self.confirm(found, always, measured[1])
    }

    /// Deviation of a margin from the level. Queues can only increase it: on a busy network the
    /// level is above the floor by the remaining queueing, and a margin that falls towards the
    /// floor has not changed; one that falls below all seen so far has.
    fn margin_off(&self, margin_ns: f64) -> f64 {
        let off = margin_ns - self.level[1];
        if off < 0.0 { (margin_ns - self.lowest).min(0.0) } else { off }
    }

    /// At its level: a suspicion is over, and the level follows.
    fn settle(&mut self, measured: [f64; 2], variance: f64, moving: bool) {
        self.suspicion = None;
        self.bad &= self.excluded > 0 && self.count < COUNT_MIN;
        if !moving && self.excluded == 0 && self.seen > UNSETTLED {
            self.take_in(measured, variance);
        }
    }

    /// Off its level: sure when it was so in the round before, in the same direction; `always` for
    /// one that never had a level.
    fn confirm(&mut self, found: Off, always: bool, margin_ns: f64) -> Option<Off> {
        let before = self.suspicion.replace(found)?;
        let same = |a: f64, b: f64| if a * b > 0.0 { b } else { 0.0 };
        let since = before.since;
        // Excluded from the first on, it has no round before in which it was off its level.
        let residual = if always { found.residual } else { same(before.residual, found.residual) };
        let sure = Off { residual, margin: same(before.margin, found.margin), since };
        self.suspicion = Some(Off { since, ..found });
        if sure.residual == 0.0 && sure.margin == 0.0 {
            return None;
        }
        if sure.margin != 0.0 {
            (self.level[1], self.lowest) = (margin_ns, margin_ns);
        }
        self.suspicion = None;
        Some(sure)
    }

    fn take_in(&mut self, measured: [f64; 2], variance: f64) {
        let margin = measured[1];
        self.lowest = if self.count == 0 { margin } else { self.lowest.min(margin) };
        self.count = self.count.saturating_add(1).min(COUNT_MAX);
        let gain = 1.0 / f64::from(self.count);
        self.variance += gain * (variance - self.variance);
        (0..2).for_each(|k| self.level[k] += gain * (measured[k] - self.level[k]));
    }
}

/// The edge's theta at the round's instant minus that of the solution, ns.
fn residual(view: &RoundView<'_>, edge: &EdgeFit) -> f64 {
    let [from, to] = [edge.src_node_id, edge.dst_node_id].map(|node| State::of(&view.nodes[node.index()]));
    Equation::new(0, edge).at(i128::from(view.reference_midpoint.as_ns()), &from, &to).residual[0]
}

fn ends(edge: Edge) -> [usize; 2] {
    [edge.src.index(), edge.dst.index()]
}

/// Distance from the level, in standard deviations.
const DEVIATIONS: f64 = 8.0;

/// A smaller change of a residual is not a fault, ns.
const RESIDUAL_MIN_NS: f64 = 150.0;

/// Nor is a smaller change of a margin, ns.
const MARGIN_MIN_NS: f64 = 250.0;

/// Nor one that is a smaller share of it.
const MARGIN_SHARE_MIN: f64 = 0.05;

/// Number of first rounds of an edge that are ignored: processes are still starting, and windows
/// are not aligned yet.
const UNSETTLED: u32 = 2;

/// Rounds before an edge has a level.
const COUNT_MIN: u32 = 2;

/// The mean forgets with this many rounds.
const COUNT_MAX: u32 = 16;

/// Number of consecutive rounds of exclusion, before there was a level, that make an edge suspect;
/// in the next round it counts as bad from the beginning.
const EXCLUDED_MIN: u32 = 1;

/// Distance of a level from the others, in robust standard deviations of all levels, and in ns,
/// that makes an edge asymmetric from the beginning.
const LEVEL_DEVIATIONS: f64 = 10.0;
const LEVEL_MIN_NS: f64 = 500.0;

/// Rounds of a level that is compared with those of the other edges.
const LEVEL_COUNT_MIN: u32 = 4;

/// Fewest edges whose levels determine the typical one; and the typical asymmetry if there are
/// fewer, as a share of the margin.
const LEVELS_MIN: usize = 16;
const USUAL_SHARE: f64 = 0.03;

/// Fewest edges whose margins can be said to be the network's.
const COMMON_MIN: usize = 4;

/// Most edges remembered; further ones are not watched.
pub(super) const EDGES_MAX: usize = 1 << 20;

/// Edges not seen for this many rounds are forgotten.
const PRUNE_ROUNDS: u64 = 256;
