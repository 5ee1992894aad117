//! Who takes part: the two-step hand-shake before the first round.
//!
//! Step 1, [`introduce`]: every rank states its version, host and configuration; the root refuses ranks that differ,
//! decides which ranks are nodes, and broadcasts a [`Plan`]. Step 2, [`assemble`]: every node binds its socket and
//! states its address; the root broadcasts the [`Roster`]. A refusal reaches all ranks, so all end with one message.
//!
//! Ranks of one host share a clock: one leader per host is a node and the others follow it, unless all ranks share one
//! host or `per_rank` is set. Nodes are numbered in order of their leaders' ranks; node 0 is rank 0.

use std::net::{IpAddr, SocketAddr};

use probe_sync_collective::{Collective, Deadline, Frames, ROOT};
use probe_sync_time::{NodeId, RunId, StampSource, System, Timestamp};
use serde::{Deserialize, Serialize};

use crate::rounds::ROOT_SPEAKS_FIRST;
use crate::{Config, Error, wire};

/// What a rank says of itself first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Introduction {
    /// The crate's version.
    pub version: String,
    /// The host's name, for people.
    pub hostname: String,
    /// Equal on ranks that share one system clock (the kernel's boot id unless configured).
    pub clock_identity: String,
    /// Equal on ranks that can reach each other over loopback (boot id and network namespace).
    pub network_identity: String,
    /// The configuration that must agree.
    pub shared_entries: Vec<(String, String)>,
    /// What `run.json` says of the host, as JSON text.
    pub host_facts: String,
}

/// What the root makes of the introductions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The run.
    pub run: RunId,
    /// For each rank, the node that it is or follows.
    pub node_of_rank: Vec<NodeId>,
    /// For each node, the rank that probes for it.
    pub rank_of_node: Vec<u32>,
    /// For each rank, its place among the probing ranks of its host and how many those are.
    pub place_on_host: Vec<(u32, u32)>,
    /// All ranks reach each other over loopback.
    pub loopback: bool,
    /// The host names, by rank.
    pub hostnames: Vec<String>,
    /// Distinct clocks among the ranks.
    pub clocks: u32,
}

/// What a node says once its socket is bound.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Presence {
    /// Where it takes probes.
    pub address: SocketAddr,
    /// The timestamps that it will have.
    pub stamp: StampSource,
    /// Its system clock, ns.
    pub walltime_ns: i64,
    /// Its tracer clock at that instant, ns: the one configured, else `CLOCK_BOOTTIME`.
    pub tracer_ns: i64,
}

/// Everything that all ranks know once the run starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Roster {
    /// By node.
    pub nodes: Vec<Presence>,
    /// The root's unskewed system clock when it wrote this; t0 of virtual clocks.
    pub start: Timestamp<System>,
}

impl Plan {
    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.rank_of_node.len()
    }

    /// The node for which `rank` probes, if it does.
    pub fn probes_for(&self, rank: usize) -> Option<NodeId> {
        let node = self.node_of_rank[rank];
        (self.rank_of_node[node.index()] as usize == rank).then_some(node)
    }

    /// For each rank, whether it takes part in the gather of a round (`probe_participants`).
    pub fn participants(&self) -> Vec<bool> {
        (0..self.node_of_rank.len()).map(|rank| self.probes_for(rank).is_some()).collect()
    }

    /// The host name of a node.
    pub fn hostname(&self, node: NodeId) -> &str {
        &self.hostnames[self.rank_of_node[node.index()] as usize]
    }
}

/// Step 1. `own` is this rank's introduction or why its configuration is unusable. At the root `run_id` names the run;
/// elsewhere it is ignored. Returns the plan, and at the root every rank's introduction.
///
/// # Errors
/// [`Error::Refused`] on every rank when some configuration is unusable, or versions or configurations differ.
pub fn introduce(
    collective: &mut dyn Collective,
    config: Option<&Config>,
    own: &Result<Introduction, String>,
    run_id: RunId,
    patience: &Deadline,
) -> Result<(Plan, Vec<Introduction>), Error> {
    let mut all = Vec::new();
    let plan =
        negotiate(collective, Some(own), patience, |introductions: Vec<Option<Result<Introduction, String>>>| {
            for (rank, introduction) in introductions.into_iter().flatten().enumerate() {
                all.push(introduction.map_err(|reason| format!("rank {rank}: {reason}"))?);
            }
            let config = config.ok_or("rank 0 has no configuration")?;
            refuse_differences(&all)?;
            let plan = make_plan(config, &all, run_id);
            if let Some(step) = config.inject_step.filter(|step| step.node.index() >= plan.nodes()) {
                return Err(format!("inject_step names node {}, and the run has {} nodes", step.node, plan.nodes()));
            }
            if config.inject_skew.is_some() && plan.clocks > 1 {
                return Err(format!(
                    "inject_skew needs ranks that share one real clock, and there are {} different ones: \
                 the truth would not be known",
                    plan.clocks
                ));
            }
            Ok(plan)
        })?;
    Ok((plan, all))
}

