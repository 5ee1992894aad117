//! Any number of a trace's parts in collective operations, as interned labels in memory and sorted
//! runs of parts on disk.
//!
//! Formats push the parts that they find until [`CollectiveParts::close`]; `collectives` then walks
//! label by label through all traces at once, using a [`Cursor`] per trace that merges the runs. A
//! trace holds at most `HELD_MAX` parts in memory while it is read, and none once it had to
//! write. Whenever `FAN_IN` runs have been merged equally often, they become one, and at the end
//! at most `RUNS_AT_END` are left. A cursor holds 10 KiB per run and label that it reads, so at
//! most 40 KiB per label, however long the trace. Each part is written about log16 of the number of
//! runs times, and once more at the end; the file is at most about twice as large as the parts in
//! it. Omitting parts beyond a bound was rejected, because a verdict on the first part of a trace
//! says nothing about the rest.
//!
//! What cannot be kept all the same (labels beyond their bound, a disk that is full) is counted
//! ([`CollectiveParts::left_out`]) and ends up in the verdict.

mod runs;
mod spill;

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::collective::{CollectiveEvent, GroupKey, Instance, Label, Recipients, Replicas};
use crate::model::time::Picoseconds;

use runs::{Merge, Run, merged};
use spill::Record;
pub use spill::Spill;
pub use spill::nameless;

/// The parts of one trace.
#[derive(Clone, Debug, Default)]
pub struct CollectiveParts {
    labels: Vec<Arc<Label>>,
    numbers: HashMap<Arc<Label>, u32>,
    label_bytes: usize,
    spill: Spill,
    /// Not yet on disk; in order once closed.
    held: Vec<Record>,
    runs: Vec<Run>,
    count: u64,
    reversed: u64,
    left_out: u64,
    /// Runs cannot be merged because the disk is full or unreadable; they stay as they are.
    unmerged: bool,
    problem: Option<String>,
    of_calls: bool,
    /// Added to every time.
    origin_ps: Picoseconds,
}

/// A part read back.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct StoredPart {
    /// Its label's number within the trace.
    pub label: u32,
    /// Which execution or place in a sequence.
    pub number: i64,
    /// Start on R.
    pub start_ps: Picoseconds,
    /// End on R.
    pub end_ps: Picoseconds,
    /// Place among the trace's parts, in order of the file.
    pub ordinal: u64,
    /// To whom it sends.
    pub recipients: Recipients,
}

impl CollectiveParts {
    /// Creates an empty set; runs go to `spill`.
    pub fn new(spill: &Spill) -> Self {
        Self { spill: spill.clone(), ..Self::default() }
    }

    /// Adds a part.
    pub fn push(&mut self, event: CollectiveEvent) {
        if event.start_ps > event.end_ps {
            self.reversed += 1;
            return;
        }
        let ordinal = self.count + self.left_out;
        let Some(label) = self.intern(event.label) else {
            self.left_out += 1;
            return;
        };
        let CollectiveEvent { number, start_ps, end_ps, recipients, .. } = event;
        self.held.push(Record { label, number, start_ps, end_ps, ordinal, recipients });
        self.count += 1;
        if self.held.len() >= HELD_MAX {
            self.write_run();
        }
    }

    /// Takes in the parts of another trace that was closed, numbered by `number`.
    pub fn append(&mut self, other: &CollectiveParts, mut number: impl FnMut(&Label, i64) -> i64) {
        let labels: Vec<u32> = other.labels().map(|(label, ..)| label).collect();
        let mut cursor = other.cursor(&labels);
        for StoredPart { label, number: own, start_ps, end_ps, recipients, .. } in cursor.by_ref() {
            let label = other.label(label).clone();
            let number = number(&label, own);
            self.push(CollectiveEvent { label, number, start_ps, end_ps, recipients });
        }
        self.reversed += other.reversed;
        self.left_out += other.left_out + cursor.unread();
        self.of_calls |= other.of_calls;
    }

    /// Marks the parts as calls, which may return before their operation has run: their ends alone
    /// prove nothing.
    #[cfg(feature = "rocpd")]
    pub fn set_of_calls(&mut self) {
        self.of_calls = true;
    }

