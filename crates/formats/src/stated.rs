//! A rank's part in an operation as its arguments state it, in PyTorch's words: "Collective name",
//! "Process Group Name", "Seq" and others.
//!
//! Kineto's kernels state them, as do a recorder's annotations in every format that has arguments.

use std::borrow::Cow;

use crate::model::{CollectiveKind, GroupKey, Instance, Label, Recipients, Replicas};

/// What an event's arguments state about an operation; empty if they state nothing.
#[derive(Default)]
pub(super) struct Stated<'a> {
    pub(super) collective: Cow<'a, str>,
    pub(super) dtype: Cow<'a, str>,
    /// Input and output elements.
    pub(super) sent: Cow<'a, str>,
    pub(super) received: Cow<'a, str>,
    pub(super) group: Cow<'a, str>,
    /// A list of JSON.
    pub(super) ranks: Cow<'a, str>,
    pub(super) size: Cow<'a, str>,
    pub(super) sequence: Cow<'a, str>,
    pub(super) source: Cow<'a, str>,
    pub(super) destination: Cow<'a, str>,
    /// A rank of the job.
    pub(super) root: Cow<'a, str>,
    /// A list of JSON: elements to each rank of the group.
    pub(super) sent_to: Cow<'a, str>,
}

impl<'a> Stated<'a> {
    /// The names of these arguments. An event without the first is no part of an operation.
    #[cfg(feature = "rocpd")]
    pub(super) const NAMES: [&'static str; 12] = [
        COLLECTIVE_NAME,
        "dtype",
        "In msg nelems",
        "Out msg nelems",
        "Process Group Name",
        "Process Group Ranks",
        "Group size",
        "Seq",
        "Src Rank",
        "Dst Rank",
        "Root Rank",
        "In split size",
    ];

    /// The value for an argument of this name, if it is one of these.
    pub(super) fn place(&mut self, name: &str) -> Option<&mut Cow<'a, str>> {
        Some(match name {
            COLLECTIVE_NAME => &mut self.collective,
            "dtype" => &mut self.dtype,
            "In msg nelems" => &mut self.sent,
            "Out msg nelems" => &mut self.received,
            "Process Group Name" => &mut self.group,
            "Process Group Ranks" => &mut self.ranks,
            "Group size" => &mut self.size,
            "Seq" => &mut self.sequence,
            "Src Rank" => &mut self.source,
            "Dst Rank" => &mut self.destination,
            "Root Rank" => &mut self.root,
            "In split size" => &mut self.sent_to,
            _ => return None,
        })
    }

    /// The label, the number, and the recipients. `called`: the event's name, if no argument states
    /// the operation's.
    pub(super) fn part(&self, called: impl FnOnce() -> String, groups: &mut Groups) -> (Label, i64, Recipients) {
        let name = if self.collective.is_empty() { called() } else { self.collective.clone().into_owned() };
        let group = groups.of(self);
        let mut kind = kind_of(&name);
        match &mut kind {
            CollectiveKind::PointToPoint { source, destination } => {
                (*source, *destination) = (number(&self.source), number(&self.destination));
            }
            CollectiveKind::FromRoot(root) | CollectiveKind::ToRoot(root) => *root = self.member(group.as_ref()),
            CollectiveKind::AllToAll | CollectiveKind::Unknown => {}
        }
        // Ranks may give and take different amounts; only what is the same on all of them may tell
        // operations apart.
        let size = match kind {
            CollectiveKind::AllToAll if name.contains("gather") => &*self.received,
            CollectiveKind::AllToAll if !is_exchange(&name) => &*self.sent,
            CollectiveKind::PointToPoint { .. } if name.contains("recv") => &*self.received,
            CollectiveKind::FromRoot(_) if !name.contains("scatter") => &*self.sent,
            CollectiveKind::ToRoot(_) | CollectiveKind::PointToPoint { .. } => &*self.sent,
            _ => "",
        };
        let recipients = if is_exchange(&name) { self.recipients(&name) } else { Recipients::All };
        let (instance, number) = match (&kind, group, number::<i64>(&self.sequence)) {
            (CollectiveKind::PointToPoint { .. }, group, _) => {
                (Instance::Order { group, signature: format!("p2p {} {size}", self.dtype) }, 0)
            }
            (_, Some(group), Some(sequence)) => (Instance::Sequence { group }, sequence),
            (_, group, _) => (Instance::Order { group, signature: format!("{name} {} {size}", self.dtype) }, 0),
        };
        (Label { name, kind, instance, replicas: Replicas::Absent, device: None }, number, recipients)
    }

    /// The root's index in the group; its rank if the group's members are not listed.
    fn member(&self, group: Option<&GroupKey>) -> Option<u32> {
        let root = number::<u32>(&self.root)?;
        match group.and_then(|group| group.ranks.as_ref()) {
            Some(ranks) => ranks.iter().zip(0..).find(|(rank, _)| **rank == root).map(|(_, place)| place),
            None => Some(root),
        }
    }

    /// Recipients of an exchange, as its split sizes, in elements, tell. Without any an
    /// `all_to_all` divides its data evenly; an `all_to_allv` always has them.
    fn recipients(&self, name: &str) -> Recipients {
        let uneven = name.contains("allv") || name.contains("alltoallv");
        let Ok(sizes) = serde_json::from_str::<Vec<u64>>(&self.sent_to) else { return Recipients::Unknown };
        let size: Option<usize> = number(&self.size);
        match (sizes.len(), number::<u64>(&self.sent)) {
            (0, Some(0)) => Recipients::Members(0),
            (0, Some(_)) if !uneven => Recipients::All,
            (count, _) if count > 0 && Some(count) == size => by_size(&sizes),
            _ => Recipients::Unknown,
        }
    }
}

