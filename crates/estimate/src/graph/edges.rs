//! Edges as equations about small corrections, and their move to the reference's midpoint.
//!
//! Every user of fitted edges shares this code: the solver of `graph`, the watch over paths
//! (`faults`), and the live and the joint smoother (`smoother`). Each has its own belief about the
//! nodes (the iteration's, the solved round's, the smoothed one), but only [`Equation::at`]
//! implements the move. Offsets may be hours while errors are nanoseconds, so a node's offset is an
//! integer potential (i128, from a spanning tree) plus an f64 correction, and an edge keeps only
//! `beta − (potential_j − potential_i)`, a small number formed without loss.
//!
//! Moving. An edge's line holds around its `midpoint` on the SOURCE's clock; wanted is θ when the
//! REFERENCE reads M₀. There the source reads M₀ + offset_i, so with
//! `dx = M₀ + offset_i − midpoint`: `beta' = beta + alpha·dx`, covariance and bounds alike. At 60
//! ppm a midpoint wrong by 20 ms costs 1.2 µs without it. alpha is per ns of the source's clock;
//! per ns of the reference's it is `alpha·(1 + r_i)`.
//!
//! offset_i is a belief. If the true one is up to z ns away, the bounds hold with `alpha·z` more
//! room ([`Equation::per_offset`]).

use probe_sync_lines::{EdgeFit, NodeEstimate};
use probe_sync_time::Edge;

use super::linear::Pair;
use crate::edge_fit::shift_covariance;
use crate::motion::NS_PER_S_PER_PPM;

/// Present estimate of a node during the iteration.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct State {
    /// Integer part of the offset, ns.
    pub(crate) potential: i128,
    /// Correction of the offset in ns, and rate in ns/s against the reference.
    pub(crate) x: Pair,
}

impl State {
    /// Converts an estimate, relative to a given potential.
    pub(crate) fn above(potential: i128, estimate: &NodeEstimate) -> Self {
        let whole = estimate.offset_ns.round();
        let offset = (whole as i128 - potential) as f64 + (estimate.offset_ns - whole);
        Self { potential, x: [offset, estimate.drift_ppm * NS_PER_S_PER_PPM] }
    }

    /// Converts an estimate.
    pub(crate) fn of(estimate: &NodeEstimate) -> Self {
        Self::above(estimate.offset_ns.round() as i128, estimate)
    }

    /// The offset in ns, rounded to f64.
    pub(crate) fn offset(&self) -> f64 {
        self.potential as f64 + self.x[0]
    }
}

/// One usable edge.
#[derive(Clone, Debug)]
pub(crate) struct Equation {
    pub(crate) edge: Edge,
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Place in the input.
    pub(crate) index: usize,
    /// Edges between the same two nodes, this one included: they share one path asymmetry.
    pub(crate) parallel: f64,
    /// Asymmetry of this edge in units of the median edge's.
    pub(crate) asymmetry_scale: f64,
    midpoint: i128,
    /// beta as integer and rest.
    beta: (i128, f64),
    alpha: f64,
    covariance: [f64; 3],
    /// Bounds minus beta, ns.
    bounds: [f64; 2],
    alpha_bounds: [f64; 2],
}

/// An edge at the reference's midpoint, relative to the present estimate.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Moved {
    /// Measured minus estimated: offset in ns, rate in ns/s.
    pub(crate) residual: Pair,
    /// Covariance of the measurement, ns², ns²/s, ns²/s².
    pub(crate) covariance: [f64; 3],
    /// Hard bounds of θ_j − θ_i minus the estimated value, ns.
    pub(crate) bounds: [f64; 2],
}

impl Equation {
    pub(crate) fn new(index: usize, fitted: &EdgeFit) -> Self {
        let whole = fitted.beta.round();
        // An infeasible fit is worth no more than the overlap of its points.
        let overlap = if fitted.feasible { 0.0 } else { fitted.margin_ns.powi(2) };
        let [a, ab, b] = fitted.covariance;
        Self {
            edge: fitted.edge(),
            from: fitted.src_node_id.index(),
            to: fitted.dst_node_id.index(),
            index,
            parallel: 1.0,
            asymmetry_scale: 1.0,
            midpoint: i128::from(fitted.midpoint.as_ns()),
            beta: (whole as i128, fitted.beta - whole),
            alpha: fitted.alpha,
            covariance: [a + overlap, ab * PER_SECOND, b * PER_SECOND * PER_SECOND],
            bounds: [fitted.bound_lo_ns - fitted.beta, fitted.bound_hi_ns - fitted.beta],
            alpha_bounds: fitted.alpha_bounds,
        }
    }

    /// Why the edge cannot be used, if so.
    pub(crate) fn defect(fitted: &EdgeFit) -> Option<&'static str> {
        let numbers = [fitted.alpha, fitted.beta, fitted.margin_ns, fitted.alpha_bounds[0], fitted.alpha_bounds[1]];
        let [a, ab, b] = fitted.covariance;
        if fitted.src_node_id == fitted.dst_node_id {
            Some("connects a node to itself")
        } else if !numbers.iter().chain(&fitted.covariance).all(|number| number.is_finite()) {
            Some("is not finite")
        } else if !(a > 0.0 && b > 0.0 && a * b - ab * ab > 0.0) {
            Some("has a covariance that is not positive definite")
        } else if fitted.beta.abs() > BETA_MAX || fitted.alpha.abs() >= 1.0 {
            Some("is out of range")
        } else if !(fitted.bound_lo_ns <= fitted.bound_hi_ns && fitted.alpha_bounds[0] <= fitted.alpha_bounds[1]) {
            Some("has bounds in the wrong order")
        } else {
            None
        }
    }

    /// Takes back the claim of hard bounds.
    pub(crate) fn drop_bounds(&mut self) {
        self.bounds = [f64::NEG_INFINITY, f64::INFINITY];
    }

    /// Returns by how much the moved bounds may be off, ns per ns of error of the source's offset.
    pub(crate) fn per_offset(&self) -> f64 {
        self.alpha_bounds[0].abs().max(self.alpha_bounds[1].abs())
    }

    /// Integer part of beta, ns.
    pub(crate) fn step(&self) -> i128 {
        self.beta.0
    }

    /// The edge as seen at the reference's midpoint.
    pub(crate) fn at(&self, reference_midpoint: i128, from: &State, to: &State) -> Moved {
        let dx = (reference_midpoint + from.potential - self.midpoint) as f64 + from.x[0];
        let beta = (self.beta.0 - (to.potential - from.potential)) as f64 + self.beta.1;
        let rate = self.alpha * PER_SECOND * (1.0 + from.x[1] / PER_SECOND);
        let shift = self.alpha * dx;
        let residual = [beta + shift - (to.x[0] - from.x[0]), rate - (to.x[1] - from.x[1])];
        let swing = self.alpha_bounds.map(|alpha| alpha * dx);
        let bounds = [
            self.bounds[0] + swing[0].min(swing[1]) - shift + residual[0],
            self.bounds[1] + swing[0].max(swing[1]) - shift + residual[0],
        ];
        Moved { residual, covariance: shift_covariance(self.covariance, dx / PER_SECOND), bounds }
    }
}

/// ns per s: rates are kept in ns/s so that both unknowns have the size of ns.
pub(crate) const PER_SECOND: f64 = 1e9;

/// Differences of two i64 times are smaller, ns.
const BETA_MAX: f64 = 2e19;
