//! The automatic return of a live rank whose connection to the master breaks, under the same rank.
//!
//! `live` uses it when a round has failed: the backend reconnects, and the rank takes part again
//! like a replacement process (`start`). Meanwhile its node answers probes, its clock pages
//! continue with growing bounds, and the master counts its rounds as missed. Only a rank of a run
//! with a master can do this: in time-based rounds no rank could report the missed rounds.
//!
//! It does not look for another master; `round::succession` does if the master is lost.

use std::sync::Arc;

use probe_sync_collective::Deadline;
use probe_sync_time::Duration;

use super::context::Context;
use super::start::{self, Returned};
use crate::Error;
use crate::join::{Hello, Joined};
use crate::round::Rounds;

/// What a rank needs in order to return.
pub(super) struct Returning {
    /// Its hello.
    hello: Hello,
    context: Context,
    /// How long it tries.
    limit: Duration,
}

impl Returning {
    /// Creates it for a rank with this `hello`; `None` if it must not return.
    pub fn of(hello: Hello, context: &Context, joined: &Joined) -> Option<Self> {
        let limit = joined.config.reconnect_timeout;
        let wanted = limit > Duration::ZERO && !context.ends_with_lost_rank;
        wanted.then(|| Self { hello: Hello { stands_by: None, ..hello }, context: context.clone(), limit })
    }

    /// Brings this rank back into the rounds after `error`, and returns what all ranks know now. It
    /// tries for the whole time, however often the connection breaks.
    ///
    /// # Errors
    /// `error` if it is not admitted; otherwise why it cannot take part.
    pub fn come_back(&self, rounds: &mut Rounds<'_>, error: Error) -> Result<Arc<Joined>, Error> {
        let limit = self.limit.to_std();
        let deadline = Deadline::new(limit, Some(Arc::clone(&self.context.stop)));
        let rank = self.context.part.as_ref().map_or(rounds.rank(), |part| part.rank as usize);
        tracing::warn!("rank {rank}: {error}; it keeps answering probes and tries to reconnect for up to {limit:.0?}");
        loop {
            match rounds.reconnect(&deadline) {
                Ok(true) => {}
                Ok(false) => return Err(error),
                Err(reason) => {
                    tracing::warn!("rank {rank}: {reason}");
                    return Err(error);
                }
            }
            match self.take_part_again(rounds) {
                Err(broken) if rounds.may_return(&broken) && !is_refusal(&broken) => {
                    tracing::info!("rank {rank}: {broken}; trying again");
                }
                other => return other,
            }
        }
    }

    fn take_part_again(&self, rounds: &mut Rounds<'_>) -> Result<Arc<Joined>, Error> {
        // Its socket's port may be a fixed one.
        let before = rounds.leave_node();
        let (config, key) = (before.config.clone(), before.session_key);
        let collective = rounds.exchange().collective();
        let notice = collective.admission().and_then(|admission| admission.notice()).unwrap_or_default();
        let hello = Ok(self.hello.clone());
        let Returned { joined, bound, latest } =
            start::come_back(&notice, Ok(config), hello, |_| key, collective, &self.context)?;
        let rank = rounds.rank();
        let (joined, node) = start::node_again(joined, bound, &latest, rank)?;
        rounds.take_part_again(&joined, node, latest)?;
        tracing::info!("rank {rank} rejoined the run");
        Ok(joined)
    }
}

/// Returns true if the master has refused this rank's return.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Collective(probe_sync_collective::Error::Dismissed { .. }))
}