    /// Whether the parts are calls, which may return before their operation has run.
    pub fn of_calls(&self) -> bool {
        self.of_calls
    }

    /// Shifts all times, including future ones: a base may be at the end of a file.
    pub fn shift(&mut self, by_ps: Picoseconds) {
        self.origin_ps += by_ps;
    }

    /// Ends adding; must be called before anything is read back.
    pub fn close(&mut self) {
        if !self.runs.is_empty() {
            self.write_run();
        }
        if self.runs.len() > RUNS_AT_END {
            self.merge_from(0);
        }
        self.held.sort_unstable_by_key(|record| (record.label, record.key()));
        self.held.shrink_to_fit();
        self.numbers = HashMap::new();
        if !self.held.is_empty() {
            self.runs.push(Run::of(&self.held, None));
        }
    }

    /// Number of parts.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Parts that end before they start; they impose no order.
    pub fn reversed(&self) -> u64 {
        self.reversed
    }

    /// Number of parts that could not be kept: no verdict covers them.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The same in words, and why.
    pub fn left_out_note(&self) -> Option<String> {
        let reason = self.problem.as_deref().unwrap_or("too many of one kind");
        (self.left_out > 0).then(|| format!("ignored {} parts of collectives: {reason}", self.left_out))
    }

    /// Counts parts that the reader of a format could not keep.
    pub fn leave_out(&mut self, parts: u64) {
        self.left_out += parts;
    }

    /// All labels with their numbers, and the number of parts of each.
    pub fn labels(&self) -> impl Iterator<Item = (u32, &Label, u64)> {
        let mut counts = vec![0; self.labels.len()];
        for slice in self.runs.iter().flat_map(|run| &run.slices) {
            counts[slice.label as usize] += slice.count as u64;
        }
        self.labels.iter().zip(counts).enumerate().map(|(number, (label, count))| (number as u32, &**label, count))
    }

    /// The label of a number.
    pub fn label(&self, number: u32) -> &Label {
        &self.labels[number as usize]
    }

    /// Changes labels, after [`Self::close`]: according to what the traces together tell about
    /// them.
    pub fn relabel(&mut self, mut change: impl FnMut(&mut Label)) {
        self.labels.iter_mut().for_each(|label| change(Arc::make_mut(label)));
    }

