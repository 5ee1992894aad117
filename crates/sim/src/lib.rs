//! Seeded clocks and a seeded network that drive the real [`Endpoint`](probe_sync_probe::Endpoint)
//! code.
//!
//! A simulated run returns what a real run does, exchanges and counters, and also what a real run
//! cannot: the true offset of every clock at any instant, and the exact fate of every packet.
//! Timing claims and the accounting of lost, late, duplicated and foreign packets are tested
//! against these.
//!
//! One way through the folders: `scenario` (what a run is like) → `world` (clocks, network, stamps,
//! the event loop) → `runs` (a run driven window by window; [`Rounds`] sends each window through
//! the code of a live round) → [`accuracy`] (all methods on the same packets), [`fault_cases`]
//! (every fault, named in time?), [`swinging`] (nothing named that did not happen), [`adaptive`]
//! (the pace). Beside them stands [`warming`], a second generator with its own clocks and network,
//! for which nothing was tuned, and [`round_cost`], which simulates what the messages of a round
//! cost, not what it measures.
//!
//! Time here is one true time, shown by node 0's clock unless a scenario lets that wander or step.
//! Which node is the reference changes neither clocks nor packets. The same scenario and seed give
//! the same bytes.
//!
//! It does not model hosts (each node has its own clock and network address) or bandwidth.
#![forbid(unsafe_code)]

pub mod accuracy;
pub mod adaptive;
pub mod coverage;
mod cuts;
mod error;
pub mod fault_cases;
pub mod round_cost;
mod runs;
mod scenario;
pub mod swinging;
pub mod warming;
mod world;

pub use error::Error;
pub use runs::outcome::Outcome;
pub use runs::rounds::{HandOver, Rounds, SimulatedRound, Window, in_turn};
pub use runs::running::Running;
pub use runs::simulation::Simulation;
pub use scenario::faults::{Fault, FaultKind, Span, WrongStamps};
pub use scenario::{Clocks, Network, Replay, Scenario, Slews, Stamps, Thermal, Waves};
pub use world::clock::WanderingClock;
pub use world::ground_truth::{DirectionCounts, GroundTruth};
