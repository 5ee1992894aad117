//! The communicators of collective operations, determined once all their parts are written.
//!
//! The locations that take part in an operation are known only at the end, because its parts are in
//! different traces. A location's events therefore state a running number 0, 1, … of its own
//! collectives instead of a communicator. Its mapping table, which OTF2 provides for this, assigns
//! a communicator to each number at the end. A communicator is a process group with the locations
//! that took part. Readers match the n-th operation of a communicator on all its members; if
//! locations began two operations in different orders, these belong to two communicators of the
//! same members.

use std::collections::BTreeMap;

use super::part::CollectivePart;

/// All operations so far.
#[derive(Debug, Default)]
pub(super) struct Communicators {
    operations: BTreeMap<u64, Operation>,
    groups: Vec<String>,
    /// By location: its number of collectives.
    counts: Vec<u32>,
}

#[derive(Debug)]
struct Operation {
    group: u32,
    members: Box<[Option<Member>]>,
}

/// A location, and the index among its collectives; `None`: it shows none.
#[derive(Copy, Clone, Debug)]
struct Member {
    location: u64,
    number: Option<u32>,
}

/// A communicator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Communicator {
    /// Name of its process group in the traces.
    pub(super) group: String,
    /// Its locations, in order of members.
    pub(super) locations: Vec<u64>,
}

/// The communicators.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// By number.
    pub(super) communicators: Vec<Communicator>,
    /// By location and number of its collective: the communicator.
    pub(super) of_location: Vec<Vec<u64>>,
}

impl Communicators {
    /// Adds a location; returns the number of its collective. `None` if it has a part of the
    /// operation already.
    pub(super) fn join(&mut self, part: &CollectivePart<'_>, location: u64) -> Option<u32> {
        let operation = self.operation(part);
        let known = operation.members.iter().flatten().any(|member| member.location == location);
        if known || operation.members.get(part.member as usize)?.is_some() {
            return None;
        }
        let at = location as usize;
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        let number = self.counts[at];
        self.counts[at] += 1;
        self.operation(part).members[part.member as usize] = Some(Member { location, number: Some(number) });
        Some(number)
    }

    /// Adds a member that shows no part; a location stands for it.
    pub(super) fn absent(&mut self, part: &CollectivePart<'_>, location: u64) {
        if let Some(member) = self.operation(part).members.get_mut(part.member as usize) {
            member.get_or_insert(Member { location, number: None });
        }
    }

    fn operation(&mut self, part: &CollectivePart<'_>) -> &mut Operation {
        let groups = &mut self.groups;
        self.operations.entry(part.operation).or_insert_with(|| {
            // Few groups after each other: a job has dozens.
            let group = groups.iter().rposition(|known| known == part.group).unwrap_or_else(|| {
                groups.push(part.group.to_owned());
                groups.len() - 1
            });
            Operation { group: group as u32, members: vec![None; part.members as usize].into() }
        })
    }

    /// Numbers them, in the order in which their first locations come to them.
    pub(super) fn finish(self, locations: usize) -> Found {
        let Self { operations, groups, counts } = self;
        let shown = |of: &Operation| of.members.iter().flatten().any(|member| member.number.is_some());
        let mut operations: Vec<Operation> = operations.into_values().filter(shown).collect();
        operations.sort_by_key(|of| of.members.iter().flatten().find_map(|one| Some((one.location, one.number?))));
        let mut found = Found { communicators: Vec::new(), of_location: vec![Vec::new(); locations] };
        for (numbers, count) in found.of_location.iter_mut().zip(&counts) {
            numbers.resize(*count as usize, 0);
        }
        let mut known: BTreeMap<Key, Vec<Sequence>> = BTreeMap::new();
        for operation in &operations {
            let members: Vec<Member> = operation.members.iter().flatten().copied().collect();
            let numbers: Vec<Option<u32>> = members.iter().map(|member| member.number).collect();
            // Where a member shows no part, the n-th operations of the others have none to match:
            // apart, then.
            let shown: Vec<bool> = numbers.iter().map(Option::is_some).collect();
            let mut locations: Vec<u64> = members.iter().map(|member| member.location).collect();
            let mut seen = std::collections::BTreeSet::new();
            locations.retain(|location| seen.insert(*location));
            let sequences = known.entry((operation.group, shown, locations.clone())).or_default();
            let communicator = match sequences.iter_mut().rev().take(SEQUENCES_MAX).find(|of| of.takes(&numbers)) {
                Some(sequence) => {
                    sequence.last = numbers;
                    sequence.communicator
                }
                None => {
                    let communicator = found.communicators.len() as u64;
                    let group = groups[operation.group as usize].clone();
                    found.communicators.push(Communicator { group, locations });
                    sequences.push(Sequence { communicator, last: numbers });
                    communicator
                }
            };
            for (location, number) in members.iter().filter_map(|member| Some((member.location, member.number?))) {
                found.of_location[location as usize][number as usize] = communicator;
            }
        }
        found
    }
}

