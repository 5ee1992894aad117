//! Where every node is reached, and which of them is the reference.
//!
//! Place in the flow: step 2 of the hand-shake. Every node that has bound its socket says so ([`Ready`]); the root makes the
//! [`Roster`] of it, which all ranks know once the run starts.
//!
//! What it does not do: talk to other ranks, bind.

use std::net::{IpAddr, SocketAddr};

use probe_sync_time::{Edge, NodeId, StampSource, System, Timestamp};
use serde::{Deserialize, Serialize};

use super::Plan;
use crate::Config;
use crate::config::ReferenceChoice;

/// What a node says once its socket is bound.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// Where it takes probes.
    pub address: SocketAddr,
    /// The timestamps that it will have.
    pub stamp: StampSource,
    /// What every one of them may be wrong by because it was converted from an interface's clock, ns.
    pub stamp_error_ns: i64,
    /// The tracer clock whose pairs it takes, and why that one.
    pub tracer_clock: Option<(String, String)>,
}

/// Everything that all ranks know once the run starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Roster {
    /// By node.
    pub nodes: Vec<Ready>,
    /// The root's unskewed system clock when it wrote this; t0 of virtual clocks.
    pub start: Timestamp<System>,
    /// The node whose offset is zero.
    pub reference: NodeId,
}

impl Roster {
    /// What all stamps of both ends of an edge may be wrong by, ns.
    pub fn stamp_errors_ns(&self, edge: Edge) -> [f64; 2] {
        [edge.src, edge.dst].map(|node| self.nodes.get(node.index()).map_or(0.0, |ready| ready.stamp_error_ns as f64))
    }

    /// The roster of `nodes`, in order.
    pub(super) fn new(nodes: Vec<Ready>, start: Timestamp<System>, reference: ReferenceChoice) -> Result<Self, String> {
        refuse_mixed_families(&nodes)?;
        let reference = match reference {
            ReferenceChoice::Node(node) => node,
            ReferenceChoice::Auto => best_stamps(&nodes),
        };
        Ok(Self { nodes, start, reference })
    }
}

/// The node with the best timestamps; of equal ones the first.
fn best_stamps(nodes: &[Ready]) -> NodeId {
    let best = nodes.iter().enumerate().min_by_key(|(_, ready)| ready.stamp);
    NodeId(best.map_or(0, |(node, _)| node as u32))
}

/// The address to probe from: what was configured, else the configured interface's, else loopback where that reaches all,
/// else the address that leads to the root, else the host's default outward address. `outward` is the configured
/// interface's address where one is configured.
pub(crate) fn probe_address(
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

fn refuse_mixed_families(nodes: &[Ready]) -> Result<(), String> {
    let six = nodes.iter().position(|ready| ready.address.is_ipv6());
    let four = nodes.iter().position(|ready| ready.address.is_ipv4());
    match (four, six) {
        (Some(four), Some(six)) => Err(format!(
            "node {four} probes from {} and node {six} from {}: one run needs one address family; use --bind",
            nodes[four].address, nodes[six].address
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stamps: &[StampSource], choice: ReferenceChoice, expected: u32) {
        let ready = |stamp: &StampSource| ready(*stamp, 0);
        let roster =
            Roster::new(stamps.iter().map(ready).collect(), Timestamp::from_ns(0), choice).expect("one family");
        assert_eq!(roster.reference, NodeId(expected), "{stamps:?} {choice:?}");
    }

    fn ready(stamp: StampSource, stamp_error_ns: i64) -> Ready {
        Ready { address: SocketAddr::from(([127, 0, 0, 1], 1)), stamp, stamp_error_ns, tracer_clock: None }
    }

    #[test]
    fn an_edge_has_the_stamp_errors_of_both_its_ends() {
        let nodes =
            vec![ready(StampSource::Hardware, 700), ready(StampSource::Kernel, 0), ready(StampSource::Hardware, 900)];
        let roster = Roster::new(nodes, Timestamp::from_ns(0), ReferenceChoice::Auto).expect("one family");
        assert_eq!(roster.stamp_errors_ns(Edge::new(0, 2)), [700.0, 900.0]);
        assert_eq!(roster.stamp_errors_ns(Edge::new(1, 0)), [0.0, 700.0]);
    }

    #[test]
    fn auto_takes_the_best_stamps_and_of_equals_the_first() {
        use StampSource::{Hardware, Kernel, User};
        check(&[Kernel, Kernel, Kernel], ReferenceChoice::Auto, 0);
        check(&[User, Kernel, Hardware, Hardware], ReferenceChoice::Auto, 2);
        check(&[User, Kernel, Hardware], ReferenceChoice::Node(NodeId(1)), 1);
    }
}
