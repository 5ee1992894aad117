//! Sorted runs of parts: their location, reading them in step, and merging several into one.
//!
//! A run is sorted by label, then number and time; the parts of one label in it are a slice.
//! [`Merge`] walks slices of several runs in step and holds [`READ_AHEAD`] parts of each;
//! [`merged`] writes the incoming parts as one run.

use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::io;
use std::sync::Arc;

use super::spill::{Record, Region, Spill};
use crate::model::time::Picoseconds;

/// Parts in order of label, number and time.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Its region on disk; `None`: it is the one held.
    pub(super) region: Option<Arc<Region>>,
    /// In order of label.
    pub(super) slices: Vec<Slice>,
    /// How many times its parts were merged.
    pub(super) level: u32,
}

/// The parts of one label within a run.
#[derive(Copy, Clone, Debug)]
pub(super) struct Slice {
    pub(super) label: u32,
    first: usize,
    pub(super) count: usize,
}

impl Run {
    /// From sorted records.
    pub(super) fn of(records: &[Record], region: Option<Arc<Region>>) -> Self {
        let mut slices = Vec::new();
        records.iter().for_each(|record| count_in(&mut slices, record.label));
        Self { region, slices, level: 0 }
    }
}

/// Counts the next record of a run.
fn count_in(slices: &mut Vec<Slice>, label: u32) {
    match slices.last_mut() {
        Some(last) if last.label == label => last.count += 1,
        last => {
            let first = last.map_or(0, |last| last.first + last.count);
            slices.push(Slice { label, first, count: 1 });
        }
    }
}

/// Merges several runs into one, written to disk.
pub(super) fn merged(spill: &Spill, runs: &[Run]) -> io::Result<Run> {
    let slices = || runs.iter().flat_map(|run| &run.slices);
    let region = spill.reserve(slices().map(|slice| slice.count).sum())?;
    let level = runs.iter().map(|run| run.level).max().map_or(0, |level| level + 1);
    let labels: BTreeSet<u32> = slices().map(|slice| slice.label).collect();
    let mut found = Vec::new();
    let (mut buffer, mut written) = (Vec::with_capacity(WRITE_BEHIND), 0);
    for label in labels {
        let mut merge = Merge::new(runs, &[], &[label]);
        while let Some(record) = merge.next() {
            count_in(&mut found, label);
            buffer.push(record);
            if buffer.len() == WRITE_BEHIND {
                region.write(written, &buffer)?;
                written += buffer.len();
                buffer.clear();
            }
        }
        if merge.unread > 0 {
            return Err(io::Error::other("parts could not be read back"));
        }
    }
    region.write(written, &buffer)?;
    Ok(Run { region: Some(Arc::new(region)), slices: found, level })
}

/// The order of parts: number, start, end, ordinal.
type Order = (i64, Picoseconds, Picoseconds, u64);

/// The parts of some labels, in order over all runs.
#[derive(Debug)]
pub(super) struct Merge<'a> {
    held: &'a [Record],
    slices: Vec<Reading<'a>>,
    /// The first part of each slice, reversed since the heap returns the largest.
    heads: BinaryHeap<std::cmp::Reverse<(Order, usize)>>,
    /// Parts that could not be read back; the result is then incomplete.
    pub(super) unread: u64,
    /// The most parts that it ever held; for tests of the limit.
    pub(super) most_held: usize,
}

#[derive(Debug)]
struct Reading<'a> {
    run: &'a Run,
    next: usize,
    left: usize,
    ahead: VecDeque<Record>,
}

impl<'a> Merge<'a> {
    /// `held` are the records of the run that is not on disk.
    pub(super) fn new(runs: &'a [Run], held: &'a [Record], labels: &[u32]) -> Self {
        let mut merge = Self { held, slices: Vec::new(), heads: BinaryHeap::new(), unread: 0, most_held: 0 };
        for run in runs {
            for label in labels {
                if let Ok(at) = run.slices.binary_search_by_key(label, |slice| slice.label) {
                    let Slice { first, count, .. } = run.slices[at];
                    merge.slices.push(Reading { run, next: first, left: count, ahead: VecDeque::new() });
                }
            }
        }
        for slice in 0..merge.slices.len() {
            merge.refill(slice);
        }
        merge
    }

    /// The next part.
    pub(super) fn next(&mut self) -> Option<Record> {
        let std::cmp::Reverse((_, slice)) = self.heads.pop()?;
        let record = self.slices[slice].ahead.pop_front();
        self.refill(slice);
        record
    }

    /// Puts a slice's next part among the heads, reading ahead if needed.
    fn refill(&mut self, slice: usize) {
        let reading = &mut self.slices[slice];
        if reading.ahead.is_empty() && reading.left > 0 {
            let count = reading.left.min(READ_AHEAD);
            match &reading.run.region {
                None => reading.ahead.extend(&self.held[reading.next..reading.next + count]),
                Some(region) => match region.read(reading.next, count) {
                    Ok(records) => reading.ahead.extend(records),
                    Err(_) => {
                        self.unread += reading.left as u64;
                        reading.left = 0;
                        return;
                    }
                },
            }
            reading.next += count;
            reading.left -= count;
        }
        if let Some(record) = reading.ahead.front() {
            self.heads.push(std::cmp::Reverse((record.key(), slice)));
        }
        if cfg!(test) {
            self.most_held = self.most_held.max(self.slices.iter().map(|reading| reading.ahead.len()).sum());
        }
    }
}

/// Most parts of a slice held: 10 KiB.
pub(super) const READ_AHEAD: usize = 128;
/// Parts held until they are written together: 320 KiB.
const WRITE_BEHIND: usize = 1 << 12;
