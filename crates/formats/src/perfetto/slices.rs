//! Where each slice ends: begins and ends are events of their own, in any order in the file.
//!
//! The trace's order is that of times, and of the file among equal ones, as trace processor sorts
//! it; an end belongs to the last slice of its track that began and has not ended. While a file is
//! in this order, which writers that do not buffer keep on each track, only the open slices are
//! remembered. At the first event before its track's last one, matching starts again with all
//! begins and ends in memory, 24 bytes each.

use std::collections::HashMap;
use std::path::Path;

use foldhash::fast::FixedState;

use super::clocks::Clocks;
use super::event::{Event, Kind};
use super::flows::Flows;
use super::packet::{self, Packet};
use super::sequences::{Sequence, Sequences};
use super::tracks::{Place, Tracks};
use crate::Error;
use crate::model::{PS_PER_NS, Picoseconds, Reach};
use crate::protobuf::Fault;

/// What a first pass over a trace finds.
#[derive(Debug, Default)]
pub(super) struct Slices {
    pub(super) tracks: Tracks,
    /// The end of each slice that begins, in the order of the file, ns; [`NO_END`] without one.
    pub(super) ends: Vec<i64>,
    /// The last time of an event that can be believed, ns.
    pub(super) last_ns: i64,
    pub(super) flows: Flows,
    /// Ends of no slice.
    pub(super) unmatched: u64,
    /// Ends that have arguments.
    pub(super) arguments_of_ends: u64,
}

/// Takes a packet, its sequence's state, and its time on the wanted clock, ns.
pub(super) type Take<'a> = dyn FnMut(&Packet<'_>, &Sequence, Option<i64>) -> Result<(), Fault> + 'a;

/// Passes each packet to `take` with its sequence's state and its time on the wanted clock; packets
/// whose state was lost are left out and counted.
///
/// # Errors
/// The file cannot be read; errors of `take`.
pub(super) fn walk(path: &Path, keeps_texts: bool, take: &mut Take<'_>) -> Result<u64, Error> {
    let (mut clocks, mut sequences, mut lost) = (Clocks::default(), Sequences::new(keeps_texts), 0);
    packet::each(path, &mut |packet| {
        clocks.tell(packet).map_err(Fault::new)?;
        if clocks.is_lost(packet) {
            lost += 1;
            return Ok(());
        }
        let time_ns = clocks.locate(packet).and_then(|located| located.time_ns());
        take(packet, sequences.tell(packet)?, time_ns)
    })?;
    Ok(lost)
}

impl Slices {
    /// Reads a trace.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read(path: &Path, reach: Option<Reach>) -> Result<Slices, Error> {
        let mut matching = Matching::InOrder(HashMap::default());
        let slices = Slices::pass(path, reach, &mut matching)?;
        if !matches!(matching, Matching::Disordered) {
            return Ok(slices);
        }
        let mut matching = Matching::Sorting(Vec::new());
        let mut slices = Slices::pass(path, reach, &mut matching)?;
        if let Matching::Sorting(all) = matching {
            slices.sorted(all);
        }
        Ok(slices)
    }

    fn pass(path: &Path, reach: Option<Reach>, matching: &mut Matching) -> Result<Slices, Error> {
        let mut slices = Slices::default();
        let mut places: HashMap<Place, u32, FixedState> = HashMap::default();
        let ps = |ns: i64| Picoseconds::from(ns) * PS_PER_NS;
        walk(path, false, &mut |packet, sequence, time_ns| {
            if let Some(message) = packet.descriptor {
                slices.tracks.describe(message)?;
            }
            let (Some(message), Some(time_ns)) = (packet.event, time_ns) else { return Ok(()) };
            let event = Event::parse(message)?;
            if reach.is_none_or(|reach| reach.holds(ps(time_ns), ps(time_ns))) {
                slices.last_ns = slices.last_ns.max(time_ns);
            }
            if matches!(event.kind, Kind::Begin | Kind::Whole(_) | Kind::Instant) {
                event.flows.iter().for_each(|flow| slices.flows.add(*flow, time_ns));
                event.launched.iter().for_each(|stage| slices.flows.launch(*stage));
            }
            if matches!(event.kind, Kind::Begin | Kind::End) {
                let next = places.len() as u32;
                let track = *places.entry(event.place(sequence)).or_insert(next);
                slices.take(&event, track, time_ns, matching)?;
            }
            Ok(())
        })?;
        slices.flows.connect();
        Ok(slices)
    }

    fn take(&mut self, event: &Event<'_>, track: u32, time_ns: i64, matching: &mut Matching) -> Result<(), Fault> {
        let slice = match event.kind {
            Kind::Begin => {
                self.ends.push(NO_END);
                Some(
                    u32::try_from(self.ends.len() - 1)
                        .map_err(|_| Fault::new("the trace has more than 2^32 slices"))?,
                )
            }
            _ => {
                self.arguments_of_ends += u64::from(event.has_arguments);
                None
            }
        };
        match matching {
            Matching::InOrder(open) => {
                let open = open.entry(track).or_default();
                if time_ns < open.last_ns {
                    *matching = Matching::Disordered;
                    return Ok(());
                }
                open.last_ns = time_ns;
                match slice {
                    Some(slice) => open.slices.push(slice),
                    None => self.end(open.slices.pop(), time_ns),
                }
            }
            Matching::Disordered => {}
            Matching::Sorting(all) if all.len() >= SORTED_MAX => {
                return Err(Fault::new(format!(
                    "the trace has more than {SORTED_MAX} begins and ends of slices that are not in the order of their times"
                )));
            }
            Matching::Sorting(all) => all.push((time_ns, track, slice)),
        }
        Ok(())
    }

    fn sorted(&mut self, mut all: Vec<(i64, u32, Option<u32>)>) {
        all.sort_by_key(|(time_ns, ..)| *time_ns);
        let mut open: HashMap<u32, Vec<u32>, FixedState> = HashMap::default();
        for (time_ns, track, slice) in all {
            let open = open.entry(track).or_default();
            match slice {
                Some(slice) => open.push(slice),
                None => self.end(open.pop(), time_ns),
            }
        }
    }

    fn end(&mut self, slice: Option<u32>, time_ns: i64) {
        match slice {
            Some(slice) => self.ends[slice as usize] = time_ns,
            None => self.unmatched += 1,
        }
    }
}

/// How begins and ends are matched.
enum Matching {
    /// By track: the slices that are open.
    InOrder(HashMap<u32, Open, FixedState>),
    /// The file is not in order.
    Disordered,
    /// All, with their time, track, and the slice that begins.
    Sorting(Vec<(i64, u32, Option<u32>)>),
}

/// The open slices of a track.
struct Open {
    last_ns: i64,
    slices: Vec<u32>,
}

impl Default for Open {
    fn default() -> Self {
        Self { last_ns: i64::MIN, slices: Vec::new() }
    }
}

/// In place of an end.
pub(super) const NO_END: i64 = i64::MIN;
/// Begins and ends of a trace that is not in order: 1.6 GB.
const SORTED_MAX: usize = 1 << 26;
