//! The reader and the verdict on recorded dumps and on simulated jobs.

mod recorded;
mod simulated;
