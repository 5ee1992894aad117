//! The errors of all methods on identical packets, against the truth that only a simulation knows.
//!
//! The command `probe_sync sim` runs many seeds of [`judge()`] and prints the resulting [`Pool`]s.
//! Every window's packets go to every method (`record`): the baselines (`baselines`, joined to
//! nodes by `joining`) and ours, which is `estimate::graph` per window and `estimate::smoother`
//! over the run. All are evaluated at the middle of each window on the reference clock; ours is
//! also evaluated in between, where users' events are.
//!
//! The floor is what stays when everything but path asymmetry is known: an asymmetry b of an edge
//! shifts its θ by b, no method can tell it from an offset, and least squares over the true b alone
//! gives each node's share.

mod baselines;
pub mod cells;
mod cost;
pub(crate) mod joining;
mod judge;
mod plan;
mod record;
mod statistics;
mod svm;
#[cfg(test)]
mod tests;

pub use self::cost::Cost;
pub use self::judge::judge;
pub use self::plan::{Judgement, Method, Plan, SeedRun};
pub use self::statistics::{Coverage, Pool, Summary, quantile};
