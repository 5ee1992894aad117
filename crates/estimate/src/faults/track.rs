//! The state of one clock from round to round, and a round's evidence about it.

use probe_sync_lines::NodeEstimate;
use probe_sync_time::RoundId;

use super::filter::Filter;
use super::jump::Recent;
use super::measured::Measured;
use super::membership::Heard;
use super::onset::Onsets;
use super::view::RoundView;
use crate::motion::NS_PER_S_PER_PPM;

#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Track {
    pub(super) filter: Option<Filter>,
    pub(super) suspicion: Option<Suspicion>,
    pub(super) recent: Recent,
    pub(super) onsets: Onsets,
    /// A jump was shown in the round before; a step late in a window is off its prediction only in
    /// the next.
    pub(super) jumped: bool,
    /// How much more than all others the margins of its edges fell in the round before, ns: the
    /// rate of the next window tells whether a kink explains it.
    pub(super) fell_ns: f64,
}

/// Something is wrong since a round.
#[derive(Copy, Clone, Debug)]
pub(super) struct Suspicion {
    pub(super) since: RoundId,
    /// The middle of that round on the reference's clock.
    pub(super) since_ns: i64,
    /// Its window proved a step.
    pub(super) broken: bool,
    /// It moved by more than rates explain.
    pub(super) jumped: bool,
}

impl Suspicion {
    /// Since this round, whose packets or watch prove it.
    pub(super) const fn broken(view: &RoundView<'_>) -> Self {
        Self { since: view.round, since_ns: view.reference_midpoint.as_ns(), broken: true, jumped: true }
    }
}

/// The measurement of every node but the reference in the round; `None` if it must not be used.
pub(super) fn measured(view: &RoundView<'_>, heard: &Heard, broken: &[bool]) -> Vec<Option<Measured>> {
    let whole = !broken.get(view.reference.index()).copied().unwrap_or(false);
    let own = random_variances(view);
    let reference = own.get(view.reference.index()).copied().unwrap_or(0.0);
    let of_node = |(node, estimate): (usize, &NodeEstimate)| {
        let usable = whole && estimate.reachable && heard.now[node] && !broken[node];
        let rate_sd = estimate.drift_sigma_ppm * NS_PER_S_PER_PPM;
        let variance = [own[node] + reference, rate_sd * rate_sd];
        let finite = variance.iter().all(|v| v.is_finite() && *v > 0.0) && estimate.offset_ns.is_finite();
        let state = [estimate.offset_ns, estimate.drift_ppm * NS_PER_S_PER_PPM];
        let hard_ns = (estimate.bound_hi_ns - state[0]).max(state[0] - estimate.bound_lo_ns);
        (usable && finite && node != view.reference.index()).then_some(Measured { state, variance, hard_ns })
    };
    view.nodes.iter().enumerate().map(of_node).collect()
}

/// Random variance of each node's offset: that of its edges together.
fn random_variances(view: &RoundView<'_>) -> Vec<f64> {
    let mut precision = vec![0.0; view.nodes.len()];
    for edge in view.edges.iter().filter(|edge| edge.feasible && edge.covariance[0] > 0.0) {
        for node in [edge.src_node_id, edge.dst_node_id] {
            precision.get_mut(node.index()).into_iter().for_each(|sum| *sum += 1.0 / edge.covariance[0]);
        }
    }
    precision.into_iter().map(|sum| if sum > 0.0 { 1.0 / sum } else { VARIANCE_UNKNOWN_NS2 }).collect()
}

impl Track {
    /// Updates the filter and the evidence for changes of rate; returns whether there is any.
    pub(super) fn take_in(&mut self, view: &RoundView<'_>, measured: &Measured) -> bool {
        let at_ns = view.reference_midpoint.as_ns();
        let Some(filter) = &mut self.filter else {
            self.filter = Some(Filter::begun(at_ns, measured));
            return false;
        };
        let taken = filter.update(view.round, at_ns, measured);
        taken.iter().for_each(|taken| self.onsets.take_in(taken));
        taken.is_some()
    }
}

/// A node without a usable edge is measured this badly.
const VARIANCE_UNKNOWN_NS2: f64 = 1e18;
