//! Which parts on different nodes are one operation.
//!
//! Place in the flow: first step of [`check`](super::check()) and [`from_collectives`](super::from_collectives). Three ways,
//! from certain to careful, told apart by [`Evidence`]:
//! 1. XLA: module, run and operation are equal on all hosts. A host with several devices has a part for each, a loop
//!    repeats all of them; `repeats` says which start belongs to which turn of the loop.
//! 2. A process group with a running number: group, number and kind are equal on all ranks.
//! 3. Neither: order of starts within one group and signature, but only where the counts of every rank leave a single
//!    pairing (`groups`), and where parts of one rank do not overlap, since then starts are not in order of issue.
//!
//! All-reduces and messages are held to more. All-reduce is what frameworks issue on their own, on sub-groups too, and its
//! name and shape are the same in every group; an operation cut off at a window's edge makes unequal counts equal. So an
//! all-reduce that names no group is paired only when no trace lists a second group. The list arguments of all-gather,
//! all-to-all and reduce-scatter scale with the group, and a barrier blocks, so that counts suffice for them.
//! [`MatchOptions::reductions_by_count`] pairs all-reduces by counts all the same. Messages that name no group are never
//! paired: they match in order of posting, which a trace does not show, and gloo stamps a send's start only after the
//! data has left (on torch/b_4node three of twenty would be broken under the exact clock, by 37 to 40 µs).
//!
//! XLA's replica groups are not in a trace: an operation that runs in sub-groups of the hosts carries one label on all of
//! them and is taken for one operation over all of them.
//!
//! Matching uses times of one node only against times of the same node: no map can change what belongs together.
//! What it does not do: pair what has no order. Operations of unknown root, peer or kind are counted and left.

use std::collections::BTreeMap;

use serde::Serialize;

use super::NodeCollectives;
use super::groups::Groups;
use crate::model::{CollectiveEvent, CollectiveKind, GroupKey, Instance, Picoseconds};

/// How cautious matching is.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MatchOptions {
    /// Pair all-reduces that name no group by counts, though several groups may exist.
    pub reductions_by_count: bool,
}

/// Why parts are believed to be one operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Equal labels on all nodes.
    Label,
    /// Order within the group that the parts name, with equal counts.
    GroupOrder,
    /// Order, where the counts leave one group that can have done it.
    CountedOrder,
}

/// One part of an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    /// Place in the list of nodes.
    pub node: usize,
    /// Place in the node's events.
    pub event: usize,
}

/// What must follow what; nodes by their place in the list.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Every end follows every start.
    AllToAll,
    /// Every end follows the start of this node.
    From(usize),
    /// The end of this node follows every start.
    To(usize),
    /// The end of the receiver follows the start of the sender.
    Between {
        /// The sender.
        source: usize,
        /// The receiver.
        destination: usize,
    },
}

/// The parts of one operation, on at least two nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    /// What follows what.
    pub order: Order,
    /// Why the parts belong together.
    pub evidence: Evidence,
    /// Which turn of a loop, or which place in the order, from 0.
    pub turn: usize,
    /// In order of node.
    pub parts: Vec<Part>,
}

/// Operations that cannot be paired with certainty, of one name and for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ambiguous {
    /// Name and shape.
    pub operation: String,
    /// Why, as a clause.
    pub reason: String,
    /// Instances: at least as many as any one node did.
    pub instances: usize,
    /// Parts on all nodes.
    pub parts: usize,
}

/// Everything that came out of matching; each part that came in is in exactly one of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Matching {
    /// Operations with parts on at least two nodes, in order of their labels and turns.
    pub operations: Vec<Operation>,
    /// What stays without a verdict.
    pub ambiguous: Vec<Ambiguous>,
    /// Parts whose operation no other node shows.
    pub unpaired: usize,
    /// Parts that order nothing as far as the trace says: unknown kind, root or peer.
    pub unordered: usize,
}

