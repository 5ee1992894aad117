//! Classes of operations that share one order, in which parts are paired by position.
//!
//! All ranks of a group perform its operations in one order, whatever their kind; messages between
//! two ranks have their own order. For operations that name no group, the counts tell which group
//! they ran in (`groups`). Each class is aligned once (`pairing`), and each bucket then knows which
//! of its parts comes first in the common order.

use std::collections::BTreeMap;

use probe_sync_formats::model::{CollectiveKind, Device, GroupKey, Instance, Replicas};

use super::bucket::{Lanes, buckets};
use super::pairing::{self, Aligned, Class, Kinds, Proof};
use super::replicas::Rule;
use super::rules::{MatchOptions, is_ordered, is_reduction, membership};
use crate::collectives::NodeCollectives;
use crate::collectives::groups::Groups;

/// How to pair parts of which only the order is known: learned once, with clocks as well as they
/// are known, and used with any time map.
#[derive(Clone, Debug, Default)]
pub struct Pairing {
    plans: BTreeMap<BucketKey, Plan>,
    proofs: Vec<Proof>,
}

/// Instance, kind and replica groups.
type BucketKey = (Instance, CollectiveKind, Replicas);

/// What to do with a bucket whose parts are distinguished only by their order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan {
    /// No class is certain.
    Refused(String),
    /// Ranks with the same operations, by operation number, with the position of the first of each
    /// in the common order; and the other ranks, with the reason.
    Sets(Vec<BTreeMap<u32, u64>>, BTreeMap<u32, Option<&'static str>>),
}

/// Identity of a class.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ClassKey {
    group: Option<GroupKey>,
    replicas: Replicas,
    /// Of messages, which have an order of their own.
    message: Option<CollectiveKind>,
    /// Indexes of operations without a group.
    places: Vec<usize>,
}

/// A class being collected.
#[derive(Default)]
struct Members<'a> {
    /// By kind: its bucket.
    kinds: Vec<(&'a Instance, &'a CollectiveKind, &'a Replicas)>,
    /// By node and device: its labels with their kinds, and the number of parts.
    lanes: BTreeMap<(usize, Option<Device>), (Kinds, u64)>,
}

