//! What is known of the nodes whose offsets will be applied, and which of them a trace is of.
//!
//! Place in the flow: filled from the offsets' first line; `nodes` asks it about every trace. Facts are
//! - a host: the trace's own, which the run recorded for exactly one node;
//! - a rank: the trace's own in a job of the size that the run's launcher had, which the run recorded on one node. It decides
//!   where the host is not stated, or is that of several nodes;
//! - the caller's word, unless a recorded fact says otherwise.
//!
//! What it does not do: read files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::path::Path;

use probe_sync_estimate::record::RankRecord;

use crate::Error;
use crate::model::Identity;

/// What settled which node wrote a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettledBy {
    /// The caller named the node.
    Caller,
    /// The caller said that the traces are in the order of the nodes.
    ListOrder,
    /// The trace's host, which the run recorded for this node alone.
    Host(String),
    /// The trace's rank, which the run recorded on this node.
    Rank {
        /// The rank.
        rank: u32,
        /// Ranks in its job.
        world_size: u32,
    },
    /// No offsets of nodes will be applied, so that nothing had to be settled.
    Nothing,
}

impl Display for SettledBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caller => write!(f, "--nodes"),
            Self::ListOrder => write!(f, "--assume-order"),
            Self::Host(host) => write!(f, "its host {host}, which the run recorded for this node alone"),
            Self::Rank { rank, world_size } => {
                write!(f, "its rank {rank} of {world_size}, which the run recorded on this node")
            }
            Self::Nothing => write!(f, "nothing"),
        }
    }
}

/// What is known of the nodes whose offsets will be applied.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownNodes {
    /// The nodes that have offsets, the reference included; empty where none will be applied.
    pub(crate) nodes: BTreeSet<u32>,
    /// Their hosts, where stated.
    pub(crate) hosts: BTreeMap<u32, String>,
    /// The launcher's ranks, where the run recorded them.
    pub(crate) ranks: Vec<RankRecord>,
}

impl KnownNodes {
    /// The node that recorded facts give to a trace; None where they give it to none.
    ///
    /// # Errors
    /// When host and rank point to different nodes.
    pub(super) fn settle(&self, path: &Path, identity: &Identity) -> Result<Option<(u32, SettledBy)>, Error> {
        let of_rank = self.of_rank(identity);
        let by_rank = of_rank.zip(identity.rank.zip(identity.world_size));
        let by_rank = by_rank.map(|(node, (rank, world_size))| (node, SettledBy::Rank { rank, world_size }));
        let Some(host) = identity.hostname.as_ref().filter(|host| !host.is_empty()) else { return Ok(by_rank) };
        let of_host = self.of_host(host);
        match (of_host.first(), of_rank) {
            // A host that the run does not know: a trace of another job may have the same rank.
            (None, _) => Ok(None),
            (Some(_), Some(node)) if !of_host.contains(&node) => Err(Error::Nodes {
                problem: format!(
                    "{}: its host {host} is that of {}, its {} was recorded on node {node}: say whose it is with --nodes",
                    path.display(),
                    nodes(&of_host),
                    rank(identity),
                ),
            }),
            (Some(node), _) if of_host.len() == 1 => Ok(Some((*node, SettledBy::Host(host.clone())))),
            (Some(_), _) => Ok(by_rank),
        }
    }

    /// Refuses a node that the caller gives where recorded facts give the trace to others; what is worth telling otherwise.
    pub(super) fn confirm(&self, path: &Path, node: u32, identity: &Identity) -> Result<Option<String>, Error> {
        let refuse = |problem: String| Err(Error::Nodes { problem });
        let path = path.display();
        let of_host = identity.hostname.as_deref().map(|host| self.of_host(host)).unwrap_or_default();
        let host = identity.hostname.as_deref().unwrap_or_default();
        if !(of_host.is_empty() || of_host.contains(&node)) {
            return refuse(format!("{path} was written on {host}, which is {}, not node {node}", nodes(&of_host)));
        }
        match self.of_rank(identity) {
            // The host is nearer to the clock than the rank: another launcher may number ranks otherwise.
            Some(other) if other != node && of_host.len() != 1 => refuse(format!(
                "{path} is of {}, which the run recorded on node {other}, not node {node}",
                rank(identity)
            )),
            _ if of_host.is_empty() && !(host.is_empty() || self.hosts.is_empty()) => {
                Ok(Some(format!("its host {host} is none that the offsets name; taken as node {node}")))
            }
            _ => Ok(None),
        }
    }

