//! The address of every node, and which of them is the reference.
//!
//! Every node that has bound its socket sends [`Ready`]; the root makes the [`Roster`], which all
//! ranks know once the run starts.

use std::net::{IpAddr, SocketAddr};

use probe_sync_time::{Edge, NodeId, StampSource, System, Timestamp};
use serde::{Deserialize, Serialize};

use crate::config::ReferenceChoice;

/// A node's message once its socket is bound.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// Address at which it receives probes.
    pub address: SocketAddr,
    /// Source of its timestamps.
    pub stamp: StampSource,
    /// Bound of the stamps' error from the conversion of an interface's clock, ns.
    pub stamp_error_ns: i64,
    /// Tracer clock of its snapshot pairs, and why that one.
    pub tracer_clock: Option<(String, String)>,
}

impl Ready {
    /// Returns the substitute for a node whose rank has not joined; no node sends to it.
    pub(crate) fn missing() -> Self {
        let address = SocketAddr::from(([0; 4], 0));
        Self { address, stamp: StampSource::User, stamp_error_ns: 0, tracer_clock: None }
    }

    /// Returns true if its rank has not joined yet; a bound socket has a port.
    pub(crate) fn is_missing(&self) -> bool {
        self.address.port() == 0
    }
}

/// Everything that all ranks know once the run starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Roster {
    /// The nodes, by number.
    pub nodes: Vec<Ready>,
    /// The root's system clock, without skew, when it created the roster; t0 of virtual clocks.
    pub start: Timestamp<System>,
    /// Reference node, whose offset is zero.
    pub reference: NodeId,
}

/// Returns the bounds of the stamps' errors at both ends of an edge, ns.
pub(crate) fn stamp_errors_ns(nodes: &[Ready], edge: Edge) -> [f64; 2] {
    [edge.src, edge.dst].map(|node| nodes.get(node.index()).map_or(0.0, |ready| ready.stamp_error_ns as f64))
}

impl Roster {
    /// Creates the roster of `nodes`, in order. `secret` is true if the session key is derived from
    /// a key file.
    pub(super) fn new(
        nodes: Vec<Ready>,
        start: Timestamp<System>,
        reference: ReferenceChoice,
        secret: bool,
    ) -> Result<Self, String> {
        refuse_mixed_families(&nodes)?;
        if !secret {
            refuse_public(&nodes)?;
        }
        let reference = match reference {
            ReferenceChoice::Node(node) if nodes.get(node.index()).is_some_and(Ready::is_missing) => {
                return Err(format!(
                    "reference names node {node}, whose rank has not joined: name a node that has, or wait longer with --start-timeout"
                ));
            }
            ReferenceChoice::Node(node) => node,
            ReferenceChoice::Auto => best_stamps(&nodes),
        };
        Ok(Self { nodes, start, reference })
    }
}

/// Returns the node with the best timestamps; the first among equals.
fn best_stamps(nodes: &[Ready]) -> NodeId {
    let best = nodes.iter().enumerate().filter(|(_, ready)| !ready.is_missing()).min_by_key(|(_, ready)| ready.stamp);
    NodeId(best.map_or(0, |(node, _)| node as u32))
}

/// Returns the nodes' addresses as seen from a node at `own`: the scope of a link-local address is
/// that of the user's own interface.
pub(crate) fn addresses_seen_from(own: SocketAddr, nodes: &[Ready]) -> Vec<SocketAddr> {
    let scoped = |ready: &Ready| match (ready.address, own) {
        (SocketAddr::V6(mut peer), SocketAddr::V6(own)) if peer.ip().is_unicast_link_local() => {
            peer.set_scope_id(own.scope_id());
            peer.into()
        }
        (address, _) => address,
    };
    nodes.iter().map(scoped).collect()
}

fn refuse_mixed_families(nodes: &[Ready]) -> Result<(), String> {
    let of_family = |six: bool| nodes.iter().position(|ready| !ready.is_missing() && ready.address.is_ipv6() == six);
    let (six, four) = (of_family(true), of_family(false));
    match (four, six) {
        (Some(four), Some(six)) => Err(format!(
            "node {four} probes from {} and node {six} from {}: one run needs one address family; use --bind",
            nodes[four].address, nodes[six].address
        )),
        _ => Ok(()),
    }
}

/// Refuses public addresses: without a key file the session key was sent in the clear, so a run
/// must not cross public networks.
pub(super) fn refuse_public(nodes: &[Ready]) -> Result<(), String> {
    match nodes.iter().position(|ready| !ready.is_missing() && !is_private(ready.address.ip())) {
        Some(node) => Err(format!(
            "node {node} probes from {}, a public address, but there is no secret to authenticate packets: give all ranks --key-file, \
            or choose a private network with --interface",
            nodes[node].address.ip()
        )),
        None => Ok(()),
    }
}

