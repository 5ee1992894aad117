//! Named clock and path faults, with the node or edge, the kind, the size and the first round of
//! each.
//!
//! This runs after `graph` has solved a round, before the smoother and the files. `graph` keeps a
//! fault from affecting other nodes within its round; [`Watch`] compares the round with earlier
//! ones. Its [`Findings`] contains the events for people ([`Fault`](probe_sync_lines::Fault)), the
//! clocks that do not continue ([`ClockBreak`](probe_sync_lines::ClockBreak)) and the edges and
//! rounds without information for the smoother, and, for every consumer, the nodes whose estimate
//! of this round must not be used.
//!
//! How faults are told apart (innovation: measured minus predicted from the rounds before):
//! 1. a window that no straight line explains, on most edges of a node: its clock stepped within
//!    the window (`clocks`);
//! 2. a node's offset leaves its prediction and stays off it: a step where it moved by more than
//!    its rates explain (`jump`), else a change of its rate, which may also show over several
//!    rounds only (`onset`); most nodes at once by the same amount: the reference did it
//!    (`clocks`);
//! 3. an edge's residual against the solved offsets leaves its own constant level: the path has
//!    become asymmetric; on several edges of one node by differing amounts: that node's timestamps
//!    are inconsistent (`paths`);
//! 4. an edge's margin, half its least round trip, leaves its level: the route changed; on most
//!    edges of a node, together with its offset: its receive stamps are wrong; on most edges of the
//!    network: a load began or ended (`paths`);
//! 5. edges that are not heard: silence, partition, restart, late joining (`membership`); exchanges
//!    lost (`losses`).
//!
//! All but 1 and 5 are named when two rounds running show them: one bad window is no fault. Levels
//! of noise are learnt from the data, so that a cluster of wild clocks is not a cluster of faults.
//! A fault's end is not a fault.
//!
//! Of two nodes nothing but their own watches tells whose doing a change is.
//!
//! It does not change estimates, and it cannot detect timestamps that are wrong by the same amount
//! for all peers from the first round on: those look like offsets.

mod clocks;
mod comparison;
mod events;
mod falls;
mod filter;
mod jump;
mod losses;
mod measured;
mod membership;
mod naming;
mod onset;
mod paths;
mod scale;
mod track;
mod view;

use probe_sync_lines::{Culprit, EdgeFit, FaultKind, Findings};
use probe_sync_time::{Edge, NodeId, RoundId};

use self::clocks::Clocks;
use self::losses::Losses;
use self::membership::Membership;
use self::paths::{Inconsistencies, Paths};
pub use self::view::{DirectionCount, RoundView};

