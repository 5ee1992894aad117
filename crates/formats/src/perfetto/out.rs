//! The destination of a trace's events: chunks of columns on the new clock.

use std::collections::HashMap;
use std::rc::Rc;

use super::arguments;
use super::event::Event;
use super::flows::Flows;
use super::sequences::{GpuCounters, Sequence, Texts};
use super::tracks::{Place, Tracks};
use crate::chunk::{Chunk, Flow, FlowEnd, StringId, Track, TrackId};
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
    /// Values of incremental counters, by sequence; they begin at 0 when its state is cleared.
    sums: HashMap<u32, HashMap<Place, f64>>,
    pub(super) stats: ChunkStats,
    pub(super) flows: Flows,
    /// By GPU: its counters, as a packet stated them.
    pub(super) counters: HashMap<i64, Rc<GpuCounters>>,
    /// By counter of a GPU: its last sample, ns.
    pub(super) samples: HashMap<Place, i64>,
}

impl<'a, 'b> Out<'a, 'b> {
    pub(super) fn new(options: &'a ChunkOptions, map: &'a mut MapFunction<'b>, tracks: Tracks, flows: Flows) -> Self {
        let (chunk, stats, sums) = (Chunk::default(), ChunkStats::default(), HashMap::new());
        Self {
            options,
            map,
            chunk,
            tracks,
            declared: 0,
            sums,
            stats,
            flows,
            counters: HashMap::new(),
            samples: HashMap::new(),
        }
    }

    /// Adds the slice of an event.
    pub(super) fn slice(&mut self, event: &Event<'_>, sequence: &Sequence, span_ns: (i64, i64)) -> Result<(), Fault> {
        let flows = self.flows(event);
        let Some(span) = self.span(span_ns)? else { return Ok(()) };
        let track = self.track(&event.place(sequence));
        let args = arguments::put(event.arguments(), sequence, self.options.args, &mut self.chunk)?;
        let texts = self.texts(event, sequence);
        let (flow, further) = flows.split_first().map_or((Flow::default(), &[][..]), |(first, rest)| (*first, rest));
        self.chunk.slices.push(track, span, texts, flow, args);
        self.stats.events += 1;
        for flow in further {
            self.chunk.flows.push(track, span.0, *flow);
        }
        Ok(())
    }

    /// Adds an event without a duration; one with flows is a slice, because only slices have them.
    pub(super) fn instant(&mut self, event: &Event<'_>, sequence: &Sequence, at_ns: i64) -> Result<(), Fault> {
        if !event.flows.is_empty() {
            return self.slice(event, sequence, (at_ns, at_ns));
        }
        let Some((time_ns, _)) = self.span((at_ns, at_ns))? else { return Ok(()) };
        let track = self.track(&event.place(sequence));
        let args = arguments::put(event.arguments(), sequence, self.options.args, &mut self.chunk)?;
        let (name, category) = self.texts(event, sequence);
        let instants = &mut self.chunk.instants;
        instants.push(track, time_ns, (name, category), args);
        self.stats.events += 1;
        Ok(())
    }

    /// Ends the last value of each counter of a GPU, which holds until the last sample.
    pub(super) fn end_samples(&mut self) -> Result<(), Fault> {
        let mut samples: Vec<(Place, i64)> = self.samples.drain().collect();
        samples.sort_by_key(|(place, at_ns)| (*at_ns, format!("{place:?}")));
        samples.into_iter().try_for_each(|(place, at_ns)| self.value(0, &place, at_ns, 0.0))
    }

    /// Begins the sums of a sequence's incremental counters.
    pub(super) fn clear(&mut self, sequence: u32) {
        self.sums.remove(&sequence);
    }

    /// Adds the value of a counter.
    pub(super) fn value(&mut self, sequence: u32, place: &Place, at_ns: i64, value: f64) -> Result<(), Fault> {
        let counter = match place {
            Place::Described(number) => self.tracks.counter(*number),
            _ => None,
        };
        let (multiplier, is_incremental) = counter.map_or((1.0, false), |of| (of.multiplier, of.is_incremental));
        let value = if is_incremental {
            let sum = self.sums.entry(sequence).or_default().entry(place.clone()).or_insert(0.0);
            *sum += value;
            *sum
        } else {
            value
        };
        let Some((time_ns, _)) = self.span((at_ns, at_ns))? else { return Ok(()) };
        let track = self.track(place);
        let counters = &mut self.chunk.counters;
        counters.push(track, time_ns, value * multiplier);
        self.stats.events += 1;
        Ok(())
    }

    /// Start and end on the new clock; `None` if they cannot be believed.
    pub(super) fn span(&mut self, (start_ns, end_ns): (i64, i64)) -> Result<Option<(i64, i64)>, Fault> {
        let ps = |ns: i64| Picoseconds::from(ns) * PS_PER_NS;
        if self.options.reach.is_some_and(|reach| !reach.holds(ps(start_ns), ps(end_ns))) {
            self.stats.left_out += 1;
            return Ok(None);
        }
        let mut new = |ns: i64| nearest_ns((self.map)(ps(ns)));
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

    /// Ends of flows that an event has.
    fn flows(&mut self, event: &Event<'_>) -> Vec<Flow> {
        let (part, flows) = (self.options.part, &mut self.flows);
        let mut ends: Vec<Flow> = event.flows.iter().filter_map(|(number, _)| flows.end(part, *number)).collect();
        ends.extend(event.launched.iter().filter_map(|stage| flows.of_stage(part, *stage, FlowEnd::Out)));
        ends
    }
}
