//! What can go wrong between this crate and the operating system.
//!
//! Every message names the thing that failed and, where a user can do something about it, what to
//! do.

use std::io;
use std::net::SocketAddr;

/// An operation of this crate failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The probe socket could not be bound.
    #[error("cannot bind UDP {address}: {source}; {advice}")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
        /// What to do about it.
        advice: &'static str,
    },
    /// Stamps of the demanded kind are not to be had.
    #[error("{kind} timestamps are not available{}: {reason}", interface.as_ref().map(|name| format!(" on {name}")).unwrap_or_default())]
    Stamps {
        /// `"hardware"` or `"kernel"`.
        kind: &'static str,
        /// The network interface, where one is concerned.
        interface: Option<String>,
        /// Why not, and what to do.
        reason: String,
    },
    /// A system call failed.
    #[error("{operation}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A file of the system could not be read or did not hold what it should.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A tracer's clock cannot be read.
    #[error("tracer clock {name}: {reason}")]
    TracerClock {
        /// The clock, as configurations or the caller name it.
        name: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// A list of CPUs that does not suit this host.
    #[error("CPU list {list:?}: {reason}")]
    Cpus {
        /// The list as given.
        list: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    /// For `map_err`: names the operation that failed.
    pub(crate) fn system<E: Into<io::Error>>(operation: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { operation, source: source.into() }
    }

    /// For the value of `errno` after a raw system call.
    pub(crate) fn last_os(operation: &'static str) -> Self {
        Self::System { operation, source: io::Error::last_os_error() }
    }
}
