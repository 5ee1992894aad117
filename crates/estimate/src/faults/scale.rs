//! A robust estimate from the data of how noisy a quantity really is, in units of the model's
//! noise.
//!
//! `faults` divides the noise in its limits by the scale, which is 1.4826 times the median of the
//! last normalised deviations and never below 1: a model that claims too much noise makes the watch
//! less sensitive, not blind.
//!
//! Callers must keep faults out; the scale learns from every deviation it receives.

use std::collections::VecDeque;

use crate::statistics::{TO_SIGMA, median};

/// Normalised deviations of late.
#[derive(Clone, Debug, Default)]
pub(super) struct Scale {
    recent: VecDeque<f64>,
}

impl Scale {
    /// Learns a deviation in standard deviations of the model.
    pub(super) fn learn(&mut self, deviation: f64) {
        if deviation.is_finite() {
            if self.recent.len() == KEPT {
                self.recent.pop_front();
            }
            self.recent.push_back(deviation.abs());
        }
    }

    /// Factor on the standard deviation of the model.
    pub(super) fn value(&self) -> f64 {
        (TO_SIGMA * median(self.recent.iter().copied())).max(1.0)
    }
}

/// Deviations remembered: some rounds of a small run, part of a round of a large one.
const KEPT: usize = 512;
