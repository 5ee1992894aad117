//! The cost of a round of a large run by topology: duration, messages, bytes and processor time.
//!
//! `bench/scale` supplies costs measured on one machine and asks for sizes that no machine here
//! has. [`RoundModel`] says who sends what to whom (`plan`), and `events` simulates it.
//!
//! Formula: every rank does one thing at a time, on one of its host's cores, first come, first
//! served. A message costs its sender and its receiver processor time; between hosts it passes the
//! sender's link, the latency, perhaps a tail, and the receiver's link, each link one message at a
//! time. The gather ends when the root has everything, the delivery when the last rank has its
//! part.
//!
//! It does not run the backends' code, which needs sockets; `docs/scale.md` states how far the
//! model is from measured rounds. It does not solve the graph; `bench/LOG.md` has that time as
//! measured.

mod events;
mod model;
mod plan;
#[cfg(test)]
mod tests;

pub use model::{Costs, MessageCosts, Mode, Network, RoundCost, RoundModel, Sizes, Topology};

use crate::Error;

impl RoundModel {
    /// Simulates one round. The same model and seed give the same result; without a tail the seed
    /// does not matter.
    ///
    /// # Errors
    /// [`Error::Range`] naming the number that is out of range.
    pub fn round(&self, seed: u64) -> Result<RoundCost, Error> {
        self.check()?;
        Ok(events::happen(self, &plan::Plan::new(self), seed))
    }
}
