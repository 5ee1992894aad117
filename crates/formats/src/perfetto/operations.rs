//! The parts of operations, and the steps, that the slices of a trace state as PyTorch states them.
//!
//! PyTorch's own writer gives its events no categories; what a slice is then follows from its name.
//! A kernel may be an event, a stage of a GPU, or both; stages count only in a trace whose events have
//! no kernels of operations.

use std::borrow::Cow;
use std::path::Path;

use super::chunks;
use crate::chunk::{Chunk, TrackKind, Value};
use crate::model::{Launcher, PS_PER_NS, Picoseconds, TraceFacts};
use crate::torch_operations::{Candidate, Collector, Params};
use crate::{ChunkOptions, Error, FactOptions, WantedArgs};

/// Adds the operations of a trace to its facts.
///
/// # Errors
/// The file cannot be read.
pub(super) fn add(path: &Path, options: &FactOptions, facts: &mut TraceFacts) -> Result<(), Error> {
    let (mut of_events, mut of_stages) = (Collector::new(&options.spill), Collector::new(&options.spill));
    let (mut is_queue, mut rank, mut ranks) = (Vec::new(), Rank::Unknown, None);
    let asked = ChunkOptions { args: WantedArgs::Named(&ASKED), reach: facts.reach, ..ChunkOptions::default() };
    chunks::read_chunks(path, &asked, &mut |time| time, &mut |chunk| {
        is_queue.extend(chunk.tracks.iter().map(|track| track.kind == TrackKind::Queue));
        for row in 0..chunk.slices.track.len() {
            let slice = Slice { chunk, row };
            let times = [chunk.slices.start_ns[row], chunk.slices.end_ns[row]];
            let [start_ps, end_ps] = times.map(|ns| Picoseconds::from(ns) * PS_PER_NS);
            let collector = if is_queue[chunk.slices.track[row].0 as usize] { &mut of_stages } else { &mut of_events };
            let Ok(()) = collector.look(&slice, start_ps, end_ps);
            rank.look(&slice);
            ranks = ranks.or_else(|| slice.world_size());
            if slice.category() != b"gpu_user_annotation" {
                of_events.steps.look(slice.name(), start_ps, end_ps);
            }
        }
        Ok(())
    })?;
    if let (None, Rank::Known(rank)) = (facts.identity.rank, rank) {
        let identity = &mut facts.identity;
        (identity.rank, identity.world_size, identity.launcher) = (Some(rank), ranks, Some(Launcher::Torchrun));
    }
    if of_events.kernels == 0 && of_stages.kernels > 0 {
        of_events.take_kernels(of_stages);
    }
    facts.notes.extend(of_events.only_enqueued());
    (facts.collectives, facts.groups, facts.steps) = of_events.finish(0, facts.identity.rank, &[]);
    facts.notes.extend(facts.collectives.left_out_note());
    Ok(())
}

/// The rank of the process, as its operations state it: as their group's members, and its place among
/// them.
#[derive(Copy, Clone, PartialEq)]
enum Rank {
    Unknown,
    Known(u32),
    /// Operations contradict each other.
    Contradicted,
}

impl Rank {
    fn look(&mut self, slice: &Slice<'_>) {
        let place = slice.argument(RANK).and_then(|place| place.parse::<usize>().ok());
        let ranks = slice.argument(RANKS).and_then(|ranks| serde_json::from_str::<Vec<u32>>(&ranks).ok());
        let (Some(place), Some(ranks)) = (place, ranks.filter(|ranks| !ranks.is_empty())) else { return };
        *self = match (*self, ranks.get(place)) {
            (Rank::Unknown, Some(rank)) => Rank::Known(*rank),
            (Rank::Known(known), Some(rank)) if known == *rank => *self,
            _ => Rank::Contradicted,
        };
    }
}

/// A slice of a chunk.
struct Slice<'a> {
    chunk: &'a Chunk,
    row: usize,
}

impl Slice<'_> {
    fn arguments(&self) -> impl Iterator<Item = (&str, Value)> {
        let (args, range) = (&self.chunk.args, self.chunk.slices.args[self.row]);
        let rows = range.first as usize..(range.first + range.count) as usize;
        rows.map(|row| (self.chunk.strings.text(args.key[row]), args.value[row]))
    }

    /// The value of an argument, as text; of several of this name the last one.
    fn argument(&self, name: &str) -> Option<Cow<'_, str>> {
        let value = self.arguments().filter(|(key, _)| *key == name).last();
        value.map(|(_, value)| self.text(value))
    }

    fn text(&self, value: Value) -> Cow<'_, str> {
        match value {
            Value::Text(text) | Value::Json(text) => Cow::Borrowed(self.chunk.strings.text(text)),
            Value::Integer(value) => Cow::Owned(value.to_string()),
            Value::Unsigned(value) => Cow::Owned(value.to_string()),
            Value::Float(value) => Cow::Owned(value.to_string()),
            Value::Boolean(value) => Cow::Owned(value.to_string()),
        }
    }

    /// The number of ranks of the job, if it is of the group that PyTorch makes of all.
    fn world_size(&self) -> Option<u32> {
        let size = self.argument(GROUP).filter(|group| group == "default_pg").and_then(|_| self.argument(SIZE));
        size?.parse().ok()
    }
}

impl Candidate for Slice<'_> {
    type Fault = std::convert::Infallible;

    fn name(&self) -> &[u8] {
        self.chunk.strings.text(self.chunk.slices.name[self.row]).as_bytes()
    }

    fn category(&self) -> &[u8] {
        let stated = self.chunk.strings.text(self.chunk.slices.category[self.row]).as_bytes();
        let holds = |part: &[u8]| memchr::memmem::find(self.name(), part).is_some();
        match self.name() {
            _ if !stated.is_empty() => stated,
            b"record_param_comms" => b"cpu_op",
            name if name.starts_with(b"c10d::") => b"cpu_op",
            name if name.starts_with(b"nccl:") => b"gpu_user_annotation",
            name if name.starts_with(b"gloo:") => b"user_annotation",
            // Python's frames and calls of the library are no kernels.
            _ if (holds(b"nccl") || holds(b"rccl")) && (holds(b"Kernel") || self.names_operation()) => b"kernel",
            _ => b"user_annotation",
        }
    }

    fn track(&self) -> Vec<u8> {
        self.chunk.slices.track[self.row].0.to_le_bytes().to_vec()
    }

    fn names_operation(&self) -> bool {
        self.arguments().any(|(key, _)| key == Params::NAMES[0])
    }

    fn params(&self) -> Result<Params<'_>, Self::Fault> {
        let mut params = Params::default();
        for (key, value) in self.arguments() {
            params.add(key.as_bytes(), || self.text(value));
        }
        Ok(params)
    }
}

/// The arguments of operations, the rank, and what the group is for.
const ASKED: [&str; Params::NAMES.len() + 2] = {
    let (mut all, mut place) = ([RANK; Params::NAMES.len() + 2], 0);
    while place < Params::NAMES.len() {
        all[place] = Params::NAMES[place];
        place += 1;
    }
    all[place] = GROUP;
    all
};
const RANK: &str = "Rank";
const GROUP: &str = "Process Group Description";
const SIZE: &str = "Group size";
const RANKS: &str = "Process Group Ranks";