    /// The nodes in order, for as many traces.
    ///
    /// # Errors
    /// When there are not as many nodes as traces.
    pub(super) fn in_order(&self, traces: usize) -> Result<Vec<u32>, Error> {
        if self.nodes.is_empty() {
            let problem = "--assume-order needs --run-dir or --offsets: without them there are no nodes".to_owned();
            return Err(Error::Nodes { problem });
        }
        if self.nodes.len() != traces {
            let problem = format!(
                "--assume-order wants one trace per node: there are {traces} traces, and the offsets know {}",
                self.listed()
            );
            return Err(Error::Nodes { problem });
        }
        Ok(self.nodes.iter().copied().collect())
    }

    /// Why traces are refused whose node no fact tells, and which flags would.
    pub(super) fn unsettled(&self, traces: &[(&Path, Identity)], of: usize) -> String {
        let named = traces.iter().take(MOST_NAMED).map(|(path, identity)| {
            let host = identity.hostname.as_ref().map_or_else(|| "no host".to_owned(), |host| format!("host {host}"));
            format!("{} says {host} and {}", path.display(), rank(identity))
        });
        let named = joined(named, traces.len());
        let every =
            if self.nodes.len() == of { ", or --assume-order if the list is in the order of the nodes" } else { "" };
        format!(
            "of {of} traces {} cannot be given to a node: {named}. The offsets know {}. \
             Give --nodes with one of these numbers per trace, in the order of --traces{every}",
            traces.len(),
            self.listed()
        )
    }

    /// Nodes, hosts and ranks, as far as a line holds them.
    fn listed(&self) -> String {
        let host = |node: &u32| self.hosts.get(node).map_or_else(String::new, |host| format!(" on {host}"));
        let some = self.nodes.iter().take(MOST_NAMED).map(|node| format!("node {node}{}", host(node)));
        let all = joined(some, self.nodes.len());
        if self.ranks.is_empty() {
            return format!("{all}; no ranks were recorded");
        }
        let ranks = self.ranks.iter().take(MOST_NAMED).map(|record| {
            let RankRecord { rank, world_size, hostname, node_id, .. } = record;
            let local = record.local_rank.map_or_else(String::new, |local| format!(" (local rank {local})"));
            format!("rank {rank} of {world_size}{local} on {hostname} is node {node_id}")
        });
        format!("{all}; {}", joined(ranks, self.ranks.len()))
    }

    /// The nodes for which the run recorded this host, of their own or of ranks that follow them.
    fn of_host(&self, host: &str) -> Vec<u32> {
        let own = self.hosts.iter().map(|(node, name)| (*node, name));
        let followers = self.ranks.iter().map(|record| (record.node_id.0, &record.hostname));
        let found: BTreeSet<u32> =
            own.chain(followers).filter(|(_, name)| same_host(name, host)).map(|(node, _)| node).collect();
        found.into_iter().collect()
    }

    /// The node on which the run recorded the trace's rank: in a job of the same size, and once.
    fn of_rank(&self, identity: &Identity) -> Option<u32> {
        let (rank, world_size) = identity.rank.zip(identity.world_size)?;
        let mut found = self.ranks.iter().filter(|record| record.rank == rank && record.world_size == world_size);
        let node = found.next()?.node_id.0;
        found.next().is_none().then_some(node)
    }
}

/// `node1` and `node1.cluster.local` are one host where one of them says no domain.
fn same_host(one: &str, other: &str) -> bool {
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

fn rank(identity: &Identity) -> String {
    match (identity.rank, identity.world_size) {
        (Some(rank), Some(world_size)) => format!("rank {rank} of {world_size}"),
        (Some(rank), None) => format!("rank {rank} of unknown many"),
        (None, _) => "no rank".to_owned(),
    }
}

/// `a, b and 3 more`.
fn joined(some: impl Iterator<Item = String>, of: usize) -> String {
    let some: Vec<String> = some.collect();
    let more = of - some.len();
    let listed = some.join(", ");
    if more == 0 { listed } else { format!("{listed} and {more} more") }
}

/// Traces, nodes and ranks that a refusal names.
const MOST_NAMED: usize = 8;
