//! The reasons why a page cannot be made.

use std::path::PathBuf;

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The directory holds no run, or a document of it cannot be read.
    #[error(transparent)]
    Run(#[from] probe_sync::Error),
    /// A recorded file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A recorded file is larger than the caller wants to wait for.
    #[error("{} and its segments have {bytes} bytes, more than {most}", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// How many bytes there are.
        bytes: u64,
        /// How many may be.
        most: u64,
    },
    /// The page cannot be printed.
    #[error("cannot render the report page: {0}")]
    Print(String),
}
