//! The choice of the address from which every node probes.
//!
//! The root chooses when it has all offers, as part of the plan; a node that receives only its
//! destinations queries its own routes when it binds ([`Source::address`]). The order of preference
//! is: loopback if it reaches all; the addresses of the connections to rank 0, if they are in one
//! network; the network that all hosts share; the addresses of those connections regardless; the
//! way to rank 0's address by the hosts' routes. Explicitly named interfaces and addresses always
//! take precedence.
//!
//! It does not test whether packets get through; the probes show that.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};

use probe_sync_sys::interfaces::address_towards;
use serde::{Deserialize, Serialize};

use super::offer::{Candidate, Offer};
use super::wish::same_network;

/// Address from which a node probes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// This address.
    Address {
        /// The address.
        ip: IpAddr,
        /// Index of the interface, if the address is link-local.
        scope_id: u32,
    },
    /// The address that its route to this address uses.
    Towards(IpAddr),
}

/// A node's host name and its offer.
pub(super) type Offering<'a> = (&'a str, &'a Offer);

/// Chooses a source for every node, and explains why. With `loopback`, loopback reaches all nodes.
///
/// # Errors
/// Returns an error if nothing shows how the nodes reach each other: what every host has, and what
/// to do.
pub(super) fn choose(nodes: &[Offering<'_>], loopback: bool) -> Result<(Vec<Source>, String), String> {
    if loopback {
        let own = |(_, offer): &Offering<'_>| match offer.candidates.first().filter(|_| offer.named) {
            Some(candidate) => Source::from(candidate),
            None => Source::Address { ip: Ipv4Addr::LOCALHOST.into(), scope_id: 0 },
        };
        return Ok((nodes.iter().map(own).collect(), "loopback: all ranks are on one host".to_owned()));
    }
    if let Some((node, (host, offer))) = nodes.iter().enumerate().find(|(_, (_, offer))| offer.candidates.is_empty()) {
        return Err(format!("node {node} on {host} has no address to probe from: {}; {ADVICE}", offer.listed()));
    }
    let connections = connections_to_root(nodes);
    connections
        .clone()
        .filter(|(sources, _)| in_one_network(sources, nodes))
        .or_else(|| shared_network(nodes))
        .or(connections)
        .or_else(|| all_named(nodes))
        .or_else(|| routes_to_root(nodes))
        .ok_or_else(|| refusal(nodes))
}

/// Returns the sources of all nodes, where `chosen` are those of the nodes that have joined: a
/// `missing` node uses its route to the address of node `root`.
pub(super) fn with_missing(chosen: Vec<Source>, missing: &[bool], root: usize) -> Vec<Source> {
    let before = missing.iter().take(root).filter(|missing| !**missing).count();
    let of_root = chosen.get(before).cloned();
    let towards = of_root.map(|source| match source {
        Source::Address { ip, .. } if !ip.is_loopback() => Source::Towards(ip),
        own => own,
    });
    let mut chosen = chosen.into_iter();
    missing.iter().filter_map(|missing| if *missing { towards.clone() } else { chosen.next() }).collect()
}

impl Source {
    /// Returns true if only ranks of the same host can reach it.
    pub(super) fn is_loopback(&self) -> bool {
        matches!(self, Self::Address { ip, .. } if ip.is_loopback())
    }

    /// Returns the address to bind, with port `port`.
    ///
    /// # Errors
    /// Returns an error if no route leads to rank 0, or the route starts from an address that was
    /// ruled out.
    pub(crate) fn address(&self, offer: &Offer, port: u16) -> Result<SocketAddr, String> {
        let (ip, scope_id) = match *self {
            Self::Address { ip, scope_id } => (ip, scope_id),
            Self::Towards(root) => {
                let unreachable = |reason: String| format!("rank 0 at {root}: {reason}; {}; {ADVICE}", offer.listed());
                let found =
                    address_towards(SocketAddr::new(root, ANY_PORT)).map_err(|error| unreachable(error.to_string()))?;
                let known = offer.candidates.iter().find(|candidate| candidate.ip == found);
                let known = known.ok_or_else(|| unreachable(format!("the route there leaves from {found}")))?;
                (known.ip, known.scope_id)
            }
        };
        Ok(match ip {
            IpAddr::V4(four) => SocketAddr::from((four, port)),
            IpAddr::V6(six) => SocketAddrV6::new(six, port, 0, scope_id).into(),
        })
    }
}

impl From<&Candidate> for Source {
    fn from(candidate: &Candidate) -> Self {
        Self::Address { ip: candidate.ip, scope_id: candidate.scope_id }
    }
}

