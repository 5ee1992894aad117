//! Names a change of a clock, with its node and size, and reports which clocks do not continue.

use probe_sync_time::{NodeId, RoundId};

use super::fault::{Culprit, Fault, FaultKind};
use super::verdict::{Break, Verdict};
use crate::motion::NS_PER_S_PER_PPM;

/// What a clock did, seen from the reference.
#[derive(Copy, Clone, Debug)]
pub(super) struct Change {
    /// What it is called unless its rate alone changed.
    pub(super) kind: FaultKind,
    /// Offset and rate against the prediction, ns and ns/s.
    pub(super) off: [f64; 2],
    /// A step whose rate is off by more than this is a change of rate, ns/s; infinite where a jump
    /// was shown.
    pub(super) rate_limit: f64,
    /// The first round that shows it.
    pub(super) since: RoundId,
}

impl Change {
    /// A step of `ns`.
    pub(super) const fn step(ns: f64, since: RoundId) -> Self {
        Self { kind: FaultKind::Step, off: [ns, 0.0], rate_limit: f64::INFINITY, since }
    }

    /// A change of rate found over several rounds.
    pub(super) const fn rate(ns_per_s: f64, since: RoundId) -> Self {
        Self { kind: FaultKind::Step, off: [0.0, ns_per_s], rate_limit: 0.0, since }
    }

    /// The same with everything the other way round: seen from the reference, what it did itself.
    pub(super) fn reversed(self) -> Self {
        Self { off: self.off.map(|off| -off), ..self }
    }

    /// By the rate when that is off, else by the offset.
    fn kind_and_size(&self) -> (FaultKind, f64) {
        match self.kind {
            FaultKind::Step if self.off[1].abs() > self.rate_limit => {
                (FaultKind::RateJump, self.off[1] / NS_PER_S_PER_PPM)
            }
            kind => (kind, self.off[0]),
        }
    }

    /// Adds a fault, and a break of the `broken` unless the rate alone changed: offsets go on from
    /// there.
    fn add(&self, culprit: Culprit, size: f64, broken: impl Iterator<Item = NodeId>, verdict: &mut Verdict) {
        let (kind, _) = self.kind_and_size();
        if kind != FaultKind::RateJump {
            verdict.breaks.extend(broken.map(|node| Break { node, round: self.since }));
        }
        verdict.faults.push(Fault::new(kind, culprit, size, self.since));
    }

    /// A node did it.
    pub(super) fn of_node(&self, node: NodeId, verdict: &mut Verdict) {
        self.add(Culprit::Node(node), self.kind_and_size().1, std::iter::once(node), verdict);
    }

    /// The reference did it: seen from there it is everybody else's clock that is not continued.
    pub(super) fn of_reference(&self, reference: NodeId, nodes: usize, verdict: &mut Verdict) {
        let others = (0..nodes as u32).map(NodeId).filter(|node| *node != reference);
        self.add(Culprit::Node(reference), self.kind_and_size().1, others, verdict);
    }

    /// A node or the reference did it, and nothing tells which.
    pub(super) fn of_either(&self, node: NodeId, reference: NodeId, verdict: &mut Verdict) {
        let size = self.kind_and_size().1;
        let size = if node > reference { size } else { -size };
        self.add(either(node, reference), size, std::iter::once(node), verdict);
    }
}

/// One of two.
pub(super) fn either(a: NodeId, b: NodeId) -> Culprit {
    Culprit::Nodes(vec![a.min(b), a.max(b)])
}