impl Pairing {
    /// Learns it from all parts. If the clocks are unknown, the maps say nothing about nodes on
    /// different ones.
    pub fn new(nodes: &[NodeCollectives<'_>], options: MatchOptions, clocks_known: bool) -> Self {
        let groups = Groups::new(nodes);
        let mut found = Self::default();
        let mut classes: BTreeMap<ClassKey, Members<'_>> = BTreeMap::new();
        let buckets = buckets(nodes);
        for (key, by_replicas) in &buckets {
            for (replicas, lanes) in by_replicas {
                let bucket = (key.instance, key.kind, *replicas);
                match classes_of(nodes, &groups, options, bucket, lanes) {
                    Ok(keys) => {
                        for class in keys {
                            let places = class.places.clone();
                            classes.entry(class).or_default().add(bucket, lanes, &places);
                        }
                    }
                    Err(reason) => {
                        found.plans.insert(owned(bucket), Plan::Refused(reason));
                    }
                }
            }
        }
        for members in classes.values().filter(|members| members.nodes() > 1) {
            found.align(nodes, members, clocks_known);
        }
        found
    }

    /// What to do with a bucket; `None` if no two nodes show its class.
    pub(super) fn plan(&self, instance: &Instance, kind: &CollectiveKind, replicas: &Replicas) -> Option<&Plan> {
        self.plans.get(&(instance.clone(), kind.clone(), replicas.clone()))
    }

    /// Evidence for the order of how many pairs of traces, in words.
    pub fn notes(&self) -> Vec<String> {
        let count = |is: fn(&Proof) -> bool| self.proofs.iter().filter(|proof| is(proof)).count();
        let margin = |proof: &Proof| if let Proof::Pattern(margin) = proof { Some(*margin) } else { None };
        let least = self.proofs.iter().filter_map(margin).fold(f64::INFINITY, f64::min);
        let told = [
            (count(|proof| *proof == Proof::Making), "from the creation of their communicator on".to_owned()),
            (count(|proof| *proof == Proof::Steps), "by the steps that both traces number".to_owned()),
            (
                count(|proof| matches!(proof, Proof::Pattern(_))),
                format!(
                    "by the pattern of their end times, which is at least 10^{:.0} times likelier than with any other pairing",
                    least.min(MARGIN_TOLD).floor()
                ),
            ),
            (
                count(|proof| *proof == Proof::Times),
                "by their times, because any other pairing contradicts the clocks".to_owned(),
            ),
        ];
        let told = told.into_iter().filter(|(count, _)| *count > 0);
        told.map(|(count, by)| {
            let traces = if count == 1 { "one pair of traces".to_owned() } else { format!("{count} pairs of traces") };
            format!("operations without a number of their own are paired {by} ({traces})")
        })
        .collect()
    }

    /// Whether some operations were paired although no pairing holds on the clocks: one of these is
    /// wrong.
    pub fn is_refuted(&self) -> bool {
        self.proofs.contains(&Proof::LeastBroken)
    }

    /// Whether only times told how some operations are paired.
    pub fn is_by_times(&self) -> bool {
        self.proofs.contains(&Proof::Times)
    }

    /// Whether it pairs the same operations as another.
    pub fn pairs_as(&self, other: &Self) -> bool {
        self.plans == other.plans
    }

    /// Aligns a class and applies the result to each of its kinds.
    fn align(&mut self, nodes: &[NodeCollectives<'_>], members: &Members<'_>, clocks_known: bool) {
        let (labels, uneven) = members.labels();
        let all = members.kinds.iter().map(|(_, kind, _)| **kind == CollectiveKind::AllToAll).collect();
        let class = Class { nodes, all, labels, clocks_known };
        let from_making = members.kinds.iter().all(
            |(instance, ..)| matches!(instance, Instance::Order { group: Some(group), .. } if group.is_from_making),
        );
        let Aligned { sets, others, proofs } =
            if from_making { Aligned::from_making(&class) } else { pairing::align(&class) };
        self.proofs.extend(proofs);
        let firsts: Vec<BTreeMap<usize, Vec<u64>>> = sets.iter().map(|set| pairing::firsts(&class, set)).collect();
        for (kind, bucket) in members.kinds.iter().enumerate() {
            let of_kind = |set: &BTreeMap<usize, Vec<u64>>| {
                set.iter().map(|(place, firsts)| (nodes[*place].node, firsts[kind])).collect()
            };
            let others = others.iter().chain(&uneven).map(|(place, reason)| (nodes[*place].node, *reason));
            let (sets, others) = (firsts.iter().map(of_kind), others.collect::<BTreeMap<_, _>>());
            match self.plans.entry(owned(*bucket)).or_insert_with(|| Plan::Sets(Vec::new(), BTreeMap::new())) {
                Plan::Sets(all, left) => {
                    all.extend(sets);
                    left.extend(others);
                }
                Plan::Refused(_) => {}
            }
        }
    }
}

impl<'a> Members<'a> {
    fn add(&mut self, bucket: (&'a Instance, &'a CollectiveKind, &'a Replicas), lanes: &Lanes, places: &[usize]) {
        self.kinds.push(bucket);
        let kind = self.kinds.len() - 1;
        for (lane, numbers, parts) in
            lanes.labels().filter(|((place, _), ..)| places.is_empty() || places.contains(place))
        {
            let (labels, count) = self.lanes.entry(lane).or_default();
            labels.extend(numbers.iter().map(|number| (*number, kind)));
            *count += parts;
        }
    }

    fn nodes(&self) -> usize {
        let mut places: Vec<usize> = self.lanes.keys().map(|(place, _)| *place).collect();
        places.dedup();
        places.len()
    }

    /// The labels of each node's first device; and nodes whose devices differ.
    fn labels(&self) -> (BTreeMap<usize, Kinds>, BTreeMap<usize, Option<&'static str>>) {
        let mut found: BTreeMap<usize, (Kinds, u64)> = BTreeMap::new();
        let mut uneven = BTreeMap::new();
        for ((place, _), (labels, count)) in &self.lanes {
            let (_, first) = found.entry(*place).or_insert_with(|| (labels.clone(), *count));
            if first != count {
                uneven.insert(*place, Some(UNEVEN));
            }
        }
        found.retain(|place, _| !uneven.contains_key(place));
        (found.into_iter().map(|(place, (labels, _))| (place, labels)).collect(), uneven)
    }
}

fn owned((instance, kind, replicas): (&Instance, &CollectiveKind, &Replicas)) -> BucketKey {
    (instance.clone(), kind.clone(), replicas.clone())
}

/// The classes of a bucket: none if its parts are distinguished otherwise, or if no other node
/// shows them. Or why none is certain.
fn classes_of(
    nodes: &[NodeCollectives<'_>],
    groups: &Groups,
    options: MatchOptions,
    (instance, kind, replicas): (&Instance, &CollectiveKind, &Replicas),
    lanes: &Lanes,
) -> Result<Vec<ClassKey>, String> {
    let Instance::Order { group, signature } = instance else { return Ok(Vec::new()) };
    let Ok(rule) = Rule::of(instance, replicas, lanes) else { return Ok(Vec::new()) };
    let places = lanes.places();
    if !is_ordered(kind) || places.len() < 2 {
        return Ok(Vec::new());
    }
    let is_message = matches!(kind, CollectiveKind::PointToPoint { .. });
    let key = ClassKey {
        group: group.clone(),
        replicas: replicas.clone(),
        message: is_message.then(|| kind.clone()),
        places: Vec::new(),
    };
    match (group, rule) {
        (Some(_), _) if is_message && places.len() > 2 => Err("a message appears on more than two ranks".to_owned()),
        (Some(_), _) if is_message => Ok(vec![key]),
        (Some(group), _) => {
            membership(nodes, group, &places)?;
            Ok(vec![key])
        }
        (None, _) if is_message => Err("a message without a process group has no certain partner".to_owned()),
        (None, _) if is_reduction(signature) && !groups.only_one() && !options.reductions_by_count => {
            Err("it has no process group, and its shape is the same in every possible group".to_owned())
        }
        (None, Rule::NoProgram) => {
            if let Some(members) = groups.only() {
                return Ok(vec![ClassKey { places: members.to_vec(), ..key }]);
            }
            let counts: Vec<usize> = (0..nodes.len()).map(|place| lanes.count(place)).collect();
            let sets = groups.assign(&counts)?;
            Ok(sets.into_iter().filter(|set| set.len() > 1).map(|places| ClassKey { places, ..key.clone() }).collect())
        }
        (None, Rule::Mesh) => Ok(vec![key]),
        (None, Rule::Groups(_)) => {
            Err("it runs in replica groups, and only its order distinguishes one execution from another".to_owned())
        }
    }
}

/// Largest margin shown; larger ones say no more.
const MARGIN_TOLD: f64 = 99.0;
const UNEVEN: &str = "its devices executed it different numbers of times";
