//! Determines which parts on different nodes are one operation.
//!
//! There are three ways, from certain to cautious, distinguished by [`Evidence`]:
//! 1. XLA: module, run and operation are equal on all hosts. A host with several devices has a part
//!    for each, a loop repeats all of them; `turns` says which part belongs to which turn of the
//!    loop. All devices of a program carry one label, whichever replica group they are in, and so
//!    do those of a second mesh that runs it: parts belong together only where their programs state
//!    the same groups of devices. `replicas` parts the groups, or leaves the operation ambiguous.
//! 2. A process group with a running number: group, number and kind are equal on all ranks.
//! 3. Neither: order of starts within one group (that the parts name, or that the counts of every
//!    rank leave, `groups`), but only where something proves which operation of one trace is which
//!    of another (`pairing`), and where parts of one rank do not overlap, since then starts are not
//!    in order of issue.
//!
//! All-reduces and messages are held to more. All-reduce is what frameworks issue on their own, on
//! sub-groups too, and its name and shape are the same in every group; an operation cut off at a
//! window's edge makes unequal counts equal. So an all-reduce that names no group is paired only
//! when no trace lists a second group. The list arguments of all-gather, all-to-all and
//! reduce-scatter scale with the group, and a barrier blocks, so that counts suffice for them.
//! [`MatchOptions::reductions_by_count`] pairs all-reduces by counts all the same. Messages that
//! name no group are never paired: they match in order of posting, which a trace does not show, and
//! gloo stamps a send's start only after the data has left (on torch/b_4node three of twenty would
//! be broken under the exact clock, by 37 to 40 µs).
//!
//! All traces are walked together, label by label and number by number: an operation is handed over
//! as soon as its parts are there, and none is kept. So memory does not grow with the traces, and
//! none of their parts is left out.
//!
//! What belongs together is learnt once, with the clocks as well as they are known ([`Pairing`]),
//! so that times before and after a correction are judged by the same pairs. It does not pair
//! operations without an order: those of unknown root, peer or kind are counted and left unpaired.

mod bucket;
mod classes;
mod operation;
mod pairing;
mod replicas;
mod rules;
mod turns;

use std::collections::BTreeMap;

use serde::Serialize;

use self::bucket::{Bucket, Key, Lanes, buckets};
pub use self::classes::Pairing;
use self::classes::Plan;
pub use self::operation::Evidence;
pub use self::operation::{Operation, Order, Part};
use self::operation::{one_node, places, same_node};
use self::replicas::Rule;
pub use self::rules::MatchOptions;
use self::rules::{is_ordered, members, membership};
use super::NodeCollectives;
use probe_sync_formats::model::{CollectiveKind, GroupKey, Instance, Label, Recipients, Replicas};

/// Operations of one name that cannot be matched with certainty, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ambiguous {
    /// Name and shape of the operation.
    pub operation: String,
    /// Reason, as a clause.
    pub reason: String,
    /// Number of instances: at least the largest number on any one node.
    pub instances: usize,
    /// Number of parts on all nodes.
    pub parts: usize,
}

/// Results of matching, besides the operations; each input part is in an operation or in exactly
/// one of the counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matching {
    /// Operations with parts on at least two nodes.
    pub operations: usize,
    /// Operations without a verdict.
    pub ambiguous: Vec<Ambiguous>,
    /// Parts whose operation appears on no other node.
    pub unpaired: usize,
    /// Parts whose order the trace does not determine: unknown kind, root or peer.
    pub unordered: usize,
    /// Parts that were not kept or could not be read back.
    pub lost: u64,
}

/// Groups the parts of all nodes into operations and passes each on, in order of label, number and
/// turn.
pub fn match_operations<'a>(
    nodes: &'a [NodeCollectives<'a>],
    pairing: &Pairing,
    options: MatchOptions,
    take: &mut dyn FnMut(&Operation<'a>),
) -> Matching {
    let lost = nodes.iter().map(|node| node.parts.left_out()).sum();
    let reversed: u64 = nodes.iter().map(|node| node.parts.reversed()).sum();
    let found = Matching { lost, unordered: reversed as usize, ..Matching::default() };
    let ambiguous = BTreeMap::new();
    let mut matcher = Matcher { nodes, options, pairing, found, ambiguous, take };
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
    pairing: &'b Pairing,
    found: Matching,
    /// Numbers of instances and parts, by name and reason.
    ambiguous: BTreeMap<(String, String), (usize, usize)>,
    take: &'b mut dyn FnMut(&Operation<'a>),
}

/// The parts with one number, in order of node, device and start.
type Parts<'a> = Vec<Part<'a>>;

