//! Errors in the input of this crate's stages.
//!
//! `graph::solve` and the builders of `series` return them. Weak or contradictory measurements are
//! not errors; the solution reports them. An error means input that no measurement can produce.

use probe_sync_time::{Edge, NodeId};

/// Invalid input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The reference is not one of the nodes.
    #[error("the reference is node {reference}, but there are only {nodes} nodes")]
    NoSuchReference {
        /// Requested reference.
        reference: NodeId,
        /// Number of nodes.
        nodes: usize,
    },
    /// An edge names a node that does not exist.
    #[error("edge {edge} names a node outside 0..{nodes}")]
    NoSuchNode {
        /// The edge.
        edge: Edge,
        /// Number of nodes.
        nodes: usize,
    },
    /// A distance between knots that results in no sensible file.
    #[error("{reason}")]
    UnusableSpacing {
        /// What is wrong, and what would be valid.
        reason: String,
    },
    /// Knots through which no time map exists.
    #[error("these knots do not define a time map: {reason}")]
    UnusableKnots {
        /// What is wrong with them.
        reason: &'static str,
    },
}
