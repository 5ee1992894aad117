//! The findings of `doctor --peers`: a line per host, and the problems.
//!
//! Rank 0 builds the survey from every host's description of itself, the report of the short run
//! and the last fits of its edges.
//!
//! Packets by direction tell who reaches whom: they are counted where they leave and where they
//! arrive. A node answers only what arrives, so a direction in which nothing was sent says nothing.
//! Signs of the asymmetry: an edge's θ minus the difference of its ends' offsets; two nodes alone
//! have none, whatever their path is like.

use std::collections::BTreeMap;

use probe_sync::report::{DirectionPackets, RunReport};
use probe_sync_lines::EdgeFit;
use probe_sync_sys::doctor::{Fact, Level, TimeSync, examine};
use probe_sync_time::NodeId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a rank's host, as reported by the rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HostState {
    /// Time synchronisation of the host's clock.
    pub time_sync: TimeSync,
    /// The kernel's clock source.
    pub clock_source: Option<String>,
    /// Everything that `doctor` finds on the host.
    pub facts: Vec<Fact>,
}

/// Latest fit of an edge.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct EdgeSeen {
    pub src: NodeId,
    pub dst: NodeId,
    /// θ, ns.
    pub theta_ns: f64,
    /// Half the smallest round trip, ns.
    pub delay_ns: f64,
}

/// Output of `probe_sync doctor --peers --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Survey {
    /// Version of this document.
    schema: u32,
    /// Hosts, indexed by node.
    pub hosts: Vec<HostRow>,
    /// Packets in each probed direction.
    pub directions: Vec<DirectionPackets>,
    /// Problems found, worst first.
    pub findings: Vec<Fact>,
    /// Standard deviation of path asymmetry, estimated from loops, ns.
    pub asymmetry_sd_ns: f64,
}

/// One host: a line of the table.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HostRow {
    pub node_id: NodeId,
    pub rank: u32,
    pub host: String,
    /// Nodes to which it sent packets, and how many of them received any.
    pub reaches: Reached,
    /// Nodes that sent packets to it, and from how many it received any.
    pub reached_by: Reached,
    /// Share of lost packets: of those sent to others, and of those sent by others.
    pub lost: [f64; 2],
    /// Median over the host's edges of half the smallest round trip, ns.
    pub delay_ns: Option<f64>,
    /// Largest |θ − difference of the offsets| over the host's edges, ns.
    pub asymmetry_ns: Option<f64>,
    pub stamp: &'static str,
    pub clock_source: Option<String>,
    pub time_sync: TimeSync,
}

/// Number of nodes reached, out of those tried.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Reached {
    pub reached: usize,
    pub of: usize,
}

impl HostState {
    /// Returns the state of this host.
    pub fn own() -> Self {
        let clock_source = probe_sync_sys::doctor::clock_source();
        Self { time_sync: TimeSync::read(), clock_source, facts: examine() }
    }
}

impl EdgeSeen {
    pub fn of(edge: &EdgeFit) -> Self {
        Self { src: edge.src_node_id, dst: edge.dst_node_id, theta_ns: edge.beta, delay_ns: edge.margin_ns }
    }
}

impl Survey {
    /// Builds the survey; `states` is indexed by rank.
    pub(super) fn new(states: &[HostState], report: &RunReport, edges: &[EdgeSeen]) -> Self {
        let hosts: Vec<HostRow> = report.nodes.iter().map(|node| row(node, states, report, edges)).collect();
        let mut findings = unreached(&hosts, report);
        findings.extend(losses(&hosts, &report.packets));
        findings.extend(of_hosts(&hosts, states));
        findings.extend(different_daemons(&hosts));
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
        Self { schema: 1, hosts, directions: report.packets.clone(), findings, asymmetry_sd_ns: report.asymmetry_sd_ns }
    }

    /// Returns the number of findings that prevent a measurement.
    pub fn failures(&self) -> usize {
        self.findings.iter().filter(|finding| finding.level == Level::Fail).count()
    }
}

