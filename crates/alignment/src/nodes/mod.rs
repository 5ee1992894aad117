//! The traces of a command, each with the node that wrote it.
//!
//! The host and rank that a trace states are compared with those that a run recorded
//! (`KnownNodes`), and its marks with those that the run's processes left, which prove the node.
//! Only a recorded fact or the caller's word assigns a trace to a node. If they disagree or say
//! nothing, the trace is refused, because an offset applied to the wrong node makes every
//! conclusion wrong. File names and their order are not facts: ranks 0, 8, 16 and 56 sort as 0, 16,
//! 56, 8. Only a dump of the Flight Recorder has its rank there, put by the recorder itself.

mod known;
mod list;
mod reading;
mod spans;
#[cfg(test)]
mod tests;
mod trace;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Error;
use probe_sync_formats::FactOptions;
use probe_sync_formats::model::{Identity, MappedTime, TraceClock, TraceFacts};

use crate::clocks::MarkFiles;
use crate::collectives::{
    CollectiveOffsets, Half, MAX_RATE_CHANGE_PPM, MapTime, NodeCollectives, OffsetOptions, Process, Shared,
    from_collectives, join,
};

pub use known::SettledBy;
pub(crate) use known::{KnownNodes, host, same_host};
pub use list::NodeList;
use reading::read_all;
use spans::Joined;
pub use spans::of_ranks;
pub use trace::NodeTrace;

/// What the caller says about the nodes of the traces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said<'a> {
    /// Node numbers in the order of the traces; empty: determined from traces and run.
    pub(crate) nodes: &'a [u32],
    /// The traces are in the order of the nodes.
    pub(crate) in_order: bool,
    /// Traces that cannot be read are left out.
    pub(crate) skip_bad: bool,
}

/// A trace that cannot be read, and why.
pub(crate) type LeftOutFile = (PathBuf, Error);

/// Reads the facts of all traces and determines their nodes; also returns why others were left out,
/// if that is allowed.
///
/// # Errors
/// Names the traces that cannot be read, have no node, or contradict the caller or the run, and
/// says which flags help.
pub(crate) fn read(
    paths: &[PathBuf],
    said: &Said<'_>,
    known: &KnownNodes,
    marks: &MarkFiles,
    options: &FactOptions,
) -> Result<(Vec<NodeTrace>, Vec<LeftOutFile>), Error> {
    let in_order: Vec<u32> = if said.in_order { known.in_order(paths.len())? } else { Vec::new() };
    if !(said.nodes.is_empty() || said.nodes.len() == paths.len()) {
        let problem = format!("{} traces, but {} node numbers", paths.len(), said.nodes.len());
        return Err(Error::Request { problem });
    }
    let mut traces: Vec<NodeTrace> = Vec::with_capacity(paths.len());
    let (mut unsettled, mut left_out) = (Vec::new(), Vec::new());
    for ((index, path), read) in paths.iter().enumerate().zip(read_all(paths, options, said.skip_bad)) {
        let (format, mut facts) = match read {
            Some(Ok(facts)) => facts,
            Some(Err(bad)) if said.skip_bad => {
                left_out.push((path.clone(), bad));
                continue;
            }
            Some(Err(bad)) => return Err(bad),
            // After one that could not be read.
            None => continue,
        };
        marks.join(path, &mut facts)?;
        facts.identity.take_rank_of_process();
        let listed = said.nodes.get(index).map(|node| (*node, SettledBy::Caller));
        let listed = listed.or_else(|| in_order.get(index).map(|node| (*node, SettledBy::ListOrder)));
        let settled = match listed {
            Some((node, by)) => {
                facts.notes.extend(known.confirm(path, node, &facts.identity)?);
                Some((node, by))
            }
            None if known.nodes.is_empty() => Some((0, SettledBy::Nothing)),
            None => known.settle(path, &facts.identity)?.map(|settled| {
                facts.notes.extend(settled.remark);
                (settled.node, settled.by)
            }),
        };
        if settled.is_none() {
            unsettled.push(known::Unsettled { path, identity: facts.identity.clone(), marks: facts.marks.len() });
        }
        let (node, settled_by) = settled.unwrap_or((0, SettledBy::Nothing));
        let (path, name) = (path.clone(), String::new());
        traces.push(NodeTrace { path, format, part: 0, rank_part: 0, span: 0, node, settled_by, name, facts });
    }
    if !unsettled.is_empty() {
        return Err(Error::Nodes { problem: known.unsettled(&unsettled, paths.len()) });
    }
    refuse_repeated(&traces)?;
    number_parts(&mut traces)?;
    traces.iter_mut().for_each(name);
    traces.sort_by_key(|trace| (trace.node, trace.part));
    Ok((traces, left_out))
}

