//! Simulated jobs, seeded: who is named late or waited for, and who never is.

mod elsewhere;
mod job;
mod lateness;
mod waiting;
