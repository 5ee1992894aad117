//! Hand-made nodes for the tests of this folder: events in ns on a node's own clock, one line each.

use super::NodeCollectives;
use crate::model::{CollectiveEvent, CollectiveKind, GroupKey, Instance, Picoseconds};

/// A node with its events and the offset and drift that its map takes away.
pub(super) struct Node {
    pub(super) events: Vec<CollectiveEvent>,
    pub(super) groups: Vec<GroupKey>,
    pub(super) offset_ns: i128,
    pub(super) sigma_ns: f64,
}

impl Node {
    pub(super) fn new(events: Vec<CollectiveEvent>) -> Self {
        Self { events, groups: Vec::new(), offset_ns: 0, sigma_ns: 0.0 }
    }

    pub(super) fn groups(mut self, groups: &[(&str, &[u32])]) -> Self {
        self.groups = groups.iter().map(|(name, ranks)| group(name, ranks)).collect();
        self
    }

    pub(super) fn corrected(mut self, offset_ns: i128, sigma_ns: f64) -> Self {
        (self.offset_ns, self.sigma_ns) = (offset_ns, sigma_ns);
        self
    }
}

/// A label as XLA gives it.
pub(super) fn hlo(op: &str, run_id: i64) -> Instance {
    Instance::Hlo { module: "jit_f".to_owned(), run_id, op: op.to_owned() }
}

/// Nothing but a look.
pub(super) fn look(signature: &str) -> Instance {
    Instance::Order { group: None, signature: signature.to_owned() }
}

pub(super) fn group(name: &str, ranks: &[u32]) -> GroupKey {
    GroupKey { name: name.to_owned(), ranks: Some(ranks.to_vec()), size: Some(ranks.len() as u32) }
}

/// A part from `start` to `end`, ns.
pub(super) fn part(instance: Instance, kind: CollectiveKind, start: i128, end: i128) -> CollectiveEvent {
    let name = match &instance {
        Instance::Hlo { op, .. } => op.clone(),
        Instance::Sequence { .. } => "collective".to_owned(),
        Instance::Order { signature, .. } => signature.split(' ').next().unwrap_or_default().to_owned(),
    };
    CollectiveEvent { name, kind, instance, start_ps: start * 1000, end_ps: end * 1000, track: 0 }
}

/// An all-to-all part.
pub(super) fn all(instance: Instance, start: i128, end: i128) -> CollectiveEvent {
    part(instance, CollectiveKind::AllToAll, start, end)
}

/// Hands the nodes to a test as the stages want them; node numbers are places.
pub(super) fn with<T>(nodes: &[Node], test: impl FnOnce(&[NodeCollectives<'_>]) -> T) -> T {
    let names: Vec<String> = (0..nodes.len()).map(|node| format!("host{node}")).collect();
    let map = |node: usize| move |at: Picoseconds| (at - nodes[node].offset_ns * 1000, nodes[node].sigma_ns);
    let maps: Vec<_> = (0..nodes.len()).map(map).collect();
    let list: Vec<NodeCollectives<'_>> = (nodes.iter().zip(&names).zip(&maps).enumerate())
        .map(|(place, ((node, name), map))| NodeCollectives {
            node: place as u32,
            clock: place as u32,
            name,
            rank: None,
            groups: &node.groups,
            events: &node.events,
            map,
        })
        .collect();
    test(&list)
}
