//! Simulated jobs, seeded: who is named late or waited for, and who never is.

mod job;
mod lateness;
mod waiting;
