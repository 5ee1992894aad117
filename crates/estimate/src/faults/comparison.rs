//! A round's offsets and rates against what was predicted of them.
//!
//! Place in the flow: made by `clocks`, read by `paths`, judged by `clocks`.

use super::jump::Jump;
use super::measured::Measured;

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
    /// The node's windows prove a step, or it saw one itself.
    pub(super) broken: Vec<bool>,
    /// What most nodes are off by, when that is beyond the limits.
    pub(super) common: Option<[f64; 2]>,
    pub(super) back: Vec<bool>,
}

impl Comparison {
    /// Off its prediction in this round, what most nodes are off by taken away.
    pub(super) fn is_off(&self, node: usize) -> bool {
        self.innovations.get(node).copied().flatten().is_some_and(|i| i.judged && i.less(self.common).is_off())
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

    pub(super) fn less(self, common: Option<[f64; 2]>) -> Self {
        let [x, f] = common.unwrap_or_default();
        Self { off: [self.off[0] - x, self.off[1] - f], ..self }
    }
}

/// A single round so many limits off is not to be used.
const FAR: f64 = 4.0;
