//! Records a device's events on virtual threads, one per queue.
//!
//! Backends pass in each queue's events in order of their beginnings; this writes them in order of
//! their ends, with their depth, as threads do. Events of a queue that overlap without nesting go
//! to further threads of the same queue.
//!
//! It does not map times, except those of losses, which are counted together with those of the
//! host.

use std::collections::HashMap;
use std::sync::Arc;

use super::clock::{DeviceMap, DevicePair};
use crate::active::core::Core;
use crate::active::registry::Registry;
use crate::event::FlowPlace;
use crate::kind::Kind;
use crate::layout::record;
use crate::site::Site;
use crate::thread::lane::Lane;
use crate::thread::{define, sync};
use crate::value::{Arguments, Listed, Value, Words};

/// A queue of a device, as returned by [`Sink::track`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TrackId(usize);

/// An event on a device.
#[derive(Copy, Clone, Debug)]
pub struct DeviceEvent<'a> {
    /// Name.
    pub name: &'a str,
    /// Kind of the event.
    pub kind: Kind,
    /// Start, on the device's clock.
    pub start: u64,
    /// End, on the device's clock.
    pub end: u64,
    /// Id of the host's event that launched it; 0 if unknown.
    pub correlation: u64,
    /// A flow that passes at its start.
    pub flow: Option<(FlowPlace, u64)>,
    /// Its arguments.
    pub arguments: &'a [(&'a str, Value<'a>)],
}

/// Receives a backend's events.
#[derive(Debug)]
pub struct Sink {
    core: Arc<Core>,
    clock: u32,
    map: DeviceMap,
    tracks: Vec<Track>,
    sites: HashMap<(Kind, String), u32>,
    keys: HashMap<String, u32>,
}

#[derive(Debug)]
struct Track {
    device: String,
    queue: String,
    rows: Vec<Row>,
}

/// A thread of the recording.
#[derive(Debug)]
struct Row {
    lane: OwnLane,
    /// Events not written yet, each nested in the previous one.
    open: Vec<Pending>,
    /// Events that begin before this are too late.
    from: u64,
}

#[derive(Debug)]
struct Pending {
    start: u64,
    end: u64,
    words: Vec<u64>,
}

/// A lane that belongs to no thread.
#[derive(Debug)]
struct OwnLane(Box<Lane>);

// SAFETY: a lane's cells are used through `&mut Sink` alone, by one thread at a time; what they
// point to is the session's memory, which `Sink::core` keeps.
unsafe impl Send for OwnLane {}

impl Sink {
    pub(super) fn new(core: Arc<Core>, clock: u32, rate: f64) -> Self {
        let map = DeviceMap::of(Vec::new(), rate);
        let (sites, keys) = (HashMap::new(), HashMap::new());
        Self { core, clock, map, tracks: Vec::new(), sites, keys }
    }

    /// Returns a queue; equal names give the same one.
    pub fn track(&mut self, device: &str, queue: &str) -> TrackId {
        let known = self.tracks.iter().position(|track| track.device == device && track.queue == queue);
        TrackId(known.unwrap_or_else(|| {
            self.tracks.push(Track { device: device.into(), queue: queue.into(), rows: Vec::new() });
            self.tracks.len() - 1
        }))
    }

    /// Adds an event. Those of a track must be in order of their start, the longest first if they
    /// start together; one that is too late, or ends before it begins, is counted as lost.
    pub fn event(&mut self, track: TrackId, event: &DeviceEvent<'_>) {
        let site = self.site(event.kind, event.name);
        let Some(row) = self.row(track, event) else { return };
        let words = self.words(site, event, self.tracks[track.0].rows[row].open.len());
        if let Some((place, flow)) = event.flow {
            let kind = match place {
                FlowPlace::Out => record::FLOW_OUT,
                FlowPlace::Step => record::FLOW_STEP,
                FlowPlace::In => record::FLOW_IN,
            };
            let depth = self.tracks[track.0].rows[row].open.len() as u32 + 1;
            let flow = [record::head(site, kind, 3, depth), event.start, flow];
            self.write(track, row, &flow, event.start, event.start);
        }
        let row = &mut self.tracks[track.0].rows[row];
        row.from = event.start;
        row.open.push(Pending { start: event.start, end: event.end, words });
    }

    /// Adds a pair of the device's clock and the recorder's.
    pub(super) fn pair(&mut self, pair: DevicePair) {
        if self.map.add(pair) {
            self.core.define_pair(self.clock, pair.device, [pair.ticks, pair.bracket_ticks]);
        }
    }

    /// Counts events that a device lost between two times of its clock.
    #[cfg(feature = "cupti")]
    pub(super) fn lose(&self, events: u64, first: u64, last: u64) {
        if events > 0 {
            self.core.lose(events, self.map.ticks(first), self.map.ticks(last));
        }
    }

    /// Adds a note to the recording.
    #[cfg(feature = "cupti")]
    pub(super) fn note(&self, text: &str) {
        self.core.define_note(text);
    }

