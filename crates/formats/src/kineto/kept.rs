//! The selection of an input's events for a merged file.
//!
//! `merge` creates it from a filter. The first pass over the input finds the launches of
//! collectives, another pass the flow ends that stay, and the last asks about each event. A flow
//! end belongs to the slice that was written before it on its track, as Kineto writes them; it
//! stays if that slice and the flow's other end stay. Events that mark a begin or an end separately
//! (`B`, `E`, `b`, `e`, …) state no duration and cannot be filtered, so they are left out and
//! counted.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;
use std::path::Path;

use foldhash::fast::FixedState;
use memchr::memmem::Finder;

use super::document::{Document, Item};
use super::event::Event;
use super::scan::{self, EventSpans};
use super::timing::Timing;
use super::words::{self, Side};
use crate::Error;
use crate::model::{Picoseconds, Reach};
use crate::{EventFilter, Named, Seen};

/// What is kept of one input.
pub(super) struct Kept<'a> {
    filter: &'a dyn EventFilter,
    input: usize,
    base_ps: Picoseconds,
    reach: Option<Reach>,
    /// Correlations of kernels that are parts of collectives.
    collectives: HashSet<u64, FixedState>,
    /// By flow: which of its ends are kept.
    flows: HashMap<u64, u8, FixedState>,
    /// By track: start and end of the last slice, and whether it is kept.
    last: HashMap<u64, (Picoseconds, Picoseconds, bool), FixedState>,
    /// What names say; names repeat.
    names: HashMap<Box<[u8]>, Named, FixedState>,
    nccl: Finder<'static>,
    rccl: Finder<'static>,
}

impl<'a> Kept<'a> {
    pub(super) fn new(filter: &'a dyn EventFilter, input: usize, reach: Option<Reach>) -> Self {
        Self {
            filter,
            input,
            base_ps: 0,
            reach,
            collectives: HashSet::default(),
            flows: HashMap::default(),
            last: HashMap::default(),
            names: HashMap::default(),
            nccl: Finder::new("nccl"),
            rccl: Finder::new("rccl"),
        }
    }

    /// Processes an event of the first pass.
    pub(super) fn look(&mut self, bytes: &[u8], spans: &EventSpans) {
        let name = spans.name.of(bytes);
        if words::category(spans.cat.of(bytes)) != b"kernel"
            || self.nccl.find(name).is_none() && self.rccl.find(name).is_none()
            || self.collectives.len() >= LAUNCHES_MAX
        {
            return;
        }
        self.collectives.extend(correlation(bytes, spans));
    }

    /// Scans the input for the ends of its flows.
    ///
    /// # Errors
    /// Returns an error for anything wrong with the input, with its offset.
    pub(super) fn survey(&mut self, path: &Path, base_ns: Option<i64>) -> Result<(), Error> {
        self.base_ps = i128::from(base_ns.unwrap_or(0)) * 1000;
        if !self.filter.knows(self.input) {
            return Ok(());
        }
        let mut document = Document::open(path, &[])?;
        loop {
            match document.next()? {
                Item::End => break,
                Item::Event(event) => self.note(&event),
                _ => {}
            }
        }
        self.last.clear();
        Ok(())
    }

    /// Notes an end of a flow that is kept, or the slice that it may belong to.
    fn note(&mut self, event: &Event<'_>) {
        match phase(event) {
            b'X' => {
                let Some(seen) = self.seen(event) else { return };
                let stays = self.filter.wants(self.input, &seen);
                self.remember(event, &seen, stays);
            }
            b's' | b't' | b'f' => {
                let (flow, ends) = flow(event);
                if self.has_slice(event) && (self.flows.len() < FLOWS_MAX || self.flows.contains_key(&flow)) {
                    *self.flows.entry(flow).or_default() |= ends;
                }
            }
            _ => {}
        }
    }

    /// Whether an event stays; one without a time does not.
    pub(super) fn takes(&mut self, event: &Event<'_>) -> bool {
        let phase = phase(event);
        if phase == b'M' {
            return true;
        }
        let is_of_traces = self.filter.knows(self.input);
        if is_of_traces && !matches!(phase, b'X' | b'i' | b'I' | b'R' | b'C' | b's' | b't' | b'f') {
            self.filter.leave_unjudged();
            return false;
        }
        let Some(seen) = self.seen(event) else { return false };
        match phase {
            _ if !is_of_traces => self.filter.is_within(seen.start_ps, seen.end_ps),
            b'X' => {
                let stays = self.filter.take(self.input, &seen);
                self.remember(event, &seen, stays);
                stays
            }
            b's' | b't' | b'f' => {
                let whole = self.flows.get(&flow(event).0).is_some_and(|ends| *ends == BOTH);
                self.filter.take_flow_end(whole && self.has_slice(event))
            }
            _ => self.filter.take(self.input, &seen),
        }
    }

