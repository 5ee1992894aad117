//! The return of a rank to rounds in progress, either a replacement process or a rank whose
//! connection broke.

use std::sync::Arc;

use probe_sync_collective::{Deadline, Rank};

use super::exchange::Exchange;
use super::messages::Broadcast;
use super::node::Node;
use super::{Probing, Rounds};
use crate::Error;
use crate::join::Joined;

impl<'c> Rounds<'c> {
    /// Rejoins a running run, of which `latest` is the latest broadcast.
    ///
    /// # Errors
    /// Returns an error if its decision cannot be followed.
    pub fn again(mut self, latest: Broadcast) -> Result<Self, Error> {
        self.begin_again(latest)?;
        Ok(self)
    }

    fn begin_again(&mut self, latest: Broadcast) -> Result<(), Error> {
        self.follow(latest)?;
        Ok(())
    }

    /// Returns true if this rank, after this error, may rejoin once it is connected.
    pub fn may_return(&self, error: &Error) -> bool {
        self.mode.has_master() && !self.stop.raised() && self.exchange.connection_is_lost(error)
    }

    /// Reconnects to the current master; returns false if the backend cannot. Meanwhile the node
    /// only answers, because its own measurements would wait for a window that is never cut.
    ///
    /// # Errors
    /// Returns an error if it is not admitted.
    pub fn reconnect(&mut self, deadline: &Deadline) -> Result<bool, Error> {
        self.set_probing(Probing { paused_everywhere: true, ..self.probing });
        self.exchange.reconnect(deadline)
    }

    /// Returns this rank.
    pub fn rank(&self) -> Rank {
        self.exchange.rank()
    }

    /// Returns the connection to the others.
    pub fn exchange(&mut self) -> &mut Exchange<'c> {
        &mut self.exchange
    }

    /// Ends the node's threads and closes its socket; returns what was settled so far.
    pub fn leave_node(&mut self) -> Arc<Joined> {
        self.node = None;
        Arc::clone(&self.joined)
    }

    /// Continues with this node, which `latest` has announced to all.
    ///
    /// # Errors
    /// Errors of [`Self::again`].
    pub fn take_part_again(
        &mut self,
        joined: &Arc<Joined>,
        node: Option<Node>,
        latest: Broadcast,
    ) -> Result<(), Error> {
        self.joined = Arc::clone(joined);
        (self.node, self.standby, self.attendants) = (node, None, None);
        self.probing = Probing::default();
        // What was asked of the master may have been lost with the connection.
        self.control.ask_again();
        self.look_for_late_while_waiting();
        self.begin_again(latest)
    }
}
