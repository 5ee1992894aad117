//! How wrong each method is, on identical packets, against the truth that only a simulation knows.
//!
//! Place in the flow: above [`Rounds`](crate::Rounds); the command `probe_sync sim` runs many seeds of [`judge()`] and prints what
//! [`Pool`]s make of them. Every window's packets go to every method (`record`): the baselines (`baselines`, joined to nodes by
//! `joining`) and ours, `estimate::graph` per window and `estimate::smoother` over the run. All are judged at the middle
//! of each window as the reference sees it; ours also in between, where users' events are.
//!
//! The floor is what stays when everything but path asymmetry is known: an asymmetry b of an edge shifts its θ by b, no method
//! can tell it from an offset, and least squares over the true b alone gives each node's share.
//!
//! What it does not do: run threads, print, or decide whether a figure is good; `cells` has the demands.

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

pub use self::baselines::Tuning;
pub use self::cost::Cost;
pub use self::judge::judge;
pub use self::plan::{Judgement, Method, Plan, SeedRun};
pub use self::statistics::{Coverage, Pool, Summary, quantile};