/// Groups the parts of all nodes into operations.
pub(crate) fn match_operations(nodes: &[NodeCollectives<'_>], options: MatchOptions) -> Matching {
    let mut buckets: BTreeMap<(&Instance, &CollectiveKind), Buckets> = BTreeMap::new();
    let mut found = Matching::default();
    for (place, node) in nodes.iter().enumerate() {
        for (event, collective) in node.events.iter().enumerate() {
            if is_ordered(&collective.kind) && collective.start_ps <= collective.end_ps {
                let of_nodes = buckets.entry((&collective.instance, &collective.kind)).or_default();
                of_nodes.entry(place).or_default().push(event);
            } else {
                found.unordered += 1;
            }
        }
    }
    let mut matcher = Matcher { nodes, options, groups: Groups::new(nodes), found, ambiguous: BTreeMap::new() };
    for ((instance, kind), mut of_nodes) in buckets {
        for (place, events) in &mut of_nodes {
            let all = nodes[*place].events;
            events.sort_by_key(|&event| (all[event].start_ps, all[event].end_ps, event));
        }
        match instance {
            Instance::Hlo { .. } => matcher.hlo(kind, &of_nodes),
            Instance::Sequence { group, .. } => matcher.sequence(group, kind, &of_nodes),
            Instance::Order { group, signature } => matcher.order(group.as_ref(), signature, kind, &of_nodes),
        }
    }
    let Matcher { mut found, ambiguous, .. } = matcher;
    let line = |((operation, reason), (instances, parts))| Ambiguous { operation, reason, instances, parts };
    found.ambiguous = ambiguous.into_iter().map(line).collect();
    found
}

/// Events of one instance, by place of node; every list in order of start.
type Buckets = BTreeMap<usize, Vec<usize>>;

struct Matcher<'a> {
    nodes: &'a [NodeCollectives<'a>],
    options: MatchOptions,
    groups: Groups,
    found: Matching,
    /// By name and reason: instances and parts.
    ambiguous: BTreeMap<(String, String), (usize, usize)>,
}