/// Step 2. `own` is this node's presence or why it cannot take part; `None` for ranks that are no node.
///
/// # Errors
/// [`Error::Refused`] on every rank when some node could not bind its socket; it names the rank.
pub fn assemble(
    collective: &mut dyn Collective,
    plan: &Plan,
    own: Option<&Result<Presence, String>>,
    start: Timestamp<System>,
    patience: &Deadline,
) -> Result<Roster, Error> {
    negotiate(collective, own, patience, |presences: Vec<Option<Result<Presence, String>>>| {
        let mut nodes = Vec::with_capacity(plan.nodes());
        for (rank, presence) in presences.into_iter().enumerate() {
            match presence {
                Some(Ok(presence)) => nodes.push(presence),
                Some(Err(reason)) => return Err(format!("rank {rank} on {}: {reason}", plan.hostnames[rank])),
                None => {}
            }
        }
        refuse_mixed_families(&nodes)?;
        Ok(Roster { nodes, start })
    })
}

/// The address to probe from: what was configured, else the configured interface's, else loopback where that reaches all,
/// else the address that leads to the root, else the host's default outward address. `outward` is the configured
/// interface's address where one is configured.
pub fn probe_address(
    config: &Config,
    plan: &Plan,
    towards_root: Option<IpAddr>,
    outward: Option<IpAddr>,
) -> Result<IpAddr, String> {
    if let (None, Some(interface)) = (config.bind, &config.interface) {
        return outward.ok_or_else(|| format!("interface {interface} does not exist or has no address"));
    }
    let loopback = plan.loopback.then_some(IpAddr::from([127, 0, 0, 1]));
    config.bind.or(loopback).or(towards_root.filter(|address| !address.is_loopback())).or(outward).ok_or_else(|| {
        "found no network interface with a route to the other hosts; name one with --interface or --bind".into()
    })
}

/// Gathers every rank's statement, lets the root decide, and brings the decision or the refusal to all.
fn negotiate<S, D>(
    collective: &mut dyn Collective,
    own: Option<&S>,
    patience: &Deadline,
    decide: impl FnOnce(Vec<Option<S>>) -> Result<D, String>,
) -> Result<D, Error>
where
    S: Serialize + serde::de::DeserializeOwned,
    D: Serialize + serde::de::DeserializeOwned,
{
    let everyone = vec![true; collective.size()];
    let mut frames = Frames::default();
    collective.gather(&everyone, &wire::encode(&own), &mut frames, patience)?;
    let mut decision = Vec::new();
    if collective.rank() == ROOT {
        let statements: Result<Vec<Option<S>>, Error> =
            frames.iter().enumerate().map(|(rank, bytes)| wire::decode(bytes, rank)).collect();
        decision = wire::encode(&statements.map_err(|error| error.to_string()).and_then(decide));
    }
    collective.broadcast(&mut decision, &patience.extended(ROOT_SPEAKS_FIRST))?;
    wire::decode::<Result<D, String>>(&decision, ROOT)?.map_err(|reason| Error::Refused { reason })
}

fn refuse_differences(all: &[Introduction]) -> Result<(), String> {
    let first = all.first().ok_or("no rank introduced itself")?;
    for (rank, other) in all.iter().enumerate().skip(1) {
        if other.version != first.version {
            return Err(format!(
                "rank {rank} on {} runs version {}, rank 0 runs {}: install one version on all nodes",
                other.hostname, other.version, first.version
            ));
        }
        let difference = first.shared_entries.iter().zip(&other.shared_entries).find(|(a, b)| a != b);
        if let Some(((key, value), (_, theirs))) = difference {
            return Err(format!(
                "configuration differs: {key} is \"{theirs}\" on rank {rank} ({}) and \"{value}\" on rank 0 ({}); \
                 give all ranks the same flags, environment and file",
                other.hostname, first.hostname
            ));
        }
    }
    Ok(())
}

