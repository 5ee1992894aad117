//! Which ranks are nodes, and which follow one.
//!
//! The root makes the [`Plan`] from all ranks' [`Hello`]s in step 1 of the handshake. Ranks of one
//! host share a clock: one leader per host is a node and the others follow it, unless all ranks
//! share one host or `per_rank` is set. Nodes are numbered in order of their leaders' ranks; node 0
//! is rank 0.

use std::net::SocketAddr;

use probe_sync_collective::Rank;
use probe_sync_lines::{Launcher, RankRecord};
use probe_sync_time::{Edge, NodeId, RunId, SessionKey};
use serde::{Deserialize, Serialize};

use super::Hello;
use super::choice::{self, Offering, Source};
use super::graph;
use super::launcher::Launched;
use crate::Config;
use crate::config::ReferenceChoice;

/// The root's decisions, based on the hellos.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Run id.
    pub run: RunId,
    /// Random part of the key of the run's packets, drawn by rank 0. It is in no file.
    pub drawn_key: SessionKey,
    /// True if all ranks have a key file, from which the session key is also derived.
    pub secret: bool,
    /// For each rank, its node or the node that it follows.
    pub node_of_rank: Vec<NodeId>,
    /// For each node, the rank that probes for it.
    pub rank_of_node: Vec<u32>,
    /// For each node, the number of its virtual clock: its own number, or, if the run is one of
    /// several, that of its rank in the whole job, whose clock is the same in all of them.
    pub clock_numbers: Vec<u32>,
    /// For each rank, its place among the probing ranks of its host, and their number.
    pub place_on_host: Vec<(u32, u32)>,
    /// For each node, the first node whose rank stated the same clock: nodes with equal entries
    /// share a host.
    pub host_of_node: Vec<NodeId>,
    /// For each node, the address from which it probes.
    pub sources: Vec<Source>,
    /// Explanation of the choice of addresses.
    pub sources_reason: String,
    /// Edges named by the nodes; `None` if the graph is drawn.
    pub edges: Option<Vec<Edge>>,
    /// Host names, by rank.
    pub hostnames: Vec<String>,
    /// Number of distinct clocks among the ranks.
    pub clocks: u32,
    /// Ranks that take over if the master is lost, in order, with their addresses.
    pub successors: Vec<(usize, Vec<SocketAddr>)>,
}

impl Plan {
    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        self.rank_of_node.len()
    }

    /// Returns the node for which `rank` probes, if any.
    pub fn probes_for(&self, rank: usize) -> Option<NodeId> {
        let node = self.node_of_rank[rank];
        (self.rank_of_node[node.index()] as usize == rank).then_some(node)
    }

    /// Returns for each rank whether it contributes to the gather of a round
    /// (`probe_participants`).
    pub fn participants(&self) -> Vec<bool> {
        (0..self.node_of_rank.len()).map(|rank| self.probes_for(rank).is_some()).collect()
    }

    /// Updates the plan with a rank that had not joined when it was made.
    pub(crate) fn know(&mut self, rank: Rank, hellos: &[Hello]) {
        self.hostnames[rank].clone_from(&hellos[rank].hostname);
        if let Some(node) = self.probes_for(rank) {
            let own = hellos[rank].one_clock();
            let same = self.rank_of_node.iter().position(|leader| hellos[*leader as usize].one_clock() == own);
            self.host_of_node[node.index()] = same.map_or(node, |first| NodeId(first as u32));
        }
    }

    /// Returns the host name of a node.
    pub fn hostname(&self, node: NodeId) -> &str {
        &self.hostnames[self.rank_of_node[node.index()] as usize]
    }
}

