//! Which nodes are heard: silence, partition, return and late joining.
//!
//! A node is heard if a chain of edges with finished exchanges connects it to the reference,
//! whether the solution used them or not. If the part with the reference is the smaller one, that
//! part is named.
//!
//! A node that reports its window and is not heard is named when it is not heard in the next round
//! either: where a host was starved for most of a window, or a partition began in its middle,
//! nobody knows yet whether it is gone.
//!
//! It cannot tell a dead node from a dead link to its only peer.

use probe_sync_lines::{Culprit, Fault, FaultKind, Findings};
use probe_sync_time::{NodeId, RoundId};

use super::view::RoundView;
use crate::graph::components::parts;

/// Rounds since which each node is missing.
#[derive(Clone, Debug, Default)]
pub(super) struct Membership {
    nodes: Vec<Seen>,
}

#[derive(Copy, Clone, Debug, Default)]
struct Seen {
    ever: bool,
    /// First round without the node.
    missing_since: Option<RoundId>,
    /// True if the absence was reported.
    named: bool,
}

/// The nodes heard in a round.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    /// Nodes joined to the reference.
    pub(super) now: Vec<bool>,
    /// Nodes heard again after rounds of absence.
    pub(super) back: Vec<bool>,
    /// Number of rounds missed before this one.
    pub(super) missed: Vec<u64>,
}

impl Membership {
    pub(super) fn observe(&mut self, view: &RoundView<'_>, findings: &mut Findings) -> Heard {
        let count = view.nodes.len();
        self.nodes.resize(count, Seen::default());
        let part = connected(view);
        let home = part.get(view.reference.index()).copied().unwrap_or(0);
        let now: Vec<bool> = part.iter().map(|of| *of == home).collect();
        let mut heard = Heard { back: vec![false; count], missed: vec![0; count], now };
        let (mut lost, mut returned) = (Vec::new(), Vec::new());
        for node in 0..count {
            let seen = &mut self.nodes[node];
            match (heard.now[node], seen.missing_since) {
                (true, None) => {}
                (true, Some(since)) => {
                    heard.missed[node] = view.round.0 - since.0;
                    seen.missing_since = None;
                    let named = std::mem::take(&mut seen.named);
                    heard.back[node] = seen.ever;
                    if seen.ever && named {
                        returned.push(node);
                    } else if named {
                        let missed = heard.missed[node] as f64;
                        findings.faults.push(fault(FaultKind::JoinedLate, &[node], missed, view.round));
                    }
                }
                (false, missing) => {
                    let since = *seen.missing_since.get_or_insert(view.round);
                    let reports = || view.reporting.iter().any(|reporting| reporting.index() == node);
                    if !seen.named && (missing.is_some() || !reports()) {
                        seen.named = true;
                        lost.push((node, since));
                    }
                }
            }
            seen.ever |= heard.now[node];
        }
        name_lost(&part, home, &lost, findings);
        if !returned.is_empty() {
            findings.faults.push(fault(FaultKind::Rejoined, &returned, returned.len() as f64, view.round));
        }
        heard
    }
}

/// Reports one fault for each part that was cut off, or for the reference's own part if that is the
/// smaller one.
fn name_lost(part: &[usize], home: usize, lost: &[(usize, RoundId)], findings: &mut Findings) {
    let at_home: Vec<usize> = (0..part.len()).filter(|node| part[*node] == home).collect();
    let mut left = lost.to_vec();
    while let Some(&(first, since)) = left.first() {
        let (together, others): (Vec<_>, Vec<_>) = left.into_iter().partition(|(node, _)| part[*node] == part[first]);
        left = others;
        let since = together.iter().map(|(_, since)| *since).fold(since, RoundId::min);
        let together: Vec<usize> = together.into_iter().map(|(node, _)| node).collect();
        let named = if together.len() > at_home.len() { &at_home } else { &together };
        let kind = if named.len() > 1 { FaultKind::Partition } else { FaultKind::Silent };
        findings.faults.push(fault(kind, named, named.len() as f64, since));
    }
}

fn fault(kind: FaultKind, nodes: &[usize], size: f64, round: RoundId) -> Fault {
    let named: Vec<NodeId> = nodes.iter().map(|node| NodeId(*node as u32)).collect();
    let culprit = if let [one] = named[..] { Culprit::Node(one) } else { Culprit::Nodes(named) };
    Fault::new(kind, culprit, if kind == FaultKind::Silent { 0.0 } else { size }, round)
}

/// Returns the connected part of each node, identified by one of its nodes.
fn connected(view: &RoundView<'_>) -> Vec<usize> {
    let heard = view.edges.iter().filter(|edge| edge.pairs_count > 0);
    parts(view.nodes.len(), heard.map(|edge| [edge.src_node_id.index(), edge.dst_node_id.index()]))
}