type Chosen = Option<(Vec<Source>, String)>;

/// Chooses the addresses of the ranks' existing connections.
fn connections_to_root(nodes: &[Offering<'_>]) -> Chosen {
    if nodes.iter().all(|(_, offer)| offer.named) {
        return None;
    }
    let own = |(_, offer): &Offering<'_>| -> Option<Source> {
        let wanted = |candidate: &&Candidate| offer.named || candidate.towards_root;
        offer.candidates.iter().find(wanted).map(Source::from)
    };
    let sources = nodes.iter().map(own).collect::<Option<Vec<_>>>()?;
    Some((sources, "the addresses of the connections to the master".to_owned()))
}

/// Returns true if the sources are in one network. If rank 0 has several interfaces, ranks may have
/// connected to different ones, and need not be able to reach each other.
fn in_one_network(sources: &[Source], nodes: &[Offering<'_>]) -> bool {
    let candidate = |(source, (_, offer)): (&Source, &Offering<'_>)| {
        offer.candidates.iter().find(|own| Source::from(*own) == *source).cloned()
    };
    let chosen: Option<Vec<Candidate>> = sources.iter().zip(nodes).map(candidate).collect();
    chosen.is_some_and(|chosen| chosen.iter().all(|own| same_network(chosen[0].ip, own.ip, chosen[0].prefix_length)))
}

/// Chooses the best network of node 0 in which every node has an address of its own.
fn shared_network(nodes: &[Offering<'_>]) -> Chosen {
    let (_, first) = nodes.first()?;
    let mut shared = first.candidates.iter().filter_map(|network| {
        let members: Option<Vec<&Candidate>> = nodes.iter().map(|(_, offer)| member(network, offer)).collect();
        members.filter(|members| distinct(members, nodes)).map(|members| (network, members))
    });
    let (network, members) = shared.next()?;
    let Candidate { ip, prefix_length, interface, .. } = network;
    let mut reason = format!("the network of {ip}/{prefix_length} ({interface}) on node 0, shared by all hosts");
    let others = shared.filter(|(other, _)| !other.link_local() && other.interface != network.interface);
    let others: Vec<String> = others.map(|(network, _)| format!("{} ({})", network.ip, network.interface)).collect();
    if !others.is_empty() {
        reason += &format!("; they also share that of {}; select it with --interface", others.join(", "));
    }
    Some((members.into_iter().map(Source::from).collect(), reason))
}

/// Returns the address of `offer` in the network of `network`, by both sides' prefixes. Link-local
/// networks have the same prefix on every wire, so a host must have only one of them.
fn member<'a>(network: &Candidate, offer: &'a Offer) -> Option<&'a Candidate> {
    let mut members = offer.candidates.iter().filter(|own| {
        same_network(network.ip, own.ip, network.prefix_length) && same_network(network.ip, own.ip, own.prefix_length)
    });
    let found = members.next()?;
    (!network.link_local() || members.next().is_none()).then_some(found)
}

