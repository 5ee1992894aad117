//! The C interface of probe_sync, with sessions that run inside a launcher's processes, the global
//! clock and traces on one clock.
//!
//! This crate is a front end to `probe_sync`, like the command line. `cargo xtask codegen`
//! generates `include/probe_sync.h` from the declarations here, and `cargo xtask install` builds
//! the libraries. Items have their C names, so that one search finds both sides.
//!
//! | module | holds |
//! |---|---|
//! | `status`, `errors` | what a call returns, and the text of the last failure |
//! | `pointers` | C's pointers as references, strings and boxes, NULL refused |
//! | `options`, `meeting` | settings; the 128 bytes by which ranks meet |
//! | `session` | a run on a thread of its own, its rounds; its steps where the ranks talk by the caller's own messages |
//! | `clock` | the reference's time |
//! | `record` | what the process does: recordings, and the events in them |
//! | `rocpd` | databases of rocprofv3, written while the program runs |
//! | `traces` | profilers' traces on one clock: aligned, merged, converted, checked |
//!
//! One rule for every function, which is why none has a section of its own about it: a pointer is
//! NULL or valid for what its type says, a handle comes from its `_new`, `_open` or `_start` and
//! has not been freed, and nothing is freed while another thread uses it. A panic never leaves: it
//! becomes a status.
//!
//! It does not link MPI (the caller's mpicc compiles `include/probe_sync_mpi.h` and
//! `src/probe_sync_mpi.c`), print or handle signals.
#![expect(non_camel_case_types, reason = "the names are those of C")]
#![expect(clippy::missing_safety_doc, reason = "one rule holds for all functions; it stands above")]

mod clock;
mod errors;
mod meeting;
mod options;
mod pointers;
mod record;
mod rocpd;
mod session;
mod status;
mod traces;

pub use clock::*;
pub use errors::*;
pub use meeting::*;
pub use options::*;
pub use record::*;
pub use rocpd::*;
pub use session::*;
pub use status::ps_status;
pub use traces::*;