    fn remember(&mut self, event: &Event<'_>, seen: &Seen, stays: bool) {
        let track = track(event);
        if self.last.len() < TRACKS_MAX || self.last.contains_key(&track) {
            self.last.insert(track, (seen.start_ps, seen.end_ps, stays));
        }
    }

    /// Whether the slice that an end of a flow belongs to stays.
    fn has_slice(&self, event: &Event<'_>) -> bool {
        let Some(timing) = self.timing(event) else { return false };
        let at = self.base_ps + timing.ts.ps;
        let last = self.last.get(&track(event));
        last.is_some_and(|(start, end, stays)| *stays && (*start..=*end).contains(&at))
    }

    fn timing(&self, event: &Event<'_>) -> Option<Timing> {
        Timing::believed(event.bytes, event.spans, self.base_ps, self.reach).ok().flatten()
    }

    fn seen(&mut self, event: &Event<'_>) -> Option<Seen> {
        let (bytes, spans) = (event.bytes, event.spans);
        let timing = self.timing(event)?;
        let start_ps = self.base_ps + timing.ts.ps;
        let (name, category) = (spans.name.of(bytes), words::category(spans.cat.of(bytes)));
        let is_launch = matches!(category, b"cuda_runtime" | b"cuda_driver");
        let of_collective = self.tells_of_message(name, category)
            || is_launch
                && !self.collectives.is_empty()
                && correlation(bytes, spans).is_some_and(|launch| self.collectives.contains(&launch));
        Some(Seen {
            start_ps,
            end_ps: start_ps + timing.length_ps(),
            // The copy of a step on a device's timeline is none.
            named: if category == b"gpu_user_annotation" { Named::default() } else { self.named(name) },
            on_device: words::side(category) == Some(Side::Device),
            of_collective,
            bytes: bytes.len() as u64,
        })
    }

    /// Whether it is the call that states the peer and the tag of a message.
    fn tells_of_message(&self, name: &[u8], category: &[u8]) -> bool {
        category == b"cpu_op" && (name.starts_with(b"\"c10d::send") || name.starts_with(b"\"c10d::recv_\""))
    }

    fn named(&mut self, name: &[u8]) -> Named {
        if let Some(named) = self.names.get(name) {
            return *named;
        }
        let [b'"', inside @ .., b'"'] = name else { return Named::default() };
        let named = self.filter.named(&super::candidate::text(name));
        if inside.len() <= NAME_MAX {
            if self.names.len() >= NAMES_MAX {
                self.names.clear();
            }
            self.names.insert(name.into(), named);
        }
        named
    }
}

/// Phase of an event, as a letter.
fn phase(event: &Event<'_>) -> u8 {
    words::phase(event.spans.ph.of(event.bytes))
}

/// The flow of an end, and which end it is.
fn flow(event: &Event<'_>) -> (u64, u8) {
    let (bytes, spans) = (event.bytes, event.spans);
    let id = HASH.hash_one((words::number(spans.id.of(bytes)), spans.cat.of(bytes)));
    let ends = match phase(event) {
        b's' => OUT,
        b'f' => IN,
        // A step is the end of one arrow and the start of the next.
        _ => BOTH,
    };
    (id, ends)
}

fn track(event: &Event<'_>) -> u64 {
    let [pid, tid] = [event.spans.pid, event.spans.tid].map(|span| words::number(span.of(event.bytes)));
    HASH.hash_one((pid, tid))
}

/// The number that joins a launch and its kernel.
fn correlation(bytes: &[u8], spans: &EventSpans) -> Option<u64> {
    let mut found = None;
    if spans.args.of(bytes).first() == Some(&b'{') {
        // What is wrong with an event is found when it is written.
        let _ = scan::object(&bytes[..spans.args.end()], spans.args.start(), |key, value| {
            if key == b"correlation" {
                found = Some(HASH.hash_one(&bytes[value]));
            }
            Ok(())
        });
    }
    found
}

const HASH: FixedState = FixedState::with_seed(0);
const OUT: u8 = 1;
const IN: u8 = 2;
const BOTH: u8 = OUT | IN;
/// Most launches of collectives held; those of others count as ordinary events.
const LAUNCHES_MAX: usize = 1 << 22;
/// Most flows held; further ones are left out, and counted.
const FLOWS_MAX: usize = 1 << 22;
/// Most tracks whose last slices are held.
const TRACKS_MAX: usize = 1 << 20;
/// Most names held, and their largest length.
const NAMES_MAX: usize = 1 << 16;
const NAME_MAX: usize = 1 << 10;