impl Matcher<'_> {
    /// Equal labels on all hosts; several devices and turns per host.
    fn hlo(&mut self, kind: &CollectiveKind, of_nodes: &Buckets) {
        if of_nodes.len() < 2 {
            self.unpaired(of_nodes);
            return;
        }
        let single = of_nodes.values().all(|events| events.len() == 1);
        let per_turn: Vec<usize> = of_nodes.iter().map(|(place, events)| self.repeats(*place, events)).collect();
        let turns: Vec<usize> = of_nodes.values().zip(&per_turn).map(|(events, size)| events.len() / size).collect();
        if turns.iter().any(|count| *count != turns[0]) {
            self.mark_ambiguous(of_nodes, "its turns differ in number between the nodes");
        } else if !single && *kind != CollectiveKind::AllToAll {
            self.mark_ambiguous(of_nodes, "several parts of one node carry one label");
        } else {
            for turn in 0..turns[0] {
                let part = |((place, events), size): ((&usize, &Vec<usize>), &usize)| {
                    events[turn * size..(turn + 1) * size].iter().map(|&event| Part { node: *place, event }).collect()
                };
                let parts: Vec<Vec<Part>> = of_nodes.iter().zip(&per_turn).map(part).collect();
                self.operation(None, kind, Evidence::Label, turn, parts.concat());
            }
        }
    }

    /// How many of a node's parts make one turn. Parts of one turn overlap, since each ends after all have begun, and
    /// parts of one device never do. So the largest equal division whose every piece overlaps is the number of devices.
    fn repeats(&self, place: usize, events: &[usize]) -> usize {
        let all = self.nodes[place].events;
        let overlaps = |piece: &[usize]| {
            let latest = piece.iter().map(|&event| all[event].start_ps).max();
            latest < piece.iter().map(|&event| all[event].end_ps).min()
        };
        let divides = |size: &usize| events.len().is_multiple_of(*size);
        let mut sizes = (2..=events.len()).rev().filter(divides).take(DIVISORS_MAX);
        sizes.find(|&size| events.chunks(size).all(overlaps)).unwrap_or(1)
    }

    /// Equal group and number.
    fn sequence(&mut self, group: &GroupKey, kind: &CollectiveKind, of_nodes: &Buckets) {
        if of_nodes.len() < 2 {
            self.unpaired(of_nodes);
        } else if of_nodes.iter().any(|(place, events)| self.repeats(*place, events) != events.len()) {
            self.mark_ambiguous(of_nodes, "several parts of one rank carry one sequence number");
        } else if let Err(reason) = self.membership(group, of_nodes) {
            self.mark_ambiguous(of_nodes, reason);
        } else {
            self.operation(Some(group), kind, Evidence::Label, 0, parts(of_nodes));
        }
    }

    /// The members of a group, from the event or else from the lists of the ranks that show it, where they agree.
    fn members<'b>(&'b self, group: &'b GroupKey, mut places: impl Iterator<Item = usize>) -> Option<&'b [u32]> {
        let listed = |place: usize| {
            let of_name = self.nodes[place].groups.iter().find(|listed| listed.name == group.name);
            of_name.and_then(|listed| listed.ranks.as_deref())
        };
        let first = group.ranks.as_deref().or_else(|| listed(places.next()?))?;
        (group.ranks.is_some() || places.all(|place| listed(place) == Some(first))).then_some(first)
    }

    /// Whether the nodes that show a group's operation can be that group.
    fn membership(&self, group: &GroupKey, of_nodes: &Buckets) -> Result<(), &'static str> {
        match (self.members(group, of_nodes.keys().copied()), group.size) {
            (Some(ranks), _) => {
                let outside = of_nodes.keys().any(|&place| !ranks.contains(&self.nodes[place].rank()));
                if outside { Err("ranks outside its process group show it") } else { Ok(()) }
            }
            // Groups of one name may exist side by side; only a full one is surely one.
            (None, Some(size)) if size as usize == of_nodes.len() => Ok(()),
            (None, None) if of_nodes.len() == self.nodes.len() => Ok(()),
            (None, _) => Err("the members of its process group are not listed"),
        }
    }

    /// Order of starts, inside a group that is certain.
    fn order(&mut self, group: Option<&GroupKey>, signature: &str, kind: &CollectiveKind, of_nodes: &Buckets) {
        if of_nodes.len() < 2 && (group.is_some() || !self.groups.only_one()) {
            self.unpaired(of_nodes);
        } else if matches!(kind, CollectiveKind::PointToPoint { .. }) {
            self.messages(group, kind, of_nodes);
        } else if let Some(group) = group {
            let counts: Vec<usize> = of_nodes.values().map(Vec::len).collect();
            match self.membership(group, of_nodes) {
                Err(reason) => self.mark_ambiguous(of_nodes, reason),
                Ok(()) if counts.iter().any(|count| *count != counts[0]) || self.absent(group, of_nodes) => {
                    self.mark_ambiguous(of_nodes, "the ranks of its process group did it a different number of times");
                }
                Ok(()) => self.by_order(Some(group), kind, Evidence::GroupOrder, of_nodes),
            }
        } else if is_reduction(signature) && !self.groups.only_one() && !self.options.reductions_by_count {
            self.mark_ambiguous(
                of_nodes,
                "it names no process group, and its shape is the same in every group that may exist",
            );
        } else {
            let count = |place: usize| of_nodes.get(&place).map_or(0, Vec::len);
            let counts: Vec<usize> = (0..self.nodes.len()).map(count).collect();
            match self.groups.assign(&counts) {
                Err(reason) => self.mark_ambiguous(of_nodes, &reason),
                Ok(sets) => {
                    for set in sets {
                        let of_set = set.iter().filter_map(|place| Some((*place, of_nodes.get(place)?.clone())));
                        self.by_order(None, kind, Evidence::CountedOrder, &of_set.collect());
                    }
                }
            }
        }
    }

    /// Sends and receives between two ranks.
    fn messages(&mut self, group: Option<&GroupKey>, kind: &CollectiveKind, of_nodes: &Buckets) {
        let counts: Vec<usize> = of_nodes.values().map(Vec::len).collect();
        if group.is_none() {
            self.mark_ambiguous(of_nodes, "a message that names no process group has no certain partner");
        } else if counts.len() != 2 || counts[0] != counts[1] {
            self.mark_ambiguous(of_nodes, "sender and receiver show a different number of messages");
        } else {
            self.by_order(group, kind, Evidence::GroupOrder, of_nodes);
        }
    }

    /// Whether a member whose trace is here shows none of a group's operations.
    fn absent(&self, group: &GroupKey, of_nodes: &Buckets) -> bool {
        let ranks = self.members(group, of_nodes.keys().copied());
        let member = |place: &usize| ranks.is_some_and(|ranks| ranks.contains(&self.nodes[*place].rank()));
        (0..self.nodes.len()).filter(member).any(|place| !of_nodes.contains_key(&place))
    }

    /// Pairs the k-th part of every node; counts are equal.
    fn by_order(&mut self, group: Option<&GroupKey>, kind: &CollectiveKind, evidence: Evidence, of_nodes: &Buckets) {
        if of_nodes.len() < 2 {
            self.unpaired(of_nodes);
            return;
        }
        let turns = of_nodes.values().map(Vec::len).min().unwrap_or(0);
        let mut doubtful = vec![false; turns];
        for (place, events) in of_nodes {
            for (turn, pair) in events.windows(2).enumerate() {
                let [first, second] = [pair[0], pair[1]].map(|event| &self.nodes[*place].events[event]);
                if second.start_ps < first.end_ps {
                    doubtful[turn..=turn + 1].fill(true);
                }
            }
        }
        for (turn, doubtful) in doubtful.into_iter().enumerate() {
            let of_turn: Buckets = of_nodes.iter().map(|(place, events)| (*place, vec![events[turn]])).collect();
            if doubtful {
                self.mark_ambiguous(
                    &of_turn,
                    "two of it overlap on one rank, so that starts need not be in order of issue",
                );
            } else {
                self.operation(group, kind, evidence, turn, parts(&of_turn));
            }
        }
    }

    fn operation(
        &mut self,
        group: Option<&GroupKey>,
        kind: &CollectiveKind,
        evidence: Evidence,
        turn: usize,
        parts: Vec<Part>,
    ) {
        match self.resolve(group, kind, &parts) {
            Some(order) => self.found.operations.push(Operation { order, evidence, turn, parts }),
            None => self.found.unordered += parts.len(),
        }
    }

    /// Turns ranks of the group into nodes; None where the root or a peer shows no part.
    fn resolve(&self, group: Option<&GroupKey>, kind: &CollectiveKind, parts: &[Part]) -> Option<Order> {
        let node_of = |rank: u32| parts.iter().map(|part| part.node).find(|&node| self.nodes[node].rank() == rank);
        let ranks = group.and_then(|group| self.members(group, parts.iter().map(|part| part.node)));
        let member = |index: u32| match ranks {
            Some(ranks) => node_of(*ranks.get(index as usize)?),
            None => node_of(index),
        };
        match kind {
            CollectiveKind::AllToAll => Some(Order::AllToAll),
            CollectiveKind::FromRoot(Some(root)) => member(*root).map(Order::From),
            CollectiveKind::ToRoot(Some(root)) => member(*root).map(Order::To),
            CollectiveKind::PointToPoint { source: Some(source), destination: Some(destination) } => {
                let two = |source: Option<usize>, destination: Option<usize>| {
                    let (source, destination) = (source?, destination?);
                    (source != destination && parts.len() == 2).then_some(Order::Between { source, destination })
                };
                // Some writers number peers within the group, some within the job; only one can name both parts.
                two(member(*source), member(*destination)).or_else(|| two(node_of(*source), node_of(*destination)))
            }
            _ => None,
        }
    }

    fn unpaired(&mut self, of_nodes: &Buckets) {
        self.found.unpaired += of_nodes.values().map(Vec::len).sum::<usize>();
    }

    fn mark_ambiguous(&mut self, of_nodes: &Buckets, reason: &str) {
        let name = of_nodes
            .iter()
            .next()
            .map_or_else(String::new, |(place, events)| described(&self.nodes[*place].events[events[0]]));
        let (instances, parts) = self.ambiguous.entry((name, reason.to_owned())).or_default();
        *instances += of_nodes.values().map(Vec::len).max().unwrap_or(0);
        *parts += of_nodes.values().map(Vec::len).sum::<usize>();
    }
}

