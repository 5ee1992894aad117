//! The rank that takes a lost master's place, and the data it receives to be able to do so.
//!
//! With every solved round the master sends its [`Shadow`] to one other rank, the standby: the
//! windows that it solved and its own time. The standby decides the same round again, with the same
//! code, and so always has the master's knowledge. All ranks in the line of succession learn the
//! members of the group ([`Present`]) whenever they change. If the standby is lost too, the next
//! rank therefore continues with the last round and without the earlier ones.

use std::collections::BTreeMap;
use std::time::Instant;

use probe_sync_estimate::round::GlobalWindowData;
use probe_sync_estimate::window::NodeWindowData;
use probe_sync_time::{Duration, NodeId, RoundId};
use serde::{Deserialize, Serialize};

use super::decider::{Decided, Decider, Ended, MasterTime};
use super::request::Request;
use crate::join::{Back, Hello, Joined, Roster};
use crate::pace::{Pace, Policy};

/// What the master sends of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Shadow {
    /// What the round was solved of.
    pub windows: Vec<NodeWindowData>,
    /// What the master's own clock said.
    pub time: MasterTime,
    /// What was asked of it since the round before.
    pub requests: Vec<Request>,
}

/// Who takes part in a run, as the master knows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Present {
    /// What every rank said of itself last.
    pub hellos: Vec<Hello>,
    /// Ranks that are gone.
    pub away: Vec<bool>,
    /// Ranks that have come back.
    pub returned: Vec<bool>,
    /// Where the nodes are.
    pub roster: Roster,
    /// Nodes that have come back, as they are now.
    pub renewed: BTreeMap<NodeId, Back>,
    /// Lives of nodes after their first.
    pub lives: u32,
}

/// What the standby knows.
pub(crate) struct Standby {
    decider: Box<Decider>,
    /// When the run began, as the master's clock has it.
    begun: Instant,
    /// The round that it heard of last.
    last: Option<RoundId>,
    /// It was said that its rounds differ from the master's.
    said: bool,
}

impl Standby {
    /// Of a rank that knows nothing yet.
    pub fn new(joined: &Joined) -> Self {
        let policy = Policy::of(&joined.config, joined.plan.nodes(), &joined.edges, false);
        Self { decider: Box::new(Decider::new(joined, policy)), begun: Instant::now(), last: None, said: false }
    }

    /// Decides a round once more. `length` and `pace` are those of the window that it ended.
    pub fn follow(&mut self, shadow: Shadow, round: &GlobalWindowData, length: Duration, pace: &Pace) {
        let Shadow { windows, time, requests } = shadow;
        self.begun = Instant::now().checked_sub(time.begun).unwrap_or(self.begun);
        let last = self.last.replace(round.round_id);
        if round.round_id > RoundId::default() && last.map(RoundId::next) != Some(round.round_id) {
            self.decider.adopt(round);
            return;
        }
        requests.iter().for_each(|request| self.decider.take(request));
        // They are told to nobody from here.
        self.decider.taken();
        let ended = Ended { round_id: round.round_id, length, pace, master: Some(time) };
        let same = match self.decider.decide(&ended, &windows) {
            Ok(Decided::Solved(solved)) => solved.data == *round,
            Ok(Decided::Ended) | Err(_) => false,
        };
        // One that began later has not heard the rounds before, and comes closer with each.
        if !same && !std::mem::replace(&mut self.said, true) {
            tracing::debug!("this standby rank disagrees with the master in round {}", round.round_id);
        }
    }

    /// What takes the master's place, and when the run began.
    pub fn take_over(self) -> (Box<Decider>, Instant) {
        (self.decider, self.begun)
    }
}
