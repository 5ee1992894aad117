//! A filter on chunks in order of time, for the formats that are written from chunks.
//!
//! It passes over a trace's events twice: the first pass finds the flow ends that stay, the second
//! writes the remaining events. The track of an event tells whether it ran on a device.

use std::collections::HashMap;

use crate::Error;
use foldhash::fast::FixedState;
use probe_sync_formats::chunk::{ArgRange, Chunk, Flow, FlowEnd, Sorted, StringId, Track, TrackId, TrackKind};
use probe_sync_formats::{EventFilter as _, Named, Seen};

use super::judge::JobFilter;

/// Decisions for one trace's events.
pub(crate) struct ChunkFilter<'a> {
    filter: &'a JobFilter,
    input: usize,
    first_track: u32,
    on_device: Vec<bool>,
    /// By flow: which of its ends are kept.
    flows: HashMap<u64, Ends, FixedState>,
}

#[derive(Copy, Clone, Default)]
struct Ends {
    out: bool,
    inward: bool,
}

impl<'a> ChunkFilter<'a> {
    /// Goes through the events of a trace, then back to the first one.
    ///
    /// # Errors
    /// Returns an error if temporary files cannot be read back.
    pub(crate) fn survey(
        filter: &'a JobFilter,
        input: usize,
        first_track: u32,
        sorted: &mut Sorted,
    ) -> Result<Self, Error> {
        let on_device = on_device(sorted.all_tracks());
        let mut known = Self { filter, input, first_track, on_device, flows: HashMap::default() };
        let mut chunk = Chunk::default();
        while sorted.next(&mut chunk)? {
            known.look(&chunk);
        }
        sorted.rewind()?;
        Ok(known)
    }

    /// Notes which ends of flows are kept.
    fn look(&mut self, chunk: &Chunk) {
        let mut names = Names::default();
        // Ends beside slices are bound to the slice that begins then, which comes after them at the
        // same time.
        let mut beside: HashMap<(TrackId, i64), Vec<Flow>, FixedState> = HashMap::default();
        for (row, flow) in chunk.flows.flow.iter().enumerate() {
            beside.entry((chunk.flows.track[row], chunk.flows.time_ns[row])).or_default().push(*flow);
        }
        for row in 0..chunk.slices.track.len() {
            let (own, start) = (chunk.slices.flow[row], chunk.slices.start_ns[row]);
            let others = beside.get(&(chunk.slices.track[row], start));
            if own.id == 0 && others.is_none() {
                continue;
            }
            let seen = self.slice(chunk, row, &mut names);
            if self.filter.wants_mapped(self.input, start, chunk.slices.end_ns[row], &seen) {
                let all = [own].into_iter().chain(others.into_iter().flatten().copied());
                all.filter(|flow| flow.id != 0).for_each(|flow| self.note(flow));
            }
        }
    }

    fn note(&mut self, flow: Flow) {
        if self.flows.len() >= FLOWS_MAX && !self.flows.contains_key(&flow.id) {
            return;
        }
        let ends = self.flows.entry(flow.id).or_default();
        match flow.end {
            FlowEnd::Out => ends.out = true,
            // A step is the end of one arrow and the start of the next.
            FlowEnd::Step => (ends.out, ends.inward) = (true, true),
            FlowEnd::In => ends.inward = true,
        }
    }

    /// Removes from a chunk what is not kept.
    pub(crate) fn apply(&self, chunk: &mut Chunk) {
        let mut names = Names::default();
        let stays: Vec<bool> = (0..chunk.slices.track.len())
            .map(|row| {
                let (start, end) = (chunk.slices.start_ns[row], chunk.slices.end_ns[row]);
                self.filter.take_mapped(self.input, start, end, &self.slice(chunk, row, &mut names))
            })
            .collect();
        for (flow, stays) in chunk.slices.flow.iter_mut().zip(&stays) {
            if flow.id != 0 && !self.filter.take_flow_end(*stays && self.is_whole(flow.id)) {
                *flow = Flow::default();
            }
        }
        chunk.slices.retain(&stays);
        let stays: Vec<bool> = (0..chunk.instants.track.len())
            .map(|row| {
                let (at, name) = (chunk.instants.time_ns[row], chunk.instants.name[row]);
                let named = names.of(self.filter, chunk, name);
                let seen = self.seen(chunk, chunk.instants.track[row], named, chunk.instants.args[row]);
                self.filter.take_mapped(self.input, at, at, &seen)
            })
            .collect();
        chunk.instants.retain(&stays);
        let stays: Vec<bool> = (0..chunk.counters.track.len())
            .map(|row| {
                let at = chunk.counters.time_ns[row];
                let seen = self.seen(chunk, chunk.counters.track[row], Named::default(), ArgRange::default());
                self.filter.take_mapped(self.input, at, at, &seen)
            })
            .collect();
        chunk.counters.retain(&stays);
        let stays: Vec<bool> =
            chunk.flows.flow.iter().map(|flow| self.filter.take_flow_end(self.is_whole(flow.id))).collect();
        chunk.flows.retain(&stays);
    }

    fn is_whole(&self, flow: u64) -> bool {
        self.flows.get(&flow).is_some_and(|ends| ends.out && ends.inward)
    }

    fn slice(&self, chunk: &Chunk, row: usize, names: &mut Names) -> Seen {
        let named = names.of(self.filter, chunk, chunk.slices.name[row]);
        self.seen(chunk, chunk.slices.track[row], named, chunk.slices.args[row])
    }

    fn seen(&self, chunk: &Chunk, track: TrackId, named: Named, args: ArgRange) -> Seen {
        let on_device = track.0.checked_sub(self.first_track).and_then(|track| self.on_device.get(track as usize));
        let on_device = on_device.copied().unwrap_or(false);
        let keys = &chunk.args.key[args.first as usize..(args.first + args.count) as usize];
        let of_args: usize = keys.iter().map(|key| chunk.strings.text(*key).len() + VALUE_BYTES).sum();
        Seen { named, on_device, bytes: (EVENT_BYTES + of_args) as u64, ..Seen::default() }
    }
}

/// What names say about their events, looked up once per chunk.
#[derive(Default)]
struct Names(HashMap<StringId, Named, FixedState>);

impl Names {
    fn of(&mut self, filter: &JobFilter, chunk: &Chunk, name: StringId) -> Named {
        *self.0.entry(name).or_insert_with(|| filter.named(chunk.strings.text(name)))
    }
}

/// Which tracks belong to devices: the devices themselves, and everything drawn below them.
fn on_device(tracks: &[Track]) -> Vec<bool> {
    let mut found: Vec<bool> = Vec::with_capacity(tracks.len());
    for track in tracks {
        let above = track.parent.and_then(|parent| found.get(parent.0 as usize).copied());
        let itself = matches!(track.kind, TrackKind::Agent | TrackKind::Queue | TrackKind::Stream);
        found.push(itself || above.unwrap_or(false));
    }
    found
}

/// Most ends of flows held; further flows are left out, and counted.
const FLOWS_MAX: usize = 1 << 22;
/// Approximate size of an event or value in an output: the previous attempt gives the total.
const EVENT_BYTES: usize = 96;
const VALUE_BYTES: usize = 16;