/// Makes the plan from all ranks' hellos and the configuration of the root, or returns why the run
/// is refused.
pub(super) fn agree(
    (config, root): (&Config, Rank),
    all: &[Hello],
    run: RunId,
    drawn_key: SessionKey,
) -> Result<Plan, String> {
    refuse_differences(all)?;
    refuse_regions(all)?;
    let plan = make_plan((config, root), all, run, drawn_key)?;
    let unknown = |node: NodeId| (node.index() >= plan.nodes()).then_some(node);
    if let Some(node) = config.inject_step.and_then(|step| unknown(step.node)) {
        return Err(format!("inject_step names node {node}, but the run has {} nodes", plan.nodes()));
    }
    if let ReferenceChoice::Node(node) = config.reference
        && let Some(node) = unknown(node)
    {
        return Err(format!("reference names node {node}, but the run has {} nodes, numbered from 0", plan.nodes()));
    }
    // Its own window is what a master goes by; over all backends it takes part in the gather.
    if plan.probes_for(root).is_none() {
        let leader = plan.rank_of_node[plan.node_of_rank[root].index()];
        return Err(format!(
            "--master {root}: rank {leader} measures for its host, {}, so rank {root} is not a node; name rank {leader}, or make \
            every rank a node with --per-rank",
            plan.hostnames[root]
        ));
    }
    if config.inject_skew.is_some() && plan.clocks > 1 {
        return Err(format!(
            "inject_skew needs ranks that share one real clock, but these have {} different ones, so the truth would be unknown",
            plan.clocks
        ));
    }
    Ok(plan)
}

/// Refuses regions. They are formed before their runs begin; here a rank names one, while the
/// master, which would have formed them, does not.
fn refuse_regions(all: &[Hello]) -> Result<(), String> {
    let named = all.iter().enumerate().find_map(|(rank, hello)| Some((rank, hello, hello.region.as_ref()?)));
    named.map_or(Ok(()), |(rank, hello, region)| {
        Err(format!(
            "rank {rank} ({}) is in region {region}, but rank 0 is in none: give a region to all ranks, with --region, \
            PROBE_SYNC_REGION or --region-file, or to none",
            hello.hostname
        ))
    })
}

pub(super) fn refuse_differences(all: &[Hello]) -> Result<(), String> {
    let first = all.first().ok_or("no rank joined")?;
    all.iter().enumerate().skip(1).try_for_each(|(rank, other)| refuse_difference(first, rank, other))
}

/// Refuses a rank that differs from rank 0.
pub(super) fn refuse_difference(first: &Hello, rank: usize, other: &Hello) -> Result<(), String> {
    if other.version != first.version {
        return Err(format!(
            "rank {rank} on {} runs version {}, rank 0 runs {}: install one version on all nodes",
            other.hostname, other.version, first.version
        ));
    }
    match (first.key_fingerprint, other.key_fingerprint) {
        (own, theirs) if own == theirs => {}
        (Some(_), Some(_)) => {
            return Err(format!("the key files of rank 0 and rank {rank} ({}) differ", other.hostname));
        }
        (own, _) => {
            let (with, without) = if own.is_some() { (0, rank) } else { (rank, 0) };
            return Err(format!("rank {with} has a key file but rank {without} has none: give all ranks --key-file"));
        }
    }
    let difference = first.shared_entries.iter().zip(&other.shared_entries).find(|(a, b)| a != b);
    if let Some(((key, value), (_, theirs))) = difference {
        return Err(format!(
            "configuration differs: {key} is \"{theirs}\" on rank {rank} ({}) and \"{value}\" on rank 0 ({}); \
             give all ranks the same flags, environment and file",
            other.hostname, first.hostname
        ));
    }
    Ok(())
}

/// Returns the number of each rank's clock, in order of the first rank of each clock.
fn clocks_of(all: &[Hello]) -> Vec<usize> {
    let mut clocks: Vec<(&str, u32)> = Vec::new();
    let mut numbers = Vec::with_capacity(all.len());
    for clock in all.iter().map(Hello::one_clock) {
        let known = clocks.iter().position(|known| *known == clock);
        numbers.push(known.unwrap_or(clocks.len()));
        if known.is_none() {
            clocks.push(clock);
        }
    }
    numbers
}

/// Returns the node for each rank, and the rank of each node: every rank, or the first rank of each
/// clock.
fn nodes_of(every_rank: bool, clock_of_rank: &[usize], all: &[Hello]) -> (Vec<NodeId>, Vec<u32>) {
    let mut rank_of_node: Vec<u32> = Vec::new();
    let mut node_of_rank: Vec<NodeId> = Vec::with_capacity(all.len());
    for (rank, clock) in clock_of_rank.iter().enumerate() {
        let leader = clock_of_rank.iter().position(|other| other == clock).unwrap_or(rank);
        // Where a rank that has not come will be nobody knows.
        if every_rank || all[rank].missing || leader == rank {
            node_of_rank.push(NodeId(rank_of_node.len() as u32));
            rank_of_node.push(rank as u32);
        } else {
            node_of_rank.push(node_of_rank[leader]);
        }
    }
    (node_of_rank, rank_of_node)
}

