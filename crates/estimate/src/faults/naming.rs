//! Names a change of a clock, with its node and size, and reports which clocks do not continue.

use probe_sync_lines::{ClockBreak, Culprit, Fault, FaultKind, Findings};
use probe_sync_time::{NodeId, RoundId};

use crate::motion::NS_PER_S_PER_PPM;

/// A change of a clock relative to the reference.
#[derive(Copy, Clone, Debug)]
pub(super) struct Change {
    /// Kind of fault, unless only its rate changed.
    pub(super) kind: FaultKind,
    /// Deviation of offset and rate from the prediction, ns and ns/s.
    pub(super) off: [f64; 2],
    /// A step whose rate deviates by more than this is a rate change, ns/s; infinite if a jump was
    /// shown.
    pub(super) rate_limit: f64,
    /// First round that shows it.
    pub(super) since: RoundId,
}

impl Change {
    /// Returns a step of `ns`.
    pub(super) const fn step(ns: f64, since: RoundId) -> Self {
        Self { kind: FaultKind::Step, off: [ns, 0.0], rate_limit: f64::INFINITY, since }
    }

    /// Returns a rate change found over several rounds.
    pub(super) const fn rate(ns_per_s: f64, since: RoundId) -> Self {
        Self { kind: FaultKind::Step, off: [0.0, ns_per_s], rate_limit: 0.0, since }
    }

    /// Returns the change with opposite signs: the reference's own change, seen from the others.
    pub(super) fn reversed(self) -> Self {
        Self { off: self.off.map(|off| -off), ..self }
    }

    /// Returns the kind and size: by the rate if that deviates, otherwise by the offset.
    fn kind_and_size(&self) -> (FaultKind, f64) {
        match self.kind {
            FaultKind::Step if self.off[1].abs() > self.rate_limit => {
                (FaultKind::RateJump, self.off[1] / NS_PER_S_PER_PPM)
            }
            kind => (kind, self.off[0]),
        }
    }

    /// Adds a fault, and a break of the `broken` nodes unless only the rate changed: offsets start
    /// over there.
    fn add(&self, culprit: Culprit, size: f64, broken: impl Iterator<Item = NodeId>, findings: &mut Findings) {
        let (kind, _) = self.kind_and_size();
        if kind != FaultKind::RateJump {
            findings.breaks.extend(broken.map(|node| ClockBreak { node, round: self.since }));
        }
        findings.faults.push(Fault::new(kind, culprit, size, self.since));
    }

    /// Adds the fault of a node.
    pub(super) fn of_node(&self, node: NodeId, findings: &mut Findings) {
        self.add(Culprit::Node(node), self.kind_and_size().1, std::iter::once(node), findings);
    }

    /// Adds a fault of the reference: relative to it, all other clocks have a break.
    pub(super) fn of_reference(&self, reference: NodeId, nodes: usize, findings: &mut Findings) {
        let others = (0..nodes as u32).map(NodeId).filter(|node| *node != reference);
        self.add(Culprit::Node(reference), self.kind_and_size().1, others, findings);
    }

    /// Adds a fault of either a node or the reference, if it is unknown which.
    pub(super) fn of_either(&self, node: NodeId, reference: NodeId, findings: &mut Findings) {
        let size = self.kind_and_size().1;
        let size = if node > reference { size } else { -size };
        self.add(either(node, reference), size, std::iter::once(node), findings);
    }
}

/// Returns one of two nodes as the culprit.
pub(super) fn either(a: NodeId, b: NodeId) -> Culprit {
    Culprit::Nodes(vec![a.min(b), a.max(b)])
}
