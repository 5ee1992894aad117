//! Packet loss: the affected edge, node or direction, and the fraction lost.
//!
//! If the packet counts of both ends are known, the fraction refers to packets in one direction,
//! and an edge that is bad in one direction is named as such. Otherwise it refers to exchanges of
//! six packets each, so that a loss of 30 % of packets is 88 % of exchanges.
//!
//! A share counts as high when it lies three standard deviations (binomial) above [`SHARE`], in two
//! rounds running: a partition that begins in mid-window looks like loss for one round. A packet
//! that was on its way when windows ended, or waited for a process that had no time to read it, is
//! received in the next: a round is judged when the next one is known, and what that has too many
//! is not lost. Most edges of a node: the node is named; most edges of all: the network.
//!
//! It excludes nothing: fewer packets make an estimate weaker, not wrong.

use std::collections::{BTreeMap, BTreeSet};

use probe_sync_lines::{Culprit, Fault, FaultKind, Findings};
use probe_sync_time::{Edge, NodeId, RoundId};

use super::membership::Heard;
use super::view::RoundView;

/// Recent losses.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses {
    /// Lossy directions, with the round since which they are lossy and whether that was reported.
    lossy: BTreeMap<(NodeId, NodeId), Lossy>,
    /// Nodes that were reported and have not recovered.
    said_nodes: BTreeSet<NodeId>,
    said_everyone: bool,
    /// Packets received beyond those sent, by direction, in the last round: they were sent in the
    /// previous one, or are missing in this one.
    surplus: Surplus,
    /// The last round, not judged yet.
    last: Option<(RoundId, Shares)>,
}

#[derive(Copy, Clone, Debug)]
struct Lossy {
    since: RoundId,
    named: bool,
    share: f64,
}

/// Packets sent and lost, by direction; edges whose directions are not distinguished count for
/// both.
type Shares = BTreeMap<(NodeId, NodeId), [f64; 2]>;

type Surplus = BTreeMap<(NodeId, NodeId), u64>;

impl Losses {
    /// Returns the nodes that lost most of their exchanges in this round.
    pub(super) fn observe(&mut self, view: &RoundView<'_>, heard: &Heard, findings: &mut Findings) -> Vec<bool> {
        // Who is not heard has fallen silent, and is named for that.
        let present = |direction: &(NodeId, NodeId)| {
            [direction.0, direction.1].iter().all(|node| heard.now.get(node.index()) == Some(&true))
        };
        let mut now = shares(view, &self.surplus);
        now.retain(|direction, _| present(direction));
        self.surplus = surplus(view);
        if let Some((round, mut last)) = self.last.replace((view.round, now)) {
            last.retain(|direction, _| present(direction));
            for (direction, more) in &self.surplus {
                last.entry(*direction).and_modify(|[_, lost]| *lost = (*lost - *more as f64).max(0.0));
            }
            self.judge(view, round, &last, findings);
        }
        hard_hit(view)
    }

    /// Judges a round once the next one is known.
    fn judge(&mut self, view: &RoundView<'_>, round: RoundId, shares: &Shares, findings: &mut Findings) {
        let before = std::mem::take(&mut self.lossy);
        for (direction, [sent, lost]) in shares {
            let share = lost / sent.max(1.0);
            let known = before.get(direction);
            let spread = (share * (1.0 - share) / sent.max(1.0)).sqrt();
            let high = *lost >= LOST_MIN && share - 3.0 * spread > SHARE;
            if high || known.is_some() && share > SHARE / 2.0 {
                let fresh = Lossy { since: round, named: false, share };
                self.lossy.insert(*direction, known.map_or(fresh, |known| Lossy { share, ..*known }));
            }
        }
        let lossy = &self.lossy;
        self.said_nodes.retain(|node| lossy.keys().any(|d| d.0 == *node || d.1 == *node));
        // What is left when the network is well again is an edge's or a node's own.
        if self.said_everyone && 3 * lossy.len() < shares.len() {
            self.said_everyone = false;
            self.lossy.values_mut().for_each(|lossy| (lossy.named, lossy.since) = (false, round));
        }
        let sure: Vec<(NodeId, NodeId)> =
            self.lossy.iter().filter(|(_, lossy)| !lossy.named && lossy.since < round).map(|(d, _)| *d).collect();
        if !sure.is_empty() {
            self.name(view, shares, &sure, findings);
        }
    }