impl<'a> Matcher<'a, '_> {
    /// Matches parts of one instance and kind for which the programs state the same; `shared` is
    /// true if more than one node has such parts.
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
            (Ok(_), Instance::Order { group, .. }) => {
                let plan = self.pairing.plan(key.instance, key.kind, replicas);
                self.order(group.as_ref(), key.kind, plan, &mut bucket);
            }
            (Ok(_), Instance::Communicator { .. }) if self.nodes.len() < 2 => self.found.unpaired += bucket.drain(),
            (Ok(_), Instance::Communicator { .. }) => {
                self.mark_bucket(
                    &mut bucket,
                    "its communicator is only identified by a process-local handle, which may match any communicator of the other ranks",
                );
            }
        }
        self.found.lost += bucket.unread();
    }

    /// Matches by equal labels on all hosts, with several devices and turns per host.
    fn hlo(&mut self, rule: &Rule, kind: &CollectiveKind, bucket: &mut Bucket<'a>) {
        while let Some(number) = self.readable(bucket) {
            let Some(parts) = bucket.take(number, self.options.held_max) else {
                self.mark_rest(bucket, number, "one execution has more parts than can be held in memory");
                continue;
            };
            if one_node(&parts) {
                self.unpaired(&parts);
                continue;
            }
            rule.sets(parts).iter().for_each(|set| self.devices(kind, number, set));
        }
    }

    /// Returns the next number of a bucket. Once parts could not be read back, the rest is
    /// incomplete and is not judged.
    fn readable(&mut self, bucket: &mut Bucket<'a>) -> Option<i64> {
        if bucket.unread() > 0 {
            self.found.lost += bucket.drain() as u64;
        }
        bucket.smallest()
    }

    /// Matches the parts of the devices that took part together.
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
                    self.mark_ambiguous(parts, "several parts of one node have the same label");
                    return;
                }
                for (turn, parts) in turns.into_iter().enumerate() {
                    self.operation(None, kind, Evidence::Label, (number, turn), parts);
                }
            }
        }
    }

    /// Matches by equal group and number.
    fn sequence(&mut self, group: &GroupKey, kind: &CollectiveKind, bucket: &mut Bucket<'a>) {
        while let Some(number) = self.readable(bucket) {
            let Some(parts) = bucket.take(number, self.options.held_max) else {
                self.mark_rest(bucket, number, "several parts of one rank have the same sequence number");
                continue;
            };
            if one_node(&parts) {
                self.unpaired(&parts);
            } else if !parts.chunk_by(same_node).all(turns::overlap) {
                self.mark_ambiguous(&parts, "several parts of one rank have the same sequence number");
            } else if let Err(reason) = membership(self.nodes, group, &places(&parts)) {
                self.mark_ambiguous(&parts, reason);
            } else {
                self.operation(Some(group), kind, Evidence::Label, (number, 0), parts);
            }
        }
    }

    /// Matches by order of starts, beginning with the places known to belong to one operation.
    fn order(&mut self, group: Option<&GroupKey>, kind: &CollectiveKind, plan: Option<&Plan>, bucket: &mut Bucket<'a>) {
        if bucket.unread() > 0 {
            self.found.lost += bucket.drain() as u64;
            return;
        }
        let (sets, others) = match plan {
            None => {
                self.found.unpaired += bucket.drain();
                return;
            }
            Some(Plan::Refused(reason)) => return self.mark_bucket(bucket, reason),
            Some(Plan::Sets(sets, others)) => (sets, others),
        };
        let evidence = if group.is_some() { Evidence::GroupOrder } else { Evidence::CountedOrder };
        for firsts in sets {
            let mut of_set = bucket.split(&self.places_of(|node| firsts.contains_key(&node)));
            of_set.begin_at(firsts);
            self.by_order(group, kind, evidence, &mut of_set);
            self.found.lost += of_set.unread();
        }
        let mut reasons: Vec<&str> = others.values().flatten().copied().collect();
        reasons.sort_unstable();
        reasons.dedup();
        for reason in reasons {
            let mut of_reason = bucket.split(&self.places_of(|node| others.get(&node) == Some(&Some(reason))));
            self.mark_bucket(&mut of_reason, reason);
            self.found.lost += of_reason.unread();
        }
        // No other trace shows what is left.
        self.found.unpaired += bucket.drain();
    }

    /// Returns the indices of nodes selected by number.
    fn places_of(&self, is_of: impl Fn(u32) -> bool) -> Vec<usize> {
        (0..self.nodes.len()).filter(|place| is_of(self.nodes[*place].node)).collect()
    }

    /// Matches the parts at one place in the common order.
    fn by_order(
        &mut self,
        group: Option<&GroupKey>,
        kind: &CollectiveKind,
        evidence: Evidence,
        bucket: &mut Bucket<'a>,
    ) {
        let mut entangled = false;
        while let Some((turn, parts, next)) = bucket.next_turn() {
            if bucket.unread() > 0 {
                // Places in the order are not known any more.
                self.found.lost += (parts.len() + bucket.drain()) as u64;
                break;
            }
            if one_node(&parts) {
                self.unpaired(&parts);
            } else if entangled || next {
                self.mark_ambiguous(&parts, "two of them overlap on one rank, so their order is ambiguous");
            } else {
                self.operation(group, kind, evidence, (0, turn as usize), parts);
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
            self.mark_ambiguous(&parts, "the trace does not record which ranks send to which");
            return;
        }
        match self.resolve(group, kind, &parts) {
            Some(order) => {
                self.found.operations += 1;
                let missing = missing(self.nodes, group, &parts);
                (self.take)(&Operation { order, evidence, number, turn, parts, missing });
            }
            None => self.found.unordered += parts.len(),
        }
    }

    /// Converts ranks of the group to nodes; `None` if the root or a peer has no part.
    fn resolve(&self, group: Option<&GroupKey>, kind: &CollectiveKind, parts: &[Part<'_>]) -> Option<Order> {
        let node_of = |rank: u32| parts.iter().map(|part| part.node).find(|&node| self.nodes[node].rank() == rank);
        let places = places(parts);
        let ranks = group.and_then(|group| members(self.nodes, group, &places));
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
                // Some writers number peers within the group, some within the job; only one can
                // name both parts.
                two(member(*source), member(*destination)).or_else(|| two(node_of(*source), node_of(*destination)))
            }
            _ => None,
        }
    }

    /// Returns the order of an exchange in which some ranks send nothing to some others: a
    /// receiver's end follows the starts of the ranks that send to it.
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

    /// Marks the rest of a bucket as ambiguous.
    fn mark_bucket(&mut self, bucket: &mut Bucket<'a>, reason: &str) {
        let name = bucket.labels().next().map_or_else(String::new, described);
        let most = bucket.places().iter().map(|&place| bucket.count(place)).max().unwrap_or(0);
        let parts = bucket.drain();
        self.count_ambiguous(name, reason, most, parts);
    }

    /// Marks the remaining parts of one number as ambiguous.
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

