//! One fit and one window, as the files of the XLA distributed profiler state them.

use std::path::Path;

use probe_sync_time::NodeId;

/// One fit, as stated in a file of the XLA profiler.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Fit {
    pub(super) dst: NodeId,
    pub(super) alpha: f64,
    /// Offset at the window's start, ns.
    pub(super) beta: f64,
    pub(super) pairs: u32,
    pub(super) lost: u32,
    /// Last digits of both values in the file.
    pub(super) quanta: Quanta,
}

/// Uncertainty from the number of digits in a file.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(super) struct Quanta {
    pub(super) alpha: f64,
    pub(super) beta_ns: f64,
}

/// One window of one node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Window {
    pub(super) node: NodeId,
    pub(super) round: Option<u64>,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) fits: Vec<Fit>,
}

impl Window {
    pub(super) fn middle_ns(&self) -> i64 {
        i64::midpoint(self.start_ns, self.end_ns)
    }

    pub(super) fn length_ns(&self) -> i64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Returns half of its length, ns.
    pub(super) fn half_ns(&self) -> f64 {
        0.5 * self.length_ns() as f64
    }
}

/// Returns the node stated in a file's name: the digits after the last `node` in it.
pub(super) fn node_of_name(path: &Path) -> Option<NodeId> {
    let name = path.file_name()?.to_str()?;
    let digits: String = name.rsplit_once("node")?.1.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().map(NodeId)
}
