//! Translates operations for OTF2: the collective, its members and its root. It needs the feature
//! `otf2`.
//!
//! The members are the parts within the window, in order of traces. The root is named only if each
//! trace has one part; otherwise nothing says which of a trace's parts it is. An operation that
//! OTF2 does not define (a permutation, a message) has no members, and its slices remain regions.

use probe_sync_formats::model::{CollectiveKind, Instance, Label};
use probe_sync_otf2::CollectiveOperation;
use probe_sync_writers::CollectivePart;

use crate::collectives::{Operation, Order};

/// A part that the window keeps: start, end, trace and name.
pub(super) type Kept<'a> = (i64, i64, usize, &'a str);

/// All operations, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Members {
    described: Vec<Described>,
    groups: Vec<String>,
}

#[derive(Copy, Clone, Debug)]
struct Described {
    members: u32,
    kind: Option<CollectiveOperation>,
    root: Option<u32>,
    group: u32,
}

impl Members {
    /// Which member of its operation each part is.
    pub(super) fn numbers(parts: &[Kept<'_>]) -> Vec<u32> {
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by_key(|&part| (parts[part].2, parts[part].0, parts[part].1));
        let mut numbers = vec![0; parts.len()];
        order.iter().enumerate().for_each(|(number, part)| numbers[*part] = number as u32);
        numbers
    }

    /// Takes the next operation, with those of its parts that are kept; `traces` are the nodes'
    /// traces.
    pub(super) fn take(&mut self, operation: &Operation<'_>, traces: &[usize], kept: &[Kept<'_>]) {
        let Some(label) = operation.parts.first().map(|part| part.label) else { return };
        let group = group(label);
        let group = self.groups.iter().rposition(|known| known == group).unwrap_or_else(|| {
            self.groups.push(group.to_owned());
            self.groups.len() - 1
        });
        let mut of_traces: Vec<usize> = kept.iter().map(|part| part.2).collect();
        of_traces.sort_unstable();
        let single = of_traces.windows(2).all(|pair| pair[0] != pair[1]);
        let root = match operation.order {
            Order::From(node) | Order::To(node) if single => of_traces.binary_search(&traces[node]).ok(),
            _ => None,
        };
        let root = root.map(|root| root as u32);
        self.described.push(Described { members: kept.len() as u32, kind: kind(label), root, group: group as u32 });
    }

    /// A part of an operation in the form of the writer; `None` if OTF2 cannot express it.
    pub(super) fn part(&self, operation: u64, member: u32) -> Option<CollectivePart<'_>> {
        let Described { members, kind, root, group } = *self.described.get(operation as usize)?;
        Some(CollectivePart { operation, member, members, kind: kind?, root, group: &self.groups[group as usize] })
    }
}

/// Name of the process group, or of the program, in the traces.
fn group(label: &Label) -> &str {
    match &label.instance {
        Instance::Hlo { module, .. } => module,
        Instance::Sequence { group } | Instance::Order { group: Some(group), .. } => &group.name,
        Instance::Communicator { .. } | Instance::Order { group: None, .. } => "",
    }
}

/// The MPI collective that corresponds to an operation, by its name: those of XLA, torch, NCCL and
/// gloo are made of the same words.
fn kind(label: &Label) -> Option<CollectiveOperation> {
    if matches!(label.kind, CollectiveKind::PointToPoint { .. } | CollectiveKind::Unknown) {
        return None;
    }
    let letters = label.name.bytes().filter(u8::is_ascii_alphabetic).map(|byte| char::from(byte.to_ascii_lowercase()));
    let name: String = letters.collect();
    NAMES.iter().find(|(word, _)| name.contains(word)).map(|(_, kind)| *kind)
}

/// Longer words first: each of the last three is part of others.
const NAMES: [(&str, CollectiveOperation); 15] = [
    ("allreducescatter", CollectiveOperation::ReduceScatter),
    ("allreduce", CollectiveOperation::AllReduce),
    ("psum", CollectiveOperation::AllReduce),
    ("reducescatter", CollectiveOperation::ReduceScatter),
    ("allgather", CollectiveOperation::AllGather),
    ("alltoall", CollectiveOperation::AllToAll),
    ("broadcast", CollectiveOperation::Broadcast),
    ("bcast", CollectiveOperation::Broadcast),
    ("barrier", CollectiveOperation::Barrier),
    ("pmax", CollectiveOperation::AllReduce),
    ("pmin", CollectiveOperation::AllReduce),
    ("pmean", CollectiveOperation::AllReduce),
    ("reduce", CollectiveOperation::Reduce),
    ("gather", CollectiveOperation::Gather),
    ("scatter", CollectiveOperation::Scatter),
];

#[cfg(test)]
mod tests {
    use super::*;
    use probe_sync_formats::model::Replicas;

    #[test]
    fn names_of_all_frameworks_say_which_collective_it_is() {
        let check = |name: &str, expected: Option<CollectiveOperation>| {
            let instance = Instance::Order { group: None, signature: String::new() };
            let (kind_of, replicas) = (CollectiveKind::AllToAll, Replicas::Absent);
            let label = Label { name: name.into(), kind: kind_of, instance, replicas, device: None };
            assert_eq!(kind(&label), expected, "{name}");
        };
        check("all-reduce.3", Some(CollectiveOperation::AllReduce));
        check("psum.7", Some(CollectiveOperation::AllReduce));
        check("ncclReduceScatter", Some(CollectiveOperation::ReduceScatter));
        check("reduce", Some(CollectiveOperation::Reduce));
        check("gloo:all_gather", Some(CollectiveOperation::AllGather));
        check("c10d::broadcast_", Some(CollectiveOperation::Broadcast));
        check("ncclAllToAllv", Some(CollectiveOperation::AllToAll));
        check("collective-permute", None);
    }
}
