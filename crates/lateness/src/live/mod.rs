//! Which rank is late while a job runs, from the arrivals that its ranks report.
//!
//! Data flows one way: `batch` (bytes of one rank) → `group` (arrivals of all ranks, paired by
//! group and step, and judged by `operation`; what a rank lost in other groups counts there, by
//! `elsewhere`) → `change` (when a member began to be late, and when
//! that ended) → `watch` (all groups; who is waited for) → [`Event`]s and [`Standing`].
//!
//! The caller gives the time and says what the reference clock showed when a rank's clock showed
//! something, and how sure that is ([`Clocks`]).

mod account;
mod batch;
mod change;
mod elsewhere;
mod group;
mod recent;
mod watch;

pub use account::{Counts, Place};
pub use batch::{Batch, GroupArrivals, Stamp};
pub use change::{OPERATIONS_PER_FALSE_NAME, QUIET_NS, SHARE_MIN};
pub use recent::{WINDOWS_NS, Window};
pub use watch::{Event, Lateness, Member, Standing, Waiting, Watch};

/// The caller's knowledge of the ranks' clocks.
pub trait Clocks {
    /// Returns the reference time at which the clock of `rank` showed `at_ns`, and its standard
    /// deviation, ns; `None` while it is unknown.
    fn on_reference(&self, rank: u32, at_ns: i64) -> Option<(i64, f64)>;
}
