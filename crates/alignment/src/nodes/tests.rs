//! Whose trace: what decides, what refuses, and what it says then.

use probe_sync_lines::{Launcher, RankRecord};
use probe_sync_time::NodeId;

use super::*;

/// A trace's file with this head; its name says nothing.
struct Traces {
    folder: tempfile::TempDir,
    paths: Vec<PathBuf>,
}

/// A host, and a rank with the size of its job.
type Identity<'a> = (&'a str, Option<(u32, u32)>);

impl Traces {
    /// One trace per host and rank; no host is `""`.
    fn new(identities: &[Identity<'_>]) -> Self {
        Self::marked(identities, None)
    }

    /// The same with an event that states a rank, as in `3/8`.
    fn marked(identities: &[Identity<'_>], marker: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |(index, (host, rank)): (usize, &Identity<'_>)| {
            let path = folder.path().join(format!("trace{index}.json"));
            let host = Some(host).filter(|host| !host.is_empty()).map(|host| format!("\"host_name\": \"{host}\", "));
            let rank =
                rank.map(|(rank, size)| format!("\"distributedInfo\": {{\"rank\": {rank}, \"world_size\": {size}}}, "));
            let head = host.into_iter().chain(rank).collect::<String>();
            let event = r#"{"ph": "X", "ts": 5, "dur": 1, "name": "a"}"#;
            let marker =
                marker.map(|rank| format!(r#", {{"ph": "X", "ts": 5, "dur": 1, "name": "probe_sync.rank#{rank}"}}"#));
            let marker = marker.unwrap_or_default();
            std::fs::write(&path, format!("{{{head}\"traceEvents\": [{event}{marker}]}}")).expect("writable");
            path
        };
        let paths = identities.iter().enumerate().map(write).collect();
        Self { folder, paths }
    }

    fn read(&self, said: &Said<'_>, known: &KnownNodes) -> Result<Vec<NodeTrace>, String> {
        let folder = format!("{}/", self.folder.path().display());
        let read = read(&self.paths, said, known, &MarkFiles::default(), &FactOptions::default());
        read.map(|(traces, _)| traces).map_err(|error| error.to_string().replace(&folder, ""))
    }

    /// Node, part and name of every trace, in the order given.
    fn settled(&self, said: &Said<'_>, known: &KnownNodes) -> Vec<(u32, u32, String, SettledBy)> {
        let traces = self.read(said, known).expect("settled");
        let of = |path: &PathBuf| {
            let trace = traces.iter().find(|trace| trace.path == *path).expect("every path");
            (trace.node, trace.part, trace.name.clone(), trace.settled_by.clone())
        };
        self.paths.iter().map(of).collect()
    }
}

/// Nodes 0, 1, … on these hosts.
fn on_hosts(hosts: &[&str]) -> KnownNodes {
    let hosts: BTreeMap<u32, String> = (0..).zip(hosts.iter().map(|&host| host.to_owned())).collect();
    KnownNodes { nodes: hosts.keys().copied().collect(), hosts, ranks: Vec::new() }
}

/// With torchrun's ranks 0, 1, … of as many, each on a host and a node.
fn with_ranks(known: KnownNodes, ranks: &[(&str, u32)]) -> KnownNodes {
    let record = |(rank, (host, node)): (u32, &(&str, u32))| RankRecord {
        rank,
        world_size: ranks.len() as u32,
        local_rank: Some(rank % 2),
        hostname: (*host).to_owned(),
        node_id: NodeId(*node),
        launcher: Some(Launcher::Torchrun),
        time_namespace: None,
    };
    KnownNodes { ranks: (0..).zip(ranks).map(record).collect(), ..known }
}

/// The same ranks as another launcher's.
fn numbered_by(launcher: Option<Launcher>, mut known: KnownNodes) -> KnownNodes {
    known.ranks.iter_mut().for_each(|record| record.launcher = launcher);
    known
}

const NOTHING_SAID: Said<'_> = Said { nodes: &[], in_order: false, skip_bad: false };

fn named(nodes: &[u32]) -> Said<'_> {
    Said { nodes, in_order: false, skip_bad: false }
}

fn by_host(host: &str) -> SettledBy {
    SettledBy::Host(host.to_owned())
}

fn by_rank(rank: u32, world_size: u32) -> SettledBy {
    SettledBy::Rank { rank, world_size }
}

/// What settles a single trace of this host and rank; a refusal must contain the text.
fn check(known: &KnownNodes, host: &str, rank: Option<(u32, u32)>, expected: Result<(u32, SettledBy), &str>) {
    let traces = Traces::new(&[(host, rank)]);
    match (traces.read(&NOTHING_SAID, known), expected) {
        (Ok(found), Ok((node, by))) => {
            assert_eq!((found[0].node, &found[0].settled_by), (node, &by), "{host} {rank:?}");
        }
        (Err(refused), Err(expected)) => assert!(refused.contains(expected), "{host} {rank:?}: {refused}"),
        (found, expected) => panic!("{host} {rank:?}: {found:?} instead of {expected:?}"),
    }
}

#[test]
fn a_host_settles_it_where_one_node_has_it() {
    let known = on_hosts(&["gpu-0", "gpu-1.cluster.local", "gpu-1.other.local", "twin", "TWIN"]);
    check(&known, "gpu-0", None, Ok((0, by_host("gpu-0"))));
    check(&known, "GPU-0.cluster.local", None, Ok((0, by_host("GPU-0.cluster.local"))));
    check(&known, "gpu-1.cluster.local", None, Ok((1, by_host("gpu-1.cluster.local"))));
    check(&known, "gpu-1.other.local", None, Ok((2, by_host("gpu-1.other.local"))));
    check(&known, "gpu-1.third.local", None, Err("host gpu-1.third.local and no rank"));
    check(&known, "gpu-1", None, Err("host gpu-1 and no rank"));
    check(&known, "twin", None, Err("host twin and no rank"));
    check(&known, "gpu-9", None, Err("host gpu-9 and no rank"));
    check(&known, "", None, Err("no host and no rank"));
    // A number in a name is no fact, with hosts known or not.
    check(&known, "node3", None, Err("host node3"));
    check(&KnownNodes { hosts: BTreeMap::new(), ..known }, "node3", None, Err("host node3"));
}

#[test]
fn a_recorded_rank_settles_it_in_a_job_of_the_same_size() {
    // Eight ranks on four hosts; the launcher went round them.
    let hosts = ["a", "b", "c", "d"];
    let ranks: Vec<(&str, u32)> = (0..8).map(|rank| (hosts[rank % 4], rank as u32 % 4)).collect();
    let known = with_ranks(on_hosts(&hosts), &ranks);
    check(&known, "", Some((6, 8)), Ok((2, by_rank(6, 8))));
    check(&known, "c", Some((6, 8)), Ok((2, by_host("c"))));
    check(&known, "", Some((6, 16)), Err("rank 6 of 16"));
    check(&known, "", Some((8, 9)), Err("rank 8 of 9"));
    // Without a record a rank is no node, however many there are of both.
    check(&on_hosts(&hosts), "", Some((2, 4)), Err("rank 2 of 4"));
    // A rank that was recorded twice was inherited from somewhere.
    let mut twice = known.clone();
    twice.ranks.push(twice.ranks[6].clone());
    check(&twice, "", Some((6, 8)), Err("rank 6 of 8"));
    check(&twice, "", Some((5, 8)), Ok((1, by_rank(5, 8))));
}

#[test]
fn ranks_settle_it_where_all_nodes_are_one_host() {
    let known = with_ranks(on_hosts(&["pc", "pc", "pc"]), &[("pc", 0), ("pc", 1), ("pc", 2)]);
    check(&known, "pc", Some((2, 3)), Ok((2, by_rank(2, 3))));
    check(&known, "", Some((1, 3)), Ok((1, by_rank(1, 3))));
    check(&known, "pc", None, Err("host pc and no rank"));
    check(&known, "pc", Some((1, 2)), Err("rank 1 of 2"));
    // The same rank of another job.
    check(&known, "elsewhere", Some((1, 3)), Err("host elsewhere and rank 1 of 3"));
}

#[test]
fn host_and_rank_that_disagree_are_refused() {
    let known = with_ranks(on_hosts(&["a", "b"]), &[("a", 0), ("b", 1)]);
    let expected = "trace0.json: its host a belongs to node 0, but its rank 1 of 2 was recorded on node 1 by torchrun; choose its node";
    check(&known, "a", Some((1, 2)), Err(expected));
    let three = with_ranks(on_hosts(&["a", "a", "b"]), &[("a", 0), ("a", 1), ("b", 2)]);
    check(&three, "a", Some((2, 3)), Err("belongs to node 0, node 1, but its rank 2 of 3"));
}

/// What settles a trace of this host, torch's rank and marker, and the remark on it; a refusal must
/// contain the text.
fn check_marked(
    known: &KnownNodes,
    (host, rank): Identity<'_>,
    marker: Option<&str>,
    expected: Result<(u32, SettledBy, &str), &str>,
) {
    let traces = Traces::marked(&[(host, rank)], marker);
    match (traces.read(&NOTHING_SAID, known), expected) {
        (Ok(found), Ok((node, by, remark))) => {
            assert_eq!((found[0].node, &found[0].settled_by), (node, &by), "{host} {rank:?} {marker:?}");
            assert_eq!(found[0].facts.notes.join(""), remark, "{host} {rank:?} {marker:?}");
        }
        (Err(refused), Err(expected)) => assert!(refused.contains(expected), "{host} {rank:?} {marker:?}: {refused}"),
        (found, expected) => panic!("{host} {rank:?} {marker:?}: {found:?} instead of {expected:?}"),
    }
}

#[test]
fn a_rank_of_another_launcher_gives_no_trace_to_a_node() {
    // The run was started by mpirun, which numbered the hosts a, b; torchrun of a job of the same
    // size numbered them b, a.
    let run = with_ranks(on_hosts(&["a", "b"]), &[("a", 0), ("b", 1)]);
    let torch = ("", Some((1, 2)));
    check_marked(&run, torch, None, Ok((1, by_rank(1, 2), "")));
    for (launcher, name) in [
        (Some(Launcher::OpenMpi), "in Open MPI's rank numbering, rank 0 of 2"),
        (Some(Launcher::Slurm), "in Slurm's rank numbering"),
        (Some(Launcher::Run), "in the run itself's rank numbering"),
        (None, "in an unknown launcher's rank numbering"),
    ] {
        let run = numbered_by(launcher, run.clone());
        check_marked(&run, torch, None, Err("trace0.json has no host and rank 1 of 2"));
        check_marked(&run, torch, None, Err(name));
        check_marked(
            &run,
            torch,
            None,
            Err("set the job's RANK and WORLD_SIZE for the ranks of the run as well, or have the"),
        );
        // A rank that was recorded by nobody is not in another numbering.
        let of_eight = Traces::new(&[("", Some((1, 8)))]).read(&NOTHING_SAID, &run).expect_err("no such rank");
        assert!(!of_eight.contains("RANK"), "{of_eight}");
        // The program's own word is in the run's numbering, whoever made it.
        check_marked(&run, torch, Some("0/2"), Ok((0, by_rank(0, 2), "")));
        check_marked(&run, ("", None), Some("1/2"), Ok((1, by_rank(1, 2), "")));
        check_marked(&run, torch, Some("1/2"), Ok((1, by_rank(1, 2), "")));
        check_marked(&run, torch, Some("1/4"), Err("and rank 1 of 2; its marker gives rank 1 of 4. The"));
        // The caller's word stands: no fact is against it.
        let said = Traces::new(&[torch]).read(&named(&[0]), &run).expect("the caller knows");
        assert_eq!((said[0].node, said[0].facts.notes.len()), (0, 0));
    }
}

#[test]
fn a_stored_rank_is_compared_with_those_of_its_own_launcher() {
    let run = with_ranks(on_hosts(&["a", "b"]), &[("a", 0), ("b", 1)]);
    let launchers = [Some(Launcher::Torchrun), Some(Launcher::OpenMpi), Some(Launcher::Slurm), None];
    for (stored, recorded) in launchers.iter().flat_map(|stored| launchers.map(|recorded| (*stored, recorded))) {
        let run = numbered_by(recorded, run.clone());
        let identity = probe_sync_formats::model::Identity {
            rank: Some(1),
            world_size: Some(2),
            launcher: stored,
            ..Default::default()
        };
        let settled = run.settle(Path::new("1_results.db"), &identity).expect("nothing disagrees");
        let expected = Some(1).filter(|_| stored.is_some() && stored == recorded);
        assert_eq!(settled.map(|settled| settled.node), expected, "{stored:?} {recorded:?}");
    }
}

#[test]
fn a_rank_of_another_launcher_decides_among_the_nodes_of_the_traces_host() {
    // Two nodes per host: whichever of them it is, their clock is one.
    let known = with_ranks(on_hosts(&["a", "a", "b", "b"]), &[("a", 0), ("a", 1), ("b", 2), ("b", 3)]);
    let known = numbered_by(Some(Launcher::Slurm), known);
    check_marked(&known, ("b", Some((3, 4))), None, Ok((3, by_rank(3, 4), "")));
    check_marked(&known, ("b", Some((1, 4))), None, Err("has host b and rank 1 of 4"));
    check_marked(&known, ("b", None), None, Err("has host b and no rank"));
    check_marked(&known, ("b", Some((1, 4))), Some("2/4"), Ok((2, by_rank(2, 4), "")));
    // Every machine calls itself so.
    let anywhere = numbered_by(
        Some(Launcher::Run),
        with_ranks(on_hosts(&["localhost"; 2]), &[("localhost", 0), ("localhost", 1)]),
    );
    check_marked(&anywhere, ("localhost", Some((1, 2))), None, Err("has host localhost and rank 1 of 2"));
    check_marked(&anywhere, ("localhost", None), Some("1/2"), Ok((1, by_rank(1, 2), "")));
}

#[test]
fn a_host_counts_and_a_rank_of_another_launcher_is_remarked() {
    let known = with_ranks(on_hosts(&["a", "b"]), &[("a", 0), ("b", 1)]);
    let mpi = numbered_by(Some(Launcher::OpenMpi), known.clone());
    let remark = "its host belongs to node 0, but rank 1 of 2 was recorded on node 1 by Open MPI, so the ranks are numbered differently";
    check_marked(&mpi, ("a", Some((1, 2))), None, Ok((0, by_host("a"), remark)));
    check_marked(&mpi, ("a", Some((0, 2))), None, Ok((0, by_host("a"), "")));
    check_marked(&mpi, ("a", Some((5, 9))), None, Ok((0, by_host("a"), "")));
    // A run of an earlier version does not say whose numbers they are.
    let remark =
        "its host belongs to node 0, but rank 1 of 2 was recorded on node 1, so the ranks are numbered differently";
    check_marked(&numbered_by(None, known.clone()), ("a", Some((1, 2))), None, Ok((0, by_host("a"), remark)));
    // The program's word is in the run's numbering.
    let expected = "its host a belongs to node 0, but its rank 1 of 2 was recorded on node 1 by Open MPI";
    check_marked(&mpi, ("a", None), Some("1/2"), Err(expected));
}

#[test]
fn a_marker_and_a_profiler_that_disagree_are_refused() {
    let known = with_ranks(on_hosts(&["a", "b"]), &[("a", 0), ("b", 1)]);
    let both = "rank 0 of 2 was recorded on node 0 by torchrun, but its rank 1 of 2 was recorded on node 1 by torchrun";
    check_marked(&known, ("", Some((1, 2))), Some("0/2"), Err(both));
    // Two ranks of one node say the same.
    let one = with_ranks(on_hosts(&["a", "b"]), &[("a", 0), ("a", 0), ("b", 1)]);
    check_marked(&one, ("", Some((1, 3))), Some("0/3"), Ok((0, by_rank(0, 3), "")));
    // The caller decides between them, and cannot name a third.
    let three = with_ranks(on_hosts(&["a", "b", "c"]), &[("a", 0), ("b", 1), ("c", 2)]);
    let traces = Traces::marked(&[("", Some((1, 3)))], Some("0/3"));
    for node in [0, 1] {
        assert_eq!(traces.read(&named(&[node]), &three).expect("one of them")[0].node, node);
    }
    let refused = traces.read(&named(&[2]), &three).expect_err("neither");
    assert!(refused.contains("is from rank 0 of 3, which the run recorded on node 0, not node 2"), "{refused}");
}

#[test]
fn hosts_of_ranks_that_follow_a_node_count_too() {
    // Two containers on one host: one clock, two names.
    let known = with_ranks(on_hosts(&["pod-a", "pod-c"]), &[("pod-a", 0), ("pod-b", 0), ("pod-c", 1)]);
    check(&known, "pod-b", None, Ok((0, by_host("pod-b"))));
    check(&known, "pod-b", Some((1, 3)), Ok((0, by_host("pod-b"))));
}

#[test]
fn ranks_that_sort_as_text_get_their_own_nodes() {
    // Ranks 0, 8, …, 56 of 64 on eight hosts; a list sorts them as 0, 16, 24, …, 56, 8.
    let hosts: Vec<String> = (0..8).map(|node| format!("gpu-{node}")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let ranks: Vec<(&str, u32)> = (0..64).map(|rank| (hosts[rank / 8], rank as u32 / 8)).collect();
    let known = with_ranks(on_hosts(&hosts), &ranks);
    let sorted = [0, 16, 24, 32, 40, 48, 56, 8];
    let identities: Vec<_> = sorted.iter().map(|rank| ("", Some((*rank, 64)))).collect();
    let settled = Traces::new(&identities).settled(&NOTHING_SAID, &known);
    let nodes: Vec<u32> = settled.iter().map(|(node, ..)| *node).collect();
    assert_eq!(nodes, [0, 2, 3, 4, 5, 6, 7, 1]);
    assert_eq!((settled[1].1, settled[1].2.as_str()), (16, "rank 16 (node 2)"));
}

#[test]
fn traces_that_no_fact_settles_are_refused_with_what_is_known() {
    let known = with_ranks(on_hosts(&["a", "b"]), &[("a", 0), ("b", 1)]);
    let traces = Traces::new(&[("a", None), ("", Some((1, 8))), ("x", None)]);
    let refused = traces.read(&NOTHING_SAID, &known).expect_err("two say nothing that is known");
    assert_eq!(
        refused,
        "cannot tell which node wrote 2 of the 3 traces: trace1.json has no host and rank 1 of 8, trace2.json has host x and no rank. \
         The offsets have node 0 on a, node 1 on b; in torchrun's rank numbering, rank 0 of 2 (local rank 0) on a is node 0, rank 1 of 2 (local rank 1) on b is node 1. \
         Give --nodes with one of these numbers per trace, in the order of --traces"
    );
    let alone = Traces::new(&[("x", None), ("y", None)]).read(&NOTHING_SAID, &on_hosts(&["a", "b"]));
    let refused = alone.expect_err("as many traces as nodes settle nothing");
    assert!(refused.contains("; no ranks were recorded. Give --nodes"), "{refused}");
    assert!(refused.ends_with(", or --assume-order if the list is in the order of the nodes"), "{refused}");
    let many = on_hosts(&["h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8", "h9"]);
    let refused = Traces::new(&[("", None); 9]).read(&NOTHING_SAID, &many).expect_err("nothing is said");
    assert!(refused.contains("trace7.json has no host and no rank and 1 more. The offsets have"), "{refused}");
    assert!(refused.contains("node 7 on h7 and 2 more; no ranks"), "{refused}");
}

#[test]
fn the_callers_word_counts_unless_a_fact_says_otherwise() {
    let known = with_ranks(on_hosts(&["a", "b", "c", "c"]), &[("a", 0), ("b", 1), ("c", 2), ("c", 3)]);
    let check = |host: &str, rank: Option<(u32, u32)>, node: u32, expected: Result<&str, &str>| {
        let traces = Traces::new(&[(host, rank)]);
        match (traces.read(&named(&[node]), &known), expected) {
            (Ok(found), Ok(note)) => {
                assert_eq!((found[0].node, &found[0].settled_by), (node, &SettledBy::Caller));
                assert_eq!(found[0].facts.notes.join(""), note, "{host} {rank:?} {node}");
            }
            (Err(refused), Err(expected)) => assert!(refused.contains(expected), "{refused}"),
            (found, _) => panic!("{host} {rank:?} {node}: {found:?}"),
        }
    };
    check("", None, 2, Ok(""));
    check("b", None, 1, Ok(""));
    check("c", None, 3, Ok(""));
    check("", Some((2, 4)), 2, Ok(""));
    check("", Some((2, 64)), 1, Ok(""));
    check("pod", None, 1, Ok("host pod does not appear in the offsets; assuming node 1"));
    check("b", None, 0, Err("trace0.json was written on b, which is node 1, not node 0"));
    check("c", None, 0, Err("was written on c, which is node 2, node 3, not node 0"));
    check("", Some((2, 4)), 1, Err("is from rank 2 of 4, which the run recorded on node 2, not node 1"));
    check("c", Some((2, 4)), 3, Err("is from rank 2 of 4, which the run recorded on node 2, not node 3"));
    // Another launcher may number its ranks otherwise; the host says what the caller says.
    check("b", Some((2, 4)), 1, Ok(""));
    check("", None, 9, Ok(""));
    // Where no hosts are known, one that is stated says nothing.
    let bare = KnownNodes { nodes: [0, 1].into(), ..KnownNodes::default() };
    let traces = Traces::new(&[("pod", None)]);
    assert_eq!(traces.read(&named(&[1]), &bare).expect("a number")[0].facts.notes, Vec::<String>::new());
}

#[test]
fn as_many_numbers_as_traces_are_wanted() {
    let traces = Traces::new(&[("", None), ("", None)]);
    let refused = traces.read(&named(&[1]), &on_hosts(&["a", "b"])).expect_err("one is missing");
    assert_eq!(refused, "2 traces, but 1 node numbers");
}

#[test]
fn the_order_counts_only_where_the_caller_says_so() {
    let in_order = Said { nodes: &[], in_order: true, skip_bad: false };
    let known = KnownNodes { nodes: [0, 3, 7].into(), ..KnownNodes::default() };
    let settled = Traces::new(&[("x", None), ("", Some((1, 9))), ("", None)]).settled(&in_order, &known);
    let nodes: Vec<_> = settled.into_iter().map(|(node, _, _, by)| (node, by)).collect();
    assert_eq!(nodes, [0, 3, 7].map(|node| (node, SettledBy::ListOrder)));
    let refused = Traces::new(&[("", None)]).read(&in_order, &known).expect_err("three nodes");
    assert!(
        refused.contains("one trace per node: there are 1 traces, but the offsets have node 0, node 3, node 7"),
        "{refused}"
    );
    let refused = Traces::new(&[("", None)]).read(&in_order, &KnownNodes::default()).expect_err("no nodes");
    assert!(refused.contains("needs --run-dir or --offsets"), "{refused}");
    // Facts that say otherwise win.
    let refused = Traces::new(&[("b", None), ("", None)]).read(&in_order, &on_hosts(&["a", "b"]));
    assert!(refused.expect_err("b is node 1").contains("written on b, which is node 1, not node 0"));
}

#[test]
fn without_offsets_traces_are_told_apart_and_nothing_is_claimed() {
    let traces = Traces::new(&[("a", Some((1, 4))), ("b", None), ("", None), ("", Some((0, 4)))]);
    let settled = traces.settled(&NOTHING_SAID, &KnownNodes::default());
    let expected = [(1, "rank 1 (a)"), (2, "node 2 (b)"), (3, "node 3"), (0, "rank 0")];
    let expected = expected.map(|(part, name)| (part, part, name.to_owned(), SettledBy::Nothing));
    assert_eq!(settled, expected);
    let sorted = traces.read(&NOTHING_SAID, &KnownNodes::default()).expect("read");
    assert_eq!(sorted.iter().map(|trace| trace.node).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn a_rank_is_called_a_rank_and_a_node_a_node() {
    // Rank 2 is on node 1.
    let known = with_ranks(on_hosts(&["a", "b"]), &[("a", 0), ("a", 0), ("b", 1), ("b", 1)]);
    let traces = Traces::new(&[("b", Some((2, 4))), ("", Some((3, 4))), ("a", None), ("a", Some((0, 4)))]);
    let settled = traces.settled(&NOTHING_SAID, &known);
    let names: Vec<&str> = settled.iter().map(|(_, _, name, _)| name.as_str()).collect();
    assert_eq!(names, ["rank 2 (node 1, b)", "rank 3 (node 1)", "node 0 (a)", "rank 0 (node 0, a)"]);
    let parts: Vec<u32> = settled.iter().map(|(_, part, ..)| *part).collect();
    assert_eq!(parts, [2, 3, 1, 0], "node 0 is taken by rank 0");
    let order = traces.read(&NOTHING_SAID, &known).expect("read");
    let titles: Vec<String> = order.iter().map(NodeTrace::title).collect();
    assert_eq!(titles, ["rank 0 · a", "node 0 · a", "rank 2 · b", "rank 3"]);
    assert_eq!(
        order.iter().map(|trace| (trace.node, trace.part)).collect::<Vec<_>>(),
        [(0, 0), (0, 1), (1, 2), (1, 3)]
    );
}

#[test]
fn parts_are_nodes_where_no_ranks_are() {
    let traces = Traces::new(&[("", None), ("", None), ("", None)]);
    let settled = traces.settled(&named(&[5, 0, 5]), &on_hosts(&["a"; 6]));
    assert_eq!(settled.iter().map(|(node, part, ..)| (*node, *part)).collect::<Vec<_>>(), [(5, 5), (0, 0), (5, 1)]);
    assert_eq!(settled[2].2, "node 5");
}

#[test]
fn two_traces_of_one_rank_are_refused() {
    let traces = Traces::new(&[("", Some((3, 4))), ("", Some((3, 4)))]);
    let refused = traces.read(&NOTHING_SAID, &KnownNodes::default()).expect_err("one rank twice");
    assert!(refused.starts_with("trace0.json and trace1.json are both from rank 3 and overlap in time"), "{refused}");
}

#[test]
fn what_settled_it_can_be_read() {
    for (by, expected) in [
        (SettledBy::Caller, "--nodes"),
        (SettledBy::ListOrder, "--assume-order"),
        (SettledBy::Marks { rank: 2, world_size: 8 }, "its marks, written by rank 2 of 8 of the run"),
        (by_host("a"), "its host a, on which the run recorded only this node"),
        (by_rank(3, 8), "its rank 3 of 8, which the run recorded on this node"),
        (SettledBy::Nothing, "nothing"),
    ] {
        assert_eq!(by.to_string(), expected);
    }
}

/// A CSV of offsets names neither hosts nor ranks: a job of as many ranks is numbered as its nodes
/// are.
#[test]
fn ranks_of_a_job_as_large_as_unnamed_offsets_are_the_nodes() {
    let unnamed = |nodes: &[u32]| KnownNodes { nodes: nodes.iter().copied().collect(), ..KnownNodes::default() };
    let traces = Traces::new(&[("a", Some((1, 2))), ("a", Some((0, 2)))]);
    let settled = traces.settled(&Said::default(), &unnamed(&[0, 1]));
    let nodes: Vec<u32> = settled.iter().map(|(node, ..)| *node).collect();
    assert_eq!(nodes, [1, 0]);
    assert_eq!(settled[0].3, SettledBy::RankOfAsMany { rank: 1, world_size: 2 });
    // More nodes than ranks, numbers with a gap, hosts that are named: nothing says that ranks are
    // nodes.
    for known in [unnamed(&[0, 1, 2]), unnamed(&[0, 2]), on_hosts(&["b", "c"])] {
        let refused = traces.read(&Said::default(), &known).expect_err("refused");
        assert!(refused.contains("--nodes"), "{refused}");
    }
}
