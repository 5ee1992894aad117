//! Iterates over the events of a chunk's tables in one order of time.
//!
//! Writers walk a chunk with [`in_order`]. At equal times flow ends come first, because the slices
//! that begin then take them. Sorted tables give a sorted walk; others are walked as they are, each
//! in its own order. It does not sort.

use crate::chunk::Chunk;

/// One event, by its row in its table.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// An end of a flow.
    Flow(usize),
    /// A slice.
    Slice(usize),
    /// An instant.
    Instant(usize),
    /// A counter value.
    Counter(usize),
}

/// All events of a chunk.
pub fn in_order(chunk: &Chunk) -> impl Iterator<Item = Row> {
    let mut next = [0_usize; 4];
    let times = [&chunk.flows.time_ns, &chunk.slices.start_ns, &chunk.instants.time_ns, &chunk.counters.time_ns]
        .map(Vec::as_slice);
    std::iter::from_fn(move || {
        let mut first: Option<(i64, usize)> = None;
        for table in 0..times.len() {
            if let Some(&time) = times[table].get(next[table])
                && first.is_none_or(|(earliest, _)| time < earliest)
            {
                first = Some((time, table));
            }
        }
        let (_, table) = first?;
        let row = next[table];
        next[table] += 1;
        Some([Row::Flow, Row::Slice, Row::Instant, Row::Counter][table](row))
    })
}
