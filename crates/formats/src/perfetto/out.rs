//! The destination of a trace's events: chunks of columns on the new clock.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use super::arguments;
use super::event::Event;
use super::sequences::{Sequence, Texts};
use super::tracks::{Place, Tracks};
use crate::chunk::{ArgRange, Chunk, Flow, FlowEnd, StringId, Track, TrackId};
use crate::model::{PS_PER_NS, Picoseconds, nearest_ns};
use crate::protobuf::Fault;
use crate::{ChunkOptions, ChunkStats, MapFunction};

/// Destination of events.
pub(super) struct Out<'a, 'b> {
    pub(super) options: &'a ChunkOptions,
    map: &'a mut MapFunction<'b>,
    pub(super) chunk: Chunk,
    tracks: Tracks,
    declared: u32,
    /// Values of incremental counters.
    sums: HashMap<Place, f64>,
    pub(super) stats: ChunkStats,
    /// The first and the last time of the events of each flow, ns.
    flows: HashMap<u64, (i64, i64), FixedState>,
}

impl<'a, 'b> Out<'a, 'b> {
    pub(super) fn new(
        options: &'a ChunkOptions,
        map: &'a mut MapFunction<'b>,
        tracks: Tracks,
        flows: HashMap<u64, (i64, i64), FixedState>,
    ) -> Self {
        let (chunk, stats, sums) = (Chunk::default(), ChunkStats::default(), HashMap::new());
        Self { options, map, chunk, tracks, declared: 0, sums, stats, flows }
    }

    /// Adds the slice of an event.
    pub(super) fn slice(&mut self, event: &Event<'_>, sequence: &Sequence, span_ns: (i64, i64)) -> Result<(), Fault> {
        let Some(span) = self.span(span_ns)? else { return Ok(()) };
        let track = self.track(&event.place(sequence));
        let args = arguments::put(event.arguments(), sequence, self.options.args, &mut self.chunk)?;
        let (name, category) = self.texts(event, sequence);
        let mut flows = event.flows.iter().map(|flow| self.flow(*flow, span_ns.0)).collect::<Vec<_>>().into_iter();
        let flow = flows.next().unwrap_or_default();
        self.push_slice(track, span, (name, category), flow, args);
        self.flow_points(track, span.0, flows);
        Ok(())
    }

    /// Adds a slice with these texts.
    pub(super) fn push_slice(
        &mut self,
        track: TrackId,
        (start_ns, end_ns): (i64, i64),
        (name, category): (StringId, StringId),
        flow: Flow,
        args: ArgRange,
    ) {
        let slices = &mut self.chunk.slices;
        slices.track.push(track);
        slices.start_ns.push(start_ns);
        slices.end_ns.push(end_ns);
        slices.name.push(name);
        slices.category.push(category);
        slices.flow.push(flow);
        slices.args.push(args);
        self.stats.events += 1;
    }

    /// Adds an event without a duration.
    pub(super) fn instant(&mut self, event: &Event<'_>, sequence: &Sequence, at_ns: i64) -> Result<(), Fault> {
        let Some((time_ns, _)) = self.span((at_ns, at_ns))? else { return Ok(()) };
        let track = self.track(&event.place(sequence));
        let args = arguments::put(event.arguments(), sequence, self.options.args, &mut self.chunk)?;
        let (name, category) = self.texts(event, sequence);
        let instants = &mut self.chunk.instants;
        instants.track.push(track);
        instants.time_ns.push(time_ns);
        instants.name.push(name);
        instants.category.push(category);
        instants.args.push(args);
        self.stats.events += 1;
        let flows: Vec<Flow> = event.flows.iter().map(|flow| self.flow(*flow, at_ns)).collect();
        self.flow_points(track, time_ns, flows.into_iter());
        Ok(())
    }

    /// Adds the value of a counter.
    pub(super) fn value(&mut self, place: Place, at_ns: i64, value: f64) -> Result<(), Fault> {
        let counter = match &place {
            Place::Described(number) => self.tracks.counter(*number),
            _ => None,
        };
        let (multiplier, is_incremental) = counter.map_or((1.0, false), |of| (of.multiplier, of.is_incremental));
        let value = if is_incremental {
            let sum = self.sums.entry(place.clone()).or_insert(0.0);
            *sum += value;
            *sum
        } else {
            value
        };
        let Some((time_ns, _)) = self.span((at_ns, at_ns))? else { return Ok(()) };
        let track = self.track(&place);
        let counters = &mut self.chunk.counters;
        counters.track.push(track);
        counters.time_ns.push(time_ns);
        counters.value.push(value * multiplier);
        self.stats.events += 1;
        Ok(())
    }

    /// Start and end on the new clock; `None` if they cannot be believed.
    pub(super) fn span(&mut self, (start_ns, end_ns): (i64, i64)) -> Result<Option<(i64, i64)>, Fault> {
        let is_away = |ns: i64| {
            let ps = Picoseconds::from(ns) * PS_PER_NS;
            self.options.reach.is_some_and(|reach| !(reach.first_ps..=reach.last_ps).contains(&ps))
        };
        if is_away(start_ns) || is_away(end_ns) {
            self.stats.left_out += 1;
            return Ok(None);
        }
        let mut new = |ns: i64| nearest_ns((self.map)(Picoseconds::from(ns) * PS_PER_NS));
        match (new(start_ns), new(end_ns)) {
            (Some(start_ns), Some(end_ns)) => Ok(Some((start_ns, end_ns.max(start_ns)))),
            _ => Err(Fault::new("a new time does not fit in 64 bits of nanoseconds")),
        }
    }

    /// The track of a place, which is declared when it is first used.
    pub(super) fn track(&mut self, place: &Place) -> TrackId {
        let Self { tracks, chunk, declared, options, .. } = self;
        tracks.track(place, options, &mut |track: Track| {
            chunk.tracks.push(track);
            *declared += 1;
            TrackId(*declared - 1)
        })
    }

    fn texts(&mut self, event: &Event<'_>, sequence: &Sequence) -> (StringId, StringId) {
        let strings = &mut self.chunk.strings;
        let mut text = |table, number: Option<u64>, stated: Option<&[u8]>| match (stated, number) {
            (Some(stated), _) => strings.intern_lossy(stated),
            (None, number) => {
                strings.intern(number.and_then(|number| sequence.text(table, number)).unwrap_or_default())
            }
        };
        let (number, stated) = event.name();
        (text(Texts::Name, number, stated), text(Texts::Category, event.category_id, event.category))
    }

    /// An end of a flow; ids are of this file.
    fn flow(&self, (id, is_last): (u64, bool), at_ns: i64) -> Flow {
        let end = match self.flows.get(&id) {
            Some((first_ns, last_ns)) if first_ns < last_ns && at_ns == *first_ns => FlowEnd::Out,
            Some((_, last_ns)) if is_last || at_ns == *last_ns => FlowEnd::In,
            _ if is_last => FlowEnd::In,
            _ => FlowEnd::Step,
        };
        Flow { id: FixedState::with_seed(0).hash_one((self.options.part, id)).max(1), end }
    }

    fn flow_points(&mut self, track: TrackId, time_ns: i64, flows: impl Iterator<Item = Flow>) {
        for flow in flows {
            self.chunk.flows.track.push(track);
            self.chunk.flows.time_ns.push(time_ns);
            self.chunk.flows.flow.push(flow);
        }
    }
}