    /// Reports newly certain losses, at the widest extent that applies.
    fn name(&mut self, view: &RoundView<'_>, shares: &Shares, sure: &[(NodeId, NodeId)], findings: &mut Findings) {
        let mean = |of: &[(NodeId, NodeId)], lossy: &BTreeMap<_, Lossy>| {
            let known: Vec<f64> = of.iter().filter_map(|d| lossy.get(d)).map(|lossy: &Lossy| lossy.share).collect();
            known.iter().sum::<f64>() / known.len().max(1) as f64
        };
        let since = sure.iter().filter_map(|d| self.lossy.get(d)).map(|lossy| lossy.since).min().unwrap_or(view.round);
        let mut say = |kind, culprit, size| findings.faults.push(Fault::new(kind, culprit, size, since));
        let known = |d: &(NodeId, NodeId)| self.said_nodes.contains(&d.0) || self.said_nodes.contains(&d.1);
        let mut left: Vec<(NodeId, NodeId)> =
            sure.iter().filter(|d| !self.said_everyone && !known(d)).copied().collect();
        if !self.said_everyone && 3 * self.lossy.len() >= 2 * shares.len() && shares.len() > 2 {
            say(FaultKind::Loss, Culprit::Everyone, mean(sure, &self.lossy));
            self.said_everyone = true;
            left.clear();
        }
        while let Some(node) = self.worst_node(view.nodes.len(), shares, &left) {
            let (of_node, others) = left.into_iter().partition(|d: &(NodeId, NodeId)| d.0 == node || d.1 == node);
            let of_node: Vec<_> = of_node;
            say(FaultKind::Loss, Culprit::Node(node), mean(&of_node, &self.lossy));
            self.said_nodes.insert(node);
            left = others;
        }
        for &(from, to) in &left {
            let both =
                !shares.contains_key(&(to, from)) || view.directions.is_empty() || self.lossy.contains_key(&(to, from));
            let again = both && from > to && left.contains(&(to, from));
            let kind = if both { FaultKind::Loss } else { FaultKind::OneWayLoss };
            if !again {
                say(kind, Culprit::Edge(Edge { src: from, dst: to }), mean(&[(from, to)], &self.lossy));
            }
        }
        for direction in sure {
            if let Some(lossy) = self.lossy.get_mut(direction) {
                lossy.named = true;
            }
        }
    }

    /// Returns the node of which most directions are lossy, some of them among `left`; the one with
    /// the most.
    fn worst_node(&self, nodes: usize, shares: &Shares, left: &[(NodeId, NodeId)]) -> Option<NodeId> {
        let count = |directions: &mut dyn Iterator<Item = &(NodeId, NodeId)>| {
            let mut counts = vec![0usize; nodes];
            for (from, to) in directions {
                for node in [from, to] {
                    counts.get_mut(node.index()).into_iter().for_each(|count| *count += 1);
                }
            }
            counts
        };
        let all = count(&mut shares.keys());
        let bad = count(&mut self.lossy.keys());
        let fresh = count(&mut left.iter());
        let worst = (0..nodes).filter(|node| fresh[*node] > 0 && bad[*node] > 1 && 3 * bad[*node] >= 2 * all[*node]);
        worst.max_by_key(|node| (bad[*node], std::cmp::Reverse(*node))).map(|node| NodeId(node as u32))
    }
}

fn shares(view: &RoundView<'_>, surplus: &Surplus) -> Shares {
    let mut shares = Shares::new();
    let mut count = |from: NodeId, to: NodeId, sent: f64, lost: f64| {
        let share = shares.entry((from, to)).or_insert([0.0; 2]);
        *share = [share[0] + sent, share[1] + lost];
    };
    for direction in view.directions {
        let sent = direction.sent as f64;
        // What may have been counted in another window is not known to be lost: packets go in
        // bursts, so that a cut that was late by little may move many.
        let before = surplus.get(&(direction.from, direction.to)).copied().unwrap_or(0) as f64;
        let lost = direction.sent.saturating_sub(direction.received) as f64 - before.max(direction.apart * sent);
        count(direction.from, direction.to, sent, lost.max(0.0));
    }
    if view.directions.is_empty() {
        for edge in view.edges {
            let (finished, lost) = (f64::from(edge.pairs_count), f64::from(edge.lost_count));
            count(edge.src_node_id, edge.dst_node_id, finished + lost, lost);
        }
        for (edge, lost) in view.unfitted {
            count(edge.src, edge.dst, f64::from(*lost), f64::from(*lost));
        }
    }
    shares
}

fn surplus(view: &RoundView<'_>) -> Surplus {
    let more = view.directions.iter().filter(|direction| direction.received > direction.sent);
    more.map(|direction| ((direction.from, direction.to), direction.received - direction.sent)).collect()
}

/// Returns the nodes that lost more than a twentieth of their exchanges: supporting evidence for a
/// step, not a fault.
fn hard_hit(view: &RoundView<'_>) -> Vec<bool> {
    let mut counts = vec![[0u64; 2]; view.nodes.len()];
    let mut count = |edge: Edge, pairs: u32, lost: u32| {
        for node in [edge.src, edge.dst] {
            if let Some([all, gone]) = counts.get_mut(node.index()) {
                *all += u64::from(pairs) + u64::from(lost);
                *gone += u64::from(lost);
            }
        }
    };
    view.edges.iter().for_each(|edge| count(edge.edge(), edge.pairs_count, edge.lost_count));
    view.unfitted.iter().for_each(|(edge, lost)| count(*edge, 0, *lost));
    counts.iter().map(|[all, gone]| 20 * gone > *all && *gone as f64 >= LOST_MIN).collect()
}

/// Share of losses above which they are a fault.
const SHARE: f64 = 0.1;

/// Fewest losses that are meaningful.
const LOST_MIN: f64 = 5.0;
