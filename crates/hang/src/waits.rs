//! Who waits for whom: a graph of ranks and unfinished operations.
//!
//! A rank points to each of its unfinished operations. An operation points to the members that have
//! not enqueued it, and to members that have enqueued it behind another unfinished operation. What
//! a path leads to is what the rank waits for. A set of nodes that wait for each other and for
//! nothing else is a *root*; a rank without unfinished operations waits for nothing and is a root
//! by itself.
//!
//! A rank without a dump may be anywhere, so it is not a node. An operation that waits for such
//! ranks alone is a root by itself.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::job::{Job, Kind, Operation};

/// An operation that at least one member has not finished.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unfinished {
    /// Members that have enqueued it and not finished, with what they enqueued.
    pub waiting: BTreeMap<u32, Operation>,
    /// Members that have not enqueued it, as far as their dumps show.
    pub missing: BTreeSet<u32>,
    /// Members whose dumps are missing or do not say.
    pub unknown: BTreeSet<u32>,
    /// Members that have finished it.
    pub finished: BTreeSet<u32>,
    /// Members that have enqueued it behind another unfinished operation.
    pub behind: BTreeSet<u32>,
}

/// What makes two ranks' operations one.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Identity {
    Collective {
        group: u32,
        sequence: u64,
    },
    /// The `place`-th unfinished message of this pair in this group.
    Message {
        group: u32,
        from: u32,
        to: u32,
        place: usize,
    },
}

/// All unfinished operations of a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    pub operations: BTreeMap<Identity, Unfinished>,
    /// The operations of each rank, in its own order.
    pub of_rank: BTreeMap<u32, Vec<Identity>>,
    /// The members of each group.
    pub members: Vec<Vec<u32>>,
    /// Ranks whose last operation has ended, perhaps in failure for lack of a rank without a dump.
    pub perhaps_failed: BTreeSet<u32>,
}

/// Ranks and operations that wait for each other, or a single rank, and for nothing else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Root {
    pub ranks: Vec<u32>,
    pub operations: Vec<Identity>,
}

impl Waits {
    /// Matches the unfinished operations of all ranks.
    pub fn new(job: &Job) -> Self {
        let mut waits = Self { members: job.members(), ..Self::default() };
        for (rank, state) in &job.ranks {
            let mut places: BTreeMap<(u32, u32, u32), usize> = BTreeMap::new();
            let mut own = Vec::new();
            for operation in &state.pending {
                let mut message = |from: u32, to: u32| {
                    let place = places.entry((operation.group, from, to)).or_default();
                    *place += 1;
                    Identity::Message { group: operation.group, from, to, place: *place - 1 }
                };
                let identity = match operation.kind {
                    Kind::Collective { sequence } => Identity::Collective { group: operation.group, sequence },
                    Kind::Send { to, .. } => message(*rank, to),
                    Kind::Receive { from, .. } => message(from, *rank),
                    Kind::Unmatched => continue,
                };
                waits.operations.entry(identity).or_default().waiting.insert(*rank, *operation);
                own.push(identity);
            }
            waits.of_rank.insert(*rank, own);
        }
        waits.add_failed(job);
        for (identity, operation) in &mut waits.operations {
            operation.complete(job, &waits.members, *identity);
        }
        waits.mark_behind();
        waits
    }

    /// Adds last operations that have ended, perhaps because a peer was lost: some member has no
    /// dump, and no member is known to have gone on after the operation.
    fn add_failed(&mut self, job: &Job) {
        let missing = job.missing();
        for (rank, state) in &job.ranks {
            let Some(operation) = state.ended_last else { continue };
            let Kind::Collective { sequence } = operation.kind else { continue };
            let members = &self.members[operation.group as usize];
            let is_last = |other: &Operation| other.group == operation.group && other.kind == operation.kind;
            let has_passed = |other: &u32| {
                job.ranks.get(other).is_some_and(|other| {
                    other.has_completed(operation.group, sequence) && !other.ended_last.as_ref().is_some_and(is_last)
                })
            };
            if members.iter().any(|member| missing.contains_key(member)) && !members.iter().any(has_passed) {
                let identity = Identity::Collective { group: operation.group, sequence };
                self.operations.entry(identity).or_default().waiting.insert(*rank, operation);
                self.of_rank.entry(*rank).or_default().push(identity);
                self.perhaps_failed.insert(*rank);
            }
        }
    }

    /// Marks members that have enqueued an operation behind another unfinished one.
    fn mark_behind(&mut self) {
        for (rank, own) in &self.of_rank {
            for identity in own.iter().skip(1) {
                if let Some(operation) = self.operations.get_mut(identity) {
                    operation.behind.insert(*rank);
                }
            }
        }
    }