fn row(node: &probe_sync::report::NodeRow, states: &[HostState], report: &RunReport, edges: &[EdgeSeen]) -> HostRow {
    let own = node.node_id;
    let state = states.get(node.rank as usize);
    let touching: Vec<&EdgeSeen> = edges.iter().filter(|edge| edge.src == own || edge.dst == own).collect();
    let offset = |node: NodeId| report.nodes.get(node.index()).filter(|node| node.reachable).map(|node| node.offset_ns);
    let asymmetry = |edge: &&&EdgeSeen| Some((edge.theta_ns - (offset(edge.dst)? - offset(edge.src)?)).abs());
    let delays: Vec<f64> = touching.iter().map(|edge| edge.delay_ns).collect();
    let directions = |outward: bool| {
        report.packets.iter().filter(move |way| way.sent > 0 && own == if outward { way.src } else { way.dst })
    };
    HostRow {
        node_id: own,
        rank: node.rank,
        host: node.host.clone(),
        reaches: reached(directions(true)),
        reached_by: reached(directions(false)),
        lost: [share_lost(directions(true)), share_lost(directions(false))],
        delay_ns: (!delays.is_empty()).then(|| probe_sync::report::median(delays)),
        asymmetry_ns: touching.iter().filter_map(|edge| asymmetry(&edge)).reduce(f64::max),
        stamp: node.stamp.as_str(),
        clock_source: state.and_then(|state| state.clock_source.clone()),
        time_sync: state.map(|state| state.time_sync.clone()).unwrap_or_default(),
    }
}

fn reached<'a>(directions: impl Iterator<Item = &'a DirectionPackets>) -> Reached {
    directions.fold(Reached::default(), |sum, way| Reached {
        reached: sum.reached + usize::from(way.received > 0),
        of: sum.of + 1,
    })
}

fn share_lost<'a>(directions: impl Iterator<Item = &'a DirectionPackets>) -> f64 {
    let (sent, received) = directions.fold((0, 0), |(sent, received), way| (sent + way.sent, received + way.received));
    if sent == 0 { 0.0 } else { sent.saturating_sub(received) as f64 / sent as f64 }
}

/// Finds nodes that receive no packets, then single directions in which no packet arrives.
fn unreached(hosts: &[HostRow], report: &RunReport) -> Vec<Fact> {
    let name = |node: NodeId| named(hosts, node);
    let deaf =
        |node: NodeId| hosts.get(node.index()).is_some_and(|row| row.reached_by.of > 0 && row.reached_by.reached == 0);
    let mut found = Vec::new();
    for row in hosts.iter().filter(|row| deaf(row.node_id)) {
        let Reached { of, .. } = row.reached_by;
        let finding = format!("{of} other nodes sent packets to {}, and none arrived", name(row.node_id));
        found.push(Fact::fail(
            "firewall",
            finding,
            "allow incoming UDP there (--port fixes the port), or choose another --interface",
        ));
    }
    for way in report.packets.iter().filter(|way| way.sent > 0 && way.received == 0 && !deaf(way.dst)) {
        let finding = format!("{} packets from {} to {}, none arrived", way.sent, name(way.src), name(way.dst));
        found.push(Fact::fail("reachability", finding, "check the firewalls and routes between the two"));
    }
    for peer in &report.unreachable_peers {
        let finding =
            format!("{} cannot send to {} at {}: {}", name(peer.src), name(peer.dst), peer.address, peer.reason);
        found.push(Fact::fail(
            "reachability",
            finding,
            "check the routes of both hosts, or choose another --interface",
        ));
    }
    let silent = |row: &&HostRow| row.reaches.of == 0 && row.reached_by.of == 0 && hosts.len() > 1;
    for row in hosts.iter().filter(silent) {
        let finding = format!("{} exchanged no packets with any node", name(row.node_id));
        found.push(Fact::fail("reachability", finding, "was the run cut short? Try again, or with --duration 10s"));
    }
    found
}

/// Finds directions that lose packets, and compares each with the opposite direction.
fn losses(hosts: &[HostRow], packets: &[DirectionPackets]) -> Vec<Fact> {
    let lost = |way: &DirectionPackets| share_lost(std::iter::once(way));
    let lossy = packets.iter().filter(|way| way.received > 0 && lost(way) > LOSS_NAMED);
    let told = |way: &DirectionPackets| {
        let back = packets.iter().find(|back| (back.src, back.dst) == (way.dst, way.src)).map_or(0.0, lost);
        let one_way = if back <= LOSS_NAMED { "one-way loss" } else { "loss" };
        let (src, dst) = (named(hosts, way.src), named(hosts, way.dst));
        let finding = format!("{:.1} % from {src} to {dst}, {:.1} % back", 100.0 * lost(way), 100.0 * back);
        Fact::warn(
            one_way,
            finding,
            "possible causes: a bad cable, a full queue or a busy host; offsets get wider intervals",
        )
    };
    lossy.map(told).collect()
}

