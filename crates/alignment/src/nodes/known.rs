//! The known facts about the nodes whose offsets will be applied, and the node of each trace.
//!
//! A trace is matched to a node by these facts:
//! - a host: the trace's own, which the run recorded for exactly one node;
//! - a rank: the trace's own in a job of the size that the run's launcher had, which the run
//!   recorded on one node. It decides where the host is not stated, or is that of several nodes;
//! - a process: the one whose marks are in the trace, and which has left its rank and node in the
//!   run. It decides before all others;
//! - the caller's word, unless a recorded fact says otherwise.
//!
//! **Whose numbers.** Two launchers may number the same hosts differently, in jobs of one size:
//! Slurm's rank 1 may be on the host of torchrun's rank 5. What a profiler writes is
//! torch.distributed's number, which torchrun's `RANK` gives, or that of the launcher whose
//! variables it has stored; it is looked for among ranks of the same launcher alone. What a program
//! itself writes (`probe_sync.rank#3/8`) is meant for the run's ranks, whoever numbered them. A
//! rank of another launcher decides only among the nodes of the trace's own host.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::path::Path;

use crate::Error;
use probe_sync_formats::model::Identity;
use probe_sync_formats::words::joined;
use probe_sync_lines::{MarksHeader, RankRecord};

use crate::clocks::process;

/// What determined which node wrote a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettledBy {
    /// The caller named the node.
    Caller,
    /// The caller said that the traces are in the order of the nodes.
    ListOrder,
    /// The marks of the trace, whose process recorded its rank and node in the run.
    Marks {
        /// Rank.
        rank: u32,
        /// Ranks in the session.
        world_size: u32,
    },
    /// The host of the trace, which the run recorded for this node alone.
    Host(String),
    /// The rank of the trace, which the run recorded on this node.
    Rank {
        /// Rank.
        rank: u32,
        /// Ranks in its job.
        world_size: u32,
    },
    /// The rank of the trace, in a job with as many ranks as the offsets have nodes; the offsets
    /// name neither hosts nor ranks.
    RankOfAsMany {
        /// The rank, which is the number of the node.
        rank: u32,
        /// Ranks in the job, and nodes in the offsets.
        world_size: u32,
    },
    /// No offsets of nodes will be applied, so nothing had to be determined.
    Nothing,
}

impl Display for SettledBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caller => write!(f, "--nodes"),
            Self::ListOrder => write!(f, "--assume-order"),
            Self::Marks { rank, world_size } => {
                write!(f, "its marks, written by rank {rank} of {world_size} of the run")
            }
            Self::Host(host) => write!(f, "its host {host}, on which the run recorded only this node"),
            Self::Rank { rank, world_size } => {
                write!(f, "its rank {rank} of {world_size}, which the run recorded on this node")
            }
            Self::RankOfAsMany { rank, world_size } => {
                write!(f, "its rank {rank} of {world_size}: the offsets have {world_size} nodes and name no hosts")
            }
            Self::Nothing => write!(f, "nothing"),
        }
    }
}

/// Knowledge about the nodes whose offsets will be applied.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownNodes {
    /// The nodes that have offsets, including the reference; empty if none will be applied.
    pub(crate) nodes: BTreeSet<u32>,
    /// Their hosts, if stated.
    pub(crate) hosts: BTreeMap<u32, String>,
    /// The launcher's ranks, if the run recorded them.
    pub(crate) ranks: Vec<RankRecord>,
}

/// Which node wrote a trace, and what shows it.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) node: u32,
    pub(super) by: SettledBy,
    /// Worth telling the user.
    pub(super) remark: Option<String>,
}

/// A trace whose node no fact tells.
pub(super) struct Unsettled<'a> {
    pub(super) path: &'a Path,
    pub(super) identity: Identity,
    /// Marks in it.
    pub(super) marks: usize,
}

