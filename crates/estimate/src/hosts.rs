//! Which nodes of a run share a host.
//!
//! Place in the flow: part of what [`crate::round::Solver`] and [`crate::run::Smoothed`] are told about a run. Nodes of one host have the same drivers and
//! interrupts, so what their packets meet on the way out less what they meet on the way in is alike; between hosts nobody knows (`stamp_errors`).

use std::sync::Arc;

use probe_sync_time::NodeId;

/// Which nodes share a host. The default knows of no two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// By node, the first node of its host; nodes beyond the last are on hosts of their own.
    first: Arc<[u32]>,
}

impl Hosts {
    /// All of so many nodes are on one host.
    pub fn one(nodes: usize) -> Self {
        Self { first: vec![0; nodes].into() }
    }

    /// Nodes in order, by host name. A node without a name, or with one that many hosts bear, is on a host of its own.
    ///
    /// ```
    /// use probe_sync_estimate::Hosts;
    /// use probe_sync_time::NodeId;
    ///
    /// let hosts = Hosts::named(["gpu-1", "gpu-2", "gpu-1", "localhost", "localhost"].map(Some));
    /// assert!(hosts.same(NodeId(0), NodeId(2)) && !hosts.same(NodeId(0), NodeId(1)));
    /// assert!(!hosts.same(NodeId(3), NodeId(4)), "every host calls itself localhost");
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

    /// Whether two nodes are on one host.
    pub fn same(&self, a: NodeId, b: NodeId) -> bool {
        let first = |node: NodeId| self.first.get(node.index()).copied().unwrap_or(node.0);
        first(a) == first(b)
    }
}

/// Names that say nothing.
const COMMON_NAMES: [&str; 3] = ["", "localhost", "localhost.localdomain"];

/// Standard deviation of how much longer a host's way out is than its way in, halved, as a share of the median margin.
pub(crate) const HOST_SHARE: f64 = 0.02;
