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
        /// The requested address.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
        /// What to do about it.
        advice: &'static str,
    },
    /// Timestamps of the requested kind are not available.
    #[error("{kind} timestamps are not available{}: {reason}", interface.as_ref().map(|name| format!(" on {name}")).unwrap_or_default())]
    Stamps {
        /// `"hardware"` or `"kernel"`.
        kind: &'static str,
        /// The network interface, if one is concerned.
        interface: Option<String>,
        /// Why not, and what to do.
        reason: String,
    },
    /// A system call failed.
    #[error("{operation}: {source}")]
    System {
        /// The attempted operation.
        operation: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// A system file could not be read or had unexpected contents.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The clock of a tracer cannot be read.
    #[error("tracer clock {name}: {reason}")]
    TracerClock {
        /// The clock, as named in configurations or by the caller.
        name: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// A list of CPUs that does not match this host.
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