impl KnownNodes {
    /// The node that recorded facts assign to a trace; `None` if they assign none.
    ///
    /// # Errors
    /// Returns an error if host and rank point to different nodes.
    pub(super) fn settle(&self, path: &Path, identity: &Identity) -> Result<Option<Settled>, Error> {
        if let Some(process) = &identity.process {
            return Ok(Some(self.of_process(process, identity)));
        }
        if let Some(settled) = self.numbered_alike(identity) {
            return Ok(Some(settled));
        }
        let believed = self.believed(identity);
        let by_rank = |record: &&RankRecord| {
            let by = SettledBy::Rank { rank: record.rank, world_size: record.world_size };
            Settled { node: record.node_id.0, by, remark: None }
        };
        if let [one, other] = &believed[..]
            && one.node_id != other.node_id
        {
            return Err(disagree(path, &recorded(one), &recorded(other)));
        }
        let believed = believed.first().copied();
        let Some(host) = host(identity) else { return Ok(believed.as_ref().map(by_rank)) };
        let of_host = self.of_host(host);
        match (&of_host[..], believed) {
            // A host that the run does not know: a trace of another job may have the same rank.
            ([], _) => Ok(None),
            (_, Some(record)) if !of_host.contains(&record.node_id.0) => {
                Err(disagree(path, &format!("host {host} belongs to {}", nodes(&of_host)), &recorded(record)))
            }
            ([node], _) => {
                let otherwise = self.of_other_launcher(identity).filter(|record| record.node_id.0 != *node);
                let remark = otherwise.map(|record| {
                    format!(
                        "its host belongs to node {node}, but {}, so the ranks are numbered differently",
                        recorded(record)
                    )
                });
                Ok(Some(Settled { node: *node, by: SettledBy::Host(host.to_owned()), remark }))
            }
            (_, Some(record)) => Ok(Some(by_rank(&record))),
            (_, None) => {
                let on_host = |record: &&RankRecord| of_host.contains(&record.node_id.0);
                Ok(self.of_other_launcher(identity).filter(on_host).as_ref().map(by_rank))
            }
        }
    }

    /// The node with the trace's rank as its number, if the offsets are numbered 0 to n − 1, name
    /// no hosts or ranks, and the trace belongs to a job of n ranks. A table of offsets made by
    /// hand has no other information.
    fn numbered_alike(&self, identity: &Identity) -> Option<Settled> {
        let (rank, world_size) = identity.marked_rank.or(identity.rank.zip(identity.world_size))?;
        let are_unnamed = self.hosts.is_empty() && self.ranks.is_empty();
        let is_numbered = self.nodes.iter().copied().eq(0..world_size) && rank < world_size;
        let by = SettledBy::RankOfAsMany { rank, world_size };
        (are_unnamed && is_numbered).then_some(Settled { node: rank, by, remark: None })
    }

    /// The node of the process that put its marks into a trace: that needs no comparison of names
    /// or numbers.
    fn of_process(&self, process: &MarksHeader, identity: &Identity) -> Settled {
        let MarksHeader { rank, world_size, node_id, .. } = process;
        let hosts = host(identity).map(|host| self.of_host(host)).unwrap_or_default();
        let otherwise = !(hosts.is_empty() || hosts.contains(&node_id.0));
        let remark = otherwise.then(|| {
            format!("its marks prove that it is from node {node_id}, but its host belongs to {}", nodes(&hosts))
        });
        Settled { node: node_id.0, by: SettledBy::Marks { rank: *rank, world_size: *world_size }, remark }
    }

    /// Notes about a node given by the caller.
    ///
    /// # Errors
    /// [`Error::Request`] if recorded facts assign the trace to others.
    pub(super) fn confirm(&self, path: &Path, node: u32, identity: &Identity) -> Result<Option<String>, Error> {
        let refuse = |problem: String| Err(Error::Request { problem });
        let path = path.display();
        if let Some(other) = identity.process.as_ref().filter(|process| process.node_id.0 != node) {
            return refuse(format!("{path} contains the marks of {}, not of node {node}", process(other)));
        }
        let host = host(identity);
        let of_host = host.map(|host| self.of_host(host)).unwrap_or_default();
        let host = host.unwrap_or_default();
        if !(of_host.is_empty() || of_host.contains(&node)) {
            return refuse(format!("{path} was written on {host}, which is {}, not node {node}", nodes(&of_host)));
        }
        let believed = self.believed(identity);
        match believed.first() {
            // The host is nearer to the clock than the rank: another job may number ranks
            // otherwise.
            Some(record) if of_host.len() != 1 && !believed.iter().any(|record| record.node_id.0 == node) => {
                let RankRecord { rank, world_size, node_id, .. } = record;
                refuse(format!(
                    "{path} is from rank {rank} of {world_size}, which the run recorded on node {node_id}, not node {node}"
                ))
            }
            _ if of_host.is_empty() && !(host.is_empty() || self.hosts.is_empty()) => {
                Ok(Some(format!("host {host} does not appear in the offsets; assuming node {node}")))
            }
            _ => Ok(None),
        }
    }

