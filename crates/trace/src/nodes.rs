//! The traces of a command: which node wrote each, and the map from its timeline to the reference clock.
//!
//! Place in the flow: first step of `align`, `merge` and `check`. A trace's node is what the caller says, else what its host
//! name or rank says; where they disagree, the trace is refused: an offset applied to the wrong node makes every conclusion
//! wrong. What it does not do: read offsets or pairs (`clocks`), rewrite.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::Error;
use crate::collectives::{CollectiveOffsets, MapTime, NodeCollectives, OffsetOptions, from_collectives};
use crate::formats::{FactOptions, TraceFormat, detect};
use crate::model::{MappedTime, TraceFacts};

/// One rank's trace.
#[derive(Clone, Debug)]
pub struct NodeTrace {
    /// The file.
    pub path: PathBuf,
    /// Its format.
    pub format: &'static dyn TraceFormat,
    /// What tells it from the others: its rank, else its place in the list.
    pub part: u32,
    /// The node whose clock it is on; ranks of one host share it.
    pub node: u32,
    /// For people.
    pub name: String,
    /// What the file says.
    pub facts: TraceFacts,
}

/// What is known of the nodes whose offsets will be applied.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownNodes {
    /// The nodes that have offsets, the reference included; empty where none will be applied.
    pub(crate) nodes: BTreeSet<u32>,
    /// Their hosts, where stated.
    pub(crate) hosts: BTreeMap<u32, String>,
}

/// Reads the facts of all traces and settles whose they are. `named` are the caller's node numbers, empty or one per trace.
///
/// Where offsets will be applied, a trace whose node neither the caller nor its host name nor its rank tells is refused,
/// unless there are as many traces as nodes; then their order counts, and a note says so.
///
/// # Errors
/// Names the trace that cannot be read, has no node, or contradicts the caller or the run.
pub(crate) fn read(
    paths: &[PathBuf],
    named: &[u32],
    known: &KnownNodes,
    options: &FactOptions,
) -> Result<Vec<NodeTrace>, Error> {
    if !(named.is_empty() || named.len() == paths.len()) {
        let problem = format!("{} traces, but {} node numbers", paths.len(), named.len());
        return Err(Error::Nodes { problem });
    }
    let mut traces: Vec<NodeTrace> = Vec::with_capacity(paths.len());
    for (index, path) in paths.iter().enumerate() {
        let format = detect(path)?;
        let mut facts = format.read_facts(path, options)?;
        let node = match named.get(index).copied().or_else(|| known.node_of(&facts)) {
            Some(node) => node,
            None if known.nodes.is_empty() => facts.identity.rank.unwrap_or(index as u32),
            None if known.nodes.len() == paths.len() => {
                let node = known.nodes.iter().nth(index).copied().unwrap_or(index as u32);
                facts.notes.push(format!("taken as node {node} by its place in the list; --nodes says otherwise"));
                node
            }
            None => {
                let problem = format!("{} does not say which node wrote it; name it with --node", path.display());
                return Err(Error::Nodes { problem });
            }
        };
        known.refuse_contradiction(path, node, &facts)?;
        let name = facts.identity.hostname.clone().unwrap_or_else(|| format!("node{node}"));
        traces.push(NodeTrace { path: path.clone(), format, part: 0, node, name, facts });
    }
    number_parts(&mut traces)?;
    traces.sort_by_key(|trace| (trace.node, trace.part));
    Ok(traces)
}

impl KnownNodes {
    /// The node that host name or rank point to.
    fn node_of(&self, facts: &TraceFacts) -> Option<u32> {
        let identity = &facts.identity;
        let host = identity.hostname.as_deref();
        let mut found = self.hosts.iter().filter(|(_, name)| host.is_some_and(|host| same_host(name, host)));
        // Several nodes of one name tell nothing.
        let of_host = found.next().filter(|_| found.next().is_none()).map(|(node, _)| *node);
        let of_rank = identity.rank.filter(|_| self.one_rank_each(facts));
        // Hosts that are called after their nodes, where nothing else is known of hosts.
        let numbered = || host?.strip_prefix("node")?.parse().ok().filter(|node| self.nodes.contains(node));
        of_host.or(of_rank).or_else(|| if self.hosts.is_empty() { numbered() } else { None })
    }