/// Group, which members show their parts, and locations.
type Key = (u32, Vec<bool>, Vec<u64>);

/// Operations that all members began in one order.
#[derive(Debug)]
struct Sequence {
    communicator: u64,
    /// By member: its last operation.
    last: Vec<Option<u32>>,
}

impl Sequence {
    fn takes(&self, numbers: &[Option<u32>]) -> bool {
        self.last.len() == numbers.len() && self.last.iter().zip(numbers).all(|(last, next)| last <= next)
    }
}

/// Communicators of the same members among which an operation looks for its own.
const SEQUENCES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use probe_sync_otf2::CollectiveOperation;

    use super::*;

    /// Communicators of operations, each as its parts: member, and location.
    fn check(operations: &[&[(u32, u64)]], order: &[(u64, u32)], locations: &[&[u64]], of_location: &[&[u64]]) {
        let mut communicators = Communicators::default();
        for &(operation, member) in order {
            let parts = operations[operation as usize];
            let (_, location) = *parts.iter().find(|(one, _)| *one == member).expect("a member");
            let kind = CollectiveOperation::AllReduce;
            let part =
                CollectivePart { operation, member, members: parts.len() as u32, kind, root: None, group: "world" };
            communicators.join(&part, location);
        }
        let found = communicators.finish(of_location.len());
        let members: Vec<&[u64]> = found.communicators.iter().map(|one| one.locations.as_slice()).collect();
        assert_eq!(members, locations, "{order:?}");
        assert_eq!(found.of_location, of_location, "{order:?}");
    }

    #[test]
    fn operations_of_the_same_locations_in_the_same_order_share_a_communicator() {
        let two: &[(u32, u64)] = &[(0, 0), (1, 1)];
        check(&[two, two], &[(0, 0), (1, 0), (0, 1), (1, 1)], &[&[0, 1]], &[&[0, 0], &[0, 0]]);
        // Begun in another order on the second location.
        check(&[two, two], &[(0, 0), (1, 0), (1, 1), (0, 1)], &[&[0, 1], &[0, 1]], &[&[0, 1], &[1, 0]]);
        // Another stream.
        let other: &[(u32, u64)] = &[(0, 0), (1, 2)];
        check(&[two, other], &[(0, 0), (1, 0), (0, 1), (1, 1)], &[&[0, 1], &[0, 2]], &[&[0, 1], &[0], &[1]]);
        // Two parts on one location: the second is none.
        let twice: &[(u32, u64)] = &[(0, 0), (1, 0), (2, 1)];
        check(&[twice], &[(0, 0), (0, 1), (0, 2)], &[&[0, 1]], &[&[0], &[0]]);
    }

    #[test]
    fn a_member_without_its_part_is_in_a_communicator_of_its_own() {
        let mut communicators = Communicators::default();
        let of = |operation, member| CollectivePart {
            operation,
            member,
            members: 2,
            kind: CollectiveOperation::Broadcast,
            root: Some(1),
            group: "",
        };
        assert_eq!(communicators.join(&of(0, 0), 0), Some(0));
        assert_eq!(communicators.join(&of(1, 0), 0), Some(1));
        communicators.absent(&of(0, 1), 1);
        assert_eq!(communicators.join(&of(1, 1), 1), Some(0));
        let found = communicators.finish(2);
        assert_eq!(found.of_location, [vec![0, 1], vec![1]]);
        assert!(found.communicators.iter().all(|one| one.locations == [0, 1]), "the root keeps its place");
    }
}
