//! How fast the next window probes: cadence, window length and additional edges.
//!
//! After the graph is solved the root asks its [`Policy`]; the decision travels in the broadcast,
//! so that all nodes change together.

pub(crate) mod adaptive;

use probe_sync_estimate::round::SolvedRound;
use probe_sync_lines::Decision;
use probe_sync_time::{Duration, Edge, Reference, Timestamp};

use self::adaptive::{Adaptive, PacingReport};
use crate::Config;

/// The pace of probing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Gap between exchanges started by one host.
    pub cadence: Duration,
    /// Length of a window.
    pub window: Duration,
    /// Edges probed in addition to the run's own.
    pub extra_edges: Vec<Edge>,
}

impl Pace {
    /// Returns the configured pace.
    pub fn configured(config: &Config) -> Self {
        Self { cadence: config.cadence(), window: config.window(), extra_edges: Vec::new() }
    }

    /// Returns the pace in a decision of the master.
    pub fn decided(decision: &Decision) -> Self {
        Self { cadence: decision.cadence, window: decision.next_window, extra_edges: decision.extra_edges.clone() }
    }

    /// Returns the decision to continue at this pace with a window that begins at `start`.
    pub fn decision(&self, start: Timestamp<Reference>, stop: bool) -> Decision {
        Decision {
            next_window_end: start + self.window,
            next_window: self.window,
            cadence: self.cadence,
            stop,
            extra_edges: self.extra_edges.clone(),
            closing: false,
            paused: false,
            phase: None,
        }
    }
}

/// Chooses the pace of each next round, at the root.
#[derive(Clone, Debug)]
pub(crate) enum Policy {
    /// Keeps the configured pace.
    Fixed,
    /// Adapts the pace to the target.
    Adaptive(Box<Adaptive>),
    /// Chooses the pace by a function of a test.
    #[cfg(test)]
    Scripted(fn(&SolvedRound, &Pace) -> Pace),
}

impl Policy {
    /// Creates the configured policy for a run of `nodes` nodes that probes `edges`. If several
    /// ranks make the same decisions, only one `speaks`.
    pub fn of(config: &Config, nodes: usize, edges: &[Edge], speaks: bool) -> Self {
        match config.pacing() {
            Some(options) => {
                let keeps_graph = config.out_neighbors.is_some();
                Self::Adaptive(Box::new(Adaptive::new(nodes, edges, options, keeps_graph, speaks)))
            }
            None => Self::Fixed,
        }
    }

    /// Returns the pace after the round just solved, given the current one.
    pub fn next(&mut self, round: &SolvedRound, current: &Pace) -> Pace {
        match self {
            Self::Fixed => current.clone(),
            Self::Adaptive(adaptive) => {
                let step = adaptive.next(round, current.cadence);
                let cadence = Duration::from_ns(step.cadence_ns);
                let window = step.window_ns.map_or(current.window, Duration::from_ns);
                Pace { cadence, window, extra_edges: step.extra_edges }
            }
            #[cfg(test)]
            Self::Scripted(next) => next(round, current),
        }
    }

    /// Returns the results for the run's report; `None` if the pace was fixed.
    pub fn report(&self) -> Option<PacingReport> {
        match self {
            Self::Adaptive(adaptive) => adaptive.report(),
            _ => None,
        }
    }
}
