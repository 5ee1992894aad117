//! How noisy a quantity really is, in units of what the model says: learnt from the data, robustly.
//!
//! Place in the flow: `faults` divides its limits' noise by it. The scale is 1.4826 times the median of the last normalised
//! deviations, never below 1: a model that claims too much noise makes the watch blunter, not blind.
//!
//! What it does not do: decide what is a deviation worth learning from; faults must be kept out by the caller.

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

    /// By what the model's standard deviation is to be multiplied.
    pub(super) fn value(&self) -> f64 {
        (TO_SIGMA * median(self.recent.iter().copied())).max(1.0)
    }
}

/// Deviations remembered: some rounds of a small run, part of a round of a large one.
const KEPT: usize = 512;
