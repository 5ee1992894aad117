//! What can go wrong when a recording becomes a trace.

use std::path::{Path, PathBuf};

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] crate::Error),
    /// Its clock cannot be tied to the system clock.
    #[error("its clock is unknown: {reason}")]
    Clock {
        /// Why not, and what to do.
        reason: String,
    },
    /// A trace cannot be written.
    #[error(transparent)]
    Trace(#[from] probe_sync_formats::Error),
    /// A trace cannot be put on a reference clock.
    #[error(transparent)]
    Alignment(#[from] probe_sync_alignment::Error),
    /// A database cannot be written.
    #[cfg(feature = "rocpd")]
    #[error(transparent)]
    Database(#[from] probe_sync_rocpd::writer::Error),
    /// The output cannot have this form.
    #[error("{}: {reason}", path.display())]
    Output {
        /// The output.
        path: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
    /// Another trace of the process cannot be shown with the recording.
    #[error("{}: {reason}", path.display())]
    With {
        /// That trace.
        path: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
    /// One of several recordings cannot be written.
    #[error("for {}: {source}", output.display())]
    For {
        /// Its output.
        output: PathBuf,
        /// Reason.
        source: Box<ExportError>,
    },
}

impl ExportError {
    /// The same if several are written, or one on the way to another file.
    pub(super) fn of(self, output: &Path) -> Self {
        match self {
            Self::Output { reason, .. } => Self::Output { path: output.to_owned(), reason },
            Self::Clock { .. } => Self::For { output: output.to_owned(), source: Box::new(self) },
            other => other,
        }
    }
}
