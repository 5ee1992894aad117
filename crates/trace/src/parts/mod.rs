//! A trace's parts in collective operations, however many: interned labels in memory, parts in sorted runs on disk.
//!
//! Place in the flow: formats push what they find, [`CollectiveParts::close`] ends that; `collectives` then walks label by label
//! through all traces at once, each by a [`Cursor`] that merges the runs. A trace holds at most [`HELD_MAX`] parts in memory
//! while it is read, and none once it had to write; a cursor holds [`READ_AHEAD`] per run. Leaving parts out beyond a bound was
//! rejected: a verdict on the first part of a trace says nothing of the rest.
//!
//! What cannot be kept all the same (labels beyond their bound, a disk that is full) is counted ([`CollectiveParts::left_out`])
//! and ends up in the verdict. What it does not do: match, judge.

mod spill;

use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use crate::model::collective::{CollectiveEvent, GroupKey, Instance, Label, Recipients, Replicas};
use crate::model::time::Picoseconds;

pub use spill::Spill;
use spill::{RECORD_BYTES, Record, SpillFile};

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
    problem: Option<String>,
    /// Added to every time.
    origin_ps: Picoseconds,
}

/// Parts in order of label, number and time.
#[derive(Clone, Debug)]
struct Run {
    /// Where on disk it is; None: it is what is held.
    file: Option<(Arc<SpillFile>, u64)>,
    slices: Vec<Slice>,
}

/// The parts of one label within a run.
#[derive(Copy, Clone, Debug)]
struct Slice {
    label: u32,
    first: usize,
    count: usize,
}

/// A part read back.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct StoredPart {
    /// Its label's number within the trace.
    pub(crate) label: u32,
    /// Which execution or place in a sequence.
    pub(crate) number: i64,
    /// Start on R.
    pub(crate) start_ps: Picoseconds,
    /// End on R.
    pub(crate) end_ps: Picoseconds,
    /// Place among the trace's parts, in order of the file.
    pub(crate) ordinal: u64,
    /// To whom it sends.
    pub(crate) recipients: Recipients,
}

impl CollectiveParts {
    /// None yet; runs go to `spill`.
    pub fn new(spill: &Spill) -> Self {
        Self { spill: spill.clone(), ..Self::default() }
    }

    /// Takes a part in.
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

    /// Moves all times, those to come included: a base may stand at the end of a file.
    pub(crate) fn shift(&mut self, by_ps: Picoseconds) {
        self.origin_ps += by_ps;
    }

    /// Ends taking in; to be called before anything is read back.
    pub fn close(&mut self) {
        if !self.runs.is_empty() {
            self.write_run();
        }
        self.held.sort_unstable_by_key(|record| (record.label, record.key()));
        self.held.shrink_to_fit();
        self.numbers = HashMap::new();
        if !self.held.is_empty() {
            let slices = slices(&self.held);
            self.runs.push(Run { file: None, slices });
        }
    }

    /// Parts taken in.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Parts that end before they start; they order nothing.
    pub(crate) fn reversed(&self) -> u64 {
        self.reversed
    }

    /// Parts that could not be kept: no verdict covers them.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The same in words, and why.
    pub(crate) fn left_out_note(&self) -> Option<String> {
        let reason = self.problem.as_deref().unwrap_or("too many of one kind");
        (self.left_out > 0).then(|| format!("{} parts of collectives were left out: {reason}", self.left_out))
    }

    /// Counts parts that the reader of a format could not keep.
    pub(crate) fn leave_out(&mut self, parts: u64) {
        self.left_out += parts;
    }

    /// All labels with their numbers, and how many parts each has.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (u32, &Label, u64)> {
        let mut counts = vec![0; self.labels.len()];
        for slice in self.runs.iter().flat_map(|run| &run.slices) {
            counts[slice.label as usize] += slice.count as u64;
        }
        self.labels.iter().zip(counts).enumerate().map(|(number, (label, count))| (number as u32, &**label, count))
    }

    /// The label of a number.
    pub(crate) fn label(&self, number: u32) -> &Label {
        &self.labels[number as usize]
    }

    /// The parts of these labels, in order of number, start, end and place in the file.
    pub(crate) fn cursor(&self, labels: &[u32]) -> Cursor<'_> {
        let mut cursor =
            Cursor { parts: self, slices: Vec::new(), heads: BinaryHeap::new(), head: None, unread: 0, most_held: 0 };
        for run in &self.runs {
            for label in labels {
                if let Ok(at) = run.slices.binary_search_by_key(label, |slice| slice.label) {
                    let Slice { first, count, .. } = run.slices[at];
                    cursor.slices.push(Reading { run, next: first, left: count, ahead: VecDeque::new() });
                }
            }
        }
        for slice in 0..cursor.slices.len() {
            cursor.refill(slice);
        }
        cursor.advance();
        cursor
    }

    /// Makes what is on disk unreadable.
    #[cfg(test)]
    pub(crate) fn lose_runs(&mut self) {
        let places = self.runs.iter_mut().filter_map(|run| run.file.as_mut());
        places.for_each(|(_, at)| *at = 1 << 50);
    }

    /// All parts in order of the file.
    #[cfg(test)]
    pub(crate) fn events(&self) -> Vec<CollectiveEvent> {
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
            self.problem.get_or_insert_with(|| "more kinds of operations than are kept".to_owned());
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
        match self.spill.append(&self.held) {
            Ok(place) => self.runs.push(Run { file: Some(place), slices: slices(&self.held) }),
            Err(error) => {
                self.count -= self.held.len() as u64;
                self.left_out += self.held.len() as u64;
                self.problem = Some(format!("a temporary file cannot be written: {error}"));
            }
        }
        self.held.clear();
    }
}