/// Returns true for loopback, RFC 1918, fc00::/7 and link-local addresses, which no router of the
/// internet forwards.
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(four) => four.is_loopback() || four.is_private() || four.is_link_local(),
        IpAddr::V6(six) => six.is_loopback() || six.is_unique_local() || six.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stamps: &[StampSource], choice: ReferenceChoice, expected: u32) {
        let ready = |stamp: &StampSource| ready(*stamp, 0);
        let roster =
            Roster::new(stamps.iter().map(ready).collect(), Timestamp::from_ns(0), choice, false).expect("one family");
        assert_eq!(roster.reference, NodeId(expected), "{stamps:?} {choice:?}");
    }

    fn ready(stamp: StampSource, stamp_error_ns: i64) -> Ready {
        Ready { address: SocketAddr::from(([127, 0, 0, 1], 1)), stamp, stamp_error_ns, tracer_clock: None }
    }

    #[test]
    fn an_edge_has_the_stamp_errors_of_both_its_ends() {
        let nodes =
            vec![ready(StampSource::Hardware, 700), ready(StampSource::Kernel, 0), ready(StampSource::Hardware, 900)];
        assert_eq!(stamp_errors_ns(&nodes, Edge::new(0, 2)), [700.0, 900.0]);
        assert_eq!(stamp_errors_ns(&nodes, Edge::new(1, 0)), [0.0, 700.0]);
    }

    #[test]
    fn public_addresses_need_a_key_file() {
        let nodes = |address: &str| {
            let ready =
                |text: &str| Ready { address: text.parse().expect("an address"), ..ready(StampSource::Kernel, 0) };
            vec![ready(if address.starts_with('[') { "[fd00::1]:7" } else { "10.0.0.1:7" }), ready(address)]
        };
        let roster = |address: &str, secret| {
            Roster::new(nodes(address), Timestamp::from_ns(0), ReferenceChoice::Node(NodeId(0)), secret)
        };
        for private in [
            "127.0.0.1:7",
            "10.9.0.1:7",
            "172.31.0.1:7",
            "192.168.9.9:7",
            "169.254.1.1:7",
            "[fe80::1]:7",
            "[fdff::1]:7",
        ] {
            roster(private, false).expect(private);
        }
        for public in ["172.32.0.1:7", "9.255.255.255:7", "100.64.0.1:7", "[2001:db8::1]:7", "[::ffff:9.9.9.9]:7"] {
            let refusal = roster(public, false).expect_err(public);
            assert!(refusal.contains("node 1") && refusal.contains("--key-file"), "{refusal}");
            roster(public, true).expect(public);
        }
    }

    #[test]
    fn link_local_peers_are_reached_through_the_nodes_own_interface() {
        let address = |text: &str| -> SocketAddr { text.parse().expect("an address") };
        let ready = |text: &str| Ready { address: address(text), ..ready(StampSource::Kernel, 0) };
        // The scope is no property of the peer, and does not come over the wire.
        let nodes = [ready("[fe80::1]:7"), ready("[fe80::2%9]:8"), ready("[fd00::3]:9")];
        let seen = addresses_seen_from(address("[fe80::2%4]:8"), &nodes);
        assert_eq!(seen, ["[fe80::1%4]:7", "[fe80::2%4]:8", "[fd00::3]:9"].map(address));
    }

    #[test]
    fn a_node_that_has_not_come_is_no_reference_and_has_no_address() {
        let nodes = || vec![ready(StampSource::User, 0), Ready::missing(), ready(StampSource::User, 0)];
        let roster = |choice| Roster::new(nodes(), Timestamp::from_ns(0), choice, false);
        let auto = roster(ReferenceChoice::Auto).expect("a private network");
        assert_eq!((auto.reference, auto.nodes[1].is_missing(), auto.nodes[2].is_missing()), (NodeId(0), true, false));
        let refused = roster(ReferenceChoice::Node(NodeId(1))).expect_err("nobody knows its clock");
        assert!(refused.contains("node 1") && refused.contains("--start-timeout"), "{refused}");
    }

    #[test]
    fn auto_takes_the_best_stamps_and_of_equals_the_first() {
        use StampSource::{Hardware, Kernel, User};
        check(&[Kernel, Kernel, Kernel], ReferenceChoice::Auto, 0);
        check(&[User, Kernel, Hardware, Hardware], ReferenceChoice::Auto, 2);
        check(&[User, Kernel, Hardware], ReferenceChoice::Node(NodeId(1)), 1);
    }
}