fn make_plan(
    (config, root): (&Config, Rank),
    all: &[Hello],
    run: RunId,
    drawn_key: SessionKey,
) -> Result<Plan, String> {
    let clock_of_rank = clocks_of(all);
    let clocks = clock_of_rank.iter().max().map_or(0, |last| last + 1);
    let (node_of_rank, rank_of_node) = nodes_of(config.per_rank || clocks == 1, &clock_of_rank, all);
    let place_on_host = clock_of_rank
        .iter()
        .enumerate()
        .map(|(rank, clock)| {
            let probers = rank_of_node.iter().filter(|prober| clock_of_rank[**prober as usize] == *clock);
            let before = probers.clone().filter(|prober| (**prober as usize) < rank).count();
            (before as u32, probers.count() as u32)
        })
        .collect();
    let host_of_node = rank_of_node.iter().map(|rank| {
        let same = |other: &u32| clock_of_rank[*other as usize] == clock_of_rank[*rank as usize];
        NodeId(rank_of_node.iter().position(same).expect("the node itself") as u32)
    });
    let host_of_node = host_of_node.collect();
    let loopback = all.windows(2).all(|pair| pair[0].network_identity == pair[1].network_identity);
    let probing: Vec<&Hello> = rank_of_node.iter().map(|rank| &all[*rank as usize]).collect();
    let there = probing.iter().filter(|hello| !hello.missing);
    let offering: Vec<Offering<'_>> = there.map(|hello| (hello.hostname.as_str(), &hello.offer)).collect();
    let (chosen, sources_reason) = choice::choose(&offering, loopback)?;
    let missing: Vec<bool> = probing.iter().map(|hello| hello.missing).collect();
    let sources = choice::with_missing(chosen, &missing, node_of_rank[root].index());
    let edges = graph::given(&probing)?;
    let clock_numbers = probing.iter().zip(0..).map(|(hello, node)| hello.of_job.unwrap_or(node)).collect();
    Ok(Plan {
        run,
        drawn_key,
        secret: all.iter().all(|hello| hello.key_fingerprint.is_some()),
        clock_numbers,
        place_on_host,
        host_of_node,
        sources,
        sources_reason,
        edges,
        hostnames: all.iter().map(|rank| rank.hostname.clone()).collect(),
        clocks: clocks as u32,
        successors: successors(config.successors as usize, root, all, &rank_of_node),
        node_of_rank,
        rank_of_node,
    })
}

/// Returns the successors among the ranks that are nodes and stand by, beginning after the root and
/// wrapping around: the first rank of every other host, then the others, so that losing a host
/// removes few of them.
fn successors(most: usize, root: Rank, all: &[Hello], rank_of_node: &[u32]) -> Vec<(usize, Vec<SocketAddr>)> {
    // A run that ends with the first rank that is lost has no other master, and its root knows
    // that.
    if all[root].stands_by.is_none() {
        return Vec::new();
    }
    let ranks = |after: bool| {
        let ranks = rank_of_node.iter().map(|rank| *rank as usize);
        ranks.filter(move |rank| *rank != root && (*rank > root) == after)
    };
    let standing: Vec<(usize, &Vec<SocketAddr>)> =
        ranks(true).chain(ranks(false)).filter_map(|rank| Some((rank, all[rank].stands_by.as_ref()?))).collect();
    let mut hosts = vec![all[root].one_clock()];
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for (rank, addresses) in standing {
        let host = all[rank].one_clock();
        let of_host = if hosts.contains(&host) { &mut others } else { &mut first };
        of_host.push((rank, addresses.clone()));
        hosts.push(host);
    }
    first.into_iter().chain(others).take(most).collect()
}

