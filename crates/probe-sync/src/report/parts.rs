//! The parts of a round on one rank, with their durations, their spans for logs and trace
//! collectors, and their scopes in a recording.
//!
//! The round loop executes each part in [`Parts::time`]; the master's times become metrics. The
//! spans have the level debug: without a subscriber at that level each costs one comparison. Scopes
//! are recorded by any recording of the process, from `--record` or the surrounding program;
//! gathers and broadcasts include the data by which `check` pairs collectives.

use std::time::{Duration, Instant};

use probe_sync_record::{Kind, Scope, scope};
use tracing::Span;

/// A part of a round.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Waiting for the window's end.
    Wait,
    /// Cutting the window and fitting its edges.
    Fit,
    /// Gathering the nodes' windows at the master.
    Gather,
    /// Solving the graph at the master.
    Solve,
    /// Writing the round at the master.
    Record,
    /// Broadcasting the decision to all ranks.
    Broadcast,
}

/// Durations of the parts of a round so far.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Parts {
    times: [Option<Duration>; Part::ALL.len()],
    /// Round that the parts belong to.
    round: Numbers,
}

/// Numbers that a recording attaches to a round.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Numbers {
    /// Number of the round.
    pub round: u64,
    /// Rank that leads; `None` if all ranks decide.
    pub root: Option<u64>,
    /// Number of ranks.
    pub ranks: u64,
}

impl Part {
    /// All parts, in order.
    pub const ALL: [Self; 6] = [Self::Wait, Self::Fit, Self::Gather, Self::Solve, Self::Record, Self::Broadcast];

    /// Returns the name of the span, which is also the label in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Fit => "fit",
            Self::Gather => "gather",
            Self::Solve => "solve",
            Self::Record => "record",
            Self::Broadcast => "broadcast",
        }
    }

    /// Span names must be literals, so each has a line of its own.
    fn span(self) -> Span {
        match self {
            Self::Wait => tracing::debug_span!("wait"),
            Self::Fit => tracing::debug_span!("fit"),
            Self::Gather => tracing::debug_span!("gather"),
            Self::Solve => tracing::debug_span!("solve"),
            Self::Record => tracing::debug_span!("record"),
            Self::Broadcast => tracing::debug_span!("broadcast"),
        }
    }

    /// Scope names must be literals too.
    fn scope(self, numbers: Numbers) -> Scope {
        let Numbers { round, root, ranks } = numbers;
        match (self, root) {
            (Self::Wait, _) => scope!("window", round = round),
            (Self::Fit, _) => scope!("fit", round = round),
            (Self::Solve, _) => scope!("solve", round = round),
            (Self::Record, _) => scope!(Kind::Io, "record", round = round),
            (Self::Gather, Some(root)) => scope!(
                Kind::Collective,
                "gather",
                collective = "gather",
                group = GROUP,
                group_size = ranks,
                sequence = round,
                root = root
            ),
            (Self::Gather, None) => scope!(
                Kind::Collective,
                "all_gather",
                collective = "all_gather",
                group = GROUP,
                group_size = ranks,
                sequence = round
            ),
            (Self::Broadcast, root) => scope!(
                Kind::Collective,
                "broadcast",
                collective = "broadcast",
                group = GROUP,
                group_size = ranks,
                sequence = round,
                root = root.unwrap_or(0)
            ),
        }
    }
}

impl Parts {
    /// Creates the parts of a round that begins.
    pub fn of(round: Numbers) -> Self {
        Self { round, ..Self::default() }
    }

    /// Runs `work`, timing it as this part of the round.
    pub fn time<T>(&mut self, part: Part, work: impl FnOnce() -> T) -> T {
        let _span = part.span().entered();
        let _scope = part.scope(self.round);
        let begun = Instant::now();
        let value = work();
        *self.times[part as usize].get_or_insert_default() += begun.elapsed();
        value
    }

    /// Returns the parts completed so far.
    pub fn iter(&self) -> impl Iterator<Item = (Part, Duration)> {
        Part::ALL.into_iter().filter_map(|part| Some((part, self.times[part as usize]?)))
    }
}

/// Name of the group of the run's ranks in recordings.
const GROUP: &str = "probe_sync";
