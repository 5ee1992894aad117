//! Which parts on different nodes are one operation.
//!
//! Place in the flow: first step of [`check`](super::check()) and [`from_collectives`](super::from_collectives). Three ways,
//! from certain to careful, told apart by [`Evidence`]:
//! 1. XLA: module, run and operation are equal on all hosts. A host with several devices has a part for each, a loop
//!    repeats all of them; `turns` says which part belongs to which turn of the loop. All devices of a program carry one
//!    label, whichever replica group they are in, and so do those of a second mesh that runs it: parts belong together only
//!    where their programs state the same groups of devices. `replicas` parts the groups, or leaves the operation ambiguous.
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
//! All traces are walked together, label by label and number by number: an operation is handed over as soon as its parts are
//! there, and none is kept. So memory does not grow with the traces, and none of their parts is left out.
//!
//! Matching uses times of one node only against times of the same node: no map can change what belongs together.
//! What it does not do: pair what has no order. Operations of unknown root, peer or kind are counted and left.

mod bucket;
mod operation;
mod replicas;
mod turns;

use std::collections::BTreeMap;

use serde::Serialize;

use self::bucket::{Bucket, Key, Lanes, buckets};
pub use self::operation::Evidence;
pub(crate) use self::operation::{Operation, Order, Part};
use self::operation::{one_node, places, same_node};
use self::replicas::Rule;
use super::NodeCollectives;
use super::groups::Groups;
use crate::model::{CollectiveKind, GroupKey, Instance, Label, Recipients, Replicas};

/// How cautious matching is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct MatchOptions {
    /// Pair all-reduces that name no group by counts, though several groups may exist.
    pub reductions_by_count: bool,
    /// Parts of one execution or number that are held at once.
    pub held_max: usize,
}

impl Default for MatchOptions {
    fn default() -> Self {
        Self { reductions_by_count: false, held_max: PARTS_MAX }
    }
}

/// Operations that cannot be paired with certainty, of one name and for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// What came out of matching beside the operations; each part that came in is in an operation or in exactly one of the counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Matching {
    /// Operations with parts on at least two nodes.
    pub operations: usize,
    /// What stays without a verdict.
    pub ambiguous: Vec<Ambiguous>,
    /// Parts whose operation no other node shows.
    pub unpaired: usize,
    /// Parts that order nothing as far as the trace says: unknown kind, root or peer.
    pub unordered: usize,
    /// Parts that were not kept or could not be read back: nothing is known of them.
    pub lost: u64,
}

/// Groups the parts of all nodes into operations and hands over each, in order of label, number and turn.
pub(crate) fn match_operations<'a>(
    nodes: &'a [NodeCollectives<'a>],
    options: MatchOptions,
    take: &mut dyn FnMut(&Operation<'a>),
) -> Matching {
    let lost = nodes.iter().map(|node| node.parts.left_out()).sum();
    let reversed: u64 = nodes.iter().map(|node| node.parts.reversed()).sum();
    let found = Matching { lost, unordered: reversed as usize, ..Matching::default() };
    let ambiguous = BTreeMap::new();
    let mut matcher = Matcher { nodes, options, groups: Groups::new(nodes), found, ambiguous, take };
    for (key, by_replicas) in buckets(nodes) {
        let mut places = by_replicas.values().flat_map(Lanes::devices).map(|(place, _)| place);
        let first = places.next();
        let shared = places.any(|place| Some(place) != first);
        for (replicas, lanes) in &by_replicas {
            matcher.bucket(key, replicas, lanes, shared);
        }
    }
    let Matcher { mut found, ambiguous, .. } = matcher;
    let line = |((operation, reason), (instances, parts))| Ambiguous { operation, reason, instances, parts };
    found.ambiguous = ambiguous.into_iter().map(line).collect();
    found
}

struct Matcher<'a, 'b> {
    nodes: &'a [NodeCollectives<'a>],
    options: MatchOptions,
    groups: Groups,
    found: Matching,
    /// By name and reason: instances and parts.
    ambiguous: BTreeMap<(String, String), (usize, usize)>,
    take: &'b mut dyn FnMut(&Operation<'a>),
}

/// The parts of one number, in order of node, then device, then start.
type Parts<'a> = Vec<Part<'a>>;

