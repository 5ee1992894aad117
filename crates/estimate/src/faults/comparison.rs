//! A round's offsets and rates compared with their predictions.

use super::jump::Jump;
use super::measured::Measured;
use crate::statistics::median;

/// A measurement relative to its prediction.
#[derive(Copy, Clone, Debug)]
pub(super) struct Innovation {
    /// Measured minus predicted: ns, ns/s.
    pub(super) off: [f64; 2],
    /// Deviation expected by the model.
    pub(super) deviation: [f64; 2],
    /// Limit beyond which the measurement is off the prediction.
    pub(super) limit: [f64; 2],
    /// True if the filter has seen enough for judgement.
    pub(super) judged: bool,
}

/// Comparison of all nodes with their predictions in a round.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    /// Innovations by node; `None` if nothing was predicted or measured.
    pub(super) innovations: Vec<Option<Innovation>>,
    /// Measured offset, rate and their variances; `None` if they must not be used.
    pub(super) measured: Vec<Option<Measured>>,
    /// Jumps of the nodes' offsets beyond what their rates explain.
    pub(super) jumps: Vec<Jump>,
    /// Jumps minus the part common to most nodes.
    pub(super) own_jumps: Vec<Jump>,
    /// True if the node's windows prove a step, or it saw one itself.
    pub(super) broken: Vec<bool>,
    /// Common deviation of most nodes, if beyond the limits.
    pub(super) common: Option<[f64; 2]>,
    /// Common deviation of most nodes, if within the limits; a node's own deviation is relative to
    /// it.
    pub(super) shared: [f64; 2],
    /// True if only one node is measured, so that it cannot be distinguished from the reference.
    pub(super) alone: bool,
    pub(super) back: Vec<bool>,
}

impl Comparison {
    /// Returns true if the node is off its prediction in this round, relative to the common
    /// deviation.
    pub(super) fn is_off(&self, node: usize) -> bool {
        self.innovations.get(node).copied().flatten().is_some_and(|i| i.judged && i.less(self.shared).is_off())
    }
}

impl Innovation {
    pub(super) fn is_off(&self) -> bool {
        self.off[0].abs() > self.limit[0] || self.off[1].abs() > self.limit[1]
    }

    /// Returns true if the deviation is so large that one round suffices to mistrust it.
    pub(super) fn is_far_off(&self) -> bool {
        (0..2).any(|k| self.off[k].abs() > FAR * self.limit[k])
    }

    pub(super) fn less(self, [x, f]: [f64; 2]) -> Self {
        Self { off: [self.off[0] - x, self.off[1] - f], ..self }
    }
}

/// Returns the common deviation, if it is the same for most nodes. One node is no majority.
pub(super) fn shared(innovations: &[Option<Innovation>]) -> Option<[f64; 2]> {
    let judged: Vec<&Innovation> = innovations.iter().flatten().filter(|i| i.judged).collect();
    let middle = [0, 1].map(|k| median(judged.iter().map(|i| i.off[k])));
    let alike = judged.iter().filter(|i| !i.less(middle).is_off()).count();
    (judged.len() > 1 && is_most(alike, judged.len())).then_some(middle)
}

/// Returns true if the common deviation is beyond the limits of most nodes.
pub(super) fn is_beyond(shared: [f64; 2], innovations: &[Option<Innovation>]) -> bool {
    let judged = || innovations.iter().flatten().filter(|i| i.judged);
    is_most(judged().filter(|i| Innovation { off: shared, ..**i }.is_off()).count(), judged().count())
}

/// Returns true for at least seven of ten.
pub(super) const fn is_most(some: usize, all: usize) -> bool {
    10 * some >= 7 * all
}

/// A single round this many limits off must not be used.
const FAR: f64 = 4.0;
