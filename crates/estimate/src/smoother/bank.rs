//! One node of the live smoother: a Kalman filter for each of a bank of wander densities, and a gate before them.
//!
//! Place in the flow: under `online`, which solves each round and hands every node its state. The innovations of each filter give its
//! likelihood; which one speaks `online` decides, from all nodes together. A measurement beyond the gate of a wild clock is a
//! pending outlier: it speaks for itself in its round, but the filters go on without it; when the next is beyond the gate too,
//! they begin anew.
//!
//! What it does not do: know other nodes.

use super::evidence;
use crate::graph::linear::{Block, Pair};
use crate::kalman::Belief;
use crate::motion::window_excess;

/// One node against the reference.
#[derive(Clone, Debug, Default)]
pub(super) struct Bank {
    /// Subtracted from all offsets, ns.
    pub(super) potential: i128,
    /// Per density; None before the first measurement.
    filters: Option<[Belief; BANK]>,
    /// Log likelihood of each density, forgetting.
    pub(super) likelihood: [f64; BANK],
    /// Rounds since anything was measured.
    pub(super) unheard: u32,
    /// A measurement beyond the gate, of the round before or of this one.
    pending_outlier: Option<Belief>,
}

impl Bank {
    /// Whether nothing is known yet, or nothing any more.
    pub(super) fn is_new(&self) -> bool {
        self.filters.is_none()
    }

    /// The clock does not continue from the round before.
    pub(super) fn forget(&mut self) {
        (self.filters, self.pending_outlier) = (None, None);
    }

    /// The filter of one density, unless a pending outlier speaks for the node.
    pub(super) fn settled(&self, density: usize) -> Option<Belief> {
        self.filters.filter(|_| self.pending_outlier.is_none()).map(|filters| filters[density])
    }

    /// Where the clock is: the pending outlier if there is one, else the filter of one density.
    pub(super) fn belief(&self, density: usize) -> Option<Belief> {
        self.pending_outlier.or_else(|| Some(self.filters?[density]))
    }

    /// Moves every filter's offset, ns.
    pub(super) fn shift(&mut self, by: f64) {
        self.filters.iter_mut().flatten().for_each(|filter| filter.state[0] += by);
    }

    /// `delta` seconds pass.
    pub(super) fn predict(&mut self, delta: f64) {
        self.unheard = self.unheard.saturating_add(1);
        for (filter, density) in self.filters.iter_mut().flatten().zip(DENSITIES) {
            *filter = filter.predicted(delta, density);
        }
        // It speaks for the node until the next packet, and time passes for it too.
        if let Some(pending) = &mut self.pending_outlier {
            *pending = pending.predicted(delta, DENSITIES[GATE_DENSITY]);
        }
    }

    /// Takes a round's measurement, in which `window` seconds of wander lie.
    pub(super) fn update(&mut self, measured: Pair, noise: Block, window: f64) {
        self.unheard = 0;
        let noises = DENSITIES.map(|density| {
            let [offset, rate] = window_excess(density, window);
            [noise[0] + offset, noise[1], noise[2] + rate]
        });
        let again = self.pending_outlier.take().is_some();
        let Some(filters) = &mut self.filters else {
            self.filters = Some(noises.map(|covariance| Belief { state: measured, covariance }));
            return;
        };
        let gate = filters[GATE_DENSITY].innovation(measured, noises[GATE_DENSITY]);
        if gate.is_some_and(|innovation| innovation.distance > GATE) {
            if again {
                *filters = noises.map(|covariance| Belief { state: measured, covariance });
            } else {
                self.pending_outlier = Some(Belief { state: measured, covariance: noises[GATE_DENSITY] });
            }
            return;
        }
        for ((filter, likelihood), noise) in filters.iter_mut().zip(&mut self.likelihood).zip(noises) {
            let Some(innovation) = filter.innovation(measured, noise) else { continue };
            let log = evidence::log_density(innovation.determinant, innovation.distance);
            *likelihood = FORGET * *likelihood + log;
            *filter = filter.updated(&innovation, noise);
        }
    }
}

/// Densities of the bank, ns²/s³: from a tenth of a good quartz to a clock that wanders 1 ppm in a second.
pub(super) const DENSITIES: [f64; BANK] = [0.4, 4.0, 40.0, 400.0, 4e3, 4e4, 4e5, 4e6];
pub(super) const BANK: usize = 8;

/// The gate: squared distance of (offset, rate) beyond which the density at this place of the bank explains a measurement no more.
const GATE: f64 = 60.0;
const GATE_DENSITY: usize = 4;

/// How much of what was seen counts a round later.
pub(super) const FORGET: f64 = 0.98;
