//! A round's offsets and rates compared with their predictions.

use super::jump::Jump;
use super::measured::Measured;
use crate::statistics::median;

/// A measurement against its prediction.
#[derive(Copy, Clone, Debug)]
pub(super) struct Innovation {
    /// Measured minus predicted: ns, ns/s.
    pub(super) off: [f64; 2],
    /// What the model expects of it.
    pub(super) deviation: [f64; 2],
    /// Beyond this it is off the prediction.
    pub(super) limit: [f64; 2],
    /// The filter has seen enough to judge by it.
    pub(super) judged: bool,
}

/// Where every node is against its prediction in a round.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    /// By node; None where nothing was predicted or measured.
    pub(super) innovations: Vec<Option<Innovation>>,
    /// The measurement: offset, rate and their variances; None where it is not to be used.
    pub(super) measured: Vec<Option<Measured>>,
    /// Whether the node's offset moved by more than its rates explain.
    pub(super) jumps: Vec<Jump>,
    /// The same, what most nodes did alike taken away.
    pub(super) own_jumps: Vec<Jump>,
    /// The node's windows prove a step, or it saw one itself.
    pub(super) broken: Vec<bool>,
    /// What most nodes are off by, when that is beyond the limits.
    pub(super) common: Option<[f64; 2]>,
    /// The same where it is not: what a node did itself is beside it.
    pub(super) shared: [f64; 2],
    /// One node alone is measured: nobody tells it from the reference.
    pub(super) alone: bool,
    pub(super) back: Vec<bool>,
}

impl Comparison {
    /// Off its prediction in this round, what most nodes are off by taken away.
    pub(super) fn is_off(&self, node: usize) -> bool {
        self.innovations.get(node).copied().flatten().is_some_and(|i| i.judged && i.less(self.shared).is_off())
    }
}

impl Innovation {
    pub(super) fn is_off(&self) -> bool {
        self.off[0].abs() > self.limit[0] || self.off[1].abs() > self.limit[1]
    }

    /// So far off that no second round is needed to mistrust the first.
    pub(super) fn is_far_off(&self) -> bool {
        (0..2).any(|k| self.off[k].abs() > FAR * self.limit[k])
    }

    pub(super) fn less(self, [x, f]: [f64; 2]) -> Self {
        Self { off: [self.off[0] - x, self.off[1] - f], ..self }
    }
}

/// What most nodes are off by, if it is the same for most. One node alone is no majority.
pub(super) fn shared(innovations: &[Option<Innovation>]) -> Option<[f64; 2]> {
    let judged: Vec<&Innovation> = innovations.iter().flatten().filter(|i| i.judged).collect();
    let middle = [0, 1].map(|k| median(judged.iter().map(|i| i.off[k])));
    let alike = judged.iter().filter(|i| !i.less(middle).is_off()).count();
    (judged.len() > 1 && is_most(alike, judged.len())).then_some(middle)
}

/// Whether what nodes share is beyond the limits of most.
pub(super) fn is_beyond(shared: [f64; 2], innovations: &[Option<Innovation>]) -> bool {
    let judged = || innovations.iter().flatten().filter(|i| i.judged);
    is_most(judged().filter(|i| Innovation { off: shared, ..**i }.is_off()).count(), judged().count())
}

/// Seven of ten.
pub(super) const fn is_most(some: usize, all: usize) -> bool {
    10 * some >= 7 * all
}

/// A single round so many limits off is not to be used.
const FAR: f64 = 4.0;