/// The groups that events named.
#[derive(Default)]
pub(super) struct Groups(Vec<GroupKey>);

impl Groups {
    /// All, in the order in which they were first named.
    pub(super) fn into_keys(self) -> Vec<GroupKey> {
        self.0
    }

    /// The group that an event names; its members go to the list.
    fn of(&mut self, stated: &Stated<'_>) -> Option<GroupKey> {
        if stated.group.is_empty() {
            return None;
        }
        let name = stated.group.clone().into_owned();
        // Kineto abridges long lists with dots.
        let ranks: Option<Vec<u32>> = serde_json::from_str(&stated.ranks).ok();
        let size = number(&stated.size);
        let known = self.0.iter().any(|group| group.name == name);
        if !known && self.0.len() < GROUPS_MAX {
            self.0.push(GroupKey { name: name.clone(), ranks: ranks.clone(), size, is_from_making: false });
        }
        let ranks = ranks.filter(|ranks| ranks.len() <= RANKS_PER_EVENT_MAX);
        Some(GroupKey { name, ranks, size, is_from_making: false })
    }
}

/// Whether every rank may send another amount to every other, nothing included.
pub(super) fn is_exchange(name: &str) -> bool {
    name.contains("all_to_all") || name.contains("alltoall")
}

/// Members whose size is not zero.
fn by_size(sizes: &[u64]) -> Recipients {
    if sizes.iter().all(|size| *size > 0) {
        return Recipients::All;
    }
    if sizes.len() > u64::BITS as usize {
        return Recipients::Unknown;
    }
    let members = sizes.iter().zip(0..).filter(|(size, _)| **size > 0).map(|(_, place)| 1u64 << place);
    Recipients::Members(members.sum())
}

