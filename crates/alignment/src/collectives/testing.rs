//! Hand-made nodes for the tests of this folder: events in ns on a node's own clock, one line each.

use probe_sync_formats::model::parts::CollectiveParts;
use probe_sync_formats::model::{
    CollectiveEvent, CollectiveKind, Device, GroupKey, Instance, Label, MappedTime, Picoseconds, Recipients, Replicas,
    Steps,
};

use super::{MapTime, NodeCollectives};

/// A node with its events and the offset and drift that its map takes away.
pub(super) struct Node {
    pub(super) events: Vec<CollectiveEvent>,
    pub(super) groups: Vec<GroupKey>,
    pub(super) offset_ns: i128,
    pub(super) sigma_ns: f64,
    pub(super) steps: Steps,
}

impl Node {
    pub(super) fn new(events: Vec<CollectiveEvent>) -> Self {
        Self { events, groups: Vec::new(), offset_ns: 0, sigma_ns: 0.0, steps: Steps::default() }
    }

    pub(super) fn groups(mut self, groups: &[(&str, &[u32])]) -> Self {
        self.groups = groups.iter().map(|(name, ranks)| group(name, ranks)).collect();
        self
    }

    /// With numbered steps from `start` to `end`, ns.
    pub(super) fn steps(mut self, steps: &[(i64, i128, i128)]) -> Self {
        for (number, start, end) in steps {
            self.steps.look(format!("step#{number}").as_bytes(), start * 1000, end * 1000);
        }
        self.steps.close(0, false);
        self
    }

    pub(super) fn corrected(mut self, offset_ns: i128, sigma_ns: f64) -> Self {
        (self.offset_ns, self.sigma_ns) = (offset_ns, sigma_ns);
        self
    }
}

/// An XLA operation and its execution.
pub(super) fn hlo(op: &str, run_id: i64) -> (Instance, i64) {
    (Instance::Hlo { module: "jit_f".to_owned(), op: op.to_owned() }, run_id)
}

/// A number in a group.
pub(super) fn numbered(group: GroupKey, number: i64) -> (Instance, i64) {
    (Instance::Sequence { group }, number)
}

/// Only order, in a group or none.
pub(super) fn ordered(group: Option<GroupKey>, signature: &str) -> (Instance, i64) {
    (Instance::Order { group, signature: signature.to_owned() }, 0)
}

/// Nothing but a look.
pub(super) fn look(signature: &str) -> (Instance, i64) {
    ordered(None, signature)
}

pub(super) fn group(name: &str, ranks: &[u32]) -> GroupKey {
    let size = Some(ranks.len() as u32);
    GroupKey { name: name.to_owned(), ranks: Some(ranks.to_vec()), size, is_from_making: false }
}

/// All of a program's devices together: more than any test has.
pub(super) fn together() -> Replicas {
    Replicas::Groups([(0..64).collect()].into())
}

/// A part from `start` to `end`, ns. XLA operations are of all devices together.
pub(super) fn part(
    (instance, number): (Instance, i64),
    kind: CollectiveKind,
    start: i128,
    end: i128,
) -> CollectiveEvent {
    let (name, replicas) = match &instance {
        Instance::Hlo { op, .. } => (op.clone(), together()),
        Instance::Sequence { .. } => ("collective".to_owned(), Replicas::Absent),
        Instance::Communicator { signature, .. } | Instance::Order { signature, .. } => {
            (signature.split(' ').next().unwrap_or_default().to_owned(), Replicas::Absent)
        }
    };
    let label = Label { name, kind, instance, replicas, device: None };
    CollectiveEvent { label, number, start_ps: start * 1000, end_ps: end * 1000, recipients: Recipients::All }
}

/// An all-to-all part.
pub(super) fn all(instance: (Instance, i64), start: i128, end: i128) -> CollectiveEvent {
    part(instance, CollectiveKind::AllToAll, start, end)
}

/// An all-to-all part of a device, in replica groups.
pub(super) fn of_device(device: u64, replicas: Replicas, event: CollectiveEvent) -> CollectiveEvent {
    CollectiveEvent { label: Label { device: Some(Device::Stated(device)), replicas, ..event.label }, ..event }
}

/// Replica groups.
pub(super) fn groups_of(groups: &[&[u64]]) -> Replicas {
    Replicas::Groups(groups.iter().map(|group| group.to_vec()).collect())
}

/// Hands the nodes to a test as the stages want them; node numbers are places.
pub(super) fn with<T>(nodes: &[Node], test: impl FnOnce(&[NodeCollectives<'_>]) -> T) -> T {
    let names: Vec<String> = (0..nodes.len()).map(|node| format!("host{node}")).collect();
    let map = |node: usize| {
        move |at: Picoseconds| MappedTime {
            at: at - nodes[node].offset_ns * 1000,
            sigma_ns: nodes[node].sigma_ns,
            ..MappedTime::default()
        }
    };
    let maps: Vec<_> = (0..nodes.len()).map(map).collect();
    let stores: Vec<CollectiveParts> = nodes.iter().map(|node| store(&node.events)).collect();
    let list: Vec<NodeCollectives<'_>> = (nodes.iter().zip(&names).zip(&maps).zip(&stores).enumerate())
        .map(|(place, (((node, name), map), parts))| NodeCollectives {
            node: place as u32,
            clock: place as u32,
            name,
            rank: None,
            world_size: None,
            groups: &node.groups,
            parts,
            steps: &node.steps,
            map,
        })
        .collect();
    test(&list)
}

/// Hands stored parts to a test, all seen through one map; node numbers are places.
pub(super) fn with_parts<T>(
    parts: &[CollectiveParts],
    map: &MapTime<'_>,
    test: impl FnOnce(&[NodeCollectives<'_>]) -> T,
) -> T {
    let node = |(place, parts)| NodeCollectives {
        node: place,
        clock: place,
        name: "host",
        rank: None,
        world_size: None,
        groups: &[],
        parts,
        steps: Steps::NONE,
        map,
    };
    test(&(0..).zip(parts).map(node).collect::<Vec<_>>())
}

/// Events as a format hands them over.
pub(super) fn store(events: &[CollectiveEvent]) -> CollectiveParts {
    let mut parts = CollectiveParts::default();
    events.iter().cloned().for_each(|event| parts.push(event));
    parts.close();
    parts
}
