//! The MPI backend of [`probe_sync_collective::Collective`].
//!
//! The ranks of one host exchange data in shared memory (`board`); one leader per host communicates
//! with the other hosts (`leaders`). rsmpi initialises MPI and splits by host; everything else goes
//! through a thin layer over `mpi::ffi` ([`raw`]) that checks every return code and every length,
//! because rsmpi drops the codes. Inside a launcher that owns MPI, [`MpiMessages`] carries the
//! messages of `collective::ByMessages` and ends nothing. With Open MPI 5 under
//! `mpirun --with-ft ulfm` the group continues without a rank whose process has failed or hangs,
//! including the root (`survival`, `watch`, `ulfm`). Otherwise it does not survive a lost rank:
//! Open MPI ends the job, and so does every error of [`MpiCollective`], by `MPI_Abort`.

mod beside;
mod board;
mod collective;
mod kept;
mod layout;
mod leaders;
mod mail;
mod meeting;
mod operate;
mod operation;
mod order;
mod parts;
mod passing;
pub mod raw;
mod session;
mod survival;
mod ulfm;
mod watch;
mod way;
mod window;
mod words;

pub use beside::MpiMessages;
pub use collective::{MpiCollective, MpiOptions};
pub use session::{abort_job, end_job};
