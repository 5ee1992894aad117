//! Why a scenario cannot be run.

use probe_sync_time::Duration;

/// Why a scenario cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a scenario: not TOML, an unknown key, or a value of the wrong type.
    #[error("not a scenario: {0}")]
    Toml(String),
    /// A number is out of range.
    #[error("{field} = {value} is out of range: it must be from {} to {}", range.0, range.1)]
    Range {
        /// The field, by its path in the file.
        field: String,
        /// Its value.
        value: String,
        /// Least and largest value.
        range: (String, String),
    },
    /// Parts of the scenario contradict each other.
    #[error("{field}: {problem}")]
    Contradiction {
        /// The field, by its path in the file.
        field: String,
        /// What is wrong.
        problem: String,
    },
    /// The windows are not positive, or longer than the run.
    #[error("a window of {window:?} must be positive and fit into the run of {duration:?}")]
    Window {
        /// Length of a window.
        window: Duration,
        /// Length of the run.
        duration: Duration,
    },
    /// The endpoints reject their configuration.
    #[error(transparent)]
    Endpoint(#[from] probe_sync_probe::Error),
}
