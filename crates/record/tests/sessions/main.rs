//! Sessions as programs use them, and as other processes ask them. A program of its own: these
//! tests run side by side, those in `tests/it` one at a time.

mod control;
mod queries;
mod refusals;
mod schedule;
mod support;
mod windows;
