//! How well a run knows its clocks: one number per node, comparable between different ways of
//! cutting the same run.
//!
//! The first pass of `smoother` produces it, and `run::windows` compares it. The variances are
//! those of the model, with wander and noise by marginal likelihood; asymmetry is separate, because
//! no window changes it.

use probe_sync_time::{NodeId, Reference, Timestamp};

use super::solution::RunSolution;

/// Mean variances by node, at times that all cuts of a run share.
#[derive(Clone, Debug)]
pub(crate) struct Errors {
    /// Number of times at which a node is known; random variance, ns²; and asymmetry variance, ns².
    nodes: Vec<(usize, f64, f64)>,
}

impl Errors {
    pub(super) fn new(solution: &RunSolution, nodes: usize, [first, last]: [Timestamp<Reference>; 2]) -> Self {
        let whole = i128::from(last.as_ns()) - i128::from(first.as_ns());
        let time = |k: i128| first.as_ns().saturating_add((whole * k / TIMES) as i64);
        let node = |node: u32| {
            let known = (0..=TIMES).filter_map(|k| solution.at(NodeId(node), Timestamp::from_ns(time(k))));
            let (count, random, asymmetry) = known.fold((0, 0.0, 0.0), |(count, random, asymmetry), known| {
                let part = known.asymmetry_sigma_ns.powi(2);
                (count + 1, random + (known.sigma_ns.powi(2) - part).max(0.0), asymmetry + part)
            });
            let mean = |sum: f64| sum / f64::max(1.0, count as f64);
            (count, mean(random), mean(asymmetry))
        };
        Self { nodes: (0..nodes as u32).map(node).collect() }
    }

    /// Mean logarithm of the nodes' variances, with the asymmetry shown by the `live` windows;
    /// `None` if this knows less about a node than those.
    pub(crate) fn score(&self, live: &Self) -> Option<f64> {
        let mut logs = Vec::new();
        for ((count, random, _), (usual, _, asymmetry)) in self.nodes.iter().zip(&live.nodes) {
            if count < usual {
                return None;
            }
            if random + asymmetry > 0.0 {
                logs.push((random + asymmetry).ln());
            }
        }
        (!logs.is_empty()).then(|| logs.iter().sum::<f64>() / logs.len() as f64)
    }
}

/// Times between which a run is asked.
const TIMES: i128 = 256;