/// Returns the ranks of the launcher's job, one for each rank of the run. They are written to
/// `run.json` and the first line of `offsets.jsonl`, so that alignment can find the node of a
/// training rank's trace. The first launcher counts, in the order in which ranks state them, whose
/// statements are consistent with one job: two ranks with the same number have inherited it. If
/// there is none, the numbers are unknown and are not written, except that a run on one machine
/// numbers its own ranks, as `--local` does.
pub(crate) fn ranks(plan: &Plan, hellos: &[Hello]) -> Vec<RankRecord> {
    let record = |(place, launched): (usize, Launched)| RankRecord {
        rank: launched.rank,
        world_size: launched.world_size,
        local_rank: launched.local_rank,
        hostname: plan.hostnames[place].clone(),
        node_id: plan.node_of_rank[place],
        launcher: Some(launched.launcher),
        time_namespace: Some(hellos[place].clock.namespace).filter(|namespace| !namespace.is_initial()),
    };
    // A rank that has not come has no trace, and nobody knows its host.
    launched(hellos).into_iter().enumerate().filter(|(rank, _)| !hellos[*rank].missing).map(record).collect()
}

/// Returns each rank's place in the job of one launcher; empty if unknown. In a run that is one of
/// several, each rank states its place in the whole job.
pub(super) fn launched(hellos: &[Hello]) -> Vec<Launched> {
    let launchers = hellos.first().into_iter().flat_map(|hello| &hello.launched);
    let stated = launchers.map(|launched| launched.launcher).find_map(|launcher| one_job(hellos, launcher));
    let one_machine = hellos.windows(2).all(|pair| pair[0].one_clock() == pair[1].one_clock());
    let whole = hellos.iter().all(|hello| hello.of_job.is_none());
    let world_size = hellos.len() as u32;
    let own = |rank| Launched { launcher: Launcher::Run, rank, world_size, local_rank: None };
    let own = || if one_machine && whole { (0..world_size).map(own).collect() } else { Vec::new() };
    stated.unwrap_or_else(own)
}