/// Gives communicators of different processes that are certainly the same a common name, while
/// nothing more is known about clocks than that processes of one host share them; returns which
/// stay open, in words.
pub(crate) fn join_communicators(traces: &mut [NodeTrace]) -> Vec<String> {
    let mut hosts: Vec<(String, TraceClock)> = Vec::new();
    let mut host_of = |trace: &NodeTrace| {
        let TraceFacts { identity, clock, .. } = &trace.facts;
        let name = host(identity)?.to_ascii_lowercase();
        let known = hosts.iter().position(|(other, same)| *other == name && same == clock);
        let number = known.unwrap_or(hosts.len());
        if known.is_none() {
            hosts.push((name, *clock));
        }
        u32::try_from(number).ok()
    };
    let of_hosts: Vec<Option<u32>> = traces.iter().map(&mut host_of).collect();
    let clocks = of_hosts.into_iter().map(|host| {
        let clock: Box<Shared<'static>> = Box::new(move |at| host.map(|host| (host, at, 0)));
        clock
    });
    join_by_clocks(traces.iter_mut().zip(clocks))
}

/// The same with the clocks of the traces. Roots are ranks: a trace's index in a list does not
/// count.
pub(crate) fn join_by_clocks<'a>(
    traces: impl IntoIterator<Item = (&'a mut NodeTrace, Box<Shared<'a>>)>,
) -> Vec<String> {
    let mut processes: Vec<Process<'_>> = Vec::new();
    for (trace, clock) in traces.into_iter().filter(|(trace, _)| !trace.facts.merged) {
        let TraceFacts { identity, communicators, collectives, .. } = &mut trace.facts;
        processes.push(Process {
            rank: identity.rank.unwrap_or(trace.part),
            // Of several traces of a node one has its number, which then is none of a rank.
            is_known: identity.rank.is_some() || trace.settled_by != SettledBy::Nothing && trace.part == trace.node,
            world_size: identity.world_size,
            communicators,
            parts: collectives,
            clock,
        });
    }
    join(&mut processes)
}

/// The trace of one process counts once. Only its globally unique number together with its host
/// distinguishes processes: numbers of processes and machines repeat on other hosts, and a
/// restarted process has those of its predecessor.
///
/// # Errors
/// Names both files.
fn refuse_repeated(traces: &[NodeTrace]) -> Result<(), Error> {
    let mut seen: BTreeMap<(&str, Option<&str>), &Path> = BTreeMap::new();
    for NodeTrace { path, facts, .. } in traces {
        let Identity { guid: Some(guid), hostname, .. } = &facts.identity else { continue };
        if let Some(other) = seen.insert((guid, hostname.as_deref()), path) {
            let (one, two) = (other.display(), path.display());
            let problem = format!("{one} and {two} are both from the process {guid}; give one of them");
            return Err(Error::Nodes { problem });
        }
    }
    Ok(())
}

/// What distinguishes traces: their ranks, otherwise their nodes while these are free, otherwise
/// the next free number. A rank may have several traces, one after the other, and records of its
/// process that accompany them; such a record is a part of its own.
///
/// # Errors
/// Returns an error if two traces of a rank overlap in time: one may be a copy of the other.
fn number_parts(traces: &mut [NodeTrace]) -> Result<(), Error> {
    let mut taken: BTreeMap<u32, PathBuf> = BTreeMap::new();
    let mut later = Vec::new();
    let mut in_time: Vec<usize> = (0..traces.len()).collect();
    in_time.sort_by_key(|index| (traces[*index].format.accompanies_traces(), traces[*index].facts.span));
    let mut of_rank: BTreeMap<(u32, bool), Vec<usize>> = BTreeMap::new();
    for index in in_time {
        let Some(rank) = traces[index].facts.identity.rank else {
            later.push(index);
            continue;
        };
        let accompanies = traces[index].format.accompanies_traces();
        let before = of_rank.entry((rank, accompanies)).or_default();
        // A process that a rank starts inherits its variables, and one that is started again has
        // its rank.
        let is_process = traces[index].facts.identity.guid.is_some();
        if let Some(other) = before.iter().find(|other| !is_process && overlap(&traces[**other], &traces[index])) {
            let (one, two) = (traces[*other].path.display(), traces[index].path.display());
            let problem = format!(
                "{one} and {two} are both from rank {rank} and overlap in time; give one of them (consecutive traces of one rank are \
                accepted)"
            );
            return Err(Error::Nodes { problem });
        }
        let trace = &mut traces[index];
        if before.is_empty() && !taken.contains_key(&rank) {
            trace.part = rank;
            taken.insert(rank, trace.path.clone());
        } else {
            later.push(index);
        }
        if !is_process && !accompanies {
            (trace.span, trace.rank_part) = (before.len() as u32, rank);
        }
        before.push(index);
    }
    // In the order in which they were given.
    later.sort_unstable();
    let mut free = 0;
    for index in later {
        let trace = &mut traces[index];
        let wanted = (trace.settled_by != SettledBy::Nothing && !taken.contains_key(&trace.node)).then_some(trace.node);
        // Ends: as many numbers are taken as there are traces.
        while wanted.is_none() && taken.contains_key(&free) {
            free += 1;
        }
        trace.part = wanted.unwrap_or(free);
        taken.insert(trace.part, trace.path.clone());
    }
    for trace in traces.iter_mut().filter(|trace| trace.span == 0) {
        trace.rank_part = trace.part;
    }
    for trace in traces.iter_mut().filter(|trace| trace.settled_by == SettledBy::Nothing) {
        trace.node = trace.rank_part;
    }
    Ok(())
}