/// Collects what `doctor` finds on single hosts: each finding once, with the hosts concerned.
fn of_hosts(hosts: &[HostRow], states: &[HostState]) -> Vec<Fact> {
    let mut groups: BTreeMap<(String, String), (Fact, Vec<&str>)> = BTreeMap::new();
    for row in hosts {
        for fact in states.get(row.rank as usize).into_iter().flat_map(|state| &state.facts) {
            if fact.level == Level::Ok {
                continue;
            }
            let advice = fact.advice.clone().unwrap_or_default();
            let group = groups.entry((fact.topic.clone(), advice)).or_insert_with(|| (fact.clone(), Vec::new()));
            group.0.level = group.0.level.max(fact.level);
            group.1.push(&row.host);
        }
    }
    let told = |(mut fact, on): (Fact, Vec<&str>)| {
        fact.finding = format!("{}: {}", some_of(&on), fact.finding);
        fact
    };
    groups.into_values().map(told).collect()
}

/// Warns if hosts are synchronised by different programs, since their clocks then drift apart in
/// different ways.
fn different_daemons(hosts: &[HostRow]) -> Option<Fact> {
    let mut by_daemons: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    hosts.iter().for_each(|row| by_daemons.entry(row.time_sync.to_string()).or_default().push(&row.host));
    let told: Vec<String> = by_daemons.iter().map(|(daemons, on)| format!("{daemons} on {}", some_of(on))).collect();
    let advice =
        "using the same time daemon on all hosts keeps offsets small and steady; probe_sync measures them either way";
    (by_daemons.len() > 1).then(|| Fact::warn("time sync", told.join("; "), advice))
}

fn named(hosts: &[HostRow], node: NodeId) -> String {
    hosts.get(node.index()).map_or_else(|| node.to_string(), |row| format!("{node} ({})", row.host))
}