    /// Returns the roots of the graph.
    pub fn roots(&self) -> Vec<Root> {
        let mut graph: DiGraph<Node, ()> = DiGraph::new();
        let mut ranks: BTreeMap<u32, NodeIndex> = BTreeMap::new();
        let mut nodes: BTreeMap<Identity, NodeIndex> = BTreeMap::new();
        for identity in self.operations.keys() {
            nodes.insert(*identity, graph.add_node(Node::Operation(*identity)));
        }
        for (identity, operation) in &self.operations {
            for rank in operation.missing.iter().chain(&operation.behind).copied() {
                let to = *ranks.entry(rank).or_insert_with(|| graph.add_node(Node::Rank(rank)));
                graph.add_edge(nodes[identity], to, ());
            }
        }
        for (rank, own) in &self.of_rank {
            // A rank for which nothing waits cannot be the cause.
            let Some(from) = ranks.get(rank) else { continue };
            for identity in own {
                graph.add_edge(*from, nodes[identity], ());
            }
        }
        let components = kosaraju_scc(&graph);
        let mut component_of = vec![0; graph.node_count()];
        for (number, component) in components.iter().enumerate() {
            component.iter().for_each(|node| component_of[node.index()] = number);
        }
        let leaves = |node: &NodeIndex| {
            graph.neighbors(*node).any(|next| component_of[next.index()] != component_of[node.index()])
        };
        let roots = components.iter().filter(|component| !component.iter().any(leaves));
        roots.map(|component| Root::of(&graph, component)).collect()
    }

    /// Returns pairs of operations of a root that some of its ranks have put in one order, and some
    /// in the other, each with the ranks that have the first of the pair first.
    ///
    /// A rank that has enqueued one operation and not the other has that one first.
    pub fn conflicts(&self, root: &Root) -> Vec<[BTreeSet<u32>; 2]> {
        let inside: BTreeSet<Identity> = root.operations.iter().copied().collect();
        let mut lacks: BTreeMap<u32, Vec<Identity>> = BTreeMap::new();
        for identity in &inside {
            for rank in &self.operations[identity].missing {
                lacks.entry(*rank).or_default().push(*identity);
            }
        }
        let mut first: BTreeMap<(Identity, Identity), BTreeSet<u32>> = BTreeMap::new();
        for rank in &root.ranks {
            let own = self.of_rank.get(rank).into_iter().flatten().filter(|identity| inside.contains(identity));
            let own: Vec<Identity> = own.copied().take(ORDERS_COMPARED).collect();
            for (place, before) in own.iter().enumerate() {
                let later = lacks.get(rank).into_iter().flatten().take(ORDERS_COMPARED);
                for after in own[place + 1..].iter().chain(later) {
                    first.entry((*before, *after)).or_default().insert(*rank);
                }
            }
        }
        let both = first.iter().filter(|((a, b), _)| a < b);
        both.filter_map(|((a, b), ranks)| Some([ranks.clone(), first.get(&(*b, *a))?.clone()])).collect()
    }

    /// Returns the ranks that wait for one of these ranks, directly or through others.
    pub fn victims(&self, causes: &BTreeSet<u32>) -> BTreeSet<u32> {
        let mut reached: BTreeSet<u32> = causes.clone();
        let mut done: BTreeSet<Identity> = BTreeSet::new();
        loop {
            let before = (reached.len(), done.len());
            for (identity, operation) in &self.operations {
                if !done.contains(identity) && operation.blockers().any(|rank| reached.contains(&rank)) {
                    done.insert(*identity);
                    reached.extend(operation.waiting.keys());
                }
            }
            if (reached.len(), done.len()) == before {
                break;
            }
        }
        reached.retain(|rank| !causes.contains(rank));
        reached
    }

    /// Returns the operations that this rank has not enqueued, as its dump shows.
    pub fn waiting_for(&self, rank: u32) -> impl Iterator<Item = (&Identity, &Unfinished)> {
        self.operations.iter().filter(move |(_, operation)| operation.missing.contains(&rank))
    }
}

impl Unfinished {
    /// Fills in the members that are not waiting.
    fn complete(&mut self, job: &Job, members: &[Vec<u32>], identity: Identity) {
        let members: Vec<u32> = match identity {
            Identity::Collective { group, .. } => members[group as usize].clone(),
            Identity::Message { from, to, .. } => vec![from, to],
        };
        for rank in members.into_iter().filter(|rank| !self.waiting.contains_key(rank)).collect::<Vec<_>>() {
            let Some(state) = job.ranks.get(&rank) else {
                self.unknown.insert(rank);
                continue;
            };
            let Identity::Collective { group, sequence } = identity else {
                self.missing.insert(rank);
                continue;
            };
            match state.has_enqueued(group, sequence) {
                Some(true) if state.has_completed(group, sequence) => self.finished.insert(rank),
                // Enqueued, but pushed out of the ring before it was finished.
                Some(true) => false,
                Some(false) => self.missing.insert(rank),
                None => self.unknown.insert(rank),
            };
        }
    }

    /// Returns the members for which the others wait.
    pub fn blockers(&self) -> impl Iterator<Item = u32> {
        self.missing.iter().chain(&self.unknown).chain(&self.behind).copied()
    }

    /// Returns when the first member enqueued it, ns.
    pub fn first_ns(&self) -> Option<i64> {
        self.waiting.values().filter_map(|operation| operation.created_ns).min()
    }
}

impl Identity {
    pub fn group(self) -> u32 {
        match self {
            Self::Collective { group, .. } | Self::Message { group, .. } => group,
        }
    }
}

impl Root {
    fn of(graph: &DiGraph<Node, ()>, component: &[NodeIndex]) -> Self {
        let mut root = Self::default();
        for node in component {
            match graph[*node] {
                Node::Rank(rank) => root.ranks.push(rank),
                Node::Operation(identity) => root.operations.push(identity),
            }
        }
        root.ranks.sort_unstable();
        root.operations.sort_unstable();
        root
    }
}

#[derive(Copy, Clone, Debug)]
enum Node {
    Rank(u32),
    Operation(Identity),
}

/// Number of unfinished operations of a rank that are compared with each other.
const ORDERS_COMPARED: usize = 32;
