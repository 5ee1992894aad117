//! Joins the parts of one collective operation on all ranks, by flows, so that a viewer shows which
//! rank came first and which last, or as members of a communicator in OTF2.
//!
//! A flow connects the parts in the order of their starts on the clock of the outputs, so the last
//! arrow leads to the rank that the others waited for. Only operations that were matched with
//! certainty are joined; the others are counted. Memory holds three numbers per part, however long
//! the traces are. It does not check happens-before; [`check()`](crate::check()) does.

use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use probe_sync_estimate::series::TimeMap;
use probe_sync_formats::chunk::{Chunk, Flow, FlowEnd};
use probe_sync_formats::model::{MappedTime, nearest_ns};
#[cfg(feature = "otf2")]
use probe_sync_writers::CollectivePart;
use serde::Serialize;

#[cfg(feature = "otf2")]
use super::members::Members;
use crate::calibrated::{Calibrated, CalibratedTrace};
use crate::collectives::{MapTime, MatchOptions, Matching, match_operations};
use crate::counting::Counting;
use crate::nodes;
use crate::paired::pairing;
use crate::window;

/// Counts of parts joined by flows.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CollectiveFlows {
    /// Operations of at least two ranks with joined parts.
    pub operations: u64,
    /// Parts of these operations within the window.
    pub parts: u64,
    /// Parts for which no output has a slice.
    pub without_slice: u64,
    /// Parts without a certain counterpart: ambiguous ones, those that appear in no other trace,
    /// and those of files into which several traces were merged.
    pub not_joined: u64,
}

/// Flow ends that still need their slices.
#[derive(Debug, Default)]
pub(super) struct Joined {
    /// Flow ends by trace, in order of their starts.
    ends: Vec<Vec<End>>,
    /// Names of operations, as in the trace facts.
    names: Vec<String>,
    /// Members by operation.
    #[cfg(feature = "otf2")]
    members: Members,
    found: CollectiveFlows,
}

/// Flow end at a part.
#[derive(Copy, Clone, Debug)]
struct End {
    start_ns: i64,
    end_ns: i64,
    operation: u64,
    name: u32,
    place: FlowEnd,
    /// Number of the member in the operation, in order of traces.
    #[cfg(feature = "otf2")]
    member: u32,
    /// Consumers that have found the slice, as bits.
    taken: u8,
}

