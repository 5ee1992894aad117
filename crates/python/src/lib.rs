//! The native part of the Python package `probe_sync`: `probe_sync._native`.
//!
//! Place in the flow: beside the command line, on the same library calls. `session` starts a run beside a training loop and waits for its
//! rounds, `meeting` is how its ranks find each other, `round` is a solved round as arrays; `traces` aligns, merges, checks, tells who was late and solves,
//! `offsets` converts times, `clock` is the reference's time now; `errors` says what each failure is in Python, `waiting` keeps Ctrl-C alive. The rooms import one way:
//! `errors` → `waiting` → {`clock`, `meeting`, `round`, `offsets`, `traces`} → `session`. What people call, with its types, is Python in
//! `python/probe_sync`.
//!
//! What it does not do: print, install signal handlers, or link MPI.
#![forbid(unsafe_code)]

mod clock;
mod errors;
mod meeting;
mod offsets;
mod round;
mod session;
mod traces;
mod waiting;

use pyo3::prelude::*;

/// The native part of `probe_sync`; `probe_sync/_native.pyi` describes it.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::clock::{Clock, Marks, Reading};
    #[pymodule_export]
    use super::meeting::{Meeting, agreed_id};
    #[pymodule_export]
    use super::offsets::Offsets;
    #[pymodule_export]
    use super::round::Round;
    #[pymodule_export]
    use super::session::{Session, start, write_page};
    #[pymodule_export]
    use super::traces::{align, check, merge, solve, stragglers, write_whole};
    #[pymodule_export]
    use super::waiting::leave;

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