/// Watches a run round by round. Memory is bounded by the nodes and by a million edges.
///
/// ```
/// use probe_sync_estimate::faults::{RoundView, Watch};
/// use probe_sync_estimate::graph::{GraphInput, GraphOptions, solve};
/// # use probe_sync_lines::{Culprit, EdgeFit, FaultKind, Findings};
/// # use probe_sync_time::{NodeId, RoundId, StampSource, Timestamp};
/// # fn edge(theta_ns: f64, midpoint_ns: i64) -> EdgeFit {
/// #     EdgeFit {
/// #         src_node_id: NodeId(0),
/// #         dst_node_id: NodeId(1),
/// #         midpoint: Timestamp::from_ns(midpoint_ns),
/// #         alpha: 0.0,
/// #         beta: theta_ns,
/// #         pairs_count: 100,
/// #         lost_count: 0,
/// #         covariance: [25.0, 0.0, 1e-18],
/// #         margin_ns: 200.0,
/// #         bound_lo_ns: theta_ns - 200.0,
/// #         bound_hi_ns: theta_ns + 200.0,
/// #         alpha_bounds: [-1e-6, 1e-6],
/// #         feasible: true,
/// #         purity: 1.0,
/// #         stamp: StampSource::Kernel,
/// #         stamp_errors_ns: [0.0; 2],
/// #     }
/// # }
/// // Node 1 is 1000 ns ahead; before round 5 its clock is set forward by 10 ms, or node 0's back.
/// let mut watch = Watch::default();
/// let mut named = Vec::new();
/// for round in 0..8 {
///     let theta_ns = if round < 5 { 1e3 } else { 1e7 + 1e3 };
///     let midpoint_ns = round * 1_000_000_000;
///     let edges = [edge(theta_ns, midpoint_ns)];
///     let reference_midpoint = Timestamp::from_ns(midpoint_ns);
///     let input = GraphInput { nodes: 2, reference: NodeId(0), reference_midpoint, edges: &edges };
///     let solution = solve(&input, &GraphOptions::default())?;
///     let findings = watch.observe(&RoundView {
///         round: RoundId(round as u64),
///         reference: NodeId(0),
///         reference_midpoint,
///         edges: &edges,
///         nodes: &solution.nodes,
///         reporting: &[],
///         excluded: &solution.excluded,
///         clock_events: &[],
///         unfitted: &[],
///         directions: &[],
///     });
///     named.extend(findings.faults.iter().map(ToString::to_string));
/// }
/// // With a third node it would say whose; with two only their own watches can.
/// let expected = "round 5: the clocks of nodes 0 and 1 stepped apart by 10.000 ms; it is unclear which of the two changed";
/// assert_eq!(named, [expected]);
/// # Ok::<(), probe_sync_estimate::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Watch {
    clocks: Clocks,
    paths: Paths,
    membership: Membership,
    losses: Losses,
}

impl Watch {
    /// Judges the next round.
    pub fn observe(&mut self, view: &RoundView<'_>) -> Findings {
        let mut findings = Findings::default();
        let heard = self.membership.observe(view, &mut findings);
        let lossy = self.losses.observe(view, &heard, &mut findings);
        let broken = paths::broken_nodes(view);
        let compared = self.clocks.compare(view, &heard, &broken, &mut findings);
        let inconsistencies = self.paths.observe(view, &compared, &mut findings);
        self.clocks.judge(view, &compared, &inconsistencies, &lossy, &mut findings);
        leave_out(view, &inconsistencies, &mut findings);
        for fault in &mut findings.faults {
            fault.round = view.round;
        }
        findings
    }
}

/// Lists this round's useless edges, and the edges of clocks with a break in the rounds in which
/// they broke.
fn leave_out(view: &RoundView<'_>, inconsistencies: &Inconsistencies, findings: &mut Findings) {
    let now = view.round;
    let touches = |edge: Edge, nodes: &[NodeId]| nodes.contains(&edge.src) || nodes.contains(&edge.dst);
    let all = || view.edges.iter().map(EdgeFit::edge);
    // A reference that is invalid takes nobody else's edges with it.
    let mut left: Vec<(RoundId, Edge)> =
        all().filter(|edge| touches(*edge, &findings.invalid)).map(|e| (now, e)).collect();
    left.extend(view.excluded.iter().map(|(edge, _)| (now, *edge)));
    left.extend(inconsistencies.bad_edges.iter().map(|edge| (now, *edge)));
    let moved = [FaultKind::Step, FaultKind::Restart];
    for fault in findings.faults.iter().filter(|fault| moved.contains(&fault.kind)) {
        let nodes = match &fault.culprit {
            Culprit::Node(node) => std::slice::from_ref(node),
            Culprit::Nodes(nodes) => nodes,
            Culprit::Edge(_) | Culprit::Everyone => &[],
        };
        left.extend(all().filter(|edge| touches(*edge, nodes)).map(|edge| (fault.began, edge)));
    }
    left.sort_unstable();
    left.dedup();
    findings.left_out = left;
    findings.invalid.sort_unstable();
    findings.invalid.dedup();
}

#[cfg(test)]
mod tests;