/// Returns true if all hosts have different addresses. Bridges to containers have the same address
/// on every host and are not a common network.
fn distinct(members: &[&Candidate], nodes: &[Offering<'_>]) -> bool {
    let mut owners: Vec<(IpAddr, &str)> =
        members.iter().zip(nodes).map(|(own, (_, offer))| (own.ip, offer.network.as_str())).collect();
    owners.sort_unstable();
    owners.dedup();
    owners.windows(2).all(|pair| pair[0].0 != pair[1].0)
}

/// Chooses what every rank's own configuration names.
fn all_named(nodes: &[Offering<'_>]) -> Chosen {
    let own = |(_, offer): &Offering<'_>| offer.candidates.first().filter(|_| offer.named).map(Source::from);
    let sources = nodes.iter().map(own).collect::<Option<Vec<_>>>()?;
    Some((sources, "set in every rank's configuration".to_owned()))
}

/// Handles hosts in networks of their own, behind routers: uses rank 0's address with the default
/// route, or its only one, and the others' routes to it.
fn routes_to_root(nodes: &[Offering<'_>]) -> Chosen {
    let (_, first) = nodes.first()?;
    let mut routed = first.candidates.iter().filter(|candidate| !candidate.link_local());
    let best = routed.clone().find(|candidate| candidate.default_route || first.named);
    let root = best.or_else(|| routed.next().filter(|_| routed.next().is_none()))?;
    let own = |(node, (_, offer)): (usize, &Offering<'_>)| match offer.candidates.first() {
        _ if node == 0 => Source::from(root),
        Some(candidate) if offer.named => Source::from(candidate),
        _ => Source::Towards(root.ip),
    };
    let reason =
        format!("the routes to {} ({}) on node 0, because the hosts share no network", root.ip, root.interface);
    Some((nodes.iter().enumerate().map(own).collect(), reason))
}

fn refusal(nodes: &[Offering<'_>]) -> String {
    let told = nodes.iter().enumerate().take(HOSTS_TOLD);
    let told: Vec<String> =
        told.map(|(node, (host, offer))| format!("node {node} on {host}: {}", offer.listed())).collect();
    let more = nodes.len().saturating_sub(HOSTS_TOLD);
    let more = if more > 0 { format!("; and {more} more nodes") } else { String::new() };
    format!(
        "no network is shared by all hosts, and rank 0 has several addresses without a default route: {}{more}; {ADVICE}",
        told.join("; ")
    )
}

const ADVICE: &str =
    "choose the interface with --interface or the address with --bind, or set NCCL_SOCKET_IFNAME on all ranks";

/// Most hosts listed in a refusal.
const HOSTS_TOLD: usize = 4;

/// A port for route lookups, which do not depend on it.
const ANY_PORT: u16 = 9;

#[cfg(test)]
mod tests {
    use super::super::offer::tests::offer;
    use super::*;
    use crate::Config;

    /// Offers of hosts in the notation of `offer::tests::interfaces`; a leading `*` gives the
    /// default route to the host's first interface other than lo.
    fn offers(hosts: &[&str]) -> Vec<Offer> {
        let one = |(node, host): (usize, &&str)| {
            let (default, host) = host.strip_prefix('*').map_or((false, *host), |host| (true, host));
            let first = host.split(' ').next().filter(|_| default);
            let mut offer = offer(host, &Config::default(), first, None).expect("an offer");
            offer.network = node.to_string();
            offer
        };
        hosts.iter().enumerate().map(one).collect()
    }

    fn chosen(offers: &[Offer], loopback: bool) -> Result<(Vec<String>, String), String> {
        let nodes: Vec<Offering<'_>> = offers.iter().map(|offer| ("h", offer)).collect();
        let shown = |source: &Source| match source {
            Source::Address { ip, scope_id: 0 } => ip.to_string(),
            Source::Address { ip, scope_id } => format!("{ip}%{scope_id}"),
            Source::Towards(root) => format!("→{root}"),
        };
        choose(&nodes, loopback).map(|(sources, reason)| (sources.iter().map(shown).collect(), reason))
    }

    fn check(name: &str, hosts: &[&str], expected: &[&str]) {
        let (sources, reason) = chosen(&offers(hosts), false).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        assert_eq!(sources, expected, "{name}: {reason}");
    }

    fn check_refused(name: &str, hosts: &[&str], parts: &[&str]) {
        let refusal = chosen(&offers(hosts), false).expect_err(name);
        assert!(parts.iter().all(|part| refusal.contains(part)), "{name}: {refusal} lacks one of {parts:?}");
    }

    #[test]
    fn the_network_that_all_hosts_share_is_taken_without_a_default_route() {
        check("one network", &["eth0 10.0.0.1/24", "eth0 10.0.0.2/24"], &["10.0.0.1", "10.0.0.2"]);
        let two = "a 10.1.0.1/24, b 10.2.0.1/24";
        check("the second of two", &[two, "x 10.3.0.2/24, y 10.2.0.2/24"], &["10.2.0.1", "10.2.0.2"]);
        let bridged = "docker0 172.17.0.1/16, eth0 10.0.0.1/24";
        check(
            "a bridge of each host",
            &[bridged, "docker0 172.17.0.1/16, eth0 10.0.0.2/24"],
            &["10.0.0.1", "10.0.0.2"],
        );
        let odd = "br0 172.17.0.1/16, eth0 10.0.0.1/24";
        check("a bridge by another name", &[odd, "br0 172.17.0.1/16, eth0 10.0.0.2/24"], &["10.0.0.1", "10.0.0.2"]);
        check("IPv6 alone", &["eth0 fe80::1/64, eth0 fd00::1/64", "eth0 fd00::2/64"], &["fd00::1", "fd00::2"]);
        check("link-local alone", &["eth0 fe80::1/64", "x down, eth0 fe80::2/64"], &["fe80::1%1", "fe80::2%2"]);
        check("masks that differ", &["a 10.0.0.1/8, b 10.9.0.1/24", "a 10.9.0.2/24"], &["10.9.0.1", "10.9.0.2"]);
        let shared = chosen(&offers(&[two, "a 10.1.0.2/24, b 10.2.0.2/24"]), false).expect("two networks").1;
        assert!(shared.contains("10.1.0.1/24 (a)") && shared.contains("also share that of 10.2.0.1 (b)"), "{shared}");
    }

    #[test]
    fn hosts_behind_routers_ask_their_routes() {
        let two = "*eth0 10.1.0.1/24, eth1 10.2.0.1/24";
        check("a default route", &[two, "*eth0 10.9.0.2/24"], &["10.1.0.1", "→10.1.0.1"]);
        check("an address on lo", &["lo 10.255.0.1/32", "lo 10.255.0.2/32"], &["10.255.0.1", "→10.255.0.1"]);
        check_refused(
            "no default route",
            &[&two[1..], "eth0 10.9.0.2/24"],
            &["eth1 10.2.0.1/24", "10.9.0.2", "--interface"],
        );
        let loose = "eth0 fe80::1/64, eth1 fe80::2/64";
        check_refused("which wire?", &[loose, "eth0 fe80::3/64"], &["fe80::2/64", "--interface"]);
        check_refused("nothing at all", &["eth0 10.0.0.1/24", "lo 127.0.0.1/8, eth0 down"], &["node 1", "eth0 (down)"]);
    }

    #[test]
    fn connections_to_rank_0_and_named_addresses_come_first() {
        let mut hosts = offers(&["a 10.1.0.1/24, b 10.2.0.1/24", "a 10.1.0.2/24, b 10.2.0.2/24"]);
        hosts.iter_mut().for_each(|offer| offer.candidates[1].towards_root = true);
        assert_eq!(chosen(&hosts, false).expect("connections").0, ["10.2.0.1", "10.2.0.2"]);
        // Rank 2 came by the other network: the one that all share is taken, and without one the
        // connections.
        let mut three = hosts.clone();
        three.extend(offers(&["a 10.1.0.3/24, b 10.2.0.3/24"]));
        three[2].candidates[0].towards_root = true;
        three[2].network = "2".to_owned();
        assert_eq!(chosen(&three, false).expect("a network").0, ["10.1.0.1", "10.1.0.2", "10.1.0.3"]);
        three[2].candidates.truncate(1);
        three[0].candidates.remove(0);
        assert_eq!(chosen(&three, false).expect("connections").0, ["10.2.0.1", "10.2.0.2", "10.1.0.3"]);
        hosts[0].candidates[1].towards_root = false;
        assert_eq!(chosen(&hosts, false).expect("a network").0, ["10.1.0.1", "10.1.0.2"]);
        for (offer, kept) in hosts.iter_mut().zip([0, 1]) {
            (offer.named, offer.candidates) = (true, vec![offer.candidates[kept].clone()]);
        }
        assert_eq!(chosen(&hosts, false).expect("named").0, ["10.1.0.1", "10.2.0.2"]);
        assert_eq!(chosen(&hosts, true).expect("named").0, ["10.1.0.1", "10.2.0.2"], "named on one host, too");
        let one_host = offers(&["a 10.1.0.1/24", "a 10.1.0.1/24"]);
        assert_eq!(chosen(&one_host, true).expect("loopback").0, ["127.0.0.1", "127.0.0.1"]);
    }

    #[test]
    fn two_ranks_of_one_host_may_have_its_address() {
        let mut hosts = offers(&["a 10.1.0.1/24", "a 10.1.0.1/24", "a 10.1.0.2/24"]);
        chosen(&hosts, false).map(|(sources, _)| assert_eq!(sources[1..], ["→10.1.0.1", "→10.1.0.1"])).expect("routes");
        hosts[1].network = hosts[0].network.clone();
        assert_eq!(chosen(&hosts, false).expect("a network").0, ["10.1.0.1", "10.1.0.1", "10.1.0.2"]);
    }

    #[test]
    fn a_route_must_leave_from_an_address_that_was_offered() {
        let offer = |text: &str| offers(&[text]).remove(0);
        let source = Source::Towards(IpAddr::from([127, 0, 0, 1]));
        let refusal = source.address(&offer("eth0 10.0.0.1/24"), 0).expect_err("the route is loopback");
        assert!(refusal.contains("leaves from 127.0.0.1") && refusal.contains("--bind"), "{refusal}");
        let link = Source::Address { ip: "fe80::1".parse().expect("an address"), scope_id: 3 };
        assert_eq!(link.address(&offer("eth0 fe80::1/64"), 7).expect("bound").to_string(), "[fe80::1%3]:7");
    }
}
