//! The contents of messages between ranks, in a round and between rounds.

use probe_sync_collective::Rank;
use probe_sync_lines::Round;
use probe_sync_time::{NodeId, Reference, RoundId, Timestamp};
use serde::{Deserialize, Serialize};

use super::request::Request;
use super::standby::{Present, Shadow};
use crate::clock::Above;
use crate::join::Back;
use crate::late::Answer;

/// Message of the master to all ranks at the end of a round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Broadcast {
    /// The solved round, with the decision about the next.
    Solved(Box<Told>),
    /// The run ends here; the current window was too short to be solved.
    Ended {
        /// The round that was not solved.
        round_id: RoundId,
    },
}

/// Content of a broadcast about a solved round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    /// The round, or this rank's part of it.
    pub round: Round,
    /// Nodes that probe again from now on.
    pub back: Vec<Back>,
    /// Ranks that do not take part. Only present ranks can get another master when this one is
    /// lost.
    pub away: Vec<Rank>,
    /// For the rank that takes over if the master is lost; in time-based rounds for those that have
    /// missed the round.
    pub shadow: Option<Shadow>,
    /// For all potential successors, if it has changed: which ranks are present.
    pub attendants: Option<Present>,
    /// In a region: relation of its reference's clock to the global reference.
    pub above: Option<Above>,
}

/// A message outside of rounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Word {
    /// To the master: a request to the run.
    Asks(Request),
    /// From the master: the window of this round ends at this instant (ROUND_END).
    RoundEnds {
        /// The current round.
        round_id: RoundId,
        /// Time on the reference clock.
        at: Timestamp<Reference>,
    },
    /// From the root, if rounds have no master: the end of the run was requested.
    RunEnds,
    /// A note of a caller to the others.
    Note(Vec<u8>),
    /// To the root: a rank's arrivals ([`crate::late`]).
    Arrivals(Vec<u8>),
    /// From the root: the late ranks.
    Late(Vec<u8>),
    /// From the root: evidence of a hang is wanted.
    HangRequest(u64),
    /// To the root: what a rank has answered to such a request.
    HangAnswer(u64, Answer),
}

impl Broadcast {
    /// Creates the broadcast of a solved round, without a shadow.
    pub fn solved(round: Round, back: Vec<Back>, away: Vec<Rank>) -> Self {
        Self::Solved(Box::new(Told { round, back, away, shadow: None, attendants: None, above: None }))
    }

    /// Returns the message for a rank of `node`, if ranks are sent only their own part.
    pub fn part_of(&self, node: NodeId) -> Self {
        self.of_all(|round| round.part_of(node))
    }

    /// Returns the common message with this part of the round.
    fn of_all(&self, part: impl FnOnce(&Round) -> Round) -> Self {
        let Self::Solved(told) = self else { return Self::Ended { round_id: self.round_id() } };
        let (back, away, above) = (told.back.clone(), told.away.clone(), told.above);
        Self::Solved(Box::new(Told { round: part(&told.round), back, away, shadow: None, attendants: None, above }))
    }

    /// Returns the message for the other potential successors.
    pub fn with_attendants(&self) -> Self {
        let mut told = self.without_shadow();
        if let (Self::Solved(own), Self::Solved(told)) = (self, &mut told) {
            told.attendants.clone_from(&own.attendants);
        }
        told
    }

    /// Returns the message for ranks that do not take over.
    pub fn without_shadow(&self) -> Self {
        self.of_all(Clone::clone)
    }

    /// Returns the round that the message concerns.
    pub fn round_id(&self) -> RoundId {
        match self {
            Self::Solved(told) => told.round.round_id,
            Self::Ended { round_id } => *round_id,
        }
    }
}