fn some_of(hosts: &[&str]) -> String {
    let more = hosts.len().saturating_sub(HOSTS_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    hosts.iter().take(HOSTS_NAMED).copied().collect::<Vec<_>>().join(", ") + &more
}

/// Loss above this share is reported.
const LOSS_NAMED: f64 = 0.01;
const HOSTS_NAMED: usize = 4;

#[cfg(test)]
pub(super) mod tests {
    use probe_sync::report::{NodeRow, UnreachablePeer};
    use probe_sync_time::StampSource;

    use super::*;

    fn node(node: u32, offset_ns: f64) -> NodeRow {
        NodeRow {
            node_id: NodeId(node),
            rank: node,
            host: format!("host{node}"),
            stamp: StampSource::Kernel,
            reachable: true,
            clock_disturbed: false,
            offset_ns,
            drift_ppm: 0.0,
            half_width_95_ns: 1.0,
            hard_interval_ns: [None; 2],
            edges: 1,
            lost: 0,
            true_offset_ns: None,
            error_ns: None,
            bounds_held: None,
        }
    }

    fn state(daemons: &[&str], facts: Vec<Fact>) -> HostState {
        let daemons = daemons.iter().map(|name| (*name).to_owned()).collect();
        let time_sync = TimeSync { daemons, synchronized: Some(true) };
        HostState { time_sync, clock_source: Some("tsc".into()), facts }
    }

    /// Builds a survey of three hosts from packet counts: source, destination, sent, received.
    pub fn survey(packets: &[(u32, u32, u64, u64)]) -> Survey {
        survey_of(packets, &["chronyd"; 3], Vec::new(), &[])
    }

    fn survey_of(
        packets: &[(u32, u32, u64, u64)],
        daemons: &[&str; 3],
        unreachable_peers: Vec<UnreachablePeer>,
        edges: &[EdgeSeen],
    ) -> Survey {
        let way = |&(src, dst, sent, received): &(u32, u32, u64, u64)| DirectionPackets {
            src: NodeId(src),
            dst: NodeId(dst),
            sent,
            received,
            lost: sent as i64 - received as i64,
        };
        let report = RunReport {
            schema: probe_sync::report::SCHEMA,
            run_id: String::new(),
            backend: "tcp".into(),
            ranks: 3,
            reference: NodeId(0),
            rounds: 4,
            round_mode: "master".into(),
            taken_over: None,
            carriers: Vec::new(),
            phases: Vec::new(),
            interrupted: false,
            error: None,
            out: String::new(),
            nodes: vec![node(0, 0.0), node(1, 1000.0), node(2, -500.0)],
            truth: None,
            absences: Vec::new(),
            packets: packets.iter().map(way).collect(),
            unreachable_peers,
            never_reached: Vec::new(),
            counters: BTreeMap::new(),
            cpu_cores: 0.0,
            seconds: 4.0,
            round_latency_us: [0.0; 2],
            clock_events: Vec::new(),
            faults: Vec::new(),
            faults_by_kind: BTreeMap::new(),
            asymmetry_sd_ns: 7.0,
            pacing: None,
            files: Vec::new(),
            unwritten: Vec::new(),
        };
        let slow = |source: &str| Fact::warn("clock source", source, "boot with clocksource=tsc");
        let facts = [vec![slow("hpet")], vec![Fact::ok("privileges", "none")], vec![slow("acpi_pm")]];
        let states: Vec<HostState> =
            facts.into_iter().zip(daemons).map(|(facts, name)| state(&[*name], facts)).collect();
        Survey::new(&states, &report, edges)
    }

    const ALL: [(u32, u32, u64, u64); 6] =
        [(0, 1, 100, 100), (1, 0, 100, 100), (0, 2, 100, 100), (2, 0, 100, 100), (1, 2, 100, 100), (2, 1, 100, 100)];

    fn check(packets: &[(u32, u32, u64, u64)], failures: usize, parts: &[&str]) {
        let survey = survey(packets);
        let told: Vec<String> =
            survey.findings.iter().map(|fact| format!("{}: {}", fact.topic, fact.finding)).collect();
        assert_eq!(survey.failures(), failures, "{told:#?}");
        for part in parts {
            assert!(told.iter().any(|text| text.contains(part)), "{told:#?} lacks {part}");
        }
        assert!(survey.findings.is_sorted_by_key(|finding| std::cmp::Reverse(finding.level)), "worst first: {told:#?}");
    }

    #[test]
    fn what_does_not_arrive_is_named_with_its_direction() {
        let with = |changes: &[(u32, u32, u64, u64)]| {
            ALL.map(|way| changes.iter().copied().find(|new| (new.0, new.1) == (way.0, way.1)).unwrap_or(way))
        };
        check(&ALL, 0, &["clock source: host0, host2: hpet"]);
        // Nothing gets into host2, and so it answers nobody.
        check(
            &with(&[(0, 2, 100, 0), (1, 2, 100, 0), (2, 0, 0, 0), (2, 1, 0, 0)]),
            1,
            &["firewall: 2 other nodes sent packets to 2 (host2)"],
        );
        check(
            &with(&[(0, 2, 100, 0), (2, 0, 0, 0)]),
            1,
            &["reachability: 100 packets from 0 (host0) to 2 (host2), none"],
        );
        check(&with(&[(1, 2, 100, 70)]), 0, &["one-way loss: 30.0 % from 1 (host1) to 2 (host2), 0.0 % back"]);
        check(
            &with(&[(1, 2, 100, 70), (2, 1, 100, 80)]),
            0,
            &["loss: 20.0 % from 2 (host2) to 1 (host1), 30.0 % back"],
        );
        check(&with(&[(1, 2, 100, 99)]), 0, &[]);
        check(&ALL[..2], 1, &["2 (host2) exchanged no packets with any node"]);
    }

    #[test]
    fn lines_count_peers_and_losses_and_show_delay_and_asymmetry() {
        let edge = |src, dst, theta_ns, delay_ns| EdgeSeen { src: NodeId(src), dst: NodeId(dst), theta_ns, delay_ns };
        // offset_1 − offset_0 = 1000, offset_2 − offset_0 = −500, offset_2 − offset_1 = −1500.
        let edges = [edge(0, 1, 1030.0, 200.0), edge(0, 2, -500.0, 300.0), edge(1, 2, -1520.0, 400.0)];
        let mut packets = ALL;
        packets[0].3 = 90;
        let survey = survey_of(&packets, &["chronyd"; 3], Vec::new(), &edges);
        let row = &survey.hosts[0];
        assert_eq!((row.reaches, row.reached_by), (Reached { reached: 2, of: 2 }, Reached { reached: 2, of: 2 }));
        assert_eq!((row.lost, row.delay_ns, row.asymmetry_ns), ([0.05, 0.0], Some(300.0), Some(30.0)));
        assert_eq!(survey.hosts[2].asymmetry_ns, Some(20.0));
        assert_eq!((row.stamp, row.clock_source.as_deref()), ("kernel", Some("tsc")));
    }

    #[test]
    fn hosts_that_are_steered_differently_and_refused_sends_are_named() {
        let peer = UnreachablePeer {
            src: NodeId(0),
            dst: NodeId(1),
            address: "10.0.0.1:7".into(),
            reason: "No route to host".into(),
        };
        let survey = survey_of(&ALL, &["chronyd", "phc2sys", "chronyd"], vec![peer], &[]);
        let told = |topic: &str| {
            let found = survey.findings.iter().find(|fact| fact.topic == topic);
            found.unwrap_or_else(|| panic!("no {topic}: {:#?}", survey.findings)).finding.clone()
        };
        assert_eq!(told("time sync"), "chronyd, synchronized on host0, host2; phc2sys, synchronized on host1");
        assert_eq!(told("reachability"), "0 (host0) cannot send to 1 (host1) at 10.0.0.1:7: No route to host");
    }
}
