//! The reasons why a page cannot be made.

use std::path::PathBuf;

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The directory contains no run, or a document of it cannot be read.
    #[error(transparent)]
    Run(#[from] probe_sync::Error),
    /// A recorded file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A recorded file exceeds the caller's limit.
    #[error("{} and its segments have {bytes} bytes, more than {most}", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its size, bytes.
        bytes: u64,
        /// The limit, bytes.
        most: u64,
    },
    /// The page cannot be formatted.
    #[error("cannot render the report page: {0}")]
    Print(String),
}
