//! The limit on how much of a run is read.

/// How much is read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Everything, however long it takes.
    None,
    /// Refuses a run with more bytes of offsets than this: nobody wants to wait at the end of a
    /// run.
    Bytes(u64),
}