/// What an entry of a label costs in memory, about; blocks are rounded up.
fn label_bytes(label: &Label) -> usize {
    let group = |group: &GroupKey| group.name.len() + group.ranks.as_ref().map_or(0, |ranks| ranks.len() * 4);
    let instance = match &label.instance {
        Instance::Hlo { module, op } => module.len() + op.len(),
        Instance::Sequence { group: key } => group(key),
        Instance::Order { group: key, signature } => signature.len() + key.as_ref().map_or(0, group),
    };
    // Lists of groups are shared by all labels of an operation.
    let replicas = if matches!(label.replicas, Replicas::Groups(_)) { 64 } else { 0 };
    size_of::<Label>() + label.name.len() + instance + replicas + 128
}

/// Where each label's parts are in a sorted run.
fn slices(records: &[Record]) -> Vec<Slice> {
    let mut first = 0;
    let slice = |same: &[Record]| {
        let found = Slice { label: same[0].label, first, count: same.len() };
        first += same.len();
        found
    };
    records.chunk_by(|a, b| a.label == b.label).map(slice).collect()
}

/// What parts are ordered by: number, start, end, ordinal.
type Order = (i64, Picoseconds, Picoseconds, u64);

/// Parts of some labels of one trace, read back in order.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    parts: &'a CollectiveParts,
    slices: Vec<Reading<'a>>,
    /// The first part of each slice, turned round since the heap gives the largest.
    heads: BinaryHeap<std::cmp::Reverse<(Order, usize)>>,
    head: Option<StoredPart>,
    unread: u64,
    /// The most parts that it ever held; for tests of the bound.
    most_held: usize,
}

#[derive(Debug)]
struct Reading<'a> {
    run: &'a Run,
    next: usize,
    left: usize,
    ahead: VecDeque<Record>,
}

impl Cursor<'_> {
    /// The next part.
    pub(crate) fn peek(&self) -> Option<&StoredPart> {
        self.head.as_ref()
    }

    /// Takes the next part.
    pub(crate) fn next(&mut self) -> Option<StoredPart> {
        let head = self.head.take();
        self.advance();
        head
    }

    /// Parts that could not be read back; what came is not complete then.
    pub(crate) fn unread(&self) -> u64 {
        self.unread
    }

    fn advance(&mut self) {
        let Some(std::cmp::Reverse((_, slice))) = self.heads.pop() else { return };
        let Some(record) = self.slices[slice].ahead.pop_front() else { return };
        let Record { label, number, start_ps, end_ps, ordinal, recipients } = record;
        let origin_ps = self.parts.origin_ps;
        let (start_ps, end_ps) = (start_ps + origin_ps, end_ps + origin_ps);
        self.head = Some(StoredPart { label, number, start_ps, end_ps, ordinal, recipients });
        self.refill(slice);
    }

    /// Puts a slice's next part among the heads, reading ahead where needed.
    fn refill(&mut self, slice: usize) {
        let reading = &mut self.slices[slice];
        if reading.ahead.is_empty() && reading.left > 0 {
            let count = reading.left.min(READ_AHEAD);
            match &reading.run.file {
                None => reading.ahead.extend(&self.parts.held[reading.next..reading.next + count]),
                Some((file, at)) => match file.read(at + (reading.next * RECORD_BYTES) as u64, count) {
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

/// Parts of a trace in memory at most: 1 MiB.
const HELD_MAX: usize = 1 << 14;
/// Parts of a run that a cursor holds at most: 8 KiB.
const READ_AHEAD: usize = 128;
/// Memory for the labels of a trace.
const LABEL_BYTES_MAX: usize = 48 << 20;

#[cfg(test)]
mod tests;
