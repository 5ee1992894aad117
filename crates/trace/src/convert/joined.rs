//! Flows that join the parts of one collective operation on all ranks, so that a viewer shows who came first and who came last.
//!
//! Place in the flow: between the parts that facts hold, which `collectives` joins, and the chunks on their way to the writers. The ends
//! of a flow go from part to part in the order of their starts on the clock of the outputs: the last arrow leads to the rank that
//! the others waited for. Only operations are joined that are certain to be one; the others are counted. Held are three
//! numbers per part, however long the traces are.
//! What it does not do: judge whether an operation holds ([`check()`](crate::check())).

use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use probe_sync_estimate::series::TimeMap;
use serde::Serialize;

use super::window;
use crate::calibrate::CalibratedTrace;
use crate::collectives::{MapTime, MatchOptions, match_operations};
use crate::counting::Counting;
use crate::model::{MappedTime, nearest_ns};
use crate::nodes;
use crate::write::{Chunk, Flow, FlowEnd};

/// What was joined.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CollectiveFlows {
    /// Operations of at least two ranks whose parts are joined.
    pub operations: u64,
    /// Their parts that begin and end in the window.
    pub parts: u64,
    /// Of these, parts that no slice of the outputs begins with.
    pub without_slice: u64,
    /// Parts that belong together with none for certain: ambiguous ones, and those that no other trace shows.
    pub not_joined: u64,
}

/// Ends of flows that wait for their slices.
#[derive(Debug, Default)]
pub(super) struct Joined {
    /// By trace, in order of their starts.
    ends: Vec<Vec<End>>,
    /// Names of operations, as facts have them.
    names: Vec<String>,
    /// Reused for the ends of one chunk.
    chunk: Chunk,
    found: CollectiveFlows,
}

/// The end of a flow at a part.
#[derive(Copy, Clone, Debug)]
struct End {
    start_ns: i64,
    end_ns: i64,
    operation: u64,
    name: u32,
    place: FlowEnd,
    taken: bool,
}

impl Joined {
    /// Finds the operations of all traces, and which of their parts the window keeps. Files into which several traces were merged do not say whose
    /// each part is: they are left out.
    pub(super) fn of(traces: &[CalibratedTrace], window_ns: Option<[i64; 2]>, inclusive: bool) -> Self {
        let identity = TimeMap::identity();
        let mut maps: Vec<Counting<'_>> = traces
            .iter()
            .map(|of| {
                Counting::new(
                    of.trace.facts.clock,
                    of.map.as_ref().unwrap_or(&identity),
                    of.clock.as_ref(),
                    of.measured,
                )
            })
            .collect();
        let single: Vec<usize> = (0..traces.len()).filter(|&trace| !traces[trace].trace.facts.merged).collect();
        let mut joined = Self { ends: vec![Vec::new(); traces.len()], ..Self::default() };
        // What belongs together is no matter of clocks.
        let as_is: Vec<Option<Box<MapTime<'_>>>> = single
            .iter()
            .map(|_| Some(Box::new(|at| MappedTime { at, ..MappedTime::default() }) as Box<MapTime<'_>>))
            .collect();
        let parts: Vec<_> = single.iter().map(|&trace| &traces[trace].trace).collect();
        let matching = nodes::with_collectives(&parts, &as_is, |nodes| {
            match_operations(nodes, MatchOptions::default(), &mut |operation| {
                let kept = operation.parts.iter().filter_map(|part| {
                    let trace = single[part.node];
                    let [start, end] = [part.start_ps, part.end_ps].map(|time| nearest_ns(maps[trace].map(time)));
                    let (start_ns, end_ns) = (start?, end?);
                    let wanted = window_ns.is_none_or(|window| window::keeps(window, inclusive, start_ns, end_ns));
                    wanted.then_some((start_ns, end_ns, trace, part.label.name.as_str()))
                });
                let kept: Vec<_> = kept.collect();
                joined.take(kept);
            })
        });
        joined.found.not_joined = matching.unpaired as u64
            + matching.unordered as u64
            + matching.ambiguous.iter().map(|line| line.parts as u64).sum::<u64>()
            + matching.lost;
        joined
            .ends
            .iter_mut()
            .for_each(|ends| ends.sort_unstable_by_key(|end| (end.start_ns, end.end_ns, end.operation)));
        joined
    }

    /// Takes the parts of one operation: start, end, trace and name of each.
    fn take(&mut self, mut parts: Vec<(i64, i64, usize, &str)>) {
        if parts.len() < 2 {
            return;
        }
        parts.sort_unstable();
        let operation = self.found.operations;
        self.found.operations += 1;
        self.found.parts += parts.len() as u64;
        let last = parts.len() - 1;
        for (place, (start_ns, end_ns, trace, name)) in parts.into_iter().enumerate() {
            // Few names in a row of one operation after the other: a job has dozens.
            let name = self.names.iter().rposition(|known| known == name).unwrap_or_else(|| {
                self.names.push(name.to_owned());
                self.names.len() - 1
            }) as u32;
            let place = match place {
                0 => FlowEnd::Out,
                _ if place == last => FlowEnd::In,
                _ => FlowEnd::Step,
            };
            self.ends[trace].push(End { start_ns, end_ns, operation, name, place, taken: false });
        }
    }

    /// The ends that belong to slices of this chunk of a trace, on the same tracks.
    pub(super) fn ends_of(&mut self, trace: usize, chunk: &Chunk) -> &Chunk {
        self.chunk.clear();
        let Chunk { strings, slices, .. } = chunk;
        for row in 0..slices.track.len() {
            let (start, end) = (slices.start_ns[row], slices.end_ns[row]);
            let ends = &mut self.ends[trace];
            let first = ends.partition_point(|known| known.start_ns < start);
            // A call in a group lasts until the group's end, and its own slice does not.
            let of_slice = ends[first..].iter_mut().take_while(|known| known.start_ns == start).find(|known| {
                let name = || strings.text(slices.name[row]) == self.names[known.name as usize];
                !known.taken && (known.end_ns == end || (end < known.end_ns && name()))
            });
            // The copy of an annotation on a device's timeline is not the operation.
            let is_copy = || strings.text(slices.category[row]) == "gpu_user_annotation";
            let Some(found) = of_slice.filter(|_| !is_copy()) else { continue };
            found.taken = true;
            let id = FixedState::with_seed(0).hash_one(("collective", found.operation)).max(1);
            self.chunk.flows.track.push(slices.track[row]);
            self.chunk.flows.time_ns.push(start);
            self.chunk.flows.flow.push(Flow { id, end: found.place });
        }
        &self.chunk
    }

    /// What was joined, once all traces are through.
    pub(super) fn finish(mut self) -> CollectiveFlows {
        self.found.without_slice = self.ends.iter().flatten().filter(|end| !end.taken).count() as u64;
        self.found
    }
}
