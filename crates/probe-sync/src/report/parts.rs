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
    /// Until the window's end.
    Wait,
    /// The window is cut and its edges are fitted.
    Fit,
    /// The nodes' windows come to the master.
    Gather,
    /// The graph is solved, at the master.
    Solve,
    /// The round is written, at the master.
    Record,
    /// The decision goes to all ranks.
    Broadcast,
}

/// How long the parts of a round took so far.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Parts {
    times: [Option<Duration>; Part::ALL.len()],
    /// Whose parts.
    round: Numbers,
}

/// What a recording says of a round.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Numbers {
    /// Its number.
    pub round: u64,
    /// The rank that leads; None where all ranks decide.
    pub root: Option<u64>,
    /// How many ranks.
    pub ranks: u64,
}

impl Part {
    /// In their order.
    pub const ALL: [Self; 6] = [Self::Wait, Self::Fit, Self::Gather, Self::Solve, Self::Record, Self::Broadcast];

    /// The name of the span, and the label in metrics.
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

    /// A span's name is part of the program, so each has a line of its own.
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

    /// So does a scope's.
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
    /// Of a round that begins.
    pub fn of(round: Numbers) -> Self {
        Self { round, ..Self::default() }
    }

    /// Does `work`, a part of the round.
    pub fn time<T>(&mut self, part: Part, work: impl FnOnce() -> T) -> T {
        let _span = part.span().entered();
        let _scope = part.scope(self.round);
        let begun = Instant::now();
        let value = work();
        *self.times[part as usize].get_or_insert_default() += begun.elapsed();
        value
    }

    /// The parts that were gone through.
    pub fn iter(&self) -> impl Iterator<Item = (Part, Duration)> {
        Part::ALL.into_iter().filter_map(|part| Some((part, self.times[part as usize]?)))
    }
}

/// The group of a run's ranks, as recordings name it.
const GROUP: &str = "probe_sync";
