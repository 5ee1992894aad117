//! What happens next: the hook through which cadence and window length can change from round to round.
//!
//! Place in the flow: after the graph is solved the root asks its [`Policy`]; the [`Decision`] travels in the broadcast,
//! so that all nodes change together. [`Fixed`] keeps what was configured; [`Configured`] does what the configuration says,
//! fixed or adaptive ([`crate::adaptive`]).

use probe_sync_estimate::round::{Decision, GlobalWindowData};
use probe_sync_estimate::window::NodeWindowData;
use probe_sync_time::{Duration, Edge, Reference, Timestamp};

use crate::Config;
use crate::adaptive::{Adaptive, PacingReport};

/// Chooses cadence and window length of the next round.
pub trait Policy {
    /// The run begins: `nodes` nodes, which probe `edges`.
    fn begin(&mut self, _config: &Config, _nodes: usize, _edges: &[Edge]) {}

    /// Looks at the round that was just solved, at the windows that it was solved from, and at what is in force now.
    fn next(&mut self, round: &GlobalWindowData, windows: &[NodeWindowData], current: &Pace) -> Pace;

    /// What it did, for the run's report; `None` where the pace was fixed.
    fn report(&self) -> Option<PacingReport> {
        None
    }
}

/// How fast a run probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
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
        Self { cadence: config.cadence, window: config.window, extra_edges: Vec::new() }
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
        }
    }
}

/// Keeps the configured pace.
#[derive(Copy, Clone, Debug, Default)]
pub struct Fixed;

impl Policy for Fixed {
    fn next(&mut self, _: &GlobalWindowData, _: &[NodeWindowData], current: &Pace) -> Pace {
        current.clone()
    }
}

/// Does what the configuration says: adaptive where a target is given, otherwise as [`Fixed`].
#[derive(Clone, Debug, Default)]
pub struct Configured(Option<Adaptive>);

impl Policy for Configured {
    fn begin(&mut self, config: &Config, nodes: usize, edges: &[Edge]) {
        self.0 = config.pacing().map(|options| Adaptive::new(nodes, edges, options));
    }

    fn next(&mut self, round: &GlobalWindowData, windows: &[NodeWindowData], current: &Pace) -> Pace {
        match &mut self.0 {
            Some(adaptive) => adaptive.next(round, windows, current),
            None => current.clone(),
        }
    }

    fn report(&self) -> Option<PacingReport> {
        self.0.as_ref().and_then(Policy::report)
    }
}
