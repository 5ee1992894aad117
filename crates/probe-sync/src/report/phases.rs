//! Named phases of a run, as the experimenter named them.
//!
//! The recorder passes in every round and the report lists the phases. A round belongs to the phase
//! that the previous round decided on.

use probe_sync_lines::Round;
use probe_sync_time::{Reference, RoundId, Timestamp};
use serde::{Deserialize, Serialize};

/// A named phase of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Phase {
    /// Name of the phase.
    pub name: String,
    /// First round of the phase.
    pub first: RoundId,
    /// Last round of the phase.
    pub last: RoundId,
    /// Start of the first round's window on the reference clock.
    #[cfg_attr(feature = "schema", schemars(with = "i64"))]
    pub start_ns: Timestamp<Reference>,
    /// End of the last round's window on the reference clock.
    #[cfg_attr(feature = "schema", schemars(with = "i64"))]
    pub end_ns: Timestamp<Reference>,
}

/// The phases so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Phases {
    all: Vec<Phase>,
    /// Phase decided on by the previous round.
    current: Option<String>,
}

impl Phases {
    /// Adds a solved round.
    pub fn observe(&mut self, round: &Round) {
        if let Some(name) = &self.current {
            let goes_on = |phase: &&mut Phase| phase.name == *name && phase.last.next() == round.round_id;
            if let Some(phase) = self.all.last_mut().filter(goes_on) {
                (phase.last, phase.end_ns) = (round.round_id, round.window_end);
            } else if self.all.len() < PHASES_MAX {
                self.all.push(Phase {
                    name: name.clone(),
                    first: round.round_id,
                    last: round.round_id,
                    start_ns: round.window_start,
                    end_ns: round.window_end,
                });
            }
        }
        self.current.clone_from(&round.decision.phase);
    }

    /// Returns all phases, in order.
    pub fn all(&self) -> Vec<Phase> {
        self.all.clone()
    }
}

/// Most phases kept for the report; `global_windows.jsonl` has all.
const PHASES_MAX: usize = 10_000;
