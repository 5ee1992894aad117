//! The limit on how much of a run is read.

/// How much is read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// All of it, however long it takes.
    None,
    /// A run whose offsets have more bytes is refused: at a run's end nobody wants to wait.
    Bytes(u64),
}
