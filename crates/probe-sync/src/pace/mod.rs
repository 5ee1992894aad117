//! How fast the next window probes: cadence, window length and additional edges.
//!
//! After the graph is solved the root asks its [`Policy`]; the decision travels in the broadcast,
//! so that all nodes change together.

pub(crate) mod adaptive;

use probe_sync_estimate::round::{Decision, SolvedRound};
use probe_sync_time::{Duration, Edge, Reference, Timestamp};

use self::adaptive::{Adaptive, PacingReport};
use crate::Config;

/// How fast a run probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Gap between exchanges started by one host.
    pub cadence: Duration,
    /// Length of a window.
    pub window: Duration,
    /// Edges probed besides the run's own.
    pub extra_edges: Vec<Edge>,
}

impl Pace {
    /// The configured pace.
    pub fn configured(config: &Config) -> Self {
        Self { cadence: config.cadence(), window: config.window(), extra_edges: Vec::new() }
    }

    /// What the master decided.
    pub fn decided(decision: &Decision) -> Self {
        Self { cadence: decision.cadence, window: decision.next_window, extra_edges: decision.extra_edges.clone() }
    }

    /// The decision to go on at this pace with a window that begins at `start`.
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

/// Chooses the pace of every next round, at the root.
#[derive(Clone, Debug)]
pub(crate) enum Policy {
    /// As configured.
    Fixed,
    /// By the target.
    Adaptive(Box<Adaptive>),
    /// As a test says.
    #[cfg(test)]
    Scripted(fn(&SolvedRound, &Pace) -> Pace),
}

impl Policy {
    /// What the configuration asks for, in a run of `nodes` nodes that probes `edges`. Where
    /// several ranks decide alike, one `speaks`.
    pub fn of(config: &Config, nodes: usize, edges: &[Edge], speaks: bool) -> Self {
        match config.pacing() {
            Some(options) => {
                let keeps_graph = config.out_neighbors.is_some();
                Self::Adaptive(Box::new(Adaptive::new(nodes, edges, options, keeps_graph, speaks)))
            }
            None => Self::Fixed,
        }
    }

    /// Looks at the round that was just solved, and at what is in force now.
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

    /// What it did, for the run's report; `None` where the pace was fixed.
    pub fn report(&self) -> Option<PacingReport> {
        match self {
            Self::Adaptive(adaptive) => adaptive.report(),
            _ => None,
        }
    }
}
