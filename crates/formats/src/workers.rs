//! The number of traces that are processed at once.

/// As many as there are processors, and few enough that memory stays limited: each may hold some
/// ten megabytes.
pub fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MOST)
}

/// A disk serves no more.
const MOST: usize = 4;