/// Whether two traces overlap in time, by their own timelines.
fn overlap(one: &NodeTrace, other: &NodeTrace) -> bool {
    let spans = one.facts.span.zip(other.facts.span);
    spans.is_some_and(|(one, other)| one.0 < other.1 && other.0 < one.1)
}

/// A rank is called a rank and a node a node: rank 2 may be on node 1.
fn name(trace: &mut NodeTrace) {
    let Identity { rank, hostname, .. } = &trace.facts.identity;
    let node = format!("node {}", trace.node);
    let node = Some(node).filter(|_| trace.settled_by != SettledBy::Nothing || rank.is_none());
    let rank = rank.map(|rank| format!("rank {rank}"));
    let mut parts = [rank, node, hostname.clone()].into_iter().flatten();
    let first = parts.next().unwrap_or_default();
    let others: Vec<String> = parts.collect();
    trace.name = if others.is_empty() { first } else { format!("{first} ({})", others.join(", ")) };
}

/// Input of the check for each rank, seen through the maps. Without any map all are taken as they
/// are; if only some have one, the others are left out: nothing can be said about an unknown clock.
pub fn with_collectives<T>(
    traces: &[&NodeTrace],
    maps: &[Option<Box<MapTime<'_>>>],
    judge: impl FnOnce(&[NodeCollectives<'_>]) -> T,
) -> T {
    let as_is = |at| MappedTime { at, ..MappedTime::default() };
    let any = maps.iter().any(Option::is_some);
    let known: Vec<(&NodeTrace, &MapTime<'_>)> = traces
        .iter()
        .zip(maps)
        .filter(|(_, map)| map.is_some() || !any)
        .map(|(trace, map)| (*trace, map.as_deref().unwrap_or(&as_is)))
        .collect();
    let ranks = of_ranks(&known.iter().map(|(trace, _)| *trace).collect::<Vec<_>>());
    let several = |rank: &Vec<usize>| {
        let traces: Vec<&NodeTrace> = rank.iter().map(|place| known[*place].0).collect();
        (traces.len() > 1).then(|| Joined::of(&traces))
    };
    let joined: Vec<Option<Joined<'_>>> = ranks.iter().map(several).collect();
    let maps: Vec<Option<Box<MapTime<'_>>>> = joined
        .iter()
        .zip(&ranks)
        .map(|(joined, rank)| Some(joined.as_ref()?.map(rank.iter().map(|place| known[*place].1).collect())))
        .collect();
    let node = |((rank, joined), map)| {
        let (rank, joined, map): (&Vec<usize>, &Option<Joined<'_>>, &Option<Box<MapTime<'_>>>) = (rank, joined, map);
        let (trace, own_map) = known[rank[0]];
        NodeCollectives {
            node: trace.part,
            clock: trace.node,
            name: &trace.name,
            rank: trace.facts.identity.rank,
            world_size: trace.facts.identity.world_size,
            groups: joined.as_ref().map_or(&trace.facts.groups, |joined| joined.groups),
            parts: joined.as_ref().map_or(&trace.facts.collectives, |joined| &joined.parts),
            steps: joined.as_ref().map_or(&trace.facts.steps, |joined| &joined.steps),
            map: map.as_deref().unwrap_or(own_map),
        }
    };
    let nodes: Vec<NodeCollectives<'_>> = ranks.iter().zip(&joined).zip(&maps).map(node).collect();
    judge(&nodes)
}

/// Offsets of all nodes from their collectives alone; `own` maps each trace to the clock of its own
/// node.
///
/// # Errors
/// Returns an error if the collectives connect no node to the reference.
pub(crate) fn offsets_from_collectives(
    traces: &[&NodeTrace],
    own: &[Option<Box<MapTime<'_>>>],
    max_rate_change_ppm: Option<f64>,
    half: Option<Half>,
) -> Result<CollectiveOffsets, Error> {
    if let Some(merged) = traces.iter().find(|trace| trace.facts.merged) {
        let path = merged.path.display();
        let problem = format!(
            "{path} is a merged trace that does not record the rank of each collective; give the original traces"
        );
        return Err(Error::Nodes { problem });
    }
    let reference = traces.first().map_or(0, |trace| trace.rank_part);
    let max_rate_change_ppm = max_rate_change_ppm.unwrap_or(MAX_RATE_CHANGE_PPM);
    let options = OffsetOptions { reference, max_rate_change_ppm, half, ..OffsetOptions::default() };
    // Bounds take no clock to be faster than another by more than that, and so none can change by
    // more.
    if !(0.0..=options.max_skew * 1e6).contains(&max_rate_change_ppm) {
        let problem = format!(
            "invalid maximum rate change of {max_rate_change_ppm} ppm: give a number from 0 to {}",
            options.max_skew * 1e6
        );
        return Err(Error::Request { problem });
    }
    with_collectives(traces, own, |nodes| from_collectives(nodes, &options))
}