fn refuse_mixed_families(nodes: &[Presence]) -> Result<(), String> {
    let six = nodes.iter().position(|presence| presence.address.is_ipv6());
    let four = nodes.iter().position(|presence| presence.address.is_ipv4());
    match (four, six) {
        (Some(four), Some(six)) => Err(format!(
            "node {four} probes from {} and node {six} from {}: one run needs one address family; use --bind",
            nodes[four].address, nodes[six].address
        )),
        _ => Ok(()),
    }
}

fn make_plan(config: &Config, all: &[Introduction], run: RunId) -> Plan {
    let mut clocks: Vec<&str> = Vec::new();
    let clock_of_rank: Vec<usize> = all
        .iter()
        .map(|rank| {
            clocks.iter().position(|clock| *clock == rank.clock_identity).unwrap_or_else(|| {
                clocks.push(&rank.clock_identity);
                clocks.len() - 1
            })
        })
        .collect();
    let every_rank = config.per_rank || clocks.len() == 1;
    let mut rank_of_node: Vec<u32> = Vec::new();
    let mut node_of_rank = Vec::with_capacity(all.len());
    for (rank, clock) in clock_of_rank.iter().enumerate() {
        let leads = every_rank || clock_of_rank[..rank].iter().all(|earlier| earlier != clock);
        if leads {
            node_of_rank.push(NodeId(rank_of_node.len() as u32));
            rank_of_node.push(rank as u32);
        } else {
            let leader = clock_of_rank.iter().position(|other| other == clock).unwrap_or(rank);
            node_of_rank.push(node_of_rank[leader]);
        }
    }
    let place_on_host = clock_of_rank
        .iter()
        .enumerate()
        .map(|(rank, clock)| {
            let probers = rank_of_node.iter().filter(|prober| clock_of_rank[**prober as usize] == *clock);
            let before = probers.clone().filter(|prober| (**prober as usize) < rank).count();
            (before as u32, probers.count() as u32)
        })
        .collect();
    Plan {
        run,
        place_on_host,
        loopback: all.windows(2).all(|pair| pair[0].network_identity == pair[1].network_identity),
        hostnames: all.iter().map(|rank| rank.hostname.clone()).collect(),
        clocks: clocks.len() as u32,
        node_of_rank,
        rank_of_node,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn introductions(hosts: &[&str]) -> Vec<Introduction> {
        let one = |host: &&str| Introduction {
            version: "1".into(),
            hostname: (*host).into(),
            clock_identity: (*host).into(),
            network_identity: (*host).into(),
            shared_entries: Config::default().shared_entries(),
            host_facts: "{}".into(),
        };
        hosts.iter().map(one).collect()
    }

    fn check(hosts: &[&str], per_rank: bool, nodes: &[u32], leaders: &[u32], places: &[(u32, u32)]) {
        let config = Config { per_rank, ..Config::default() };
        let plan = make_plan(&config, &introductions(hosts), RunId(1));
        assert_eq!(plan.node_of_rank, nodes.iter().map(|n| NodeId(*n)).collect::<Vec<_>>());
        assert_eq!(plan.rank_of_node, leaders);
        assert_eq!(plan.place_on_host, places);
    }

    #[test]
    fn one_leader_per_host_unless_there_is_one_host() {
        check(&["a", "a", "a"], false, &[0, 1, 2], &[0, 1, 2], &[(0, 3), (1, 3), (2, 3)]);
        check(&["a", "b", "a", "b"], false, &[0, 1, 0, 1], &[0, 1], &[(0, 1), (0, 1), (1, 1), (1, 1)]);
        check(&["a", "b", "a"], true, &[0, 1, 2], &[0, 1, 2], &[(0, 2), (0, 1), (1, 2)]);
    }

    #[test]
    fn differences_name_the_key_and_the_ranks() {
        let mut all = introductions(&["a", "b"]);
        all[1].shared_entries = Config { seed: 9, ..Config::default() }.shared_entries();
        let refusal = refuse_differences(&all).expect_err("seeds differ");
        assert!(refusal.contains("seed") && refusal.contains("rank 1 (b)"), "{refusal}");
        all[1].version = "2".into();
        assert!(refuse_differences(&all).expect_err("versions differ").contains("version 2"));
    }
}
