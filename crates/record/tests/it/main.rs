//! Sessions as programs use them, and as other processes ask them.

mod control;
mod queries;
mod refusals;
mod schedule;
mod support;
mod windows;