/// The start and end of a part on its own timeline.
pub(super) fn times(nodes: &[NodeCollectives<'_>], part: Part) -> (Picoseconds, Picoseconds) {
    let event = event(nodes, part);
    (event.start_ps, event.end_ps)
}

/// The event behind a part.
pub(super) fn event<'a>(nodes: &[NodeCollectives<'a>], part: Part) -> &'a CollectiveEvent {
    &nodes[part.node].events[part.event]
}

fn parts(of_nodes: &Buckets) -> Vec<Part> {
    of_nodes.iter().flat_map(|(node, events)| events.iter().map(|&event| Part { node: *node, event })).collect()
}

/// Whether a kind says what follows what.
fn is_ordered(kind: &CollectiveKind) -> bool {
    match kind {
        CollectiveKind::AllToAll | CollectiveKind::FromRoot(Some(_)) | CollectiveKind::ToRoot(Some(_)) => true,
        CollectiveKind::PointToPoint { source, destination } => source.is_some() && destination.is_some(),
        CollectiveKind::FromRoot(None) | CollectiveKind::ToRoot(None) | CollectiveKind::Unknown => false,
    }
}

/// Name, and shape where only it identifies the operation.
fn described(event: &CollectiveEvent) -> String {
    match &event.instance {
        Instance::Order { signature, .. } if signature.contains(&event.name) => signature.clone(),
        Instance::Order { signature, .. } => format!("{} {signature}", event.name),
        Instance::Sequence { group, .. } => format!("{} in group {}", event.name, group.name),
        Instance::Hlo { module, .. } => format!("{} of {module}", event.name),
    }
}

/// `all_reduce`, `AllReduce`, `all-reduce`.
fn is_reduction(signature: &str) -> bool {
    let plain: String = signature.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).collect();
    plain.to_ascii_lowercase().contains("allreduce")
}

/// Divisors tried for the number of devices; no number of parts that fits into memory has more.
const DIVISORS_MAX: usize = 4096;

#[cfg(test)]
mod tests;
