//! One node of the live smoother: a bank of Kalman filters, one for each wander density and each
//! error that all edges of the node share in a round, behind a gate.
//!
//! `online` solves each round and passes every node its state. The innovations of each filter give
//! its likelihood; `online` chooses the active filter from all nodes together. A measurement beyond
//! the gate of a wild clock is a pending outlier: it represents itself in its round, but the
//! filters ignore it. If the next one is beyond the gate too, the filters restart.
//!
//! A measurement far from its prediction is half believed, and says that either it or the
//! prediction is wrong: for that round the variance is the one of a Student-t filter,
//! `P·(ν + d²)/(ν + 2)` with d² = innovation's squared distance (Roth, Özkan and Gustafsson, ICASSP
//! 2013), where that is more. Predicted 0 ± 3 ns, measured 20 ± 3 ns: d² = 22, and ±2.1 ns becomes
//! ±4.4 ns with ν = 4.

use super::evidence;
use super::student::{FREEDOM, log_density};
use super::white_fm::{self, Lapse};
use crate::graph::linear::{Block, Pair};
use crate::kalman::Belief;
use crate::motion::window_excess;

/// One node against the reference.
#[derive(Clone, Debug)]
pub(super) struct Bank {
    /// Subtracted from all offsets, ns.
    pub(super) potential: i128,
    /// `None` before the first measurement.
    filters: Option<[Belief; BANK]>,
    /// Log likelihood of each filter, forgetting.
    pub(super) likelihood: [f64; BANK],
    /// Factor by which the distance of the last measurement widens the variance of each filter.
    surprise: [f64; BANK],
    /// Rounds since anything was measured.
    pub(super) unheard: u32,
    /// A measurement beyond the gate, of the round before or of this one.
    pending_outlier: Option<Belief>,
    /// The same clock with a rate that is set anew within its windows.
    pub(super) white: white_fm::Filters,
    /// Log likelihood, with forgetting, of measurements beyond the gate: the filters do not count
    /// them, and the white ones do.
    pub(super) beyond_gate: f64,
    /// Since the latest measurement, s.
    since: f64,
}

impl Default for Bank {
    fn default() -> Self {
        Self {
            potential: 0,
            filters: None,
            likelihood: [0.0; BANK],
            surprise: [1.0; BANK],
            unheard: 0,
            pending_outlier: None,
            white: white_fm::Filters::default(),
            beyond_gate: 0.0,
            since: 0.0,
        }
    }
}

impl Bank {
    /// Whether nothing is known yet, or nothing any more.
    pub(super) fn is_new(&self) -> bool {
        self.filters.is_none()
    }

    /// The clock does not continue from the round before.
    pub(super) fn forget(&mut self) {
        (self.filters, self.pending_outlier) = (None, None);
        self.white.forget();
    }

    /// One filter, unless a pending outlier represents the node.
    pub(super) fn settled(&self, filter: usize) -> Option<Belief> {
        self.filters.as_ref().filter(|_| self.pending_outlier.is_none()).map(|filters| filters[filter])
    }

    /// Estimate of the clock: the pending outlier if there is one, otherwise one filter, as certain
    /// as its last measurement allows.
    pub(super) fn belief(&self, filter: usize) -> Option<Belief> {
        let widened = |Belief { state, covariance }| Belief {
            state,
            covariance: covariance.map(|variance| variance * self.surprise[filter]),
        };
        self.pending_outlier.or_else(|| Some(widened(self.filters.as_ref()?[filter])))
    }

    /// Moves every filter's offset, ns.
    pub(super) fn shift(&mut self, by: f64) {
        self.filters.iter_mut().flatten().for_each(|filter| filter.state[0] += by);
        self.white.shift(by);
    }

    /// `delta` seconds pass.
    pub(super) fn predict(&mut self, delta: f64) {
        self.unheard = self.unheard.saturating_add(1);
        self.since += delta;
        for (at, filter) in self.filters.iter_mut().flatten().enumerate() {
            *filter = filter.predicted(delta, density(at));
        }
        // It speaks for the node until the next packet, and time passes for it too.
        if let Some(pending) = &mut self.pending_outlier {
            *pending = pending.predicted(delta, DENSITIES[GATE_DENSITY]);
        }
    }