    /// Writes all events, after the last one.
    pub(super) fn close(&mut self) {
        for track in 0..self.tracks.len() {
            for row in 0..self.tracks[track].rows.len() {
                self.flush(TrackId(track), row, u64::MAX);
                self.tracks[track].rows[row].lane.0.detach(0);
            }
        }
        self.tracks.clear();
    }

    /// Returns the row that has room for an event; `None` if there is none, in which case the event
    /// is counted.
    fn row(&mut self, track: TrackId, event: &DeviceEvent<'_>) -> Option<usize> {
        if event.start <= event.end {
            for row in 0..ROWS_MAX {
                if row == self.tracks[track.0].rows.len() {
                    self.add_row(track);
                }
                if event.start < self.tracks[track.0].rows[row].from {
                    continue;
                }
                self.flush(track, row, event.start);
                let top = self.tracks[track.0].rows[row].open.last();
                if top.is_none_or(|top| event.end <= top.end) {
                    return Some(row);
                }
            }
        } else if self.tracks[track.0].rows.is_empty() {
            self.add_row(track);
        }
        let [first, last] = [event.start, event.end].map(|time| self.map.ticks(time));
        self.tracks[track.0].rows[0].lane.0.lose(1, first, last);
        None
    }

    fn add_row(&mut self, track: TrackId) {
        let (lane, serial) = (OwnLane(Box::new(Lane::none())), sync::new_serial());
        let Track { device, queue, rows } = &mut self.tracks[track.0];
        lane.0.attach(&self.core, serial, DEVICE_TID + u64::from(serial), queue);
        self.core.define_track(serial, self.clock, rows.len() as u32, [device, queue]);
        rows.push(Row { lane, open: Vec::new(), from: 0 });
    }

    /// Writes events that have ended before a time, innermost first.
    fn flush(&mut self, track: TrackId, row: usize, before: u64) {
        while let Some(ended) = self.tracks[track.0].rows[row].open.pop_if(|top| top.end <= before) {
            self.write(track, row, &ended.words, ended.start, ended.end);
            let row = &mut self.tracks[track.0].rows[row];
            row.from = row.from.max(ended.end);
        }
    }

    fn write(&mut self, track: TrackId, row: usize, words: &[u64], start: u64, end: u64) {
        let lane = &self.tracks[track.0].rows[row].lane.0;
        // A device may hand over more at once than there is room for. Others may take what is made.
        for _ in 0..DRAINS {
            if self.core.stream.is_none() || lane.has_room(words.len()) {
                break;
            }
            self.core.drain();
        }
        lane.write(words, self.map.ticks(start), self.map.ticks(end));
    }

    fn words(&mut self, site: u32, event: &DeviceEvent<'_>, depth: usize) -> Vec<u64> {
        let numbered: Vec<(u32, Value<'_>)> =
            event.arguments.iter().filter_map(|(key, value)| Some((self.key(key)?, *value))).collect();
        let fits = |count: &usize| record::SCOPE_WORDS + listed(&numbered[..*count]).words() <= record::WORDS_MAX;
        let count = (0..=numbered.len()).rev().find(fits).unwrap_or(0);
        let arguments = listed(&numbered[..count]);
        let length = record::SCOPE_WORDS + arguments.words();
        let head = record::head(site, record::SCOPE, length, u32::try_from(depth).unwrap_or(u32::MAX));
        let mut words = vec![head, event.start, event.end, event.correlation];
        words.extend(Words::gathered(&arguments));
        words
    }

    fn site(&mut self, kind: Kind, name: &str) -> u32 {
        if let Some(number) = self.sites.get(&(kind, name.to_owned())) {
            return *number;
        }
        // 0 is a name that is lost.
        let (Some(site), Some(registry)) = (Site::named(kind, name), Registry::current()) else { return 0 };
        // Another thread that numbers it at this moment takes a few stores.
        let number = (0..NUMBER_TRIES).find_map(|_| define::number_of(site, registry));
        let Some(number) = number else { return 0 };
        // This session may be off the list already.
        self.core.define_site(number, site);
        self.sites.insert((kind, name.into()), number);
        number
    }

    fn key(&mut self, key: &str) -> Option<u32> {
        if let Some(number) = self.keys.get(key) {
            return Some(*number);
        }
        let number = define::number_of_name(key)?;
        self.core.define_name(number, key);
        self.keys.insert(key.into(), number);
        Some(number)
    }
}

/// Creates arguments from numbers of keys and values.
fn listed<'a>(arguments: &'a [(u32, Value<'a>)]) -> impl Arguments + 'a {
    Listed(arguments.len(), |at: usize| arguments[at])
}

/// Most threads for one queue.
const ROWS_MAX: usize = 16;
/// Beyond all thread ids (`PID_MAX_LIMIT`), so that a device's are distinct.
const DEVICE_TID: u64 = 1 << 22;
/// Attempts to wait for another thread that numbers a name.
const NUMBER_TRIES: usize = 1000;
/// Attempts to make room for an event.
const DRAINS: usize = 3;