    /// The parts of these labels, in order of number, start, end and place in the file.
    pub fn cursor(&self, labels: &[u32]) -> Cursor<'_> {
        let mut cursor = Cursor { parts: self, merge: Merge::new(&self.runs, &self.held, labels), head: None };
        cursor.advance();
        cursor
    }

    /// Makes what is on disk unreadable.
    #[cfg(any(test, feature = "testing"))]
    pub fn lose_runs(&mut self) {
        let regions = self.runs.iter_mut().filter_map(|run| Arc::get_mut(run.region.as_mut()?));
        regions.for_each(spill::Region::lose);
    }

    /// All parts in file order.
    #[cfg(any(test, feature = "testing"))]
    pub fn events(&self) -> Vec<CollectiveEvent> {
        let numbers: Vec<u32> = self.labels().map(|(number, ..)| number).collect();
        let mut cursor = self.cursor(&numbers);
        let mut found: Vec<StoredPart> = std::iter::from_fn(|| cursor.next()).collect();
        found.sort_by_key(|part| part.ordinal);
        let event = |StoredPart { label, number, start_ps, end_ps, recipients, .. }| CollectiveEvent {
            label: self.label(label).clone(),
            number,
            start_ps,
            end_ps,
            recipients,
        };
        found.into_iter().map(event).collect()
    }

    fn intern(&mut self, label: Label) -> Option<u32> {
        if let Some(number) = self.numbers.get(&label) {
            return Some(*number);
        }
        self.label_bytes += label_bytes(&label);
        if self.label_bytes > LABEL_BYTES_MAX {
            self.problem.get_or_insert_with(|| "too many kinds of operations".to_owned());
            return None;
        }
        let (number, label) = (self.labels.len() as u32, Arc::new(label));
        self.labels.push(Arc::clone(&label));
        self.numbers.insert(label, number);
        Some(number)
    }

    fn write_run(&mut self) {
        if self.held.is_empty() {
            return;
        }
        self.held.sort_unstable_by_key(|record| (record.label, record.key()));
        let written = self.spill.reserve(self.held.len()).and_then(|region| {
            region.write(0, &self.held)?;
            Ok(Run::of(&self.held, Some(Arc::new(region))))
        });
        match written {
            Ok(run) => self.runs.push(run),
            Err(error) => {
                self.count -= self.held.len() as u64;
                self.left_out += self.held.len() as u64;
                self.problem = Some(format!("cannot write a temporary file: {error}"));
            }
        }
        self.held.clear();
        self.merge_full_levels();
    }

    /// Merges the last runs while there are many that were merged equally often.
    fn merge_full_levels(&mut self) {
        // Ends: each turn leaves fewer runs.
        while let Some(level) = self.runs.last().map(|run| run.level) {
            let first = self.runs.iter().rposition(|run| run.level != level).map_or(0, |place| place + 1);
            if self.runs.len() - first < FAN_IN || !self.merge_from(first) {
                break;
            }
        }
    }

    /// Merges the runs from the `first` on; returns false if that fails.
    fn merge_from(&mut self, first: usize) -> bool {
        if self.unmerged {
            return false;
        }
        match merged(&self.spill, &self.runs[first..]) {
            Ok(run) => {
                self.runs.truncate(first);
                self.runs.push(run);
            }
            // Nothing is lost: they are read one by one, and what cannot be read counts then.
            Err(_) => self.unmerged = true,
        }
        !self.unmerged
    }
}

/// Approximate memory of a label's entry; blocks are rounded up.
fn label_bytes(label: &Label) -> usize {
    let group = |group: &GroupKey| group.name.len() + group.ranks.as_ref().map_or(0, |ranks| ranks.len() * 4);
    let instance = match &label.instance {
        Instance::Hlo { module, op } => module.len() + op.len(),
        Instance::Sequence { group: key } => group(key),
        Instance::Communicator { signature, .. } => signature.len(),
        Instance::Order { group: key, signature } => signature.len() + key.as_ref().map_or(0, group),
    };
    // Lists of groups are shared by all labels of an operation.
    let replicas = if matches!(label.replicas, Replicas::Groups(_)) { 64 } else { 0 };
    size_of::<Label>() + label.name.len() + instance + replicas + 128
}

/// Parts of some labels of one trace, read back in order.
#[derive(Debug)]
pub struct Cursor<'a> {
    parts: &'a CollectiveParts,
    merge: Merge<'a>,
    head: Option<StoredPart>,
}

impl Iterator for Cursor<'_> {
    type Item = StoredPart;

    fn next(&mut self) -> Option<StoredPart> {
        let head = self.head.take();
        self.advance();
        head
    }
}

impl Cursor<'_> {
    /// The next part.
    pub fn peek(&self) -> Option<&StoredPart> {
        self.head.as_ref()
    }

    /// Parts that could not be read back; the result is then incomplete.
    pub fn unread(&self) -> u64 {
        self.merge.unread
    }

    fn advance(&mut self) {
        let Some(Record { label, number, start_ps, end_ps, ordinal, recipients }) = self.merge.next() else { return };
        let origin_ps = self.parts.origin_ps;
        let (start_ps, end_ps) = (start_ps + origin_ps, end_ps + origin_ps);
        self.head = Some(StoredPart { label, number, start_ps, end_ps, ordinal, recipients });
    }
}

/// Parts of a trace in memory at most: 1 MiB.
const HELD_MAX: usize = 1 << 14;
/// Runs that become one while a trace is read.
const FAN_IN: usize = 16;
/// Runs of a trace at most, once it is read.
const RUNS_AT_END: usize = 4;
/// Memory for the labels of a trace.
const LABEL_BYTES_MAX: usize = 48 << 20;

#[cfg(test)]
mod tests;
