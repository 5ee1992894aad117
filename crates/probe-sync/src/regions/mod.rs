//! A job of several regions in one command: `probe_sync run --region`.
//!
//! Flow, and the files of this room; a file imports only earlier ones:
//! 1. `groups` — all ranks meet once, by whatever their launcher gives them, say their regions, and
//!    each region becomes a TCP group of its own, the regions' masters a further one;
//! 2. `ends` — how the runs end together: the regions' first, the masters' last;
//! 3. `masters` — the run among the masters, on a thread of its own in each master's process;
//! 4. `whole` — at rank 0, when all is over: the regions' offsets on one timeline, and what
//!    alignment reads beside them;
//! 5. `running` — a rank's part of it, from the first window to the report.
//!
//! Each region is a run like any other, in `OUT/regions/NAME`, and so is the one among the masters,
//! in `OUT/masters`: sockets, threads, rounds and files are their own, and what holds for a run
//! holds for each. A process has one virtual clock in all of them.
//!
//! While they measure, what the masters' rounds say of a master's clock goes to its region with
//! each round (`clock::above`), so that the global clocks of all ranks show the reference of all.
//!
//! It does not compose the offsets of rounds during the runs or readmit a lost rank.

mod ends;
mod groups;
mod masters;
mod running;
#[cfg(test)]
mod tests;
mod whole;

pub use self::groups::Regions;
pub use self::whole::RegionsReport;