    /// With one rank per node their numbers are the same.
    fn one_rank_each(&self, facts: &TraceFacts) -> bool {
        facts.identity.world_size.is_some_and(|size| size as usize == self.nodes.len())
    }

    fn refuse_contradiction(&self, path: &Path, node: u32, facts: &TraceFacts) -> Result<(), Error> {
        let identity = &facts.identity;
        let refuse = |problem: String| Err(Error::Nodes { problem });
        match (self.hosts.get(&node), &identity.hostname) {
            (Some(expected), Some(found)) if same_host(expected, found) => return Ok(()),
            (Some(expected), Some(found)) => {
                let path = path.display();
                return refuse(format!("{path} was written on {found}, but node {node} of the run is {expected}"));
            }
            _ => {}
        }
        match identity.rank.filter(|rank| self.one_rank_each(facts) && *rank != node) {
            Some(rank) => refuse(format!("{} says that rank {rank} wrote it, not node {node}", path.display())),
            None => Ok(()),
        }
    }
}

/// `node1` and `node1.cluster.local` are one host where one of them says no domain.
fn same_host(one: &str, other: &str) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let both_full = one.contains('.') && other.contains('.');
    if both_full { one.eq_ignore_ascii_case(other) } else { short(one) == short(other) }
}

/// What tells traces apart: their ranks, else their nodes while these are free, else the next free number.
fn number_parts(traces: &mut [NodeTrace]) -> Result<(), Error> {
    let mut taken: BTreeMap<u32, PathBuf> = BTreeMap::new();
    for trace in traces.iter_mut() {
        let Some(rank) = trace.facts.identity.rank else { continue };
        trace.part = rank;
        if let Some(other) = taken.insert(rank, trace.path.clone()) {
            let problem = format!("{} and {} are both of rank {rank}", other.display(), trace.path.display());
            return Err(Error::Nodes { problem });
        }
    }
    for trace in traces.iter_mut().filter(|trace| trace.facts.identity.rank.is_none()) {
        let free = |number: &u32| !taken.contains_key(number);
        trace.part = Some(trace.node).filter(free).unwrap_or_else(|| (0..=u32::MAX).find(free).unwrap_or(u32::MAX));
        taken.insert(trace.part, trace.path.clone());
    }
    Ok(())
}

/// What the check needs of each trace, seen through the maps. Without any map all are seen as they are; where only some have
/// one, the others are left out: nothing can be said of a clock that is not known.
pub(crate) fn with_collectives<T>(
    traces: &[&NodeTrace],
    maps: &[Option<Box<MapTime<'_>>>],
    judge: impl FnOnce(&[NodeCollectives<'_>]) -> T,
) -> T {
    let as_is = |at| MappedTime { at, ..MappedTime::default() };
    let any = maps.iter().any(Option::is_some);
    let nodes: Vec<NodeCollectives<'_>> = traces
        .iter()
        .zip(maps)
        .filter(|(_, map)| map.is_some() || !any)
        .map(|(trace, map)| NodeCollectives {
            node: trace.part,
            clock: trace.node,
            name: &trace.name,
            rank: trace.facts.identity.rank,
            groups: &trace.facts.groups,
            parts: &trace.facts.collectives,
            map: map.as_deref().unwrap_or(&as_is),
        })
        .collect();
    judge(&nodes)
}

/// Offsets of all nodes from their collectives alone; `own` maps each trace to its node's own clock.
///
/// # Errors
/// When the collectives join nobody to the reference.
pub(crate) fn offsets_from_collectives(
    traces: &[NodeTrace],
    own: &[Option<Box<MapTime<'_>>>],
) -> Result<CollectiveOffsets, Error> {
    let reference = traces.first().map_or(0, |trace| trace.part);
    let options = OffsetOptions { reference, ..OffsetOptions::default() };
    let traces: Vec<&NodeTrace> = traces.iter().collect();
    with_collectives(&traces, own, |nodes| from_collectives(nodes, &options))
}