/// Returns what all ranks state about one launcher, if it is consistent with one job.
fn one_job(hellos: &[Hello], launcher: Launcher) -> Option<Vec<Launched>> {
    let of = |hello: &Hello| hello.launched.iter().find(|launched| launched.launcher == launcher).copied();
    let all: Vec<Launched> = hellos.iter().map(of).collect::<Option<_>>()?;
    let mut numbers: Vec<u32> = all.iter().map(|launched| launched.rank).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let one = numbers.len() == all.len() && all.windows(2).all(|pair| pair[0].world_size == pair[1].world_size);
    one.then_some(all)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::clock_reading::ClockReading;
    use super::super::neighbors::Neighbors;
    use super::super::offer::Offer;
    use super::super::offer::tests::offer;
    use super::*;
    use crate::wire;

    pub(in super::super) fn hellos(hosts: &[&str]) -> Vec<Hello> {
        let one = |host: &&str| Hello {
            version: "1".into(),
            hostname: (*host).into(),
            clock_identity: (*host).into(),
            clock: ClockReading::default(),
            machine: 0,
            network_identity: (*host).into(),
            shared_entries: Config::default().shared_entries(),
            host_facts: "{}".into(),
            launched: Vec::new(),
            offer: address_of(host),
            key_fingerprint: None,
            neighbors: Neighbors::default(),
            stands_by: None,
            region: None,
            of_job: None,
            missing: false,
        };
        hosts.iter().map(one).collect()
    }

    pub(in super::super) fn plan_of(all: &[Hello]) -> Plan {
        make_plan((&Config::default(), 0), all, RunId(1), KEY).expect("addresses")
    }

    /// Every host has an address of its own in one network.
    fn address_of(host: &str) -> Offer {
        let text = format!("eth0 10.0.0.{}/24", host.as_bytes()[0]);
        Offer { network: host.to_owned(), ..offer(&text, &Config::default(), None, None).expect("an offer") }
    }

    const KEY: SessionKey = SessionKey([0xa7; 32]);

    /// Rank 3 of two hosts with two ranks each has not joined: it will be a node, wherever it is.
    #[test]
    fn a_rank_that_has_not_come_is_a_node_of_its_own() {
        let all_of = |one_host| {
            let mut all = hellos(&["a", "a", "b", "b"]);
            all[3] = Hello::of_missing(3, &all[0], one_host);
            all
        };
        let plan = plan_of(&all_of(false));
        assert_eq!((plan.rank_of_node.as_slice(), plan.probes_for(3)), (&[0, 2, 3][..], Some(NodeId(2))));
        let own: std::net::IpAddr = [10, 0, 0, b'a'].into();
        assert_eq!(plan.sources[2], Source::Towards(own), "by its routes to the master");
        assert_eq!((plan.clocks, plan.hostnames[3].as_str()), (3, "rank 3, which has not joined"));
        assert_eq!(plan_of(&all_of(true)).clocks, 2, "over loopback it can only be on the master's host");
        let (mut known, mut all) = (plan, all_of(false));
        all[3] = hellos(&["a", "a", "b", "b"]).remove(3);
        known.know(3, &all);
        assert_eq!((known.hostnames[3].as_str(), known.host_of_node[2]), ("b", NodeId(1)), "it has come");
    }

    fn check(hosts: &[&str], per_rank: bool, nodes: &[u32], leaders: &[u32], places: &[(u32, u32)]) {
        let config = Config { per_rank, ..Config::default() };
        let plan = make_plan((&config, 0), &hellos(hosts), RunId(1), KEY).expect("addresses");
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
    fn every_rank_learns_the_drawn_key_and_no_one_prints_it() {
        let plan = make_plan((&Config::default(), 0), &hellos(&["a", "b"]), RunId(1), KEY).expect("addresses");
        let learnt: Plan = wire::decode(&wire::encode(&plan), 0).expect("our own bytes");
        assert_eq!(learnt.drawn_key, KEY);
        assert!(!format!("{learnt:?}").contains("167"), "{learnt:?}");
        assert!(serde_json::to_string(&learnt).is_err(), "a file would hold the key");
    }

    #[test]
    fn differences_name_the_key_and_the_ranks() {
        let mut all = hellos(&["a", "b"]);
        all[1].shared_entries = Config { seed: 9, ..Config::default() }.shared_entries();
        let refusal = refuse_differences(&all).expect_err("seeds differ");
        assert!(refusal.contains("seed") && refusal.contains("rank 1 (b)"), "{refusal}");
        all[1].key_fingerprint = Some([1; 16]);
        assert!(refuse_differences(&all).expect_err("one key").contains("rank 0 has none"));
        all[0].key_fingerprint = Some([2; 16]);
        assert!(refuse_differences(&all).expect_err("two keys").contains("key files of rank 0 and rank 1 (b) differ"));
        all[1].version = "2".into();
        assert!(refuse_differences(&all).expect_err("versions differ").contains("version 2"));
    }

    /// Launchers stated by ranks: rank and size.
    type Stated<'a> = &'a [(Launcher, u32, u32)];

    /// Checks rank, size and node of each rank of a run on these hosts, and the launcher whose
    /// numbers they are.
    fn check_ranks(ranks_of: &[(&str, Stated<'_>)], by: Launcher, expected: &[(u32, u32, &str, u32)]) {
        let hello = |(host, stated): &(&str, Stated<'_>)| {
            let launched = |&(launcher, rank, world_size): &(Launcher, u32, u32)| Launched {
                launcher,
                rank,
                world_size,
                local_rank: Some(5),
            };
            Hello {
                hostname: (*host).into(),
                clock_identity: (*host).into(),
                network_identity: (*host).into(),
                launched: stated.iter().map(launched).collect(),
                offer: address_of(host),
                ..hellos(&["x"])[0].clone()
            }
        };
        let hellos: Vec<Hello> = ranks_of.iter().map(hello).collect();
        let plan = agree((&Config::default(), 0), &hellos, RunId(1), KEY).expect("alike");
        let found = ranks(&plan, &hellos);
        let short: Vec<_> = found.iter().map(|r| (r.rank, r.world_size, r.hostname.as_str(), r.node_id)).collect();
        let expected: Vec<_> =
            expected.iter().map(|&(rank, size, host, node)| (rank, size, host, NodeId(node))).collect();
        assert_eq!(short, expected);
        assert!(found.iter().all(|record| record.launcher == Some(by)), "{found:?}");
    }

    #[test]
    fn a_master_that_is_no_node_is_refused() {
        let check = |root, per_rank| {
            let config = Config { per_rank, ..Config::default() };
            agree((&config, root), &hellos(&["a", "a", "b", "b"]), RunId(1), KEY).map(|_| ())
        };
        assert_eq!((check(0, false), check(2, false), check(3, true)), (Ok(()), Ok(()), Ok(())));
        let error = check(3, false).expect_err("rank 2 measures for b");
        assert!(
            error.contains("--master 3: rank 2 measures for its host, b") && error.contains("--per-rank"),
            "{error}"
        );
    }

    #[test]
    fn the_ranks_after_the_master_come_first_and_those_of_other_hosts_before_its_own() {
        let mut all = hellos(&["a", "b", "a", "b", "c"]);
        all.iter_mut().for_each(|hello| hello.stands_by = Some(Vec::new()));
        let line = |root| -> Vec<usize> {
            successors(9, root, &all, &[0, 1, 2, 3, 4]).into_iter().map(|(rank, _)| rank).collect()
        };
        assert_eq!(line(0), [1, 4, 2, 3]);
        assert_eq!(line(2), [3, 4, 0, 1]);
        assert_eq!(line(4), [0, 1, 2, 3]);
    }

    #[test]
    fn a_run_records_the_launchers_ranks_and_invents_none() {
        use Launcher::{OpenMpi as Mpi, Run, Slurm, Torchrun as Torch};
        // Two hosts with two ranks each, numbered round them.
        let round: [(&str, Stated<'_>); 4] =
            [("a", &[(Mpi, 0, 4)]), ("b", &[(Mpi, 1, 4)]), ("a", &[(Mpi, 2, 4)]), ("b", &[(Mpi, 3, 4)])];
        check_ranks(&round, Mpi, &[(0, 4, "a", 0), (1, 4, "b", 1), (2, 4, "a", 0), (3, 4, "b", 1)]);
        // One measuring rank per host of a job of sixteen.
        let few: [(&str, Stated<'_>); 2] = [("a", &[(Torch, 0, 16)]), ("b", &[(Torch, 8, 16)])];
        check_ranks(&few, Torch, &[(0, 16, "a", 0), (8, 16, "b", 1)]);
        // All inherited one number; jobs of two sizes; nobody states one: a training job may number
        // its ranks in any way.
        check_ranks(&[("a", &[(Mpi, 3, 16)]), ("b", &[(Mpi, 3, 16)])], Mpi, &[]);
        check_ranks(&[("a", &[(Mpi, 0, 1)]), ("b", &[(Mpi, 1, 2)])], Mpi, &[]);
        check_ranks(&[("a", &[]), ("b", &[(Mpi, 1, 2)])], Mpi, &[]);
        check_ranks(&[("a", &[]), ("b", &[])], Mpi, &[]);
        // The first process of --local has no launcher, or one of its own.
        check_ranks(&[("a", &[]), ("a", &[(Slurm, 1, 2)])], Run, &[(0, 2, "a", 0), (1, 2, "a", 1)]);
        check_ranks(&[("a", &[(Torch, 0, 2)]), ("a", &[])], Run, &[(0, 2, "a", 0), (1, 2, "a", 1)]);
        // Torchrun's variables are the training job's where all ranks have their own; mpirun -x
        // RANK gives one to all.
        let own: [(&str, Stated<'_>); 2] = [("a", &[(Torch, 1, 2), (Mpi, 0, 2)]), ("b", &[(Torch, 0, 2), (Mpi, 1, 2)])];
        check_ranks(&own, Torch, &[(1, 2, "a", 0), (0, 2, "b", 1)]);
        let inherited: [(&str, Stated<'_>); 2] =
            [("a", &[(Torch, 0, 2), (Mpi, 0, 2)]), ("b", &[(Torch, 0, 2), (Mpi, 1, 2)])];
        check_ranks(&inherited, Mpi, &[(0, 2, "a", 0), (1, 2, "b", 1)]);
        // Not one launcher for all.
        check_ranks(&[("a", &[(Mpi, 0, 2)]), ("b", &[(Slurm, 1, 2)])], Mpi, &[]);
    }
}
