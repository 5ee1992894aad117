//! Which nodes of a run share a host.
//!
//! Nodes of one host share drivers and interrupts, so the differences between their transmit and
//! receive paths are nearly equal. Between hosts this difference is unknown.

use std::sync::Arc;

use probe_sync_time::NodeId;

/// Which nodes share a host. By default, none do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// First node on the host of each node; nodes beyond the end are on hosts of their own.
    first: Arc<[u32]>,
}

impl Hosts {
    /// Returns hosts for nodes that are all on one host.
    pub fn one(nodes: usize) -> Self {
        Self { first: vec![0; nodes].into() }
    }

    /// Returns hosts from the first node of each node's host, in order of nodes.
    pub fn shared(first: impl IntoIterator<Item = NodeId>) -> Self {
        Self { first: first.into_iter().map(|node| node.0).collect() }
    }

    /// Returns hosts from the nodes' host names, in order of nodes, if nothing better is known. A
    /// node without a name, or with one set by installers and images, such as `localhost` or
    /// `ubuntu`, counts as a host of its own.
    ///
    /// ```
    /// use probe_sync_lines::Hosts;
    /// use probe_sync_time::NodeId;
    ///
    /// let hosts = Hosts::named(["gpu-1", "gpu-2", "gpu-1", "localhost", "localhost"].map(Some));
    /// assert!(hosts.same(NodeId(0), NodeId(2)) && !hosts.same(NodeId(0), NodeId(1)));
    /// assert!(!hosts.same(NodeId(3), NodeId(4)), "every host calls itself localhost");
    /// assert!(Hosts::shared([0, 1, 0].map(NodeId)).same(NodeId(0), NodeId(2)));
    /// ```
    pub fn named<'a>(names: impl IntoIterator<Item = Option<&'a str>>) -> Self {
        let names: Vec<Option<&str>> =
            names.into_iter().map(|name| name.filter(|name| !COMMON_NAMES.contains(name))).collect();
        let first = |(node, name): (usize, &Option<&str>)| {
            let same = name.and_then(|_| names.iter().position(|other| other == name));
            same.unwrap_or(node) as u32
        };
        Self { first: names.iter().enumerate().map(first).collect() }
    }

    /// Returns true if two nodes are on one host.
    pub fn same(&self, a: NodeId, b: NodeId) -> bool {
        let first = |node: NodeId| self.first.get(node.index()).copied().unwrap_or(node.0);
        first(a) == first(b)
    }
}

/// Names of many hosts, set by an installer or an image.
const COMMON_NAMES: [&str; 14] = [
    "",
    "(none)",
    "alpine",
    "arch",
    "archlinux",
    "centos",
    "debian",
    "fedora",
    "linux",
    "localhost",
    "localhost.localdomain",
    "raspberrypi",
    "rocky",
    "ubuntu",
];
