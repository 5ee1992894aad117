//! The rank that takes a lost master's place, and the data it receives to be able to do so.
//!
//! With every solved round the master sends its [`Shadow`] to one other rank, the standby: the
//! windows that it solved and its own time. The standby decides the same round again, with the same
//! code, and so always has the master's knowledge. All ranks in the line of succession learn the
//! members of the group ([`Present`]) whenever they change. If the standby is lost too, the next
//! rank therefore continues with the last round and without the earlier ones.

use std::collections::BTreeMap;
use std::time::Instant;

use probe_sync_lines::{NodeWindow, Round};
use probe_sync_time::{Duration, NodeId, RoundId};
use serde::{Deserialize, Serialize};

use super::decider::{Decided, Decider, Ended, MasterTime};
use super::request::Request;
use crate::join::{Back, Hello, Joined, Roster};
use crate::pace::{Pace, Policy};

/// State that the master sends to its standby.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Shadow {
    /// Windows from which the round was solved.
    pub windows: Vec<NodeWindow>,
    /// Times on the master's own clock.
    pub time: MasterTime,
    /// Requests accepted since the previous round.
    pub requests: Vec<Request>,
}

/// Ranks present in a run, according to the master.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Present {
    /// Latest hello of every rank.
    pub hellos: Vec<Hello>,
    /// For each rank, true if it is gone.
    pub away: Vec<bool>,
    /// For each rank, true if it has returned.
    pub returned: Vec<bool>,
    /// Addresses of the nodes.
    pub roster: Roster,
    /// Returned nodes, in their current state.
    pub renewed: BTreeMap<NodeId, Back>,
    /// Number of incarnations of nodes after their first.
    pub lives: u32,
}

/// State of the standby.
pub(crate) struct Standby {
    decider: Box<Decider>,
    /// Start of the run on the master's clock.
    begun: Instant,
    /// Last round that it received.
    last: Option<RoundId>,
    /// True if it was logged that its rounds differ from the master's.
    said: bool,
}

impl Standby {
    /// Creates a standby without any state.
    pub fn new(joined: &Joined) -> Self {
        let policy = Policy::of(&joined.config, joined.plan.nodes(), &joined.edges, false);
        Self { decider: Box::new(Decider::new(joined, policy)), begun: Instant::now(), last: None, said: false }
    }

    /// Repeats the decision of a round. `length` and `pace` are those of the window that it ended.
    pub fn follow(&mut self, shadow: Shadow, round: &Round, length: Duration, pace: &Pace) {
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

    /// Returns the decider that takes over, and the start of the run.
    pub fn take_over(self) -> (Box<Decider>, Instant) {
        (self.decider, self.begun)
    }
}