impl Joined {
    /// Finds the operations of all traces, and their parts within the window. Files into which
    /// several traces were merged are skipped, because they do not record the rank of each part.
    pub(super) fn of(calibrated: &Calibrated, window_ns: Option<[i64; 2]>, inclusive: bool) -> Self {
        let traces = &calibrated.traces;
        let pairing = pairing(calibrated);
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
            match_operations(nodes, &pairing, MatchOptions::default(), &mut |operation| {
                let kept = operation.parts.iter().filter_map(|part| {
                    let trace = single[part.node];
                    let [start, end] = [part.start_ps, part.end_ps].map(|time| nearest_ns(maps[trace].map(time)));
                    let (start_ns, end_ns) = (start?, end?);
                    let wanted = window_ns.is_none_or(|window| window::keeps(window, inclusive, start_ns, end_ns));
                    wanted.then_some((start_ns, end_ns, trace, part.label.name.as_str()))
                });
                let kept: Vec<_> = kept.collect();
                #[cfg(feature = "otf2")]
                if kept.len() >= PARTS_MIN {
                    joined.members.take(operation, &single, &kept);
                }
                joined.take(kept);
            })
        });
        joined.found.not_joined = not_joined(&matching, traces);
        joined
            .ends
            .iter_mut()
            .for_each(|ends| ends.sort_unstable_by_key(|end| (end.start_ns, end.end_ns, end.operation)));
        joined
    }

    /// Adds the parts of one operation: start, end, trace and name of each.
    fn take(&mut self, mut parts: Vec<(i64, i64, usize, &str)>) {
        if parts.len() < PARTS_MIN {
            return;
        }
        parts.sort_unstable();
        let operation = self.found.operations;
        self.found.operations += 1;
        self.found.parts += parts.len() as u64;
        let last = parts.len() - 1;
        #[cfg(feature = "otf2")]
        let members = Members::numbers(&parts);
        for (place, (start_ns, end_ns, trace, name)) in parts.into_iter().enumerate() {
            // Few names in a row of one operation after the other: a job has dozens.
            let name = self.names.iter().rposition(|known| known == name).unwrap_or_else(|| {
                self.names.push(name.to_owned());
                self.names.len() - 1
            }) as u32;
            #[cfg(feature = "otf2")]
            let member = members[place];
            let place = match place {
                0 => FlowEnd::Out,
                _ if place == last => FlowEnd::In,
                _ => FlowEnd::Step,
            };
            self.ends[trace].push(End {
                start_ns,
                end_ns,
                operation,
                name,
                place,
                #[cfg(feature = "otf2")]
                member,
                taken: 0,
            });
        }
    }

    /// Returns the chunk of a trace with the flow ends of its slices; `None` if there are none.
    pub(super) fn mark(&mut self, trace: usize, chunk: &Chunk) -> Option<Chunk> {
        let slices = &chunk.slices;
        let mut marked: Option<Chunk> = None;
        for row in 0..slices.track.len() {
            let Some(found) = self.find(trace, chunk, row, FLOWS) else { continue };
            let id = FixedState::with_seed(0).hash_one(("collective", found.operation)).max(1);
            let (flow, start) = (Flow { id, end: found.place }, slices.start_ns[row]);
            let marked = marked.get_or_insert_with(|| chunk.clone());
            if slices.flow[row].id == 0 {
                marked.slices.flow[row] = flow;
            } else {
                // A slice has one flow of its own; others go to the innermost slice that begins
                // then.
                marked.flows.track.push(slices.track[row]);
                marked.flows.time_ns.push(start);
                marked.flows.flow.push(flow);
            }
        }
        marked
    }

    /// Returns the slices of a chunk that are parts of collectives, by row.
    #[cfg(feature = "otf2")]
    pub(super) fn parts(&mut self, trace: usize, chunk: &Chunk) -> Vec<(usize, CollectivePart<'_>)> {
        let rows = 0..chunk.slices.track.len();
        let found: Vec<(usize, End)> =
            rows.filter_map(|row| Some((row, self.find(trace, chunk, row, MEMBERS)?))).collect();
        let part = |(row, end): (usize, End)| Some((row, self.members.part(end.operation, end.member)?));
        found.into_iter().filter_map(part).collect()
    }

    /// Returns the parts of a trace for which no slice was found.
    #[cfg(feature = "otf2")]
    pub(super) fn absent(&self, trace: usize) -> impl Iterator<Item = CollectivePart<'_>> {
        let absent = self.ends[trace].iter().filter(|end| end.taken & MEMBERS == 0);
        absent.filter_map(|end| self.members.part(end.operation, end.member))
    }

    /// Returns the part that a slice represents, once for each consumer.
    fn find(&mut self, trace: usize, chunk: &Chunk, row: usize, by: u8) -> Option<End> {
        let Chunk { strings, slices, .. } = chunk;
        let (start, end) = (slices.start_ns[row], slices.end_ns[row]);
        let ends = &mut self.ends[trace];
        let first = ends.partition_point(|known| known.start_ns < start);
        let name = strings.text(slices.name[row]);
        // A call in a group lasts until the group's end, and its own slice does not.
        let of_slice = ends[first..].iter_mut().take_while(|known| known.start_ns == start).find(|known| {
            let operation = &self.names[known.name as usize];
            let same = name == operation;
            known.taken & by == 0 && (same && end <= known.end_ns || known.end_ns == end && is_of(name, operation))
        });
        // The copy of an annotation on a device's timeline is not the operation.
        let is_copy = || strings.text(slices.category[row]) == "gpu_user_annotation";
        let found = of_slice.filter(|_| !is_copy())?;
        found.taken |= by;
        Some(*found)
    }

    /// Returns the counts, after all traces have been processed.
    pub(super) fn finish(mut self) -> CollectiveFlows {
        self.found.without_slice = self.ends.iter().flatten().filter(|end| end.taken & FLOWS == 0).count() as u64;
        self.found
    }
}

/// Returns the number of parts that are in no operation.
fn not_joined(matching: &Matching, traces: &[CalibratedTrace]) -> u64 {
    let merged = traces.iter().map(|of| &of.trace.facts).filter(|facts| facts.merged);
    let ambiguous: usize = matching.ambiguous.iter().map(|line| line.parts).sum();
    (matching.unpaired + matching.unordered + ambiguous) as u64
        + matching.lost
        + merged.map(|facts| facts.collectives.len()).sum::<u64>()
}

/// Returns true if a slice of this name may be the operation: kernels of NCCL and RCCL have other
/// names than their operations, and gloo adds its own name.
fn is_of(name: &str, operation: &str) -> bool {
    let letters = |text: &str| {
        text.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase()).collect::<Vec<_>>()
    };
    let (name, operation) = (letters(name), letters(operation));
    let holds = |part: &[u8]| !part.is_empty() && name.windows(part.len()).any(|window| window == part);
    holds(b"nccl") || holds(b"rccl") || holds(&operation)
}

/// Consumers that find the slice of a part, as bits of [`End::taken`].
const FLOWS: u8 = 1;
#[cfg(feature = "otf2")]
const MEMBERS: u8 = 2;
/// Fewest parts of an operation that are joined.
const PARTS_MIN: usize = 2;