/// The order imposed by an operation of this name.
pub(super) fn kind_of(name: &str) -> CollectiveKind {
    let lower = name.to_ascii_lowercase();
    let has = |part: &str| lower.contains(part);
    let all = [
        "allreduce",
        "all_reduce",
        "allgather",
        "all_gather",
        "reduce_scatter",
        "reducescatter",
        "alltoall",
        "all_to_all",
        "barrier",
    ];
    if all.iter().any(|part| has(part)) {
        CollectiveKind::AllToAll
    } else if has("sendrecv") {
        // The kernel of every exchange that is made of sends and receives; which, it does not say.
        CollectiveKind::Unknown
    } else if has("broadcast") || has("scatter") {
        CollectiveKind::FromRoot(None)
    } else if has("reduce") || has("gather") {
        CollectiveKind::ToRoot(None)
    } else if has("send") || has("recv") {
        CollectiveKind::PointToPoint { source: None, destination: None }
    } else {
        CollectiveKind::Unknown
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// The argument that tells a part of an operation from every other event.
pub(super) const COLLECTIVE_NAME: &str = "Collective name";
/// A recorder's category of events that are parts of operations.
pub(super) const COLLECTIVE_CATEGORY: &str = "collective";
/// Longer lists of members are not repeated in every event; `TraceFacts::groups` has them.
const RANKS_PER_EVENT_MAX: usize = 64;
/// Groups that are remembered.
const GROUPS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_is_ordered() {
        let p2p = CollectiveKind::PointToPoint { source: None, destination: None };
        for (name, expected) in [
            ("all_reduce", CollectiveKind::AllToAll),
            ("_allgather_base", CollectiveKind::AllToAll),
            ("reduce_scatter_tensor_coalesced", CollectiveKind::AllToAll),
            ("ncclDevKernel_ReduceScatter_Sum_f32", CollectiveKind::AllToAll),
            ("all_to_allv", CollectiveKind::AllToAll),
            ("barrier", CollectiveKind::AllToAll),
            ("broadcast", CollectiveKind::FromRoot(None)),
            ("scatter", CollectiveKind::FromRoot(None)),
            ("_reduce_oop", CollectiveKind::ToRoot(None)),
            ("gather", CollectiveKind::ToRoot(None)),
            ("send", p2p.clone()),
            ("recv_any_source", p2p),
            ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", CollectiveKind::Unknown),
            ("ncclDevKernel_Generic", CollectiveKind::Unknown),
        ] {
            assert_eq!(kind_of(name), expected, "{name}");
        }
    }

    #[test]
    fn an_exchange_says_to_whom_it_sends() {
        let check = |name: &str, split: &str, size: &str, elements: &str, expected: Recipients| {
            let [sent_to, size, sent] = [split, size, elements].map(|text| Cow::Owned(text.to_owned()));
            let stated = Stated { sent_to, size, sent, ..Stated::default() };
            assert_eq!(stated.recipients(name), expected, "{name} {split} {elements}");
        };
        use Recipients::{All, Members, Unknown};
        check("all_to_allv", "[3, 0, 5]", "3", "8", Members(0b101));
        check("all_to_allv", "[3, 1, 5]", "3", "9", All);
        check("all_to_allv", "[0, 0, 0]", "3", "0", Members(0));
        check("all_to_allv", "[3, 0]", "3", "3", Unknown);
        check("all_to_allv", "[3, 0]", "", "3", Unknown);
        check("all_to_allv", "[]", "3", "3", Unknown);
        check("all_to_allv", "[1, 0, ...]", "64", "3", Unknown);
        check("all_to_allv", "", "3", "3", Unknown);
        check("all_to_all", "[]", "3", "3", All);
        check("all_to_all", "[]", "3", "0", Members(0));
        check("all_to_all", "[]", "3", "", Unknown);
        check("all_to_all", "[0, 7, 7]", "3", "14", Members(0b110));
        let many = format!("[0{}]", ", 1".repeat(64));
        check("all_to_allv", &many, "65", "64", Unknown);
        assert!(is_exchange("all_to_all") && is_exchange("alltoallv") && !is_exchange("all_reduce"));
    }

    #[cfg(feature = "rocpd")]
    #[test]
    fn every_name_has_a_place() {
        assert!(Stated::NAMES.into_iter().all(|name| Stated::default().place(name).is_some()));
    }

    #[test]
    fn a_root_is_a_rank_and_becomes_a_place_in_its_group() {
        let check = |ranks: &'static str, root: &'static str, expected: Option<u32>| {
            let mut stated = Stated::default();
            for (name, text) in
                [("Collective name", "broadcast"), ("Process Group Name", "dp"), ("Seq", "4"), ("Root Rank", root)]
            {
                *stated.place(name).expect("known") = Cow::Borrowed(text);
            }
            stated.ranks = Cow::Borrowed(ranks);
            let (label, number, _) = stated.part(String::new, &mut Groups::default());
            assert_eq!((label.kind, number), (CollectiveKind::FromRoot(expected), 4), "{ranks} {root}");
        };
        check("[2,6]", "6", Some(1));
        check("[2,6]", "1", None);
        check("", "6", Some(6));
        check("[2,6]", "", None);
    }
}
