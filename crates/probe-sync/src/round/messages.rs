//! The contents of messages between ranks, in a round and between rounds.

use probe_sync_collective::Rank;
use probe_sync_estimate::round::GlobalWindowData;
use probe_sync_time::{NodeId, Reference, RoundId, Timestamp};
use serde::{Deserialize, Serialize};

use super::request::Request;
use super::standby::{Present, Shadow};
use crate::clock::Above;
use crate::join::Back;

/// What the master sends to all ranks at the end of a round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Broadcast {
    /// The solved round, with the decision about the next one.
    Solved(Box<Told>),
    /// The run ends here; the window under way was too short to be solved.
    Ended {
        /// The round that was not solved.
        round_id: RoundId,
    },
}

/// What a rank is told of a solved round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    /// The round, or this rank's part of it.
    pub round: GlobalWindowData,
    /// The nodes that probe again from now on.
    pub back: Vec<Back>,
    /// Ranks that take no part. Only those who do can have another master when this one is lost.
    pub away: Vec<Rank>,
    /// For the rank that takes the master's place when it is lost; in time-based rounds for those
    /// that have missed the round.
    pub shadow: Option<Shadow>,
    /// For all that could, when it has changed: who is there.
    pub attendants: Option<Present>,
    /// In a region: what its reference's clock says of the reference of all.
    pub above: Option<Above>,
}

/// What is said beside the rounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Word {
    /// To the master: somebody asks this of the run.
    Asks(Request),
    /// From the master: the window of this round ends at this instant (ROUND_END).
    RoundEnds {
        /// The round under way.
        round_id: RoundId,
        /// On the reference clock.
        at: Timestamp<Reference>,
    },
    /// From the root, where rounds have no master: somebody asked the run to end.
    RunEnds,
    /// What a caller says to the others.
    Note(Vec<u8>),
    /// To the root: a rank's arrivals ([`crate::late`]).
    Arrivals(Vec<u8>),
    /// From the root: who is late.
    Late(Vec<u8>),
}

impl Broadcast {
    /// A solved round, without a shadow.
    pub fn solved(round: GlobalWindowData, back: Vec<Back>, away: Vec<Rank>) -> Self {
        Self::Solved(Box::new(Told { round, back, away, shadow: None, attendants: None, above: None }))
    }

    /// What a rank of `node` is told of it, where not everybody is told all.
    pub fn part_of(&self, node: NodeId) -> Self {
        self.of_all(|round| round.part_of(node))
    }

    /// What everybody is told of it, with this part of the round.
    fn of_all(&self, part: impl FnOnce(&GlobalWindowData) -> GlobalWindowData) -> Self {
        let Self::Solved(told) = self else { return Self::Ended { round_id: self.round_id() } };
        let (back, away, above) = (told.back.clone(), told.away.clone(), told.above);
        Self::Solved(Box::new(Told { round: part(&told.round), back, away, shadow: None, attendants: None, above }))
    }

    /// What the other ranks are told that could take the master's place.
    pub fn with_attendants(&self) -> Self {
        let mut told = self.without_shadow();
        if let (Self::Solved(own), Self::Solved(told)) = (self, &mut told) {
            told.attendants.clone_from(&own.attendants);
        }
        told
    }

    /// What ranks are told that do not take the master's place.
    pub fn without_shadow(&self) -> Self {
        self.of_all(Clone::clone)
    }

    /// Which round it is about.
    pub fn round_id(&self) -> RoundId {
        match self {
            Self::Solved(told) => told.round.round_id,
            Self::Ended { round_id } => *round_id,
        }
    }
}