impl<'a> Matcher<'a, '_> {
    /// Parts of one instance and kind whose programs state the same; `shared`: more than one node shows such parts.
    fn bucket(&mut self, key: Key<'_>, replicas: &Replicas, lanes: &Lanes, shared: bool) {
        if !is_ordered(key.kind) {
            self.found.unordered += lanes.parts() as usize;
            return;
        }
        let mut bucket = lanes.open(self.nodes);
        match (Rule::of(key.instance, replicas, lanes), key.instance) {
            (Err(_), _) if !shared => self.found.unpaired += bucket.drain(),
            (Err(reason), _) => self.mark_bucket(&mut bucket, reason),
            (Ok(rule), Instance::Hlo { .. }) => self.hlo(&rule, key.kind, &mut bucket),
            (Ok(_), Instance::Sequence { group, .. }) => self.sequence(group, key.kind, &mut bucket),
            (Ok(_), Instance::Order { group: Some(group), .. }) => self.in_group(group, key.kind, &mut bucket),
            (Ok(_), Instance::Communicator { .. }) if self.nodes.len() < 2 => self.found.unpaired += bucket.drain(),
            (Ok(_), Instance::Communicator { .. }) => {
                self.mark_bucket(
                    &mut bucket,
                    "its communicator is known by a handle of its process alone, which may be any of the others'",
                );
            }
            (Ok(rule), Instance::Order { group: None, signature }) => {
                self.order(&rule, signature, key.kind, &mut bucket);
            }
        }
        self.found.lost += bucket.unread();
    }

    /// Equal labels on all hosts; several devices and turns per host.
    fn hlo(&mut self, rule: &Rule, kind: &CollectiveKind, bucket: &mut Bucket<'a>) {
        while let Some(number) = self.readable(bucket) {
            let Some(parts) = bucket.take(number, self.options.held_max) else {
                self.mark_rest(bucket, number, "one execution has more parts than are held at once");
                continue;
            };
            if one_node(&parts) {
                self.unpaired(&parts);
                continue;
            }
            rule.sets(parts).iter().for_each(|set| self.devices(kind, number, set));
        }
    }

    /// The next number of a bucket. Once parts could not be read back, what comes is not complete: the rest is not judged.
    fn readable(&mut self, bucket: &mut Bucket<'a>) -> Option<i64> {
        if bucket.unread() > 0 {
            self.found.lost += bucket.drain() as u64;
        }
        bucket.smallest()
    }

    /// The parts of the devices that took part together.
    fn devices(&mut self, kind: &CollectiveKind, number: i64, parts: &Parts<'a>) {
        if one_node(parts) {
            self.unpaired(parts);
            return;
        }
        match turns::turns(parts) {
            Err(reason) => self.mark_ambiguous(parts, reason),
            Ok(turns) => {
                let several = |turn: &Parts<'_>| turn.chunk_by(same_node).any(|of_node| of_node.len() > 1);
                if *kind != CollectiveKind::AllToAll && turns.iter().any(several) {
                    self.mark_ambiguous(parts, "several parts of one node carry one label");
                    return;
                }
                for (turn, parts) in turns.into_iter().enumerate() {
                    self.operation(None, kind, Evidence::Label, (number, turn), parts);
                }
            }
        }
    }

    /// Equal group and number.
    fn sequence(&mut self, group: &GroupKey, kind: &CollectiveKind, bucket: &mut Bucket<'a>) {
        while let Some(number) = self.readable(bucket) {
            let Some(parts) = bucket.take(number, self.options.held_max) else {
                self.mark_rest(bucket, number, "several parts of one rank carry one sequence number");
                continue;
            };
            if one_node(&parts) {
                self.unpaired(&parts);
            } else if !parts.chunk_by(same_node).all(turns::overlap) {
                self.mark_ambiguous(&parts, "several parts of one rank carry one sequence number");
            } else if let Err(reason) = self.membership(group, &places(&parts)) {
                self.mark_ambiguous(&parts, reason);
            } else {
                self.operation(Some(group), kind, Evidence::Label, (number, 0), parts);
            }
        }
    }

    /// The members of a group, from the event or else from the lists of the ranks that show it, where they agree.
    fn members<'c>(&'c self, group: &'c GroupKey, places: &[usize]) -> Option<&'c [u32]> {
        let listed = |place: usize| {
            let of_name = self.nodes[place].groups.iter().find(|listed| listed.name == group.name);
            of_name.and_then(|listed| listed.ranks.as_deref())
        };
        let (first, rest) = places.split_first()?;
        let members = group.ranks.as_deref().or_else(|| listed(*first))?;
        let agreed = group.ranks.is_some() || rest.iter().all(|place| listed(*place) == Some(members));
        agreed.then_some(members)
    }

    /// Whether the nodes that show a group's operation can be that group.
    fn membership(&self, group: &GroupKey, places: &[usize]) -> Result<(), &'static str> {
        match (self.members(group, places), group.size) {
            (Some(ranks), _) => {
                let outside = places.iter().any(|&place| !ranks.contains(&self.nodes[place].rank()));
                if outside { Err("ranks outside its process group show it") } else { Ok(()) }
            }
            // Groups of one name may exist side by side; only a full one is surely one.
            (None, Some(size)) if size as usize == places.len() => Ok(()),
            (None, None) if places.len() == self.nodes.len() => Ok(()),
            (None, _) => Err("the members of its process group are not listed"),
        }
    }

    /// Order of starts, inside a group that the parts name.
    fn in_group(&mut self, group: &GroupKey, kind: &CollectiveKind, bucket: &mut Bucket<'a>) {
        let places = bucket.places();
        if places.len() < 2 {
            self.found.unpaired += bucket.drain();
        } else if matches!(kind, CollectiveKind::PointToPoint { .. }) {
            self.messages(Some(group), kind, bucket);
        } else if let Err(reason) = self.membership(group, &places) {
            self.mark_bucket(bucket, reason);
        } else if !bucket.even() || self.absent(group, &places) {
            self.mark_bucket(bucket, "the ranks of its process group did it a different number of times");
        } else {
            self.by_order(Some(group), kind, Evidence::GroupOrder, bucket);
        }
    }

    /// Order of starts, inside a group that is certain though the parts name none.
    fn order(&mut self, rule: &Rule, signature: &str, kind: &CollectiveKind, bucket: &mut Bucket<'a>) {
        let places = bucket.places();
        if places.len() < 2 && (matches!(rule, Rule::Mesh) || !self.groups.only_one()) {
            self.found.unpaired += bucket.drain();
        } else if matches!(kind, CollectiveKind::PointToPoint { .. }) {
            self.messages(None, kind, bucket);
        } else if is_reduction(signature) && !self.groups.only_one() && !self.options.reductions_by_count {
            self.mark_bucket(
                bucket,
                "it names no process group, and its shape is the same in every group that may exist",
            );
        } else {
            match rule {
                Rule::NoProgram => self.counted(kind, bucket),
                Rule::Mesh if bucket.even() => self.by_order(None, kind, Evidence::CountedOrder, bucket),
                Rule::Mesh => self.mark_bucket(bucket, "the devices of its program did it a different number of times"),
                Rule::Groups(_) => {
                    self.mark_bucket(
                        bucket,
                        "it runs in replica groups, and only its order tells one execution from another",
                    );
                }
            }
        }
    }

    /// Order within the groups that the counts leave.
    fn counted(&mut self, kind: &CollectiveKind, bucket: &mut Bucket<'a>) {
        let counts: Vec<usize> = (0..self.nodes.len()).map(|place| bucket.count(place)).collect();
        match self.groups.assign(&counts) {
            Err(reason) => self.mark_bucket(bucket, &reason),
            Ok(sets) => {
                for set in sets {
                    let mut of_set = bucket.split(&set);
                    if of_set.even() {
                        self.by_order(None, kind, Evidence::CountedOrder, &mut of_set);
                    } else {
                        self.mark_bucket(&mut of_set, "its devices did it a different number of times");
                    }
                    self.found.lost += of_set.unread();
                }
            }
        }
    }

    /// Sends and receives between two ranks.
    fn messages(&mut self, group: Option<&GroupKey>, kind: &CollectiveKind, bucket: &mut Bucket<'a>) {
        if group.is_none() {
            self.mark_bucket(bucket, "a message that names no process group has no certain partner");
        } else if bucket.places().len() != 2 || !bucket.even() {
            self.mark_bucket(bucket, "sender and receiver show a different number of messages");
        } else {
            self.by_order(group, kind, Evidence::GroupOrder, bucket);
        }
    }

    /// Whether a member whose trace is here shows none of a group's operations.
    fn absent(&self, group: &GroupKey, places: &[usize]) -> bool {
        let ranks = self.members(group, places);
        let member = |place: &usize| ranks.is_some_and(|ranks| ranks.contains(&self.nodes[*place].rank()));
        (0..self.nodes.len()).filter(member).any(|place| !places.contains(&place))
    }

    /// Pairs the k-th part of every lane; counts are equal.
    fn by_order(
        &mut self,
        group: Option<&GroupKey>,
        kind: &CollectiveKind,
        evidence: Evidence,
        bucket: &mut Bucket<'a>,
    ) {
        if bucket.places().len() < 2 {
            self.found.unpaired += bucket.drain();
            return;
        }
        let mut entangled = false;
        for turn in 0.. {
            let parts = bucket.next_of_each();
            if parts.is_empty() {
                break;
            }
            if bucket.unread() > 0 {
                // Places in the order are not known any more.
                self.found.lost += (parts.len() + bucket.drain()) as u64;
                break;
            }
            let next = bucket.begins_before_end(&parts);
            if entangled || next {
                self.mark_ambiguous(&parts, "two of them overlap on one rank, so their order is ambiguous");
            } else {
                self.operation(group, kind, evidence, (0, turn), parts);
            }
            entangled = next;
        }
    }

    fn operation(
        &mut self,
        group: Option<&GroupKey>,
        kind: &CollectiveKind,
        evidence: Evidence,
        (number, turn): (i64, usize),
        parts: Parts<'a>,
    ) {
        if parts.iter().any(|part| part.recipients == Recipients::Unknown) {
            self.mark_ambiguous(&parts, "the trace does not say which ranks send something to which");
            return;
        }
        match self.resolve(group, kind, &parts) {
            Some(order) => {
                self.found.operations += 1;
                (self.take)(&Operation { order, evidence, number, turn, parts });
            }
            None => self.found.unordered += parts.len(),
        }
    }

    /// Turns ranks of the group into nodes; None where the root or a peer shows no part.
    fn resolve(&self, group: Option<&GroupKey>, kind: &CollectiveKind, parts: &[Part<'_>]) -> Option<Order> {
        let node_of = |rank: u32| parts.iter().map(|part| part.node).find(|&node| self.nodes[node].rank() == rank);
        let places = places(parts);
        let ranks = group.and_then(|group| self.members(group, &places));
        let member = |index: u32| match ranks {
            Some(ranks) => node_of(*ranks.get(index as usize)?),
            None => node_of(index),
        };
        match kind {
            CollectiveKind::AllToAll if parts.iter().all(|part| part.recipients == Recipients::All) => {
                Some(Order::AllToAll)
            }
            CollectiveKind::AllToAll => self.exchange(ranks?, parts),
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

    /// Who waits for whom where some send nothing to some: a receiver's end follows the starts of those that send to it.
    fn exchange(&self, ranks: &[u32], parts: &[Part<'_>]) -> Option<Order> {
        let place = |part: &Part<'_>| ranks.iter().position(|rank| *rank == self.nodes[part.node].rank());
        let sends = |part: &Part<'_>, to: usize| match part.recipients {
            Recipients::All => true,
            Recipients::Members(members) => {
                u32::try_from(to).is_ok_and(|to| members.checked_shr(to).unwrap_or(0) & 1 == 1)
            }
            Recipients::Unknown => false,
        };
        let mut receivers = Vec::new();
        for of_node in parts.chunk_by(same_node) {
            let (receiver, to) = (of_node[0].node, place(&of_node[0])?);
            let senders = parts.iter().filter(|sender| sender.node != receiver && sends(sender, to));
            receivers.push((receiver, senders.map(|sender| sender.node).collect()));
        }
        Some(Order::Exchange(receivers))
    }

    fn unpaired(&mut self, parts: &[Part<'_>]) {
        self.found.unpaired += parts.len();
    }

    fn mark_ambiguous(&mut self, parts: &[Part<'_>], reason: &str) {
        let name = parts.first().map_or_else(String::new, |part| described(part.label));
        let most = parts.chunk_by(same_node).map(<[_]>::len).max().unwrap_or(0);
        self.count_ambiguous(name, reason, most, parts.len());
    }

    /// All that is left of a bucket.
    fn mark_bucket(&mut self, bucket: &mut Bucket<'a>, reason: &str) {
        let name = bucket.labels().next().map_or_else(String::new, described);
        let most = bucket.places().iter().map(|&place| bucket.count(place)).max().unwrap_or(0);
        let parts = bucket.drain();
        self.count_ambiguous(name, reason, most, parts);
    }

    /// All that is left of one number.
    fn mark_rest(&mut self, bucket: &mut Bucket<'a>, number: i64, reason: &str) {
        let name = bucket.labels().next().map_or_else(String::new, described);
        let (most, parts) = bucket.skip(number, self.options.held_max);
        self.count_ambiguous(name, reason, most, parts);
    }

    fn count_ambiguous(&mut self, name: String, reason: &str, most: usize, all: usize) {
        let (instances, parts) = self.ambiguous.entry((name, reason.to_owned())).or_default();
        *instances += most;
        *parts += all;
    }
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
fn described(label: &Label) -> String {
    match &label.instance {
        Instance::Communicator { signature, .. } => signature.clone(),
        Instance::Order { signature, .. } if signature.contains(&label.name) => signature.clone(),
        Instance::Order { signature, .. } => format!("{} {signature}", label.name),
        Instance::Sequence { group, .. } => format!("{} in group {}", label.name, group.name),
        Instance::Hlo { module, .. } => format!("{} of {module}", label.name),
    }
}

/// `all_reduce`, `AllReduce`, `all-reduce`.
fn is_reduction(signature: &str) -> bool {
    let plain: String = signature.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).collect();
    plain.to_ascii_lowercase().contains("allreduce")
}

/// Parts of one execution or number that are held at once: 400 MB.
const PARTS_MAX: usize = 1 << 22;

#[cfg(test)]
mod tests;
