//! The native part of the Python package `probe_sync`: `probe_sync._native`.
//!
//! It makes the same library calls as the command line. `session` starts a run in parallel with a
//! training loop and waits for its rounds, `meeting` lets its ranks find each other, and `round` is
//! a solved round as arrays. `traces` aligns, merges, checks, reports late ranks and solves,
//! `convert` writes other formats, `query` reads databases, and `rocpd` writes them; `trace_writer` writes viewers' formats;
//! `record` records what the program does; `offsets` converts times; `clock` is the current reference time; `errors` maps each failure to Python; `waiting` keeps Ctrl-C
//! working. Modules import in one direction: `errors` → {`trace_writer`, `record`}; `errors` → `waiting` → {`clock`, `meeting`, `round`,
//! `offsets`, `traces`} → {`session`, `convert`, `query`, `rocpd`}. The public, typed interface is Python
//! code in `python/probe_sync`.
mod clock;
mod convert;
mod errors;
mod meeting;
mod messages;
mod offsets;
mod query;
mod record;
mod rocpd;
mod round;
mod session;
mod trace_writer;
mod traces;
mod waiting;

use pyo3::prelude::*;

/// The native part of `probe_sync`; `probe_sync/_native.pyi` describes it.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::clock::{Clock, Marks, Reading};
    #[pymodule_export]
    use super::convert::convert;
    #[pymodule_export]
    use super::meeting::{Meeting, agreed_id};
    #[pymodule_export]
    use super::messages::Messages;
    #[pymodule_export]
    use super::offsets::Offsets;
    #[pymodule_export]
    use super::query::{Rows, query};
    #[pymodule_export]
    use super::record::{Recording, Scope, Span, collective, counter, instant, scope, span};
    #[pymodule_export]
    use super::rocpd::RocpdWriter;
    #[pymodule_export]
    use super::round::PyRound;
    #[pymodule_export]
    use super::session::{Session, start, write_page};
    #[pymodule_export]
    use super::trace_writer::TraceWriter;
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
