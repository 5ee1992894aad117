//! A round to solve, and the assumptions the solver may make.

use probe_sync_lines::EdgeFit;
use probe_sync_time::{NodeId, Reference, Timestamp};

/// A round to be solved.
#[derive(Copy, Clone, Debug)]
pub struct GraphInput<'a> {
    /// Number of nodes; they are `0..nodes`.
    pub nodes: usize,
    /// Reference node, whose offset is zero.
    pub reference: NodeId,
    /// Midpoint M₀ of the window on the reference's clock: the instant at which the offsets hold.
    pub reference_midpoint: Timestamp<Reference>,
    /// Fitted edges, in any order; the same two nodes may be joined more than once.
    pub edges: &'a [EdgeFit],
}

/// Assumptions of the solver.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct GraphOptions {
    /// Prior standard deviation of an edge's path asymmetry, as a share of its margin.
    pub asymmetry_prior: f64,
    /// Weight of the prior against the evidence of loops, in degrees of freedom.
    pub asymmetry_prior_weight: f64,
    /// Standard deviation of the asymmetry common to all edges of a node, including the reference,
    /// as a share of the median margin. Loops do not show it, and no number of edges reduces it.
    pub common_asymmetry: f64,
    /// Compute the covariance (the most expensive part in large graphs); otherwise every sigma is
    /// infinite.
    pub covariance: bool,
}

impl Default for GraphOptions {
    fn default() -> Self {
        Self { asymmetry_prior: 0.1, asymmetry_prior_weight: 2.0, common_asymmetry: HOST_SHARE, covariance: true }
    }
}

/// Standard deviation of half the difference between a host's outbound and inbound delays, as a
/// share of the median margin.
pub(crate) const HOST_SHARE: f64 = 0.02;
