//! The reader and the verdict on recorded dumps and on simulated jobs.

mod counts;
mod recorded;
mod simulated;