/// Returns how many more members an operation has than parts were found, as far as the traces show:
/// members of its group, devices of its program, or ranks of the job.
fn missing(nodes: &[NodeCollectives<'_>], group: Option<&GroupKey>, parts: &[Part<'_>]) -> usize {
    let places = places(parts);
    let Some(part) = parts.first() else { return 0 };
    if let Replicas::Groups(groups) = &part.label.replicas {
        let own = |devices: &&Vec<u64>| replicas::stated(part.label.device).is_some_and(|own| devices.contains(&own));
        let all = if let [mesh] = &groups[..] { Some(mesh) } else { groups.iter().find(own) };
        return all.map_or(0, |devices| devices.len().saturating_sub(parts.len()));
    }
    let size = match group {
        Some(group) => members(nodes, group, &places).map(<[_]>::len).or(group.size.map(|size| size as usize)),
        None => listed(nodes, &places).or_else(|| Some(nodes[places[0]].world_size? as usize)),
    };
    size.map_or(0, |size| size.saturating_sub(places.len()))
}

/// Returns the size of the smallest listed group that has all these nodes and no other traced node
/// as members.
fn listed(nodes: &[NodeCollectives<'_>], places: &[usize]) -> Option<usize> {
    let is_theirs =
        |ranks: &&[u32]| (0..nodes.len()).all(|place| ranks.contains(&nodes[place].rank()) == places.contains(&place));
    let all = places.iter().flat_map(|place| nodes[*place].groups).filter_map(|group| group.ranks.as_deref());
    all.filter(is_theirs).map(<[_]>::len).min()
}

/// Returns the name, with the shape if only that identifies the operation.
fn described(label: &Label) -> String {
    match &label.instance {
        Instance::Communicator { signature, .. } => signature.clone(),
        Instance::Order { signature, .. } if signature.contains(&label.name) => signature.clone(),
        Instance::Order { signature, .. } => format!("{} {signature}", label.name),
        Instance::Sequence { group, .. } => format!("{} in group {}", label.name, group.name),
        Instance::Hlo { module, .. } => format!("{} of {module}", label.name),
    }
}

#[cfg(test)]
mod tests;
