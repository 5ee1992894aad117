//! The traces of a command: which node wrote each, and the map from its timeline to the reference clock.
//!
//! Place in the flow: first step of `align`, `merge` and `check`. A trace's node is what the caller says, else what its rank
//! or host name says; where both speak and disagree, the trace is refused: an offset applied to the wrong node makes
//! every conclusion wrong. What it does not do: read offsets or pairs (`clocks`), rewrite.

use std::path::{Path, PathBuf};

use crate::Error;
use crate::collectives::{CollectiveOffsets, MapTime, NodeCollectives, OffsetOptions, from_collectives};
use crate::formats::{FactOptions, Format};
use crate::model::TraceFacts;
use probe_sync_estimate::series::TimeMap;

/// One rank's trace.
#[derive(Clone, Debug)]
pub struct NodeTrace {
    /// The file.
    pub path: PathBuf,
    /// Its format.
    pub format: Format,
    /// What tells it from the others: its rank, else its place in the list.
    pub part: u32,
    /// The node whose clock it is on; ranks of one host share it.
    pub node: u32,
    /// For people.
    pub name: String,
    /// What the file says.
    pub facts: TraceFacts,
}

/// Reads the facts of all traces and settles whose they are. `named` are the caller's node numbers, empty or one per trace;
/// `hosts` are the host names of a run's nodes, where a run is known.
///
/// # Errors
/// Names the trace that cannot be read, has no node, has another trace's node, or contradicts the caller or the run.
pub fn read(
    paths: &[PathBuf],
    named: &[u32],
    hosts: &[Option<String>],
    options: &FactOptions,
) -> Result<Vec<NodeTrace>, Error> {
    if !(named.is_empty() || named.len() == paths.len()) {
        let problem = format!("{} traces, but {} node numbers", paths.len(), named.len());
        return Err(Error::Nodes { problem });
    }
    let mut traces: Vec<NodeTrace> = Vec::with_capacity(paths.len());
    for (index, path) in paths.iter().enumerate() {
        let format = Format::detect(path)?;
        let facts = format.read_facts(path, options)?;
        let node = match named.get(index) {
            Some(node) => *node,
            None => node_of(&facts, hosts).unwrap_or(index as u32),
        };
        contradiction(path, node, &facts, hosts)?;
        let part = facts.identity.rank.unwrap_or(if named.is_empty() { index as u32 } else { node });
        if let Some(other) = traces.iter().find(|other| other.part == part) {
            let problem = format!("{} and {} are both of rank {part}", other.path.display(), path.display());
            return Err(Error::Nodes { problem });
        }
        let name = facts.identity.hostname.clone().unwrap_or_else(|| format!("node{node}"));
        traces.push(NodeTrace { path: path.clone(), format, part, node, name, facts });
    }
    traces.sort_by_key(|trace| (trace.node, trace.part));
    Ok(traces)
}

/// The node that host name or rank point to.
fn node_of(facts: &TraceFacts, hosts: &[Option<String>]) -> Option<u32> {
    let name = facts.identity.hostname.as_ref();
    let mut found = (0..).zip(hosts).filter(|(_, host)| name.is_some() && host.as_ref() == name).map(|(node, _)| node);
    // Several nodes of one name tell nothing.
    let of_host = found.next().filter(|_| found.next().is_none());
    of_host.or(facts.identity.rank)
}

fn contradiction(path: &Path, node: u32, facts: &TraceFacts, hosts: &[Option<String>]) -> Result<(), Error> {
    let identity = &facts.identity;
    // With one rank per node their numbers are the same; ranks of one host share a node.
    let one_each = hosts.is_empty() || identity.world_size.is_some_and(|size| size as usize == hosts.len());
    if let Some(rank) = identity.rank.filter(|rank| one_each && *rank != node) {
        let problem = format!("{} says that rank {rank} wrote it, not node {node}", path.display());
        return Err(Error::Nodes { problem });
    }
    let expected = hosts.get(node as usize).cloned().flatten();
    match (expected, &identity.hostname) {
        (Some(expected), Some(found)) if expected != *found => Err(Error::Nodes {
            problem: format!("{} was written on {found}, but node {node} of the run is {expected}", path.display()),
        }),
        _ => Ok(()),
    }
}

/// What the check needs of each trace, seen through the maps; a node without a map is seen as it is.
pub fn with_collectives<T>(
    traces: &[NodeTrace],
    maps: &[Option<TimeMap>],
    judge: impl FnOnce(&[NodeCollectives<'_>]) -> T,
) -> T {
    let looks: Vec<Box<MapTime<'_>>> = maps
        .iter()
        .map(|map| -> Box<MapTime<'_>> {
            match map {
                Some(map) => Box::new(|time| {
                    let mapped = map.map(time);
                    (mapped.time_ps, mapped.sigma_ns)
                }),
                None => Box::new(|time| (time, 0.0)),
            }
        })
        .collect();
    let nodes: Vec<NodeCollectives<'_>> = traces
        .iter()
        .zip(&looks)
        .map(|(trace, look)| NodeCollectives {
            node: trace.part,
            name: &trace.name,
            rank: trace.facts.identity.rank,
            groups: &trace.facts.groups,
            events: &trace.facts.collectives,
            map: look.as_ref(),
        })
        .collect();
    judge(&nodes)
}

/// Offsets of all nodes from their collectives alone; `own` maps each trace to its node's own clock.
///
/// # Errors
/// When the collectives join nobody to the reference.
pub fn offsets_from_collectives(traces: &[NodeTrace], own: &[Option<TimeMap>]) -> Result<CollectiveOffsets, Error> {
    let reference = traces.first().map_or(0, |trace| trace.part);
    let options = OffsetOptions { reference, ..OffsetOptions::default() };
    with_collectives(traces, own, |nodes| from_collectives(nodes, &options))
}