    /// Takes a round's measurement, in which `window` seconds of wander lie and whose shared errors
    /// are `scale` times as large; `usual` is the log of how usual each filter is.
    pub(super) fn update(&mut self, measured: Pair, noise: Block, (window, scale): (f64, f64), usual: &[f64; BANK]) {
        self.unheard = 0;
        self.white.observe(Lapse { delta: self.since, window }, measured, noise, FORGET);
        self.since = 0.0;
        let noises: [Block; BANK] = std::array::from_fn(|at| {
            let [offset, rate] = window_excess(density(at), window);
            [noise[0] + offset + (scale * shared_ns(at)).powi(2), noise[1], noise[2] + rate]
        });
        self.surprise = [1.0; BANK];
        let gate = self.gate(usual);
        let again = self.pending_outlier.take().is_some();
        let Some(filters) = &mut self.filters else {
            self.filters = Some(noises.map(|covariance| Belief { state: measured, covariance }));
            return;
        };
        let innovation = filters[gate].innovation(measured, noises[gate]);
        if let Some(innovation) = innovation.filter(|innovation| innovation.distance > GATE) {
            let log = log_density(innovation.determinant, innovation.distance);
            self.beyond_gate = FORGET * self.beyond_gate + log;
            self.likelihood.iter_mut().for_each(|likelihood| *likelihood *= FORGET);
            if again {
                *filters = noises.map(|covariance| Belief { state: measured, covariance });
            } else {
                self.pending_outlier = Some(Belief { state: measured, covariance: noises[gate] });
            }
            return;
        }
        self.beyond_gate *= FORGET;
        let learned = self.likelihood.iter_mut().zip(&mut self.surprise);
        for ((filter, (likelihood, surprise)), noise) in filters.iter_mut().zip(learned).zip(noises) {
            let Some(innovation) = filter.innovation(measured, noise) else { continue };
            let log = log_density(innovation.determinant, innovation.distance);
            *likelihood = FORGET * *likelihood + log;
            *filter = filter.updated(&innovation, noise);
            *surprise = evidence::surprise(FREEDOM, innovation.distance);
        }
    }

    /// The filter of a wild clock with the apparent round errors of this node: typical ones before
    /// any are seen.
    fn gate(&self, usual: &[f64; BANK]) -> usize {
        let wild = (0..SHARED_NS.len()).map(|shared| shared * DENSITIES.len() + GATE_DENSITY);
        let score = |filter: usize| self.likelihood[filter] + usual[filter];
        wild.max_by(|a, b| score(*a).total_cmp(&score(*b))).unwrap_or(GATE_DENSITY)
    }
}

/// Log of how usual the wander and the shared error of each filter are.
pub(super) fn usual() -> [f64; BANK] {
    std::array::from_fn(|filter| evidence::usual([density(filter), shared_ns(filter)]))
}

/// The wander density of a filter, ns²/s³.
pub(super) fn density(filter: usize) -> f64 {
    DENSITIES[filter % DENSITIES.len()]
}

/// Error common to all edges of a node in a round, as a filter assumes it, ns.
pub(super) fn shared_ns(filter: usize) -> f64 {
    SHARED_NS[filter / DENSITIES.len()]
}

/// Densities of the bank, ns²/s³: from a tenth of a good quartz to a clock that wanders 1 ppm in a
/// second.
const DENSITIES: [f64; 8] = [0.4, 4.0, 40.0, 400.0, 4e3, 4e4, 4e5, 4e6];

/// Shared errors of the bank, ns.
const SHARED_NS: [f64; 7] = [1.0, 2.5, 6.0, 15.0, 40.0, 100.0, 250.0];

pub(super) const BANK: usize = DENSITIES.len() * SHARED_NS.len();

/// The gate: squared distance of (offset, rate) beyond which the density at this position of the
/// bank no longer explains a measurement.
const GATE: f64 = 60.0;
const GATE_DENSITY: usize = 4;

/// Weight of past observations one round later.
pub(super) const FORGET: f64 = 0.98;