    /// The nodes in order, for as many traces.
    ///
    /// # Errors
    /// Returns an error if the numbers of nodes and traces differ.
    pub(super) fn in_order(&self, traces: usize) -> Result<Vec<u32>, Error> {
        if self.nodes.is_empty() {
            let problem = "--assume-order needs --run-dir or --offsets, which define the nodes".to_owned();
            return Err(Error::Request { problem });
        }
        if self.nodes.len() != traces {
            let problem = format!(
                "--assume-order needs one trace per node: there are {traces} traces, but the offsets have {}",
                self.listed()
            );
            return Err(Error::Request { problem });
        }
        Ok(self.nodes.iter().copied().collect())
    }

    /// Why traces without facts about their node are refused, and which flags help.
    pub(super) fn unsettled(&self, traces: &[Unsettled<'_>], of: usize) -> String {
        let named = traces.iter().take(MOST_NAMED).map(|Unsettled { path, identity, marks }| {
            let host = identity.hostname.as_ref().map_or_else(|| "no host".to_owned(), |host| format!("host {host}"));
            let marks =
                Some(", and its marks are not from any process of the run").filter(|_| *marks > 0).unwrap_or_default();
            format!("{} has {host} and {}{marks}", path.display(), rank(identity))
        });
        let named = joined(named, traces.len());
        let every =
            if self.nodes.len() == of { ", or --assume-order if the list is in the order of the nodes" } else { "" };
        let numbered_otherwise = traces.iter().any(|trace| self.of_other_launcher(&trace.identity).is_some());
        let numbered_otherwise = if numbered_otherwise { OTHER_NUMBERING } else { "" };
        format!(
            "cannot tell which node wrote {} of the {of} traces: {named}. The offsets have {}. {numbered_otherwise}\
             Give --nodes with one of these numbers per trace, in the order of --traces{every}",
            traces.len(),
            self.listed()
        )
    }

    /// Nodes, hosts and ranks, as far as they fit a line.
    fn listed(&self) -> String {
        let host = |node: &u32| self.hosts.get(node).map_or_else(String::new, |host| format!(" on {host}"));
        let some = self.nodes.iter().take(MOST_NAMED).map(|node| format!("node {node}{}", host(node)));
        let all = joined(some, self.nodes.len());
        let Some(first) = self.ranks.first() else { return format!("{all}; no ranks were recorded") };
        let ranks = self.ranks.iter().take(MOST_NAMED).map(|record| {
            let RankRecord { rank, world_size, hostname, node_id, .. } = record;
            let local = record.local_rank.map_or_else(String::new, |local| format!(" (local rank {local})"));
            format!("rank {rank} of {world_size}{local} on {hostname} is node {node_id}")
        });
        let by = first.launcher.map_or_else(|| "an unknown launcher".to_owned(), |launcher| launcher.to_string());
        format!("{all}; in {by}'s rank numbering, {}", joined(ranks, self.ranks.len()))
    }

    /// The nodes for which the run recorded this host, of their own or of ranks that follow them.
    fn of_host(&self, host: &str) -> Vec<u32> {
        let own = self.hosts.iter().map(|(node, name)| (*node, name));
        let followers = self.ranks.iter().map(|record| (record.node_id.0, &record.hostname));
        let found: BTreeSet<u32> =
            own.chain(followers).filter(|(_, name)| same_host(name, host)).map(|(node, _)| node).collect();
        found.into_iter().collect()
    }

    /// Where the run recorded the ranks of the trace that are in the run's own numbering: as stated
    /// by the program, then by the profiler.
    fn believed(&self, identity: &Identity) -> Vec<&RankRecord> {
        let marked = identity.marked_rank.and_then(|rank| self.recorded(rank));
        let profiled = self.profiled(identity).filter(|record| is_of_launcher(record, identity));
        marked.into_iter().chain(profiled).collect()
    }

    /// Where the run recorded a rank with the profiler's number, which is not in that numbering.
    fn of_other_launcher(&self, identity: &Identity) -> Option<&RankRecord> {
        self.profiled(identity).filter(|record| !is_of_launcher(record, identity))
    }

    /// Where the run recorded a rank with the profiler's number.
    fn profiled(&self, identity: &Identity) -> Option<&RankRecord> {
        let of_profiler = identity.rank.zip(identity.world_size).filter(|rank| Some(*rank) != identity.marked_rank);
        self.recorded(of_profiler?)
    }

    /// The record of a rank in a job of this size, if there is only one.
    fn recorded(&self, (rank, world_size): (u32, u32)) -> Option<&RankRecord> {
        let mut found = self.ranks.iter().filter(|record| record.rank == rank && record.world_size == world_size);
        let record = found.next()?;
        found.next().is_none().then_some(record)
    }
}

/// Whether a run's rank and a profiler's are numbers of one launcher.
fn is_of_launcher(record: &RankRecord, identity: &Identity) -> bool {
    identity.launcher.is_some() && record.launcher == identity.launcher
}

fn disagree(path: &Path, one: &str, other: &str) -> Error {
    let problem = format!("{}: its {one}, but its {other}; choose its node with --nodes", path.display());
    Error::Nodes { problem }
}

/// The trace's host, if it states one that distinguishes hosts.
pub(crate) fn host(identity: &Identity) -> Option<&str> {
    identity.hostname.as_deref().filter(|host| !(host.is_empty() || same_host(host, "localhost")))
}

/// `node1` and `node1.cluster.local` are the same host if one of them states no domain.
pub(crate) fn same_host(one: &str, other: &str) -> bool {
    fn short(name: &str) -> &str {
        name.split('.').next().unwrap_or_default()
    }
    let both_full = one.contains('.') && other.contains('.');
    if both_full { one.eq_ignore_ascii_case(other) } else { short(one).eq_ignore_ascii_case(short(other)) }
}

fn nodes(all: &[u32]) -> String {
    let some = all.iter().take(MOST_NAMED).map(|node| format!("node {node}"));
    joined(some, all.len())
}

/// A rank, and where it was recorded.
fn recorded(record: &RankRecord) -> String {
    let RankRecord { rank, world_size, node_id, launcher, .. } = record;
    let by = launcher.map_or_else(String::new, |launcher| format!(" by {launcher}"));
    format!("rank {rank} of {world_size} was recorded on node {node_id}{by}")
}

fn rank(identity: &Identity) -> String {
    let of_profiler = match (identity.rank, identity.world_size) {
        (Some(rank), Some(world_size)) => format!("rank {rank} of {world_size}"),
        (Some(rank), None) => format!("rank {rank} of an unknown number"),
        (None, _) => "no rank".to_owned(),
    };
    match identity.marked_rank.filter(|marked| identity.rank.zip(identity.world_size) != Some(*marked)) {
        Some((rank, world_size)) => format!("{of_profiler}; its marker gives rank {rank} of {world_size}"),
        None => of_profiler,
    }
}

/// Traces, nodes and ranks that a refusal names.
const MOST_NAMED: usize = 8;
/// What to do if a trace is numbered by one launcher and the run by another.
const OTHER_NUMBERING: &str = "Profilers record torch's rank, or the rank of the launcher named in their database, and another \
    launcher may number the same hosts differently: set the job's RANK and WORLD_SIZE for the ranks of the run as well, or have the \
    program put an event probe_sync.rank#3/8, with the run's rank and number of ranks, into the trace. ";
